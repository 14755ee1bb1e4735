"""One open stream: who reads it, what he may and wants to hear, and what waits for him."""

from __future__ import annotations

import asyncio
import contextlib
from uuid import UUID

import structlog
from structlog.typing import FilteringBoundLogger

from cmserver.ops.stream.model import Name, Position, Told

log: FilteringBoundLogger = structlog.get_logger(__name__)

WAITING_MOST = 1000
"""A reader for whom more events wait is too slow: his stream ends, and he may resume. Nothing is kept for him without a bound."""


class Reader:
    """Made by the feed, which puts events in; the response takes them out."""

    def __init__(
        self,
        team_id: UUID,
        key_id: UUID | None,
        project_id: UUID | None,
        names: frozenset[Name],
        start: Position,
        since: Position | None,
    ) -> None:
        self.team_id = team_id
        self.key_id = key_id
        self.project_id = project_id
        self.names = names
        self.start = start
        """Where the feed stood when it took him in: from here on he hears what is live."""
        self.since = since
        """Where he stood when he was here last."""
        self.at = _later(start, since) if since else start
        """All up to here was told before, has been put in, or is not for him."""
        self.ended = False
        self._waiting: list[bytes] = []
        self._something = asyncio.Event()

    def wants(self, told: Told) -> bool:
        return told.name in self.names and self.project_id in {None, told.project_id}

    def put(self, told: Told) -> None:
        """What he does not want, or has heard from a process that was ahead of this one, is left out."""
        if not self.wants(told) or (self.since and _heard(self.since, told)):
            return
        if len(self._waiting) >= WAITING_MOST:
            log.info("stream.dropped", key=str(self.key_id), waiting=len(self._waiting))
            self.end()
            return
        self._waiting.append(told.text)
        self._something.set()
        self.passed(told.after)

    def passed(self, position: Position) -> None:
        """There is nothing for him up to this position but what was put in."""
        self.at = _later(self.at, position)

    def end(self) -> None:
        """No more; what waits is let go."""
        self.ended = True
        self._waiting.clear()
        self._something.set()

    async def take(self, seconds: float) -> list[bytes]:
        """What waits for him, as soon as there is something; nothing after so many seconds, or when it has ended."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._something.wait()
        taken, self._waiting = self._waiting, []
        self._something.clear()
        return taken


def _later(one: Position, other: Position) -> Position:
    """In each log by itself."""
    audit, part = max((one.audit, one.part), (other.audit, other.part))
    return Position(audit=audit, jobs=max(one.jobs, other.jobs), part=part)


def _heard(since: Position, told: Told) -> bool:
    if told.is_step:
        return told.after.jobs <= since.jobs
    return (told.after.audit, told.after.part) <= (since.audit, since.part)
