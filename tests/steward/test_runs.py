"""The life of jobs: claimed once, fenced by the claim, ended whatever happens; and the mode is obeyed at the moment of writing."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any, cast

import msgspec
import psycopg
import pytest
from structlog.testing import capture_logs

from cmserver.base.db import Db
from cmserver.base.errors import Conflict, StatementTimeout
from cmserver.base.ids import new_id
from cmserver.base.metrics import metrics
from cmserver.base.notifications import NotificationListener
from cmserver.generation.job_notifier import JobNotifier
from cmserver.generation.leases import repository as leases
from cmserver.generation.operate.manage import cancel_job, retry_job
from cmserver.models.providers.model import FailureKind, ProviderError, Rules
from cmserver.retention.sweep import sweep
from cmserver.steward import operate, plan, repository
from cmserver.steward.model import MAX_QUEUED_OF_PROJECT, Effect, NewJob, Plan
from cmserver.steward.plan import enqueue, plan_team
from cmserver.steward.run_job import EXECUTORS, StewardRunner
from cmserver.steward.runs import repository as runs
from tests.conftest import Cast
from tests.generation.tools import make_hand
from tests.rows import rows
from tests.steward.corpus import Case, Note, all_cases
from tests.steward.tools import Keeper, Model, Planted, plant, suggest, write_note
from tests.timeouts import scaled

SURE = '{"same": true, "conflict": false, "confidence": 0.97, "reason": "same fact"}'


LONGER = Case(
    name="longer",
    kind="paraphrase",
    notes=(
        Note(title="Deploys of orders run the migrations first"),
        Note(title="Deploys of orders run the migrations first, while the operator watches the log", session=2, day=2),
    ),
    same=True,
)
"""Neither the same text nor a different fact: only a model can tell."""


def find_case(name: str) -> Case:
    return next(case for case in [LONGER, *all_cases()] if case.name == name)


async def until_asked(model: Model) -> None:
    async with asyncio.timeout(scaled(20)):
        await model.asked.wait()


async def plant_pair(keeper: Keeper, name: str = "exact-0") -> Planted:
    return await plant(keeper.db, keeper.principal, find_case(name))


def read_metric(name: str, **labels: str) -> float:
    return metrics().registry.get_sample_value(f"cmserver_{name}_total", labels) or 0.0


async def hash_all(db: Db) -> dict[str, Any]:
    """A hash of each table but those of the steward, of procrastinate, and the sums of usage."""
    tables = await rows(
        db,
        "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"
        " AND relname !~ '^(procrastinate_|steward_|generation_|observation_generation_)'"
        " AND relname <> 'observation_derivations'",
    )
    return {
        row["relname"]: (
            await rows(db, f"SELECT md5(coalesce(string_agg(t::text, '|' ORDER BY t::text), '')) AS h FROM {row['relname']} t")
        )[0]["h"]
        for row in tables
    }


async def test_a_pending_suggestion_is_merged_and_each_step_is_written_down(keeper: Keeper):
    planted = await plant_pair(keeper)
    await keeper.switch("write")
    run_count = read_metric("steward_runs", executor="auto_merge", status="succeeded")
    merge_count = read_metric("merged_observations", by="steward")

    (run,) = await keeper.work("auto_merge")

    assert read_metric("steward_runs", executor="auto_merge", status="succeeded") == run_count + 1
    assert read_metric("merged_observations", by="steward") == merge_count + 1
    (left,) = await keeper.observations(planted.project)
    assert (left.number, left.version, left.merged_from) == (planted.notes[0].number, 2, [planted.notes[1].id])
    assert (run.status, run.job_status, run.provider, run.total_tokens) == ("succeeded", "succeeded", None, 0)
    assert await keeper.events(run.job_id) == ["job_created", "job_claimed", "decision_made", "write_applied", "job_completed"]
    audited = await rows(keeper.db, "SELECT DISTINCT actor_id FROM audit_log WHERE action = 'observation.merged'")
    assert [row["actor_id"] for row in audited] == ["steward"]
    assert await keeper.plan("auto_merge") == []


async def test_without_a_model_and_with_an_unsure_one_a_person_decides(keeper: Keeper, asking: Keeper, model: Model):
    planted = await plant_pair(keeper, "longer")
    await keeper.switch("write")

    found: list[object] = [(await keeper.work("auto_merge"))[-1].output_snapshot]
    answers = (
        "I think so.",
        '{"same": true, "conflict": false, "confidence": 0.5, "reason": ""}',
        '{"same": true, "conflict": true, "confidence": 1, "reason": ""}',
        '{"same": false, "conflict": false, "confidence": 1, "reason": ""}',
        '{"same": true, "confidence": 1}',
        '{"same": true, "conflict": false, "confidence": 7, "reason": ""}',
    )
    for answer in answers:
        model.reply = answer
        await asking.enqueue("auto_merge", await payload_of(asking, planted), project_id=planted.project.id)
        await asking.drain()
        found.append((await asking.runs())[-1].output_snapshot)

    reasons = [(snapshot or {})["reasons"][0] for snapshot in found]  # type: ignore[index]
    assert len(model.prompts) == len(answers)
    assert reasons == [
        "no_model",
        "model_unreadable",
        "model_unsure",
        "model_sees_conflict",
        "model_says_different",
        "model_unreadable",
        "model_unreadable",
    ]
    assert len(await keeper.observations(planted.project)) == 2
    model.reply = SURE
    await asking.enqueue("auto_merge", await payload_of(asking, planted), project_id=planted.project.id)
    await rows(keeper.db, "UPDATE steward_runs SET completed_at = completed_at - interval '1 hour', error_class = NULL")
    await asking.drain()
    run = (await asking.runs())[-1]
    assert (run.status, run.prompt_tokens, run.completion_tokens, run.model) == ("succeeded", 200, 20, "scripted-1")
    assert len(await keeper.observations(planted.project)) == 1


@pytest.mark.parametrize("difference", ["", ", never alone", " 5 logs"])
async def test_what_is_nearer_than_the_team_wants_is_merged_by_a_model_that_is_sure(
    keeper: Keeper, asking: Keeper, model: Model, difference: str
):
    planted = await plant_pair(keeper, "longer")
    await rows(
        keeper.db,
        "UPDATE observations SET title = 'Migrations go ahead when a release is made' || %s WHERE id = %s",
        difference,
        planted.notes[1].id,
    )
    await keeper.switch("write")
    model.reply = SURE
    reasons: list[list[str]] = []
    for policy in ("{}", '{"autoMergeAbove": 0.01}'):
        await rows(keeper.db, "UPDATE teams SET retention = %s", policy)
        await asking.enqueue("auto_merge", await payload_of(asking, planted), project_id=planted.project.id)
        await asking.drain()
        reasons.append(cast("list[str]", ((await asking.runs())[-1].output_snapshot or {})["reasons"]))

    assert reasons[0][0] == "differs"
    assert (reasons[1] == ["model_sure"]) == (not difference)
    assert len(await keeper.observations(planted.project)) == (2 if difference else 1)


async def payload_of(keeper: Keeper, planted: Planted) -> dict[str, object]:
    (row,) = await rows(keeper.db, "SELECT id FROM consolidation_suggestions WHERE project_id = %s", planted.project.id)
    return {"mode": "write", "suggestionId": str(row["id"]), "versions": [1, 1], "asked": "scripted"}


async def test_a_model_that_fails_three_times_is_left_alone_and_tried_once_later(asking: Keeper, model: Model):
    planted = await plant_pair(asking, "longer")
    await asking.switch("write")
    model.error = ProviderError(FailureKind.TRANSIENT, "away")
    payload = await payload_of(asking, planted)

    async def ask() -> str:
        await asking.enqueue("auto_merge", payload, project_id=planted.project.id)
        await asking.drain()
        return str(((await asking.runs())[-1].output_snapshot or {})["reasons"][0])  # type: ignore[index]

    reasons = [await ask() for _ in range(5)]
    await rows(asking.db, "UPDATE steward_runs SET completed_at = completed_at - interval '3 minutes'")
    reasons += [await ask() for _ in range(2)]

    assert reasons == ["model_failed"] * 3 + ["breaker_open"] * 2 + ["model_failed", "breaker_open"]
    assert len(model.prompts) == 4
    async with asking.db.tenant(asking.team_id) as conn:
        status = await operate.read_status(conn, asking.principal)
    assert status.breaker.is_open
    assert {(row.reason, row.count) for row in status.failures} == {("model_failed", 4)}


async def test_the_tokens_of_a_day_are_a_bound(asking: Keeper, model: Model):
    planted = await plant_pair(asking, "longer")
    await asking.switch("write")
    model.reply = '{"same": true, "conflict": false, "confidence": 0.5, "reason": ""}'
    model.tokens = 900, 100
    payload = await payload_of(asking, planted)

    for _ in range(3):
        await asking.enqueue("auto_merge", payload, project_id=planted.project.id)
        await asking.drain()

    # A third call would go beyond two thirds of the 3,200 of a day, so it is not made.
    assert [(run.output_snapshot or {})["reasons"] for run in await asking.runs()] == [
        *[["model_unsure"]] * 2,
        ["daily_tokens_spent"],
    ]
    spent = await rows(asking.db, "SELECT kind, input_tokens FROM generation_runs")
    assert [(row["kind"], row["input_tokens"]) for row in spent] == [("guard", 900)] * 2


async def test_a_dry_run_writes_nothing_but_its_own_rows(keeper: Keeper):
    """Contextify's wrote derived memories, and its events said that it did not (B4, B5)."""
    for name in ("exact-0", "derivable-0", "deleted-0"):
        await plant_pair(keeper, name)
    await keeper.switch("dry_run")
    before = await hash_all(keeper.db)

    runs = await keeper.work()

    assert {run.job_type for run in runs} == {"auto_merge", "recheck", "derive", "policy_tune"}
    proposed = [run for run in runs if (run.output_snapshot or {})["proposals"]]
    assert {run.job_type for run in proposed} == {"auto_merge", "recheck", "derive"}
    for run in proposed:
        assert "write_skipped" in await keeper.events(run.job_id)
        assert "write_applied" not in await keeper.events(run.job_id)
    assert await hash_all(keeper.db) == before
    statuses = await rows(keeper.db, "SELECT status FROM observation_derivations")
    assert [row["status"] for row in statuses] == ["candidate"]


