"""The job's life as a state machine: hypothesis sends events, claims, finishes, fails, retries, cancels, crashes, loses leases and
types SQL in any order, on real PostgreSQL. After each step the tables must be what a small model says, and nothing may be lost.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast
from unittest.mock import patch
from uuid import UUID

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from psycopg import errors

from cmserver.access import repository as access
from cmserver.access.model import Principal, Project
from cmserver.access.projects import make_project
from cmserver.base.db import Db
from cmserver.base.ids import new_id
from cmserver.base.notifications import NotificationListener
from cmserver.generation import repository
from cmserver.generation.batch import Batch
from cmserver.generation.batch_effects import LeaseLostError
from cmserver.generation.job_notifier import JobNotifier
from cmserver.generation.leases import repository as leases
from cmserver.generation.model import Claim
from cmserver.ingest import session_lifecycle as sessions
from cmserver.models.providers.model import Completion, FailureKind, Prompt, ProviderError
from cmserver.ops import repository as ops
from tests.conftest import mint
from tests.generation.tools import Hand, Outbox, Scripted, all_skipped, completion, each_observed

T = TypeVar("T")

SESSIONS = ["s1", "s2", None]
ENDED = {"completed", "failed", "cancelled"}
LAW = {
    ("queued", "processing"),
    ("queued", "cancelled"),
    ("processing", "completed"),
    ("processing", "failed"),
    ("processing", "cancelled"),
    ("processing", "queued"),
    ("failed", "queued"),
    ("cancelled", "queued"),
}
LEASE_SECONDS = 3600
"""However slow the machine is, nobody falls silent but in a step of his own."""
HOWS = ["observed", "skipped", "transient", "out_of_reach", "quota", "refused", "unusable"]
"""What a provider may do with a batch."""
ACTS = [
    *["send_events"] * 4,
    *["claim"] * 6,
    *["finish"] * 5,
    *["cancel", "retry"] * 2,
    "end_the_session",
    "send_an_event_again",
    *["stop_between_answer_and_effects", "go_on_to_the_effects"] * 2,
    "die_between_answer_and_effects",
    "fall_silent",
    "reap",
    "come_back_as_a_new_worker",
    "stop_in_good_order",
    "time_passes",
    "retry_all_that_failed",
    "type_an_illegal_step",
]
"""One rule draws from these, what happens most most often: as rules of their own most would be switched off in most examples."""
EMPTY = """
    TRUNCATE observation_embeddings, context_injections, agent_events, server_sessions, turns,
             observation_generation_jobs, observation_generation_job_events, generation_lanes, generation_runs,
             generation_workers, provider_pauses, observations, observation_sources, observation_versions,
             observation_relationships, consolidation_suggestions, audit_log
    CASCADE
"""
IN_THE_TABLE = """
    SELECT j.id, j.status, j.attempts, j.max_attempts AS most, j.cancel_requested_at IS NOT NULL AS cancel_asked,
           coalesce(j.outcome, '') AS outcome,
           ARRAY(SELECT e.event_type FROM observation_generation_job_events e
                  WHERE e.generation_job_id = j.id ORDER BY e.id) AS steps,
           (SELECT count(*) FROM observation_sources s WHERE s.generation_job_id = j.id) AS observations
      FROM observation_generation_jobs j ORDER BY j.seq
