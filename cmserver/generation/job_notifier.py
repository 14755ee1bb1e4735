"""Notifies workers and waiting requests after a commit: in this process at once, in others by NOTIFY. Waits for jobs to end.

NOTIFY inside the ingest transaction takes a lock on the whole database until commit and cost 30 to 40 % at eight connections. So it
is sent after the commit, at most every ten milliseconds, and when the work is due. A lost notification costs one heartbeat.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from uuid import UUID

from msgspec import structs

from cmserver.base.db import Db
from cmserver.base.errors import Unavailable
from cmserver.base.ids import new_id
from cmserver.base.notifications import NotificationListener
from cmserver.base.waiting import wait_any
from cmserver.generation import repository
from cmserver.generation.intake import repository as intake
from cmserver.generation.model import Job

JOBS = "cmserver_jobs"
DONE = "cmserver_done"
CANCEL = "cmserver_cancel"
CHANNELS = [JOBS, DONE, CANCEL]

POLL_SECONDS = 2.0
TERMINAL = {"completed", "failed", "cancelled"}
_TICK_SECONDS = 0.01
_LATENESS = 0.05
"""Work that is due after a pause is announced together with all that is due within this share of the pause."""
_MAX_LANES_PER_MESSAGE = 100


class JobNotifier:
    """One per process, for use from one event loop."""

    def __init__(self, db: Db, listener: NotificationListener) -> None:
        self._db = db
        self._listener = listener
        self._sender_id = new_id().hex
        self._due_times: set[float] = set()
        self._notified_at = 0.0
        self._ended_lanes: set[str] = set()
        self._sending: set[asyncio.Task[None]] = set()

    def notify_due(self, after_seconds: float = 0) -> None:
        """Tell the workers that a lane can be claimed, now or after `seconds`."""
        loop = asyncio.get_running_loop()
        if after_seconds <= 0:
            self._listener.deliver(JOBS, "")
            if loop.time() - self._notified_at >= _TICK_SECONDS:
                self._notified_at = loop.time()
                self._send(JOBS, self._sender_id)
                return
        tick_seconds = max(_TICK_SECONDS, after_seconds * _LATENESS)
        due_time = math.ceil((loop.time() + after_seconds) / tick_seconds) * tick_seconds
        if due_time not in self._due_times:
            self._due_times.add(due_time)
            loop.call_at(due_time, self._notify_tick, due_time, after_seconds > 0)

    def notify_ended(self, *lanes: UUID) -> None:
        """Batches of the lanes have ended. Jobs left in a lane are due, so that free workers look before their next poll."""
        self._listener.deliver(DONE, " ".join(map(str, lanes)))
        self._listener.deliver(JOBS, "")
        if not self._ended_lanes:
            asyncio.get_running_loop().call_later(_TICK_SECONDS, self._send_ended)
        self._ended_lanes.update(map(str, lanes))

    def notify_cancelled(self, job_id: UUID) -> None:
        """A running job was marked as cancelled."""
        self._listener.deliver(CANCEL, str(job_id))
        self._send(CANCEL, str(job_id))

    async def flush(self) -> None:
        """Return when everything is sent; for a process that is about to end."""
        self._send_ended()
        await asyncio.gather(*self._sending)

    def is_own(self, payload: str) -> bool:
        """Whether a NOTIFY on JOBS came from this process."""
        return payload == self._sender_id

    def _notify_tick(self, due_time: float, in_process: bool) -> None:
        self._due_times.discard(due_time)
        self._notified_at = asyncio.get_running_loop().time()
        if in_process:
            self._listener.deliver(JOBS, "")
        self._send(JOBS, self._sender_id)

    def _send_ended(self) -> None:
        lanes, self._ended_lanes = sorted(self._ended_lanes), set()
        for start in range(0, len(lanes), _MAX_LANES_PER_MESSAGE):
            self._send(DONE, " ".join(lanes[start : start + _MAX_LANES_PER_MESSAGE]))

    def _send(self, channel: str, payload: str) -> None:
        task = asyncio.create_task(self._notify(channel, payload))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _notify(self, channel: str, payload: str) -> None:
        try:
            async with self._db.system_statement() as conn:
                await repository.notify(conn, channel, payload)
        except Unavailable:
            return  # each heartbeat of a worker looks, too


async def wait_for_jobs(
    db: Db, listener: NotificationListener, team_id: UUID, jobs: Sequence[Job], timeout_seconds: float
) -> dict[UUID, Job]:
    """The jobs when all have ended, the time is up, or the server stops; polls, too. An erased job counts as cancelled."""
    lanes = {str(job.lane) for job in jobs}
    changed = asyncio.Event()

    def on_ended(payload: str) -> None:
        # Empty after a reconnect: notifications may have been missed.
        if not payload or not lanes.isdisjoint(payload.split()):
            changed.set()

    unsubscribe = listener.subscribe(DONE, on_ended)
    current = {job.id: job for job in jobs}
    end = asyncio.get_running_loop().time() + timeout_seconds
    try:
        while True:
            changed.clear()
            pending_ids = [job_id for job_id, job in current.items() if job.status not in TERMINAL]
            async with db.tenant(team_id) as conn:
                stored = {job.id: job for job in await intake.jobs(conn, team_id, pending_ids)}
            current |= {
                job_id: stored.get(job_id) or structs.replace(current[job_id], status="cancelled") for job_id in pending_ids
            }
            seconds_left = end - asyncio.get_running_loop().time()
            if seconds_left <= 0 or listener.closing or all(job.status in TERMINAL for job in current.values()):
                return current
            await wait_any(changed, timeout_seconds=min(seconds_left, POLL_SECONDS))
    finally:
        unsubscribe()
