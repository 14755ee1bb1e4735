"""Context for claude-mem's hooks: the index of a session's start, and lines for a prompt."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from cmserver.base.errors import Invalid
from cmserver.base.http.operation import TextAnswer, get, post
from cmserver.base.http.wire import answer, db, dependency, query, read
from cmserver.base.text import PROMPT_MOST, storable
from cmserver.doors.claude_mem import session_events
from cmserver.doors.claude_mem.rows import platform
from cmserver.doors.guest import admit_caller
from cmserver.embeddings.query_embedder import QueryEmbedder
from cmserver.recall.context import build_context
from cmserver.recall.index.layout import MAX_CHARS
from cmserver.recall.model import ContextBudget, ContextRequest
from cmserver.recall.prompt_context import build_prompt_context

_MAX_PROJECTS = 5
_MIN_QUERY_CHARS = 20
_NOTHING_YET = "cmserver has recorded nothing of this project yet. Work done here is listed from the next session on.\n"


class InjectQuery(msgspec.Struct, kw_only=True):
    """`projects` are names with commas between, of which the last one matters most; `project` is a single project.

    `colors` is sent by clients that show the text to people: it is the same, and no receipt is written. `full` is accepted and
    changes nothing: the text is as long as an agent reads.
    """

    projects: str | None = None
    project: str | None = None
    platform_camel: str | None = msgspec.field(name="platformSource", default=None)
    colors: str | None = None
    full: str | None = None


class SemanticIn(msgspec.Struct, kw_only=True):
    """POST /api/context/semantic: a prompt, in `q`. Never more than three lines are found, whatever the `limit`."""

    q: str = ""
    project: str | None = None
    limit: Annotated[int, Meta(ge=1, le=20)] | None = None
    platform_camel: str | None = msgspec.field(name="platformSource", default=None)


class SemanticOut(msgspec.Struct, frozen=True, kw_only=True):
    """Lines about observations that match the prompt: `context` is the text of the lines, empty when none matches; `count` is how
    many lines there are.
    """

    context: str
    count: int


async def get_inject(request: Request) -> Response:
    """The index of one or several projects, as plain text of less than 10,000 characters."""
    principal = await admit_caller(request)
    params = query(request, InjectQuery)
    names = _names(params.projects) or _names(params.project)
    if not names:
        raise Invalid.at("$.projects", "Name the projects: `projects=one,other` or `project=one`.")
    matches = [await session_events.find_named_project(request, principal, name) for name in names]
    projects = list({project.id: project for project in matches if project is not None}.values())
    budget = dependency(request, ContextBudget)
    # The hook calls once for its agent, and once more, with colours, for its user.
    context_request = ContextRequest(
        reason="startup", platform=platform(params.platform_camel), is_preview=params.colors is not None
    )
    budget = budget.share(len(projects))
    texts: list[str] = []
    async with db(request).tenant(principal.team_id) as conn:
        for project in projects:
            context = await build_context(conn, principal, project, context_request, budget)
            if len("\n".join([*texts, context.text])) <= MAX_CHARS:
                texts.append(context.text)
    return Response("\n".join(texts) or _NOTHING_YET, media_type="text/plain")


async def post_semantic(request: Request) -> Response:
    """Lines about observations that clearly match a prompt."""
    principal = await admit_caller(request)
    params = await read(request, SemanticIn)
    text = storable(params.q[:PROMPT_MOST]).strip()
    name = _names(params.project)
    if len(text) < _MIN_QUERY_CHARS or not (name or principal.project_id):
        return answer(SemanticOut(context="", count=0))
    project = await session_events.find_named_project(request, principal, name[0] if name else str(principal.project_id))
    if project is None:
        return answer(SemanticOut(context="", count=0))
    context_request = ContextRequest(reason="prompt", platform=platform(params.platform_camel))
    vector = await dependency(request, QueryEmbedder).embed_unasked(text, principal.team_id)
    async with db(request).tenant(principal.team_id) as conn:
        context = await build_prompt_context(conn, principal, project, context_request, text, vector)
    return answer(SemanticOut(context=context.text if context else "", count=len(context.numbers) if context else 0))


def _names(text: str | None) -> list[str]:
    """The names, the most important first."""
    names = [name for part in (text or "").split(",") if (name := session_events.clean_name(part))]
    return list(dict.fromkeys(reversed(names)))[:_MAX_PROJECTS]


routes = [
    get(
        "/api/context/inject",
        get_inject,
        "observations:read",
        TextAnswer("text/plain", "The index, in at most 9,500 characters."),
        query=InjectQuery,
    ),
    post("/api/context/semantic", post_semantic, "observations:read", SemanticOut, body=SemanticIn),
]
