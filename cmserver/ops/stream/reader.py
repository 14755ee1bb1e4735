"""One open stream: its team, key and filter, its position, and the events that wait to be sent."""

from __future__ import annotations

import asyncio
from uuid import UUID

from cmserver.base.logs import get_logger
from cmserver.base.waiting import wait_any
from cmserver.ops.stream.model import Name, Position, StreamEvent

log = get_logger(__name__)

MAX_WAITING = 1000
"""Events that may wait for one reader; with more its stream ends, and the client may resume."""


class Reader:
    """A bounded queue of events: the feed puts them in, the response takes them out."""

    def __init__(
        self,
        team_id: UUID,
        caller_id: UUID | None,
        key_id: UUID | None,
        person_id: UUID | None,
        project_id: UUID | None,
        names: frozenset[Name],
        start: Position,
        since: Position | None,
    ) -> None:
        self.team_id = team_id
        self.caller_id = caller_id
        """Whose streams are counted together (Principal.usage_id)."""
        self.key_id = key_id
        self.person_id = person_id
        self.project_id = project_id
        self.names = names
        self.start = start
        """The feed's position when the reader joined; events after it come live."""
        self.since = since
        """The position that a resuming client has reached."""
        self.at = _max_position(start, since) if since else start
        """Every event up to here was sent, waits, or is filtered out."""
        self.ended = False
        self._waiting: list[bytes] = []
        self._wakeup = asyncio.Event()

    def wants(self, event: StreamEvent) -> bool:
        is_in_reach = not event.is_isolated if self.project_id is None else self.project_id == event.project_id
        may_read = event.readers is None or self.person_id in event.readers
        return event.name in self.names and is_in_reach and may_read

    def put(self, event: StreamEvent) -> None:
        """Queue the event unless it is filtered out or the client has it, from a process that was ahead of this one."""
        if not self.wants(event) or (self.since and _is_before(event, self.since)):
            return
        if len(self._waiting) >= MAX_WAITING:
            log.info("stream.dropped", key=str(self.key_id), waiting=len(self._waiting))
            self.end()
            return
        self._waiting.append(event.text)
        self._wakeup.set()
        self.advance(event.after)

    def advance(self, position: Position) -> None:
        """Move to the position: every event up to it that the reader wants has been put in."""
        self.at = _max_position(self.at, position)

    def end(self) -> None:
        """End the stream and drop the events that wait."""
        self.ended = True
        self._waiting.clear()
        self._wakeup.set()

    async def take(self, seconds: float) -> list[bytes]:
        """Return the waiting texts as soon as there are some; an empty list after `seconds`, or when the stream has ended."""
        await wait_any(self._wakeup, timeout_seconds=seconds)
        taken, self._waiting = self._waiting, []
        self._wakeup.clear()
        return taken


def _max_position(left: Position, right: Position) -> Position:
    """Return the later place of the two in each log."""
    audit, part = max((left.audit, left.part), (right.audit, right.part))
    return Position(audit=audit, jobs=max(left.jobs, right.jobs), part=part)


def _is_before(event: StreamEvent, position: Position) -> bool:
    if event.is_step:
        return event.after.jobs <= position.jobs
    return (event.after.audit, event.after.part) <= (position.audit, position.part)
