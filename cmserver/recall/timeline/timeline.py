"""What happened around a moment, an observation or a turn: what came before it and after it, in the order of time.

An agent reads it as a line for each entry, or the whole of it, below its day, session and project.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from itertools import groupby
from uuid import UUID

import msgspec

from cmserver.access import repository as access
from cmserver.access.model import Principal
from cmserver.access.projects import Projects
from cmserver.base.db import Db
from cmserver.base.errors import Invalid, NotFound
from cmserver.base.ids import from_iso, named_id
from cmserver.base.sql import Conn
from cmserver.embeddings.model import QueryVector
from cmserver.embeddings.query_embedder import QueryEmbedder
from cmserver.observations.model import Observation
from cmserver.observations.past.model import Moment, read_moment
from cmserver.observations.past.travel import VIA, travel
from cmserver.observations.plain import fence, observation_lines, one_line, source_shown, turn_kind, turn_sides
from cmserver.observations.read import NO_SUCH, audit_read, find_observation, parse_name, parse_number
from cmserver.recall.search.model import Ranking
from cmserver.recall.search.search import find_best
from cmserver.recall.timeline import repository
from cmserver.recall.timeline.model import ALL_KINDS, PROMPT_CHARS, TimedTurn, Timeline, TimelinePosition, TimelineRange
from cmserver.recall.timeline.wire import TimelineIn
from cmserver.sessions.read import NO_SUCH as NO_SUCH_SESSION
from cmserver.sessions.read import audit_prompt_read, find_session

_MIN_ID, _MAX_ID = UUID(int=0), UUID(int=2**128 - 1)
_MAX_PROMPT_CHARS = 2**31 - 1
_TITLE_CHARS = 160
_NAME_CHARS = 160
_ANCHOR = "→ "
_INVALID_ANCHOR = (
    "Invalid anchor: send the number of an observation (12, #12) or a summary (S12), an id, or a time (2026-11-22T10:00:00Z)."
)
_ONE_ANCHOR = "Send either `anchor` (a number, an id or a time) or `query` (words to search for)."


class Timelines:
    """Reads timelines for the API and the MCP tools."""

    def __init__(self, db: Db, projects: Projects, embedder: QueryEmbedder, ranking: Ranking) -> None:
        self._db = db
        self._projects = projects
        self._embedder = embedder
        self._ranking = ranking

    async def read(self, principal: Principal, request: TimelineIn) -> Timeline | None:
        """The timeline; None where a query finds nothing. Raises Invalid or NotFound."""
        if (request.anchor is None) == (request.query is None):
            raise Invalid.at("$.anchor", _ONE_ANCHOR)
        moment = read_moment(request.as_of, request.known_at)
        project_id = principal.project_id
        if request.project_id is not None:
            project_id = (await self._projects.named_or_own(principal, request.project_id, at="$.projectId")).id
        vector = await self._embedder.embed(request.query) if request.query else None
        async with self._db.tenant(principal.team_id) as conn:
            if moment is not None:
                await travel(conn, principal.team_id, [project_id] if project_id else None, moment)
            timeline = await _read(conn, principal, project_id, request, self._ranking, vector, moment)
            project_ids = {entry.project_id for entry in timeline.entries} if timeline else set[UUID]()
            if timeline is None or len(project_ids) < 2:
                return timeline
            names = await access.names_of(conn, principal.team_id, project_ids)
            return msgspec.structs.replace(timeline, project_names=names)


async def _read(
    conn: Conn,
    principal: Principal,
    project_id: UUID | None,
    request: TimelineIn,
    ranking: Ranking,
    vector: QueryVector | None,
    moment: Moment | None,
) -> Timeline | None:
    """The timeline around the request's anchor, or the best hit of its query; None where the query finds nothing."""
    session = await find_session(conn, principal, request.session) if request.session else None
    if session is not None:
        if project_id not in {None, session.project_id}:
            raise NotFound(NO_SUCH_SESSION)
        project_id = session.project_id
    full = request.format == "full"
    span = TimelineRange(
        before=request.before,
        after=request.after,
        kinds=frozenset(request.kinds) if request.kinds else ALL_KINDS,
        session_id=session.id if session else None,
        prompt_chars=_MAX_PROMPT_CHARS if full else PROMPT_CHARS,
    )
    via = VIA if moment else "timeline.full" if full else "timeline"
    if request.query is not None:
        best = await find_best(conn, principal, project_id, request.query, ranking, vector, at=moment.earliest if moment else None)
        return await _read_around(conn, principal, project_id, best, span, via) if best else None
    anchor = str(request.anchor).strip()
    if parse_number(anchor) is not None or named_id(anchor):
        return await _read_around(conn, principal, project_id, await _find_entry(conn, principal, anchor, span), span, via)
    try:
        at = from_iso(anchor)
    except ValueError as error:
        raise Invalid.at("$.anchor", _INVALID_ANCHOR) from error
    position = TimelinePosition(at=at, observation_id=_MIN_ID, turn_id=_MIN_ID)
    return await _read_at(conn, principal, project_id, position, None, span, via)


