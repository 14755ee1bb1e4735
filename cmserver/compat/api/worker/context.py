"""What claude-mem's hooks put before a session's first prompt, and beside a prompt: our own index and our own lines."""

from __future__ import annotations

from typing import Annotated, cast

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from cmserver.base.errors import Invalid
from cmserver.base.http.operation import Operation, Text
from cmserver.base.http.wire import answer, db, query, read
from cmserver.base.text import storable
from cmserver.compat.api.guest import guest
from cmserver.compat.api.worker import talk
from cmserver.compat.platform import platform
from cmserver.recall.context import context
from cmserver.recall.index.layout import MOST_CHARS
from cmserver.recall.model import Occasion, Shape
from cmserver.recall.prompted import prompt_context

_MOST_PROJECTS = 5
_SHORTEST_QUESTION = 20
_NOTHING_YET = "cmserver has recorded nothing of this project yet. What is done here will be listed from the next session on.\n"


class InjectQuery(msgspec.Struct, kw_only=True):
    """`projects` are separated by commas, and the last one matters most; `project` names one.

    `colors` is for people, who are shown the same text. `full` changes nothing: the text is as long as an agent reads.
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
    """What clearly belongs to the prompt, and how many observations that is; empty when nothing does."""

    context: str
    count: int


async def get_inject(request: Request) -> Response:
    """The index of one or several projects, as plain text of less than 10,000 characters."""
    who = await guest(request)
    asked = query(request, InjectQuery)
    named = _names(asked.projects) or _names(asked.project)
    if not named:
        raise Invalid.at("$.projects", "Say which projects are meant: `projects=one,other` or `project=one`.")
    asked_for = [await talk.project_named(request, who, name) for name in named]
    found = list({project.id: project for project in asked_for if project is not None}.values())
    shape = cast("Shape", request.app.state.context_shape)
    # The hook asks once for its agent, and once more, with colours, for its user.
    occasion = Occasion(reason="startup", platform=platform(asked.platform_camel), is_look=asked.colors is not None)
    shape = shape.among(len(found))
    texts: list[str] = []
    async with db(request).tenant(who.team_id) as conn:
        for project in found:
            told = await context(conn, who, project, occasion, shape)
            if len("\n".join([*texts, told.text])) <= MOST_CHARS:
                texts.append(told.text)
    return Response("\n".join(texts) or _NOTHING_YET, media_type="text/plain")


async def post_semantic(request: Request) -> Response:
    """What clearly belongs to a prompt."""
    who = await guest(request)
    asked = await read(request, SemanticIn)
    question = storable(asked.q).strip()
    name = _names(asked.project)
    if len(question) < _SHORTEST_QUESTION or not (name or who.project_id):
        return answer(SemanticOut(context="", count=0))
    project = await talk.project_named(request, who, name[0] if name else str(who.project_id))
    if project is None:
        return answer(SemanticOut(context="", count=0))
    occasion = Occasion(reason="prompt", platform=platform(asked.platform_camel))
    async with db(request).tenant(who.team_id) as conn:
        told = await prompt_context(conn, who, project, occasion, question)
    return answer(SemanticOut(context=told.text if told else "", count=len(told.observations) if told else 0))


def _names(text: str | None) -> list[str]:
    """What matters most first."""
    given = [name for each in (text or "").split(",") if (name := talk.name(each))]
    return list(dict.fromkeys(reversed(given)))[:_MOST_PROJECTS]


routes = [
    Operation(
        "GET",
        "/api/context/inject",
        get_inject,
        scope="observations:read",
        query=InjectQuery,
        answers={200: Text("text/plain", "The index, in at most 9,500 characters.")},
    ),
    Operation(
        "POST",
        "/api/context/semantic",
        post_semantic,
        scope="observations:read",
        body=SemanticIn,
        answers={200: SemanticOut},
    ),
]