async def test_what_a_dry_run_proposed_is_written_once_writing_is_allowed(keeper: Keeper):
    planted = [await plant_pair(keeper, name) for name in ("exact-0", "derivable-0", "deleted-0")]
    await keeper.switch("dry_run")
    await keeper.work()
    await keeper.switch("write")

    runs = await keeper.work()

    assert {run.job_type for run in runs if run.status == "succeeded"} == {"auto_merge", "recheck", "derive"}
    pair, derived, (stale,) = [await keeper.observations(one.project) for one in planted]
    assert (len(pair), derived[-1].agent) == (1, "steward")
    assert stale.stale is not None
    assert stale.stale.reason == "deleted"


@pytest.mark.parametrize("change", [{"mode": "dry_run"}, {"mode": "write", "executors": ["derive"]}])
async def test_what_could_not_be_written_when_it_was_decided_is_written_later(keeper: Keeper, change: Any):
    """Its job had succeeded, so nobody looked at the pair and the calls again."""
    for name in ("exact-0", "deleted-0"):
        await plant_pair(keeper, name)
    await keeper.switch("write")
    await keeper.plan("auto_merge", "recheck")
    await keeper.switch(**change)
    await keeper.drain()
    refused = await keeper.runs()

    await keeper.switch("write")
    runs = await keeper.work("auto_merge", "recheck")

    assert {run.status for run in refused} == {"skipped"}
    assert {run.job_type for run in runs if run.status == "succeeded"} == {"auto_merge", "recheck"}
    assert await keeper.plan("auto_merge", "recheck") == []


