"""Applies numbered SQL files, once each and in order; safe when several processes start at once."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import shlex
from collections.abc import Awaitable, Callable
from importlib import resources
from pathlib import Path
from typing import LiteralString, cast

import msgspec
import psycopg
from procrastinate.schema import SchemaManager
from psycopg import AsyncConnection, errors
from psycopg.rows import TupleRow

from cmserver.base.catalogue import compare_catalogue
from cmserver.base.errors import CmserverError
from cmserver.base.logs import get_logger
from cmserver.base.sql import Conn, Query, query
from cmserver.base.tenant_role import TENANT_ROLE
from cmserver.base.waiting import backoff, retry

log = get_logger(__name__)

OWNS = {"schema_migrations", "installation"}
OLDEST_POSTGRES = 15
CREATE_DATABASE = "createdb --encoding=UTF8 --locale=C.UTF-8 --template=template0 --owner=USER NAME"
SQUASHED = 64
"""The last number before the 64 migrations of the time before the first release became one file."""
LAST_COMMIT_BEFORE_SQUASH = "30856421"
IS_BEFORE_SQUASH = Query(bool, "SELECT EXISTS (SELECT FROM schema_migrations WHERE number = 1 AND name = '0001_access')")
_LOCK = 7_237_415_001  # one number for all cmserver processes on a database
_INCLUDE_PROCRASTINATE = "--include procrastinate"


class MigrationError(CmserverError):
    """The database cannot be migrated; the message says what to do."""


class Migration(msgspec.Struct, frozen=True):
    """A migration file."""

    number: int
    name: str
    text: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()


def sql_folder() -> Path:
    """The folder `sql/`: inside the wheel, or at the root of a checkout."""
    packaged = Path(str(resources.files("cmserver"))) / "_sql"
    return packaged if packaged.is_dir() else Path(__file__).parents[2] / "sql"


def migrations() -> list[Migration]:
    """All migrations of this program, in order."""
    files = sorted((sql_folder() / "migrations").glob("[0-9][0-9][0-9][0-9]_*.sql"))
    return [Migration(int(file.name[:4]), file.stem, file.read_text(encoding="utf-8")) for file in files]


@functools.cache
def newest() -> int:
    """The number of the newest migration that this program knows."""
    return migrations()[-1].number


async def migrate(url: str, check: Callable[[Conn], Awaitable[None]] | None = None) -> list[str]:
    """Migrate the database; returns the names of the applied migrations. The URL must lead to a session, for a lock.

    With `check` all are one transaction, at whose end it is asked: what it raises takes back what they did.
    A database that the 64 migrations before the squash have made is compared with 0001 and marked with it.

    Raises MigrationError when the database is newer than the program, of before the squash and not at its end or not as 0001 makes
    it, or another program's, an applied file was changed, the server is too old, the database is not in UTF8, an empty one does not
    know the letters of all scripts, or its user may not make the tenant role.
    """
    async with await AsyncConnection.connect(url, autocommit=True) as conn:
        check_server(conn)
        await conn.execute("SELECT pg_advisory_lock(%s)", [_LOCK])
        try:
            if await _is_empty(conn):
                await check_locale(conn)
            elif not await knows_letters(conn):
                log.warning("database.locale", help="`cmserver doctor` says how to mend it")
            is_before_squash = await _is_before_squash(conn)
            await ensure_tenant_role(conn)
            marked = await _mark_squashed(conn) if is_before_squash else []
            if check is None:
                return [*marked, *await _apply_missing(conn)]
            async with conn.transaction():
                applied = await _apply_missing(conn)
                await check(conn)
            return [*marked, *applied]
        finally:
            await conn.execute("SELECT pg_advisory_unlock(%s)", [_LOCK])


async def find_missing(url: str) -> list[Migration]:
    """The migrations that the database lacks. MigrationError as of `migrate`; nothing is changed."""
    async with await AsyncConnection.connect(url, autocommit=True) as conn:
        check_server(conn)
        if await _is_empty(conn):
            return migrations()
        if not await _is_before_squash(conn):
            return await _missing(conn)
        async with conn.transaction(force_rollback=True):
            await ensure_tenant_role(conn)
            await _check_squashed(conn)
        return migrations()


def check_server(conn: AsyncConnection[TupleRow]) -> None:
    """Raise MigrationError for a PostgreSQL that is too old, and for a database that is not in UTF8."""
    major = conn.info.server_version // 10_000
    if major < OLDEST_POSTGRES:
        raise MigrationError(f"The database is PostgreSQL {major}; cmserver needs PostgreSQL {OLDEST_POSTGRES} or newer.")
    encoding = conn.info.parameter_status("server_encoding")
    if encoding not in ("UTF8", None):  # None: a pooler has not passed it on
        raise _wrong_database(conn, f"is in {encoding}; cmserver needs UTF8.")


async def check_locale(conn: AsyncConnection[TupleRow]) -> None:
    """Raise MigrationError for a database that does not know the letters of all scripts. For one that is still empty."""
    if not await knows_letters(conn):
        raise _wrong_database(
            conn, "has the locale C, which knows no letters but a to z: a search for überweisung would not find ÜBERWEISUNG."
        )


async def knows_letters(conn: AsyncConnection[TupleRow]) -> bool:
    """Whether the database finds a word in small letters that was written in capitals, also beyond a to z."""
    cursor = await conn.execute("SELECT to_tsvector('simple', 'ÜBER ÉTAT') = to_tsvector('simple', 'über état')")
    return await cursor.fetchone() == (True,)


def _wrong_database(conn: AsyncConnection[TupleRow], fault: str) -> MigrationError:
    server = f"createdb --host={shlex.quote(conn.info.host)} --port={conn.info.port}"
    command = CREATE_DATABASE.replace("USER", shlex.quote(conn.info.user)).replace("createdb", server, 1)
    return MigrationError(
        f"The database {conn.info.dbname} {fault} Nothing was changed. "
        f"Make another database, and set CMSERVER_DATABASE_URL to it:\n  {command}"
    )


async def _is_empty(conn: AsyncConnection[TupleRow]) -> bool:
    """Whether no cmserver has worked on the database."""
    cursor = await conn.execute("SELECT to_regclass('schema_migrations') IS NULL")
    return await cursor.fetchone() == (True,)


async def _apply_missing(conn: AsyncConnection[TupleRow]) -> list[str]:
    """Apply the migrations that the database lacks, each in a transaction; returns their names."""
    await conn.execute(
        "CREATE TABLE IF NOT EXISTS schema_migrations (number integer PRIMARY KEY, name text NOT NULL, checksum text NOT NULL, "
        "applied_at timestamptz NOT NULL DEFAULT now())"
    )
    done: list[str] = []
    for migration in await _missing(conn):
        async with conn.transaction():
            # One simple-protocol call: a file holds many statements. The text is ours, never a user's.
            await conn.execute(cast("LiteralString", statements(migration)))
            await conn.execute(
                "INSERT INTO schema_migrations (number, name, checksum) VALUES (%s, %s, %s)",
                [migration.number, migration.name, migration.checksum],
            )
            await conn.execute("SET CONSTRAINTS ALL IMMEDIATE")  # the next one may follow in the same transaction
        log.info("migration.applied", name=migration.name)
        done.append(migration.name)
    await _ensure_installation(conn)
    return done


def statements(migration: Migration) -> str:
    """What is executed: the file, with procrastinate's schema where it asks for that."""
    return migration.text.replace(_INCLUDE_PROCRASTINATE, SchemaManager.get_schema())


