"""The doors of ingest: sessions start and end, events one by one or in batches."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Annotated, cast

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from cmserver.access.model import Principal, Project
from cmserver.access.projects import Projects
from cmserver.base.errors import NotFound
from cmserver.base.http.operation import Operation
from cmserver.base.http.wire import answer, batch, body, caller, convert, db, query
from cmserver.base.ids import named_id
from cmserver.base.redaction.clean import LARGE_BYTES, clean_aside, decode_json
from cmserver.base.text import Key, Label
from cmserver.generation.wire import GenerationJobOut, job_out
from cmserver.ingest import session as sessions
from cmserver.ingest.accept import Acceptance
from cmserver.ingest.ends import Ends
from cmserver.ingest.model import Incoming
from cmserver.ingest.record import Recorder
from cmserver.ingest.wire import BATCH_MOST, EventIn, EventsQuery, Placed, RecordedOut
from cmserver.sessions.model import NewSession, Session
from cmserver.sessions.read import NO_SUCH
from cmserver.sessions.wire import SessionOut, session_out


class StartIn(msgspec.Struct, rename="camel", kw_only=True):
    """POST /v1/sessions/start."""

    project_id: Key | None = None
    external_session_id: Key | None = None
    content_session_id: Key | None = None
    agent_id: Key | None = None
    agent_type: Key | None = None
    platform_source: Label | None = None
    metadata: dict[str, object] = {}


class BatchOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The answer to a batch, in its order."""

    events: list[RecordedOut]


class SessionAnswer(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The answer to a start or an end."""

    session: SessionOut
    generation_job: GenerationJobOut | UnsetType = UNSET


async def post_session_start(request: Request) -> Response:
    """Make a session, or find it by the agent's id; one that had ended goes on.

    A `prompt` in its metadata becomes one of its prompts.
    """
    who = await caller(request, Principal)
    raw = await body(request)
    asked = convert(decode_json(raw or b"{}"), StartIn)
    project = await _projects(request).named_or_own(who, asked.project_id, at="$.projectId", make=True)
    most = cast("int", request.app.state.field_max_chars)
    metadata = await clean_aside(asked.metadata, field_max_chars=most, size_bytes=len(raw), at="$.metadata")
    new = NewSession(
        external_session_id=asked.external_session_id or asked.content_session_id,
        content_session_id=asked.content_session_id,
        agent_id=asked.agent_id,
        agent_type=asked.agent_type,
        platform_source=asked.platform_source,
        metadata=cast("dict[str, object]", metadata.value),
    )
    session, is_new = await db(request).in_tenant(who.team_id, lambda conn: sessions.start(conn, who, project, new))
    prompt = asked.metadata.get("prompt")
    if isinstance(prompt, str) and prompt and who.may("events:write"):
        await _note_prompt(request, who, project, session, prompt)
    return answer(SessionAnswer(session=session_out(session)), 201 if is_new else 200)


async def _note_prompt(request: Request, who: Principal, project: Project, session: Session, prompt: str) -> None:
    """Agents that start their session at each prompt, as claude-mem's do, say it nowhere else."""
    said = Incoming(
        project=project,
        event_type="user_prompt",
        payload={"prompt": prompt},
        occurred_at=datetime.now(UTC),
        source_adapter="hook",
        origin="api",
        server_session_id=session.id,
        platform_source=session.platform_source,
        size_bytes=len(prompt),
    )
    await cast("Recorder", request.app.state.recorder).record(who, [said])


async def post_session_end(request: Request) -> Response:
    """End a session and ask for its summary.

    Agents whose own hooks end it after each turn (their last event is an `assistant_message` with `sourceType: hook`) get a summary
    only when enough has happened since the last one, and the session stays open.
    """
    who = await caller(request, Principal)
    session_id = named_id(str(request.path_params["id"]))
    if session_id is None:
        raise NotFound(NO_SUCH)
    session, job = await cast("Ends", request.app.state.ends).session_or_turn(who, session_id)
    return answer(SessionAnswer(session=session_out(session), generation_job=job_out(job) if job else UNSET))


async def post_event(request: Request) -> Response:
    """Record an event; `?generate=false` stores only, `?wait=true` answers when its observations are there."""
    who = await caller(request, Principal)
    options = query(request, EventsQuery)
    raw = await body(request)
    placed = Placed(at="$", event=convert(decode_json(raw), EventIn), size_bytes=len(raw))
    return answer((await _acceptance(request).accept(who, [placed], options))[0], 201)


async def post_events_batch(request: Request) -> Response:
    """Record up to 500 events, all or none; the same options."""
    who = await caller(request, Principal)
    options = query(request, EventsQuery)
    raw = await body(request)
    asked = batch(raw, EventIn, most=BATCH_MOST, of="events")
    large = len(raw) >= LARGE_BYTES
    placed = [Placed(at=f"$[{place}]", event=one, size_bytes=_size(one) if large else 0) for place, one in enumerate(asked)]
    return answer(BatchOut(events=await _acceptance(request).accept(who, placed, options)), 201)


def _acceptance(request: Request) -> Acceptance:
    return cast("Acceptance", request.app.state.acceptance)


def _projects(request: Request) -> Projects:
    return cast("Projects", request.app.state.projects)


def _size(one: EventIn) -> int:
    """In bytes, as JSON."""
    try:
        return len(msgspec.json.encode([one.payload, one.metadata]))
    except UnicodeEncodeError:  # lone surrogates
        return len(json.dumps([one.payload, one.metadata]))


routes = [
    Operation("POST", "/v1/events", post_event, scope="events:write", query=EventsQuery, body=EventIn, answers={201: RecordedOut}),
    Operation(
        "POST",
        "/v1/events/batch",
        post_events_batch,
        scope="events:write",
        query=EventsQuery,
        body=Annotated[list[EventIn], Meta(min_length=1, max_length=BATCH_MOST)],
        answers={201: BatchOut},
    ),
    Operation(
        "POST",
        "/v1/sessions/start",
        post_session_start,
        scope="sessions:write",
        body=StartIn,
        answers={200: SessionAnswer, 201: SessionAnswer},
    ),
    Operation("POST", "/v1/sessions/{id}/end", post_session_end, scope="sessions:write", answers={200: SessionAnswer}),
]
