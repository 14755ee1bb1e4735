"""Reads turns, and audits it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from uuid import UUID

from cmserver.access.model import Principal
from cmserver.base import paging
from cmserver.base.errors import NotFound
from cmserver.base.sql import Conn
from cmserver.sessions.read import audit_prompt_read
from cmserver.sessions.turns import repository
from cmserver.sessions.turns.model import SessionTurn

NO_SUCH = "There is no such turn."


async def list_turns(
    conn: Conn,
    principal: Principal,
    *,
    project_id: UUID | None,
    session_id: UUID | None,
    limit: int,
    cursor: str | None = None,
) -> tuple[list[SessionTurn], str | None]:
    """A page of the turns of the session, the project, or the team without one, newest first; and the cursor of the next page."""
    before, before_id = paging.place(cursor)
    rows = await repository.newest(
        conn,
        principal.team_id,
        project_id=project_id,
        session_id=session_id,
        before=before,
        before_id=before_id,
        limit=limit + 1,
    )
    page, next_cursor = paging.page(rows, limit, lambda turn: (turn.created_at, turn.id))
    await audit_prompt_read(conn, principal, project_id, len(page))
    return principal.named(page), next_cursor


async def read_turns(conn: Conn, principal: Principal, names: Collection[int | UUID]) -> dict[int | UUID, SessionTurn]:
    """The turns with these numbers and ids that the key may see, by the names they were asked by."""
    rows = await find_turns(conn, principal, names)
    projects = {turn.project_id for turn in rows.values()}
    project_id = projects.pop() if len(projects) == 1 else principal.project_id
    await audit_prompt_read(conn, principal, project_id, len({turn.id for turn in rows.values()}))
    return rows


async def read_turn(conn: Conn, principal: Principal, name: int | UUID | None) -> SessionTurn:
    """The turn with that number or id; NotFound also when the key may not see its project."""
    turn = (await read_turns(conn, principal, [name])).get(name) if name is not None else None
    if turn is None:
        raise NotFound(NO_SUCH)
    return turn


async def find_turns(conn: Conn, principal: Principal, names: Collection[int | UUID]) -> dict[int | UUID, SessionTurn]:
    """As `read_turns`, without an audit row: their texts must not be shown."""
    numbers = [name for name in names if isinstance(name, int)]
    ids = [name for name in names if isinstance(name, UUID)]
    rows: Sequence[SessionTurn] = [
        *(await repository.by_numbers(conn, principal.team_id, numbers) if numbers else ()),
        *(await repository.by_ids(conn, principal.team_id, ids) if ids else ()),
    ]
    by_name: dict[int | UUID, SessionTurn] = {}
    for turn in principal.named(rows):
        if principal.sees(turn.project_id):
            by_name |= {turn.number: turn, turn.id: turn}
    return {name: by_name[name] for name in names if name in by_name}
