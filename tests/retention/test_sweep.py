"""A sweep takes of each kind what is over, and nothing else."""

from __future__ import annotations

import asyncio

import httpx
import msgspec
import pytest

from cmserver.base.db import Db
from cmserver.observations.history import repository as history
from cmserver.observations.history.model import Change
from cmserver.ops import repository as ops
from cmserver.retention import repository
from cmserver.retention.model import KEPT_ACTIONS, KINDS, RetentionDefaults
from cmserver.retention.sweep import count_due, sweep
from tests.conftest import Cast, Person
from tests.retention.rows import OldRows, taken


async def keep(client: httpx.AsyncClient, person: Person, path: str, **policy: float) -> None:
    answer = await client.patch(path, json={"retention": policy}, headers=person.headers)
    assert answer.status_code == 200, answer.text


async def test_expired_observations_go_after_their_week(db: Db, cast: Cast, old: OldRows):
    over = await old.observation(cast.alice.project, expired_days_ago=7.01)
    await old.observation(cast.alice.project, expired_days_ago=6.99)
    await old.observation(cast.alice.project, expired_days_ago=-1)
    await old.observation(cast.alice.project)

    report = await sweep(db)

    assert taken(report) == {"expired_observations": 1}
    assert await old.count("observations") == 3
    assert await old.column("SELECT count(*) FROM observations WHERE id = %s", over.id) == [0]
    numbers = "SELECT (details -> 'numbers' -> 0)::int FROM audit_log WHERE action = 'observations.purged'"
    assert await old.column(numbers) == [over.number]


async def test_what_expired_goes_only_once_in_the_time_of_the_policy(client: httpx.AsyncClient, db: Db, cast: Cast, old: OldRows):
    await old.observation(cast.alice.project, expired_days_ago=7.01)
    await keep(client, cast.alice, f"/v1/teams/{cast.alice.team_id}", cleanupSeconds=31_536_000)
    held = await sweep(db)
    await keep(client, cast.alice, f"/v1/projects/{cast.alice.project.id}", cleanupSeconds=60)

    assert taken(held) == {}
    assert taken(await sweep(db)) == {"expired_observations": 1}


async def test_superseded_observations_go_after_their_week_and_the_merge_says_so(db: Db, cast: Cast, old: OldRows):
    target, other = await old.observation(cast.alice.project), await old.observation(cast.alice.project)
    over = await old.observation(cast.alice.project, into=target, superseded_days_ago=7.01)
    young = await old.observation(cast.alice.project, into=other, superseded_days_ago=6.99)
    async with db.tenant(cast.alice.team_id) as conn:
        for row, source in ((target, over), (other, young)):
            after = msgspec.structs.replace(row, version=2)
            change = Change(action="merged", performed_by="alice", source_ids=[source.id], strategy="append")
            await history.add(conn, row, after, change)

    report = await sweep(db)

    assert taken(report) == {"superseded_observations": 1}
    async with db.tenant(cast.alice.team_id) as conn:
        merge = await history.last(conn, cast.alice.team_id, target.id)
        undoable = await history.last(conn, cast.alice.team_id, other.id)
    assert merge is not None
    assert undoable is not None
    assert merge.sources_purged_at is not None
    assert undoable.sources_purged_at is None


async def test_how_long_they_can_be_brought_back_is_a_setting(db: Db, cast: Cast, old: OldRows):
    target = await old.observation(cast.alice.project)
    await old.observation(cast.alice.project, expired_days_ago=2)
    await old.observation(cast.alice.project, into=target, superseded_days_ago=2)

    before = await sweep(db, RetentionDefaults(undo_days=3))
    after = await sweep(db, RetentionDefaults(undo_days=1))

    assert taken(before) == {}
    assert taken(after) == {"expired_observations": 1, "superseded_observations": 1}


