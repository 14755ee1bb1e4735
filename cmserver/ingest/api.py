"""HTTP routes that start and end sessions, and record events one by one or in batches."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, cast

from msgspec import UNSET, Meta
from starlette.requests import Request
from starlette.responses import Response

from cmserver.access.model import Principal, Project
from cmserver.access.projects import Projects
from cmserver.base.http.operation import post
from cmserver.base.http.wire import answer, batch, body, caller, convert, db, dependency, path_id, query
from cmserver.base.json_text import decode_json
from cmserver.base.structs import reshape
from cmserver.generation.job_notifier import JobNotifier
from cmserver.generation.wire import job_out
from cmserver.ingest import session_lifecycle, wire
from cmserver.ingest.intake import EventIntake
from cmserver.ingest.model import EventSubmission
from cmserver.ingest.record import EventRecorder
from cmserver.redaction.clean import clean_aside
from cmserver.redaction.redact import Identifiers
from cmserver.sessions.model import NewSession, Session
from cmserver.sessions.read import NO_SUCH
from cmserver.sessions.wire import SessionOut


async def post_session_start(request: Request) -> Response:
    """Make a session, or find it by the agent's id; one that had ended goes on.

    A `prompt` in its metadata becomes one of its prompts.
    """
    principal = await caller(request, Principal)
    raw = await body(request)
    start = convert(decode_json(raw or b"{}"), wire.SessionStartIn)
    project = await dependency(request, Projects).named_or_own(principal, start.project_id, at="$.projectId", make=True)
    metadata = await clean_aside(start.metadata, size_bytes=len(raw), at="$.metadata")
    clean = dependency(request, Identifiers).clean_optional
    new = NewSession(
        external_session_id=clean(start.external_session_id or start.content_session_id),
        content_session_id=clean(start.content_session_id),
        agent_id=clean(start.agent_id),
        agent_type=clean(start.agent_type),
        actor_id=principal.actor_id,
        platform_source=clean(start.platform_source),
        metadata=cast("dict[str, object]", metadata.value),
    )
    session, is_new = await db(request).in_tenant(
        principal.team_id, lambda conn: session_lifecycle.start(conn, principal, project, new)
    )
    prompt = start.metadata.get("prompt")
    if isinstance(prompt, str) and prompt and principal.may("events:write"):
        await _record_prompt(request, principal, project, session, prompt)
    return answer(wire.SessionChangeOut(session=reshape(session, SessionOut)), 201 if is_new else 200)


async def _record_prompt(request: Request, principal: Principal, project: Project, session: Session, prompt: str) -> None:
    """Record the prompt of a session's start: agents such as claude-mem's send it nowhere else."""
    submission = EventSubmission(
        event_type="user_prompt",
        source_adapter="hook",
        payload={"prompt": prompt},
        server_session_id=session.id,
        platform_source=session.platform_source,
        project=project,
        origin="api",
        occurred_at=datetime.now(UTC),
        size_bytes=len(prompt),
    )
    await dependency(request, EventRecorder).record(principal, [submission])


async def post_session_end(request: Request) -> Response:
    """End a session and ask for its summary.

    Agents whose own hooks end it after each turn (their last event is an `assistant_message` with `sourceType: hook`) get a summary
    only when enough has happened since the last one, and the session stays open.
    """
    principal = await caller(request, Principal)
    session_id = path_id(request, NO_SUCH)
    session, job = await session_lifecycle.end_session_or_turn(db(request), dependency(request, JobNotifier), principal, session_id)
    return answer(wire.SessionChangeOut(session=reshape(session, SessionOut), generation_job=job_out(job) if job else UNSET))


async def post_event(request: Request) -> Response:
    """Record an event; `?generate=false` stores only, `?wait=true` answers when its observations are there."""
    principal = await caller(request, Principal)
    options = query(request, wire.RecordOptions)
    raw = await body(request)
    events = {"$": convert(decode_json(raw), wire.EventIn)}
    (recorded,) = await dependency(request, EventIntake).accept(principal, events, options, size_bytes=len(raw))
    return answer(recorded, 201)


async def post_events_batch(request: Request) -> Response:
    """Record up to 500 events, all or none; the same options."""
    principal = await caller(request, Principal)
    options = query(request, wire.RecordOptions)
    raw = await body(request)
    events = {
        f"$[{place}]": event for place, event in enumerate(batch(raw, wire.EventIn, max_items=wire.BATCH_MOST, noun="events"))
    }
    recorded = await dependency(request, EventIntake).accept(principal, events, options, size_bytes=len(raw))
    return answer(wire.EventBatchOut(events=recorded), 201)


routes = [
    post("/v1/events", post_event, "events:write", wire.EventResultOut, status=201, query=wire.RecordOptions, body=wire.EventIn),
    post(
        "/v1/events/batch",
        post_events_batch,
        "events:write",
        wire.EventBatchOut,
        status=201,
        query=wire.RecordOptions,
        body=Annotated[list[wire.EventIn], Meta(min_length=1, max_length=wire.BATCH_MOST)],
    ),
    post(
        "/v1/sessions/start",
        post_session_start,
        "sessions:write",
        {200: wire.SessionChangeOut, 201: wire.SessionChangeOut},
        body=wire.SessionStartIn,
    ),
    post("/v1/sessions/{id}/end", post_session_end, "sessions:write", wire.SessionChangeOut),
]
