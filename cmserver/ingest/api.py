"""The doors of ingest: sessions start and end, events one by one or in batches."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Literal, cast
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from cmserver.access.model import Principal, Project
from cmserver.access.projects import Projects
from cmserver.base.errors import Issue, NotFound
from cmserver.base.http.operation import Operation
from cmserver.base.http.wire import answer, batch, body, caller, convert, db, query
from cmserver.base.ids import EpochMs, from_epoch_ms, named_id
from cmserver.base.live import Hub
from cmserver.base.redaction.clean import LARGE_BYTES, clean_aside, decode_json
from cmserver.base.text import Key, Label, Text
from cmserver.events.wire import EventOut, event_out
from cmserver.generation import wait
from cmserver.generation.model import Job
from cmserver.generation.wire import GenerationJobOut, job_out
from cmserver.ingest import session as sessions
from cmserver.ingest.ends import Ends
from cmserver.ingest.model import Incoming, Recorded
from cmserver.ingest.record import SESSION_GONE, Recorder
from cmserver.observations import repository as observations
from cmserver.observations.model import Drawn
from cmserver.sessions.model import NewSession, Session
from cmserver.sessions.read import NO_SUCH
from cmserver.sessions.wire import SessionOut, session_out

BATCH_MOST = 500
WAIT_SECONDS = 30.0


class StartIn(msgspec.Struct, rename="camel", kw_only=True):
    """POST /v1/sessions/start."""

    project_id: Key | None = None
    external_session_id: Key | None = None
    content_session_id: Key | None = None
    agent_id: Key | None = None
    agent_type: Key | None = None
    platform_source: Label | None = None
    metadata: dict[str, object] = {}


class EventIn(msgspec.Struct, rename="camel", kw_only=True):
    """POST /v1/events, and one item of /v1/events/batch."""

    event_type: Annotated[Text, Meta(min_length=1, max_length=200)]
    project_id: Key | None = None
    source_type: Literal["hook", "worker", "provider", "server", "api"] = "api"
    occurred_at_epoch: EpochMs | None = None
    server_session_id: UUID | None = None
    content_session_id: Key | None = None
    memory_session_id: Text | None = None
    platform_source: Label | None = None
    source_event_id: Key | None = None
    payload: object = None
    metadata: dict[str, object] = {}


class EventsQuery(msgspec.Struct, kw_only=True):
    """`?generate=false` stores only; `?wait=true` answers when the observations are there, after 30 s at the latest."""

    generate: bool = True
    wait: bool = False


class _Placed(msgspec.Struct, frozen=True, kw_only=True):
    """An event, where it stands in the body, and about how large it is."""

    at: str
    event: EventIn
    size_bytes: int


class RecordedOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The answer to an event. Observation ids are there when `wait=true` was asked and the job has ended."""

    event: EventOut
    generation_job: GenerationJobOut | UnsetType = UNSET
    observation_ids: list[UUID] | UnsetType = UNSET
    observation_numbers: list[int] | UnsetType = UNSET
    wait_timed_out: bool | UnsetType = UNSET


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
    placed = _Placed(at="$", event=convert(decode_json(raw), EventIn), size_bytes=len(raw))
    incoming = await _incoming(request, who, [placed], options)
    return answer((await _recorded(request, who, incoming, options))[0], 201)


async def post_events_batch(request: Request) -> Response:
    """Record up to 500 events, all or none; the same options."""
    who = await caller(request, Principal)
    options = query(request, EventsQuery)
    raw = await body(request)
    asked = batch(raw, EventIn, most=BATCH_MOST, of="events")
    large = len(raw) >= LARGE_BYTES
    placed = [_Placed(at=f"$[{place}]", event=one, size_bytes=_size(one) if large else 0) for place, one in enumerate(asked)]
    incoming = await _incoming(request, who, placed, options)
    return answer(BatchOut(events=await _recorded(request, who, incoming, options)), 201)


