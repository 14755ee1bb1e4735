from __future__ import annotations

from enum import Enum
from typing import Annotated, Literal

import msgspec
import pytest
from msgspec import Meta

from cmserver.base.allowed_values import list_allowed_values
from tests.table import try_rows

Colour = Literal["red", "blue"]


class Mood(Enum):
    GOOD = "good"
    BAD = "bad"


class Leaf(msgspec.Struct, rename="camel"):
    leaf_colour: Colour | int | None = None


class Tree(msgspec.Struct):
    colour: Annotated[Colour | None, Meta(description="as people see it")] = None
    mood: Mood = Mood.GOOD
    name: str = ""
    colours: Annotated[list[Colour], Meta(min_length=1)] | None = None
    leaves: list[Leaf] = []
    by_month: dict[str, Colour] = {}


@try_rows(
    ("wrong", "values"),
    [
        ({"colour": "sour"}, ["blue", "red"]),
        ({"mood": "sour"}, ["bad", "good"]),
        ({"colours": ["red", "sour"]}, ["blue", "red"]),
        ({"leaves": [{}, {"leafColour": "sour"}]}, ["blue", "red"]),
        ({"by_month": {"may": "sour"}}, ["blue", "red"]),
    ],
)
def test_what_msgspec_refuses_is_found_by_its_path(wrong: object, values: list[str]):
    with pytest.raises(msgspec.ValidationError) as refused:
        msgspec.convert(wrong, Tree)
    _, _, path = str(refused.value).partition(" - at ")

    assert list_allowed_values(Tree, path.strip("`")) == values


def test_a_field_of_any_text_is_not_limited():
    assert list_allowed_values(Tree, "$.name") == []
    assert list_allowed_values(Tree, "$.unknown") == []
