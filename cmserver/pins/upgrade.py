"""Whether an upgrade loses what a team has pinned: asked inside of the transaction of its migrations."""

from __future__ import annotations

from uuid import UUID

from cmserver.access.model import Principal
from cmserver.base.errors import Conflict
from cmserver.base.sql import Conn
from cmserver.pins import repository
from cmserver.pins.check import check_pins_of
from cmserver.pins.model import PinResult
from cmserver.recall.search.model import Ranking


class PinsBroken(Conflict):
    """An upgrade would lose answers whose pins refuse that."""


async def check_upgrade(conn: Conn, ranking: Ranking) -> list[PinResult]:
    """The pins of all teams that held at their last check, and do not as this program and schema answer.

    Raises PinsBroken, for the caller to roll back, where one of them refuses that. `conn` is the owner's.
    """
    lost: list[PinResult] = []
    for team_id in await repository.teams_with_pins(conn):
        await repository.ENTER_TEAM.run(conn, team=str(team_id))
        lost += [result for result in await check_pins_of(conn, _operator(team_id), None, ranking) if result.is_lost]
        await repository.LEAVE_TEAM.run(conn)
    if any(result.pin.on_break == "refuse" for result in lost):
        lines = [describe_loss(result) for result in lost]
        raise PinsBroken(
            "The upgrade would lose what is pinned. The schema was not changed.\n"
            + "\n".join(lines)
            + "\nGo on with the program of "
            "before, or change the pin there: `cmserver pins edit NUMBER --on-break report`, or remove it."
        )
    return lost


def describe_loss(result: PinResult) -> str:
    """A line about a pin that holds no longer."""
    return (
        f"Pin {result.pin.number} of project {result.pin.project_id} holds no longer: {result.reason}, for {result.pin.question!r}."
    )


def _operator(team_id: UUID) -> Principal:
    return Principal(kind="operator", team_id=team_id, project_id=None, key_id=None, actor_id="operator", scopes=frozenset({"*"}))