async def test_by_policy_old_observations_expire_first_and_can_be_brought_back(
    client: httpx.AsyncClient, db: Db, cast: Cast, old: OldRows
):
    await keep(client, cast.alice, "/v1/projects/orders", observationsDays=30, minImportance=0.7)
    over = await old.observation(cast.alice.project, days_ago=30.01, importance=0.69)
    kept = [
        await old.observation(cast.alice.project, days_ago=29.99),
        await old.observation(cast.alice.project, days_ago=31, importance=0.7),
        await old.observation(cast.charlie.project, days_ago=31),
    ]
    path = f"/v1/observations/{over.id}"

    first = await sweep(db)
    gone = await client.get(path, headers=cast.alice.headers)
    promoted = await client.post(f"{path}/promote", headers=cast.alice.headers)
    second = await sweep(db)

    assert taken(first) == {"aged_observations": 1}
    assert (gone.status_code, promoted.status_code) == (410, 200)
    assert taken(second) == {}, "what a person brought back does not expire by its age again"
    assert await old.column("SELECT count(*) FROM observations WHERE expires_at IS NULL") == [len(kept) + 1]


async def test_what_a_policy_let_expire_goes_a_week_later(client: httpx.AsyncClient, db: Db, cast: Cast, old: OldRows):
    await keep(client, cast.alice, "/v1/teams/blue", observationsDays=30)
    await old.observation(cast.alice.project, days_ago=31)
    await sweep(db)
    at_once = await old.count("observations")
    await old.write("UPDATE observations SET expires_at = expires_at - interval '8 days'")

    report = await sweep(db)

    assert (at_once, taken(report)) == (1, {"expired_observations": 1})


async def test_what_expires_by_itself_is_left_alone_by_the_policy(client: httpx.AsyncClient, db: Db, cast: Cast, old: OldRows):
    await keep(client, cast.alice, "/v1/teams/blue", observationsDays=1)
    observation = await old.observation(cast.alice.project, days_ago=100, expired_days_ago=-5)
    before = await old.column("SELECT extract(epoch FROM expires_at)::bigint FROM observations WHERE id = %s", observation.id)

    await sweep(db)

    assert before == await old.column(
        "SELECT extract(epoch FROM expires_at)::bigint FROM observations WHERE id = %s", observation.id
    )


async def test_a_payload_goes_and_its_event_stays(client: httpx.AsyncClient, db: Db, cast: Cast, old: OldRows):
    await keep(client, cast.alice, "/v1/projects/orders", eventsDays=30)
    over = await old.event(cast.alice.project, days_ago=30.01, status="completed")
    await old.event(cast.alice.project, days_ago=29.99)
    await old.event(cast.charlie.project, days_ago=400)

    report = await sweep(db)

    assert taken(report)["event_payloads"] == 1
    assert await old.count("agent_events") == 3
    assert await old.column("SELECT count(*) FROM agent_events WHERE payload = '{}'") == [1]
    shown = (await client.get(f"/v1/events/{over}", headers=cast.alice.headers)).json()["event"]
    assert (shown["payload"], shown["payloadPurgedAtEpoch"] is None) == ({}, False)


@pytest.mark.parametrize("status", ["queued", "processing"])
@pytest.mark.parametrize("of_session", [False, True], ids=["of the event", "of its session"])
async def test_an_unfinished_job_keeps_payload_and_event(
    client: httpx.AsyncClient, db: Db, cast: Cast, old: OldRows, status: str, *, of_session: bool
):
    await keep(client, cast.alice, "/v1/projects/orders", eventsDays=30, jobLogDays=0)
    session = None
    if of_session:
        started = await client.post(
            "/v1/sessions/start", json={"projectId": "orders", "contentSessionId": "s"}, headers=cast.alice.headers
        )
        session = started.json()["session"]["id"]
        await old.job(cast.alice.project, status=status, ended_days_ago=1, session_id=session)
    event_status = "completed" if of_session else status
    await old.event(cast.alice.project, days_ago=400, status=event_status, session_id=session)
    await old.event(cast.alice.project, days_ago=800, status=event_status, session_id=session, purged_days_ago=400)

    report = await sweep(db)
    await old.write("DELETE FROM observation_generation_jobs WHERE status = %s AND source_type = 'session_summary'", status)
    await old.write(
        "UPDATE observation_generation_jobs SET status = 'cancelled', cancelled_at = now(), locked_at = NULL, locked_by = NULL,"
        " worker_id = NULL, claim = NULL WHERE status = %s",
        status,
    )
    later = await sweep(db)

    assert taken(report) == {}
    assert taken(later) == {"event_payloads": 1, "event_rows": 1}


