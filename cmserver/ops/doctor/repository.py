"""SQL of the doctor, as the owner: one look at the database as a whole. Owns no table."""

from __future__ import annotations

import msgspec

from cmserver.base.sql import Conn, Query, query
from cmserver.ops.doctor.model import DatabaseFacts, DeadRows, KeyEnd, OpenTransaction, OrphanedKey, SpentBudget

OWNS: set[str] = set()

# The number of the newest migration in the database.
SCHEMA_NUMBER = Query(int, "SELECT coalesce(max(number), 0) FROM schema_migrations")

# Counted up to a bound where there may be millions: that there are some is enough to know.
FACTS = Query(
    DatabaseFacts,
    """
    SELECT (SELECT coalesce(max(number), 0) FROM schema_migrations) AS schema_number,
           (SELECT min(applied_at) FROM schema_migrations) AS first_start,
           extract(epoch FROM clock_timestamp())::float8 AS epoch,
           d.datname::text AS database,
           coalesce(d.datcollversion <> pg_database_collation_actual_version(d.oid), false) AS collation_changed,
           EXISTS (SELECT FROM pg_extension WHERE extname = 'vector') AS has_vector,
           current_setting('archive_mode') <> 'off' AS archives_log,
           current_setting('max_connections')::int AS max_connections,
           current_setting('superuser_reserved_connections')::int AS reserved_connections,
           (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend') AS used_connections,
           (SELECT count(*) FROM live_workers()) AS live_workers,
           (SELECT count(*) FROM generation_workers WHERE worker_id NOT IN (SELECT live_workers())) AS dead_workers,
           (SELECT count(*) FROM generation_lanes
             WHERE worker_id IS NOT NULL AND worker_id NOT IN (SELECT live_workers())) AS expired_leases,
           (SELECT count(*) FROM (
                SELECT FROM generation_lanes WHERE worker_id IS NULL AND due_at < now() - interval '5 minutes' LIMIT 1000) l)
               AS stuck_lanes,
           (SELECT count(*) FROM teams t CROSS JOIN LATERAL (
                SELECT FROM observation_generation_jobs j
                 WHERE j.team_id = t.id AND j.phase = 'failed' AND j.created_at > '-infinity' -- rule 3 of migration 0001
                   AND j.created_at > now() - interval '7 days' LIMIT 1000) j)
               AS failed_jobs,
           (SELECT extract(epoch FROM max(now() - due_at))::float8 FROM generation_lanes WHERE worker_id IS NULL AND due_at < now())
               AS oldest_waiting_seconds,
           (SELECT count(*) FROM (
                SELECT FROM observation_embeddings e JOIN embedding_models m ON m.id = e.model_id AND m.state <> 'retired'
                 WHERE (e.embedding IS NULL OR e.is_outdated) AND e.last_error IS NOT NULL LIMIT 1000) e) AS failing_embeddings,
           (SELECT coalesce(sum(jsonb_array_length(a.details -> 'numbers')), 0)::int
              FROM teams t JOIN audit_log a ON a.team_id = t.id AND a.action = 'observations.revived'
             WHERE a.created_at > now() - interval '7 days') AS revived_observations,
           ARRAY(SELECT c.relname::text FROM pg_class c
                   JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'team_id' AND NOT a.attisdropped
                  WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r'
                    AND has_table_privilege('cmserver_tenant', c.oid, 'SELECT')
                    AND NOT (c.relrowsecurity AND EXISTS (SELECT FROM pg_policy p WHERE p.polrelid = c.oid))
                  ORDER BY 1) AS unprotected_tables
      FROM pg_database d WHERE d.datname = current_database()
    """,
)


