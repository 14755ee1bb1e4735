"""Queries on the whole installation, as the owner. Owns no table."""

from __future__ import annotations

from datetime import date
from uuid import UUID

import msgspec

from cmserver.base.sql import Query

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


class NumberSums(msgspec.Struct, frozen=True, kw_only=True):
    """One team's numbers: each that was given out is that of a turn, or of an observation that is shown, merged into another, or
    expired; or what had it is deleted.
    """

    team: str
    numbered: int
    turns: int
    shown: int
    merged: int
    expired: int
    deleted: int
    merged_without_record: int
    """Merged ones of which no version of the other says so: they could not be brought back."""
    numbered_twice: int
    """Numbers that an observation and a turn have."""

    @property
    def holds(self) -> bool:
        return self.deleted >= 0 and not (self.merged_without_record or self.numbered_twice)


class EntitySums(msgspec.Struct, frozen=True, kw_only=True):
    """One team's entities: each counts the observations and turns that mention it by any of its names."""

    team: str
    entities: int
    aliases: int
    mentions: int
    miscounted: int
    """Entities whose count is another one."""
    astray: int
    """Mentions that count for another entity than the one that their name stands for."""

    @property
    def holds(self) -> bool:
        return not (self.miscounted or self.astray)


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
    dead_rows: int


class MonthTotals(msgspec.Struct, frozen=True, kw_only=True):
    """A calendar month (UTC): `month` is its first day; `events` is how many events all teams stored; `requests` is how many
    requests they made.
    """

    month: date
    events: int
    requests: int


# For every team. A role that can see none gets an empty list, which proves nothing.
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

# For every team.
NUMBER_SUMS = Query(
    NumberSums,
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
    ), kept_turns AS (
        SELECT t.team_id, count(*) AS total,
               count(*) FILTER (WHERE EXISTS (SELECT FROM observations o
                                               WHERE o.team_id = t.team_id AND o.number = t.number)) AS twice
          FROM turns t GROUP BY t.team_id
    )
    SELECT t.name AS team, coalesce(c.last_number %% 1000000000, 0) AS numbered,
           coalesce(w.total, 0) AS turns, coalesce(s.shown, 0) AS shown,
           coalesce(s.merged, 0) AS merged, coalesce(s.expired, 0) AS expired,
           coalesce(c.last_number %% 1000000000, 0) - coalesce(s.total, 0) - coalesce(w.total, 0) + coalesce(w.twice, 0) AS deleted,
           coalesce(s.merged_without_record, 0) AS merged_without_record, coalesce(w.twice, 0) AS numbered_twice
      FROM teams t
      LEFT JOIN stored s ON s.team_id = t.id
      LEFT JOIN kept_turns w ON w.team_id = t.id
      LEFT JOIN observation_counters c ON c.team_id = t.id
     ORDER BY t.name, t.id
    """,
)

# The sums of every team that has entities.
ENTITY_SUMS = Query(
    EntitySums,
    """
    WITH counted AS (
        SELECT m.entity_id, count(DISTINCT m.place_id) AS places, count(*) AS mentions,
               count(*) FILTER (WHERE m.entity_id <> coalesce(n.merged_into, n.id)) AS astray
          FROM entity_mentions m JOIN entities n ON n.id = m.named_id GROUP BY m.entity_id
    ), kept AS (
        SELECT e.team_id, count(*) FILTER (WHERE e.merged_into IS NULL) AS entities,
               count(*) FILTER (WHERE e.merged_into IS NOT NULL) AS aliases, coalesce(sum(c.mentions), 0)::bigint AS mentions,
               count(*) FILTER (WHERE e.mention_count <> coalesce(c.places, 0)) AS miscounted,
               coalesce(sum(c.astray), 0)::bigint AS astray
          FROM entities e LEFT JOIN counted c ON c.entity_id = e.id GROUP BY e.team_id
    )
    SELECT t.name AS team, k.entities, k.aliases, k.mentions, k.miscounted, k.astray
      FROM kept k JOIN teams t ON t.id = k.team_id ORDER BY t.name, t.id
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
           (SELECT count(*) FROM teams WHERE archived_at IS NULL AND private_of IS NULL) AS teams
    """,
)

# All tables, the largest first.
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

# Of all teams, the last twelve months that have any, the newest first.
MONTH_TOTALS = Query(
    MonthTotals,
    """
    SELECT month, coalesce(sum(amount) FILTER (WHERE kind = 'events'), 0)::bigint AS events,
           coalesce(sum(amount) FILTER (WHERE kind = 'requests'), 0)::bigint AS requests
      FROM usage_counters GROUP BY month ORDER BY month DESC LIMIT 12
    """,
)