async def _is_before_squash(conn: AsyncConnection[TupleRow]) -> bool:
    """Whether the database was made by the migrations of before the squash, and is not marked yet.

    Raises MigrationError when it has not all of them.
    """
    with contextlib.suppress(errors.UndefinedTable, errors.UndefinedColumn):  # it is empty, or another program's
        if not await IS_BEFORE_SQUASH.one(conn):
            return False
        cursor = await conn.execute("SELECT max(number) FROM schema_migrations")
        (number,) = await cursor.fetchone() or (0,)
        if number == SQUASHED:
            return True
        if number > SQUASHED:
            raise MigrationError(f"The database has migration {number:04}, which this program does not know. Nothing was changed.")
        raise MigrationError(
            f"The database has migration {number:04} of before the first release; this program goes on from {SQUASHED:04}. "
            f"Start it once with cmserver's commit {LAST_COMMIT_BEFORE_SQUASH}, then with this program; or take its content along: "
            "`cmserver export` there, and `cmserver import` into a new database. Nothing was changed."
        )
    return False


async def _mark_squashed(conn: AsyncConnection[TupleRow]) -> list[str]:
    """Mark a database of before the squash as made by 0001; returns its name. MigrationError when 0001 would make another one."""
    added = await _check_squashed(conn)
    first = migrations()[0]
    async with conn.transaction():
        await conn.execute("DELETE FROM schema_migrations WHERE number > 1")
        await conn.execute("UPDATE schema_migrations SET name = %s, checksum = %s WHERE number = 1", [first.name, first.checksum])
    log.info("migration.marked", name=first.name, added=added)
    return [first.name]


