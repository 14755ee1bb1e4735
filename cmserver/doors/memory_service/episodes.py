"""Episodes of the memory-service: turns that its clients write, one request each."""

from __future__ import annotations

from typing import cast
from uuid import UUID

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from cmserver.access import announce, audit
from cmserver.access.model import Principal
from cmserver.base.errors import Invalid, NotFound
from cmserver.base.http.operation import delete, get, post
from cmserver.base.http.wire import answer, db, dependency, path_id, query, read_sized
from cmserver.base.ids import new_id
from cmserver.base.settings import Settings
from cmserver.base.sql import Conn
from cmserver.base.text import Key, cut_query
from cmserver.doors.memory_service import frame
from cmserver.embeddings.query_embedder import QueryEmbedder
from cmserver.generation.job_notifier import JobNotifier
from cmserver.generation.turn_names import request_turn_names
from cmserver.observations import repository as observations
from cmserver.recall.search.model import Filters, Ranking, SearchRequest
from cmserver.recall.search.search import find_page
from cmserver.redaction.clean import clean_aside
from cmserver.sessions import repository as sessions
from cmserver.sessions.read import NO_SUCH as NO_SUCH_SESSION
from cmserver.sessions.read import audit_prompt_read
from cmserver.sessions.turns import repository as turns
from cmserver.sessions.turns.model import NewTurn, SessionTurn, cut_side, parse_turn_name
from cmserver.sessions.turns.read import read_turn


class EpisodeIn(msgspec.Struct, rename="camel", kw_only=True):
    """What the user said, and what the assistant answered."""

    session_id: UUID
    user_message: frame.Words
    ai_response: frame.Words


class EpisodesQuery(frame.ServicePageQuery, rename="camel", kw_only=True):
    """Of all sessions, of one, or of a project."""

    session_id: UUID | None = None
    project_id: Key | None = None


class EpisodeSearchQuery(msgspec.Struct, rename="camel", kw_only=True):
    """The words to search for, in all sessions, in one, or in a project."""

    q: frame.Words
    limit: frame.PageSize = 20
    session_id: UUID | None = None
    project_id: Key | None = None


async def get_episodes(request: Request) -> Response:
    """A page of episodes, newest first."""
    principal = await frame.admit(request)
    params = query(request, EpisodesQuery)
    async with db(request).tenant(principal.team_id) as conn:
        project_id, session_id = await frame.find_scope(conn, principal, params.project_id, params.session_id)
        return answer(await _page(conn, principal, params, session_id, project_id))


async def get_session_episodes(request: Request) -> Response:
    """A page of a session's episodes, newest first."""
    principal = await frame.admit(request)
    session_id = path_id(request, NO_SUCH_SESSION)
    async with db(request).tenant(principal.team_id) as conn:
        session = await frame.require_session(conn, principal, session_id)
        return answer(await _page(conn, principal, query(request, frame.ServicePageQuery), session.id, session.project_id))


async def _page(
    conn: Conn, principal: Principal, params: frame.ServicePageQuery, session_id: UUID | None, project_id: UUID | None
) -> list[frame.EpisodeOut]:
    rows = await turns.newest(
        conn,
        principal.team_id,
        project_id=project_id,
        session_id=session_id,
        limit=params.limit,
        offset=params.offset,
        of_users=True,
    )
    await audit_prompt_read(conn, principal, project_id, len(rows))
    return [*map(frame.episode_out, rows)]


