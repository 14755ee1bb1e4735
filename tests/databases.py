"""Lends migrated databases to tests. A database in which a test changed only rows is emptied and lent again, with its pools, whose
connections have warm caches. One whose schema or statistics a test changed is dropped: the next test gets a new clone.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import AsyncGenerator, Generator, Iterable
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, LiteralString, cast
from uuid import uuid4

import msgspec
import psycopg
from psycopg import sql
from psycopg_pool import AsyncConnectionPool

from cmserver.base.db import Db, PoolTimeouts

if TYPE_CHECKING:
    from tests.conftest import Server

POOL_WAIT_SECONDS = 30.0
MAX_DELETED_ROWS = 2_000
"""More dead rows than that change what the planner expects and what `cmserver doctor` finds."""

_CATALOGUES = (
    "pg_class",
    "pg_attribute",
    "pg_attrdef",
    "pg_constraint",
    "pg_default_acl",
    "pg_event_trigger",
    "pg_extension",
    "pg_index",
    "pg_largeobject_metadata",
    "pg_namespace",
    "pg_policy",
    "pg_proc",
    "pg_rewrite",
    "pg_statistic",
    "pg_statistic_ext",
    "pg_trigger",
    "pg_type",
)
_SETTINGS = """
    SELECT count(*), max(xmin::text::bigint) FROM pg_database WHERE datname = current_database()
    UNION ALL SELECT count(*), max(s.xmin::text::bigint) FROM pg_db_role_setting s JOIN pg_database d ON d.oid = setdatabase
     WHERE datname = current_database()
"""
_TABLES = """
    SELECT oid::regclass::text FROM pg_class
     WHERE relkind = 'r' AND relnamespace NOT IN ('pg_catalog'::regnamespace, 'information_schema'::regnamespace)
"""
_RESTART_SEQUENCES = "SELECT count(setval(seqrelid, seqstart, false)) FROM pg_sequence"
_END_OTHERS = """
    SELECT count(pg_terminate_backend(pid, 10000)) FROM pg_stat_activity
     WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid() AND pid <> ALL(%s)
"""
_COUNT_IDLE = """
    SELECT count(*) FROM pg_stat_activity a WHERE pid = ANY(%s) AND state = 'idle'
       AND NOT EXISTS (SELECT FROM pg_locks l WHERE l.pid = a.pid AND l.locktype = 'advisory')
"""


class Statements(msgspec.Struct, kw_only=True):
    fingerprint: sql.SQL
    """Changes with the schema, its rights, statistics, the settings of the database, and the rows that the template has."""
    delete_rows: sql.SQL
    """Returns their number."""


class Clone(msgspec.Struct, kw_only=True):
    name: str
    conn: psycopg.Connection
    """The superuser's."""
    fingerprint: list[tuple[object, ...]]
    deleted_rows: int = 0
    db: Db | None = None
    """Kept open for the next test."""


class DatabaseStock:
    def __init__(self, server: Server, template: str) -> None:
        self._server = server
        self._template = template
        self._lent: dict[str, Clone] = {}
        self._free: list[Clone] = []
        self._unused: list[Db] = []
        self._statements: Statements | None = None

    @contextmanager
    def lend(self) -> Generator[str]:
        """The URL of a database without rows."""
        clone = self._free.pop() if self._free else self._make_clone()
        url = self._server.url(clone.name)
        self._lent[url] = clone
        yield url
        del self._lent[url]
        try:
            is_empty = self._empty(clone)
        except psycopg.Error:  # the test has dropped tables, or ended all connections
            is_empty = False
        if is_empty:
            self._free.append(clone)
        else:
            self._drop(clone)

    @asynccontextmanager
    async def open(self, url: str) -> AsyncGenerator[Db]:
        """The pools of a database; those of its last test where they are as good as new."""
        await self._close_unused()
        clone = self._lent.get(url)
        db = clone.db if clone else None
        if db is not None and not _is_connected(db):
            await db.__aexit__()
            db = None
        if db is None:
            # They wait as long as a busy machine needs.
            db = Db(self._server.urls_of(url), size=6, timeouts=PoolTimeouts(wait_seconds=POOL_WAIT_SECONDS))
            await db.__aenter__()
        tasks = asyncio.all_tasks()
        yield db
        if clone is not None and not _new_tasks(tasks) and _is_as_new(db) and _is_idle(clone, db):
            clone.db = db
            return
        await db.__aexit__()
        if clone is not None:
            clone.db = None

    async def close(self) -> None:
        while self._free:
            self._drop(self._free.pop())
        await self._close_unused()

    async def _close_unused(self) -> None:
        while self._unused:
            await self._unused.pop().__aexit__()

    def _make_clone(self) -> Clone:
        name = f"cmserver_test_{uuid4().hex[:12]}"
        self._server.create(name, self._template)
        conn = psycopg.connect(self._server.superuser_url(name), autocommit=True)
        conn.execute("SET session_replication_role = replica")  # no triggers, and so no foreign keys
        self._statements = self._statements or _statements(conn)
        return Clone(name=name, conn=conn, fingerprint=conn.execute(self._statements.fingerprint).fetchall())

    def _empty(self, clone: Clone) -> bool:
        """Delete all rows; False when the database has to go."""
        assert self._statements is not None
        if clone.db is not None and not _has_all(clone.db):
            self._unused.append(clone.db)
            clone.db = None
        clone.conn.execute(_END_OTHERS, [_backends(clone.db) if clone.db else []])
        if clone.conn.execute(self._statements.fingerprint).fetchall() != clone.fingerprint:
            return False
        (deleted,) = clone.conn.execute(self._statements.delete_rows).fetchone() or (0,)
        clone.deleted_rows += deleted
        clone.conn.execute(_RESTART_SEQUENCES)
        clone.conn.execute("SELECT pg_stat_reset()")
        return clone.deleted_rows < MAX_DELETED_ROWS

    def _drop(self, clone: Clone) -> None:
        if clone.db is not None:
            self._unused.append(clone.db)
        clone.conn.close()
        self._server.drop(clone.name)