async def test_more_marks_than_one_run_may_make_are_made_by_the_next(keeper: Keeper, monkeypatch: pytest.MonkeyPatch):
    planted = await plant_pair(keeper, "deleted-0")
    await write_note(keeper.db, planted.project, planted.case.notes[0])
    monkeypatch.setattr("cmserver.steward.executors.recheck._MAX_MARKS", 1)
    await keeper.switch("write")

    for marked in (1, 2):
        await keeper.work("recheck")
        assert sum(row.stale is not None for row in await keeper.observations(planted.project)) == marked


@pytest.mark.parametrize(
    ("before", "after", "is_merged"), [("dry_run", "write", True), ("write", "dry_run", False), ("write", "off", False)]
)
async def test_a_mode_that_is_switched_in_the_middle_of_a_job_is_obeyed(
    asking: Keeper, model: Model, before: Any, after: Any, is_merged: bool
):
    """Contextify's executor kept the mode it was started with, and its events told the other one (B4)."""
    planted = await plant_pair(asking, "longer")
    await asking.switch(before)
    await asking.plan("auto_merge")
    model.reply, model.gate = SURE, asyncio.Event()
    working = asyncio.create_task(asking.drain())
    await until_asked(model)

    await asking.switch(after)
    model.gate.set()
    await working

    (run,) = await asking.runs()
    events = await asking.events(run.job_id)
    assert ("write_applied" in events, "write_skipped" in events) == (is_merged, not is_merged)
    assert (len(await asking.observations(planted.project)) == 1) is is_merged


