"""What a team's memory must answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx
import pytest

from cmserver.base.db import Db
from tests.conftest import Cast
from tests.make import Make
from tests.personal.people import make_two
from tests.pins.tools import PROJECT, pin, remember_things, send
from tests.rows import rows
from tests.table import try_rows


@pytest.fixture
async def memory(cast: Cast, make: Make) -> None:
    await remember_things(cast, make)


@pytest.mark.usefixtures("memory")
@try_rows(
    "question, fields, missing, unwanted",
    [
        ("which port does staging use", {"must": ["8443", "STAGING"], "mustNot": ["8080"]}, [], []),
        ("which port does staging listen on", {"must": ["8080", "port  8443", "844"]}, ["8080", "844"], []),
        ("what takes so long at night, the export?", {"mustNot": ["an hour", "hou"]}, [], ["an hour"]),
        ("the export of deploys that wait", {"must": ["an hour"], "lines": 1}, ["an hour"], []),
        ("which database is it", {"must": ["PostgreSQL 18", "pg_dump"]}, [], []),
        ('"nightly export"', {"must": ["hour"], "mustNot": ["deploys"]}, [], []),
        ("wibblewobble", {"mustNot": ["8443"]}, [], []),
    ],
)
async def test_a_pin_says_which_words_are_missing_or_unwanted(
    client: httpx.AsyncClient, cast: Cast, question: str, fields: Mapping[str, Any], missing: list[str], unwanted: list[str]
):
    result = await pin(client, cast, question, **fields)

    assert (result["missing"], result["unwanted"]) == (missing, unwanted)
    assert result["holds"] == result["pin"]["holds"] == (not missing and not unwanted)
    assert bool(result["reason"]) != result["holds"]


async def test_what_contradicts_another_pin_is_refused(client: httpx.AsyncClient, cast: Cast, db: Db):
    await pin(client, cast, "Which port?", must=["port 8443"], lines=3)
    await pin(client, cast, "Which host?", mustNot=["pluto"], lines=3)

    async def refuse(question: str, fields: Mapping[str, object], path: str) -> None:
        refused = await pin(client, cast, question, 400, **fields)
        assert [issue["path"] for issue in refused["issues"]] == [path]

    refused: list[tuple[str, dict[str, object], str]] = [
        ("which  PORT?", {"mustNot": ["x", "8443"], "lines": 3}, "$.mustNot[1]"),
        ("Which host?", {"must": ["Pluto"], "lines": 2}, "$.must[0]"),
        ("Which?", {"must": ["a", "b"], "mustNot": ["B"]}, "$.must[1]"),
        ("Which?", {}, "$.must"),
        ("Which?", {"must": ["a"], "lines": 21}, "$.lines"),
        ("Which?", {"must": ["a"] * 21}, "$.must"),
        ("Which?", {"must": ["a", ""]}, "$.must[1]"),
        ("Which?", {"must": ["a"], "onBreak": "shout"}, "$.onBreak"),
    ]
    for question, fields, path in refused:
        await refuse(question, fields, path)
    assert len(await rows(db, "SELECT id FROM pins")) == 2
    await pin(client, cast, "Which port?", mustNot=["8443"], lines=2)  # it may come third
    await pin(client, cast, "Which host?", must=["pluto"], lines=4)
    edited = await send(client, cast, "PATCH", "/v1/pins/3", {"lines": 3}, 400)
    assert edited["issues"][0]["path"] == "$.mustNot[0]"
    assert (await send(client, cast, "PATCH", "/v1/pins/3", {"mustNot": ["844"], "lines": 3}))["pin"]["lines"] == 3


@pytest.mark.usefixtures("memory")
async def test_the_files_pins_are_taken_all_or_none(client: httpx.AsyncClient, cast: Cast, db: Db):
    await pin(client, cast, "By hand?", must=["no"])
    first = [{"question": "Which port?", "must": ["8443"]}, {"question": "How long does the export take?", "must": ["hour"]}]
    await send(client, cast, "PUT", "/v1/pins", {"projectId": PROJECT, "pins": first})
    before = await rows(db, "SELECT number, question FROM pins ORDER BY number")

    async def refuse(pins: list[object], path: str) -> None:
        refused = await send(client, cast, "PUT", "/v1/pins", {"projectId": PROJECT, "pins": pins}, 400)
        assert [issue["path"] for issue in refused["issues"]] == [path]

    hostile: list[tuple[list[object], str]] = [
        ([first[0], {"question": "which port?", "mustNot": ["8443"]}], "$.pins[1].mustNot[0]"),
        ([first[0], {"question": "by hand?", "mustNot": ["no"]}], "$.pins[1].mustNot[0]"),
        ([{"question": "Q", "must": ["a"], "lines": "five"}], "$.pins[0].lines"),
        ([first[0], {"question": "Q"}], "$.pins[1].must"),
        ([{"question": "Q", "must": ["a"], "run": "rm"}], "$.pins[0].run"),
        (["Q"], "$.pins[0]"),
    ]
    for pins, path in hostile:
        await refuse(pins, path)
    assert await rows(db, "SELECT number, question FROM pins ORDER BY number") == before

    loaded = await send(client, cast, "PUT", "/v1/pins", {"projectId": PROJECT, "pins": [first[1], first[1]]})

    assert [(it["pin"]["number"], it["holds"]) for it in loaded["results"]] == [(3, True)]
    listed = await send(client, cast, "GET", "/v1/pins")
    assert [(it["number"], it["fromFile"]) for it in listed["pins"]] == [(3, True), (1, False)]
    assert (await send(client, cast, "PATCH", "/v1/pins/3", {"lines": 3}, 400))["issues"][0]["path"] == "$.id"


async def test_what_is_one_persons_alone_answers_no_pin(client: httpx.AsyncClient, cast: Cast, db: Db):
    ann, _ = await make_two(db, cast.alice.team_id)
    mine = {"scope": "user", "narrative": "The secret port of staging is 4711."}
    assert (await client.post("/v1/observations", json=mine, headers=ann.headers)).status_code == 201
    body = {"projectId": PROJECT, "question": "Which is the secret port of staging?", "must": ["4711"]}

    made = (await client.post("/v1/pins", json=body, headers=ann.headers)).json()
    checked = (await client.post("/v1/pins/check", json={}, headers=ann.headers)).json()

    assert made["missing"] == ["4711"]
    assert made["hits"] == []
    assert checked["brokenCount"] == 1
