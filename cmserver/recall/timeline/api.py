"""The door to the timeline."""

from __future__ import annotations

from typing import Annotated, Literal, cast
from uuid import UUID

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from cmserver.access.model import Principal
from cmserver.access.projects import Projects
from cmserver.base.errors import Invalid, NotFound
from cmserver.base.http import operation
from cmserver.base.http.operation import Operation
from cmserver.base.http.wire import answer, caller, db, read, wants_text
from cmserver.base.ids import epoch_ms
from cmserver.base.sql import Conn
from cmserver.base.text import Key, Text
from cmserver.observations.model import Observation
from cmserver.observations.wire import type_shown
from cmserver.recall.search.meaning import Meaning
from cmserver.recall.search.model import Ranking, Sought
from cmserver.recall.timeline.model import EVERYTHING, MOST, PROMPT_CHARS, Around, TimedPrompt, Timeline, What
from cmserver.recall.timeline.plain import in_lines
from cmserver.recall.timeline.timeline import around_best, timeline
from cmserver.sessions import read as sessions

_TITLE_CHARS = 300
_ALL = 2**31 - 1
_WHICH = "Say around what, in one way: `anchor` with a number, an id or a time, or `query` with words to search for."

Many = Annotated[int, Meta(ge=0, le=MOST)]


class TimelineIn(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """`anchor` is an observation by its number (12, #12, S12) or id, a prompt by the id of its event, or a time in ISO 8601. With
    `query` instead it is the best that a search finds.

    Without a project it is the anchor's; around a time, all that the key may see. `session` is our id of one, or its agent's, and
    leaves out what is not of it. With `format: "full"` the texts are whole.
    """

    anchor: Annotated[int, Meta(ge=1)] | Annotated[Text, Meta(min_length=1)] | None = None
    query: Annotated[Text, Meta(min_length=1)] | None = None
    project_id: Key | None = None
    session: Key | None = None
    before: Many = 10
    after: Many = 10
    kinds: Annotated[list[What], Meta(min_length=1)] | None = None
    format: Literal["index", "full"] = "index"


class ItemOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """One thing that happened. An observation or a summary has a `number` and a `title`; a prompt has its `promptNumber` only.

    `text` is what a prompt or, in full, an observation says; an index has the first 300 characters of a prompt. `readTokens` is
    what reading the whole takes. `id` is that of the observation, or of the event in which the prompt came.
    """

    what: What
    id: UUID
    number: int | None
    prompt_number: int | None
    project_id: UUID
    session_id: UUID | None
    type: str
    title: str | None
    text: str | None
    read_tokens: int
    created_at_epoch: int
    is_anchor: bool


class TimelineOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Oldest first. `anchor` is null around a time, and where a query finds nothing; then `atEpoch` is null, too."""

    anchor: ItemOut | None
    at_epoch: int | None
    items: list[ItemOut]


async def post_timeline(request: Request) -> Response:
    """What happened before and after an observation, a prompt, a moment or the best hit of a search.

    Prompts, observations and summaries, oldest first; who accepts only text/plain gets it as lines.
    """
    who = await caller(request, Principal)
    asked = await read(request, TimelineIn)
    if (asked.anchor is None) == (asked.query is None):
        raise Invalid.at("$.anchor", _WHICH)
    projects = cast("Projects", request.app.state.projects)
    project_id = None
    if asked.project_id is not None:
        project_id = (await projects.named_or_own(who, asked.project_id, at="$.projectId")).id
    by = cast("Ranking", request.app.state.ranking)
    sought = await cast("Meaning", request.app.state.meaning).of(asked.query) if asked.query else None
    async with db(request).tenant(who.team_id) as conn:
        told = await _told(conn, who, project_id or who.project_id, asked, by, sought)
    full = asked.format == "full"
    if wants_text(request):
        return PlainTextResponse(in_lines(told, full=full) if told and told.told else "There is nothing around it.\n")
    if told is None:
        return answer(TimelineOut(anchor=None, at_epoch=None, items=[]))
    items = [_item(one, is_anchor=one is told.anchor, full=full) for one in told.told]
    anchor = next((item for item in items if item.is_anchor), None)
    return answer(TimelineOut(anchor=anchor, at_epoch=epoch_ms(told.at), items=items))


async def _told(
    conn: Conn, who: Principal, project_id: UUID | None, asked: TimelineIn, by: Ranking, sought: Sought | None
) -> Timeline | None:
    session = await sessions.one(conn, who, asked.session) if asked.session else None
    if session is not None:
        if project_id not in {None, session.project_id}:
            raise NotFound(sessions.NO_SUCH)
        project_id = session.project_id
    full = asked.format == "full"
    wanted = Around(
        before=asked.before,
        after=asked.after,
        what=frozenset(asked.kinds) if asked.kinds else EVERYTHING,
        session_id=session.id if session else None,
        prompt_chars=_ALL if full else PROMPT_CHARS,
    )
    via = "timeline.full" if full else "timeline"
    if asked.query is not None:
        return await around_best(conn, who, project_id, asked.query, wanted, ranking=by, sought=sought, via=via)
    return await timeline(conn, who, project_id, str(asked.anchor).strip(), wanted, via=via)


def _item(one: Observation | TimedPrompt, *, is_anchor: bool, full: bool) -> ItemOut:
    if isinstance(one, TimedPrompt):
        return ItemOut(
            what="prompt",
            id=one.event_id,
            number=None,
            prompt_number=one.prompt_number,
            project_id=one.project_id,
            session_id=one.server_session_id,
            type="prompt",
            title=None,
            text=one.text,
            read_tokens=one.cost,
            created_at_epoch=epoch_ms(one.created_at),
            is_anchor=is_anchor,
        )
    return ItemOut(
        what="summary" if one.kind == "summary" else "observation",
        id=one.id,
        number=one.number,
        prompt_number=one.prompt_number,
        project_id=one.project_id,
        session_id=one.server_session_id,
        type=type_shown(one.kind, one.type),
        title=one.title or (one.narrative or one.content)[:_TITLE_CHARS],
        text=one.content if full else None,
        read_tokens=one.cost,
        created_at_epoch=epoch_ms(one.created_at),
        is_anchor=is_anchor,
    )


_LINES = operation.Text("text/plain", "A line for each, below its day and session, when only text/plain is accepted.")

routes = [
    Operation(
        "POST", "/v1/timeline", post_timeline, scope="observations:read", body=TimelineIn, answers={200: (TimelineOut, _LINES)}
    ),
]
