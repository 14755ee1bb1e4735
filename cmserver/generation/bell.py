"""The bell: wakes workers after a commit, and whoever waits for a job, in this process at once and in others by NOTIFY.

NOTIFY inside the ingest transaction takes a lock on the whole database until commit and cost 30 to 40 % at eight connections. So
it rings after the commit, at most once in ten milliseconds, and when the work is due. A lost ring costs one polling interval.
"""

from __future__ import annotations

import asyncio
import math
from uuid import UUID

from cmserver.base.db import Db
from cmserver.base.errors import Unavailable
from cmserver.base.ids import new_id
from cmserver.base.live import Hub
from cmserver.generation import repository

JOBS = "cmserver_jobs"
DONE = "cmserver_done"
CANCEL = "cmserver_cancel"
CHANNELS = [JOBS, DONE, CANCEL]

_TICK_SECONDS = 0.01
_LANES_A_MESSAGE = 100


class Bell:
    """One per process. Not to be used from several event loops."""

    def __init__(self, db: Db, hub: Hub) -> None:
        self._db = db
        self._hub = hub
        self._me = new_id().hex
        self._due: set[int] = set()
        self._struck_at = 0.0
        self._done: set[str] = set()
        self._sending: set[asyncio.Task[None]] = set()

    def ring(self, after_seconds: float = 0) -> None:
        """There is, or after so many seconds there will be, a lane to claim."""
        loop = asyncio.get_running_loop()
        if after_seconds <= 0:
            self._hub.tell(JOBS, "")
            if loop.time() - self._struck_at >= _TICK_SECONDS:
                self._struck_at = loop.time()
                self._send(JOBS, self._me)
                return
        tick = math.ceil((loop.time() + after_seconds) / _TICK_SECONDS)
        if tick not in self._due:
            self._due.add(tick)
            loop.call_at(tick * _TICK_SECONDS, self._strike, tick, after_seconds > 0)

    def done(self, lane: UUID) -> None:
        """A batch of the lane has ended. What is left in the lane is due: whoever is free looks at once, not at the next poll."""
        self._hub.tell(DONE, str(lane))
        self._hub.tell(JOBS, "")
        if not self._done:
            asyncio.get_running_loop().call_later(_TICK_SECONDS, self._tell_done)
        self._done.add(str(lane))

    def abort(self, job_id: UUID) -> None:
        """A running job was marked as cancelled: whoever runs it looks."""
        self._hub.tell(CANCEL, str(job_id))
        self._send(CANCEL, str(job_id))

    async def flush(self) -> None:
        """Return when all that has happened is told: a process that ends at once would take it along."""
        self._tell_done()
        await asyncio.gather(*self._sending)

    def is_mine(self, payload: str) -> bool:
        """Whether a NOTIFY on JOBS came from this process, which knows already."""
        return payload == self._me

    def _strike(self, tick: int, here_too: bool) -> None:
        self._due.discard(tick)
        self._struck_at = asyncio.get_running_loop().time()
        if here_too:
            self._hub.tell(JOBS, "")
        self._send(JOBS, self._me)

    def _tell_done(self) -> None:
        lanes, self._done = sorted(self._done), set()
        for start in range(0, len(lanes), _LANES_A_MESSAGE):
            self._send(DONE, " ".join(lanes[start : start + _LANES_A_MESSAGE]))

    def _send(self, channel: str, payload: str) -> None:
        task = asyncio.create_task(self._notify(channel, payload))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _notify(self, channel: str, payload: str) -> None:
        try:
            async with self._db.system_statement() as conn:
                await repository.notify(conn, channel, payload)
        except Unavailable:
            return  # whoever waits looks again by himself
