"""Job manager for procrastinate's worker that claims lanes of our outbox instead of rows of procrastinate's job table.

A procrastinate Job stands for one batch, whose claim number is its id, or for a set of batches by rules. Its task writes the fenced
ends itself, so finishing a Job here only frees its slot.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime

import msgspec
from procrastinate import jobs, manager
from procrastinate.connector import BaseConnector

from cmserver.base.db import Db
from cmserver.base.errors import Unavailable
from cmserver.base.logs import get_logger
from cmserver.base.notifications import NotificationListener
from cmserver.generation import repository
from cmserver.generation.job_notifier import CANCEL, JOBS, JobNotifier
from cmserver.generation.leases import repository as leases
from cmserver.generation.model import Claim

log = get_logger(__name__)

QUEUE = "generation"
TASK = "generation.run_batch"
_SOON_SECONDS = 1.0
"""When it looks again after an outage, and where what is due is locked by another transaction."""


class WorkerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of a worker's slots and batches, the length of its lease, and how often it is renewed."""

    slots: int
    set_lanes: int | None
    """How many lanes are claimed at once at most; None where batches are not run as sets."""
    max_events: int
    max_chars: int
    """Of a batch. A set has less than twice as many."""
    lease_seconds: float
    heartbeat_seconds: float


class OutboxManager(manager.JobManager):
    """Holds the claims of one run of a worker; each run needs a new manager."""

    def __init__(
        self,
        connector: BaseConnector,
        db: Db,
        listener: NotificationListener,
        notifier: JobNotifier,
        *,
        label: str,
        limits: WorkerLimits,
    ) -> None:
        super().__init__(connector)
        self._db = db
        self._listener = listener
        self._notifier = notifier
        self._label = label
        self._limits = limits
        self._claims: dict[int, list[Claim]] = {}
        """By the id of the Job."""
        self._lanes = limits.slots
        """How many lanes it claims at once for sets: more with each that has ended, so that what kills the process, and is claimed
        again after the restart, has few others beside it.
        """
        self._claiming = asyncio.Lock()
        self._ready: deque[jobs.Job] = deque()
        self._notification_count = 0
        self._worker_id: int | None = None
        self._wake: Callable[[], None] = lambda: None
        """Makes the worker claim; does nothing before it listens."""
        self._timer: asyncio.TimerHandle | None = None
        self.stop_worker: Callable[[], None] = lambda: None
        """Set by the supervisor; called when the lease has expired."""

    def look_up_claims(self, job_id: int) -> list[Claim]:
        """The claims of a procrastinate Job."""
        return self._claims[job_id]

    async def register_worker(self) -> int:
        self._worker_id = worker_id = await super().register_worker()
        async with self._db.system_statement(answer_seconds=self._limits.lease_seconds) as conn:
            await leases.register(conn, worker_id, self._label, self._limits.lease_seconds)
        return worker_id

    async def fetch_job(self, queues: Iterable[str] | None, worker_id: int) -> jobs.Job | None:
        """Return a claimed batch or set, or None; claims for all free slots when none is ready."""
        while not self._ready:
            notification_count = self._notification_count
            try:
                await self._claim(worker_id)
            except Unavailable:
                if not self._ready:
                    # If the outage outlasts the lease, the heartbeat ends this worker.
                    self._wake_in(_SOON_SECONDS)
                    await asyncio.sleep(0.2)
                    return None
            # The worker clears its wake event after this call, which would lose a notification that came during the claim.
            if notification_count == self._notification_count:
                break
        return self._ready.popleft() if self._ready else None

    async def _claim(self, worker_id: int) -> None:
        """Claim what the free slots can begin; the Jobs wait in `_ready` until procrastinate fetches them."""
        slots = self._limits.slots - len(self._claims)
        if slots <= 0:
            return
        async with self._claiming, self._db.system_statement(answer_seconds=self._limits.lease_seconds) as conn:
            claims = await repository.claim(
                conn,
                worker_id=worker_id,
                label=f"{self._label}:{worker_id}",
                lease_seconds=self._limits.lease_seconds,
                slots=slots,
                set_lanes=None if self._limits.set_lanes is None else self._lanes,
                max_events=self._limits.max_events,
                max_chars=self._limits.max_chars,
            )
            for members in _make_sets([claim for claim in claims if claim.job_ids]):
                # No claim has the id of a set: that all jobs of one of its batches were cancelled does not abort the others.
                job_id = members[0].claim if len(members) == 1 else -members[0].claim
                self._claims[job_id] = members
                self._ready.append(_make_job(job_id, worker_id))
            if empty := [claim for claim in claims if not claim.job_ids]:
                # A second statement with a fresh snapshot: within the claim the lane would sleep on an event it cannot see.
                await repository.release(conn, empty)
            if not any(claim.job_ids for claim in claims):
                due_seconds = await leases.next_due_seconds(conn, self._limits.heartbeat_seconds)
                if due_seconds is not None:
                    # When nothing could be claimed, what is due already is locked by another transaction.
                    self._wake_in(due_seconds if due_seconds > 0 or claims else _SOON_SECONDS)

    def _wake_in(self, seconds: float) -> None:
        """Claim then, or earlier if that was agreed before."""
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            if self._timer.when() <= loop.time() + seconds:
                return
            self._timer.cancel()
        self._timer = loop.call_later(seconds, self._wake_now)

    def _wake_now(self) -> None:
        self._timer = None
        self._wake()

    async def finish_job(self, job: jobs.Job, status: jobs.Status, delete_job: bool) -> None:
        self._claims.pop(job.id or 0, None)
        self._lanes = min(2 * self._lanes, self._limits.set_lanes or self._lanes)

    async def retry_job(
        self,
        job: jobs.Job,
        retry_at: datetime | None = None,
        priority: int | None = None,
        queue: str | None = None,
        lock: str | None = None,
    ) -> None:
        self._claims.pop(job.id or 0, None)

    async def listen_for_jobs(self, *, on_notification: manager.NotificationCallback, queues: Iterable[str] | None = None) -> None:
        """Pass on notifications of the process's listener until cancelled. The listener reconnects by itself."""
        pending: set[asyncio.Future[object]] = set()

        def start(action: Awaitable[object]) -> None:
            task = asyncio.ensure_future(action)
            pending.add(task)
            task.add_done_callback(pending.discard)

        def wake() -> None:
            self._notification_count += 1
            start(on_notification(channel=JOBS, notification={"type": "job_inserted", "job_id": 0}))

        def on_jobs(payload: str) -> None:
            if not self._notifier.is_own(payload):
                wake()

        async def abort() -> None:
            for claim in await self.list_jobs_to_abort_async():
                await on_notification(channel=CANCEL, notification={"type": "abort_job_requested", "job_id": claim})

        self._wake = wake
        unsubscribers = [self._listener.subscribe(JOBS, on_jobs), self._listener.subscribe(CANCEL, lambda _: start(abort()))]
        try:
            await asyncio.Event().wait()
        finally:
            for unsubscribe in unsubscribers:
                unsubscribe()

    async def list_jobs_to_abort_async(self, queue: str | None = None) -> Iterable[int]:
        """Claims of this worker whose jobs were all cancelled."""
        if self._worker_id is None:
            return []
        try:
            async with self._db.system_statement(answer_seconds=self._limits.lease_seconds) as conn:
                return await leases.claims_to_abort(conn, self._worker_id)
        except Unavailable:
            return []

    async def update_heartbeat(self, worker_id: int) -> None:
        """Renew the lease, requeue unknown claims, and find due lanes that no notification told of.

        Stops this worker, whose successor has a new id, if the lease is over or cannot be renewed by a bug.
        """
        try:
            async with self._db.system_statement(answer_seconds=self._limits.lease_seconds) as conn:
                found = await leases.heartbeat(
                    conn,
                    worker_id,
                    lease_seconds=self._limits.lease_seconds,
                    within_seconds=self._limits.heartbeat_seconds,
                    known=self._known_claims(),
                )
            if found.is_alive and found.has_lost_claims:
                await self._requeue_lost_claims(worker_id)
        except Unavailable:
            return
        except Exception as error:
            log.exception("heartbeat.failed", worker=worker_id, exc_info=error)
            self.stop_worker()
            return
        if not found.is_alive:
            log.warning("worker.lost", worker=worker_id)
            self.stop_worker()
        elif found.due_seconds is not None:
            self._wake_in(found.due_seconds)

    async def _requeue_lost_claims(self, worker_id: int) -> None:
        if self._claiming.locked():
            # An answer is on its way; a heartbeat does not wait for it.
            return
        async with self._claiming:
            lanes = await self._db.in_system(
                lambda conn: leases.requeue_lost(conn, worker_id, self._known_claims()), answer_seconds=self._limits.lease_seconds
            )
        if lanes:
            log.warning("claims.lost", worker=worker_id, lanes=lanes)
            self._notifier.notify_due()

    def _known_claims(self) -> list[int]:
        return [claim.claim for members in self._claims.values() for claim in members]

    async def unregister_worker(self, worker_id: int) -> None:
        """Requeue all that this worker still holds; heartbeats have ended by now."""
        self._ready.clear()
        self._claims.clear()
        if self._timer is not None:
            self._timer.cancel()
        self._wake = lambda: None
        try:
            await self._db.in_system(lambda conn: leases.requeue_all(conn, worker_id), answer_seconds=self._limits.lease_seconds)
            await super().unregister_worker(worker_id)
        except Exception as error:  # noqa: BLE001 - the reaper does it when the lease has expired
            log.warning("worker.not_unregistered", worker=worker_id, error=type(error).__name__)
        self._notifier.notify_due()


