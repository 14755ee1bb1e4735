"""Why a line of a file is as it is."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from cmserver.access.projects import Projects
from cmserver.base.http.wire import convert
from cmserver.base.text import Text
from cmserver.doors.web.page import Page
from cmserver.doors.web.pages import memory
from cmserver.doors.web.visit import Visit
from cmserver.recall.why import LATER, find_why
from cmserver.recall.wire import WhyIn, why_question


class WhyPageQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The question in the address."""

    project: Text | None = None
    file: Text | None = None
    text: Text | None = None
    commit: Text | None = None


async def get_why(visit: Visit) -> Response:
    """Why a line of a file is as it is: the turn that wrote it, what was said there, and what came later."""
    asked = visit.query(WhyPageQuery)
    why, given = None, (asked.file or "").strip()
    if given:
        body = {
            "file": given,
            "projectId": asked.project,
            "text": asked.text or None,
            "commit": (asked.commit or "").strip().lower() or None,
        }
        question = why_question(convert(body, WhyIn))
        project = await visit.dependency(Projects).named_or_own(visit.principal, asked.project, at="$.project")
        async with visit.tenant() as conn:
            why = await find_why(conn, visit.principal, project.id, question)
    async with visit.tenant() as conn:
        projects = await memory.list_projects(conn, visit.principal)
    return visit.render("why.html", title="Why a line of code is as it is", asked=asked, why=why, later=LATER, projects=projects)


routes = [Page("GET", "/ui/observations/why", get_why, scope="observations:read")]
