"""Routes of claude-mem's hooks: prompts, tool uses, and ends of turns."""

from __future__ import annotations

from typing import Annotated, Literal
from uuid import UUID

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from cmserver.access.model import Principal, Project
from cmserver.base.http.operation import post
from cmserver.base.http.wire import answer, db, dependency, read_sized
from cmserver.base.settings import Settings
from cmserver.base.text import KEY_MOST, storable
from cmserver.doors.claude_mem import session_events
from cmserver.doors.claude_mem.rows import platform, requested_platform
from cmserver.doors.claude_mem.session_events import AgentSession
from cmserver.doors.guest import admit_caller
from cmserver.generation.job_notifier import JobNotifier
from cmserver.ingest.door import STORED, Arrival, find_rule
from cmserver.ingest.session_lifecycle import checkpoint_turn, end_session
from cmserver.reading.model import REPLY_TYPE
from cmserver.redaction.redact import Identifiers
from cmserver.sessions.model import SessionAndLastPrompt
from cmserver.tooluse.read import read_tool_use

AgentsId = Annotated[str, Meta(min_length=1, max_length=KEY_MOST)]

SkipReason = Literal["project_excluded", "tool_excluded", "session_memory_meta", "private", "subagent_context"]

_REASONS: dict[str, SkipReason] = {
    "own_memory": "tool_excluded",
    "tool_excluded": "tool_excluded",
    "session_memory_meta": "session_memory_meta",
    "subagent_context": "subagent_context",
    "private": "private",
    "project_excluded": "project_excluded",
}
"""claude-mem's words for the rules of the door by which an event is not stored."""


class _SessionMessageIn(msgspec.Struct, kw_only=True):
    """What all requests have: the session's id at its agent, the kind of agent, its model, and how that is paid."""

    session: AgentsId = msgspec.field(name="contentSessionId")
    platform_camel: str | None = msgspec.field(name="platformSource", default=None)
    platform_snake: str | None = msgspec.field(name="platform_source", default=None)
    agent_id: str | None = msgspec.field(name="agentId", default=None)
    agent_type: str | None = msgspec.field(name="agentType", default=None)
    observed_model: object = msgspec.field(name="observedModel", default=None)
    observed_billing: object = msgspec.field(name="observedBilling", default=None)


class InitIn(_SessionMessageIn, kw_only=True):
    """POST /api/sessions/init: a prompt, before the agent answers it. `prompt` is what the user wrote."""

    project: str | None = None
    prompt: str | None = None
    custom_title: str | None = msgspec.field(name="customTitle", default=None)


class ToolUseIn(_SessionMessageIn, kw_only=True):
    """POST /api/sessions/observations: a tool was used."""

    tool_name: Annotated[str, Meta(min_length=1)]
    tool_input: object = None
    tool_response: object = None
    cwd: str | None = None
    tool_use_id: str | None = None
    tool_use_id_camel: str | None = msgspec.field(name="toolUseId", default=None)


class SummarizeIn(_SessionMessageIn, kw_only=True):
    """POST /api/sessions/summarize: the agent has answered."""

    last_assistant_message: str | None = None


class SessionEndIn(_SessionMessageIn, kw_only=True):
    """POST /api/sessions/session-end: the session is over. `reason` is why, which is not kept."""

    reason: object = None
    cwd: object = None


class SessionEndOut(msgspec.Struct, frozen=True, kw_only=True):
    """`status` is whether there was such a session, which is ended now."""

    status: Literal["accepted", "unknown_session"]


class InitOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True, omit_defaults=True):
    """`sessionDbId` is a number for the session. `skipped` is whether nothing is generated from the prompt; `reason` is why.

    `contextInjected` is whether the session existed before. `status` is `initialized`, or left out for a skipped one.
    """

    skipped: bool
    session_db_id: int | None = None
    prompt_number: int | None = None
    context_injected: bool | None = None
    status: Literal["initialized"] | None = None
    reason: Literal["private", "duplicate", "internal_protocol", "project_excluded"] | None = None


class WorkerEventOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The event is stored: `status` is always `queued`.

    `generationJobId` is the job that makes its observations or the summary, or null without one; `transport` is whether a job was
    queued. `observationCount` is always 1.
    """

    status: Literal["queued"] = "queued"
    observation_count: int = 1
    session_id: str
    server_session_id: UUID | None
    event_id: UUID
    generation_job_id: UUID | None
    transport: Literal["enqueued", "skipped"]


class SkippedEventOut(msgspec.Struct, frozen=True, kw_only=True):
    """The event is not stored: `status` is always `skipped`; `reason` is why."""

    status: Literal["skipped"] = "skipped"
    reason: SkipReason


async def post_init(request: Request) -> Response:
    """Record a prompt; the first one starts the session in the named project, where its later events go too."""
    principal = await admit_caller(request)
    message, size_bytes = await read_sized(request, InitIn)
    if session_events.is_protocol(message.prompt or ""):
        return answer(InitOut(skipped=True, reason="internal_protocol"))
    title: dict[str, object] = {"customTitle": message.custom_title} if message.custom_title else {}
    prompt_result = await session_events.record_prompt(
        request,
        _speaker(request, principal, message),
        message.prompt,
        project_name=message.project,
        metadata={**title, **_model(message)},
        size_bytes=size_bytes,
    )
    if prompt_result is None:
        return answer(InitOut(skipped=True, reason="project_excluded"))
    number, prompt_number = session_events.session_number(prompt_result.session_id), prompt_result.number
    if prompt_result.is_private:
        return answer(InitOut(session_db_id=number, prompt_number=prompt_number, skipped=True, reason="private"))
    if prompt_result.is_repeated:
        return answer(
            InitOut(
                session_db_id=number,
                prompt_number=prompt_number,
                skipped=True,
                reason="duplicate",
                context_injected=prompt_result.is_known,
            )
        )
    return answer(
        InitOut(
            session_db_id=number,
            prompt_number=prompt_number,
            skipped=False,
            context_injected=prompt_result.is_known,
            status="initialized",
        )
    )


async def post_observation(request: Request) -> Response:
    """Record a tool use; one with an id is stored once.

    After a wholly private prompt nothing is stored until the next prompt.
    """
    principal = await admit_caller(request)
    message, size_bytes = await read_sized(request, ToolUseIn)
    tool = read_tool_use(message.tool_name, message.tool_input)
    speaker = _speaker(request, principal, message)
    place = await _admit(request, speaker, Arrival(event_type="tool_use", tool=tool, by_claude_mem=True), folder=message.cwd)
    if isinstance(place, SkippedEventOut):
        return answer(place)
    existing_session, project = place
    recorded = await session_events.record_event(
        request,
        speaker,
        project,
        existing_session.id if existing_session else None,
        event_type="tool_use",
        payload={
            "tool_name": message.tool_name,
            "tool_input": message.tool_input,
            "tool_response": message.tool_response,
            "cwd": message.cwd,
        },
        source_event_id=_event_id(message.tool_use_id or message.tool_use_id_camel),
        size_bytes=size_bytes,
        tool=tool,
        metadata=_agent(message),
    )
    job = recorded.job
    return answer(
        WorkerEventOut(
            session_id=speaker.session,
            server_session_id=recorded.event.server_session_id,
            event_id=recorded.event.id,
            generation_job_id=job.id if job else None,
            transport="enqueued" if job else "skipped",
        )
    )


async def post_summarize(request: Request) -> Response:
    """Record the agent's last message of a turn. A summary is made when enough has happened since the last one."""
    principal = await admit_caller(request)
    message, size_bytes = await read_sized(request, SummarizeIn)
    speaker = _speaker(request, principal, message)
    place = await _admit(request, speaker, Arrival(event_type=REPLY_TYPE, by_claude_mem=True, is_subagent=bool(message.agent_id)))
    if isinstance(place, SkippedEventOut):
        return answer(place)
    existing_session, project = place
    recorded = await session_events.record_event(
        request,
        speaker,
        project,
        existing_session.id if existing_session else None,
        event_type=REPLY_TYPE,
        payload={"last_assistant_message": message.last_assistant_message or ""},
        source_event_id=None,
        size_bytes=size_bytes,
        metadata=_agent(message),
    )
    session_id = recorded.event.server_session_id
    job = (
        await checkpoint_turn(
            db(request), dependency(request, JobNotifier), dependency(request, Settings), principal, project, session_id
        )
        if session_id
        else None
    )
    return answer(
        WorkerEventOut(
            session_id=speaker.session,
            server_session_id=session_id,
            event_id=recorded.event.id,
            generation_job_id=job.id if job else None,
            transport="enqueued" if job else "skipped",
        )
    )


