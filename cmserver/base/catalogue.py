"""Compares the objects of the database with what sql/migrations/0001_schema.sql makes.

The file itself says what is expected: it is run in a schema of its own, on the same server, in a transaction that is rolled back.
So there is no second list to keep, and both sides are written in the words of one PostgreSQL, with or without pgvector.
"""

from __future__ import annotations

from typing import LiteralString, cast

import msgspec
from psycopg import AsyncConnection, Rollback
from psycopg.rows import TupleRow, class_row

from cmserver.base.tenant_role import TENANT_ROLE

_EXPECTED: LiteralString = "cmserver_expected"
_MAKE_SCHEMA: LiteralString = (
    f"CREATE SCHEMA {_EXPECTED}; SELECT set_config('search_path', '{_EXPECTED}, ' || current_setting('search_path'), true)"
)


class CatalogueDifference(msgspec.Struct, frozen=True, kw_only=True):
    """Names such as `index teams_name` and `column teams.name`, sorted."""

    missing: list[str]
    different: list[str]
    added: list[str]
    """What somebody has made beside cmserver's own."""


class _Object(msgspec.Struct, frozen=True):
    name: str
    definition: str


async def compare_catalogue(conn: AsyncConnection[TupleRow], text: str) -> CatalogueDifference:
    """Compare the schema that has schema_migrations with what `text` makes in an empty one. Nothing is changed.

    Not compared: comments, owners, the order of columns, and storage parameters, which operators tune. The tenant role must exist.
    psycopg.errors.InsufficientPrivilege when the user may not make a schema for it.
    """
    actual = await _list_objects(conn, None)
    expected: dict[str, str] = {}
    async with conn.transaction():
        # Names are found in the new schema first: there they hide the database's own.
        await conn.execute(_MAKE_SCHEMA)
        await conn.execute(cast("LiteralString", text))
        expected = await _list_objects(conn, _EXPECTED)
        raise Rollback
    return CatalogueDifference(
        missing=sorted(filter(_is_needed, expected.keys() - actual.keys())),
        different=sorted(name for name in expected.keys() & actual.keys() if expected[name] != actual[name]),
        added=sorted(name for name in actual.keys() - expected.keys()),
    )


def _is_needed(name: str) -> bool:
    """Not the right of another role: default privileges give it on what is made now, and not on what was made before."""
    return not name.startswith("right ") or name.endswith(f" for {TENANT_ROLE}")


async def _list_objects(conn: AsyncConnection[TupleRow], schema: str | None) -> dict[str, str]:
    """The definition of each object of the schema, by its kind and name; None is the schema that has schema_migrations."""
    async with conn.cursor(row_factory=class_row(_Object)) as cursor:
        await cursor.execute(_OBJECTS, {"schema": schema})
        return {row.name: row.definition for row in await cursor.fetchall()}


