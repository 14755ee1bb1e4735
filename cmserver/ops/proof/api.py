"""The proof over HTTP."""

from __future__ import annotations

from cmserver.access import verb
from cmserver.access.projects import Projects
from cmserver.access.verb import VerbCall, command, option
from cmserver.base.structs import reshape
from cmserver.ops.proof.prove import prove, take_out
from cmserver.ops.proof.wire import ProofOut, ProofQuery
from cmserver.sessions.wire import SESSION_LINES, OneSessionOut, SessionOut


@verb.get("/v1/proof", "observations:read")
async def get_proof(call: VerbCall, given: ProofQuery) -> ProofOut:
    """Compare sessions that were told what the team knows with sessions that were told nothing."""
    project_id = await call.dependency(Projects).within(call.principal, given.project)
    async with call.read() as conn:
        return await prove(conn, call.principal, project_id, given.days)


@command(
    "prove take-out",
    SESSION_LINES.lines("session"),
    text="Take a session out of the comparison: from now on it is told as ever, and it is counted in no arm.",
)
@option("SESSION_ID", field="id")
@verb.delete("/v1/proof/sessions/{id}", "sessions:write")
async def delete_compared_session(call: VerbCall, given: str) -> OneSessionOut:
    """Take a session out of the comparison: from now on it is told as ever. One that is not in it stays as it is."""
    session = await call.write(lambda conn: take_out(conn, call.principal, given))
    return OneSessionOut(session=reshape(session, SessionOut))


routes = [get_proof, delete_compared_session]
