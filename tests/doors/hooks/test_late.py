"""What a client's spool delivers late has the times at which it happened."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from cmserver.base.db import Db
from cmserver.generation.job_notifier import JobNotifier
from tests.conftest import Cast
from tests.generation.tools import Outbox, Scripted
from tests.rows import rows

HOOK = "/v1/hooks/claude-code"
NOTE: dict[str, Any] = {"tool_name": "Write", "tool_input": {"file_path": "/home/alice/src/orders/note.txt"}}


class Spool:
    """Delivers hooks with the times at which they were called, in seconds ago."""

    def __init__(self, client: httpx.AsyncClient, cast: Cast) -> None:
        self.client = client
        self.cast = cast
        self.now_ms = int(time.time() * 1000)

    async def deliver(self, seconds_ago: float, name: str, session: str = "late", **fields: object) -> None:
        body = {"hook_event_name": name, "session_id": session, "cwd": "/home/alice/src/orders", **fields}
        headers = {
            **self.cast.alice.headers,
            "X-Cmserver-Sent-At": str(int(self.now_ms - seconds_ago * 1000)),
            "X-Cmserver-Late": "1",
        }
        response = await self.client.post(HOOK, json=body, headers=headers)
        assert response.status_code == 200, response.text

    def moment(self, seconds_ago: float) -> datetime:
        return datetime.fromtimestamp((self.now_ms - seconds_ago * 1000) // 1 / 1000, UTC)


@pytest.fixture
def spool(client: httpx.AsyncClient, cast: Cast) -> Spool:
    return Spool(client, cast)


async def session_times(db: Db) -> list[dict[str, Any]]:
    return await rows(db, "SELECT external_session_id AS name, started_at, ended_at, created_at FROM server_sessions ORDER BY id")


async def test_a_session_and_its_observations_have_the_times_of_their_events(
    spool: Spool, db: Db, notifier: JobNotifier, cast: Cast
):
    await spool.deliver(7200, "SessionStart", source="startup")
    await spool.deliver(7100, "PostToolUse", tool_use_id="t1", **NOTE)
    await spool.deliver(7050, "Stop", last_assistant_message="Done.")
    await spool.deliver(7000, "SessionEnd", reason="other")
    outbox = Outbox(db, notifier, cast.alice.principal, cast.alice.project)
    await (await outbox.hand(Scripted())).work()

    (session,) = await session_times(db)
    observed = await rows(db, "SELECT kind, created_at FROM observations ORDER BY number")
    assert (session["started_at"], session["ended_at"]) == (spool.moment(7200), spool.moment(7000))
    assert (datetime.now(UTC) - session["created_at"]).total_seconds() < 600, "it was stored now"
    assert [row["kind"] for row in observed] == ["observation", "observation", "summary"]
    assert observed[0]["created_at"] == spool.moment(7100)
    assert spool.moment(7100) <= observed[2]["created_at"] <= spool.moment(7000)


async def test_a_turn_that_ended_long_ago_is_no_reason_for_a_summary_of_its_own(spool: Spool, db: Db):
    """Half an hour since the start would be one; but the turn took a minute, whenever it is delivered."""
    await spool.deliver(7200, "SessionStart", source="startup")
    await spool.deliver(7150, "PostToolUse", tool_use_id="t1", **NOTE)
    await spool.deliver(7140, "Stop", last_assistant_message="Done.")

    assert await rows(db, "SELECT id FROM observation_generation_jobs WHERE source_type = 'session_summary'") == []


async def test_without_a_start_a_session_begins_with_its_first_event(spool: Spool, db: Db):
    await spool.deliver(600, "PostToolUse", tool_use_id="t1", **NOTE)
    await spool.deliver(900, "PostToolUse", tool_use_id="t0", **NOTE)

    (session,) = await session_times(db)
    assert session["started_at"] == spool.moment(600), "a time that lists are ordered by never changes"


@pytest.mark.parametrize("seconds_ago", [0, 50, -120, 40 * 86_400])
async def test_what_came_at_once_or_with_an_impossible_time_has_the_time_of_arrival(spool: Spool, db: Db, seconds_ago: float):
    await spool.deliver(seconds_ago, "SessionStart", source="startup")
    await spool.deliver(seconds_ago, "SessionEnd", reason="other")

    (session,) = await session_times(db)
    assert session["started_at"] == session["created_at"]
    assert session["ended_at"] >= session["started_at"]


async def test_the_end_is_never_before_the_start(spool: Spool, db: Db):
    await spool.deliver(600, "SessionStart", source="startup")
    await spool.deliver(900, "SessionEnd", reason="other")

    (session,) = await session_times(db)
    assert session["ended_at"] == session["started_at"] == spool.moment(600)


async def test_pages_of_sessions_join_although_a_late_one_arrives_meanwhile(spool: Spool, client: httpx.AsyncClient, cast: Cast):
    for place in range(4):
        await spool.deliver(3000 - place * 100, "SessionStart", session=f"s{place}", source="startup")
    first = (await client.get("/v1/sessions?limit=2", headers=cast.alice.headers)).json()
    await spool.deliver(5000, "SessionStart", session="late", source="startup")

    rest = (await client.get(f"/v1/sessions?cursor={first['nextCursor']}", headers=cast.alice.headers)).json()

    names = [session["externalSessionId"] for session in [*first["sessions"], *rest["sessions"]]]
    assert names == ["s3", "s2", "s1", "s0", "late"]


async def test_an_observation_of_late_events_and_one_that_came_in_time_is_of_now(
    spool: Spool, db: Db, notifier: JobNotifier, cast: Cast, client: httpx.AsyncClient
):
    await spool.deliver(3600, "PostToolUse", tool_use_id="t1", **NOTE)
    outbox = Outbox(db, notifier, cast.alice.principal, cast.alice.project)
    await (await outbox.hand(Scripted())).work()
    await spool.deliver(0, "PostToolUse", tool_use_id="t2", **NOTE)
    await (await outbox.hand(Scripted())).work()

    listed = (await client.get("/v1/observations?limit=1", headers=cast.alice.headers)).json()
    rest = (await client.get(f"/v1/observations?cursor={listed['nextCursor']}", headers=cast.alice.headers)).json()
    times = [row["createdAtEpoch"] for row in [*listed["observations"], *rest["observations"]]]
    assert times[0] >= spool.now_ms - 1000
    assert times[1] == spool.now_ms - 3_600_000