async def test_what_cannot_be_run_ends(keeper: Keeper, monkeypatch: pytest.MonkeyPatch):
    """In Contextify unknown types succeeded, bad payloads were tried three times, and what took too long ran for ever (B6, B7)."""

    class Slow:
        async def prepare(self, *args: object) -> None:
            await asyncio.sleep(60)

    class Broken:
        async def prepare(self, *args: object) -> None:
            raise RuntimeError("password=hunter2secret broke")

    class Heavy:
        async def prepare(self, *args: object) -> None:
            raise StatementTimeout("The query took longer than 2 seconds.")

    monkeypatch.setitem(EXECUTORS, "heavy", (EXECUTORS["derive"][0], Heavy()))
    monkeypatch.setitem(EXECUTORS, "derive", (EXECUTORS["derive"][0], Slow()))
    monkeypatch.setitem(EXECUTORS, "recheck", (EXECUTORS["derive"][0], Broken()))
    keeper.steward = StewardRunner(keeper.db, keeper.settings, job_seconds=0.05)
    await keeper.switch("write")
    jobs = {
        "unknown": await keeper.enqueue("reindex_everything", {"mode": "write"}),
        "bad": await keeper.enqueue("auto_merge", {"mode": "write", "suggestionId": "x"}),
        "slow": await keeper.enqueue("derive", {"mode": "write"}),
        "broken": await keeper.enqueue("recheck", {"mode": "write"}),
        "heavy": await keeper.enqueue("heavy", {"mode": "write"}),
    }

    for _ in range(9):
        await keeper.drain()
        await keeper.let_time_pass()

    ended = {name: await keeper.job(job_id) for name, job_id in jobs.items()}
    assert {name: (job.status, job.attempt_count) for name, job in ended.items()} == {
        "unknown": ("dead_letter", 1),
        "bad": ("failed", 1),
        "slow": ("dead_letter", 3),
        "broken": ("dead_letter", 3),
        "heavy": ("dead_letter", 3),
    }
    assert all("timeout" in str(ended[name].last_error) for name in ("slow", "heavy"))
    assert "hunter2secret" not in str(ended["broken"].last_error)
    assert {run.status for run in await keeper.runs()} == {"failed"}
    with pytest.raises(Conflict):
        await keeper.change(cancel_job, jobs["bad"])
    retried, is_new = await keeper.change(retry_job, jobs["slow"])
    assert (is_new, retried.status, retried.attempts, retried.max_attempts) == (True, "queued", 3, 6)


async def test_an_error_while_it_is_written_leaves_a_failed_run(keeper: Keeper, monkeypatch: pytest.MonkeyPatch):
    class Torn:
        async def prepare(self, *args: object) -> Plan:
            return Plan(decision="derive", reasons=["x"], proposals=[Effect(kind="policy_changed")])

        async def apply(self, *args: object) -> None:
            raise RuntimeError("torn")

    monkeypatch.setitem(EXECUTORS, "derive", (EXECUTORS["derive"][0], cast("Any", Torn())))
    await keeper.switch("write")
    job_id = await keeper.enqueue("derive", {"mode": "write"})

    with capture_logs() as logged:
        await keeper.drain()

    (run,) = await keeper.runs()
    job = await keeper.job(job_id)
    assert (run.status, run.error_class, run.error_message) == ("failed", "executor_error", "RuntimeError: torn")
    assert (job.status, job.last_error) == ("queued", "executor_error: RuntimeError: torn")
    assert [line["event"] for line in logged if line["log_level"] == "error"] == ["steward.job_failed"]