async def test_an_empty_event_goes_a_year_later_with_its_job_and_the_sums_hold(
    client: httpx.AsyncClient, db: Db, cast: Cast, old: OldRows
):
    await keep(client, cast.alice, "/v1/projects/orders", jobLogDays=0)
    await old.event(cast.alice.project, days_ago=900, status="completed", purged_days_ago=365.1)
    await old.event(cast.alice.project, days_ago=900, status="failed", purged_days_ago=364.9)

    report = await sweep(db)

    assert taken(report) == {"event_rows": 1}
    assert (await old.count("agent_events"), await old.count("observation_generation_jobs")) == (1, 1)
    async with db.system() as conn:
        blue, _ = await ops.CONSERVATION.all(conn)
        counts = await repository.COUNTS.all(conn)
    assert blue.holds
    assert [(row.team, row.kind, row.row_count) for row in counts] == [("blue", "event_rows", 1)]


async def test_an_event_that_something_came_of_stays(client: httpx.AsyncClient, db: Db, cast: Cast, old: OldRows):
    observed = await old.event(cast.alice.project, days_ago=900, purged_days_ago=400)
    await old.make.observation(project=cast.alice.project, from_event=observed)
    quoted = await old.event(cast.alice.project, days_ago=900, purged_days_ago=400)
    await old.write("UPDATE observations SET quote_event_id = %s", quoted)
    body = {"projectId": "orders", "eventType": "user_prompt", "payload": {"prompt": "a wombat"}, "contentSessionId": "s"}
    assert (await client.post("/v1/events", json=body, headers=cast.alice.headers)).status_code == 201
    await old.write("UPDATE agent_events SET payload_purged_at = now() - interval '400 days'")
    await old.write("DELETE FROM observation_generation_jobs")
    await old.event(cast.alice.project, days_ago=900, purged_days_ago=400)

    report = await sweep(db)

    assert await old.count("turns") == 1
    assert taken(report) == {"event_rows": 1}
    assert await old.count("agent_events") == 3


async def test_the_log_of_an_ended_job_goes_and_the_job_stays(client: httpx.AsyncClient, db: Db, cast: Cast, old: OldRows):
    for status in ("completed", "failed", "cancelled"):
        await old.job(cast.alice.project, status=status, ended_days_ago=90.01)
    for status in ("queued", "processing"):
        await old.job(cast.alice.project, status=status, ended_days_ago=900)
    await old.job(cast.alice.project, ended_days_ago=89.99)
    await keep(client, cast.charlie, "/v1/teams/red", jobLogDays=0)
    await old.job(cast.charlie.project, ended_days_ago=900)
    before = await old.count("observation_generation_job_events")

    report = await sweep(db)

    assert taken(report) == {"job_log": 3}
    assert await old.count("observation_generation_job_events") == before - 3
    assert await old.count("observation_generation_jobs") == 7


async def test_receipts_go_by_the_project_then_its_team_then_the_setting(
    client: httpx.AsyncClient, db: Db, cast: Cast, old: OldRows
):
    for days_ago in (5, 15, 25, 100):
        await old.receipt(cast.alice.project, days_ago=days_ago)
        await old.receipt(cast.charlie.project, days_ago=days_ago)

    by_setting = await sweep(db)
    await keep(client, cast.alice, "/v1/teams/blue", receiptsDays=20)
    by_team = await sweep(db)
    await keep(client, cast.alice, "/v1/projects/orders", receiptsDays=10)
    by_project = await sweep(db)

    assert [report.counts["receipts"] for report in (by_setting, by_team, by_project)] == [2, 1, 1]
    assert await old.count("context_injections") == 4


async def test_zero_days_are_for_good_whatever_the_team_says(client: httpx.AsyncClient, db: Db, cast: Cast, old: OldRows):
    await keep(client, cast.alice, "/v1/teams/blue", receiptsDays=1, eventsDays=1, observationsDays=1, jobLogDays=1)
    await keep(client, cast.alice, "/v1/projects/orders", receiptsDays=0, eventsDays=0, observationsDays=0, jobLogDays=0)
    await old.receipt(cast.alice.project, days_ago=9000)
    await old.event(cast.alice.project, days_ago=9000, status="completed")
    await old.observation(cast.alice.project, days_ago=9000)

    assert taken(await sweep(db)) == {}


