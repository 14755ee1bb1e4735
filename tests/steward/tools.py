"""Plants histories, runs the steward over them as its worker would, and reads what came of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
from psycopg.types.json import Jsonb

from cmserver.access.model import Principal, Project
from cmserver.access.projects import make_project
from cmserver.base.db import Db
from cmserver.base.ids import new_id
from cmserver.base.notifications import NotificationListener
from cmserver.base.settings import Settings
from cmserver.base.sql import Conn
from cmserver.generation.job_notifier import JobNotifier
from cmserver.generation.model import Job
from cmserver.generation.run_batch import BatchRunner
from cmserver.models.providers.model import Completion, Prompt, Rules
from cmserver.observations import repository as observations
from cmserver.observations.model import NewObservation, Observation, ObservationFilter, compose, estimate_tokens
from cmserver.steward import operate, repository
from cmserver.steward.model import JOB_TYPES, JobType, Mode, NewJob, StewardJob, StewardRun
from cmserver.steward.plan import enqueue, plan_team
from cmserver.steward.run_job import StewardRunner
from cmserver.steward.runs import repository as runs
from tests.generation.tools import Hand, make_hand
from tests.rows import rows
from tests.steward.corpus import ROOT, Call, Case, Note

START = datetime.now(UTC) - timedelta(days=30)


class Model:
    """A model that answers with `reply`, waits for `gate`, or raises `error`."""

    name, model = "scripted", "scripted-1"

    def __init__(self) -> None:
        self.prompts: list[Prompt] = []
        self.reply: str = ""
        self.error: Exception | None = None
        self.tokens: tuple[int, int] = (200, 20)
        self.asked = asyncio.Event()
        self.gate: asyncio.Event | None = None

    async def complete(self, prompt: Prompt) -> Completion:
        self.prompts.append(prompt)
        self.asked.set()
        if self.gate is not None:
            await self.gate.wait()
        if self.error is not None:
            raise self.error
        return Completion(text=self.reply, model=self.model, input_tokens=self.tokens[0], output_tokens=self.tokens[1])


MODEL = Model()


def make_model() -> Model:
    """The factory that CMSERVER_PROVIDER names."""
    return MODEL


INSERT_JOB = """
    INSERT INTO observation_generation_jobs
           (id, team_id, project_id, lane, source_type, source_id, job_type, payload, status, attempts, outcome, completed_at,
            failed_at, last_error)
    SELECT coalesce(%(id)s, gen_random_uuid()), %(team)s, %(project)s, %(project)s, 'steward',
           coalesce(%(step)s, gen_random_uuid()), %(type)s, %(payload)s, %(status)s,
           CASE WHEN %(status)s = 'queued' THEN 0 ELSE 1 END, CASE WHEN %(status)s = 'completed' THEN 'skipped' END,
           CASE WHEN %(status)s = 'completed' THEN %(ended_at)s::timestamptz END,
           CASE WHEN %(status)s = 'failed' THEN %(ended_at)s::timestamptz END,
           CASE WHEN %(status)s = 'failed' THEN '{"reason": "timeout", "message": "too slow"}'::jsonb END
    RETURNING id