async def _check_squashed(conn: AsyncConnection[TupleRow]) -> list[str]:
    """Raise MigrationError unless 0001 would make the same tables; returns the names of what others have added."""
    first = migrations()[0]
    try:
        difference = await compare_catalogue(conn, statements(first))
    except errors.InsufficientPrivilege as error:
        database, user = conn.info.dbname, conn.info.user
        raise MigrationError(
            f"The database user {user} may not make a schema, in which the tables are compared with what they must be. Ask whoever "
            f'runs the database to execute:\n  GRANT CREATE ON DATABASE "{database}" TO "{user}";'
        ) from error
    if difference.missing or difference.different:
        lines = [
            *(f"\n  missing: {name}" for name in difference.missing),
            *(f"\n  different: {name}" for name in difference.different),
            *(f"\n  added, which does no harm: {name}" for name in difference.added),
        ]
        raise MigrationError(
            f"The database is not as its migrations have made it, so it cannot be marked as made by {first.name}. Nothing was "
            f"changed. sql/migrations/{first.name}.sql says how each object must be; mend them, and start again.{''.join(lines)}"
        )
    return difference.added


async def _missing(conn: AsyncConnection[TupleRow]) -> list[Migration]:
    try:
        cursor = await conn.execute("SELECT number, name, checksum FROM schema_migrations ORDER BY number")
    except errors.UndefinedColumn as error:
        raise MigrationError(
            "The database belongs to another program: its table schema_migrations is not cmserver's. "
            "Make an empty database and set CMSERVER_DATABASE_URL to it. No table was changed."
        ) from error
    applied: dict[int, tuple[str, str]] = {row[0]: (row[1], row[2]) for row in await cursor.fetchall()}
    available = migrations()
    _check_applied(applied, {migration.number: migration for migration in available})
    return [migration for migration in available if migration.number not in applied]


def _check_applied(applied: dict[int, tuple[str, str]], available: dict[int, Migration]) -> None:
    """Raise MigrationError when the database has a migration that this program does not have, or has with another text."""
    for number, (name, checksum) in applied.items():
        migration = available.get(number)
        if migration is None:
            raise MigrationError(
                f"The database was migrated by a newer cmserver (it has migration {name}, this program knows up to "
                f"{max(available):04}). Upgrade this program; the database was not changed."
            )
        if migration.checksum != checksum:
            raise MigrationError(
                f"Migration {name} was applied with another text than this program's file has. "
                "Restore the released file, or the database that belongs to it; nothing was changed."
            )


async def _ensure_installation(conn: AsyncConnection[TupleRow]) -> None:
    await conn.execute(
        "INSERT INTO installation (id, secret) VALUES (gen_random_uuid(), "
        "sha256((gen_random_uuid()::text || gen_random_uuid()::text || gen_random_uuid()::text)::bytea)) ON CONFLICT DO NOTHING"
    )


@query("SELECT secret FROM installation")
async def installation_secret(conn: Conn) -> bytes:
    """The secret of this installation's keyed hashes. Never leaves the server."""
    ...


async def ensure_tenant_role(conn: AsyncConnection[TupleRow]) -> None:
    """Make the role of requests, and grant it to the owner. At every start: a restored dump brings no roles."""
    # Since PostgreSQL 16 a role can be granted without the right to SET ROLE.
    privilege, with_set = ("SET", " WITH SET TRUE") if conn.info.server_version >= 160_000 else ("MEMBER", "")
    user = conn.info.user.replace(chr(34), chr(34) * 2)
    statements: list[str] = []
    cursor = await conn.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [TENANT_ROLE])
    if await cursor.fetchone() is None:
        statements = [f"CREATE ROLE {TENANT_ROLE} NOLOGIN", f'GRANT {TENANT_ROLE} TO "{user}"{with_set}']
    else:
        cursor = await conn.execute(
            "SELECT rolsuper OR pg_has_role(current_user, %s, %s) FROM pg_roles WHERE rolname = current_user",
            [TENANT_ROLE, privilege],
        )
        row = await cursor.fetchone()
        if row is None or not row[0]:
            statements = [f'GRANT {TENANT_ROLE} TO "{user}"{with_set}']
    try:
        for statement in statements:
            with contextlib.suppress(errors.DuplicateObject, errors.UniqueViolation):  # another database's server made it
                await conn.execute(cast("LiteralString", statement))
    except errors.InsufficientPrivilege as error:
        grants = "".join(f"\n  {statement};" for statement in statements)
        raise MigrationError(
            f"The database user {user} may not make the role cmserver works with. Ask whoever runs the database to execute:{grants}"
        ) from error


async def connect_when_ready(url: str, wait_seconds: float) -> None:
    """Return once the database answers; psycopg.OperationalError after `wait_seconds`."""

    async def connect() -> None:
        async with await AsyncConnection.connect(url, connect_timeout=5):
            pass

    await retry(connect, psycopg.OperationalError, backoff(0.3, 0.3, total_seconds=wait_seconds))
