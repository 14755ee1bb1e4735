"""Values of ours in JSON that belongs to others: they go in, and out again, and all other text stays as it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmserver.client.json_edit import Addition, add_values, remove_values
from cmserver.client.json_settings import Json, UnusableSettings, json_object
from tests.table import try_rows

FILE = Path("/home/me/mcp.json")


def is_ours(value: object) -> bool:
    return json_object(value).get("by") == "us"


def is_version(value: object) -> bool:
    return value == 1


SERVER = Addition(container=("servers",), name="cmserver", value={"by": "us", "args": ["a", "b"]}, is_ours=is_ours)
HOOKS = [
    Addition(container=("hooks", event), name=None, value={"by": "us", "event": event}, is_ours=is_ours)
    for event in ("start", "stop")
]
VERSION = Addition(container=(), name="version", value=1, is_ours=is_version, yields=True)
ALL = [VERSION, SERVER, *HOOKS]

TEXTS = [
    "{}",
    "{ }\n",
    "{\n}\n",
    '{"servers": {}}',
    '{\n    "servers": {\n    }\n}\n',
    '{"servers":{"other":{"command":"x"}},"a":1}',
    '{\r\n\t"servers": {\r\n\t\t"other": {"command": "x"}\r\n\t}\r\n}\r\n',
    '{\n  "version": 1,\n  "hooks": {"stop": [{"command": "say done"}], "start": []}\n}',
    '{"version": 2, "hooks": {"edit": [ ]}, "z": "\\u00e9"}\n\n',
    '  {"a" : [1,2 , 3] }  ',
]


@try_rows("text", TEXTS)
def test_what_was_added_goes_away_byte_for_byte(text: str):
    once, made = add_values(FILE, text, ALL)

    twice, made_again = add_values(FILE, once, ALL)
    found = json.loads(once)
    assert (twice, made_again) == (once, [])
    assert found["servers"]["cmserver"] == SERVER.value
    assert all(hook.value in found["hooks"][hook.container[1]] for hook in HOOKS)
    assert remove_values(FILE, once, ALL, made) == text


VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=4)), lambda inner: st.lists(inner, max_size=2)
)
OBJECTS = st.dictionaries(st.text(max_size=4), VALUES, max_size=3)
OTHERS = st.fixed_dictionaries(
    {},
    optional={
        "servers": st.dictionaries(st.sampled_from(["other", "more"]), OBJECTS, max_size=2),
        "hooks": st.dictionaries(st.sampled_from(["start", "stop", "edit"]), st.lists(OBJECTS, max_size=2), max_size=3),
        "version": st.integers(0, 2),
        "theme": VALUES,
    },
)


@given(others=OTHERS, indent=st.sampled_from([None, 1, 2, 4, "\t"]), ascii_only=st.booleans(), end=st.sampled_from(["", "\n"]))
def test_any_text_comes_back_byte_for_byte(others: Json, indent: int | str | None, ascii_only: bool, end: str):
    text = json.dumps(others, indent=indent, ensure_ascii=ascii_only) + end

    once, made = add_values(FILE, text, ALL)

    assert add_values(FILE, once, ALL) == (once, [])
    assert remove_values(FILE, once, ALL, made) == text


def test_a_file_that_was_made_goes_away_but_not_with_what_a_user_has_added():
    once, made = add_values(FILE, None, ALL)
    members = cast("Json", json.loads(once))
    others = json.dumps({**members, "servers": {**json_object(members["servers"]), "other": {}}})

    assert remove_values(FILE, once, ALL, made) is None
    assert json.loads(remove_values(FILE, others, ALL, made) or "") == {"servers": {"other": {}}, "version": 1}


def test_a_value_of_another_version_is_replaced():
    older = '{"servers": {"cmserver": {"by": "us", "args": []}, "other": {}}}'

    text, _ = add_values(FILE, older, [SERVER])

    assert json.loads(text)["servers"] == {"other": {}, "cmserver": SERVER.value}


@try_rows(
    ("text", "place"),
    [
        ('{"servers": []}', '"servers" is not an object'),
        ('{"servers": null}', '"servers" is not an object'),
        ('{"hooks": {"stop": {}}}', '"hooks"."stop" is not a list'),
        ('{"hooks": 1}', '"hooks" is not an object'),
        ('{"servers": {"cmserver": {"url": "http://h/mcp"}}}', '"servers"."cmserver"'),
        ('{"servers": {} // mine\n}', "line 1, column 16"),
    ],
)
def test_what_cannot_be_edited_is_refused_with_the_place(text: str, place: str):
    with pytest.raises(UnusableSettings) as refused:
        add_values(FILE, text, ALL)

    assert place in str(refused.value)
    assert str(FILE) in str(refused.value)
