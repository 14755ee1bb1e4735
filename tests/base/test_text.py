from __future__ import annotations

from typing import Annotated

import msgspec
import pytest
from msgspec import Meta

from cmserver.base.text import in_words
from tests.table import try_rows


@try_rows(
    ("type_", "value", "words"),
    [
        (Annotated[str, Meta(min_length=10)], "short", "At least 10 characters are needed"),
        (Annotated[str, Meta(min_length=1)], "", "At least 1 character is needed"),
        (Annotated[str, Meta(max_length=3)], "long", "At most 3 characters are allowed"),
        (Annotated[list[int], Meta(max_length=1)], [1, 2], "At most 1 item is allowed"),
        (Annotated[dict[str, int], Meta(max_length=1)], {"a": 1, "b": 2}, "At most 1 field is allowed"),
        (Annotated[int, Meta(ge=0)], -1, "The number must be at least 0"),
        (Annotated[int, Meta(ge=1)], 0, "The number must be at least 1"),
        (Annotated[float, Meta(le=1)], 1.5, "The number must be at most 1"),
        (Annotated[float, Meta(lt=0.25)], 0.5, "The number must be less than 0.25"),
        (Annotated[float, Meta(gt=0)], 0.0, "The number must be more than 0"),
        (int, "5", "Expected `int`, got `str`"),
    ],
)
def test_a_limit_of_msgspec_is_said_as_a_person_would(type_: object, value: object, words: str):
    with pytest.raises(msgspec.ValidationError) as refused:
        msgspec.convert(value, type_)

    assert in_words(str(refused.value)) == words
