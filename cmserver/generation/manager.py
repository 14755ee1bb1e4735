"""procrastinate's worker over our outbox: this job manager claims lanes where the stock one fetches rows of its own table.

A procrastinate Job stands for one batch; its id is the claim number. The batch's task writes the fenced end itself, so finishing a
Job here only gives its slot back.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

import msgspec
import structlog
from procrastinate import jobs, manager
from procrastinate.connector import BaseConnector
from structlog.typing import FilteringBoundLogger

from cmserver.base.db import Db
from cmserver.base.errors import Unavailable
from cmserver.base.live import Hub
from cmserver.generation import repository
from cmserver.generation.bell import CANCEL, JOBS, Bell
from cmserver.generation.leases import repository as leases
from cmserver.generation.model import Claim

log: FilteringBoundLogger = structlog.get_logger(__name__)

QUEUE = "generation"
TASK = "generation.run_batch"


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What one worker takes, and how its lease is kept."""

    slots: int
    max_events: int
    max_chars: int
    lease_seconds: float


class OutboxManager(manager.JobManager):
    """A fresh one for each run of a worker: it holds what that run has claimed."""

    def __init__(self, connector: BaseConnector, db: Db, hub: Hub, bell: Bell, *, label: str, limits: Limits) -> None:
        super().__init__(connector)
        self._db = db
        self._hub = hub
        self._bell = bell
        self._label = label
        self._limits = limits
        self._claims: dict[int, Claim] = {}
        self._ready: deque[jobs.Job] = deque()
        self._rings = 0
        self._worker_id: int | None = None
        self.stop_worker: Callable[[], None] = lambda: None
        """Set by the supervisor; called when the lease is over."""

    def claimed(self, claim: int) -> Claim:
        """The batch behind a Job."""
        return self._claims[claim]

    async def register_worker(self) -> int:
        self._worker_id = worker_id = await super().register_worker()
        async with self._db.system_statement() as conn:
            await leases.sign_on(conn, worker_id, self._label, self._limits.lease_seconds)
        return worker_id

    async def fetch_job(self, queues: Iterable[str] | None, worker_id: int) -> jobs.Job | None:
        """One claimed batch; claims for all free slots when none is at hand."""
        while not self._ready:
            rings = self._rings
            try:
                await self._claim(worker_id)
            except Unavailable:
                if not self._ready:
                    # The database is away for less than a lease, or the heartbeat ends this worker.
                    await asyncio.sleep(0.2)
                    return None
            # The worker clears its wake event after this call: a ring during the claim would be lost, so look again.
            if rings == self._rings:
                break
        return self._ready.popleft() if self._ready else None

    async def _claim(self, worker_id: int) -> None:
        slots = self._limits.slots - len(self._claims)
        if slots <= 0:
            return
        async with self._db.system_statement() as conn:
            claims = await repository.claim(
                conn,
                worker_id=worker_id,
                label=f"{self._label}:{worker_id}",
                lease_seconds=self._limits.lease_seconds,
                slots=slots,
                max_events=self._limits.max_events,
                max_chars=self._limits.max_chars,
            )
            for claim in claims:
                if claim.job_ids:
                    self._claims[claim.claim] = claim
                    self._ready.append(_as_job(claim, worker_id))
            for claim in claims:
                if not claim.job_ids:
                    # A second statement with a fresh snapshot: within the claim the lane would sleep on an event it cannot see.
                    await repository.release(conn, claim.lane, claim.claim)

    async def finish_job(self, job: jobs.Job, status: jobs.Status, delete_job: bool) -> None:
        self._claims.pop(job.id or 0, None)

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
        """Hear the process's hub for ever. The hub reconnects by itself, so this never ends of its own accord."""
        pending: set[asyncio.Task[None]] = set()

        def start(act: Any) -> None:
            task = asyncio.create_task(act)
            pending.add(task)
            task.add_done_callback(pending.discard)

        def rung(payload: str) -> None:
            if not self._bell.is_mine(payload):
                self._rings += 1
                start(on_notification(channel=JOBS, notification={"type": "job_inserted", "job_id": 0}))

        async def abort() -> None:
            for claim in await self.list_jobs_to_abort_async():
                await on_notification(channel=CANCEL, notification={"type": "abort_job_requested", "job_id": claim})

        stop_hearing = [self._hub.on(JOBS, rung), self._hub.on(CANCEL, lambda _: start(abort()))]
        try:
            await asyncio.Event().wait()
        finally:
            for stop in stop_hearing:
                stop()

    async def list_jobs_to_abort_async(self, queue: str | None = None) -> Iterable[int]:
        """The batches of this worker of which every job was cancelled."""
        if self._worker_id is None:
            return []
        try:
            async with self._db.system_statement() as conn:
                return await leases.claims_to_abort(conn, self._worker_id)
        except Unavailable:
            return []

    async def update_heartbeat(self, worker_id: int) -> None:
        """Renew the lease. When it is over (paused, or cut off for too long), this worker ends; the next has a new id."""
        try:
            async with self._db.system_statement() as conn:
                alive = await leases.heartbeat(conn, worker_id, self._limits.lease_seconds)
        except Unavailable:
            return
        if not alive:
            log.warning("worker.lost", worker=worker_id)
            self.stop_worker()

    async def unregister_worker(self, worker_id: int) -> None:
        """Put back all that this worker still holds: heartbeats have ended before the drain."""
        self._ready.clear()
        self._claims.clear()
        try:
            await self._db.in_system(lambda conn: leases.put_back(conn, worker_id))
            await super().unregister_worker(worker_id)
        except Exception as error:  # noqa: BLE001 - the reaper does it, when the lease is over
            log.warning("worker.not_unregistered", worker=worker_id, error=type(error).__name__)
        self._bell.ring()


def _as_job(claim: Claim, worker_id: int) -> jobs.Job:
    return jobs.Job(
        id=claim.claim,
        status="doing",
        queue=QUEUE,
        lock=None,
        queueing_lock=None,
        task_name=TASK,
        task_kwargs={"lane": str(claim.lane), "claim": claim.claim, "job_ids": [str(job_id) for job_id in claim.job_ids]},
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
    """TypeError when the installed procrastinate calls its manager in another way than this one answers."""
    for name, expected in _CONTRACT.items():
        actual = list(inspect.signature(getattr(manager.JobManager, name)).parameters)
        if actual != expected:
            raise TypeError(f"procrastinate's JobManager.{name} takes {actual}, this program knows {expected}; pin procrastinate.")