async def _incoming(request: Request, who: Principal, placed: Sequence[_Placed], options: EventsQuery) -> list[Incoming]:
    """The events with their projects. A project is made only when nothing is wrong with any of them."""
    found = [await _project(request, who, one) for one in placed]
    known = [_one(one, project, options) for one, project in zip(placed, found, strict=True) if project is not None]
    if len(known) == len(placed):
        return known
    most = cast("int", request.app.state.field_max_chars)
    await cast("Recorder", request.app.state.recorder).check(who, known)
    for one, project in zip(placed, found, strict=True):
        if project is None:
            await clean_aside(one.event.payload, field_max_chars=most, size_bytes=one.size_bytes, at=f"{one.at}.payload")
            await clean_aside(one.event.metadata, field_max_chars=most, size_bytes=one.size_bytes, at=f"{one.at}.metadata")
            if one.event.server_session_id is not None:
                raise NotFound(SESSION_GONE, [Issue(f"{one.at}.serverSessionId", SESSION_GONE)])
    return [
        _one(one, project or await _project_made(request, who, one), options) for one, project in zip(placed, found, strict=True)
    ]


async def _project(request: Request, who: Principal, placed: _Placed) -> Project | None:
    """The project that an event names; None for one that is to be made. NotFound says which event names it."""
    named, at = placed.event.project_id, f"{placed.at}.projectId"
    try:
        return await _projects(request).named_or_own(who, named, at=at)
    except NotFound as error:
        if who.project_id is None and named is not None and named_id(named) is None:
            return None
        raise NotFound(str(error), [Issue(at, str(error))]) from error


async def _project_made(request: Request, who: Principal, placed: _Placed) -> Project:
    return await _projects(request).named_or_own(who, placed.event.project_id, at=f"{placed.at}.projectId", make=True)


def _one(placed: _Placed, project: Project, options: EventsQuery) -> Incoming:
    asked = placed.event
    occurred = asked.occurred_at_epoch
    return Incoming(
        project=project,
        event_type=asked.event_type,
        payload=asked.payload,
        occurred_at=datetime.now(UTC) if occurred is None else from_epoch_ms(occurred),
        source_adapter=asked.source_type,
        origin="api",
        generate=options.generate,
        source_event_id=asked.source_event_id,
        server_session_id=asked.server_session_id,
        content_session_id=asked.content_session_id,
        platform_source=asked.platform_source,
        metadata=asked.metadata,
        size_bytes=placed.size_bytes,
        at=placed.at,
    )


async def _recorded(request: Request, who: Principal, incoming: Sequence[Incoming], options: EventsQuery) -> list[RecordedOut]:
    recorder = cast("Recorder", request.app.state.recorder)
    recorded = await recorder.record(who, incoming, at_once=options.wait)
    if not options.wait:
        return [RecordedOut(event=event_out(one.event), generation_job=job_out(one.job) if one.job else UNSET) for one in recorded]
    return await _waited(request, who, recorded)


async def _waited(request: Request, who: Principal, recorded: Sequence[Recorded]) -> list[RecordedOut]:
    hub = cast("Hub", request.app.state.hub)
    jobs = [one.job for one in recorded if one.job]
    ended = await wait.ended(db(request), hub, who.team_id, jobs, WAIT_SECONDS)
    async with db(request).tenant(who.team_id) as conn:
        drawn = await observations.drawn_from(conn, who.team_id, [one.event.id for one in recorded if one.job])
    return [_waited_for(one, ended[one.job.id] if one.job else None, drawn.get(one.event.id, [])) for one in recorded]


def _waited_for(one: Recorded, job: Job | None, drawn: Sequence[Drawn]) -> RecordedOut:
    return RecordedOut(
        event=event_out(one.event),
        generation_job=job_out(job) if job else UNSET,
        observation_ids=[each.id for each in drawn],
        observation_numbers=[each.number for each in drawn],
        wait_timed_out=True if job and job.status not in wait.TERMINAL else UNSET,
    )


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
