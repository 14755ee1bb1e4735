"""How what somebody has begun to type may go on: only what the key may read, newest first, and honest about what is left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import httpx
import pytest
from mcp_types import INVALID_PARAMS, ResourceTemplateReference

from cmserver.access.projects import make_project
from cmserver.base.db import Db
from cmserver.base.http.frame import AsgiFrame
from tests.conftest import Cast, Person, bound_to, mint
from tests.make import Make
from tests.mcp.tools import MODES, Mode, connected, rpc
from tests.rows import rows

OBSERVATION = {"type": "ref/resource", "uri": "cmserver://observations/{number}"}
SUMMARY = {"type": "ref/resource", "uri": "cmserver://sessions/{id}/summary"}
CONTEXT = {"type": "ref/resource", "uri": "cmserver://projects/{project}/context"}
PROMPT = {"type": "ref/prompt", "name": "what_do_we_know"}

Ref = Mapping[str, str]


async def complete(client: httpx.AsyncClient, person: Person, ref: Ref, argument: str, begun: str) -> dict[str, Any]:
    asked = {"ref": ref, "argument": {"name": argument, "value": begun}}
    answered = await rpc(client, person, "completion/complete", asked)
    return answered.json()["result"]["completion"]


async def values(client: httpx.AsyncClient, person: Person, ref: Ref, argument: str, begun: str) -> Sequence[str]:
    completion = await complete(client, person, ref, argument, begun)
    assert completion["hasMore"] is False
    assert completion["total"] == len(completion["values"])
    return completion["values"]


async def numbered(db: Db, make: Make, person: Person, *numbers: int) -> None:
    """Observations of these numbers, oldest first."""
    for number in numbers:
        made = await make.observation(project=person.project)
        await rows(db, "UPDATE observations SET number = %s WHERE id = %s", number, made.id)


async def projects(db: Db, person: Person, *names: str) -> None:
    async with db.tenant(person.team_id) as conn:
        for name in names:
            await make_project(conn, person.principal, name)


async def summed_up(client: httpx.AsyncClient, make: Make, person: Person, name: str) -> str:
    """The id of a new session that has a summary."""
    body = {"projectId": person.project.canonical_id, "externalSessionId": name}
    session = (await client.post("/v1/sessions/start", json=body, headers=person.headers)).json()["session"]["id"]
    await make.observation(project=person.project, kind="summary", server_session_id=session)
    return session


async def test_numbers_that_begin_so_are_given_the_newest_first(client: httpx.AsyncClient, cast: Cast, make: Make, db: Db):
    await numbered(db, make, cast.alice, 1, 2, 12, 13, 21, 120, 129, 130, 1_205, 100_012)

    assert await values(client, cast.alice, OBSERVATION, "number", "12") == ["1205", "129", "120", "12"]
    assert await values(client, cast.alice, OBSERVATION, "number", "#1205") == ["1205"]
    assert await values(client, cast.alice, OBSERVATION, "number", "2") == ["21", "2"]
    assert await values(client, cast.alice, OBSERVATION, "number", "") == [
        *("100012", "1205", "130", "129", "120", "21", "13", "12", "2", "1")
    ]
    assert await values(client, cast.alice, OBSERVATION, "number", "9") == []


async def test_no_more_than_a_hundred_are_given_and_that_there_are_more_is_said(
    client: httpx.AsyncClient, cast: Cast, make: Make, db: Db
):
    await numbered(db, make, cast.alice, *range(1, 101))

    whole = await complete(client, cast.alice, OBSERVATION, "number", "")
    await numbered(db, make, cast.alice, 101)
    cut = await complete(client, cast.alice, OBSERVATION, "number", "")

    assert (len(whole["values"]), whole["total"], whole["hasMore"]) == (100, 100, False)
    assert (len(cut["values"]), cut["hasMore"]) == (100, True)
    assert "total" not in cut
    assert (cut["values"][0], cut["values"][-1]) == ("101", "2")


async def test_sessions_with_a_summary_are_given_by_how_their_ids_begin(client: httpx.AsyncClient, cast: Cast, make: Make):
    first = await summed_up(client, make, cast.alice, "s-1")
    second = await summed_up(client, make, cast.alice, "s-2")
    body = {"projectId": cast.alice.project.canonical_id, "externalSessionId": "s-3"}
    await client.post("/v1/sessions/start", json=body, headers=cast.alice.headers)

    assert await values(client, cast.alice, SUMMARY, "id", "") == [second, first]
    assert await values(client, cast.alice, SUMMARY, "id", first) == [first]
    assert await values(client, cast.alice, SUMMARY, "id", first[:13].upper()) in ([first], [second, first])
    assert await values(client, cast.alice, SUMMARY, "id", "ffff") == []


async def test_projects_are_given_by_how_their_names_begin(client: httpx.AsyncClient, cast: Cast, db: Db):
    await projects(db, cast.alice, "github.com/acme/billing", "Füße", "100% sure", "_a", "xa")

    assert await values(client, cast.alice, CONTEXT, "project", "GitHub.com/a") == [
        "github.com/acme/billing",
        "github.com/acme/orders",
    ]
    assert await values(client, cast.alice, CONTEXT, "project", "bill") == ["github.com/acme/billing"]
    assert await values(client, cast.alice, CONTEXT, "project", "fü") == ["Füße"]
    assert await values(client, cast.alice, CONTEXT, "project", "100%") == ["100% sure"]
    assert await values(client, cast.alice, CONTEXT, "project", "_") == ["_a"]
    assert await values(client, cast.alice, PROMPT, "project", "ord") == ["github.com/acme/orders"]
    assert await values(client, cast.alice, PROMPT, "topic", "ord") == []


@pytest.mark.parametrize("mode", MODES)
async def test_the_client_of_the_sdk_completes_in_both_eras(app: AsgiFrame, cast: Cast, make: Make, mode: Mode):
    await make.observation(project=cast.alice.project)

    async with connected(app, cast.alice, mode=mode) as client:
        assert client.server_capabilities
        assert client.server_capabilities.completions is not None
        found = await client.complete(ResourceTemplateReference(uri=OBSERVATION["uri"]), {"name": "number", "value": "1"})

    assert found.completion.values == ["1"]


@pytest.mark.parametrize(
    ("ref", "argument"), [(OBSERVATION, "number"), (SUMMARY, "id"), (CONTEXT, "project"), (PROMPT, "project")], ids=str
)
async def test_nothing_is_given_of_what_the_key_may_not_read(
    client: httpx.AsyncClient, cast: Cast, make: Make, db: Db, ref: Ref, argument: str
):
    await summed_up(client, make, cast.alice, "s-1")
    await projects(db, cast.alice, "secret")
    bound = await bound_to(db, cast.alice, "billing")
    principal, text = await mint(db, cast.alice.team_id, "writer", scopes=["events:write"])
    writer = Person(principal=principal, key=text, project=cast.alice.project)
    names = {"project"} & {argument}

    assert await values(client, cast.alice, ref, argument, "") != []
    assert await values(client, cast.charlie, ref, argument, "") == ["github.com/acme/orders"] * len(names)
    assert await values(client, bound, ref, argument, "") == ["billing"] * len(names)
    assert await values(client, writer, ref, argument, "") == []


@pytest.mark.parametrize(
    ("ref", "argument"), [(OBSERVATION, "number"), (SUMMARY, "id"), (CONTEXT, "project")], ids=["number", "id", "project"]
)
async def test_what_nothing_can_begin_with_goes_on_in_no_way(
    client: httpx.AsyncClient, cast: Cast, make: Make, ref: Ref, argument: str
):
    await make.observation(project=cast.alice.project)

    for begun in ("x", "-1", "0", "1 2", "\0", "%", "9" * 30, "a" * 100_000, "\N{ARABIC-INDIC DIGIT ONE}"):
        assert await values(client, cast.alice, ref, argument, begun) == [], begun[:20]


@pytest.mark.parametrize(
    ("ref", "argument"),
    [({"type": "ref/resource", "uri": "cmserver://x/{y}"}, "y"), ({"type": "ref/prompt", "name": "x"}, "y"), (PROMPT, "number")],
    ids=["template", "prompt", "argument"],
)
async def test_what_does_not_exist_is_not_completed(client: httpx.AsyncClient, cast: Cast, ref: Ref, argument: str):
    asked = {"ref": ref, "argument": {"name": argument, "value": ""}}

    error = (await rpc(client, cast.alice, "completion/complete", asked)).json()["error"]

    assert error["code"] == INVALID_PARAMS
    assert error["message"].endswith(".")
