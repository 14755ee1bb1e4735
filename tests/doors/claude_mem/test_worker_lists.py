"""The lists and sums of claude-mem's viewer."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

import httpx
import pytest

from cmserver.base.db import Db
from cmserver.generation.job_notifier import JobNotifier
from tests.conftest import Cast, bound_to
from tests.doors.claude_mem.worker import Json, got, prompt, served, session
from tests.generation.tools import Outbox
from tests.make import Make
from tests.steward.tools import insert_job


async def test_observations_are_listed_newest_first_page_by_page(client: httpx.AsyncClient, cast: Cast, make: Make, db: Db):
    for number, kind in enumerate(("observation", "summary", "manual", "observation"), 1):
        await make.observation(
            project=cast.alice.project, kind=kind, title=f"n {number}", created_at=datetime(2026, 11, number, tzinfo=UTC)
        )

    first = await got(client, "/api/observations", cast.alice.headers, limit=2)
    second = await got(client, "/api/observations", cast.alice.headers, limit=2, offset=2)
    capped = await got(client, "/api/observations", cast.alice.headers, limit=5000, project="github.com/acme/orders")

    assert [row["id"] for row in first["items"]] == [4, 3]
    assert {name: first[name] for name in ("hasMore", "offset", "limit")} == {"hasMore": True, "offset": 0, "limit": 2}
    assert ([row["id"] for row in second["items"]], second["hasMore"], second["offset"]) == ([1], False, 2)
    assert (capped["limit"], len(capped["items"])) == (100, 3)
    assert [entry["numbers"] for entry in await served(db)] == [[4, 3], [1], [4, 3, 1]]


async def test_summaries_are_listed_by_themselves(client: httpx.AsyncClient, cast: Cast, make: Make):
    await make.observation(project=cast.alice.project)
    await make.observation(project=cast.alice.project, kind="summary", summary={"request": "feed", "completed": "fed"})

    page = await got(client, "/api/summaries", cast.alice.headers)

    (row,) = page["items"]
    assert (row["id"], row["request"], row["completed"], row["project"]) == (2, "feed", "fed", "github.com/acme/orders")
    assert (page["hasMore"], page["offset"], page["limit"]) == (False, 0, 20)


async def test_prompts_are_listed_with_their_session(client: httpx.AsyncClient, cast: Cast, db: Db):
    first = await session(client, cast.alice, "agent-1")
    await prompt(client, cast.alice, first, "one")
    event = await prompt(client, cast.alice, first, "two")

    page = await got(client, "/api/prompts", cast.alice.headers, limit=1)
    older = await got(client, "/api/prompts", cast.alice.headers, limit=1, offset=1)

    (row,) = page["items"]
    assert row.pop("created_at_epoch") > 1_700_000_000_000
    assert datetime.fromisoformat(row.pop("created_at")).tzinfo == UTC
    assert row == {
        "id": event,
        "content_session_id": "agent-1",
        "project": "github.com/acme/orders",
        "platform_source": "claude",
        "prompt_number": 2,
        "prompt_text": "two",
    }
    assert (page["hasMore"], older["hasMore"], older["items"][0]["prompt_text"]) == (True, False, "one")
    assert (await client.get(f"/v1/events/{UUID(event)}", headers=cast.alice.headers)).status_code == 200
    assert [(entry["action"], entry["count"]) for entry in await served(db)] == [("prompts.served", 1)] * 2


@pytest.mark.parametrize("path", ["/api/observations", "/api/summaries", "/api/prompts"])
async def test_a_list_can_be_narrowed_to_a_kind_of_agent(client: httpx.AsyncClient, cast: Cast, make: Make, path: str):
    for platform in ("claude-code", "codex"):
        in_session = await session(client, cast.alice, f"of-{platform}", platform=platform)
        await prompt(client, cast.alice, in_session, "feed it")
        for kind in ("observation", "summary"):
            await make.observation(project=cast.alice.project, kind=kind, server_session_id=in_session)

    codex = await got(client, path, cast.alice.headers, platformSource="Codex CLI")
    claude = await got(client, path, {**cast.alice.headers, "X-Platform-Source": "claude"})

    assert [row["platform_source"] for row in codex["items"]] == ["codex"]
    assert [row["platform_source"] for row in claude["items"]] == ["claude"]


@pytest.mark.parametrize("path", ["/api/observations", "/api/summaries", "/api/prompts"])
async def test_of_a_project_that_nobody_knows_the_list_is_empty_and_of_a_strangers_too(
    client: httpx.AsyncClient, cast: Cast, make: Make, path: str
):
    in_session = await session(client, cast.alice, "agent-1")
    await prompt(client, cast.alice, in_session, "feed it")
    for kind in ("observation", "summary"):
        await make.observation(project=cast.alice.project, kind=kind)

    empty: Json = {"items": [], "hasMore": False, "offset": 0, "limit": 20}
    assert await got(client, path, cast.alice.headers, project="nowhere") == empty
    assert await got(client, path, cast.charlie.headers) == empty
    assert await got(client, path, cast.charlie.headers, project=str(cast.alice.project.id)) == empty
    assert len((await got(client, path, cast.alice.headers))["items"]) == 1


async def test_nobody_turns_pages_without_an_end(client: httpx.AsyncClient, cast: Cast):
    answered = await client.get("/api/observations?offset=10001", headers=cast.alice.headers)

    assert (answered.status_code, answered.json()["issues"][0]["path"]) == (400, "$.offset")


async def test_projects_are_told_with_the_kinds_of_agents_that_worked_on_them(client: httpx.AsyncClient, cast: Cast, db: Db):
    other = await bound_to(db, cast.alice, "github.com/acme/other")
    await session(client, cast.alice, "one", platform="claude-code")
    await session(client, cast.alice, "two", platform="claude")
    await session(client, cast.alice, "three", platform="codex")
    await session(client, cast.alice, "four", platform="codex", project="github.com/acme/other")

    answer = await got(client, "/api/projects", cast.alice.headers)
    bound = await got(client, "/api/projects", other.headers)

    assert answer == {
        "projects": ["github.com/acme/other", "github.com/acme/orders"],
        "sources": ["claude", "codex"],
        "projectsBySource": {"claude": ["github.com/acme/orders"], "codex": ["github.com/acme/other", "github.com/acme/orders"]},
    }
    assert bound == {
        "projects": ["github.com/acme/other"],
        "sources": ["codex"],
        "projectsBySource": {"codex": ["github.com/acme/other"]},
    }


async def test_sums_are_of_ones_own_team_or_project(client: httpx.AsyncClient, cast: Cast, make: Make, db: Db):
    other = await bound_to(db, cast.alice, "github.com/acme/other")
    first = datetime(2026, 11, 1, tzinfo=UTC)
    await make.observation(project=cast.alice.project, created_at=first)
    await make.observation(project=cast.alice.project, kind="summary")
    await make.observation(project=other.project)
    in_session = await session(client, cast.alice, "one")
    await session(client, cast.alice, "two")
    await client.post(f"/v1/sessions/{in_session}/end", headers=cast.alice.headers)

    answer = await got(client, "/api/stats", cast.alice.headers)
    bound = await got(client, "/api/stats", other.headers)

    assert answer["worker"].pop("uptime") >= 0
    assert answer == {
        "worker": {"activeSessions": 1, "sseClients": 0, "port": 37877},
        "database": {
            "path": None,
            "size": None,
            "observations": 2,
            "sessions": 2,
            "summaries": 1,
            "firstObservationAt": int(first.timestamp() * 1000),
        },
    }
    assert (bound["database"]["observations"], bound["database"]["sessions"]) == (1, 0)


async def test_what_waits_is_counted(client: httpx.AsyncClient, cast: Cast, db: Db, notifier: JobNotifier):
    idle = await got(client, "/api/processing-status", cast.alice.headers)
    await Outbox(db, notifier, cast.alice.principal, cast.alice.project).put(2, session="s1")
    async with db.system() as conn:  # nor the steward's, however its lane is held
        await insert_job(conn, cast.alice.team_id, cast.alice.project.id, "derive", status="queued")
        await insert_job(conn, cast.charlie.team_id, cast.charlie.project.id, "derive", status="queued")
        await conn.execute(
            "INSERT INTO generation_lanes (lane, team_id, project_id, held_until)"
            " SELECT id, team_id, id, now() + '1 hour' FROM projects"
        )

    assert idle == {"isProcessing": False, "queueDepth": 0}
    assert await got(client, "/api/processing-status", cast.alice.headers) == {"isProcessing": True, "queueDepth": 2}
    assert await got(client, "/api/processing-status", cast.charlie.headers) == idle


@pytest.mark.parametrize(
    "path", ["/api/observations", "/api/summaries", "/api/prompts", "/api/projects", "/api/stats", "/api/processing-status"]
)
async def test_a_guest_may_look_and_others_need_a_key(client: httpx.AsyncClient, guest: httpx.AsyncClient, path: str):
    assert (await guest.get(path)).status_code == 200
    assert (await client.get(path)).status_code == 401
