"""SQL on the database as a whole: its contents, grants and connections."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import LiteralString, cast
from uuid import UUID

import msgspec
from psycopg import sql

from cmserver.base.sql import Conn, Query, query

OWNS: set[str] = set()


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The database in the exported snapshot."""

    snapshot: str
    transactions: str
    cluster: str
    schema: int
    is_before_squash: bool
    vectors: bool
    installation: UUID
    created_at: str


# Keep the server from ending this transaction while another program reads its snapshot.
DISABLE_IDLE_TIMEOUT = Query(str, "SELECT set_config('idle_in_transaction_session_timeout', '0', true)")

# What rows look like as text must not depend on the settings of a server.
SET_TEXT_FORMAT = Query(
    str,
    """
    SELECT set_config(name, value, true)
      FROM (VALUES ('TimeZone', 'UTC'), ('DateStyle', 'ISO, MDY'), ('IntervalStyle', 'postgres'), ('extra_float_digits', '1'),
                   ('bytea_output', 'hex')) AS format (name, value)
    """,
)

# The SHA-256 of the dump whose restore has loaded this database and not ended. The table is there only while a restore runs; its
# comment is the dump.
UNFINISHED = Query(str, "SELECT obj_description(to_regclass('public.restore_unfinished')::oid, 'pg_class')")

HAS_SEEN = Query(bool, "SELECT pg_visible_in_snapshot(%(transaction)s::xid8, %(snapshot)s::pg_snapshot)")

# Whether it has the tables that every cmserver database has.
IS_CMSERVER = Query(
    bool, "SELECT to_regclass('public.schema_migrations') IS NOT NULL AND to_regclass('public.installation') IS NOT NULL"
)

# Export this transaction's snapshot; other programs can read it as long as the transaction lasts. While a server recovers, the text
# of a snapshot does not name the transactions that were open: then it counts none since the oldest of them as seen.
EXPORT = Query(
    Summary,
    """
    SELECT pg_export_snapshot() AS snapshot,
           CASE WHEN pg_is_in_recovery() THEN concat(pg_snapshot_xmin(s), ':', pg_snapshot_xmin(s), ':') ELSE s::text
           END AS transactions,
           (SELECT system_identifier::text FROM pg_control_system()) AS cluster,
           (SELECT max(number) FROM schema_migrations) AS schema,
           EXISTS (SELECT FROM schema_migrations WHERE number = 1 AND name = '0001_access') AS is_before_squash,
           EXISTS (SELECT FROM pg_extension WHERE extname = 'vector') AS vectors, (SELECT id FROM installation) AS installation,
           to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') AS created_at
      FROM pg_current_snapshot() AS s
    """,
)

HAS_VECTORS = Query(bool, "SELECT EXISTS (SELECT FROM pg_extension WHERE extname = 'vector')")

# The time by the clock of the database.
CLOCK = Query(datetime, "SELECT clock_timestamp()")

INSTALLATION = Query(UUID, "SELECT id FROM installation")

TABLES = Query(
    str,
    """
    SELECT c.relname::text FROM pg_class c
     WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p')
       AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = c.oid AND d.deptype = 'e')
     ORDER BY 1
    """,
)

# The roles that have rights in the database. Rights of the owners are not in a dump, and the roles pg_... are in every cluster.
GRANTEES = Query(
    str,
    """
    SELECT DISTINCT r.rolname::text
      FROM (SELECT g.grantee FROM pg_class c, aclexplode(c.relacl) g
             WHERE c.relnamespace = 'public'::regnamespace AND g.grantee <> c.relowner
             UNION ALL
            SELECT g.grantee FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid, aclexplode(a.attacl) g
             WHERE c.relnamespace = 'public'::regnamespace AND g.grantee <> c.relowner
             UNION ALL
            SELECT g.grantee FROM pg_proc p, aclexplode(p.proacl) g
             WHERE p.pronamespace = 'public'::regnamespace AND g.grantee <> p.proowner
             UNION ALL
            SELECT g.grantee FROM pg_namespace n, aclexplode(n.nspacl) g
             WHERE n.nspname = 'public' AND g.grantee <> n.nspowner
             UNION ALL
            SELECT unnest(polroles) FROM pg_policy) AS objects
      JOIN pg_roles r ON r.oid = objects.grantee
     WHERE NOT starts_with(r.rolname::text, 'pg_')
     ORDER BY 1
    """,
)


