"""Notes what turns did of which nobody noted it when they ended: those of before there was a ledger, and imported ones."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from uuid import UUID

import structlog
from structlog.typing import FilteringBoundLogger

from cmserver.base.db import Db
from cmserver.base.errors import Unavailable
from cmserver.base.sql import Conn
from cmserver.generation import repository
from cmserver.generation.model import PastEvent
from cmserver.generation.prompt import find_root, read_events
from cmserver.generation.turn_work import TurnWork, add_work, read_work
from cmserver.sessions.ledger import repository as ledger

log: FilteringBoundLogger = structlog.get_logger(__name__)

_AT_A_TIME = 20
_MAX_EVENTS, _MAX_CHARS = 500, 8_000_000
"""What is read of a turn at once."""


async def trace_old_turns(db: Db) -> bool:
    """Note what some turns did that wait for it, each in its own transaction; returns whether more may wait.

    States of observations stay as they are: a check that runs again finds out of them with all that is noted by then.
    """
    for _ in range(_AT_A_TIME):
        found: list[UUID] = []
        try:
            await db.in_system(lambda conn, found=found: _trace_next(conn, found))
        except Unavailable:
            raise
        except Exception:
            if not found:
                raise
            log.exception("turn.untraced", turn=str(found[0]))
            await db.in_system(lambda conn, turn_id=found[0]: ledger.end_untraced(conn, turn_id))
        if not found:
            return False
    return True


async def _trace_next(conn: Conn, found: list[UUID]) -> None:
    """Note what the next turn did, and put its id into `found`, if there is one."""
    found.clear()
    turn = await ledger.next_untraced(conn)
    if turn is None:
        return
    found.append(turn.id)
    works: list[TurnWork] = []
    after: PastEvent | None = None
    while events := await repository.past_events(conn, turn.team_id, turn.id, after=after, limit=_MAX_EVENTS, max_chars=_MAX_CHARS):
        works.append(await asyncio.to_thread(_read, events))
        after = events[-1]
    # What came to it since is noted with its jobs. Asked after its events are read: none is noted twice.
    if await ledger.end_untraced(conn, turn.id):
        for work in works:
            await add_work(conn, turn.team_id, turn.server_session_id, turn.prompt_number, work, only_traces=not turn.lacks_work)


def _read(events: Sequence[PastEvent]) -> TurnWork:
    return read_work([*read_events(events, find_root(events)).values()])