# Keys that expire within a week, and those that were used in the last week and have expired.
KEY_ENDS = Query(
    KeyEnd,
    """
    SELECT k.id::text AS id, k.actor_id AS actor, t.name AS team,
           extract(epoch FROM k.expires_at - now())::float8 / 86400 AS days_left
      FROM api_keys k JOIN teams t ON t.id = k.team_id
     WHERE k.revoked_at IS NULL AND k.replaced_by IS NULL AND t.archived_at IS NULL
       AND k.expires_at < now() + interval '7 days'
       AND (k.expires_at > now() OR k.last_used_at > now() - interval '7 days')
     ORDER BY k.expires_at LIMIT 20
    """,
)

# Today keys end when who made them leaves the team. Of people who left before, keys for other actors stayed.
ORPHANED_KEYS = Query(
    OrphanedKey,
    """
    SELECT k.id::text AS id, k.actor_id AS actor, t.name AS team, u.name AS maker
      FROM api_keys k JOIN teams t ON t.id = k.team_id JOIN users u ON u.id = k.made_by
     WHERE k.revoked_at IS NULL AND k.replaced_by IS NULL AND t.archived_at IS NULL AND NOT u.is_operator
       AND (k.expires_at IS NULL OR k.expires_at > now())
       AND NOT EXISTS (SELECT FROM team_members m WHERE m.team_id = k.team_id AND m.account_id = k.made_by)
     ORDER BY k.created_at LIMIT 20
    """,
)

SPENT_BUDGETS = Query(
    SpentBudget,
    """
    SELECT t.name AS team, p.canonical_id AS project, b.period, b.max_tokens, b.max_usd,
           coalesce(s.tokens >= b.max_tokens, false) AS by_tokens, coalesce(s.usd >= b.max_usd, false) AS by_usd
      FROM budgets b JOIN teams t ON t.id = b.team_id LEFT JOIN projects p ON p.team_id = b.team_id AND p.id = b.project_id
     CROSS JOIN LATERAL (
           SELECT coalesce(sum(s.input_tokens + s.output_tokens + s.cache_read_tokens + s.cache_write_tokens), 0) AS tokens,
                  coalesce(sum(s.cost_usd), 0) AS usd
             FROM generation_spending s
            WHERE s.team_id = b.team_id AND s.day >= date_trunc(b.period, now() AT TIME ZONE 'UTC')::date
              AND (b.project_id IS NULL OR s.project_id = b.project_id)) s
     WHERE s.tokens >= b.max_tokens OR s.usd >= b.max_usd
     ORDER BY t.name, p.canonical_id, b.period LIMIT 20
    """,
)


class _Probe(msgspec.Struct, frozen=True):
    sent: str


NOTIFY = Query(_Probe, "SELECT pg_notify(%(channel)s, %(payload)s)::text AS sent")
# Listen on the doctor's channel.
LISTEN = Query(int, "LISTEN cmserver_doctor")


@query("""
    SELECT pid, coalesce(nullif(application_name, ''), usename, 'unknown')::text AS program,
           extract(epoch FROM now() - xact_start)::float8 AS seconds
      FROM pg_stat_activity
     WHERE xact_start < now() - make_interval(secs => %(seconds)s) AND backend_type = 'client backend'
       AND datname = current_database() AND pid <> pg_backend_pid()
     ORDER BY xact_start LIMIT 5
    """)
async def open_transactions(conn: Conn, seconds: float) -> list[OpenTransaction]:
    """Transactions that have been open for longer, the oldest first."""
    ...


@query("""
    SELECT relname::text AS name, n_dead_tup AS dead, n_live_tup AS live FROM pg_stat_user_tables
     WHERE n_dead_tup > %(least)s AND n_dead_tup > n_live_tup / 2 ORDER BY n_dead_tup DESC LIMIT 5
    """)
async def dead_rows(conn: Conn, least: int) -> list[DeadRows]:
    """Tables with more dead rows than that, and than half of their live ones."""
    ...


async def notify(conn: Conn, payload: str) -> None:
    """Send a notification on the doctor's channel."""
    await NOTIFY.one(conn, channel="cmserver_doctor", payload=payload)