_OBJECTS: LiteralString = r"""
WITH ours AS (
    SELECT oid, quote_ident(nspname) || '.' AS prefix FROM pg_namespace
     WHERE oid = (SELECT relnamespace FROM pg_class WHERE oid = to_regclass('schema_migrations'))
), here AS (
    SELECT coalesce(to_regnamespace(%(schema)s), ours.oid::regnamespace) AS oid FROM ours
), relations AS (
    -- What extensions bring is theirs. The other tables and indexes are made while the program runs.
    SELECT c.* FROM pg_class c JOIN here ON here.oid = c.relnamespace
     WHERE c.relname NOT IN ('schema_migrations', 'schema_migrations_pkey', 'restore_unfinished')
       AND NOT starts_with(c.relname, 'embeddings_near_')
       AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e')
), functions AS (
    SELECT p.* FROM pg_proc p JOIN here ON here.oid = p.pronamespace
     WHERE p.prokind IN ('f', 'p')
       AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e')
), objects (kind, name, definition, is_text) AS (
    SELECT 'table', relname::text, concat('row-level security ', relrowsecurity, ' ', relforcerowsecurity), false
      FROM relations WHERE relkind IN ('r', 'p')
    UNION ALL
    SELECT 'view', relname, pg_get_viewdef(oid, true), false FROM relations WHERE relkind IN ('v', 'm')
    UNION ALL
    SELECT 'sequence', relname, concat_ws(' ', seqtypid::regtype, seqstart, seqincrement, seqmin, seqmax, seqcache, seqcycle), false
      FROM relations JOIN pg_sequence ON seqrelid = oid
    UNION ALL
    -- The program makes a halfvec of the one column when it finds pgvector, whatever schema that is in.
    SELECT 'column', c.relname || '.' || a.attname,
           concat_ws(' ', CASE WHEN c.relname = 'observation_embeddings' AND a.attname = 'embedding'
                                AND format_type(a.atttypid, a.atttypmod) ~ '^(real\[\]|(\w+\.)?halfvec)$' THEN 'vector'
                               ELSE format_type(a.atttypid, a.atttypmod) END,
                     CASE WHEN a.attnotnull THEN 'NOT NULL' END, pg_get_expr(d.adbin, d.adrelid, true),
                     a.attidentity, a.attgenerated,
                     (SELECT collname FROM pg_collation k JOIN pg_type t ON t.oid = a.atttypid
                       WHERE k.oid = a.attcollation AND a.attcollation <> t.typcollation)), false
      FROM relations c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
      LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
     WHERE c.relkind IN ('r', 'p')
    UNION ALL
    -- From PostgreSQL 18 on, NOT NULL is a constraint with a name, too; it is compared as the column's.
    SELECT 'constraint', c.relname || '.' || o.conname, pg_get_constraintdef(o.oid, true), false
      FROM relations c JOIN pg_constraint o ON o.conrelid = c.oid WHERE o.contype IN ('c', 'p', 'u', 'f', 'x')
    UNION ALL
    SELECT 'index', c.relname, regexp_replace(pg_get_indexdef(c.oid, 0, true), ' WITH \([^)]*\)', ''), false
      FROM relations c JOIN pg_index i ON i.indexrelid = c.oid
     WHERE i.indisvalid AND NOT EXISTS (SELECT FROM pg_constraint o WHERE o.conindid = c.oid AND o.contype IN ('p', 'u', 'x'))
    UNION ALL
    SELECT 'trigger', c.relname || '.' || t.tgname, concat(pg_get_triggerdef(t.oid, true), ' ', t.tgenabled), false
      FROM relations c JOIN pg_trigger t ON t.tgrelid = c.oid WHERE NOT t.tgisinternal
    UNION ALL
    SELECT 'policy', c.relname || '.' || p.polname,
           concat_ws(' ', p.polcmd, p.polpermissive, p.polroles::regrole[], pg_get_expr(p.polqual, p.polrelid, true),
                     pg_get_expr(p.polwithcheck, p.polrelid, true)), false
      FROM relations c JOIN pg_policy p ON p.polrelid = c.oid
    UNION ALL
    SELECT 'function', concat(proname, '(', pg_get_function_identity_arguments(oid), ')'), pg_get_functiondef(oid),
           prosqlbody IS NULL
      FROM functions
    UNION ALL
    SELECT 'type', t.typname,
           (SELECT string_agg(e.enumlabel, ', ' ORDER BY e.enumsortorder) FROM pg_enum e WHERE e.enumtypid = t.oid), false
      FROM pg_type t JOIN here ON here.oid = t.typnamespace WHERE t.typtype = 'e'
    UNION ALL
    SELECT 'type', c.relname,
           (SELECT string_agg(concat(a.attname, ' ', format_type(a.atttypid, a.atttypmod)), ', ' ORDER BY a.attnum)
              FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped), false
      FROM relations c WHERE c.relkind = 'c'
    UNION ALL
    SELECT 'right', concat(g.privilege_type, ' on ', c.relname, '.' || a.attname, ' for ', coalesce(r.rolname, 'PUBLIC')), '', false
      FROM relations c
      LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attacl IS NOT NULL
     CROSS JOIN LATERAL (SELECT * FROM aclexplode(c.relacl) WHERE a.attnum IS NULL UNION ALL SELECT * FROM aclexplode(a.attacl)) g
      LEFT JOIN pg_roles r ON r.oid = g.grantee
     WHERE g.grantee <> c.relowner
    UNION ALL
    SELECT 'right', concat('EXECUTE on ', p.proname, '(', pg_get_function_identity_arguments(p.oid), ') for ',
                           coalesce(r.rolname, 'PUBLIC')), '', false
      FROM functions p CROSS JOIN LATERAL aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) g
      LEFT JOIN pg_roles r ON r.oid = g.grantee
     WHERE g.grantee <> p.proowner
)
-- A database that was restored from a dump has fewer parentheses around what is joined by AND and OR.
SELECT DISTINCT concat(o.kind, ' ', replace(replace(o.name, ours.prefix, ''), 'cmserver_expected.', '')) AS name,
       CASE WHEN o.is_text THEN plain.definition ELSE translate(plain.definition, '()', '') END AS definition
  FROM objects o CROSS JOIN ours
 CROSS JOIN LATERAL (SELECT replace(replace(o.definition, ours.prefix, ''), 'cmserver_expected.', '') AS definition) plain
"""