def _make_sets(claims: Iterable[Claim]) -> list[list[Claim]]:
    """The claims by set, in their order. One that turned out not to be plain is by itself: its first job was locked."""
    sets: list[list[Claim]] = []
    for claim in claims:
        if sets and sets[-1][0].set_number == claim.set_number and sets[-1][0].is_plain and claim.is_plain:
            sets[-1].append(claim)
        else:
            sets.append([claim])
    return sets


def _make_job(job_id: int, worker_id: int) -> jobs.Job:
    """What procrastinate runs. Its arguments are written into its log records, so they name no lanes."""
    return jobs.Job(
        id=job_id,
        status="doing",
        queue=QUEUE,
        lock=None,
        queueing_lock=None,
        task_name=TASK,
        task_kwargs={"job_id": job_id},
        worker_id=worker_id,
    )


_CONTRACT = {
    "fetch_job": ["self", "queues", "worker_id"],
    "finish_job": ["self", "job", "status", "delete_job"],
    "retry_job": ["self", "job", "retry_at", "priority", "queue", "lock"],
    "listen_for_jobs": ["self", "on_notification", "queues"],
    "list_jobs_to_abort_async": ["self", "queue"],
    "register_worker": ["self"],
    "unregister_worker": ["self", "worker_id"],
    "update_heartbeat": ["self", "worker_id"],
}


def check_contract() -> None:
    """Raise TypeError if the installed procrastinate calls its manager with other parameters."""
    for name, expected in _CONTRACT.items():
        actual = list(inspect.signature(getattr(manager.JobManager, name)).parameters)
        if actual != expected:
            raise TypeError(f"procrastinate's JobManager.{name} takes {actual}, this program knows {expected}; pin procrastinate.")
