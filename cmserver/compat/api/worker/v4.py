"""The worker of claude-mem 4: sessions by the number that they have in the client's own database.

Everything is taken, and a session that is not known is made.
"""

from __future__ import annotations

from typing import Literal, cast

import msgspec
from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import Response

from cmserver.access.projects import Projects
from cmserver.base.errors import Conflict, NotFound
from cmserver.base.http.operation import Operation
from cmserver.base.http.wire import answer, body, convert, db
from cmserver.base.redaction.clean import decode_json
from cmserver.base.settings import Settings
from cmserver.compat.api.guest import guest
from cmserver.compat.api.worker import talk
from cmserver.compat.api.worker.talk import Speaker
from cmserver.generation.operate import repository as queue
from cmserver.ingest.ends import Ends
from cmserver.sessions.read import NO_SUCH

_ARCHIVED = "The project of this session is archived. An admin key brings it back."


class NumberConvertor(Convertor[int]):
    """A number of a client's database, so that `/sessions/<uuid>/...` stays free for others."""

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
    """POST /sessions/{sessionDbId}/observations. What is text but reads as JSON is taken as JSON."""

    tool_name: str = ""
    tool_input: object = None
    tool_output: object = None
    prompt_number: int | None = None


class TurnIn(msgspec.Struct, kw_only=True):
    """POST /sessions/{sessionDbId}/summarize."""

    prompt_number: int | None = None


class BegunOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The session is open."""

    status: Literal["initialized"] = "initialized"
    session_db_id: int
    port: int


class TakenOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """It is stored. So many jobs of the session wait."""

    status: Literal["queued"] = "queued"
    queue_length: int


class StatusOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The session; `sdkSessionId` is its id here, and so many of its jobs wait."""

    session_db_id: int
    sdk_session_id: str
    project: str
    pending_messages: int


class EndedOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The session has ended; what waits is still worked on."""

    status: Literal["deleted"] = "deleted"
    session_db_id: int


async def post_init(request: Request) -> Response:
    """Open a session with its first prompt. A number that had meant a session of another project means a new one from here on."""
    speaker = await _speaker(request)
    raw = await body(request)
    said = convert(decode_json(raw or b"{}"), BeginIn)
    told = await talk.prompted(request, speaker, said.user_prompt, named=said.project, metadata={}, size_bytes=len(raw), moves=True)
    if told is None:
        raise Conflict(_ARCHIVED)
    return answer(BegunOut(session_db_id=_number(request), port=cast("Settings", request.app.state.settings).port))


async def post_observation(request: Request) -> Response:
    """A tool was used."""
    speaker = await _speaker(request)
    raw = await body(request)
    said = convert(decode_json(raw or b"{}"), UseIn)
    payload = {
        "tool_name": said.tool_name,
        "tool_input": _value(said.tool_input),
        "tool_response": _value(said.tool_output),
    }
    return await _taken(request, speaker, "tool_use", payload, said.prompt_number, len(raw))


async def post_summarize(request: Request) -> Response:
    """The end of a turn. A summary is made when enough has happened since the last one."""
    speaker = await _speaker(request)
    raw = await body(request)
    said = convert(decode_json(raw or b"{}"), TurnIn)
    return await _taken(request, speaker, "turn_end", {}, said.prompt_number, len(raw))


async def get_status(request: Request) -> Response:
    """A session that is known, and how many of its jobs wait."""
    speaker = await _speaker(request)
    who, known = speaker.who, await talk.conversation(request, speaker)
    if known is None:
        raise NotFound(NO_SUCH)
    project = await cast("Projects", request.app.state.projects).find(who, str(known.project_id))
    async with db(request).tenant(who.team_id) as conn:
        waiting = await queue.waiting_of_session(conn, who.team_id, known.id)
    return answer(
        StatusOut(session_db_id=_number(request), sdk_session_id=str(known.id), project=project.name, pending_messages=waiting)
    )


async def delete_session(request: Request) -> Response:
    """End a session. Nothing of it is lost: what waits is worked on, and its summary is made."""
    speaker = await _speaker(request)
    who, known = speaker.who, await talk.conversation(request, speaker)
    if known is None:
        raise NotFound(NO_SUCH)
    await cast("Ends", request.app.state.ends).session(who, known.id)
    return answer(EndedOut(session_db_id=_number(request)))


async def _taken(
    request: Request,
    speaker: Speaker,
    event_type: str,
    payload: dict[str, object],
    prompt_number: int | None,
    size_bytes: int,
) -> Response:
    who, known = speaker.who, await talk.conversation(request, speaker)
    project = await talk.project_of(request, speaker, known)
    if project is None:
        raise Conflict(_ARCHIVED)
    recorded = await talk.stored(
        request,
        speaker,
        project,
        known.id if known else None,
        event_type=event_type,
        payload=payload,
        source_event_id=None,
        generate=event_type == "tool_use",
        size_bytes=size_bytes,
        metadata={} if prompt_number is None else {"prompt_number": prompt_number},
    )
    session_id = recorded.event.server_session_id
    if session_id is None:
        raise NotFound(NO_SUCH)
    if event_type != "tool_use":
        await cast("Ends", request.app.state.ends).turn(who, session_id)
    async with db(request).tenant(who.team_id) as conn:
        waiting = await queue.waiting_of_session(conn, who.team_id, session_id)
    return answer(TakenOut(queue_length=waiting))


async def _speaker(request: Request) -> Speaker:
    return Speaker(who=await guest(request), session=f"v4:{_number(request)}", platform="claude")


def _number(request: Request) -> int:
    return cast("int", request.path_params["sessionDbId"])


def _value(said: object) -> object:
    """These clients send JSON within JSON."""
    if not isinstance(said, str) or not said.lstrip().startswith(("{", "[")):
        return said
    try:
        return msgspec.json.decode(said)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return said


routes = [
    Operation(
        "POST",
        "/sessions/{sessionDbId:number}/init",
        post_init,
        scope="sessions:write",
        body=BeginIn,
        answers={200: BegunOut},
    ),
    Operation(
        "POST",
        "/sessions/{sessionDbId:number}/observations",
        post_observation,
        scope="events:write",
        body=UseIn,
        answers={200: TakenOut},
    ),
    Operation(
        "POST",
        "/sessions/{sessionDbId:number}/summarize",
        post_summarize,
        scope="sessions:write",
        body=TurnIn,
        answers={200: TakenOut},
    ),
    Operation("GET", "/sessions/{sessionDbId:number}/status", get_status, scope="observations:read", answers={200: StatusOut}),
    Operation("DELETE", "/sessions/{sessionDbId:number}", delete_session, scope="sessions:write", answers={200: EndedOut}),
]