async def _read_around(
    conn: Conn, principal: Principal, project_id: UUID | None, anchor: Observation | TimedTurn, span: TimelineRange, via: str
) -> Timeline:
    """The timeline around this observation or turn, in its project if none is given."""
    if project_id is None:
        project_id = principal.project_id or anchor.project_id
    # Of what bears the same moment, a turn stands before what came of it.
    if isinstance(anchor, Observation):
        position = TimelinePosition(at=anchor.created_at, observation_id=anchor.id, turn_id=_MAX_ID)
    else:
        position = TimelinePosition(at=anchor.created_at, observation_id=_MIN_ID, turn_id=anchor.id)
    return await _read_at(conn, principal, project_id, position, anchor, span, via)


async def _read_at(
    conn: Conn,
    principal: Principal,
    project_id: UUID | None,
    position: TimelinePosition,
    anchor: Observation | TimedTurn | None,
    span: TimelineRange,
    via: str,
) -> Timeline:
    """The timeline before and after the position, audited as read."""
    earlier = await repository.earlier(conn, principal.team_id, project_id, position, span)
    later = await repository.later(conn, principal.team_id, project_id, position, span)
    before = sorted(earlier, key=_sort_key)[-span.before :] if span.before else []
    entries = [*before, *([anchor] if anchor else []), *sorted(later, key=_sort_key)[: span.after]]
    await audit_read(conn, principal, project_id, via, [entry for entry in entries if isinstance(entry, Observation)])
    await audit_prompt_read(conn, principal, project_id, sum(isinstance(entry, TimedTurn) for entry in entries))
    return Timeline(at=position.at, anchor=anchor, entries=principal.named(entries))


def _sort_key(entry: Observation | TimedTurn) -> tuple[datetime, bool, UUID]:
    if isinstance(entry, Observation):
        return entry.created_at, True, entry.id
    return entry.created_at, False, entry.id


async def _find_entry(conn: Conn, principal: Principal, name: str, span: TimelineRange) -> Observation | TimedTurn:
    """The observation, or else the turn, of that number or id; NotFound when there is neither."""
    try:
        return await find_observation(conn, principal, name)
    except NotFound:
        named = parse_name(name)
        turn = await repository.turn_of(conn, principal.team_id, named, span.prompt_chars) if named else None
        if turn is None or not principal.sees(turn.project_id):
            raise NotFound(NO_SUCH) from None
        return turn


def render_timeline(timeline: Timeline, *, full: bool) -> str:
    """All entries as one block, oldest first, with an arrow before the anchor."""
    return fence(f"{line}\n" for line in _render_lines(timeline, full=full))


def _render_lines(timeline: Timeline, *, full: bool) -> Iterator[str]:
    for (day, session_id, project_id), group in groupby(timeline.entries, key=_heading):
        project = timeline.project_names.get(project_id)
        suffix = f", {one_line(project, _NAME_CHARS)}" if project else ""
        yield f"{day}, {f'session {session_id}' if session_id else 'without a session'}{suffix}"
        for entry in group:
            mark = _ANCHOR if entry is timeline.anchor else ""
            yield from _render_whole(entry, mark) if full else [f"{mark}{_render_line(entry)}"]


def _heading(entry: Observation | TimedTurn) -> tuple[date, UUID | None, UUID]:
    return entry.created_at.astimezone(UTC).date(), entry.server_session_id, entry.project_id


def _render_line(entry: Observation | TimedTurn) -> str:
    at = f"{entry.created_at.astimezone(UTC):%H:%M}"
    if isinstance(entry, TimedTurn):
        return f"#{entry.number} {at} {turn_kind(entry.agent_id)} {one_line(entry.line, _TITLE_CHARS)} ~{entry.cost}"
    title = one_line(entry.title or entry.narrative or entry.content, _TITLE_CHARS)
    return f"#{entry.number} {at} {source_shown(entry)} {title} ~{entry.cost}"


def _render_whole(entry: Observation | TimedTurn, mark: str) -> Iterator[str]:
    if isinstance(entry, TimedTurn):
        yield f"{mark}#{entry.number} {entry.created_at.astimezone(UTC):%H:%M} {turn_kind(entry.agent_id)}"
        yield from turn_sides(entry.prompt, entry.reply, entry.agent_id)
    else:
        first, *rest = observation_lines(entry)
        yield from (f"{mark}{first}", *rest)
