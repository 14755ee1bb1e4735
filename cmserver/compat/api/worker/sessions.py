"""What claude-mem's hooks tell its worker: prompts, uses of tools, and the ends of turns."""

from __future__ import annotations

from typing import Annotated, Literal, TypeVar, cast
from uuid import UUID

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from cmserver.access.model import Principal
from cmserver.base.http.operation import Operation
from cmserver.base.http.wire import answer, body, convert
from cmserver.base.redaction.clean import decode_json
from cmserver.base.text import KEY_MOST, storable
from cmserver.compat import prompts
from cmserver.compat.api.guest import guest
from cmserver.compat.api.worker import talk
from cmserver.compat.api.worker.rows import platform_asked
from cmserver.compat.api.worker.talk import Speaker
from cmserver.compat.platform import platform
from cmserver.ingest.ends import Ends
from cmserver.ingest.ours import is_look

T = TypeVar("T")
AgentsId = Annotated[str, Meta(min_length=1, max_length=KEY_MOST)]

_SKIPPED_TOOLS = frozenset({"ListMcpResourcesTool", "SlashCommand", "Skill", "TodoWrite", "AskUserQuestion"})
_NOTES_OF_SESSIONS = "session-memory"
_PATHS = ("file_path", "notebook_path", "path")


class _Said(msgspec.Struct, kw_only=True):
    """What all of them say: the session as its agent calls it, and which agent that is."""

    session: AgentsId = msgspec.field(name="contentSessionId")
    platform_camel: str | None = msgspec.field(name="platformSource", default=None)
    platform_snake: str | None = msgspec.field(name="platform_source", default=None)
    agent_id: str | None = msgspec.field(name="agentId", default=None)
    agent_type: str | None = msgspec.field(name="agentType", default=None)


class InitIn(_Said, kw_only=True):
    """POST /api/sessions/init: a prompt, before the agent answers it."""

    project: str | None = None
    prompt: str | None = None
    custom_title: str | None = msgspec.field(name="customTitle", default=None)


class ObservationIn(_Said, kw_only=True):
    """POST /api/sessions/observations: a tool was used."""

    tool_name: Annotated[str, Meta(min_length=1)]
    tool_input: object = None
    tool_response: object = None
    cwd: str | None = None
    tool_use_id: str | None = None
    tool_use_id_camel: str | None = msgspec.field(name="toolUseId", default=None)


class SummarizeIn(_Said, kw_only=True):
    """POST /api/sessions/summarize: the agent has answered."""

    last_assistant_message: str | None = None


class InitOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True, omit_defaults=True):
    """`sessionDbId` stands for the session in numbers. A prompt that is `skipped` is not worked with.

    `contextInjected` says whether the session was known before.
    """

    skipped: bool
    session_db_id: int | None = None
    prompt_number: int | None = None
    context_injected: bool | None = None
    status: Literal["initialized"] | None = None
    reason: Literal["private", "duplicate", "internal_protocol", "project_excluded"] | None = None


class QueuedOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """It is stored. `generationJobId` is what observations, or the summary, will be made by; null when nothing will."""

    status: Literal["queued"] = "queued"
    observation_count: int = 1
    session_id: str
    server_session_id: UUID | None
    event_id: UUID
    generation_job_id: UUID | None
    transport: Literal["enqueued", "skipped"]


class SkippedOut(msgspec.Struct, frozen=True, kw_only=True):
    """It is not stored, and why."""

    status: Literal["skipped"] = "skipped"
    reason: Literal["project_excluded", "tool_excluded", "session_memory_meta", "private", "subagent_context"]


async def post_init(request: Request) -> Response:
    """A prompt of a session, which begins with its first one.

    The project that is named is remembered with the session: what is told of it later goes there too.
    """
    who = await guest(request)
    said, size_bytes = await _read(request, InitIn)
    if prompts.is_protocol(said.prompt or ""):
        return answer(InitOut(skipped=True, reason="internal_protocol"))
    title: dict[str, object] = {"customTitle": said.custom_title} if said.custom_title else {}
    told = await talk.prompted(
        request, _speaker(request, who, said), said.prompt, named=said.project, metadata=title, size_bytes=size_bytes
    )
    if told is None:
        return answer(InitOut(skipped=True, reason="project_excluded"))
    number, of_prompt = talk.session_number(told.session_id), told.number
    if told.is_private:
        return answer(InitOut(session_db_id=number, prompt_number=of_prompt, skipped=True, reason="private"))
    if told.is_repeated:
        return answer(
            InitOut(session_db_id=number, prompt_number=of_prompt, skipped=True, reason="duplicate", context_injected=told.is_known)
        )
    return answer(
        InitOut(
            session_db_id=number,
            prompt_number=of_prompt,
            skipped=False,
            context_injected=told.is_known,
            status="initialized",
        )
    )