async def test_by_default_only_what_has_a_reason_goes(db: Db, cast: Cast, old: OldRows):
    await old.event(cast.alice.project, days_ago=9000, status="completed")
    await old.observation(cast.alice.project, days_ago=9000)
    await old.receipt(cast.alice.project, days_ago=9000)
    await old.act(cast.alice.team_id, days_ago=9000)
    await old.count_accesses_up_to(2**40)

    assert taken(await sweep(db)) == {"job_log": 1, "receipts": 1}


async def test_the_audit_log_goes_behind_the_counter_and_never_before_the_operators_minimum(
    client: httpx.AsyncClient, db: Db, cast: Cast, old: OldRows
):
    await old.write("DELETE FROM audit_log")
    await keep(client, cast.alice, "/v1/teams/blue", auditDays=30)
    for days_ago in (400, 366, 364, 31):
        await old.act(cast.alice.team_id, days_ago=days_ago)
        await old.act(cast.alice.team_id, days_ago=days_ago, project=cast.alice.project)
        await old.act(cast.charlie.team_id, days_ago=days_ago)
    first = (await old.column("SELECT min(id) FROM audit_log WHERE action = 'observations.served'"))[0]

    uncounted = await sweep(db)
    await old.count_accesses_up_to(first)
    counted_one = await sweep(db)
    await old.count_accesses_up_to(2**40)
    counted_all = await sweep(db)
    shorter = await sweep(db, RetentionDefaults(audit_min_days=30))

    assert [report.counts["audit_log"] for report in (uncounted, counted_one, counted_all, shorter)] == [0, 1, 3, 4]
    served = "SELECT count(*) FROM audit_log WHERE action = 'observations.served' AND team_id = %s"
    assert await old.column(served, cast.charlie.team_id) == [4]


async def test_what_proves_an_erasure_stays_in_the_audit_log(db: Db, cast: Cast, old: OldRows):
    for action in (*KEPT_ACTIONS, "observations.served", "key.created"):
        await old.act(cast.alice.team_id, days_ago=9000, action=action)
    await old.count_accesses_up_to(2**40)

    report = await sweep(db, RetentionDefaults(audit_days=1, audit_min_days=1))

    assert taken(report) == {"audit_log": 2}


async def test_the_audit_log_of_a_deleted_team_goes_by_the_settings(client: httpx.AsyncClient, db: Db, cast: Cast, old: OldRows):
    assert (await client.delete("/v1/teams/red", headers=cast.charlie.headers)).status_code == 200
    await old.act(cast.charlie.team_id, days_ago=9000, project=cast.charlie.project)
    await old.count_accesses_up_to(2**40)

    assert taken(await sweep(db)) == {}
    assert taken(await sweep(db, RetentionDefaults(audit_days=400))) == {"audit_log": 1}


async def fill(old: OldRows, cast: Cast) -> None:
    """One row of each kind that is over."""
    target = await old.observation(cast.alice.project)
    await old.observation(cast.alice.project, days_ago=50)
    await old.observation(cast.alice.project, expired_days_ago=8)
    await old.observation(cast.alice.project, into=target, superseded_days_ago=8)
    await old.event(cast.alice.project, days_ago=50)
    await old.event(cast.alice.project, days_ago=800, purged_days_ago=400)
    await old.job(cast.alice.project, ended_days_ago=100)
    await old.receipt(cast.alice.project, days_ago=100)
    await old.search(cast.alice.team_id, days_ago=400)
    await old.act(cast.alice.team_id, days_ago=500)
    await old.steward_job(cast.alice.team_id, ended_days_ago=31)
    await old.count_accesses_up_to(2**40)


ALL_SHORT = RetentionDefaults(observations_days=40, events_days=40, audit_days=400)


async def test_a_dry_run_counts_what_a_sweep_takes_and_writes_nothing(db: Db, cast: Cast, old: OldRows):
    await fill(old, cast)
    async with db.system() as conn:
        rows = await (await conn.execute("SELECT * FROM observations ORDER BY id")).fetchall()

    counted = await count_due(db, ALL_SHORT)
    again = await count_due(db, ALL_SHORT)

    async with db.system() as conn:
        assert rows == await (await conn.execute("SELECT * FROM observations ORDER BY id")).fetchall()
        assert await (await conn.execute("SELECT kind FROM retention_counts")).fetchall() == []
    assert counted == again
    assert taken(counted) == dict.fromkeys(KINDS, 1)
    assert taken(await sweep(db, ALL_SHORT)) == dict.fromkeys(KINDS, 1)


