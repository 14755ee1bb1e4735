"""Events come in here: made safe, tied to their session, stored together with their jobs. What this returned is in Postgres."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast
from uuid import UUID

import msgspec
from psycopg import errors

from cmserver.access import announce, audit
from cmserver.access.limits.meter import Meter
from cmserver.access.model import Principal
from cmserver.base.db import Db
from cmserver.base.errors import Issue, NotFound
from cmserver.base.ids import new_id
from cmserver.base.redaction.clean import clean_aside
from cmserver.base.sql import Conn
from cmserver.events import repository as events
from cmserver.events.model import Event
from cmserver.generation import repository as generation
from cmserver.generation.bell import Bell
from cmserver.generation.model import JOB_FOR_EVENT, Asker, Job
from cmserver.ingest import repository
from cmserver.ingest.identity import event_key, job_key, payload_hash
from cmserver.ingest.model import PROMPT_TYPES, Incoming, Recorded, Row, Safe, Written
from cmserver.ingest.policy import resolve, timing
from cmserver.sessions import repository as sessions
from cmserver.sessions.model import NewSession, Session
from cmserver.sessions.start import find_or_make

_REMEMBERED_SESSIONS = 20_000
_SESSION_KEY = "agent_events_server_session_id"
_PROJECT_GONE = "There is no such project."
SESSION_GONE = "There is no such session in this project."


class _GoneError(Exception):
    """A session, or the event that this one repeats, has just been erased."""


class Recorder:
    """Stores events. One per process: it remembers which session an agent's id means."""

    def __init__(
        self, db: Db, bell: Bell, meter: Meter, *, secret: bytes, debounce_seconds: float, field_max_chars: int, max_attempts: int
    ) -> None:
        self._db = db
        self._bell = bell
        self._meter = meter
        self._secret = secret
        self._debounce_seconds = debounce_seconds
        self._field_max_chars = field_max_chars
        self._max_attempts = max_attempts
        self._sessions: dict[tuple[UUID, str, str | None], UUID] = {}
        self._looked_up: set[tuple[UUID, UUID]] = set()
        """Sessions that were named by our id, with the project they are of."""

    async def record(self, principal: Principal, incoming: Sequence[Incoming], *, at_once: bool = False) -> list[Recorded]:
        """Store all of them or none, in one transaction; the same event twice is the same row and job.

        `at_once` makes the work due without waiting for the rest of a burst. QuotaExceeded before anything is stored.
        """
        await self._meter.admit_events(principal, len(incoming))
        stored = 0
        try:
            recorded = await self._record_patiently(principal, incoming, at_once=at_once)
            stored = sum(one.is_new for one in recorded)
            return recorded
        finally:
            self._meter.count_events(principal, stored, admitted=len(incoming))

    async def _record_patiently(self, principal: Principal, incoming: Sequence[Incoming], *, at_once: bool) -> list[Recorded]:
        try:
            return await self._record(principal, incoming, at_once=at_once)
        except (errors.ForeignKeyViolation, errors.InsufficientPrivilege, _GoneError):
            # It was deleted while we remembered it.
            self._sessions.clear()
            self._looked_up.clear()
        try:
            return await self._record(principal, incoming, at_once=at_once)
        except errors.ForeignKeyViolation as error:
            named = error.diag.constraint_name or ""
            raise NotFound(SESSION_GONE if named.startswith(_SESSION_KEY) else _PROJECT_GONE) from error
        except _GoneError as error:
            raise NotFound(SESSION_GONE) from error
        except errors.InsufficientPrivilege as error:
            # Another team's session: its lane is there, and row-level security does not let us touch it.
            raise NotFound(SESSION_GONE) from error

    async def _record(self, principal: Principal, incoming: Sequence[Incoming], *, at_once: bool) -> list[Recorded]:
        # What can be refused is refused before anything is made, sessions included.
        safe = [await self._safe(one) for one in incoming]
        await self._look_up_sessions(principal, incoming)
        rows = [
            await self._row(principal, one, said, place, at_once=at_once)
            for place, (one, said) in enumerate(zip(incoming, safe, strict=True))
        ]
        asker = Asker(
            team_id=principal.team_id,
            api_key_id=principal.key_id,
            actor_id=principal.actor_id,
            request_id=audit.request_id(),
            max_attempts=self._max_attempts,
        )
        written = {one.id: one for one in await self._write(asker, rows)}
        due = [row.delay_seconds for row in rows if row.generate and not row.waits_for_end and row.id in written]
        if due:
            self._bell.ring(min(due))
        known = await self._known(principal, [row for row in rows if row.id not in written])
        return [
            known[row.idempotency_key]
            if row.id not in written
            else _recorded(principal.team_id, row, written[row.id], self._max_attempts)
            for row in rows
        ]

    async def _write(self, asker: Asker, rows: Sequence[Row]) -> list[Written]:
        if any(_needs_session(row) for row in rows):
            return await self._db.in_tenant(asker.team_id, lambda conn: _write_in_sessions(conn, asker, rows))
        if len(rows) > 1:
            return await self._db.statement_in_tenant(lambda conn: repository.ingest(conn, asker, rows))
        one = await self._db.statement_in_tenant(lambda conn: repository.ingest_one(conn, asker, rows[0]))
        return [one] if one else []

    async def _known(self, principal: Principal, rows: Sequence[Row]) -> dict[str, Recorded]:
        """The events that had come before, by key, with their jobs."""
        if not rows:
            return {}
        keys = list(dict.fromkeys(row.idempotency_key for row in rows))
        async with self._db.tenant(principal.team_id) as conn:
            stored = await events.by_keys(conn, principal.team_id, keys)
            jobs = await generation.jobs_of_events(conn, principal.team_id, [event.id for event in stored])
        if len(stored) < len(keys):
            raise _GoneError
        known = zip(keys, stored, strict=True)
        return {key: Recorded(event=event, job=jobs.get(event.id), is_new=False) for key, event in known}

    async def check(self, principal: Principal, incoming: Sequence[Incoming]) -> None:
        """Refuse what `record` would refuse, and make nothing."""
        for one in incoming:
            await self._safe(one)
        await self._look_up_sessions(principal, incoming)

    async def _look_up_sessions(self, principal: Principal, incoming: Sequence[Incoming]) -> None:
        """NotFound, saying where, for a session named by our id that is none of its event's project."""
        named = {(one.server_session_id, one.project.id) for one in incoming if one.server_session_id} - self._looked_up
        if not named:
            return
        async with self._db.tenant(principal.team_id) as conn:
            found = set((await sessions.projects_of(conn, principal.team_id, [one for one, _ in named])).items())
        gone = [one.at for one in incoming if (one.server_session_id, one.project.id) in named - found]
        if gone:
            raise NotFound(SESSION_GONE, [Issue(f"{at}.serverSessionId", SESSION_GONE) for at in gone])
        if len(self._looked_up) >= _REMEMBERED_SESSIONS:
            self._looked_up.clear()
        self._looked_up |= found

    async def _safe(self, one: Incoming) -> Safe:
        most, size = self._field_max_chars, one.size_bytes
        payload = await clean_aside(one.payload, field_max_chars=most, size_bytes=size, at=f"{one.at}.payload")
        told = one.metadata
        if told:
            at = f"{one.at}.metadata"
            metadata = await clean_aside(told, field_max_chars=most, size_bytes=size, at=at)
            told = cast("dict[str, object]", metadata.value)
        # Over what was sent, not over what is kept: two payloads that differ only in a cut part stay two.
        said = payload_hash(self._secret, one.payload)
        noted = {"replaced": payload.replaced, "redactions": payload.redactions, "trimmed": payload.trimmed}
        cleaned = {name: count for name, count in noted.items() if count}
        return Safe(payload=payload.value, metadata={**told, "cleaned": cleaned} if cleaned else told, said=said)

    async def _row(self, principal: Principal, one: Incoming, safe: Safe, place: int, *, at_once: bool) -> Row:
        text = msgspec.json.encode(safe.payload)
        session_id = one.server_session_id or await self._session_id(principal, one)
        event_id, job_id = new_id(), new_id()
        key = event_key(
            team_id=principal.team_id,
            project_id=one.project.id,
            source_adapter=one.source_adapter,
            platform_source=one.platform_source,
            source_event_id=one.source_event_id,
            session=session_id or one.content_session_id,
            event_type=one.event_type,
            occurred_at=one.occurred_at,
            payload_hash=safe.said,
        )
        prompt = _prompt_text(safe.payload) if one.event_type in PROMPT_TYPES else None
        policy = resolve(one.project, self._debounce_seconds)
        generate = one.generate and one.event_type not in PROMPT_TYPES and not policy.skips(one.event_type, safe.payload)
        when = timing(policy, has_session=session_id is not None, at_once=at_once)
        return Row(
            id=event_id,
            job_id=job_id,
            lane=session_id or job_id,
            project_id=one.project.id,
            server_session_id=session_id,
            source_adapter=one.source_adapter,
            source_event_id=one.source_event_id,
            idempotency_key=key,
            job_key=job_key(
                team_id=principal.team_id,
                project_id=one.project.id,
                source_type="agent_event",
                source_id=event_id,
                job_type=JOB_FOR_EVENT,
                source_run=1,
            ),
            event_type=one.event_type,
            platform_source=one.platform_source,
            origin=one.origin,
            generate=generate,
            size_chars=len(text.decode()),
            payload=msgspec.Raw(text),
            metadata=safe.metadata,
            occurred_at=one.occurred_at,
            place=place,
            prompt=prompt if session_id else None,
            delay_seconds=when.delay_seconds,
            at_most=when.at_most,
            waits_for_end=generate and when.waits,
        )

    async def _session_id(self, principal: Principal, one: Incoming) -> UUID | None:
        """Our session for the agent's id, found or made."""
        named = one.content_session_id
        if not named:
            return None
        key = (one.project.id, named, one.platform_source)
        known = self._sessions.get(key)
        if known is not None:
            return known
        new = NewSession(external_session_id=named, content_session_id=named, platform_source=one.platform_source)
        session = await self._db.in_tenant(principal.team_id, lambda conn: _found_or_made(conn, principal, one.project.id, new))
        if len(self._sessions) >= _REMEMBERED_SESSIONS:
            self._sessions.clear()
        self._sessions[key] = session.id
        return session.id


