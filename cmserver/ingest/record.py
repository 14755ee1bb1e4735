"""Records events: cleans them, finds their sessions, and stores them with their jobs. What `record` returns is in Postgres."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import NamedTuple, cast
from uuid import UUID

import msgspec
from psycopg import errors

from cmserver.access import announce, audit
from cmserver.access.limits.meter import Meter
from cmserver.access.model import Principal, Project
from cmserver.access.private import PrivatePlaces, go_inside
from cmserver.base.db import Db
from cmserver.base.errors import Issue, NotFound
from cmserver.base.ids import new_id, request_id
from cmserver.base.metrics import metrics
from cmserver.base.sql import Conn
from cmserver.base.structs import reshape
from cmserver.events.model import StoredEvent
from cmserver.events.repository import by_keys, times_by_keys
from cmserver.generation.intake import repository as intake
from cmserver.generation.job_notifier import JobNotifier
from cmserver.generation.model import JOB_FOR_EVENT, MAX_ATTEMPTS, Job, JobOrigin
from cmserver.ingest import repository
from cmserver.ingest.door import JOB, Arrival, find_rule, read_object, read_prompt, read_subagent_words, read_text, resolve_policy
from cmserver.ingest.group import EventGroups
from cmserver.ingest.identity import EventFacts, hash_payload, make_event_key, make_near_keys, make_source_key
from cmserver.ingest.model import MOMENT, EventSubmission, IngestRequest, NewEvent, RecordedEvent, StoredAt
from cmserver.observations import repository as observations
from cmserver.reading.model import PROMPT_TYPES, REPLY_TYPE
from cmserver.redaction.clean import clean, run_aside
from cmserver.redaction.redact import Identifiers
from cmserver.sessions import repository as sessions
from cmserver.sessions.model import NewSession, Session, SessionPlace
from cmserver.sessions.turns import repository as turns
from cmserver.sessions.turns.model import NewTurn, cut_side
from cmserver.sessions.write import find_or_make, refuse_private

_REMEMBERED_SESSIONS = 20_000
_TURN_SECONDS = 0.1
_LATE = timedelta(minutes=1)
_SESSION_KEY = "agent_events_server_session_id"
_PROJECT_GONE = "Project not found."
SESSION_GONE = "Session not found in this project."


class _CleanEvent(NamedTuple):
    """An event, fit to be stored."""

    event: EventSubmission
    payload_json: bytes
    payload_chars: int
    content_hash: str
    """Over what was sent, not over what is kept: two payloads that differ only in a cut part stay two."""


class _GoneError(Exception):
    """The session, or the stored event that this one repeats, has just been erased."""


class EventRecorder:
    """Records events. It caches which session an agent's id means: share one per process."""

    def __init__(
        self,
        db: Db,
        notifier: JobNotifier,
        meter: Meter,
        *,
        secret: bytes,
        debounce_seconds: float,
        gather_seconds: float,
        gathers_turns: bool = True,
        private_places: PrivatePlaces | None = None,
    ) -> None:
        self._db = db
        self._private_places = private_places
        self._notifier = notifier
        self._meter = meter
        self._secret = secret
        self._identifiers = Identifiers(secret)
        self._groups = EventGroups(db)
        self._debounce_seconds = debounce_seconds
        self._gather_seconds = gather_seconds
        self._gathers_turns = gathers_turns
        self._sessions: dict[tuple[UUID, str, str | None], SessionPlace] = {}
        """By where it is looked for (a team, or a project by its key_id), its agent's id, and the agent."""
        self._looked_up: dict[tuple[UUID, UUID], SessionPlace] = {}
        """Sessions sent by our id that exist, by that and the team."""

    async def record(
        self, principal: Principal, submissions: Sequence[EventSubmission], *, at_once: bool = False
    ) -> list[RecordedEvent]:
        """Store all or none; the same event twice is one row and job. `at_once`: due now. QuotaExceeded before that."""
        await self._meter.admit_events(principal, len(submissions))
        new_count = 0
        try:
            recorded = await self._record_retrying_once(principal, submissions, at_once=at_once)
            new_count = sum(event.is_new for event in recorded)
            return recorded
        finally:
            self._meter.count_events(principal, new_count, admitted=len(submissions))

    async def _record_retrying_once(
        self, principal: Principal, submissions: Sequence[EventSubmission], *, at_once: bool
    ) -> list[RecordedEvent]:
        """Record the events; once more when a session that this process remembered was deleted. NotFound if it still fails."""
        try:
            return await self._record_apart(principal, submissions, at_once=at_once)
        except (errors.ForeignKeyViolation, errors.InsufficientPrivilege, _GoneError):
            self.forget_sessions()  # it was deleted while we remembered it, moved, or made private
        try:
            return await self._record_apart(principal, submissions, at_once=at_once)
        except errors.ForeignKeyViolation as error:
            constraint = error.diag.constraint_name or ""
            raise NotFound(SESSION_GONE if constraint.startswith(_SESSION_KEY) else _PROJECT_GONE) from error
        except (_GoneError, errors.InsufficientPrivilege) as error:
            # The latter for another team's session: its lane is there, and row-level security does not let us touch it.
            raise NotFound(SESSION_GONE) from error

    async def _record_apart(
        self, principal: Principal, submissions: Sequence[EventSubmission], *, at_once: bool
    ) -> list[RecordedEvent]:
        """Record what belongs to private sessions of the caller's in their private place, and the rest where they are.

        What is refused there is refused before anything is stored here; of two places each is stored whole or not at all.
        """
        places = self._private_places
        private = await self._find_private(principal, submissions)
        if not private or places is None:
            return await self._record(principal, submissions, at_once=at_once)
        inside = await places.enter(principal)
        apart = [
            msgspec.structs.replace(one, project=await places.find_project(inside, one.project)) if place in private else one
            for place, one in enumerate(submissions)
        ]
        others = [one for place, one in enumerate(apart) if place not in private]
        if others:
            await self.check(principal, others)
        recorded = dict(
            zip(
                sorted(private),
                await self._record(inside, [apart[place] for place in sorted(private)], at_once=at_once),
                strict=True,
            )
        )
        rest = iter(await self._record(principal, others, at_once=at_once) if others else ())
        return [recorded.get(place) or next(rest) for place in range(len(apart))]

    async def _find_private(self, principal: Principal, submissions: Sequence[EventSubmission]) -> set[int]:
        """The places of those whose session is private to the caller. What is known to be the team's is not looked for."""
        if principal.private_id is None or principal.home is not None:
            return set()
        wanted: dict[str, set[int]] = {}
        for place, one in enumerate(submissions):
            if one.server_session_id is not None:
                if (principal.team_id, one.server_session_id) not in self._looked_up:
                    wanted.setdefault(str(one.server_session_id), set()).add(place)
            elif one.content_session_id:
                external_id = self._identifiers.clean(one.content_session_id)
                key = _session_key(principal, None if one.origin == "hook" else one.project, external_id, one.platform_source)
                if key not in self._sessions:
                    wanted.setdefault(external_id, set()).add(place)
        if not wanted:
            return set()
        inside = go_inside(principal)
        async with self._db.tenant(inside.team_id) as conn:
            there = await sessions.named(conn, inside.team_id, list(wanted))
        return {place for name in there for place in wanted[name]}

    async def _record(self, principal: Principal, submissions: Sequence[EventSubmission], *, at_once: bool) -> list[RecordedEvent]:
        """Clean, check and store the events; returns them, also those that were stored before, in the order of submission."""
        # What can be refused is refused before anything is made, sessions included.
        cleaned = await self._clean_all(submissions)
        await self._check_sessions(principal, submissions)
        prepared = [
            await self._prepare(principal, clean_event, place, at_once=at_once) for place, clean_event in enumerate(cleaned)
        ]
        origin = make_job_origin(principal)
        events, rows = await self._write(origin, prepared)
        stored_at = {row.id: row.received_at for row in rows}
        _count(events, stored_at)
        delays = [event.delay_seconds for event in events if event.generate and not event.waits_for_end and event.id in stored_at]
        if delays:
            self._notifier.notify_due(min(delays))
        repeated = await self._read_repeated(principal, [event for event in events if event.id not in stored_at])
        return [
            _build_recorded_event(event, origin, stored_at[event.id]) if event.id in stored_at else repeated[event.idempotency_key]
            for event in events
        ]

    async def _write(self, origin: JobOrigin, events: Sequence[NewEvent]) -> tuple[Sequence[NewEvent], list[StoredAt]]:
        """The events with the keys that they are stored by, and when the new ones were stored."""
        if any(_needs_session_lock(event) for event in events):
            return await self._db.in_tenant(origin.team_id, lambda conn: _write_under_session_locks(conn, origin, events))
        if len(events) > 1:
            request = reshape(origin, IngestRequest, events=events)
            return events, await self._db.statement_in_tenant(lambda conn: repository.ingest(conn, origin.team_id, [request]))
        row = await self._groups.store(origin, events[0])
        return events, [row] if row else []

    async def _read_repeated(self, principal: Principal, events: Sequence[NewEvent]) -> dict[str, RecordedEvent]:
        """The events that were there before, by key, with their jobs."""
        if not events:
            return {}
        keys = list(dict.fromkeys(event.idempotency_key for event in events))
        async with self._db.tenant(principal.team_id) as conn:
            stored = await by_keys(conn, principal.team_id, keys)
            jobs = await intake.jobs_of_events(conn, principal.team_id, [event.id for event in stored])
        if len(stored) < len(keys):
            raise _GoneError
        return {
            key: RecordedEvent(event=event, job=jobs.get(event.id), is_new=False) for key, event in zip(keys, stored, strict=True)
        }

    async def check(self, principal: Principal, submissions: Sequence[EventSubmission]) -> None:
        """Refuse what `record` would refuse, and make nothing."""
        await self._clean_all(submissions)
        await self._check_sessions(principal, submissions)

    async def find_hook_session(self, principal: Principal, external_id: str, platform_source: str) -> SessionPlace | None:
        """The session that a hook means, and the project that it is in, whatever the folder's project is now."""
        key = _session_key(principal, None, external_id, platform_source)
        if (place := self._sessions.get(key)) is not None:
            return place
        async with self._db.tenant(principal.team_id) as conn:
            session = await sessions.by_hook(conn, principal.team_id, external_id, platform_source, only=principal.project_id)
        return self._remember(key, session) if session else None

    async def find_tool_uses(
        self, principal: Principal, external_id: str, platform_source: str, tool_use_ids: Sequence[str]
    ) -> dict[str, dict[str, object]]:
        """The stored payloads of these tool uses of a hook's session, by their ids."""
        place = await self.find_hook_session(principal, external_id, platform_source)
        if place is None:
            return {}
        ids = {self._identifiers.clean(f"tool:{tool_use_id}"): tool_use_id for tool_use_id in tool_use_ids}
        keys = [make_source_key(principal.team_id, place.key_id, "hook", platform_source, source_id) for source_id in ids]
        async with self._db.tenant(principal.team_id) as conn:
            found = await by_keys(conn, principal.team_id, keys)
        return {
            ids[event.source_event_id]: read_object(event.payload)
            for event in found
            if event.source_event_id in ids and event.server_session_id == place.id
        }

    def forget_sessions(self) -> None:
        """Look sessions up anew: one that was remembered is no longer where it was."""
        self._sessions.clear()
        self._looked_up.clear()

    def _remember(self, key: tuple[UUID, str, str | None], session: Session) -> SessionPlace:
        if len(self._sessions) >= _REMEMBERED_SESSIONS:
            self._sessions.clear()
        self._sessions[key] = place = reshape(session, SessionPlace)
        return place

    async def _check_sessions(self, principal: Principal, submissions: Sequence[EventSubmission]) -> None:
        """Raise NotFound, with the paths, for sessions that are not of their event's project, and were not made by its name."""
        team_id = principal.team_id
        sent = [(submission, session_id) for submission in submissions if (session_id := submission.server_session_id) is not None]

        def is_there(submission: EventSubmission, session_id: UUID) -> bool:
            place = self._looked_up.get((team_id, session_id))
            return (
                place is not None and principal.sees(place.project_id) and submission.project.id in {place.project_id, place.key_id}
            )

        unknown = {session_id for submission, session_id in sent if not is_there(submission, session_id)}
        if unknown:
            async with self._db.tenant(team_id) as conn:
                places = await sessions.places(conn, team_id, unknown)
            if len(self._looked_up) >= _REMEMBERED_SESSIONS:
                self._looked_up.clear()
            self._looked_up |= {(team_id, place.id): place for place in places}
        paths = [f"{submission.at}.serverSessionId" for submission, session_id in sent if not is_there(submission, session_id)]
        if paths:
            raise NotFound(SESSION_GONE, [Issue(path, SESSION_GONE) for path in paths])

    async def _clean_all(self, submissions: Sequence[EventSubmission]) -> list[_CleanEvent]:
        """The events, fit to be stored. A large request gives its thread to others after each _TURN_SECONDS."""

        def clean_for_a_turn(waiting: Sequence[EventSubmission]) -> list[_CleanEvent]:
            ends_at = time.monotonic() + _TURN_SECONDS
            cleaned = [self._clean(waiting[0])]
            for submission in waiting[1:]:
                if time.monotonic() >= ends_at:
                    break
                cleaned.append(self._clean(submission))
            return cleaned

        size_bytes = max((submission.size_bytes for submission in submissions), default=0)
        cleaned: list[_CleanEvent] = []
        while waiting := submissions[len(cleaned) :]:
            cleaned += await run_aside(partial(clean_for_a_turn, waiting), size_bytes=size_bytes)
        return cleaned

    def _clean(self, event: EventSubmission) -> _CleanEvent:
        payload = clean(event.payload, at=f"{event.at}.payload")
        metadata = event.metadata
        if metadata:
            cleaned = clean(metadata, at=f"{event.at}.metadata")
            metadata = cast("dict[str, object]", cleaned.value)
        counts = {"replaced": payload.replaced, "redactions": payload.redactions, "trimmed": payload.trimmed}
        changes = {name: count for name, count in counts.items() if count}
        identifiers = self._identifiers
        clean_event = msgspec.structs.replace(
            event,
            event_type=identifiers.clean(event.event_type),
            platform_source=identifiers.clean_optional(event.platform_source),
            source_event_id=identifiers.clean_optional(event.source_event_id),
            content_session_id=identifiers.clean_optional(event.content_session_id),
            payload=payload.value,
            metadata={**metadata, "cleaned": changes} if changes else metadata,
        )
        payload_json = msgspec.json.encode(payload.value)
        content = event.payload if event.identity == "id" else _find_content(event)
        return _CleanEvent(clean_event, payload_json, len(payload_json.decode()), hash_payload(self._secret, content))

    async def _prepare(
        self,
        principal: Principal,
        clean_event: _CleanEvent,
        place: int,
        *,
        at_once: bool,
    ) -> NewEvent:
        """The event as it is stored, with its session, its keys, and when observations are to be made of it."""
        event = clean_event.event
        project = event.project
        session = await self._ensure_session(principal, event)
        session_id = session.id if session else None
        event_id, job_id = new_id(), new_id()
        arrival = Arrival(
            event_type=event.event_type,
            tool=event.tool,
            tool_name=read_text(event.payload, "tool_name"),
            by_hook=event.origin == "hook",
            asks_for_job=event.generate,
            is_waited_for=at_once,
            has_session=session_id is not None,
            prompt=read_prompt(event.payload) if event.event_type in PROMPT_TYPES else None,
            subagent=read_subagent_words(event.event_type, event.payload, event.metadata),
            policy=resolve_policy(project, self._debounce_seconds),
            gather_seconds=self._gather_seconds,
            gathers_turns=self._gathers_turns,
        )
        generate = find_rule("job", arrival).name == JOB
        turn = find_rule("turn", arrival).name
        timing = find_rule("due", arrival).timing(arrival)
        facts = EventFacts(
            team_id=principal.team_id,
            project_id=session.key_id if session else project.key_id,
            source_adapter=event.source_adapter,
            platform_source=event.platform_source,
            source_event_id=event.source_event_id,
            session=session_id or event.content_session_id,
            turn_id=event.turn_id,
            event_type=event.event_type,
            occurred_at=event.occurred_at,
            content_hash=clean_event.content_hash,
        )
        return NewEvent(
            id=event_id,
            job_id=job_id,
            lane=session_id or job_id,
            project_id=session.project_id if session else project.id,
            server_session_id=session_id,
            source_adapter=event.source_adapter,
            source_event_id=event.source_event_id,
            idempotency_key=make_event_key(facts, event.identity),
            near_keys=make_near_keys(facts) if event.identity == "moment" else (),
            event_type=event.event_type,
            platform_source=event.platform_source,
            origin=event.origin,
            generate=generate,
            size_chars=clean_event.payload_chars,
            payload=msgspec.Raw(clean_event.payload_json),
            metadata=event.metadata,
            occurred_at=event.occurred_at,
            place=place,
            prompt=arrival.prompt if turn == "prompt" else None,
            reply=read_text(event.payload, "last_assistant_message") if turn == "reply" else None,
            subagent=arrival.subagent if turn == "subagent" else None,
            is_recovered=event.is_recovered,
            delay_seconds=timing.delay_seconds,
            at_most=timing.at_most,
            waits_for_end=generate and timing.waits,
            gather_seconds=timing.delay_seconds if timing.gathers else None,
        )

    async def _ensure_session(self, principal: Principal, event: EventSubmission) -> SessionPlace | None:
        """The session that is sent, or that the agent names (found or made), and the project that it is in now."""
        external_id, project = event.content_session_id, event.project
        if event.server_session_id is not None:
            return self._looked_up[principal.team_id, event.server_session_id]
        if not external_id:
            return None
        from_hooks = event.origin == "hook"
        key = _session_key(principal, None if from_hooks else project, external_id, event.platform_source)
        if (place := self._sessions.get(key)) is not None:
            return place
        new = NewSession(
            external_session_id=external_id,
            content_session_id=external_id,
            platform_source=event.platform_source,
            metadata=event.session_metadata,
            actor_id=principal.actor_id,
            person_id=principal.user_id,
            started_at=event.occurred_at,
            from_hooks=from_hooks,
        )
        session = await self._db.in_tenant(principal.team_id, lambda conn: _find_or_make_session(conn, principal, project, new))
        return self._remember(key, session)