async def test_a_second_sweep_finds_nothing(db: Db, cast: Cast, old: OldRows):
    await fill(old, cast)

    await sweep(db, ALL_SHORT)

    assert taken(await sweep(db, ALL_SHORT)) == {}
    assert taken(await count_due(db, ALL_SHORT)) == {}


async def test_a_sweep_takes_no_more_than_its_budget_and_the_next_goes_on(db: Db, cast: Cast, old: OldRows):
    for _ in range(5):
        await old.receipt(cast.alice.project, days_ago=100)
        await old.job(cast.alice.project, ended_days_ago=100)
        await old.observation(cast.alice.project, expired_days_ago=8)

    reports = [await sweep(db, max_rows=4) for _ in range(5)]

    assert [sum(report.counts.values()) for report in reports] == [4, 4, 4, 3, 0]
    assert [report.is_complete for report in reports] == [False, False, False, True, True]


async def test_a_log_is_gone_through_page_by_page(db: Db, cast: Cast, old: OldRows):
    for _ in range(2):
        await old.job(cast.alice.project, ended_days_ago=10)  # kept by its age, in front of what goes
    await old.job(cast.alice.project, ended_days_ago=100)
    await old.write("UPDATE observation_generation_job_events SET created_at = now() - interval '100 days'")

    reports = [await sweep(db, max_rows=1) for _ in range(3)]

    assert [report.counts["job_log"] for report in reports].count(1) == 1
    assert await old.count("observation_generation_job_events") == 2


async def test_two_sweeps_at_once_take_each_row_once(db: Db, cast: Cast, old: OldRows):
    for _ in range(40):
        await old.receipt(cast.alice.project, days_ago=100)
        await old.receipt(cast.charlie.project, days_ago=100)
        await old.observation(cast.alice.project, expired_days_ago=8)
        await old.job(cast.alice.project, ended_days_ago=100)

    reports = await asyncio.gather(sweep(db), sweep(db), sweep(db))

    assert sum(sum(report.counts.values()) for report in reports) == 160
    async with db.system() as conn:
        counts = await repository.COUNTS.all(conn)
    assert sum(row.row_count for row in counts) == 160
    assert (await old.count("context_injections"), await old.count("observations")) == (0, 0)


async def test_a_row_that_somebody_holds_waits_for_the_next_sweep(db: Db, cast: Cast, old: OldRows):
    held = await old.observation(cast.alice.project, expired_days_ago=8)
    await old.observation(cast.alice.project, expired_days_ago=8)

    async with db.system() as conn:
        await conn.execute("SELECT FROM observations WHERE id = %s FOR UPDATE", [held.id])
        meanwhile = await sweep(db)
    later = await sweep(db)

    assert (taken(meanwhile), taken(later)) == ({"expired_observations": 1}, {"expired_observations": 1})


async def test_nothing_goes_while_a_backup_runs(db: Db, cast: Cast, old: OldRows):
    await fill(old, cast)

    async with db.system() as conn:
        await repository.HOLD_OFF.run(conn)
        meanwhile = await sweep(db)
    later = await sweep(db)

    assert (meanwhile.backup_runs, taken(meanwhile)) == (True, {})
    assert later.backup_runs is False
    assert taken(later)


async def test_a_team_takes_its_counts_along(client: httpx.AsyncClient, db: Db, cast: Cast, old: OldRows):
    await old.receipt(cast.charlie.project, days_ago=100)
    await sweep(db)
    assert (await client.delete("/v1/teams/red", headers=cast.charlie.headers)).status_code == 200

    assert await old.count("retention_counts") == 0


async def test_counts_of_the_funnel_go_after_a_year(db: Db, cast: Cast, old: OldRows):
    for days_ago in (364, 366):
        await old.search(cast.alice.team_id, days_ago=days_ago)

    assert (await count_due(db)).counts["telemetry"] == 1
    assert taken(await sweep(db)) == {"telemetry": 1}
    assert await old.count("memory_telemetry") == 1
