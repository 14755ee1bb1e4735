"""Beside REST: the same sentences for what is wrong, and the same traces of what is done."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any

import httpx
import msgspec

from cmserver.base.db import Db
from cmserver.observations.accesses.jobs import count_accesses
from tests.access.tools import Api
from tests.conftest import Cast, Person, bound_to, mint
from tests.doors.mcp.tools import call
from tests.make import Make
from tests.rows import rows

NOBODYS = "01a1f13e-ee62-7321-a456-6dd14e27cb57"


# ---- refusals


class Bad(msgspec.Struct, frozen=True):
    """Arguments that are refused, and the request of REST that is refused for the same."""

    tool: str
    arguments: Mapping[str, object]
    rest: str
    differs: str = ""
    """What it says here, where REST reads something else."""


WAIT = "Expected `bool`, got `str` at $.wait."


def _bad(project: str) -> list[Bad]:
    search, timeline, batch, context = "POST /v1/search", "POST /v1/timeline", "POST /v1/observations/batch", "POST /v1/context"
    write, event, job = "POST /v1/observations", "POST /v1/events", "GET /v1/jobs/"
    return [
        Bad("observation_search", {}, search),
        Bad("observation_search", {"query": ""}, search),
        Bad("observation_search", {"query": 7}, search),
        Bad("observation_search", {"query": "x", "limit": 0}, search),
        Bad("observation_search", {"query": "x", "limit": 101}, search),
        Bad("observation_search", {"query": "x", "limit": "many"}, search),
        Bad("observation_search", {"query": "x", "kinds": ["wombat"]}, search),
        Bad("observation_search", {"query": "x", "types": ["ok", 3]}, search),
        Bad("observation_search", {"query": "x", "since": "yesterday"}, search),
        Bad("observation_search", {"query": "x", "since": "2026-01-02", "until": "2026-01-01"}, search),
        Bad("observation_search", {"query": "x", "cursor": "nonsense"}, search),
        Bad("observation_search", {"query": "x", "projectId": "nobody/knows"}, search),
        Bad("observation_search", {"query": "x", "projectId": project, "projects": [project]}, search),
        Bad("observation_search", {"query": "x", "minScore": 2}, search),
        Bad("observation_timeline", {}, timeline),
        Bad("observation_timeline", {"anchor": 1, "query": "x"}, timeline),
        Bad("observation_timeline", {"anchor": 0}, timeline),
        Bad("observation_timeline", {"anchor": 12345}, timeline),
        Bad("observation_timeline", {"anchor": "whenever"}, timeline),
        Bad("observation_timeline", {"anchor": 1, "before": 51}, timeline),
        Bad("observation_timeline", {"anchor": 1, "after": -1}, timeline),
        Bad("observation_timeline", {"query": "x", "projectId": NOBODYS}, timeline),
        Bad("observation_get", {}, batch, "Missing field at $.ids."),
        Bad("observation_get", {"ids": []}, batch),
        Bad("observation_get", {"ids": [0]}, batch),
        Bad("observation_get", {"ids": list(range(1, 102))}, batch),
        Bad("observation_context", {"query": "x"}, context),
        Bad("observation_context", {"query": "x", "projectId": project, "limit": 51}, context),
        Bad("observation_context", {"query": "x", "projectId": "nobody/knows"}, context),
        Bad("observation_add", {"projectId": project}, write),
        Bad("observation_add", {"title": "x"}, write),
        Bad("observation_add", {"projectId": project, "title": 3}, write),
        Bad("observation_add", {"projectId": project, "title": "x" * 301}, write),
        Bad("observation_add", {"projectId": project, "title": "x", "type": "poem"}, write),
        Bad("observation_add", {"projectId": project, "title": "x", "facts": ["y", 1]}, write),
        Bad("observation_add", {"projectId": project, "title": "x", "text": "y"}, write),
        Bad("observation_add", {"projectId": project, "title": "x", "sessionId": NOBODYS}, write),
        Bad("observation_add", {"projectId": project, "title": "x", "createdAtEpoch": 10**15}, write),
        Bad("observation_add", {"projectId": "nobody/knows", "title": "x"}, write),
        Bad("observation_record_event", {"projectId": project}, event),
        Bad("observation_record_event", {"eventType": "x"}, event),
        Bad("observation_record_event", {"projectId": project, "eventType": ""}, event),
        Bad("observation_record_event", {"projectId": project, "eventType": "x" * 201}, event),
        Bad("observation_record_event", {"projectId": project, "eventType": "x", "metadata": []}, event),
        Bad("observation_record_event", {"projectId": project, "eventType": "x", "serverSessionId": NOBODYS}, event),
        Bad("observation_record_event", {"projectId": NOBODYS, "eventType": "x"}, event),
        Bad("observation_record_event", {"projectId": project, "eventType": "x", "wait": "yes"}, event, WAIT),
        Bad("observation_record_event", {"projectId": project, "eventType": "x", "kind": 1}, event, "Unknown field at $.kind."),
        Bad("observation_generation_status", {"jobId": NOBODYS}, job),
        Bad("observation_generation_status", {"jobId": "nonsense"}, job),
        Bad("observation_generation_status", {"jobId": 1}, job, "Expected `str`, got `int` at $.jobId."),
        Bad("observation_generation_status", {}, job, "Missing field at $.jobId."),
    ]  # fmt: skip


async def test_wrong_arguments_are_refused_in_the_words_of_rest(client: httpx.AsyncClient, db: Db, cast: Cast):
    for bad in _bad(cast.alice.project.canonical_id):
        said, is_error = await call(client, cast.alice, bad.tool, **bad.arguments)

        assert is_error, bad
        assert said == (bad.differs or await refused(client, cast.alice, bad)), bad

    assert await rows(db, "SELECT id FROM observations UNION ALL SELECT id FROM agent_events") == []


async def refused(client: httpx.AsyncClient, person: Person, bad: Bad) -> str:
    """The sentence of REST, with the path of what is wrong where the sentence has none."""
    method, _, path = bad.rest.partition(" ")
    if method == "GET":
        answered = await client.get(f"{path}{bad.arguments['jobId']}", headers=person.headers)
    else:
        answered = await client.post(path, json=dict(bad.arguments), headers=person.headers)
    assert answered.status_code in {400, 404}, answered.text
    told = answered.json()
    paths = [one["path"] for one in told.get("issues", []) if one["path"] not in told["message"]]
    return f"{told['message']} ({', '.join(paths)})" if paths else told["message"]


async def test_the_context_of_no_project_says_which_argument_is_missing(client: httpx.AsyncClient, cast: Cast):
    unnamed = await call(client, cast.alice, "observation_context")
    unknown = await call(client, cast.alice, "observation_context", projectId="nobody/knows")

    assert unnamed[1]
    assert "$.projectId" in unnamed[0]
    assert unknown == ("Project not found.", True)


# ---- scopes


async def test_a_missing_scope_is_written_down_and_told_as_by_rest(client: httpx.AsyncClient, db: Db, cast: Cast):
    one, other = [await mint(db, cast.alice.team_id, "narrow", scopes=["events:write"]) for _ in range(2)]  # said once of a key
    narrow, also = [Person(principal=who, key=key, project=cast.alice.project) for who, key in (one, other)]

    said, is_error = await call(client, narrow, "observation_search", query="wombat")
    rest = await client.post("/v1/search", json={"query": "wombat"}, headers=also.headers)

    assert is_error
    assert said == rest.json()["message"]
    here, there = await rows(
        db, "SELECT actor_id, project_id, action, resource_id, details FROM audit_log WHERE action = 'access.denied' ORDER BY id"
    )
    assert (here.pop("resource_id"), there.pop("resource_id")) == (str(narrow.principal.key_id), str(also.principal.key_id))
    assert here == there
    assert here["details"].items() >= {"reason": "scope_missing", "scope": "observations:read"}.items()


# ---- traces

Traces = list[dict[str, Any]]


async def traces(db: Db, act: Awaitable[object]) -> Traces:
    """What the act leaves in the audit log, but for when."""
    await rows(db, "DELETE FROM audit_log")
    await act
    return await rows(
        db,
        "SELECT team_id, project_id, actor_id, api_key_id, action, resource_type, resource_id, details FROM audit_log ORDER BY id",
    )


def without_ids(found: Traces) -> Traces:
    """With the ids of what has just been made left out."""
    return [{**one, "resource_id": None, "details": sorted(one["details"])} for one in found]


READS: Sequence[tuple[str, dict[str, object], str, dict[str, object]]] = [
    ("observation_search", {"query": "wombat"}, "/search", {"query": "wombat", "format": "index"}),
    ("observation_search", {"query": "wombat", "format": "full"}, "/search", {"query": "wombat"}),
    ("observation_timeline", {"anchor": 1}, "/timeline", {"anchor": 1}),
    ("observation_timeline", {"query": "wombat", "format": "full"}, "/timeline", {"query": "wombat", "format": "full"}),
    ("observation_get", {"ids": [1, 2, 77]}, "/observations/batch", {"ids": [1, 2, 77]}),
    ("observation_context", {"query": "wombat"}, "/context", {"query": "wombat"}),
    ("observation_context", {}, "GET /context", {}),
]


async def test_what_is_read_leaves_the_same_rows_as_by_rest(client: httpx.AsyncClient, db: Db, cast: Cast, make: Make):
    bound = await bound_to(db, cast.alice, "github.com/acme/orders")
    for number in range(3):
        await make.observation(project=bound.project, title=f"wombat {number}")
    rest = Api(client, bound.key)

    for tool, arguments, path, body in READS:
        here = await traces(db, call(client, bound, tool, **arguments))
        there = await traces(db, rest.get(path[4:]) if path.startswith("GET ") else rest.post(path, **body))

        assert here == there, tool
        assert [one["action"] for one in here] == ["observations.served"], tool

    assert await rows(db, "SELECT id FROM context_injections") == [], "nobody's session was told anything"


async def test_what_is_read_is_counted_as_by_rest(client: httpx.AsyncClient, db: Db, cast: Cast, make: Make):
    """An answer in lines is no access, a whole text is one."""
    bound = await bound_to(db, cast.alice, "github.com/acme/orders")
    await make.observation(project=bound.project, title="wombat")
    await count_accesses(db)

    for tool, arguments, *_ in READS:
        await call(client, bound, tool, **arguments)
    await count_accesses(db)  # sees where the log ends
    await count_accesses(db)  # counts up to there

    assert await rows(db, "SELECT access_count FROM observations") == [{"access_count": 4}]


async def test_what_is_written_leaves_the_same_rows_as_by_rest(client: httpx.AsyncClient, db: Db, cast: Cast):
    bound = await bound_to(db, cast.alice, "github.com/acme/orders")
    rest = Api(client, bound.key)

    wrote = await traces(db, call(client, bound, "observation_add", title="one"))
    wrote_there = await traces(db, rest.post("/observations", title="one"))
    said = await traces(db, call(client, bound, "observation_record_event", eventType="x", payload=1))
    said_there = await traces(db, rest.post("/events", eventType="x", payload=1))

    assert [one["action"] for one in wrote] == ["observations.created"]
    assert without_ids(wrote) == without_ids(wrote_there)
    assert without_ids(said) == without_ids(said_there)
    observations = await rows(db, "SELECT origin FROM observations ORDER BY number")
    events = await rows(db, "SELECT origin FROM agent_events ORDER BY received_at")
    assert [row["origin"] for row in [*observations, *events]] == ["mcp", "api", "mcp", "api"]