async def post_episode(request: Request) -> Response:
    """Keep an episode."""
    principal = await frame.admit(request)
    new, size_bytes = await read_sized(request, EpisodeIn)
    settings = dependency(request, Settings)
    sides = {"userMessage": new.user_message, "aiResponse": new.ai_response}
    cleaned = cast("dict[str, str]", (await clean_aside(sides, size_bytes=size_bytes, at="$")).value)

    async def write(conn: Conn) -> SessionTurn:
        session = await sessions.lock(conn, principal.team_id, new.session_id)
        if session is None or not principal.sees(session.project_id):
            raise NotFound(NO_SUCH_SESSION)
        turn_id = new_id()
        await audit.record(conn, principal, "turn.created", "turn", turn_id, project_id=session.project_id)
        await sessions.seen(conn, principal.team_id, session.id)
        (number,) = await observations.take_numbers(conn, principal.team_id, 1, for_turns=True)
        turn = NewTurn(
            id=turn_id,
            number=number,
            project_id=session.project_id,
            session_id=session.id,
            event_id=None,
            prompt=cut_side(cleaned["userMessage"]),
            reply=cut_side(cleaned["aiResponse"]),
            actor_id=principal.actor_id,
        )
        await turns.insert(conn, principal.team_id, turn)
        await announce.notify_stream(conn)
        (stored,) = await turns.by_ids(conn, principal.team_id, [turn_id])
        if settings.entities == "model":
            await request_turn_names(conn, principal, stored)
        return stored

    stored = await db(request).in_tenant(principal.team_id, write)
    dependency(request, JobNotifier).notify_due()
    return answer(frame.episode_out(stored), 201)


async def get_search(request: Request) -> Response:
    """Episodes that match the query by words and meaning, the best first."""
    principal = await frame.admit(request)
    params = query(request, EpisodeSearchQuery)
    text = cut_query(params.q)
    vector = await dependency(request, QueryEmbedder).embed(text)
    async with db(request).tenant(principal.team_id) as conn:
        project_id, session_id = await frame.find_scope(conn, principal, params.project_id, params.session_id)
        search = SearchRequest(
            query=text,
            project_ids=[project_id] if project_id else None,
            filters=Filters(kinds=["turn"], session_id=session_id, of_users=True),
            limit=params.limit,
        )
        page = await find_page(conn, principal, search, dependency(request, Ranking), vector)
        found = [hit.turn for hit in page.hits if hit.turn]
        await audit_prompt_read(conn, principal, project_id, len(found))
    return answer([*map(frame.episode_out, found)])


async def get_episode(request: Request) -> Response:
    """One episode."""
    principal = await frame.admit(request)
    async with db(request).tenant(principal.team_id) as conn:
        return answer(frame.episode_out(await read_turn(conn, principal, _path_name(request))))


async def delete_episode(request: Request) -> Response:
    """Delete an episode; one that came by a hook stays, because its events do."""
    principal = await frame.admit(request)

    async def delete(conn: Conn) -> frame.DeletionOut:
        turn = await read_turn(conn, principal, _path_name(request))
        if turn.event_id is not None:
            raise Invalid("This turn came by an agent's hook. Delete its session instead.")
        await turns.delete(conn, principal.team_id, turn.id)
        await audit.record(conn, principal, "turn.deleted", "turn", turn.id, project_id=turn.project_id, number=turn.number)
        await announce.notify_stream(conn)
        return frame.DeletionOut(id=turn.id)

    return answer(await db(request).in_tenant(principal.team_id, delete))


def _path_name(request: Request) -> int | UUID | None:
    """The number or the id in the path; None where it is neither."""
    return parse_turn_name(str(request.path_params["id"]))


routes = [
    get("/episodes", get_episodes, "observations:read", list[frame.EpisodeOut], query=EpisodesQuery),
    post("/episodes", post_episode, "events:write", frame.EpisodeOut, status=201, body=EpisodeIn),
    get("/episodes/search", get_search, "observations:read", list[frame.EpisodeOut], query=EpisodeSearchQuery),
    get("/episodes/{id}", get_episode, "observations:read", frame.EpisodeOut),
    delete("/episodes/{id}", delete_episode, "observations:write", frame.DeletionOut),
    get("/sessions/{id}/episodes", get_session_episodes, "observations:read", list[frame.EpisodeOut], query=frame.ServicePageQuery),
]
