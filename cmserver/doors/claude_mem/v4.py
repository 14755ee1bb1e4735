"""The worker of claude-mem 4: sessions by the number that they have in the client's own database. Unknown sessions are made."""

from __future__ import annotations

from typing import Literal, cast

import msgspec
from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import Response

from cmserver.access.projects import Projects
from cmserver.base.errors import Conflict, NotFound
from cmserver.base.http.operation import delete, get, post
from cmserver.base.http.wire import answer, db, dependency, read_sized
from cmserver.base.settings import Settings
from cmserver.doors.claude_mem import session_events
from cmserver.doors.claude_mem.session_events import AgentSession
from cmserver.doors.guest import admit_caller
from cmserver.generation.job_notifier import JobNotifier
from cmserver.generation.operate import repository as queue
from cmserver.ingest.session_lifecycle import checkpoint_turn, end_session
from cmserver.sessions.read import NO_SUCH
from cmserver.tooluse.read import read_tool_use

_ARCHIVED = "The project of this session is archived. An admin key brings it back."


class NumberConvertor(Convertor[int]):
    """A number of a client's database; leaves `/sessions/<uuid>/...` to other routes."""

    regex = "[0-9]{1,16}"

    def convert(self, value: str) -> int:
        return int(value)

    def to_string(self, value: int) -> str:
        return str(value)


register_url_convertor("number", NumberConvertor())


class BeginIn(msgspec.Struct, rename="camel", kw_only=True):
    """POST /sessions/{sessionDbId}/init."""

    project: str | None = None
    user_prompt: str | None = None


class UseIn(msgspec.Struct, kw_only=True):
    """POST /sessions/{sessionDbId}/observations. Texts that parse as JSON are taken as JSON."""

    tool_name: str = ""
    tool_input: object = None
    tool_output: object = None
    prompt_number: int | None = None


class TurnIn(msgspec.Struct, kw_only=True):
    """POST /sessions/{sessionDbId}/summarize."""

    prompt_number: int | None = None


class StartedSessionOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The session is open: `status` is always `initialized`."""

    status: Literal["initialized"] = "initialized"
    session_db_id: int
    port: int


class StoredEventOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The event is stored: `status` is always `queued`; `queueLength` is how many jobs of the session wait."""

    status: Literal["queued"] = "queued"
    queue_length: int


class StatusOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The session: `sdkSessionId` is the id of the session here; `project` is the name of its project; `pendingMessages` is how
    many jobs of the session wait.
    """

    session_db_id: int
    sdk_session_id: str
    project: str
    pending_messages: int


class EndedSessionOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The session has ended, and its waiting jobs still run: `status` is always `deleted`."""

    status: Literal["deleted"] = "deleted"
    session_db_id: int


async def post_init(request: Request) -> Response:
    """Open a session with its first prompt. A number used for another project before now means a new session."""
    speaker = await _speaker(request)
    message, size_bytes = await read_sized(request, BeginIn)
    prompt_result = await session_events.record_prompt(
        request, speaker, message.user_prompt, project_name=message.project, metadata={}, size_bytes=size_bytes, moves=True
    )
    if prompt_result is None:
        raise Conflict(_ARCHIVED)
    return answer(StartedSessionOut(session_db_id=_number(request), port=dependency(request, Settings).port))


async def post_observation(request: Request) -> Response:
    """A tool was used."""
    speaker = await _speaker(request)
    message, size_bytes = await read_sized(request, UseIn)
    payload = {
        "tool_name": message.tool_name,
        "tool_input": _value(message.tool_input),
        "tool_response": _value(message.tool_output),
    }
    return await _record(request, speaker, "tool_use", payload, message.prompt_number, size_bytes)


async def post_summarize(request: Request) -> Response:
    """The end of a turn. A summary is made when enough has happened since the last one."""
    speaker = await _speaker(request)
    message, size_bytes = await read_sized(request, TurnIn)
    return await _record(request, speaker, "turn_end", {}, message.prompt_number, size_bytes)


async def get_status(request: Request) -> Response:
    """A session, and how many of its jobs wait."""
    speaker = await _speaker(request)
    principal, existing_session = speaker.principal, await session_events.find_session(request, speaker)
    if existing_session is None:
        raise NotFound(NO_SUCH)
    project = await dependency(request, Projects).find(principal, str(existing_session.project_id))
    async with db(request).tenant(principal.team_id) as conn:
        waiting = await queue.waiting_of_session(conn, principal.team_id, existing_session.id)
    return answer(
        StatusOut(
            session_db_id=_number(request), sdk_session_id=str(existing_session.id), project=project.name, pending_messages=waiting
        )
    )


async def delete_session(request: Request) -> Response:
    """End a session. Its waiting jobs still run, and its summary is made."""
    speaker = await _speaker(request)
    principal, existing_session = speaker.principal, await session_events.find_session(request, speaker)
    if existing_session is None:
        raise NotFound(NO_SUCH)
    await end_session(db(request), dependency(request, JobNotifier), principal, existing_session.id)
    return answer(EndedSessionOut(session_db_id=_number(request)))


async def _record(
    request: Request,
    speaker: AgentSession,
    event_type: str,
    payload: dict[str, object],
    prompt_number: int | None,
    size_bytes: int,
) -> Response:
    """Record an event of the session; a checkpoint follows unless it is a tool use."""
    principal, existing_session = speaker.principal, await session_events.find_session(request, speaker)
    project = await session_events.find_project(request, speaker, existing_session)
    if project is None:
        raise Conflict(_ARCHIVED)
    recorded = await session_events.record_event(
        request,
        speaker,
        project,
        existing_session.id if existing_session else None,
        event_type=event_type,
        payload=payload,
        source_event_id=None,
        size_bytes=size_bytes,
        tool=read_tool_use(str(payload["tool_name"]), payload["tool_input"]) if event_type == "tool_use" else None,
        metadata={} if prompt_number is None else {"prompt_number": prompt_number},
    )
    session_id = recorded.event.server_session_id
    if session_id is None:
        raise NotFound(NO_SUCH)
    if event_type != "tool_use":
        await checkpoint_turn(
            db(request), dependency(request, JobNotifier), dependency(request, Settings), principal, project, session_id
        )
    async with db(request).tenant(principal.team_id) as conn:
        waiting = await queue.waiting_of_session(conn, principal.team_id, session_id)
    return answer(StoredEventOut(queue_length=waiting))


async def _speaker(request: Request) -> AgentSession:
    return AgentSession(principal=await admit_caller(request), session=f"v4:{_number(request)}", platform="claude")


def _number(request: Request) -> int:
    return cast("int", request.path_params["sessionDbId"])


def _value(message: object) -> object:
    """These clients send JSON within JSON."""
    if not isinstance(message, str) or not message.lstrip().startswith(("{", "[")):
        return message
    try:
        return msgspec.json.decode(message)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return message


routes = [
    post("/sessions/{sessionDbId:number}/init", post_init, "sessions:write", StartedSessionOut, body=BeginIn),
    post("/sessions/{sessionDbId:number}/observations", post_observation, "events:write", StoredEventOut, body=UseIn),
    post("/sessions/{sessionDbId:number}/summarize", post_summarize, "sessions:write", StoredEventOut, body=TurnIn),
    get("/sessions/{sessionDbId:number}/status", get_status, "observations:read", StatusOut),
    delete("/sessions/{sessionDbId:number}", delete_session, "sessions:write", EndedSessionOut),
]
