"""The idle sweep: what its agent never ended is ended, once, with the summary it would have had."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from uuid import UUID

import msgspec
import pytest

from cmserver.access.model import GenerationPolicy
from cmserver.base.db import Db
from cmserver.base.sql import Conn
from cmserver.generation.job_notifier import JobNotifier
from cmserver.generation.model import Job
from cmserver.ingest import jobs as ingest_jobs
from cmserver.ingest import session_lifecycle as sessions
from cmserver.ingest.jobs import sweep
from cmserver.ingest.model import EventSubmission
from cmserver.sessions.model import NewSession, SessionOfTeam
from cmserver.sessions.repository import seem_idle
from tests.conftest import Cast
from tests.generation.tools import Outbox, Scripted
from tests.house.test_plans import plan
from tests.sessions.test_api import SEED

HOUR = 3600.0


async def swept(outbox: Outbox, idle_seconds: float = 4 * HOUR) -> list[Job]:
    return await sweep(outbox.db, outbox.notifier, idle_seconds=idle_seconds)


async def pass_hours(outbox: Outbox, hours: float) -> None:
    """Everything that is there happened so much earlier."""
    for table, column in [
        ("server_sessions", "idle_from"),
        ("agent_events", "received_at"),
        ("turns", "created_at"),
        ("observation_generation_jobs", "created_at"),
    ]:
        await outbox.rows(f"UPDATE {table} SET {column} = {column} - make_interval(secs => %s)", hours * HOUR)


async def start(outbox: Outbox, name: str = "s1") -> UUID:
    new = NewSession(external_session_id=name, content_session_id=name)
    async with outbox.db.tenant(outbox.principal.team_id) as conn:
        session, _ = await sessions.start(conn, outbox.principal, outbox.project, new)
    return session.id


async def end(outbox: Outbox, session_id: UUID) -> Job:
    async with outbox.db.tenant(outbox.principal.team_id) as conn:
        _, job, _ = await sessions.end(conn, outbox.principal, session_id, source_adapter="api")
    return job


async def test_a_session_that_nobody_ended_is_ended_and_summed_up(outbox: Outbox):
    session_id = await start(outbox)
    await outbox.put(2)
    await pass_hours(outbox, 5)

    jobs = await swept(outbox)
    provider = Scripted()
    await (await outbox.hand(provider)).work()

    assert [(job.source_type, job.source_id, job.source_run) for job in jobs] == [("session_summary", session_id, 1)]
    assert [prompt.kind for prompt in provider.prompts] == ["observations", "summary"]
    assert await outbox.value("SELECT ended_at IS NOT NULL FROM server_sessions") is True
    (row,) = await outbox.rows("SELECT actor_id, api_key_id, details FROM audit_log WHERE action = 'session.ended'")
    assert row == {"actor_id": "idle-sweep", "api_key_id": None, "details": {"job": str(jobs[0].id), "run": 1}}


async def test_what_has_been_swept_is_not_swept_again(outbox: Outbox):
    await start(outbox)
    await outbox.put(2)
    await pass_hours(outbox, 5)
    await swept(outbox)
    await (await outbox.hand(Scripted())).work()
    await pass_hours(outbox, 5)

    assert await swept(outbox) == []
    assert await outbox.value("SELECT count(*) FROM audit_log WHERE action = 'session.ended'") == 1
    assert await outbox.value("SELECT idle_from FROM server_sessions") is None


async def say(outbox: Outbox, event_type: str = "tool_use", *, generate: bool = True) -> None:
    submission = EventSubmission(
        event_type=event_type,
        payload={"prompt": "go on", "tool_name": "Write"},
        content_session_id="s1",
        project=outbox.project,
        occurred_at=datetime.now(UTC),
        origin="api",
        generate=generate,
    )
    await outbox.recorder.record(outbox.principal, [submission])


@pytest.mark.parametrize("sign", ["event", "stored only", "prompt", "start"])
async def test_a_sign_of_life_keeps_a_session_open(outbox: Outbox, sign: str):
    await start(outbox)
    await outbox.put(2)
    await pass_hours(outbox, 5)
    match sign:
        case "event":
            await say(outbox)
        case "stored only":
            await say(outbox, generate=False)
        case "prompt":
            await say(outbox, "user_prompt")
        case _:
            await start(outbox)

    at_first = await swept(outbox)
    await pass_hours(outbox, 3)
    a_little_later = await swept(outbox)
    await pass_hours(outbox, 2)
    at_last = await swept(outbox)

    assert (at_first, a_little_later) == ([], [])
    assert len(at_last) == 1


async def test_a_session_in_which_nothing_ever_happened_ends_without_a_summary(outbox: Outbox):
    await start(outbox)
    await pass_hours(outbox, 5)

    assert await swept(outbox) == []
    assert await outbox.value("SELECT ended_at IS NOT NULL FROM server_sessions") is True
    (row,) = await outbox.rows("SELECT actor_id, details FROM audit_log WHERE action = 'session.ended'")
    assert row == {"actor_id": "idle-sweep", "details": {}}


@pytest.mark.parametrize("policy", [GenerationPolicy(), GenerationPolicy(mode="per_event"), GenerationPolicy(mode="at_end")])
async def test_what_comes_after_an_end_gets_its_own_summary_though_nobody_ends_it_again(outbox: Outbox, policy: GenerationPolicy):
    outbox.project = msgspec.structs.replace(outbox.project, policy=policy)
    session_id = await start(outbox)
    await outbox.put(1)
    first = await end(outbox, session_id)
    hand = await outbox.hand(Scripted())
    await hand.work()
    await pass_hours(outbox, 5)
    assert await swept(outbox) == []
    await outbox.put(1, first=1)
    await hand.work()

    at_first = await swept(outbox)
    await pass_hours(outbox, 5)
    (second,) = await swept(outbox)
    await hand.work()
    await pass_hours(outbox, 5)

    assert at_first == []
    assert (first.source_run, second.source_run) == (1, 2)
    assert await swept(outbox) == []
    assert await outbox.statuses() == {"completed": 4}


async def test_a_prompt_after_the_end_is_news(outbox: Outbox):
    session_id = await start(outbox)
    await end(outbox, session_id)
    await say(outbox, "user_prompt")
    await pass_hours(outbox, 5)

    assert [job.source_run for job in await swept(outbox)] == [2]


async def test_an_end_by_the_agent_leaves_nothing_to_sweep(outbox: Outbox):
    session_id = await start(outbox)
    await outbox.put(3)
    await end(outbox, session_id)
    await (await outbox.hand(Scripted())).work()
    await pass_hours(outbox, 5)

    assert await swept(outbox) == []
    assert await outbox.value("SELECT idle_from FROM server_sessions") is None


async def test_the_sweep_makes_the_lane_due_that_waits_for_the_end(outbox: Outbox):
    outbox.project = msgspec.structs.replace(outbox.project, policy=GenerationPolicy(mode="at_end"))
    await outbox.put(2)
    hand = await outbox.hand(Scripted())
    before = await hand.work()
    await pass_hours(outbox, 5)

    await swept(outbox)
    after = await hand.work()

    assert (before, after) == (0, 2)
    assert await outbox.statuses() == {"completed": 3}


async def test_workers_that_sweep_at_once_end_each_session_once(outbox: Outbox, cast: Cast):
    for n in range(10):
        await start(outbox, f"s{n}")
        await outbox.put(1, session=f"s{n}")
    theirs = Outbox(outbox.db, outbox.notifier, cast.charlie.principal, cast.charlie.project)
    await theirs.put(1, session="theirs")
    await pass_hours(outbox, 5)

    jobs = [job for found in await asyncio.gather(*(swept(outbox) for _ in range(4))) for job in found]

    assert len(jobs) == 11
    assert len({job.source_id for job in jobs}) == 11
    assert await outbox.value("SELECT count(*) FROM observation_generation_jobs WHERE source_type = 'session_summary'") == 11
    assert {job.team_id for job in jobs} == {cast.alice.team_id, cast.charlie.team_id}


async def test_an_end_that_comes_while_the_sweep_looks_makes_one_summary(outbox: Outbox):
    for n in range(8):
        session_id = await start(outbox, f"s{n}")
        await outbox.put(1, session=f"s{n}")
        await pass_hours(outbox, 5)

        await asyncio.gather(end(outbox, session_id), swept(outbox))

    assert await outbox.value("SELECT count(*) FROM observation_generation_jobs WHERE source_type = 'session_summary'") == 8


async def test_sessions_of_archived_projects_are_left_alone(outbox: Outbox):
    await outbox.put(1)
    await pass_hours(outbox, 5)
    await outbox.rows("UPDATE projects SET archived_at = now() WHERE id = %s", outbox.project.id)
    archived = await swept(outbox)
    await outbox.rows("UPDATE projects SET archived_at = NULL WHERE id = %s", outbox.project.id)

    assert archived == []
    assert len(await swept(outbox)) == 1


async def test_the_periodic_task_goes_by_hours(outbox: Outbox, notifier: JobNotifier):
    await outbox.put(1)
    await pass_hours(outbox, 2)
    ended: list[object] = []
    for more in (0, 3):
        await pass_hours(outbox, more)
        await ingest_jobs.end_idle_sessions(outbox.db, notifier)
        ended.append(await outbox.value("SELECT count(*) FROM server_sessions WHERE ended_at IS NOT NULL"))

    assert ended == [0, 1]


async def test_one_session_that_cannot_be_ended_does_not_keep_the_others(outbox: Outbox, monkeypatch: pytest.MonkeyPatch):
    broken = await start(outbox, "broken")
    for name in ("broken", "fine"):
        await outbox.put(1, session=name)
    await pass_hours(outbox, 5)
    end_if_idle = sessions.end_if_idle

    async def breaks(conn: Conn, idle_session: SessionOfTeam, *, idle_seconds: float) -> Job | None:
        if idle_session.id == broken:
            raise AssertionError("a bug")
        return await end_if_idle(conn, idle_session, idle_seconds=idle_seconds)

    monkeypatch.setattr(sessions, "end_if_idle", breaks)

    assert len(await swept(outbox)) == 1


async def test_idle_sessions_are_found_by_their_index(db: Db, cast: Cast):
    async with db.system() as conn:
        await conn.execute(SEED, {"project_id": cast.alice.project.id, "team_id": cast.alice.team_id})
        await conn.execute("UPDATE server_sessions SET idle_from = started_at WHERE ended_at IS NULL")
        await conn.execute("ANALYZE server_sessions")

    explained = await plan(db, cast.alice.team_id, seem_idle.query.text, {"idle_seconds": 14_400, "limit": 500})

    assert "server_sessions_idle" in explained
