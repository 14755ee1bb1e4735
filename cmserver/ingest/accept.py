"""Accepting events as the doors are sent them: with the projects that they name, and, when asked, with what came of them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from msgspec import UNSET

from cmserver.access.model import Principal, Project
from cmserver.access.projects import Projects
from cmserver.base.db import Db
from cmserver.base.errors import Issue, NotFound
from cmserver.base.ids import from_epoch_ms, named_id
from cmserver.base.live import Hub
from cmserver.base.redaction.clean import clean_aside
from cmserver.events.model import Origin
from cmserver.events.wire import event_out
from cmserver.generation import wait
from cmserver.generation.model import Job
from cmserver.generation.wire import job_out
from cmserver.ingest.model import Incoming, Recorded
from cmserver.ingest.record import SESSION_GONE, Recorder
from cmserver.ingest.wire import EventsQuery, Placed, RecordedOut
from cmserver.observations import repository as observations
from cmserver.observations.model import Drawn

WAIT_SECONDS = 30.0


class Acceptance:
    """One per process."""

    def __init__(self, db: Db, hub: Hub, projects: Projects, recorder: Recorder, *, field_max_chars: int) -> None:
        self._db = db
        self._hub = hub
        self._projects = projects
        self._recorder = recorder
        self._field_max_chars = field_max_chars

    async def accept(
        self, who: Principal, placed: Sequence[Placed], options: EventsQuery, *, origin: Origin = "api"
    ) -> list[RecordedOut]:
        """Record all of them or none, in their order. With `options.wait`, when their jobs have ended or the time is up."""
        incoming = await self._incoming(who, placed, options, origin)
        recorded = await self._recorder.record(who, incoming, at_once=options.wait)
        if options.wait:
            return await self._waited(who, recorded)
        return [RecordedOut(event=event_out(one.event), generation_job=job_out(one.job) if one.job else UNSET) for one in recorded]

    async def _incoming(self, who: Principal, placed: Sequence[Placed], options: EventsQuery, origin: Origin) -> list[Incoming]:
        """The events with their projects. A project is made only when nothing is wrong with any of them."""
        found = [await self._project(who, one) for one in placed]
        known = [_one(one, project, options, origin) for one, project in zip(placed, found, strict=True) if project is not None]
        if len(known) == len(placed):
            return known
        await self._recorder.check(who, known)
        for one, project in zip(placed, found, strict=True):
            if project is None:
                await self._check_unplaced(one)
        return [
            _one(one, project or await self._project_made(who, one), options, origin)
            for one, project in zip(placed, found, strict=True)
        ]

    async def _check_unplaced(self, one: Placed) -> None:
        """Refuse what would be refused of an event whose project is still to be made."""
        most, size = self._field_max_chars, one.size_bytes
        await clean_aside(one.event.payload, field_max_chars=most, size_bytes=size, at=f"{one.at}.payload")
        await clean_aside(one.event.metadata, field_max_chars=most, size_bytes=size, at=f"{one.at}.metadata")
        if one.event.server_session_id is not None:
            raise NotFound(SESSION_GONE, [Issue(f"{one.at}.serverSessionId", SESSION_GONE)])

    async def _project(self, who: Principal, placed: Placed) -> Project | None:
        """The project that an event names; None for one that is to be made. NotFound says which event names it."""
        named, at = placed.event.project_id, f"{placed.at}.projectId"
        try:
            return await self._projects.named_or_own(who, named, at=at)
        except NotFound as error:
            if who.project_id is None and named is not None and named_id(named) is None:
                return None
            raise NotFound(str(error), [Issue(at, str(error))]) from error

    async def _project_made(self, who: Principal, placed: Placed) -> Project:
        return await self._projects.named_or_own(who, placed.event.project_id, at=f"{placed.at}.projectId", make=True)

    async def _waited(self, who: Principal, recorded: Sequence[Recorded]) -> list[RecordedOut]:
        jobs = [one.job for one in recorded if one.job]
        ended = await wait.ended(self._db, self._hub, who.team_id, jobs, WAIT_SECONDS)
        async with self._db.tenant(who.team_id) as conn:
            drawn = await observations.drawn_from(conn, who.team_id, [one.event.id for one in recorded if one.job])
        return [_waited_for(one, ended[one.job.id] if one.job else None, drawn.get(one.event.id, [])) for one in recorded]


def _one(placed: Placed, project: Project, options: EventsQuery, origin: Origin) -> Incoming:
    asked = placed.event
    occurred = asked.occurred_at_epoch
    return Incoming(
        project=project,
        event_type=asked.event_type,
        payload=asked.payload,
        occurred_at=datetime.now(UTC) if occurred is None else from_epoch_ms(occurred),
        source_adapter=asked.source_type,
        origin=origin,
        generate=options.generate,
        source_event_id=asked.source_event_id,
        server_session_id=asked.server_session_id,
        content_session_id=asked.content_session_id,
        platform_source=asked.platform_source,
        metadata=asked.metadata,
        size_bytes=placed.size_bytes,
        at=placed.at,
    )


def _waited_for(one: Recorded, job: Job | None, drawn: Sequence[Drawn]) -> RecordedOut:
    return RecordedOut(
        event=event_out(one.event),
        generation_job=job_out(job) if job else UNSET,
        observation_ids=[each.id for each in drawn],
        observation_numbers=[each.number for each in drawn],
        wait_timed_out=True if job and job.status not in wait.TERMINAL else UNSET,
    )
