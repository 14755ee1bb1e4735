"""Runs a replay: session by session through the batches' own program in a shadow, and keeps what differs.

What it has found of a group of sessions is committed with how far it has come: it may be stopped, or die, at any moment, and goes
on from there. It belongs to the worker whose session has its lock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import groupby
from uuid import UUID

import msgspec
import structlog
from psycopg import errors

from cmserver import __version__
from cmserver.base.db import Db
from cmserver.base.errors import Invalid, Unavailable
from cmserver.base.logs import get_logger
from cmserver.base.settings import Settings
from cmserver.generation.batch import Batch, Effect
from cmserver.generation.model import Claim
from cmserver.generation.run_batch import BatchRunner
from cmserver.models.calls.recorded_call import RecordedCaller
from cmserver.models.providers import registry
from cmserver.models.providers.model import Completion, FailureKind, Prompt, Provider, ProviderError, Rules
from cmserver.replays import repository
from cmserver.replays.differences import FoundDifferences, find_differences
from cmserver.replays.model import MODEL_CHARS, MODEL_EVENTS, RULES, ErasedRows, Replay, ReplayedBatch, SessionToReplay
from cmserver.replays.shadow.session import ShadowDb, open_shadow

log = get_logger(__name__)

_GROUP = 32
"""Sessions whose batches by rules are worded together, as a worker words sets of lanes."""
_SET_EVENTS, _SET_CHARS = 500, 8_000_000
_TRIES = 3
_SCAN_SECONDS = 600.0
_NO_BUDGET = "A budget is spent: `cmserver budgets list` says which. Resume it when there is room again."


_OTHER_SCHEMA = "The database's schema has changed under it, as an upgrade does. Resume it when the server has started anew."


class _Stopped(Exception):
    """It cannot go on for now; says why."""


async def run_replays(db: Db, settings: Settings) -> bool:
    """Run the oldest replay that waits and that no other worker runs, until it ends or is stopped; whether there was one."""
    async with db.system_statement() as conn:
        waiting = await repository.running(conn)
    for replay in waiting:
        async with db.own_session() as holder:
            if await repository.TRY_LOCK.one(holder, replay_id=replay.id):
                with structlog.contextvars.bound_contextvars(replay=str(replay.id)):
                    await _run(db, settings, replay.id)
                return True
    return False


async def _run(db: Db, settings: Settings, replay_id: UUID) -> None:
    async with db.system_statement() as conn:
        replay = next((it for it in await repository.running(conn) if it.id == replay_id), None)
    if replay is None:  # another worker has ended it meanwhile
        return
    if replay.program != __version__:
        reason = f"It was begun by cmserver {replay.program}, and this is {__version__}. Remove it and begin another one."
        await _set_state(db, replay, "stopped", reason)
        return
    try:
        provider = None if replay.provider == RULES else await asyncio.to_thread(load_provider, settings, replay.provider)
        async with db.system(answer_seconds=_SCAN_SECONDS) as conn:
            erased = await repository.erased(conn, replay.team_id)
        async with open_shadow(db, replay.team_id) as shadow:
            await _Run(db, settings, replay, shadow, provider, erased).run()
    except (Invalid, _Stopped) as stopped:
        await _set_state(db, replay, "stopped", str(stopped))
        log.warning("replay.stopped", reason=str(stopped))
    except Unavailable:
        raise  # it goes on when the database is there again
    except errors.ProgrammingError:
        await _set_state(db, replay, "stopped", _OTHER_SCHEMA)
        log.exception("replay.failed")
    except Exception:
        await _set_state(db, replay, "stopped", "An error inside cmserver, see its log.")
        log.exception("replay.failed")


async def _set_state(db: Db, replay: Replay, state: str, reason: str | None = None) -> None:
    async with db.system() as conn:
        await repository.set_state(conn, replay.team_id, replay.id, state, ["running"], reason)


def load_provider(settings: Settings, name: str) -> Provider:
    """The client of a provider of the server. Invalid for one that cannot be called."""
    return registry.load(registry.settings_of(settings, name))


class _Run:
    """One replay, in one shadow."""

    def __init__(
        self,
        db: Db,
        settings: Settings,
        replay: Replay,
        shadow: ShadowDb,
        provider: Provider | None,
        erased: Sequence[ErasedRows],
    ) -> None:
        self._db = db
        self._replay = replay
        self._shadow = shadow
        self._erased = erased
        self._asker = _Asker(RecordedCaller(db, settings), replay.team_id, provider) if provider else None
        self._runner = BatchRunner(shadow, [self._asker or Rules()], _Nobody(), settings, _NoSteward())
        self._claim = 0

    async def run(self) -> None:
        """All sessions that are left."""
        replay = self._replay
        done_to, done_to_id = replay.done_to, replay.done_to_id
        limit = 1 if self._asker else _GROUP
        while True:
            async with self._db.system() as conn:
                sessions = await repository.next_sessions(
                    conn, replay.team_id, replay.project_id, replay.since, replay.created_at, done_to, done_to_id, limit
                )
                if not sessions:
                    break
                batches = await repository.batches(conn, replay.team_id, [it.id for it in sessions], replay.created_at)
            found = FoundDifferences()
            for group in self._group(sessions):
                ids = {it.id for it in group}
                found.add(await self._replay_sessions(group, [batch for batch in batches if batch.lane in ids]))
            events = sum(len(batch.job_ids) for batch in batches if batch.is_plain)
            if not await self._keep(sessions, found, events, done_to, done_to_id):
                return
            done_to, done_to_id = sessions[-1].started_at, sessions[-1].id
        await _set_state(self._db, replay, "done")
        log.info("replay.done")

    def _group(self, sessions: Sequence[SessionToReplay]) -> Iterator[list[SessionToReplay]]:
        """Those that name what others have left open each alone, since it matters to them when that was; the others together."""
        if together := [it for it in sessions if not it.names_others]:
            yield together
        yield from ([it] for it in sessions if it.names_others)

    async def _keep(
        self,
        sessions: Sequence[SessionToReplay],
        found: FoundDifferences,
        events: int,
        from_: datetime | None,
        from_id: UUID | None,
    ) -> bool:
        """Store what was found of the sessions behind that one; whether it goes on, and was not stopped meanwhile.

        Nothing is stored when it was removed, or when another worker has done them: the session of the database that has the lock
        may end while this one works on.
        """
        async with self._db.system() as conn:
            last = sessions[-1]
            state = await repository.note_progress(
                conn,
                self._replay.team_id,
                self._replay.id,
                sessions=len(sessions),
                events=events,
                kept=found.kept,
                by_people=found.by_people,
                from_=from_,
                from_id=from_id,
                done_to=last.started_at,
                done_to_id=last.id,
            )
            if state is not None:
                await repository.insert_lines(conn, self._replay.team_id, self._replay.id, found.lines)
            return state == "running"

    async def _replay_sessions(self, sessions: Sequence[SessionToReplay], batches: Sequence[ReplayedBatch]) -> FoundDifferences:
        team_id, ids = self._replay.team_id, [it.id for it in sessions]
        await self._shadow.load(team_id, ids, self._replay.created_at)
        queues = [list(self._as_asked(list(of_lane))) for _, of_lane in groupby(batches, lambda batch: batch.lane)]
        while queues:
            for batch_set in _make_sets([queue.pop(0) for queue in queues]):
                await self._run_set(batch_set, is_alone=self._asker is not None or sessions[0].names_others)
            queues = [queue for queue in queues if queue]
        compared = await self._shadow.compare(team_id, ids, [*{it.project_id for it in sessions}])
        erased = [*compared.without_rows, *self._erased]
        return await asyncio.to_thread(find_differences, compared.stored, compared.made, erased, compared.turns)

    def _as_asked(self, batches: Sequence[ReplayedBatch]) -> Sequence[ReplayedBatch]:
        """The batches of a session, as they were worded; for a model those of events as large as it is asked."""
        if self._asker is None:
            return batches
        return [part for is_plain, run in groupby(batches, lambda it: it.is_plain) for part in _resize(list(run), is_plain)]

    async def _run_set(self, batches: Sequence[ReplayedBatch], *, is_alone: bool) -> None:
        await self._shadow.hold(self._replay.team_id, batches, is_alone=is_alone)
        if self._asker is not None:
            self._asker.project_id = batches[0].project_id
        left = {job_id for batch in batches for job_id in batch.job_ids}
        for _ in range(_TRIES if self._asker else len(left)):
            self._claim += 1
            await self._shadow.claim(batches, list(left), self._claim)
            await self._runner.run(*(self._as_claim(batch, left) for batch in batches if left.intersection(batch.job_ids)))
            if self._asker is not None and self._asker.has_no_budget:
                raise _Stopped(_NO_BUDGET)
            before, left = left, await self._shadow.left(list(left))
            if not left or (left == before and self._asker is None):
                break
        if left and self._asker is not None:
            raise _Stopped(
                f"The provider {self._replay.provider} does not answer: {self._asker.failure or 'its answers are of no use'}"
            )
        await self._shadow.end(batches)

    def _as_claim(self, batch: ReplayedBatch, left: set[UUID]) -> Claim:
        job_ids = [job_id for job_id in batch.job_ids if job_id in left]
        return Claim(
            lane=batch.lane,
            team_id=self._replay.team_id,
            project_id=batch.project_id,
            claim=self._claim,
            job_ids=job_ids,
            is_plain=batch.is_plain,
            is_replay=True,
        )


def _make_sets(batches: Sequence[ReplayedBatch]) -> Iterator[list[ReplayedBatch]]:
    """Batches of events together, as far as a set goes, in the order of the lanes; each other one alone."""
    made: list[ReplayedBatch] = []
    events = chars = 0
    for batch in sorted(batches, key=lambda batch: (batch.project_id, batch.lane)):
        if not batch.is_plain:
            yield [batch]
            continue
        if made and (events + len(batch.job_ids) > _SET_EVENTS or chars + batch.chars > _SET_CHARS):
            yield made
            made, events, chars = [], 0, 0
        made.append(batch)
        events, chars = events + len(batch.job_ids), chars + batch.chars
    if made:
        yield made


def _resize(batches: Sequence[ReplayedBatch], is_plain: bool) -> Iterator[ReplayedBatch]:
    """The batches of a session that follow each other, as few as a model can be asked; what is no batch of events as it is."""
    if not is_plain:
        yield from batches
        return
    jobs = [(job_id, batch, batch.chars / len(batch.job_ids)) for batch in batches for job_id in batch.job_ids]
    part: list[tuple[UUID, ReplayedBatch, float]] = []
    for place, job in enumerate(jobs):
        part.append(job)
        is_last = place + 1 == len(jobs)
        if is_last or len(part) == MODEL_EVENTS or sum(it[2] for it in part) + jobs[place + 1][2] > MODEL_CHARS:
            chars, job_ids = round(sum(it[2] for it in part)), [it[0] for it in part]
            yield msgspec.structs.replace(part[-1][1], job_ids=job_ids, chars=chars)
            part = []


class _Asker:
    """A provider whose calls are recorded and paid for where all are, within the budgets: not in the shadow."""

    def __init__(self, caller: RecordedCaller, team_id: UUID, provider: Provider) -> None:
        self.name = provider.name
        self.model = provider.model
        self.project_id = team_id
        self.has_no_budget = False
        self.failure = ""
        self._caller = caller
        self._team_id = team_id
        self._provider = provider

    async def complete(self, prompt: Prompt) -> Completion:
        """The answer; ProviderError also when a budget is spent, and nothing was sent."""
        try:
            completion = await self._caller.call(self._team_id, self.project_id, self._provider, prompt)
        except ProviderError as error:
            self.failure = str(error)
            raise
        if completion is None:
            self.has_no_budget = True
            raise ProviderError(FailureKind.TRANSIENT, _NO_BUDGET, out_of_reach=True)
        return completion


class _Nobody:
    """Nobody waits for what a shadow does."""

    def notify_ended(self, *lanes: UUID) -> None:
        pass


class _NoSteward:
    """A shadow has no jobs of the steward."""

    async def work(self, batch: Batch) -> Effect:
        raise NotImplementedError

    def fail(self, batch: Batch, error: Exception) -> Effect:  # noqa: ARG002 - as the steward has it
        raise error