async def test_jobs_are_planned_though_thresholds_cannot_be_tuned(keeper: Keeper, monkeypatch: pytest.MonkeyPatch):
    async def break_down(*args: object, **kwargs: object) -> None:
        raise RuntimeError("no tuning")

    await plant_pair(keeper)
    await keeper.switch("write")
    monkeypatch.setattr(plan, "tune_policies", break_down)

    assert len(await keeper.plan()) >= 1
    assert len(await rows(keeper.db, "SELECT id FROM steward_jobs WHERE status = 'queued'")) >= 1


async def test_a_worker_that_was_frozen_past_its_lease_writes_nothing(asking: Keeper, model: Model):
    planted = await plant_pair(asking, "longer")
    await asking.switch("write")
    (job_id,) = await asking.plan("auto_merge")
    model.reply, model.gate = SURE, asyncio.Event()
    frozen = asyncio.create_task(asking.drain())
    await until_asked(model)

    assert asking.hand is not None
    await rows(asking.db, "UPDATE procrastinate_workers SET last_heartbeat = now() - interval '2 hours'")
    async with asking.db.system() as conn:
        assert (await leases.reap(conn, hard_limit_seconds=300)).jobs == [job_id]
    gate, model.gate = model.gate, None
    model.reply = '{"same": false, "conflict": false, "confidence": 1, "reason": "no"}'
    await Keeper(asking.db, asking.settings, asking.principal).drain()
    model.reply = SURE
    gate.set()
    await frozen

    job = await asking.job(job_id)
    assert (job.status, job.attempt_count) == ("succeeded", 2)
    assert (job.decision or {})["decision"] == "keep"
    assert len(await asking.observations(planted.project)) == 2
    assert [run.status for run in await asking.runs()] == ["skipped"]
    assert (await asking.events(job_id))[:4] == ["job_created", "job_claimed", "recovery_detected", "job_claimed"]


async def test_a_cancelled_job_writes_nothing(asking: Keeper, model: Model):
    planted = await plant_pair(asking, "longer")
    await asking.switch("write")
    (job_id,) = await asking.plan("auto_merge")
    model.reply, model.gate = SURE, asyncio.Event()
    working = asyncio.create_task(asking.drain())
    await until_asked(model)

    await asking.change(cancel_job, job_id)
    model.gate.set()
    await working

    assert (await asking.job(job_id)).status == "cancelled"
    assert await asking.runs() == []
    assert len(await asking.observations(planted.project)) == 2


@pytest.mark.parametrize("change", [{"mode": "off"}, {"mode": "write", "is_paused": True}])
async def test_what_waits_while_the_steward_is_off_or_paused_is_left_and_planned_again(keeper: Keeper, change: Any):
    await plant_pair(keeper)
    await keeper.switch("write")
    (job_id,) = await keeper.plan("auto_merge")

    await keeper.switch(**change)
    await keeper.drain()
    left, planned = await keeper.job(job_id), await keeper.plan()
    await keeper.switch("write")
    runs = await keeper.work("auto_merge")

    assert (left.status, (left.decision or {})["decision"]) == ("succeeded", "nothing")
    assert planned == []
    assert [run.status for run in runs] == ["succeeded"]


async def test_a_job_is_claimed_once_in_the_lane_of_its_project(keeper: Keeper):
    planted = await plant_pair(keeper)
    await keeper.switch("write")
    await keeper.plan("auto_merge")
    lanes = await rows(keeper.db, "SELECT lane FROM generation_lanes")

    await asyncio.gather(*(Keeper(keeper.db, keeper.settings, keeper.principal).drain() for _ in range(4)))

    assert [row["lane"] for row in lanes] == [planted.project.id]
    assert len(await keeper.runs()) == 1