"""


@dataclass(eq=False)
class Bought:
    """An answer that was paid for and is not applied yet."""

    jobs: int


@dataclass(eq=False)
class JobModel:
    """What must stand in the job's row, its log and its sources."""

    id: UUID
    lane: UUID
    is_summary: bool
    status: str = "queued"
    attempts: int = 0
    max_attempts: int = 3
    cancel_asked: bool = False
    outcome: str = ""
    answer: Bought | None = None
    steps: list[str] = field(default_factory=lambda: ["queued"])

    def go(self, status: str, outcome: str = "") -> None:
        """One step of the law, as the trigger makes it."""
        was = self.status
        assert (was, status) in LAW, f"the model would step from {was} to {status}"
        self.status, self.outcome = status, outcome
        self.steps.append("retry_scheduled" if (was, status) == ("processing", "queued") else status)
        if was in ENDED:
            self.max_attempts = max(self.max_attempts, self.attempts + 3)
            self.cancel_asked, self.answer = False, None

    def end(self, status: str, outcome: str = "") -> None:
        """By a claim that still holds it: whoever asked to cancel it wins."""
        if self.cancel_asked:
            self.go("cancelled")
        else:
            self.go(status, outcome)

    def row(self) -> tuple[object, ...]:
        observations = 1 if self.outcome == "observed" else 0
        return (self.id, self.status, self.attempts, self.max_attempts, self.cancel_asked, self.outcome, self.steps, observations)


@dataclass(eq=False)
class Held:
    """A claim in a worker's hand. `ours` until its lease is lost; `stuck` between its answer and its effects."""

    claim: Claim
    hand: Hand
    jobs: list[JobModel]
    ours: bool = True
    stuck: Batch | None = None


class Fickle(Scripted):
    """A provider that does what it is told next."""

    def __init__(self) -> None:
        super().__init__(self._answer)
        self.how = "observed"

    def _answer(self, prompt: Prompt) -> Completion:
        match self.how:
            case "skipped":
                return completion(all_skipped(prompt))
            case "unusable":
                return Completion(text="no answer", model="script-1")
            case "transient":
                raise ProviderError(FailureKind.TRANSIENT, "not now")
            case "out_of_reach":
                raise ProviderError(FailureKind.TRANSIENT, "not there", out_of_reach=True)
            case "quota":
                raise ProviderError(FailureKind.QUOTA_EXHAUSTED, "no more this hour", 3600)
            case "refused":
                raise ProviderError(FailureKind.REFUSED, "not this")
            case _:
                return completion(each_observed(prompt))


