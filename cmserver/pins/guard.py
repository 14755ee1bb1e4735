"""Checks pins after an upgrade, a restore, an import, a sweep of retention, a merge of the steward. `conn` is the owner's."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from itertools import groupby
from typing import Literal, TypeVar
from uuid import UUID

from cmserver.access import audit
from cmserver.access.model import Principal
from cmserver.base.errors import Conflict
from cmserver.base.logs import get_logger
from cmserver.base.sql import Conn
from cmserver.pins import repository
from cmserver.pins.check import check_pins_of
from cmserver.pins.model import PinResult
from cmserver.recall.search.model import Ranking

T = TypeVar("T")
Cause = Literal["upgrade", "restore", "import", "retention", "steward"]

log = get_logger(__name__)


class PinsBroken(Conflict):
    """A change would lose answers whose pins refuse that."""


async def check_upgrade(conn: Conn) -> list[PinResult]:
    """The pins of all teams that held at their last check, and do not as this program and schema answer.

    Raises PinsBroken, for the caller to roll back, where one of them refuses that.
    """
    lost = await report_all(conn, "upgrade")
    if any(result.pin.on_break == "refuse" for result in lost):
        lines = "\n".join(describe_loss(result) for result in lost)
        raise PinsBroken(
            f"The upgrade would lose what is pinned. The schema was not changed.\n{lines}\nGo on with the program of before, or "
            "change the pin there: `cmserver pins edit NUMBER --on-break report`, or remove it."
        )
    return lost


async def report_all(conn: Conn, cause: Cause) -> list[PinResult]:
    """What `report_lost` says of all teams."""
    return [
        result
        for team_id in await repository.teams_with_pins(conn)
        for result in await report_lost(conn, Principal.of_server(team_id), cause)
    ]


async def report_lost(conn: Conn, principal: Principal, cause: Cause) -> list[PinResult]:
    """The team's pins that held at their last check, and do not any more; they are logged, and stand in the audit log."""
    if not await repository.has_pins(conn, principal.team_id):
        return []
    lost = await _find_lost(conn, principal.team_id)
    await _record(conn, principal, "pins.lost", cause, lost)
    return lost


async def guard_change(conn: Conn, principal: Principal, cause: Cause, change: Callable[[], Awaitable[T]]) -> T:
    """Change the team's memory, in a savepoint. PinsBroken, and nothing is changed, where that breaks a pin that refuses it."""
    if not await repository.has_pins(conn, principal.team_id):
        async with conn.transaction():
            return await change()
    await _find_lost(conn, principal.team_id)  # what broke before is not of this change
    refused: list[PinResult] = []
    try:
        async with conn.transaction():
            changed = await change()
            lost = await _find_lost(conn, principal.team_id)
            refused += [result for result in lost if result.pin.on_break == "refuse"]
            _require_none(refused)
    except PinsBroken:
        await _record(conn, principal, "pins.kept", cause, refused)
        raise
    await _record(conn, principal, "pins.lost", cause, lost)
    return changed


def _require_none(refused: Sequence[PinResult]) -> None:
    if refused:
        raise PinsBroken(f"It would break what is pinned: {', '.join(str(result.pin.number) for result in refused)}.")


def describe_loss(result: PinResult) -> str:
    """A line about a pin that holds no longer."""
    return (
        f"Pin {result.pin.number} of project {result.pin.project_id} holds no longer: {result.reason}, for {result.pin.question!r}."
    )


async def _find_lost(conn: Conn, team_id: UUID) -> list[PinResult]:
    await repository.ENTER_TEAM.run(conn, team=str(team_id))
    results = await check_pins_of(conn, Principal.of_server(team_id), None, Ranking())
    await repository.LEAVE_TEAM.run(conn)
    return [result for result in results if result.is_lost]


async def _record(conn: Conn, principal: Principal, action: str, cause: Cause, results: Sequence[PinResult]) -> None:
    """A row of the audit log for each project, and one line of the log."""
    if not results:
        return
    for project_id, group in groupby(results, key=lambda result: result.pin.project_id):  # they come by project
        numbers = [result.pin.number for result in group]
        await audit.record(
            conn, principal, action, "project", project_id, project_id=project_id, cause=cause, count=len(numbers), numbers=numbers
        )
    numbers = [result.pin.number for result in results]
    if action == "pins.lost":
        log.warning("pins.lost", team=str(principal.team_id), cause=cause, pins=numbers)
    else:
        log.warning("pins.kept", team=str(principal.team_id), cause=cause, pins=numbers)