def _session_key(
    principal: Principal, project: Project | None, external_id: str, platform_source: str | None
) -> tuple[UUID, str, str | None]:
    """Of a session of the project, or without one of those that the caller's hooks may mean."""
    return (project.key_id if project else principal.project_id or principal.team_id), external_id, platform_source


def _count(events: Sequence[NewEvent], stored_at: Mapping[UUID, datetime]) -> None:
    metrics().events_stored.inc(len(stored_at))
    late = sum(event.id in stored_at and stored_at[event.id] - event.occurred_at > _LATE for event in events)
    if late:
        metrics().events_late.inc(late)


def make_job_origin(principal: Principal) -> JobOrigin:
    """The origin of the jobs that a request of the principal makes."""
    return JobOrigin(
        team_id=principal.team_id,
        api_key_id=principal.key_id,
        actor_id=principal.actor_id,
        request_id=request_id(),
    )


async def _find_or_make_session(conn: Conn, principal: Principal, project: Project, new: NewSession) -> Session:
    """The session of an event whose agent did not report its start."""
    await refuse_private(conn, principal, new)
    session, is_new = await find_or_make(conn, principal.team_id, project.id, new, key_id=project.key_id, only=principal.project_id)
    if is_new:
        await audit.record(conn, principal, "session.started", "session", session.id, project_id=project.id)
        await announce.notify_stream(conn)
    return session


