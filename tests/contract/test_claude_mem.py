"""A client of claude-mem's server mode gets from us what it got there, whichever words for scopes its key was made with."""

from __future__ import annotations

import re
from typing import Any

import pytest
from httpx import AsyncClient

from cmserver.base.db import Db
from cmserver.base.ids import new_id
from cmserver.generation.job_notifier import JobNotifier
from tests.conftest import Cast, mint
from tests.contract.claude_mem import KEYS, SESSION_OF_A_CLIENT, WHEN_ALL_IS_GENERATED, Call
from tests.contract.shapes import Shape, differences
from tests.generation.tools import Outbox, Scripted
from tests.table import try_rows

VOCABULARIES = {
    "theirs": ["memories:read", "memories:write"],
    "ours": ["events:write", "sessions:write", "observations:read", "observations:write", "jobs:read", "jobs:write"],
    "everything": ["*"],
}


class Client:
    """Makes the calls of a table one after the other, and remembers the ids it was given."""

    def __init__(self, http: AsyncClient, key: str) -> None:
        self._http = http
        self._headers = {"Authorization": f"Bearer {key}"}
        self._kept = {"nobody": str(new_id())}

    async def makes(self, calls: list[Call]) -> list[str]:
        """What was wrong, in sentences."""
        return [f"{call.send}: {wrong}" for call in calls for wrong in await self._make(call)]

    async def _make(self, call: Call) -> list[str]:
        missing = set(re.findall(r"\{(\w+)\}", call.send)) - self._kept.keys()
        if missing:
            return [f"no call before gave {', '.join(missing)}"]
        method, path = call.send.format_map(self._kept).split(" ")
        answered = await self._http.request(method, path, json=call.body, headers=self._headers)
        if answered.status_code != call.status:
            return [f"answered {answered.status_code}, not {call.status}: {answered.text[:500]}"]
        told = answered.json()
        for name, where in call.keep.items():
            self._kept[name] = within(told, where)
        return list(differences(told, call.shape))


def within(told: Any, where: str) -> str:
    for step in where.split("."):
        told = told[step]
    return told


@pytest.mark.parametrize("scopes", VOCABULARIES.values(), ids=VOCABULARIES)
async def test_the_calls_of_a_session_are_answered_in_the_shapes_that_its_client_knows(
    client: AsyncClient, cast: Cast, db: Db, notifier: JobNotifier, scopes: list[str]
):
    principal, key = await mint(db, cast.alice.team_id, "claude-mem", scopes=scopes)
    caller = Client(client, key)

    before = await caller.makes(SESSION_OF_A_CLIENT)
    worker = await Outbox(db, notifier, principal, cast.alice.project).hand(Scripted())
    await worker.work()
    after = await caller.makes(WHEN_ALL_IS_GENERATED)

    wrong = "\n".join([*before, *after])
    assert not wrong, wrong


@pytest.mark.parametrize("scopes", [["keys:write", "memories:read"], ["admin"], ["*"]], ids=lambda scopes: scopes[0])
async def test_a_key_is_made_as_claude_mems_page_for_keys_makes_it(client: AsyncClient, cast: Cast, db: Db, scopes: list[str]):
    _, key = await mint(db, cast.alice.team_id, "owner", scopes=scopes)

    wrong = "\n".join(await Client(client, key).makes(KEYS))
    assert not wrong, wrong


@pytest.mark.parametrize("header", ["Authorization: Bearer {}", "authorization: bearer {}", "X-Api-Key: {}"])
async def test_a_key_may_stand_in_either_header(client: AsyncClient, cast: Cast, header: str):
    name, value = header.format(cast.alice.key).split(": ")

    answered = await client.get("/v1/jobs", headers={name: value})

    assert answered.status_code == 200


@pytest.mark.parametrize(("key", "status", "name"), [(None, 401, "Unauthorized"), ("cmem_" + "0" * 48, 403, "Forbidden")])
async def test_no_key_and_a_wrong_key_are_told_apart(client: AsyncClient, cast: Cast, key: str | None, status: int, name: str):
    answered = await client.get("/v1/jobs", headers={"X-Api-Key": key} if key else {})

    assert answered.status_code == status
    assert list(differences(answered.json(), {"error": name, "message": str})) == []


async def test_payloads_are_for_admins_who_ask(client: AsyncClient, cast: Cast, db: Db):
    _, reader = await mint(db, cast.alice.team_id, "reader", scopes=["memories:read"])
    await client.post("/v1/events", json={"projectId": "orders", "eventType": "x"}, headers=cast.alice.headers)

    hidden = await client.get("/v1/jobs", headers=cast.alice.headers)
    shown = await client.get("/v1/jobs?include=payload", headers=cast.alice.headers)
    refused = await client.get("/v1/jobs?include=payload", headers={"X-Api-Key": reader})

    assert "payload" not in hidden.json()["jobs"][0]
    assert "payload" in shown.json()["jobs"][0]
    assert refused.status_code == 403


async def test_a_request_id_is_taken_and_given_back(client: AsyncClient, cast: Cast):
    answered = await client.get("/v1/jobs", headers={**cast.alice.headers, "X-Request-Id": "from-the-hook"})

    assert answered.headers["x-request-id"] == "from-the-hook"
    assert answered.json()["requestId"] == "from-the-hook"


@try_rows(
    ("value", "shape", "told"),
    [
        ({"id": "x"}, {"id": str, "at": int}, ["$.at is missing"]),
        ({"id": None}, {"id": str}, ["$.id is None, not str"]),
        ({"id": None}, {"id": (str, None)}, []),
        ({"at": True}, {"at": int}, ["$.at is True, not int"]),
        ([{"id": 1}], [{"id": str}], ["$[0].id is 1, not str"]),
        ({}, [str], ["$ is {}, not a list"]),
        ([], {"id": str}, ["$ is [], not an object"]),
        ("queued", ("failed", int), ["$ is 'queued', none of ('failed', <class 'int'>)"]),
        ({"id": "x", "more": 1}, {"id": str}, []),
    ],
)
def test_what_is_not_as_it_must_be_is_said(value: object, shape: Shape, told: list[str]):
    assert list(differences(value, shape)) == told


def test_every_name_in_a_path_is_kept_by_a_call_before():
    kept = {"nobody"}
    for call in [*SESSION_OF_A_CLIENT, *WHEN_ALL_IS_GENERATED]:
        assert set(re.findall(r"\{(\w+)\}", call.send)) <= kept, call.send
        kept |= call.keep.keys()
