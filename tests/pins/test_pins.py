"""What a team's memory must answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx
import pytest

from cmserver.base.db import Db
from tests.conftest import Cast, bound_to
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
        ("東京の倉庫", {"must": ["東京", "倉庫"], "mustNot": ["大阪"]}, [], []),
        ("which port does staging use", {"mustNot": ["8443 the nightly"], "lines": 20}, [], []),
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
        ("Which?", {"must": [" \n"]}, "$.must[0]"),
        ("<private>Which?</private>", {"must": ["a"]}, "$.question"),
        ("Which?", {"must": ["a"], "mustNot": ["ghp_" + "a1B2" * 9]}, "$.mustNot[0]"),
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


async def test_no_more_than_some_pins_ask_the_same(client: httpx.AsyncClient, cast: Cast, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("cmserver.pins.change.MAX_OF_QUESTION", 2)
    pins = [{"question": "Which port?", "must": [word]} for word in ("a", "b", "c")]

    refused = await send(client, cast, "PUT", "/v1/pins", {"projectId": PROJECT, "pins": pins}, 400)

    assert refused["issues"][0]["path"] == "$.pins[2].question"
    await send(client, cast, "PUT", "/v1/pins", {"projectId": PROJECT, "pins": [pins[0], pins[0], pins[1]]})


@pytest.mark.usefixtures("memory")
async def test_the_pins_of_a_joined_project_ask_the_other_one(client: httpx.AsyncClient, cast: Cast):
    await send(client, cast, "POST", "/v1/projects", {"canonicalId": "other"}, 201)
    mine = await pin(client, cast, "which port does staging use", must=["8443"])
    joined = mine["pin"]["projectId"]
    other = (await send(client, cast, "POST", f"/v1/projects/{joined}/join", {"into": "other"}))["project"]["id"]

    (result,) = (await send(client, cast, "POST", "/v1/pins/check", {"projectId": "other"}))["results"]
    edited = await send(client, cast, "PATCH", "/v1/pins/1", {"lines": 3})
    refused = await send(
        client,
        cast,
        "POST",
        "/v1/pins",
        {"projectId": "other", "question": "which port does staging use", "mustNot": ["8443"], "lines": 3},
        400,
    )

    assert (result["holds"], result["pin"]["projectId"], edited["holds"]) == (True, other, True)
    assert "pin 1" in str(refused)
    await send(client, cast, "POST", f"/v1/projects/{joined}/separate")
    (result,) = (await send(client, cast, "POST", "/v1/pins/check"))["results"]
    assert (result["holds"], result["pin"]["projectId"]) == (True, joined)


async def test_what_a_key_may_not_see_it_neither_finds_nor_checks(client: httpx.AsyncClient, cast: Cast, db: Db):
    await send(client, cast, "POST", "/v1/projects", {"canonicalId": "other"}, 201)
    await pin(client, cast, "Which port?", must=["a"])
    bound = await bound_to(db, cast.alice, "other")
    headers = bound.headers
    one = {"question": "Which host?", "must": ["b"]}

    made = await client.post("/v1/pins", json=one, headers=headers)
    listed = (await client.get("/v1/pins", headers=headers)).json()
    checked = (await client.post("/v1/pins/check", json={}, headers=headers)).json()

    assert made.status_code == 201
    assert [it["number"] for it in listed["pins"]] == [it["pin"]["number"] for it in checked["results"]] == [2]
    for method, path, body in [
        ("PATCH", "/v1/pins/1", {"lines": 2}),
        ("DELETE", "/v1/pins/1", None),
        ("POST", "/v1/pins/check", {"projectId": PROJECT}),
        ("POST", "/v1/pins", {**one, "projectId": PROJECT}),
        ("PUT", "/v1/pins", {"pins": [one], "projectId": PROJECT}),
        ("GET", f"/v1/pins?project={PROJECT}", None),
    ]:
        assert (await client.request(method, path, json=body, headers=headers)).status_code == 404, path


async def test_nothing_is_pinned_in_private(client: httpx.AsyncClient, cast: Cast, db: Db):
    ann, _ = await make_two(db, cast.alice.team_id)
    headers = {**ann.headers, "X-Cmserver-Private": "1"}
    one = {"question": "Which port?", "must": ["a"]}
    assert (await client.post("/v1/sessions/start", json={"projectId": PROJECT}, headers=headers)).status_code == 201

    for method, body in [("POST", {**one, "projectId": PROJECT}), ("PUT", {"pins": [one], "projectId": PROJECT})]:
        refused = await client.request(method, "/v1/pins", json=body, headers=headers)
        assert (refused.status_code, "private" in refused.text) == (403, True), refused.text
    assert await rows(db, "SELECT id FROM pins") == []


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
