"""Queries on the whole installation, as the owner. Owns no table."""

from __future__ import annotations

from uuid import UUID

import msgspec

from cmserver.base.sql import Conn, Query

OWNS: set[str] = set()


class Conservation(msgspec.Struct, frozen=True, kw_only=True):
    """One team's sums: every event that asked for observations has exactly one job, in exactly one state."""

    team_id: UUID
    team: str
    events: int
    jobs: int
    queued: int
    processing: int
    observed: int
    skipped: int
    failed: int
    cancelled: int
    events_without_job: int
    jobs_without_event: int

    @property
    def holds(self) -> bool:
        ends = self.queued + self.processing + self.observed + self.skipped + self.failed + self.cancelled
        return self.events == self.jobs == ends and not self.events_without_job and not self.jobs_without_event


class Schema(msgspec.Struct, frozen=True, kw_only=True):
    """How far the database's schema is, and whether vectors are possible."""

    number: int
    vectors: bool
    postgres: str
    workers: int


CONSERVATION = Query(
    Conservation,
    """
    WITH asked AS (
        SELECT team_id, count(*) AS events,
               count(*) FILTER (WHERE NOT EXISTS (SELECT FROM observation_generation_jobs j WHERE j.agent_event_id = e.id)) AS alone
          FROM agent_events e WHERE generate GROUP BY team_id
    ), done AS (
        SELECT j.team_id, count(*) AS jobs,
               count(*) FILTER (WHERE status = 'queued') AS queued,
               count(*) FILTER (WHERE status = 'processing') AS processing,
               count(*) FILTER (WHERE outcome = 'observed') AS observed,
               count(*) FILTER (WHERE outcome = 'skipped') AS skipped,
               count(*) FILTER (WHERE status = 'failed') AS failed,
               count(*) FILTER (WHERE status = 'cancelled') AS cancelled,
               count(*) FILTER (WHERE NOT coalesce(e.generate, false)) AS alone
          FROM observation_generation_jobs j LEFT JOIN agent_events e ON e.id = j.agent_event_id
         WHERE j.source_type = 'agent_event' GROUP BY j.team_id
    )
    SELECT t.id AS team_id, t.name AS team, coalesce(a.events, 0) AS events, coalesce(d.jobs, 0) AS jobs,
           coalesce(d.queued, 0) AS queued, coalesce(d.processing, 0) AS processing, coalesce(d.observed, 0) AS observed,
           coalesce(d.skipped, 0) AS skipped, coalesce(d.failed, 0) AS failed, coalesce(d.cancelled, 0) AS cancelled,
           coalesce(a.alone, 0) AS events_without_job, coalesce(d.alone, 0) AS jobs_without_event
      FROM teams t LEFT JOIN asked a ON a.team_id = t.id LEFT JOIN done d ON d.team_id = t.id
     ORDER BY t.name, t.id
    """,
)

SCHEMA = Query(
    Schema,
    """
    SELECT (SELECT max(number) FROM schema_migrations) AS number,
           EXISTS (SELECT FROM pg_extension WHERE extname = 'vector') AS vectors,
           current_setting('server_version') AS postgres,
           (SELECT count(*) FROM live_workers()) AS workers
    """,
)


async def conservation(conn: Conn) -> list[Conservation]:
    """For every team. A role that can see none gets an empty list, which proves nothing."""
    return await CONSERVATION.all(conn)


async def schema(conn: Conn) -> Schema:
    return await SCHEMA.one(conn)