def _needs_session_lock(event: NewEvent) -> bool:
    """Whether the event is to be written under its session's lock.

    A turn is numbered there, and completed. What waits for the session's end must not miss it: the idle sweep would not know of the
    news. What is known by its moment is compared with what came a moment before.
    """
    is_of_turn = event.prompt is not None or event.reply is not None or event.subagent is not None
    return is_of_turn or event.waits_for_end or bool(event.near_keys)


async def _find_twin_key(conn: Conn, team_id: UUID, event: NewEvent) -> str:
    """The key of the stored event that this one repeats, or else its own. The caller has locked the session."""
    if not event.near_keys:
        return event.idempotency_key
    near = await times_by_keys(conn, team_id, event.near_keys)
    twins = [twin.idempotency_key for twin in near if abs(twin.occurred_at - event.occurred_at) < MOMENT]
    return twins[0] if twins else event.idempotency_key


async def _write_under_session_locks(
    conn: Conn, origin: JobOrigin, events: Sequence[NewEvent]
) -> tuple[Sequence[NewEvent], list[StoredAt]]:
    """Write the events, their sessions locked first; with the keys they are stored by, and when the new ones were stored."""
    in_sessions = [(event, event.server_session_id) for event in events if event.server_session_id and _needs_session_lock(event)]
    for session_id in sorted({session_id for _, session_id in in_sessions}):
        if await sessions.lock(conn, origin.team_id, session_id) is None:
            raise _GoneError
    events = [msgspec.structs.replace(event, idempotency_key=await _find_twin_key(conn, origin.team_id, event)) for event in events]
    # The team's counter is locked before the lanes, as by a batch's effects. A prompt that was there before leaves a gap.
    turn_count = sum(event.prompt is not None or event.subagent is not None for event, _ in in_sessions)
    numbers = iter(await observations.take_numbers(conn, origin.team_id, turn_count, for_turns=True) if turn_count else ())
    rows = await repository.ingest(conn, origin.team_id, [reshape(origin, IngestRequest, events=events)])
    received_at = {row.id: row.received_at for row in rows}
    in_sessions = [(event, session_id) for event, session_id in in_sessions if event.id in received_at]
    for session_id in sorted({session_id for _, session_id in in_sessions}):
        await sessions.news(conn, origin.team_id, session_id)
    for event, session_id in in_sessions:
        words = event.subagent
        if event.prompt is not None or words is not None:
            turn = NewTurn(
                id=new_id(),
                number=next(numbers),
                project_id=event.project_id,
                session_id=session_id,
                event_id=event.id,
                agent_id=words.agent_id if words else None,
                prompt=cut_side(words.prompt if words else event.prompt or ""),
                reply=cut_side(words.reply) if words and words.reply else None,
                actor_id=origin.actor_id,
                occurred_at=event.occurred_at,
                received_at=received_at[event.id],
            )
            if words is None:
                await turns.end(conn, origin.team_id, session_id)
            if words is None or not await turns.add_to_subagent(conn, origin.team_id, turn):
                await turns.insert(conn, origin.team_id, turn)
        elif event.reply is not None:
            await turns.add_reply(
                conn, origin.team_id, session_id, cut_side(event.reply), event.occurred_at, is_exact=event.is_recovered
            )
    return events, rows


