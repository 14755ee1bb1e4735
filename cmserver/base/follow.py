"""Reads what comes in, one after the other, and remembers how far: one table of positions for all who read on."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import LiteralString
from uuid import UUID

from cmserver.base.db import Db
from cmserver.base.log_position import LogPosition
from cmserver.base.sql import Conn, Query, query

OWNS = {"read_positions"}

# `entities:TEAM` is what processes of the version before lock, too.
_KEY: LiteralString = "hashtextextended(concat_ws(':', %(name)s::text, %(team_id)s::text), 0)"

READ = Query(
    LogPosition,
    """
    SELECT read_to, fence_id, fence_transaction::text::bigint AS fence_transaction FROM read_positions
     WHERE name = %(name)s AND team_id IS NOT DISTINCT FROM %(team_id)s::uuid
    """,
)

KEEP = Query(
    int,
    """
    INSERT INTO read_positions AS p (name, team_id, read_to, fence_id, fence_transaction)
    VALUES (%(name)s, %(team_id)s::uuid, %(read_to)s, %(fence_id)s, %(fence_transaction)s::text::xid8)
    ON CONFLICT (team_id, name) DO UPDATE
       SET read_to = excluded.read_to, fence_id = excluded.fence_id, fence_transaction = excluded.fence_transaction
     WHERE p.read_to < excluded.read_to OR NOT %(is_forward)s
    """,
)


async def follow(
    conn: Conn, name: str, act: Callable[[LogPosition], Awaitable[LogPosition]], *, team_id: UUID | None = None
) -> bool:
    """Let `act` read on from the position of that name, and keep the one that it returns; False when somebody else is reading.

    The position commits with what `act` did. Nothing is written before `act`: see `log_position.advance`.
    """
    if not await try_lock(conn, name, team_id):
        return False
    before = await read_position(conn, name, team_id=team_id)
    after = await act(before)
    if after != before:
        await keep_position(conn, name, after, team_id=team_id)
    return True


@query(f"SELECT pg_try_advisory_xact_lock({_KEY})")
async def try_lock(conn: Conn, name: str, team_id: UUID | None) -> bool:
    """False when another transaction reads on from that position."""
    ...


@query(f"SELECT pg_advisory_xact_lock({_KEY})::text")
async def hold_off(conn: Conn, name: str, team_id: UUID | None) -> None:
    """Wait until nobody reads on from that position; nobody does until the transaction ends."""
    ...


@contextlib.asynccontextmanager
async def reading_alone(db: Db, name: str, team_id: UUID | None) -> AsyncGenerator[bool]:
    """False when another process reads on from that position; nobody does in the block, over several transactions."""
    async with db.owner_session() as conn:
        if not await _try_lock_session(conn, name, team_id):
            yield False
            return
        try:
            yield True
        finally:
            with contextlib.suppress(Exception):  # of a connection that is broken nothing is left
                await _unlock_session(conn, name, team_id)


@query(f"SELECT pg_try_advisory_lock({_KEY})")
async def _try_lock_session(conn: Conn, name: str, team_id: UUID | None) -> bool: ...


@query(f"SELECT pg_advisory_unlock({_KEY})")
async def _unlock_session(conn: Conn, name: str, team_id: UUID | None) -> bool: ...


async def read_position(conn: Conn, name: str, *, team_id: UUID | None = None) -> LogPosition:
    """The position of that name: of the team, or of the whole server."""
    return await READ.first(conn, name=name, team_id=team_id) or LogPosition()


async def keep_position(
    conn: Conn, name: str, position: LogPosition, *, team_id: UUID | None = None, is_forward: bool = False
) -> None:
    """Set the position of that name; with `is_forward` only if it is behind that."""
    await KEEP.run(
        conn,
        name=name,
        team_id=team_id,
        read_to=position.read_to,
        fence_id=position.fence_id,
        fence_transaction=position.fence_transaction,
        is_forward=is_forward,
    )