async def _found_or_made(conn: Conn, principal: Principal, project_id: UUID, new: NewSession) -> Session:
    """The session of an event whose agent did not say that it began."""
    session, is_new = await find_or_make(conn, principal.team_id, project_id, new)
    if is_new:
        await audit.record(conn, principal, "session.started", "session", session.id, project_id=project_id)
        await announce.news(conn)
    return session


def _needs_session(row: Row) -> bool:
    """Whether the row is to be written under its session's lock.

    A prompt is numbered there. What waits for the end must not slip past one: the idle sweep would not know that there is news.
    """
    return row.prompt is not None or row.waits_for_end


async def _write_in_sessions(conn: Conn, asker: Asker, rows: Sequence[Row]) -> list[Written]:
    """Sessions come before the events in the order of locks."""
    for session_id in sorted({row.server_session_id for row in rows if _needs_session(row) and row.server_session_id}):
        if await sessions.lock(conn, asker.team_id, session_id) is None:
            raise _GoneError
    written = await repository.ingest(conn, asker, rows)
    new = {one.id for one in written}
    for session_id in sorted(
        {row.server_session_id for row in rows if _needs_session(row) and row.server_session_id and row.id in new}
    ):
        await sessions.news(conn, asker.team_id, session_id)
    for row in rows:
        if row.prompt is not None and row.server_session_id is not None and row.id in new:
            await sessions.insert_prompt(
                conn,
                new_id(),
                team_id=asker.team_id,
                project_id=row.project_id,
                session_id=row.server_session_id,
                event_id=row.id,
                text=row.prompt,
            )
    return written


