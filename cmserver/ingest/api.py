"""HTTP routes that start and end sessions, and record events one by one or in batches."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, cast

from msgspec import UNSET, Meta
from starlette.requests import Request
from starlette.responses import Response

from cmserver.access import verb
from cmserver.access.model import Principal, Project
from cmserver.access.projects import Projects
from cmserver.access.verb import VerbCall, command, option
from cmserver.base.db import Db
from cmserver.base.http.operation import post
from cmserver.base.http.wire import answer, batch, body, caller, convert, dependency, query
from cmserver.base.ids import require_id
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
from cmserver.sessions.wire import SESSION_LINES, SessionOut


@verb.post("/v1/sessions/start", "sessions:write")
async def post_session_start(call: VerbCall, given: wire.SessionStartIn) -> tuple[wire.SessionChangeOut, bool]:
    """Make a session, or find it by the agent's id; one that had ended goes on.

    A `prompt` in its metadata becomes one of its prompts.
    """
    principal = call.principal
    project = await call.dependency(Projects).named_or_own(principal, given.project_id, at="$.projectId", make=True)
    metadata = await clean_aside(given.metadata, size_bytes=call.size_bytes, at="$.metadata")
    clean = call.dependency(Identifiers).clean_optional
    new = NewSession(
        external_session_id=clean(given.external_session_id or given.content_session_id),
        content_session_id=clean(given.content_session_id),
        agent_id=clean(given.agent_id),
        agent_type=clean(given.agent_type),
        actor_id=principal.actor_id,
        person_id=principal.user_id,
        platform_source=clean(given.platform_source),
        metadata=cast("dict[str, object]", metadata.value),
    )
    session, is_new = await call.write(lambda conn: session_lifecycle.start(conn, principal, project, new))
    prompt = given.metadata.get("prompt")
    if isinstance(prompt, str) and prompt and principal.may("events:write"):
        await _record_prompt(call, project, session, prompt)
    return wire.SessionChangeOut(session=reshape(session, SessionOut)), is_new


async def _record_prompt(call: VerbCall, project: Project, session: Session, prompt: str) -> None:
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
    await call.dependency(EventRecorder).record(call.principal, [submission])


@command(
    "sessions end",
    SESSION_LINES.lines("session"),
    text="End a session, so that it gets its summary. Ending it again changes nothing.",
)
@option("SESSION_ID", field="id")
@verb.post("/v1/sessions/{id}/end", "sessions:write")
async def post_session_end(call: VerbCall, given: str) -> wire.SessionChangeOut:
    """End a session and ask for its summary.

    Agents whose own hooks end it after each turn (their last event is an `assistant_message` with `sourceType: hook`) get a summary
    only when enough has happened since the last one, and the session stays open.
    """
    session_id = require_id(given, NO_SUCH)
    session, job = await session_lifecycle.end_session_or_turn(
        call.dependency(Db), call.dependency(JobNotifier), call.principal, session_id
    )
    return wire.SessionChangeOut(session=reshape(session, SessionOut), generation_job=job_out(job) if job else UNSET)


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
    post_session_start,
    post_session_end,
]