async def test_the_views_are_read_in_psql_and_nobody_writes_them(keeper: Keeper):
    await keeper.switch("write")
    job_id = await keeper.enqueue("derive", {"mode": "write"})

    for statement in (
        "INSERT INTO steward_jobs (id, job_type) VALUES (gen_random_uuid(), 'derive')",
        "UPDATE steward_jobs SET status = 'succeeded'",
        "DELETE FROM steward_jobs",
        "INSERT INTO steward_events (job_id) VALUES (gen_random_uuid())",
    ):
        with pytest.raises(psycopg.Error, match="is a view of the outbox"):
            await rows(keeper.db, statement)
    await rows(keeper.db, "SELECT cancel_job(%s)", job_id)

    assert await keeper.events(job_id) == ["job_created", "job_completed"]
    assert (await keeper.job(job_id)).status == "cancelled"


async def test_a_worker_of_the_older_version_is_given_no_job_and_while_it_lives_none_is_planned(keeper: Keeper):
    """It takes each job for one of events, asks a model about nothing, and may store what that invents."""
    await plant_pair(keeper)
    await keeper.switch("write")
    (waiting,) = await keeper.plan("auto_merge")
    older = await make_hand(keeper.db, JobNotifier(keeper.db, NotificationListener(keeper.db.url)), [Rules()], 3600)
    await rows(keeper.db, "UPDATE generation_workers SET knows_steward = DEFAULT WHERE worker_id = %s", older.worker_id)

    assert await older.claim() == []
    assert await keeper.plan("derive") == []
    await rows(keeper.db, "UPDATE procrastinate_workers SET last_heartbeat = now() - interval '2 hours'")
    assert len(await keeper.plan("derive")) == 1
    await keeper.drain()
    assert (await keeper.job(waiting)).status == "succeeded"


async def test_the_queue_is_bounded(keeper: Keeper, cast: Cast):
    await keeper.switch("write")
    (other, *_) = [await plant_pair(keeper, name) for name in ("exact-0",)]
    jobs = [
        NewJob(
            team_id=keeper.team_id,
            project_id=cast.alice.project.id if number < 120 else other.project.id,
            job_type="derive",
            source_id=steps[number % 300],
            payload={"trigger": "a test", "sources": [], "input": {}},
        )
        for steps in [[new_id() for _ in range(300)]]
        for number in range(330)
    ]

    async with keeper.db.system() as conn:
        queued = await enqueue(conn, jobs)
        again = await enqueue(conn, jobs)

    of_project = await rows(keeper.db, "SELECT project_id, count(*) AS n FROM steward_jobs GROUP BY 1")
    assert [row["n"] for row in of_project] == [MAX_QUEUED_OF_PROJECT] * 2
    assert len(queued) + len(again) == 2 * MAX_QUEUED_OF_PROJECT


async def test_what_is_open_is_not_planned_twice(keeper: Keeper):
    for name in ("exact-0", "derivable-0", "deleted-0"):
        await plant_pair(keeper, name)
    await keeper.switch("write")

    planned, again = [await plan_team(keeper.db, keeper.settings, keeper.team_id) for _ in range(2)]

    assert len(planned) > 3
    assert again == []


