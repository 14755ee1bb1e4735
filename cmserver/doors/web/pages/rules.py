"""Rules that a model or an agent's tool wrote, and that wait for a person's yes."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from cmserver.access.projects import Projects
from cmserver.base.text import Text
from cmserver.doors.web.page import Page
from cmserver.doors.web.pages.memory import list_projects, names_of_projects
from cmserver.doors.web.visit import Visit
from cmserver.observations.answering.answer import Answer, answer_rule, list_rules
from cmserver.observations.approval.model import WAIT_DAYS, ApprovalState

_PAGE = 50
_DONE: dict[Answer, str] = {
    "approved": "#{} counts from now on.",
    "rejected": "#{} does not count.",
    "pending": "#{} waits for an answer again.",
}


class RulesFilters(msgspec.Struct, frozen=True):
    """The filter in the address."""

    project: Text | None = None
    state: ApprovalState = "pending"
    cursor: str | None = None


class AnswerForm(msgspec.Struct, frozen=True):
    """The filters of the page to come back to."""

    project: Text | None = None
    state: ApprovalState = "pending"


async def get_rules(visit: Visit) -> Response:
    """Rules that a model or an agent's tool wrote, which wait for a yes or a no, and how long they have waited."""
    filters = visit.query(RulesFilters)
    principal = visit.principal
    project_id = await visit.dependency(Projects).within(principal, filters.project)
    async with visit.tenant() as conn:
        rules, next_cursor = await list_rules(
            conn, principal, project_id=project_id, state=filters.state, limit=_PAGE, cursor=filters.cursor
        )
        projects = await list_projects(conn, principal)
        names = await names_of_projects(conn, principal, {rule.project_id for rule in rules})
    return visit.render(
        "rules.html",
        title="Rules",
        rules=rules,
        names=names,
        projects=projects,
        filters=filters,
        parameters=msgspec.structs.asdict(filters),
        next_cursor=next_cursor,
        wait_days=WAIT_DAYS,
        may_answer=visit.may("observations:write"),
    )


async def _answer(visit: Visit, answer: Answer) -> Response:
    form = await visit.form(AnswerForm)
    principal, number = visit.principal, visit.parameter("number")
    rule = await visit.db.in_tenant(visit.team_id, lambda conn: answer_rule(conn, principal, number, answer))
    state = None if form.state == "pending" else form.state
    return visit.redirect("/ui/review/rules", _DONE[answer].format(rule.number), project=form.project, state=state)


async def post_approve(visit: Visit) -> Response:
    """Say yes to a rule: it counts from now on."""
    return await _answer(visit, "approved")


async def post_reject(visit: Visit) -> Response:
    """Say no to a rule: it is deleted after seven days."""
    return await _answer(visit, "rejected")


async def post_undo(visit: Visit) -> Response:
    """Take an answer back: the rule waits anew."""
    return await _answer(visit, "pending")


_WRITE = "observations:write"

routes = [
    Page("GET", "/ui/review/rules", get_rules, scope="observations:read"),
    Page("POST", "/ui/review/rules/{number}/approve", post_approve, scope=_WRITE, form_of=get_rules),
    Page("POST", "/ui/review/rules/{number}/reject", post_reject, scope=_WRITE, form_of=get_rules),
    Page("POST", "/ui/review/rules/{number}/undo", post_undo, scope=_WRITE, form_of=get_rules),
]
