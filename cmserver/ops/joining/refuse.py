"""What refuses to join projects and to move sessions."""

from __future__ import annotations

from collections.abc import Sequence

from cmserver.access.model import Principal, Project
from cmserver.access.projects import NO_SUCH, find
from cmserver.base.errors import Conflict, Forbidden, Invalid
from cmserver.base.sql import Conn

WORKED_ON = "Observations are being made of its events at this moment. Try again in a minute."
_MAX_NUMBERS = 20


def require_team_key(principal: Principal, act: str) -> None:
    """Forbidden for a key that is bound to a project."""
    if principal.project_id is not None:
        raise Forbidden(f"This key is bound to a project. Use a key of the whole team to {act}.")


async def find_target(conn: Conn, principal: Principal, into: str) -> Project:
    """The project of that name, or Invalid at `$.into`."""
    target = await find(conn, principal, into)
    if target is None:
        raise Invalid.at("$.into", NO_SUCH)
    return target


def refuse_merged(numbers: Sequence[int], reason: str) -> None:
    """Conflict when there are numbers: those of observations that were merged."""
    if numbers:
        raise Conflict(f"{reason}. Undo that first: {', '.join(map(str, numbers[:_MAX_NUMBERS]))}.")
