"""What telling is good for: sessions that are told, compared with sessions that are told nothing."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.responses import Response

from cmserver.access import announce, teams
from cmserver.access.projects import Projects
from cmserver.base.notifications import NotificationListener
from cmserver.base.text import Text
from cmserver.doors.web.page import Page
from cmserver.doors.web.pages.memory import list_projects
from cmserver.doors.web.visit import Visit
from cmserver.ops.proof.model import MAX_DAYS, USUAL_DAYS
from cmserver.ops.proof.prove import prove, take_out
from cmserver.ops.proof.wire import CALLED, MEANT, format_interval

_PERIODS = (30, 90, 365)
_SHARES = (0, 5, 10, 20, 30, 50)


class ProofFilters(msgspec.Struct, frozen=True, kw_only=True):
    """Of how many days, and of which project."""

    days: Annotated[int, Meta(ge=1, le=MAX_DAYS)] = USUAL_DAYS
    project: Text | None = None


class ShareForm(msgspec.Struct, frozen=True):
    untold_share: Annotated[int, Meta(ge=0, le=50)]


async def get_proof(visit: Visit) -> Response:
    """Whether sessions that are told what the team knows go better than sessions that are told nothing."""
    query = visit.query(ProofFilters)
    principal = visit.principal
    project_id = await visit.dependency(Projects).within(principal, query.project)
    async with visit.tenant() as conn:
        proof = await prove(conn, principal, project_id, query.days)
        projects = await list_projects(conn, principal)
    return visit.render(
        "proof.html",
        title="Proof",
        proof=proof,
        query=query,
        projects=projects,
        periods=[(days, f"{days} days") for days in sorted({*_PERIODS, query.days})],
        shares=[(share, f"{share} %" if share else "none") for share in sorted({*_SHARES, proof.untold_share})],
        called=CALLED,
        meant=MEANT,
        format_interval=format_interval,
        may_set=visit.may("admin") and principal.project_id is None and principal.home is None,
    )


async def post_share(visit: Visit) -> Response:
    """Say how many of a hundred new sessions are told nothing."""
    form = await visit.form(ShareForm)
    principal = visit.principal
    changes = teams.TeamChange(untold_share=form.untold_share)
    await visit.db.in_tenant(visit.team_id, lambda conn: teams.change(conn, principal, str(principal.team_id), changes))
    announce.drop_cached_here(visit.dependency(NotificationListener), visit.team_id)
    share = form.untold_share
    done = f"{share} of 100 new sessions are told nothing from now on." if share else "All new sessions are told from now on."
    return visit.redirect("/ui/team/proof", done)


async def post_take_out(visit: Visit) -> Response:
    """Take a session out of the comparison."""
    session = await visit.db.in_tenant(visit.team_id, lambda conn: take_out(conn, visit.principal, visit.parameter("session")))
    return visit.redirect(f"/ui/sessions/{session.id}", "This session is told as ever from now on, and not compared.")


routes = [
    Page("GET", "/ui/team/proof", get_proof, scope="observations:read"),
    Page("POST", "/ui/team/proof/share", post_share, scope="admin", form_of=get_proof),
    Page("POST", "/ui/team/proof/sessions/{session}/take-out", post_take_out, scope="sessions:write", form_of=get_proof),
]
