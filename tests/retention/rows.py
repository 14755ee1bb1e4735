"""Old rows of every kind that retention takes, as the program would have left them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import LiteralString
from uuid import UUID

from psycopg.types.json import Jsonb

from cmserver.access.model import Project
from cmserver.base.db import Db
from cmserver.base.ids import new_id
from cmserver.observations.model import Observation
from cmserver.retention.model import KINDS, Kind, RetentionReport
from tests.make import Make
from tests.steward.tools import insert_job


class OldRows:
    """Makes them, and looks what is left."""

    def __init__(self, db: Db, make: Make) -> None:
        self.db = db
        self.make = make

    async def write(self, statement: LiteralString, *values: object) -> None:
        async with self.db.system() as conn:
            await conn.execute(statement, values)

    async def count(self, table: LiteralString) -> int:
        return (await self.column(f"SELECT count(*) FROM {table}"))[0]

    async def column(self, query: LiteralString, *values: object) -> list[int]:
        async with self.db.system() as conn:
            cursor = await conn.execute(query, list(values))
            return [row[0] for row in await cursor.fetchall()]

    async def observation(
        self,
        project: Project,
        *,
        days_ago: float = 0,
        expired_days_ago: float | None = None,
        importance: float = 0.5,
        into: Observation | None = None,
        superseded_days_ago: float = 0,
    ) -> Observation:
        observation = await self.make.observation(project=project)
        await self.write(
            "UPDATE observations o SET created_at = old.time, updated_at = old.time, importance = %s"
            " FROM (SELECT now() - make_interval(secs => %s) AS time) old WHERE o.id = %s",
            importance,
            days_ago * 86_400,
            observation.id,
        )
        if expired_days_ago is not None:
            await self.write(
                "UPDATE observations SET ttl_seconds = 60, expires_at = now() - make_interval(secs => %s) WHERE id = %s",
                expired_days_ago * 86_400,
                observation.id,
            )
        if into is not None:
            await self.write(
                "UPDATE observations SET superseded_by = %s, superseded_at = now() - make_interval(secs => %s) WHERE id = %s",
                into.id,
                superseded_days_ago * 86_400,
                observation.id,
            )
        return observation

    async def event(
        self,
        project: Project,
        *,
        days_ago: float,
        status: str | None = None,
        purged_days_ago: float | None = None,
        session_id: UUID | None = None,
    ) -> UUID:
        """An event; with a `status` also its job."""
        event_id = new_id()
        await self.write(
            "INSERT INTO agent_events (id, project_id, team_id, server_session_id, source_adapter, idempotency_key, event_type,"
            " origin, generate, size_chars, payload, occurred_at, received_at, payload_purged_at)"
            " VALUES (%s, %s, %s, %s, 'api', %s, 'tool_use', 'api', %s, 20, %s, now(), now() - make_interval(secs => %s),"
            " now() - make_interval(secs => %s))",
            *(event_id, project.id, project.team_id, session_id, f"key of {event_id}", status is not None),
            *(Jsonb({} if purged_days_ago else {"text": "a wombat"}), days_ago * 86_400),
            None if purged_days_ago is None else purged_days_ago * 86_400,
        )
        if status is not None:
            await self.job(project, status=status, ended_days_ago=days_ago, event_id=event_id, session_id=session_id)
        return event_id

    async def job(
        self,
        project: Project,
        *,
        status: str = "completed",
        ended_days_ago: float,
        event_id: UUID | None = None,
        session_id: UUID | None = None,
    ) -> UUID:
        """A job with the log that its trigger writes; the log is as old as the job's end."""
        job_id = new_id()
        statement: LiteralString = (
            "INSERT INTO observation_generation_jobs (id, project_id, team_id, lane, source_type, source_id, agent_event_id,"
            " server_session_id, job_type, idempotency_key, status, outcome, completed_at, failed_at, cancelled_at, locked_at,"
            " locked_by, worker_id, claim)"
            " SELECT %(id)s, %(project)s, %(team)s, coalesce(%(session)s, %(id)s),"
            " CASE WHEN %(event)s::uuid IS NULL THEN 'session_summary' ELSE 'agent_event' END,"
            " coalesce(%(event)s, %(session)s, %(id)s), %(event)s, %(session)s, 'generate', %(id)s::text, status,"
            " CASE WHEN status = 'completed' THEN 'skipped' END, CASE WHEN status = 'completed' THEN ended END,"
            " CASE WHEN status = 'failed' THEN ended END, CASE WHEN status = 'cancelled' THEN ended END,"
            " CASE WHEN status = 'processing' THEN ended END, CASE WHEN status = 'processing' THEN 'worker' END,"
            " CASE WHEN status = 'processing' THEN 1 END, CASE WHEN status = 'processing' THEN 1 END"
            " FROM (SELECT %(status)s::text AS status, now() - make_interval(secs => %(seconds)s) AS ended) given"
        )
        made: dict[str, object] = {
            "id": job_id,
            "project": project.id,
            "team": project.team_id,
            "session": session_id,
            "event": event_id,
            "status": status,
            "seconds": ended_days_ago * 86_400,
        }
        async with self.db.system() as conn:
            await conn.execute(statement, made)
            await conn.execute(
                "UPDATE observation_generation_job_events SET created_at = now() - make_interval(secs => %(seconds)s)"
                " WHERE generation_job_id = %(id)s",
                made,
            )
        return job_id

    async def receipt(self, project: Project, *, days_ago: float) -> None:
        await self.write(
            "INSERT INTO context_injections (id, team_id, project_id, reason, numbers, summary_numbers, left_out, left_out_count,"
            " tokens, budget_tokens, chars, created_at)"
            " VALUES (%s, %s, %s, 'startup', '{1}', '{}', '{}', 0, 10, 2000, 40, now() - make_interval(secs => %s))",
            *(new_id(), project.team_id, project.id, days_ago * 86_400),
        )

    async def search(self, team_id: UUID, *, days_ago: float) -> None:
        """A row of the funnel."""
        await self.write(
            "INSERT INTO memory_telemetry (team_id, event_type, created_at)"
            " VALUES (%s, 'recall_attempt', now() - make_interval(secs => %s))",
            *(team_id, days_ago * 86_400),
        )

    async def steward_job(self, team_id: UUID, *, ended_days_ago: float) -> None:
        """A job of the steward, of a suggestion that is gone."""
        async with self.db.system() as conn:
            ended_at = datetime.now(UTC) - timedelta(days=ended_days_ago)
            cursor = await conn.execute("SELECT id FROM projects WHERE team_id = %s LIMIT 1", [team_id])
            row = await cursor.fetchone()
            assert row is not None
            await insert_job(conn, team_id, row[0], "auto_merge", ended_at=ended_at)

    async def act(
        self, team_id: UUID, *, days_ago: float, project: Project | None = None, action: str = "observations.served"
    ) -> None:
        """A row of the audit log."""
        await self.write(
            "INSERT INTO audit_log (team_id, project_id, action, resource_type, created_at)"
            " VALUES (%s, %s, %s, 'observation', now() - make_interval(secs => %s))",
            *(team_id, project and project.id, action, days_ago * 86_400),
        )

    async def count_accesses_up_to(self, audit_id: int) -> None:
        await self.write(
            "INSERT INTO read_positions (name, read_to) VALUES ('accesses', %s)"
            " ON CONFLICT (team_id, name) DO UPDATE SET read_to = %s",
            *(audit_id, audit_id),
        )


def taken(report: RetentionReport) -> dict[Kind, int]:
    """What was taken, without zeros."""
    return {kind: report.counts[kind] for kind in KINDS if report.counts.get(kind)}
