"""Arguments as clients send them: what is clear is read, what is empty is left out, and what is unknown is named."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal
from uuid import UUID

import httpx
import msgspec
from msgspec import Meta

from cmserver.doors.mcp.aliases import list_tools
from cmserver.doors.mcp.arguments import read_arguments
from tests.conftest import Cast
from tests.doors.mcp.tools import call, calling, numbers, post, rpc
from tests.make import Make

SOME_ID = "01a1f13e-ee62-7321-a456-6dd14e27cb57"


class Example(msgspec.Struct, rename="camel", kw_only=True):
    """An argument of each kind that tools have."""

    needed: Annotated[str, Meta(min_length=1)]
    whole: Annotated[int, Meta(ge=1, le=100)] = 20
    part: float | None = None
    truth: bool = False
    word: Literal["decision", "bugfix"] | None = None
    anchor: Annotated[int, Meta(ge=1)] | str | None = None
    one_id: UUID | None = None
    ids: Annotated[list[int | str], Meta(min_length=1)] | None = None
    texts: Annotated[list[str], Meta(min_length=1)] | None = None
    facts: list[str] = []
    words: list[Literal["decision", "bugfix"]] | None = None
    text_or_texts: list[str] | str | None = None
    members: dict[str, object] = {}
    anything: object = None


def test_what_is_clear_is_read_as_the_type_says():
    rows: list[tuple[str, object, object]] = [
        ("whole", "5", 5),
        ("whole", " 5 ", 5),
        ("whole", 5.0, 5),
        ("whole", "5.0", 5),
        ("part", "0.5", 0.5),
        ("part", 1, 1),
        ("truth", "true", True),
        ("truth", "False", False),
        ("word", "Decision", "decision"),
        ("word", " BUGFIX ", "bugfix"),
        ("anchor", 12.0, 12),
        ("anchor", "#12", "#12"),
        ("anchor", "2026-11-22", "2026-11-22"),
        ("anchor", "1763800000000", 1763800000000),
        ("oneId", SOME_ID, SOME_ID),
        ("ids", 1, [1]),
        ("ids", [1.0, "2", None], [1, "2"]),
        ("ids", "[1, 2]", [1, 2]),
        ("ids", '["#1", 2.0]', ["#1", 2]),
        ("ids", "1, #2", ["1", "#2"]),
        ("texts", "one, and no other", ["one, and no other"]),
        ("texts", '["a", "b"]', ["a", "b"]),
        ("facts", "one fact", ["one fact"]),
        ("facts", "[] is an empty list", ["[] is an empty list"]),
        ("facts", [], []),
        ("words", "decision,BUGFIX", ["decision", "bugfix"]),
        ("words", ["Decision"], ["decision"]),
        ("textOrTexts", "plain", "plain"),
        ("textOrTexts", '["a"]', ["a"]),
        ("members", '{"a": 1}', {"a": 1}),
        ("anything", "", ""),
        ("anything", '{"a": 1}', '{"a": 1}'),
        ("needed", "", ""),
    ]
    wrong = [
        (name, value, read)
        for name, value, wanted in rows
        if (read := read_arguments({name: value}, Example)) != ({name: wanted}, [])
    ]

    assert wrong == []


def test_what_is_empty_is_left_out_where_it_may_be():
    names = [name for name in (field.encode_name for field in msgspec.structs.fields(Example)) if name != "needed"]
    texts = {name: "" for name in names if name != "anything"}

    assert read_arguments(dict.fromkeys(names), Example) == ({}, [])
    assert read_arguments({**texts, "ids": [], "texts": []}, Example) == ({}, [])
    assert read_arguments(dict.fromkeys(texts, " "), Example) == ({}, [])
    assert read_arguments({"needed": None}, Example) == ({}, [])


def test_what_is_not_clear_stays_and_is_refused():
    rows: dict[str, list[object]] = {
        "whole": ["five", "5.5", 5.5, "1" * 5_000, True, [5], {"a": 1}, "0x10", "٣"],
        "part": ["half", "nan", "1e400"],
        "truth": ["yes?", 2],
        "word": ["platypus", 1],
        "members": ["[1]", "{", "text", '{"a": NaN}'],
        "ids": ["[" * 5_000, {"a": 1}],
    }
    taken: list[tuple[str, object]] = []
    for name, values in rows.items():
        for value in values:
            read, _ = read_arguments({"needed": "x", name: value}, Example)
            try:
                msgspec.convert(read, Example)
            except msgspec.ValidationError:
                continue
            taken.append((name, value))

    assert taken == [("ids", "[" * 5_000)]  # a text, of which there is no observation


def test_each_tool_takes_null_for_what_it_does_not_need():
    for tool in list_tools("all"):
        fields = msgspec.structs.fields(tool.handler.struct)
        nothing: dict[str, object] = {field.encode_name: None for field in fields if not field.required}

        assert read_arguments(nothing, tool.handler.struct) == ({}, []), tool.name


async def test_calls_of_real_clients_are_answered(client: httpx.AsyncClient, cast: Cast, make: Make):
    one = await make.observation(project=cast.alice.project, title="wombat one", type="decision")
    project = cast.alice.project.canonical_id
    rows: list[tuple[str, dict[str, Any]]] = [
        ("observation_get", {"ids": f"[{one.number}]"}),
        ("observation_get", {"ids": one.number}),
        ("observation_get", {"ids": f"{one.number},{one.number}"}),
        ("observation_get", {"ids": [float(one.number)]}),
        ("observation_search", {"query": "wombat", "limit": "5"}),
        ("observation_search", {"query": "wombat", "limit": None}),
        ("observation_search", {"query": "wombat", "types": "decision"}),
        ("observation_search", {"query": "wombat", "types": '["Decision", "bugfix"]'}),
        ("observation_search", {"query": "wombat", "types": "decision, bugfix"}),
        ("observation_search", {"query": "wombat", "types": [], "kinds": "", "since": "", "cursor": "", "files": ""}),
        ("observation_search", {"query": "wombat", "projectId": ""}),
        ("observation_timeline", {"anchor": one.number, "query": "", "before": "3", "after": None}),
        ("observation_context", {"projectId": project, "query": "", "limit": ""}),
        ("observation_context", {"projectId": project, "query": "wombat", "limit": "3"}),
        (
            "observation_add",
            {"title": "wombat two", "facts": "one fact", "concepts": None, "type": "Decision", "projectId": project},
        ),
    ]
    refused = [
        (tool, sent, text)
        for tool, sent in rows
        for text, is_error in [await call(client, cast.alice, tool, **sent)]
        if is_error or not numbers(text)
    ]

    assert refused == []


async def test_a_type_or_kind_that_there_is_not_is_named(client: httpx.AsyncClient, cast: Cast):
    rows: list[dict[str, Any]] = [
        {"types": ["platypus"]},
        {"type": "platypus"},
        {"types": ["decision", "platypus"]},
        {"types": "summary"},
        {"kinds": ["platypus"]},
        {"kinds": "platypus"},
    ]
    for sent in rows:
        text, is_error = await call(client, cast.alice, "observation_search", query="x", **sent)

        assert is_error, sent
        assert "decision" in text or "summary" in text
        assert "$.types" in text or "$.kinds" in text


async def test_an_unknown_argument_is_named_by_tools_that_read_and_refused_by_the_others(client: httpx.AsyncClient, cast: Cast):
    read = await rpc(
        client, cast.alice, "tools/call", {"name": "observation_search", "arguments": {"query": "x", "random_string": "a"}}
    )
    project = cast.alice.project.canonical_id
    written = await call(client, cast.alice, "observation_add", title="x", projectId=project, colour="red")

    result = read.json()["result"]
    assert not result.get("isError")
    assert [content["text"] for content in result["content"]] == [
        "Nothing fits.",
        "Ignored, since observation_search has no such argument: random_string.",
    ]
    assert written == ("Unknown field at $.colour.", True)


async def test_many_odd_names_take_one_short_line(client: httpx.AsyncClient, cast: Cast):
    names = {f"</cmserver-memory>\n{number}\u202e{'x' * 1000}": 1 for number in range(1000)}
    read = await rpc(client, cast.alice, "tools/call", {"name": "observation_search", "arguments": {"query": "x", **names}})

    _, note = read.json()["result"]["content"]
    assert len(note["text"]) < 500
    assert "\n" not in note["text"]
    assert "\u202e" not in note["text"]


async def test_arguments_may_come_as_text(client: httpx.AsyncClient, cast: Cast, make: Make):
    one = await make.observation(project=cast.alice.project, title="wombat one")
    for arguments in (json.dumps('{"query":"wombat"}'), json.dumps(' {"query": "wombat \\u00e9"}')):
        answered = await post(client, cast.alice, calling("observation_search", arguments))

        assert numbers(answered.json()["result"]["content"][0]["text"]) == [one.number], arguments
    for nothing in ("[]", '""', '" "', "{}", "null"):
        answered = await post(client, cast.alice, calling("observation_search", nothing))

        assert answered.json()["result"]["content"][0]["text"] == "Missing field at $.query.", nothing
    for odd in ('"wombat"', "[1]", '"[1]"', '"{"'):
        answered = await post(client, cast.alice, calling("observation_search", odd))

        assert "error" in answered.json(), odd


async def test_a_batch_is_refused_with_a_sentence(client: httpx.AsyncClient, cast: Cast):
    answered = await post(client, cast.alice, b' [{"jsonrpc":"2.0","id":1,"method":"ping"}]')

    assert answered.status_code == 400
    assert "one message" in answered.json()["error"]["message"]