class World:
    """One database and one loop for all examples."""

    def __init__(self, url: str) -> None:
        self._runner = asyncio.Runner()
        self.db = Db(url, size=4)
        self.run(self.db.__aenter__())
        self.hub = NotificationListener(url)
        self.principal, self.project = self.run(self._furnish())

    async def _furnish(self) -> tuple[Principal, Project]:
        async with self.db.system() as conn:
            team = await access.insert_team(conn, new_id(), "blue")
        principal, _ = await mint(self.db, team.id, "alice", scopes=["*"])
        async with self.db.tenant(team.id) as conn:
            project, _ = await make_project(conn, principal, "github.com/acme/orders")
        return principal, project

    def run(self, act: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(act)

    def close(self) -> None:
        self.run(self.db.__aexit__())
        self._runner.close()


class JobsLife(RuleBasedStateMachine):
    """Every step is made on the tables and in the model."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        self.provider = Fickle()
        self.jobs: list[JobModel] = []
        self.lanes: dict[str, UUID] = {}
        self.held: list[Held] = []
        self.resting: set[UUID] = set()
        self.recorded: set[UUID] = set()
        self.paused = False
        self.away = Counter[int]()
        """How often in a row each worker has found the provider out of reach."""
        self.silent: set[int] = set()
        self.sent = 0

    def run(self, act: Coroutine[Any, Any, T]) -> T:
        return self.world.run(act)

    @initialize()
    def start(self) -> None:
        async def begin() -> tuple[Outbox, list[Hand]]:
            outbox = Outbox(self.world.db, JobNotifier(self.world.db, self.world.hub), self.world.principal, self.world.project)
            await outbox.rows(EMPTY)
            await outbox.rows("DELETE FROM procrastinate_workers")
            return outbox, [await outbox.hand(self.provider, lease_seconds=LEASE_SECONDS) for _ in range(2)]

        self.outbox, self.hands = self.run(begin())

    @rule(act=st.sampled_from(ACTS), data=st.data())
    def step(self, act: str, data: st.DataObject) -> None:
        cast("Callable[[st.DataObject], None]", getattr(self, act))(data)

    def teardown(self) -> None:
        """Whatever has happened: once nothing is in the way any more, all that waits comes to an end."""
        for held in self.held:
            self.silent.add(held.hand.worker_id)
        if self.silent:
            self.run(
                self.outbox.rows(
                    "UPDATE procrastinate_workers SET last_heartbeat = '-infinity' WHERE id = ANY(%s)", list(self.silent)
                )
            )
        self._reap()
        self._time_passes()
        self.provider.how = "observed"
        hand = self.run(self.outbox.hand(self.provider, lease_seconds=LEASE_SECONDS))
        self.run(hand.work())
        assert set(self.run(self.outbox.statuses())) <= ENDED
        self.nothing_is_lost()

    def _a_job(self, data: st.DataObject, *rather: list[JobModel]) -> JobModel | None:
        """One of those that make it interesting, or any."""
        some = data.draw(st.sampled_from([*rather, *rather, self.jobs])) or self.jobs
        return data.draw(st.sampled_from(some)) if some else None

    def _a_hand(self, data: st.DataObject) -> Hand:
        return self.hands[data.draw(st.integers(0, 1))]

    # ---- what comes in

    def send_events(self, data: st.DataObject) -> None:
        session, count = data.draw(st.sampled_from(SESSIONS)), data.draw(st.integers(1, 4))
        recorded = self.run(self.outbox.put(count, session=session, first=self.sent))
        self.sent += count
        for event in recorded:
            assert event.job is not None
            self.jobs.append(JobModel(id=event.job.id, lane=event.job.lane, is_summary=False))
            if session:
                self.lanes[session] = event.job.lane

    def end_the_session(self, data: st.DataObject) -> None:
        session = data.draw(st.sampled_from(["s1", "s2"]))
        lane = self.lanes.get(session)
        if lane is None:
            return
        db, principal = self.world.db, self.world.principal
        _, job, is_new = self.run(
            db.in_tenant(principal.team_id, lambda conn: sessions.end(conn, principal, lane, source_adapter="api"))
        )
        of_lane = [job for job in self.jobs if job.lane == lane]
        assert is_new == (not of_lane[-1].is_summary), "a summary is asked for exactly when something came after the last one"
        if is_new:
            self.jobs.append(JobModel(id=job.id, lane=lane, is_summary=True))

    def send_an_event_again(self, data: st.DataObject) -> None:
        session = data.draw(st.sampled_from(SESSIONS))
        if self.sent:
            before = self.run(self.outbox.value("SELECT count(*) FROM agent_events WHERE source_event_id = %s", f"{session}-0"))
            if before:
                self.run(self.outbox.put(1, session=session, first=0))

    # ---- workers

    def claim(self, data: st.DataObject) -> None:
        hand = self._a_hand(data)
        max_events = data.draw(st.integers(1, 3))
        may = self._claimable()
        expected = {lane: self._batch(lane, max_events) for lane in may}

        claims = self.run(hand.claim(slots=1000, max_events=max_events))

        if hand.worker_id in self.silent:
            assert claims == [], "a worker without a live heartbeat claims nothing"
            return
        got = {claim.lane: claim for claim in claims if claim.job_ids}
        assert set(got) == may, "a lane with waiting jobs that nobody holds is claimed"
        for claim in claims:
            if not claim.job_ids:
                self.run(self._give_back(claim))
        for lane in dict.fromkeys(job.lane for job in self.jobs if job.lane in got):  # in an order that each run repeats
            claim = got[lane]
            assert claim.job_ids == [job.id for job in expected[lane]], "the batch is the lane's next, in its order"
            for job in expected[lane]:
                job.go("processing")
                job.attempts += 1
            self.held.append(Held(claim, hand, expected[lane]))

    def _claimable(self) -> set[UUID]:
        taken = {held.claim.lane for held in self.held if held.ours}
        return {job.lane for job in self.jobs if job.status == "queued"} - taken - self.resting

    def _batch(self, lane: UUID, max_events: int) -> list[JobModel]:
        waiting = [job for job in self.jobs if job.lane == lane and job.status == "queued"]
        answer = waiting[0].answer
        if answer is not None:
            return [job for job in waiting[: max(max_events, answer.jobs)] if job.answer is answer]
        batch: list[JobModel] = []
        for job in waiting[:max_events]:
            if batch and job.is_summary:
                break
            if job.answer is None:
                batch.append(job)
            if job.is_summary:
                break
        return batch

    async def _give_back(self, claim: Claim) -> None:
        async with self.world.db.system_statement() as conn:
            await repository.release(conn, [claim])

    def finish(self, data: st.DataObject) -> None:
        live = [hand for hand in self.held if not hand.stuck]
        if not live:
            return
        held, how = data.draw(st.sampled_from(live)), data.draw(st.sampled_from(HOWS))
        self.provider.how = how
        asked_before = len(self.provider.prompts)

        with patch("cmserver.generation.batch.full_jitter", return_value=3600.0):
            self.run(held.hand.runner.run(held.claim))

        self.held.remove(held)
        call_count = len(self.provider.prompts) - asked_before
        if not held.ours:
            assert call_count == 0, "whoever lost his lease asks nobody"
            return
        bought = held.jobs[0].answer
        if bought is not None:
            assert call_count == 0, "an answer that was bought is applied, not bought again"
            self._ends(held.jobs, "completed", "observed")
        elif held.jobs[0].is_summary and held.claim.lane not in self.recorded:
            assert call_count == 0, "of a session that recorded nothing there is no summary"
            self._ends(held.jobs, "completed", "skipped")
        elif self.paused:
            assert call_count == 0, "a paused provider is left alone"
            self._sent_back(held)
        else:
            assert call_count == (_calls(len(held.jobs)) if how in {"unusable", "refused"} else 1)
            if how in {"observed", "skipped", "unusable"}:
                self.away[held.hand.worker_id] = 0
            self._apply(held, how)

    def _apply(self, held: Held, how: str) -> None:
        match how:
            case "observed" | "skipped" | "unusable" | "refused" if held.jobs[0].is_summary:
                self._ends(held.jobs, "completed", "observed")  # a minimal one at least
            case "observed" | "skipped":
                self._ends(held.jobs, "completed", how)
            case "quota":
                self.paused = True
                self._sent_back(held)
            case "out_of_reach":
                self.away[held.hand.worker_id] += 1
                self.paused = self.away[held.hand.worker_id] >= 3
                self._sent_back(held)
            case "transient" if held.jobs[0].is_summary and held.jobs[0].attempts >= held.jobs[0].max_attempts:
                self._ends(held.jobs, "completed", "observed")
            case "transient":
                if any(job.attempts < job.max_attempts for job in held.jobs):
                    self.resting.add(held.claim.lane)
                for job in held.jobs:
                    job.end("queued" if job.attempts < job.max_attempts else "failed")
            case _:
                self._ends(held.jobs, "failed")

    def _ends(self, jobs: list[JobModel], status: str, outcome: str = "") -> None:
        for job in jobs:
            job.end(status, outcome)
            if outcome == "observed" and not job.is_summary:
                self.recorded.add(job.lane)
            job.answer = None

    def _sent_back(self, held: Held) -> None:
        self.resting.add(held.claim.lane)
        for job in held.jobs:
            job.attempts -= 1
            job.end("queued")

    def stop_between_answer_and_effects(self, data: st.DataObject) -> None:
        live = [hand for hand in self.held if hand.ours and not hand.stuck]
        if self.paused or not live:
            return
        held = data.draw(st.sampled_from(live))
        self.provider.how = "observed"
        held.stuck = Batch(held.claim)
        runner = held.hand.runner
        loaded = self.run(runner._load([held.stuck]))  # pyright: ignore[reportPrivateUsage]
        self.run(runner._work(held.stuck, *loaded))  # pyright: ignore[reportPrivateUsage]
        if held.jobs[0].answer is None:
            self.away[held.hand.worker_id] = 0
        answer = held.jobs[0].answer or Bought(len(held.jobs))
        for job in held.jobs:
            job.answer = answer

    def go_on_to_the_effects(self, data: st.DataObject) -> None:
        stuck = [hand for hand in self.held if hand.stuck]
        if not stuck:
            return
        held = data.draw(st.sampled_from(stuck))
        self.held.remove(held)
        assert held.stuck is not None
        applying = held.hand.runner._apply([held.stuck])  # pyright: ignore[reportPrivateUsage]
        if held.ours:
            self.run(applying)
            self._ends(held.jobs, "completed", "observed")
        else:
            with pytest.raises(LeaseLostError):
                self.run(applying)

    def die_between_answer_and_effects(self, data: st.DataObject) -> None:
        self.stop_between_answer_and_effects(data)
        hand = next((held.hand for held in reversed(self.held) if held.ours and held.stuck), None)
        if hand is not None:
            self._silence(hand)
            self._reap()
            self.hands = [self._new_hand() if other is hand else other for other in self.hands]

    def fall_silent(self, data: st.DataObject) -> None:
        """Killed, stopped, or cut off: from here on only the heartbeat tells."""
        self._silence(self._a_hand(data))

    def _new_hand(self) -> Hand:
        return self.run(self.outbox.hand(self.provider, lease_seconds=LEASE_SECONDS))

    def _silence(self, hand: Hand) -> None:
        long_ago = "UPDATE procrastinate_workers SET last_heartbeat = '-infinity' WHERE id = %s"
        self.run(self.outbox.rows(long_ago, hand.worker_id))
        self.silent.add(hand.worker_id)

    def reap(self, _data: st.DataObject) -> None:
        self._reap()

    def _reap(self) -> None:
        lost = [held for held in self.held if held.ours and held.hand.worker_id in self.silent]

        recovered = self.run(self.world.db.in_system(lambda conn: leases.reap(conn, hard_limit_seconds=300))).jobs

        assert sorted(recovered) == sorted(job.id for held in lost for job in held.jobs)
        for held in lost:
            for job in held.jobs:
                job.end("queued" if job.attempts < job.max_attempts else "failed")
            held.ours = False

    def come_back_as_a_new_worker(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, 1))
        if self.hands[index].worker_id in self.silent:
            self.hands[index] = self._new_hand()

    def stop_in_good_order(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, 1))
        hand = self.hands[index]
        kept = [held for held in self.held if held.ours and held.hand is hand]
        self.run(self.world.db.in_system(lambda conn: leases.requeue_all(conn, hand.worker_id)))
        for held in kept:
            for job in held.jobs:
                job.attempts -= 1
                job.end("queued")
            held.ours = False
        self.silent.discard(hand.worker_id)
        self.hands[index] = self._new_hand()

    def time_passes(self, _data: st.DataObject) -> None:
        """Every back-off and every pause is over."""
        self._time_passes()

    def _time_passes(self) -> None:
        rested = """
            UPDATE generation_lanes SET held_until = NULL, held_reason = NULL, held_for = NULL, due_at = now()
             WHERE held_until IS NOT NULL AND worker_id IS NULL
        """
        self.run(self.outbox.rows(rested))
        self.run(self.outbox.rows("UPDATE provider_pauses SET until_at = now()"))
        self.resting.clear()
        self.paused = False

    # ---- the operator, in psql

    def cancel(self, data: st.DataObject) -> None:
        running = [job for job in self.jobs if job.status == "processing"]
        answered = [job for job in self.jobs if job.answer is not None]
        job = self._a_job(data, running, answered)
        if job is None:
            return
        result = self.run(self.outbox.value("SELECT cancel_job(%s)", job.id))
        if job.status == "queued":
            assert result == "cancelled"
            job.go("cancelled")
        elif job.status == "processing":
            assert result == "cancelling"
            job.cancel_asked = True
        else:
            assert result == f"nothing to do: the job is {job.status}"

    def retry(self, data: st.DataObject) -> None:
        job = self._a_job(data, [job for job in self.jobs if job.status in {"failed", "cancelled"}])
        if job is None:
            return
        result = self.run(self.outbox.value("SELECT retry_job(%s)", job.id))
        if job.status in {"failed", "cancelled"}:
            assert result == "queued"
            job.go("queued")
        else:
            assert result == f"nothing to do: the job is {job.status}"

    def retry_all_that_failed(self, _data: st.DataObject) -> None:
        failed = [job for job in self.jobs if job.status == "failed"]
        sent = self.run(self.outbox.value("SELECT retry_failed(%s, '-infinity')", self.world.principal.team_id))
        assert sent == len(failed)
        for job in failed:
            job.go("queued")

    def type_an_illegal_step(self, data: st.DataObject) -> None:
        if not self.jobs:
            return
        to = data.draw(st.sampled_from(["queued", "processing", *sorted(ENDED)]))
        job = data.draw(st.sampled_from(self.jobs))
        if job.status != to and (job.status, to) not in LAW:
            with pytest.raises(errors.CheckViolation, match="cannot go from"):
                self.run(self.outbox.rows("UPDATE observation_generation_jobs SET status = %s WHERE id = %s", to, job.id))

    # ---- what holds after every step

    @invariant()
    def the_tables_are_what_the_model_says(self) -> None:
        rows = self.run(self.outbox.rows(IN_THE_TABLE))
        assert [tuple(row.values()) for row in rows] == [job.row() for job in self.jobs]

    @invariant()
    def nothing_is_lost(self) -> None:
        teams = self.run(self.world.db.in_system(ops.CONSERVATION.all))
        assert [team.holds for team in teams] == [True]
        assert teams[0].events == sum(not job.is_summary for job in self.jobs)

    @invariant()
    def no_lane_is_held_twice_and_none_sleeps_on_waiting_jobs(self) -> None:
        lanes = [held.claim.lane for held in self.held if held.ours]
        assert len(lanes) == len(set(lanes))
        in_table = self.run(self.outbox.rows("SELECT lane FROM generation_lanes WHERE worker_id IS NOT NULL"))
        assert sorted(str(row["lane"]) for row in in_table) == sorted(map(str, lanes))
        assert self.run(self.outbox.value("SELECT wake_sleeping_lanes()")) == 0


def _calls(jobs: int) -> int:
    """How often a batch is asked for that is never answered in a usable way: it is halved down to its single jobs."""
    return 1 if jobs == 1 else 1 + _calls(jobs // 2) + _calls(jobs - jobs // 2)


@pytest.fixture
def world(database: str) -> Generator[World]:
    made = World(database)
    yield made
    made.close()


@pytest.mark.parametrize("examples", [4, pytest.param(150, marks=pytest.mark.slow)])
def test_no_step_is_illegal_and_nothing_is_ever_lost(world: World, examples: int):
    class JobsLifeHere(JobsLife):
        def __init__(self) -> None:
            super().__init__(world)

    run_state_machine_as_test(  # pyright: ignore[reportUnknownMemberType]
        JobsLifeHere,
        settings=settings(
            max_examples=examples,
            stateful_step_count=80,
            deadline=None,
            phases=[Phase.generate],  # to read a failure add Phase.shrink, which takes five minutes
            derandomize=True,
            database=None,
            print_blob=True,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
        ),
    )