"""


async def insert_job(
    conn: Conn,
    team_id: UUID,
    project_id: UUID,
    job_type: str = "recheck",
    *,
    job_id: UUID | None = None,
    step_id: UUID | None = None,
    told: object = None,
    sources: Sequence[UUID] = (),
    status: str = "completed",
    ended_at: datetime | None = None,
) -> UUID:
    """A job past the planner."""
    payload = {"trigger": "a test", "sources": [str(id_) for id_ in sources], "input": told or {"mode": "write"}}
    cursor = await conn.execute(
        INSERT_JOB,
        {
            "id": job_id,
            "team": team_id,
            "project": project_id,
            "type": job_type,
            "step": step_id,
            "payload": Jsonb(payload),
            "status": status,
            "ended_at": ended_at or datetime.now(UTC),
        },
    )
    row = await cursor.fetchone()
    assert row is not None
    return row[0]


class Keeper:
    """The steward of one team."""

    def __init__(self, db: Db, settings: Settings, principal: Principal) -> None:
        self.db = db
        self.settings = settings
        self.principal = principal
        self.steward = StewardRunner(db, settings)
        self.hand: Hand | None = None
        """Its worker, from its first work on."""

    @property
    def team_id(self) -> UUID:
        return self.principal.team_id

    async def switch(self, mode: Mode, *, is_paused: bool = False, executors: Sequence[JobType] = JOB_TYPES) -> None:
        async with self.db.tenant(self.team_id) as conn:
            await operate.set_mode(conn, self.principal, mode=mode, is_paused=is_paused, executors=executors)

    async def plan(self, *job_types: JobType, project_id: UUID | None = None) -> list[UUID]:
        return await plan_team(
            self.db,
            self.settings,
            self.team_id,
            project_id=project_id,
            job_types=job_types or JOB_TYPES,
            trigger_reason="a test",
        )

    async def work(self, *job_types: JobType, project_id: UUID | None = None) -> list[StewardRun]:
        """Plan, and run until nothing is due; returns the runs, oldest first."""
        await self.plan(*job_types, project_id=project_id)
        await self.drain()
        return await self.runs()

    async def drain(self) -> None:
        """Claim and run until nothing is due."""
        if self.hand is None:
            self.hand = await make_hand(self.db, JobNotifier(self.db, NotificationListener(self.db.url)), [Rules()], 3600)
        self.hand.runner = BatchRunner(self.db, [Rules()], self.hand.notifier, self.settings, self.steward)
        await self.hand.work()

    async def let_time_pass(self) -> None:
        """Until every back-off is over."""
        await rows(self.db, "UPDATE generation_lanes SET held_until = NULL, due_at = now() WHERE held_until IS NOT NULL")

    async def enqueue(self, job_type: str, payload: dict[str, object], *, project_id: UUID | None = None) -> UUID:
        """Of a step of its own; without a project, of some project of the team."""
        (row,) = await rows(self.db, "SELECT id FROM projects WHERE team_id = %s ORDER BY id LIMIT 1", self.team_id)
        told: dict[str, object] = {"trigger": "a test", "sources": [], "input": payload}
        job = NewJob(team_id=self.team_id, project_id=project_id or row["id"], job_type=job_type, source_id=new_id(), payload=told)
        async with self.db.system() as conn:
            (job_id,) = await enqueue(conn, [job])
        return job_id

    async def change(self, change: Any, job_id: UUID) -> tuple[Job, bool]:
        """`manage.retry_job` or `cancel_job`."""
        return await change(self.db, JobNotifier(self.db, NotificationListener(self.db.url)), self.principal, str(job_id))

    async def runs(self) -> list[StewardRun]:
        async with self.db.tenant(self.team_id) as conn:
            return (await runs.newest(conn, self.team_id, limit=1_000))[::-1]

    async def job(self, job_id: UUID) -> StewardJob:
        async with self.db.tenant(self.team_id) as conn:
            job = await repository.job(conn, self.team_id, job_id)
        assert job is not None
        return job

    async def events(self, job_id: UUID) -> list[str]:
        async with self.db.tenant(self.team_id) as conn:
            return [event.event_type for event in await runs.events(conn, self.team_id, job_id, limit=1_000)]

    async def observations(self, project: Project) -> list[Observation]:
        async with self.db.tenant(self.team_id) as conn:
            return (await observations.newest(conn, self.team_id, ObservationFilter(project_id=project.id), limit=1_000))[::-1]


class Planted(msgspec.Struct, kw_only=True):
    """A case in the database."""

    case: Case
    project: Project
    notes: list[Observation]


async def plant(db: Db, principal: Principal, case: Case) -> Planted:
    """The case in a project of its own: its notes, its tool calls, and for a pair the suggestion."""
    async with db.tenant(principal.team_id) as conn:
        project, _ = await make_project(conn, principal, f"github.com/corpus/{case.name}")
    sessions = {note.session: new_id() for note in case.notes}
    async with db.system() as conn:
        for session_id in sessions.values():
            await conn.execute(
                "INSERT INTO server_sessions (id, project_id, team_id) VALUES (%s, %s, %s)",
                [session_id, project.id, principal.team_id],
            )
        for call in case.calls:
            await _write_call(conn, project, call)
    notes = [await write_note(db, project, note, sessions[note.session]) for note in case.notes]
    if case.same is not None:
        await suggest(db, project, *notes)
    return Planted(case=case, project=project, notes=notes)


async def write_note(db: Db, project: Project, note: Note, session_id: UUID | None = None) -> Observation:
    content = compose(note.title, None, note.narrative or None, note.facts)
    async with db.tenant(project.team_id) as conn:
        (number,) = await observations.take_numbers(conn, project.team_id, 1)
        new = NewObservation(
            id=new_id(),
            number=number,
            server_session_id=session_id,
            kind="observation",
            type=note.type,
            origin="rules",
            title=note.title,
            narrative=note.narrative or None,
            facts=list(note.facts) or None,
            files_modified=list(note.files) or None,
            content=content,
            read_tokens=estimate_tokens(content),
            created_at=START + timedelta(days=note.day),
        )
        await observations.insert(conn, project.team_id, project.id, [new])
        made = await observations.by_id(conn, project.team_id, new.id)
    assert made is not None
    return made


async def suggest(
    db: Db, project: Project, left: Observation, right: Observation, *, similarity: float = 0.95, reason: str = "same"
) -> UUID:
    suggestion_id = new_id()
    async with db.system() as conn:
        await conn.execute(
            """
            INSERT INTO consolidation_suggestions (id, team_id, project_id, left_id, right_id, similarity, measured_by, reason)
            VALUES (%s, %s, %s, least(%s::uuid, %s::uuid), greatest(%s::uuid, %s::uuid), %s, 'vector', %s)
            """,
            [suggestion_id, project.team_id, project.id, left.id, right.id, left.id, right.id, similarity, reason],
        )
    return suggestion_id


async def write_call(db: Db, project: Project, call: Call) -> UUID:
    async with db.system() as conn:
        return await _write_call(conn, project, call)


async def _write_call(conn: Any, project: Project, call: Call) -> UUID:
    event_id = new_id()
    payload = {"tool_name": call.tool, "tool_input": call.input, "tool_response": call.response, "cwd": ROOT}
    at = START + timedelta(days=call.day, hours=1)
    await conn.execute(
        """
        INSERT INTO agent_events (id, project_id, team_id, source_adapter, idempotency_key, event_type, origin, generate,
                                  size_chars, payload, occurred_at, received_at)
        VALUES (%s, %s, %s, 'api', %s, 'tool_use', 'api', false, 20, %s, %s, %s)
        """,
        [event_id, project.id, project.team_id, str(event_id), Jsonb(payload), at, at],
    )
    return event_id
