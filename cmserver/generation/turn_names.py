"""Jobs that have a model name what a turn is about: requested with the turn, in its transaction; each has a lane of its own."""

from __future__ import annotations

from cmserver.access.model import Principal
from cmserver.base.ids import new_id, request_id
from cmserver.base.sql import Conn
from cmserver.generation.intake import repository as intake
from cmserver.generation.model import ClaimedJob, JobOrigin
from cmserver.generation.operate import repository as queue
from cmserver.graph.read_turn import build_turn_prompt
from cmserver.models.providers.model import Prompt
from cmserver.sessions.turns import repository as turns
from cmserver.sessions.turns.model import SessionTurn


async def request_turn_names(conn: Conn, principal: Principal, turn: SessionTurn) -> None:
    """Have a model name the entities of a turn that is written in this transaction."""
    job_origin = JobOrigin(
        team_id=principal.team_id,
        api_key_id=principal.key_id,
        actor_id=principal.actor_id,
        request_id=request_id(),
    )
    job_id = await queue.insert_turn_job(
        conn, job_origin, job_id=new_id(), project_id=turn.project_id, session_id=turn.server_session_id, turn_id=turn.id
    )
    await intake.make_lane_due(conn, job_id, principal.team_id, turn.project_id)


async def find_turn(conn: Conn, job: ClaimedJob) -> SessionTurn | None:
    """The turn of the job, wherever its session was moved to meanwhile; None when it was deleted."""
    rows = await turns.by_ids(conn, job.team_id, [job.source_id])
    return rows[0] if rows else None


async def load_turn_prompt(conn: Conn, job: ClaimedJob) -> Prompt:
    """What a model is asked about the job's turn; without texts when that was deleted meanwhile."""
    turn = await find_turn(conn, job)
    if turn is None:
        return Prompt(kind="entities", project=job.project_name)
    return await build_turn_prompt(conn, job.team_id, job.project_name, turn)