def _find_content(event: EventSubmission) -> object:
    """What an event says, by which it is known: the words of a prompt or a reply; else all of it but when its agent sent it."""
    is_prompt, is_reply = event.event_type in PROMPT_TYPES, event.event_type == REPLY_TYPE
    words = read_prompt(event.payload) if is_prompt else read_text(event.payload, "last_assistant_message") if is_reply else None
    fields = read_object(event.payload)
    return words or ({name: value for name, value in fields.items() if name != "timestamp"} if fields else event.payload)


def _build_recorded_event(event: NewEvent, origin: JobOrigin, received_at: datetime) -> RecordedEvent:
    stored = reshape(event, StoredEvent, team_id=origin.team_id, received_at=received_at, created_at=received_at)
    if not event.generate:
        return RecordedEvent(event=stored, job=None, is_new=True)
    job = Job(
        id=event.job_id,
        project_id=event.project_id,
        team_id=origin.team_id,
        lane=event.lane,
        source_type="agent_event",
        source_id=event.id,
        source_run=1,
        server_session_id=event.server_session_id,
        job_type=JOB_FOR_EVENT,
        status="queued",
        attempts=0,
        max_attempts=MAX_ATTEMPTS,
        outcome=None,
        outcome_reason=None,
        created_at=received_at,
        updated_at=received_at,
    )
    return RecordedEvent(event=stored, job=job, is_new=True)