async def post_observation(request: Request) -> Response:
    """A tool was used. With an id of its own, the same use told twice is stored once.

    After a prompt that was private from end to end nothing is stored until the next prompt.
    """
    who = await guest(request)
    said, size_bytes = await _read(request, ObservationIn)
    if said.tool_name in _SKIPPED_TOOLS or is_look(said.tool_name, said.tool_input):
        return answer(SkippedOut(reason="tool_excluded"))
    if _is_about_notes(said.tool_input):
        return answer(SkippedOut(reason="session_memory_meta"))
    speaker = _speaker(request, who, said)
    known = await talk.conversation(request, speaker)
    if known is not None and known.is_private:
        return answer(SkippedOut(reason="private"))
    project = await talk.project_of(request, speaker, known, folder=said.cwd)
    if project is None:
        return answer(SkippedOut(reason="project_excluded"))
    recorded = await talk.stored(
        request,
        speaker,
        project,
        known.id if known else None,
        event_type="tool_use",
        payload={
            "tool_name": said.tool_name,
            "tool_input": said.tool_input,
            "tool_response": said.tool_response,
            "cwd": said.cwd,
        },
        source_event_id=_tool_use(said.tool_use_id or said.tool_use_id_camel),
        generate=True,
        size_bytes=size_bytes,
        metadata=_agent(said),
    )
    job = recorded.job
    return answer(
        QueuedOut(
            session_id=speaker.session,
            server_session_id=recorded.event.server_session_id,
            event_id=recorded.event.id,
            generation_job_id=job.id if job else None,
            transport="enqueued" if job else "skipped",
        )
    )


async def post_summarize(request: Request) -> Response:
    """The end of a turn, with the last thing that the agent said. A summary is made when enough has happened since the last one."""
    who = await guest(request)
    said, size_bytes = await _read(request, SummarizeIn)
    if said.agent_id:
        return answer(SkippedOut(reason="subagent_context"))
    speaker = _speaker(request, who, said)
    known = await talk.conversation(request, speaker)
    if known is not None and known.is_private:
        return answer(SkippedOut(reason="private"))
    project = await talk.project_of(request, speaker, known)
    if project is None:
        return answer(SkippedOut(reason="project_excluded"))
    recorded = await talk.stored(
        request,
        speaker,
        project,
        known.id if known else None,
        event_type="assistant_message",
        payload={"last_assistant_message": said.last_assistant_message or ""},
        source_event_id=None,
        generate=False,
        size_bytes=size_bytes,
    )
    session_id = recorded.event.server_session_id
    job = await cast("Ends", request.app.state.ends).turn(who, session_id) if session_id else None
    return answer(
        QueuedOut(
            session_id=speaker.session,
            server_session_id=session_id,
            event_id=recorded.event.id,
            generation_job_id=job.id if job else None,
            transport="enqueued" if job else "skipped",
        )
    )


async def _read(request: Request, type_: type[T]) -> tuple[T, int]:
    raw = await body(request)
    return convert(decode_json(raw or b"{}"), type_), len(raw)


def _speaker(request: Request, who: Principal, said: _Said) -> Speaker:
    named = request.query_params.get("platformSource"), request.query_params.get("platform_source")
    asked = platform_asked(request, said.platform_camel, said.platform_snake, *named)
    return Speaker(who=who, session=storable(said.session), platform=asked or platform(None))


def _agent(said: _Said) -> dict[str, object]:
    """An agent within the session, who is told apart."""
    given = {"agent_id": said.agent_id, "agent_type": said.agent_type}
    return {name: storable(text)[:KEY_MOST] for name, text in given.items() if text}


def _tool_use(named: str | None) -> str | None:
    key = f"tool:{storable(named)}" if named else None
    return key if key and len(key) <= KEY_MOST else None


def _is_about_notes(tool_input: object) -> bool:
    """Whether the agent works on its own notes about its sessions."""
    if not isinstance(tool_input, dict):
        return False
    paths = [tool_input.get(name) for name in _PATHS]  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
    return any(isinstance(path, str) and _NOTES_OF_SESSIONS in path for path in paths)  # pyright: ignore[reportUnknownVariableType]


routes = [
    Operation("POST", "/api/sessions/init", post_init, scope="sessions:write", body=InitIn, answers={200: InitOut}),
    Operation(
        "POST",
        "/api/sessions/observations",
        post_observation,
        scope="events:write",
        body=ObservationIn,
        answers={200: (QueuedOut, SkippedOut)},
    ),
    Operation(
        "POST",
        "/api/sessions/summarize",
        post_summarize,
        scope="sessions:write",
        body=SummarizeIn,
        answers={200: (QueuedOut, SkippedOut)},
    ),
]