def _prompt_text(payload: object) -> str | None:
    if isinstance(payload, str):
        return payload
    if isinstance(payload, dict):
        fields = cast("dict[str, object]", payload)
        for name in ("prompt", "text", "content"):
            text = fields.get(name)
            if isinstance(text, str):
                return text
    return None


def _recorded(team_id: UUID, row: Row, written: Written, max_attempts: int) -> Recorded:
    event = Event(
        id=row.id,
        project_id=row.project_id,
        team_id=team_id,
        server_session_id=row.server_session_id,
        source_adapter=row.source_adapter,
        source_event_id=row.source_event_id,
        event_type=row.event_type,
        platform_source=row.platform_source,
        origin=row.origin,
        generate=row.generate,
        payload=row.payload,
        metadata=row.metadata,
        occurred_at=row.occurred_at,
        received_at=written.received_at,
        created_at=written.received_at,
    )
    job = Job(
        id=row.job_id,
        project_id=row.project_id,
        team_id=team_id,
        lane=row.lane,
        source_type="agent_event",
        source_id=row.id,
        source_run=1,
        server_session_id=row.server_session_id,
        job_type=JOB_FOR_EVENT,
        status="queued",
        attempts=0,
        max_attempts=max_attempts,
        outcome=None,
        outcome_reason=None,
        created_at=written.received_at,
        updated_at=written.received_at,
    )
    return Recorded(event=event, job=job if row.generate else None, is_new=True)
