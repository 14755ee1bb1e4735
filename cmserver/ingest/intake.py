"""Takes in the events of a request: finds their projects, records them, and with `wait` waits for their observations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from uuid import UUID

from msgspec import UNSET

from cmserver.access.model import Principal, Project
from cmserver.access.projects import Projects
from cmserver.base.db import Db
from cmserver.base.errors import Issue, NotFound
from cmserver.base.ids import from_epoch_ms, named_id
from cmserver.base.notifications import NotificationListener
from cmserver.base.structs import reshape
from cmserver.events.model import Origin
from cmserver.events.wire import EventOut
from cmserver.generation.job_notifier import TERMINAL, wait_for_jobs
from cmserver.generation.model import Job
from cmserver.generation.wire import job_out
from cmserver.ingest.model import EventSubmission, RecordedEvent
from cmserver.ingest.record import SESSION_GONE, EventRecorder
from cmserver.ingest.wire import EventIn, EventResultOut, RecordOptions
from cmserver.observations import repository as observations
from cmserver.observations.model import EventObservation
from cmserver.redaction.clean import clean_aside

WAIT_SECONDS = 30.0


class EventIntake:
    """Takes in the events of a request."""

    def __init__(self, db: Db, notifications: NotificationListener, projects: Projects, recorder: EventRecorder) -> None:
        self._db = db
        self._notifications = notifications
        self._projects = projects
        self._recorder = recorder

    async def accept(
        self,
        principal: Principal,
        events: Mapping[str, EventIn],
        options: RecordOptions,
        *,
        size_bytes: int,
        origin: Origin = "api",
    ) -> list[EventResultOut]:
        """Record all events, by their paths, or none; with `options.wait` answer when their jobs have ended, or in 30 s."""
        submissions = await self._submit(principal, events, options, size_bytes, origin)
        recorded = await self._recorder.record(principal, submissions, at_once=options.wait)
        if options.wait:
            return await self._wait(recorded)
        return [
            EventResultOut(event=reshape(event.event, EventOut), generation_job=job_out(event.job) if event.job else UNSET)
            for event in recorded
        ]

    async def _submit(
        self, principal: Principal, events: Mapping[str, EventIn], options: RecordOptions, size_bytes: int, origin: Origin
    ) -> list[EventSubmission]:
        """The events with their projects. A project is made only when nothing is wrong with any of the events."""

        def submission(at: str, project: Project) -> EventSubmission:
            event = events[at]
            milliseconds = event.occurred_at_epoch
            return reshape(
                event,
                EventSubmission,
                source_adapter=event.source_type,
                project=project,
                origin=origin,
                generate=options.generate,
                occurred_at=datetime.now(UTC) if milliseconds is None else from_epoch_ms(milliseconds),
                size_bytes=size_bytes,
                at=at,
            )

        projects = {at: await self._find_project(principal, event, at) for at, event in events.items()}
        submissions = [submission(at, project) for at, project in projects.items() if project]
        if len(submissions) == len(events):
            return submissions
        await self._recorder.check(principal, submissions)
        for at, project in projects.items():
            if project is None:
                await self._check_without_project(events[at], at, size_bytes)
        return [submission(at, project or await self._make_project(principal, events[at], at)) for at, project in projects.items()]

    async def _check_without_project(self, event: EventIn, at: str, size_bytes: int) -> None:
        """Refuse what would be refused of an event whose project is still to be made."""
        await clean_aside(event.payload, size_bytes=size_bytes, at=f"{at}.payload")
        await clean_aside(event.metadata, size_bytes=size_bytes, at=f"{at}.metadata")
        if event.server_session_id is not None:
            raise NotFound(SESSION_GONE, [Issue(f"{at}.serverSessionId", SESSION_GONE)])

    async def _find_project(self, principal: Principal, event: EventIn, at: str) -> Project | None:
        """The project that the event names; None for one that is to be made. NotFound has the path of the name."""
        name, path = event.project_id, f"{at}.projectId"
        try:
            return await self._projects.named_or_own(principal, name, at=path)
        except NotFound as error:
            if principal.project_id is None and name is not None and named_id(name) is None:
                return None
            raise NotFound(str(error), [Issue(path, str(error))]) from error

    async def _make_project(self, principal: Principal, event: EventIn, at: str) -> Project:
        return await self._projects.named_or_own(principal, event.project_id, at=f"{at}.projectId", make=True)

    async def _wait(self, recorded: Sequence[RecordedEvent]) -> list[EventResultOut]:
        """Wait until the events' jobs end, or for WAIT_SECONDS; the events with their jobs and observations."""
        ended: dict[UUID, Job] = {}
        made: dict[UUID, list[EventObservation]] = {}
        for team_id in {event.event.team_id for event in recorded}:  # what is private lies in another one
            of_team = [event for event in recorded if event.event.team_id == team_id and event.job]
            jobs = [event.job for event in of_team if event.job]
            ended |= await wait_for_jobs(self._db, self._notifications, team_id, jobs, WAIT_SECONDS)
            async with self._db.tenant(team_id) as conn:
                made |= await observations.made_of_events(conn, team_id, [event.event.id for event in of_team])
        answers: list[EventResultOut] = []
        for event in recorded:
            job = ended[event.job.id] if event.job else None
            event_observations = made.get(event.event.id, [])
            answers.append(
                EventResultOut(
                    event=reshape(event.event, EventOut),
                    generation_job=job_out(job) if job else UNSET,
                    observation_ids=[observation.id for observation in event_observations],
                    observation_numbers=[observation.number for observation in event_observations],
                    wait_timed_out=True if job and job.status not in TERMINAL else UNSET,
                )
            )
        return answers