def _new_tasks(tasks: set[asyncio.Task[Any]]) -> set[asyncio.Task[Any]]:
    """Those that a test has left running."""
    # On Python 3.11 `asyncio.wait_for`, with which pools wait, makes a task of what it waits for.
    found = asyncio.all_tasks() - tasks - {asyncio.current_task()}
    return {task for task in found if getattr(task.get_coro(), "__qualname__", "") != "Event.wait"}


def _is_as_new(db: Db) -> bool:
    """Whether a test has left no trace in the object."""
    return (
        all(not pool.closed and pool.timeout == POOL_WAIT_SECONDS for pool in _pools(db))
        and vars(db)["_refusal"] is None
        and not vars(db)["_exhaustion"].is_noted
        and not vars(db)["_draining"]
    )


def _is_idle(clone: Clone, db: Db) -> bool:
    """Whether no connection of the pools is lent, broken, in a transaction, or holds a lock of its session."""
    size = sum(pool.pop_stats()["pool_size"] for pool in _pools(db))
    try:
        return clone.conn.execute(_COUNT_IDLE, [_backends(db)]).fetchone() == (size,)
    except psycopg.Error:  # the test has ended all connections
        return False


def _has_all(db: Db) -> bool:
    """Whether no connection is lent or just being made: that one would be ended with the others', yet enter the pool."""
    return sum(pool.get_stats()["pool_size"] for pool in _pools(db)) == len(_backends(db))


def _is_connected(db: Db) -> bool:
    """Whether every connection that is not lent is open: the end of one would be read from it."""
    sockets = [conn.fileno() for pool in _pools(db) for conn in vars(pool)["_pool"] if not conn.closed]
    return len(sockets) == len(_backends(db)) and not select.select(sockets, [], [], 0)[0]


def _backends(db: Db) -> list[int]:
    """Of the connections that are not lent."""
    return [conn.info.backend_pid for pool in _pools(db) for conn in vars(pool)["_pool"]]


def _pools(db: Db) -> list[AsyncConnectionPool[Any]]:
    pools = cast("Iterable[object]", vars(db).values())
    return list(dict.fromkeys(cast("AsyncConnectionPool[Any]", pool) for pool in pools if isinstance(pool, AsyncConnectionPool)))


def _statements(conn: psycopg.Connection) -> Statements:
    tables = [name for (name,) in conn.execute(_TABLES)]
    kept = [name for name in tables if conn.execute(_sql(f"SELECT FROM {name} LIMIT 1")).fetchone() is not None]
    emptied = [name for name in tables if name not in kept]
    fingerprint = [f"SELECT count(*), max(xmin::text::bigint) FROM {name}" for name in (*_CATALOGUES, *kept)]
    deleted = [f"t{place} AS (DELETE FROM {name} RETURNING 1)" for place, name in enumerate(emptied)]
    counts = [f"(SELECT count(*) FROM t{place})" for place in range(len(emptied))]
    return Statements(
        fingerprint=_sql(" UNION ALL ".join([*fingerprint, _SETTINGS])),
        delete_rows=_sql(f"WITH {', '.join(deleted)} SELECT {' + '.join(counts)}"),
    )


def _sql(text: str) -> sql.SQL:
    return sql.SQL(cast("LiteralString", text))
