"""Queries on the whole installation, as the owner. Owns no table."""

from __future__ import annotations

from datetime import date
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


class ObservationSums(msgspec.Struct, frozen=True, kw_only=True):
    """One team's observations: each number that was given out is shown, merged into another, expired, or deleted."""

    team: str
    numbered: int
    shown: int
    merged: int
    expired: int
    deleted: int
    merged_without_record: int
    """Merged ones of which no version of the other says so: they could not be brought back."""

    @property
    def holds(self) -> bool:
        return self.deleted >= 0 and not self.merged_without_record


class Schema(msgspec.Struct, frozen=True, kw_only=True):
    """How far the database's schema is, and whether vectors are possible."""

    number: int
    vectors: bool
    postgres: str
    workers: int


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """The database on its disk, and how many teams are not archived."""

    database_bytes: int
    teams: int


class TableSize(msgspec.Struct, frozen=True, kw_only=True):
    """A table with its indexes on the disk. Rows are PostgreSQL's estimates; dead ones wait for vacuum."""

    name: str
    bytes: int
    rows: int | None
    """None before the first estimate."""
    dead_rows: int


class MonthTotals(msgspec.Struct, frozen=True, kw_only=True):
    """What all teams stored and asked in a calendar month (UTC)."""

    month: date
    events: int
    requests: int


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

OBSERVATION_SUMS = Query(
    ObservationSums,
    """
    WITH stored AS (
        SELECT o.team_id, count(*) AS total,
               count(*) FILTER (WHERE o.superseded_at IS NULL AND (o.expires_at IS NULL OR o.expires_at > now())) AS shown,
               count(*) FILTER (WHERE o.superseded_at IS NOT NULL) AS merged,
               count(*) FILTER (WHERE o.superseded_at IS NULL AND o.expires_at <= now()) AS expired,
               count(*) FILTER (WHERE o.superseded_at IS NOT NULL AND NOT EXISTS (
                   SELECT FROM observation_versions v
                    WHERE v.observation_id = o.superseded_by AND v.team_id = o.team_id AND v.undone_at IS NULL
                      AND v.source_ids @> ARRAY[o.id])) AS merged_without_record
          FROM observations o GROUP BY o.team_id
    )
    SELECT t.name AS team, coalesce(c.last_number, 0) AS numbered, coalesce(s.shown, 0) AS shown, coalesce(s.merged, 0) AS merged,
           coalesce(s.expired, 0) AS expired, coalesce(c.last_number, 0) - coalesce(s.total, 0) AS deleted,
           coalesce(s.merged_without_record, 0) AS merged_without_record
      FROM teams t LEFT JOIN stored s ON s.team_id = t.id LEFT JOIN observation_counters c ON c.team_id = t.id
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

SIZES = Query(
    Sizes,
    """
    SELECT pg_database_size(current_database()) AS database_bytes,
           (SELECT count(*) FROM teams WHERE archived_at IS NULL) AS teams
    """,
)

TABLE_SIZES = Query(
    TableSize,
    """
    SELECT c.relname::text AS name, pg_total_relation_size(c.oid) AS bytes, nullif(c.reltuples, -1)::bigint AS rows,
           pg_stat_get_dead_tuples(c.oid) AS dead_rows
      FROM pg_class c
     WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p')
     ORDER BY 2 DESC, 1
    """,
)

MONTH_TOTALS = Query(
    MonthTotals,
    """
    SELECT month, coalesce(sum(amount) FILTER (WHERE kind = 'events'), 0)::bigint AS events,
           coalesce(sum(amount) FILTER (WHERE kind = 'requests'), 0)::bigint AS requests
      FROM usage_counters GROUP BY month ORDER BY month DESC LIMIT 12
    """,
)


async def conservation(conn: Conn) -> list[Conservation]:
    """For every team. A role that can see none gets an empty list, which proves nothing."""
    return await CONSERVATION.all(conn)


async def observation_sums(conn: Conn) -> list[ObservationSums]:
    """For every team."""
    return await OBSERVATION_SUMS.all(conn)


async def schema(conn: Conn) -> Schema:
    return await SCHEMA.one(conn)


async def sizes(conn: Conn) -> Sizes:
    return await SIZES.one(conn)


async def table_sizes(conn: Conn) -> list[TableSize]:
    """All tables, the largest first."""
    return await TABLE_SIZES.all(conn)


async def month_totals(conn: Conn) -> list[MonthTotals]:
    """Of all teams, the last twelve months that have any, the newest first."""
    return await MONTH_TOTALS.all(conn)