async def test_one_project_is_planned_though_others_have_more_to_do(keeper: Keeper, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(plan, "_SUGGESTIONS_AT_ONCE", 1)
    monkeypatch.setattr(plan, "_PROJECTS_AT_ONCE", 1)
    planted = [await plant_pair(keeper, name) for name in ("exact-0", "exact-1", "deleted-0", "deleted-1")]
    await keeper.switch("write")

    planned = [await keeper.plan("auto_merge", "recheck", project_id=one.project.id) for one in planted]

    assert [len(jobs) for jobs in planned] == [1, 1, 1, 1]


async def test_nothing_is_planned_or_begun_in_an_archived_project_or_team(keeper: Keeper):
    planted = await plant_pair(keeper)
    await keeper.switch("write")
    (job_id,) = await keeper.plan("auto_merge")
    await rows(keeper.db, "UPDATE projects SET archived_at = now() WHERE id = %s", planted.project.id)

    await keeper.drain()
    assert ((await keeper.job(job_id)).decision or {})["reasons"] == ["project_archived"]
    assert await keeper.runs() == []
    assert await keeper.plan("auto_merge", "derive", "recheck") == []
    await rows(keeper.db, "UPDATE projects SET archived_at = NULL")
    await rows(keeper.db, "UPDATE teams SET archived_at = now() WHERE id = %s", keeper.team_id)
    async with keeper.db.system() as conn:
        assert await repository.ACTIVE_TEAMS.all(conn) == []


async def test_tokens_stay_numbers_and_secrets_go(asking: Keeper, model: Model):
    """Contextify redacted each count of tokens, because its name has the word (B8)."""
    await plant_pair(asking, "longer")
    await asking.switch("write")
    model.error = ProviderError(FailureKind.TRANSIENT, "refused with api_key=sk-ant-api03-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa")
    await asking.work("auto_merge")
    model.error, model.reply = None, SURE
    (run,) = await asking.runs()
    async with asking.db.tenant(asking.team_id) as conn:
        events = await runs.events(conn, asking.team_id, run.job_id, limit=100)
    called = next(event.data for event in events if event.event_type == "model_invoked")

    assert (called["prompt_tokens"], called["completion_tokens"]) == (0, 0)
    assert "sk-ant" not in msgspec.json.encode([run, events]).decode()


async def test_a_project_may_have_fewer_executors(keeper: Keeper):
    planted = await plant_pair(keeper)
    await keeper.switch("write")
    async with keeper.db.tenant(keeper.team_id) as conn:
        await operate.set_project_executors(conn, keeper.principal, planted.project.id, ["recheck"])

    assert await keeper.plan("auto_merge") == []
    await keeper.enqueue("auto_merge", await payload_of(keeper, planted), project_id=planted.project.id)
    await keeper.drain()

    (run,) = await keeper.runs()
    assert (run.output_snapshot or {})["skipped"] == ["executor_not_allowed"]
    assert len(await keeper.observations(planted.project)) == 2


async def test_what_changed_since_it_was_judged_is_not_merged(asking: Keeper, model: Model, cast: Cast):
    planted = await plant_pair(asking, "longer")
    await asking.switch("write")
    await asking.plan("auto_merge")
    model.reply, model.gate = SURE, asyncio.Event()
    working = asyncio.create_task(asking.drain())
    await until_asked(model)

    await rows(
        asking.db,
        "UPDATE observations SET title = 'Edited by Bob', content = 'Edited by Bob', version = version + 1 WHERE id = %s",
        planted.notes[1].id,
    )
    model.gate.set()
    await working

    (run,) = await asking.runs()
    assert (run.output_snapshot or {})["skipped"] == ["changed_meanwhile"]
    titles = [row.title for row in await asking.observations(planted.project)]
    assert titles[1] == "Edited by Bob"
    model.gate = None
    assert len(await asking.plan("auto_merge")) == 1, "as it is now it was not looked at"


async def test_the_steward_of_one_team_sees_nothing_of_another(keeper: Keeper, db: Db, cast: Cast):
    theirs = await write_note(db, cast.charlie.project, find_case("exact-0").notes[0])
    other = await write_note(db, cast.charlie.project, find_case("exact-0").notes[1])
    suggestion = await suggest(db, cast.charlie.project, theirs, other)
    await keeper.switch("write")
    assert await keeper.plan("auto_merge") == []

    await keeper.enqueue(
        "auto_merge",
        {"mode": "write", "suggestionId": str(suggestion), "versions": [1, 1], "asked": "rules"},
        project_id=cast.alice.project.id,
    )
    await keeper.drain()

    (run,) = await keeper.runs()
    assert (run.output_snapshot or {})["reasons"] == ["suggestion_missing"]
    assert datetime.now(UTC) > run.created_at


async def test_retention_takes_what_ended_long_ago(keeper: Keeper, db: Db):
    """Contextify's deleted nothing, with an error each hour (B2)."""
    pair, stale = await plant_pair(keeper), await plant_pair(keeper, "deleted-0")
    await keeper.switch("write")
    await keeper.work("auto_merge", "recheck", "policy_tune")
    await rows(db, "UPDATE observation_generation_jobs SET completed_at = now() - interval '31 days'")
    await rows(db, "UPDATE steward_runs SET created_at = now() - interval '31 days'")

    report = await sweep(db)

    left = await rows(db, "SELECT job_type, project_id FROM steward_jobs")
    assert report.counts["steward_jobs"] == 1
    assert left == [{"job_type": "recheck", "project_id": stale.project.id}], "it says up to where calls were read"
    assert (await rows(db, "SELECT DISTINCT job_type FROM steward_runs")) == [{"job_type": "recheck"}]
    assert pair.project.id != stale.project.id