# Whether there is nothing in the database but extensions.
IS_EMPTY = Query(
    bool,
    """
    SELECT NOT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                        WHERE n.nspname <> 'information_schema' AND NOT starts_with(n.nspname::text, 'pg_')
                          AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = c.oid AND d.deptype = 'e'))
       AND NOT EXISTS (SELECT FROM pg_proc p WHERE p.pronamespace = 'public'::regnamespace
                          AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = p.oid AND d.deptype = 'e'))
    """,
)

SERVERS = Query(
    int,
    """
    SELECT count(*) FROM pg_stat_activity
     WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name = 'cmserver'
    """,
)

DROPS = Query(
    str,
    """
    SELECT format('DROP %%s IF EXISTS %%s CASCADE', kind, name)
      FROM (SELECT 0 AS place, n.oid, 'SCHEMA' AS kind, quote_ident(n.nspname) AS name
              FROM pg_namespace n WHERE n.nspname = 'cmserver_past'
             UNION ALL
            SELECT 1 AS place, c.oid, CASE c.relkind WHEN 'v' THEN 'VIEW' WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END AS kind,
                   c.oid::regclass::text AS name
              FROM pg_class c WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('v', 'r', 'p', 'S')
             UNION ALL
            SELECT 2, p.oid, CASE p.prokind WHEN 'p' THEN 'PROCEDURE' ELSE 'FUNCTION' END, p.oid::regprocedure::text
              FROM pg_proc p WHERE p.pronamespace = 'public'::regnamespace
             UNION ALL
            SELECT 3, t.oid, 'TYPE', t.oid::regtype::text
              FROM pg_type t LEFT JOIN pg_class c ON c.oid = t.typrelid
             WHERE t.typnamespace = 'public'::regnamespace AND (t.typtype IN ('e', 'd') OR c.relkind = 'c')) AS objects
     WHERE NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = objects.oid AND d.deptype IN ('e', 'i'))
     ORDER BY place
    """,
)


async def checksums(conn: Conn) -> tuple[dict[str, int], dict[str, str]]:
    """Rows per table, and a checksum of the text of all rows, in whatever order. In a transaction, whose settings it changes."""
    await SET_TEXT_FORMAT.run(conn)
    row_counts: dict[str, int] = {}
    sums: dict[str, str] = {}
    for table in await TABLES.all(conn):
        cursor = await conn.execute(
            sql.SQL("SELECT count(*), coalesce(sum(hashtextextended(t::text, 0)), 0)::text FROM public.{} t").format(
                sql.Identifier(table)
            )
        )
        row = await cursor.fetchone()
        row_counts[table], sums[table] = (int(row[0]), str(row[1])) if row else (0, "0")
    return row_counts, sums


async def has_seen(conn: Conn, snapshot: str, transaction: int) -> bool:
    """Whether a transaction had committed when the snapshot (pg_snapshot) was taken."""
    return await HAS_SEEN.one(conn, snapshot=snapshot, transaction=str(transaction))


async def finish(conn: Conn) -> None:
    """Mark the restore as ended."""
    await conn.execute("DROP TABLE IF EXISTS public.restore_unfinished")


@query("SELECT role FROM unnest(%(roles)s::text[]) AS role WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = role)")
async def missing_roles(conn: Conn, roles: Sequence[str]) -> list[str]: ...


async def installation(conn: Conn) -> UUID | None:
    return await INSTALLATION.first(conn) if await IS_CMSERVER.one(conn) else None


async def is_served(conn: Conn) -> bool:
    """Whether a cmserver process is connected to the database."""
    return await SERVERS.one(conn) > 0


async def drop_all(conn: Conn) -> None:
    """Empty the database of everything but extensions."""
    for statement in await DROPS.all(conn):
        await conn.execute(cast("LiteralString", statement))
