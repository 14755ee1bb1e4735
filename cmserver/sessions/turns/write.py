"""Lets people say what the line of a turn shall be."""

from __future__ import annotations

from uuid import UUID

from cmserver.access import audit
from cmserver.access.model import Principal
from cmserver.base.errors import NotFound
from cmserver.base.sql import Conn
from cmserver.redaction.clean import clean
from cmserver.sessions.turns import repository
from cmserver.sessions.turns.model import MAX_LINE_CHARS, SessionTurn
from cmserver.sessions.turns.read import NO_SUCH, find_turns


async def set_line(conn: Conn, principal: Principal, name: int | UUID | None, line: str | None) -> SessionTurn:
    """Set the turn's own line, on one line and redacted: empty for none, None for the one that is made of it. Returns the turn.

    It holds for all sessions. NotFound also when the key may not see the turn's project.
    """
    turn = (await find_turns(conn, principal, [name])).get(name) if name is not None else None
    if turn is None:
        raise NotFound(NO_SUCH)
    cleaned = None if line is None else " ".join(str(clean(line, field_max_chars=MAX_LINE_CHARS).value).split())[:MAX_LINE_CHARS]
    if cleaned == turn.own_line:
        return turn
    await audit.record(conn, principal, "turn.line_set", "turn", turn.id, project_id=turn.project_id)
    return await repository.set_line(conn, principal.team_id, turn.id, cleaned)