async def post_session_end(request: Request) -> Response:
    """End the session; its summary is made at once, not when it has been idle for long."""
    principal = await admit_caller(request)
    message, _ = await read_sized(request, SessionEndIn)
    session = await session_events.find_session(request, _speaker(request, principal, message))
    if session is None or not principal.sees(session.project_id):
        return answer(SessionEndOut(status="unknown_session"))
    await end_session(db(request), dependency(request, JobNotifier), principal, session.id)
    return answer(SessionEndOut(status="accepted"))


async def _admit(
    request: Request, speaker: AgentSession, arrival: Arrival, *, folder: str | None = None
) -> tuple[SessionAndLastPrompt | None, Project] | SkippedEventOut:
    """The session, if it is known, and the project of an event; or why the event is not stored."""
    if find_rule("row", arrival).name == STORED:
        session = await session_events.find_session(request, speaker)
        arrival = msgspec.structs.replace(arrival, is_private=session is not None and session.is_private)
        if not arrival.is_private:
            project = await session_events.find_project(request, speaker, session, folder=folder)
            if project is not None:
                return session, project
            arrival = msgspec.structs.replace(arrival, is_excluded=True)
    return SkippedEventOut(reason=_REASONS[find_rule("row", arrival).name])


def _speaker(request: Request, principal: Principal, message: _SessionMessageIn) -> AgentSession:
    """The session that a message names, and the platform of its agent."""
    in_query = request.query_params.get("platformSource"), request.query_params.get("platform_source")
    requested = requested_platform(request, message.platform_camel, message.platform_snake, *in_query)
    identifiers = dependency(request, Identifiers)
    return AgentSession(
        principal=principal,
        session=identifiers.clean(storable(message.session)),
        platform=identifiers.clean(requested or platform(None)),
    )


def _agent(message: _SessionMessageIn) -> dict[str, object]:
    """Metadata that name a sub-agent, and the model."""
    fields = {"agent_id": message.agent_id, "agent_type": message.agent_type}
    return {name: storable(text)[:KEY_MOST] for name, text in fields.items() if text} | _model(message)


def _model(message: _SessionMessageIn) -> dict[str, object]:
    """Metadata that name the agent's model, and how that is paid."""
    fields = {"observedModel": message.observed_model, "observedBilling": message.observed_billing}
    return {name: storable(text)[:KEY_MOST] for name, text in fields.items() if isinstance(text, str) and text}


def _event_id(tool_use_id: str | None) -> str | None:
    key = f"tool:{storable(tool_use_id)}" if tool_use_id else None
    return key if key and len(key) <= KEY_MOST else None


routes = [
    post("/api/sessions/init", post_init, "sessions:write", InitOut, body=InitIn),
    post("/api/sessions/observations", post_observation, "events:write", (WorkerEventOut, SkippedEventOut), body=ToolUseIn),
    post("/api/sessions/session-end", post_session_end, "sessions:write", SessionEndOut, body=SessionEndIn),
    post("/api/sessions/summarize", post_summarize, "sessions:write", (WorkerEventOut, SkippedEventOut), body=SummarizeIn),
]
