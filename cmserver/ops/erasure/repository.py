"""The SQL of deleting a session: a function of the database deletes its rows, whatever room owns them."""

from __future__ import annotations

from uuid import UUID

import msgspec

from cmserver.base.sql import Conn, Query

OWNS: set[str] = set()


class SessionRows(msgspec.Struct, frozen=True, kw_only=True):
    """How many rows of each kind a session has. `merged`: numbers of observations that hold texts of it and of other sessions."""

    observations: int
    vectors: int
    turns: int
    events: int
    jobs: int
    runs: int
    receipts: int
    merged: list[int]


ERASE_SESSION = Query(
    SessionRows,
    """
    SELECT r.* FROM jsonb_to_record(erase_session(%(session_id)s, %(team_id)s, %(only_count)s, %(with_merged)s)) AS r(
           observations bigint, vectors bigint, turns bigint, events bigint, jobs bigint, runs bigint, receipts bigint,
           merged bigint[])
    """,
)


async def count_session(conn: Conn, team_id: UUID, session_id: UUID) -> SessionRows:
    """How many rows would be deleted with the session."""
    return await ERASE_SESSION.one(conn, team_id=team_id, session_id=session_id, only_count=True, with_merged=False)


async def erase_session(conn: Conn, team_id: UUID, session_id: UUID, *, with_merged: bool = False) -> SessionRows:
    """Delete the session with its rows. Nothing is deleted while there are `merged` ones, unless they go as well."""
    return await ERASE_SESSION.one(conn, team_id=team_id, session_id=session_id, only_count=False, with_merged=with_merged)
