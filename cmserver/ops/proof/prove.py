"""Says whether sessions that are told what the team knows go better than sessions that are told nothing."""

from __future__ import annotations

from typing import get_args
from uuid import UUID

from cmserver.access import audit
from cmserver.access import repository as access
from cmserver.access.model import Principal
from cmserver.base.errors import NotFound
from cmserver.base.sql import Conn
from cmserver.ops.proof import repository
from cmserver.ops.proof.compare import compare
from cmserver.ops.proof.model import USUAL_DAYS, ArmSessions, MeasureName
from cmserver.ops.proof.wire import ArmOut, ProofOut, measure_out
from cmserver.sessions import repository as sessions
from cmserver.sessions.model import Session, SessionArm
from cmserver.sessions.read import find_session


async def prove(conn: Conn, principal: Principal, project_id: UUID | None, days: int = USUAL_DAYS) -> ProofOut:
    """Both arms of the last `days`, of one project or of all that the principal sees."""
    team = await access.team(conn, principal.team_id)
    if team is None:
        raise NotFound("Team not found.")
    rows = await repository.count_sessions(conn, principal.team_id, project_id, days)
    counts: dict[SessionArm, ArmSessions] = {row.arm: row for row in rows}
    measured = {(row.arm, row.name): row for row in await repository.measure(conn, principal.team_id, project_id, days)}
    names: tuple[MeasureName, ...] = get_args(MeasureName)
    comparisons = [compare(measured.get(("told", name)), measured.get(("untold", name))) for name in names]
    told, untold = _count(counts, "told"), _count(counts, "untold")
    measures = [measure_out(comparison, told, untold) for comparison in comparisons if comparison is not None]
    return ProofOut(days=days, untold_share=team.untold_share, told=told, untold=untold, measures=measures)


async def take_out(conn: Conn, principal: Principal, name: str) -> Session:
    """Let the session be told as ever, and counted in no arm. One that is in none stays as it is."""
    session = await find_session(conn, principal, name)
    if session.arm is None:
        return session
    await sessions.stop_comparing(conn, principal.team_id, session.id)
    await audit.record(conn, principal, "session.taken_out", "session", session.id, project_id=session.project_id, arm=session.arm)
    return await find_session(conn, principal, str(session.id))


def _count(counts: dict[SessionArm, ArmSessions], arm: SessionArm) -> ArmOut:
    row = counts.get(arm)
    return ArmOut(begun=row.begun if row else 0, compared=row.compared if row else 0)
