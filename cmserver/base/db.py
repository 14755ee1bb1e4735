"""Connections to the database: as tenant, behind row-level security, and as owner, for work that spans teams.

Also recognizes a database that runs out of disk, memory or connections, and checks which pooler is before it.
"""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Literal, LiteralString, Protocol, Self, TypeAlias, TypeVar
from uuid import UUID

import msgspec
import psycopg
from psycopg import AsyncConnection, errors
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import TransactionStatus
from psycopg.rows import TupleRow
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout

from cmserver.base import tenant_role
from cmserver.base.erasure_journal import ErasureJournal, locate, take_noted
from cmserver.base.errors import DatabaseExhausted, Forbidden, StatementTimeout, Unavailable
from cmserver.base.logs import get_logger
from cmserver.base.shares import ConnectionShares
from cmserver.base.sql import Conn, Query
from cmserver.base.timed_connection import TimedConnection, with_time_limits

log = get_logger(__name__)

T = TypeVar("T")
_Pool: TypeAlias = AsyncConnectionPool[TimedConnection]
Pooling = Literal["none", "session", "transaction"]

_reader: ContextVar[str] = ContextVar("reader", default="")
"""Empty for work that no request asked for."""


def read_as(person_id: UUID | None) -> None:
    """Let the running request read what that person, or a key that is nobody's, may read of others' words.

    Work that no request asked for reads all.
    """
    _reader.set(str(person_id or "nobody"))


SET_WORDS: LiteralString = """\
set_config('cmserver.words', CASE WHEN coalesce(current_setting('cmserver.reader', true), '') <> '' AND (
               SELECT t.words = 'nobody' OR t.words = 'owners' AND NOT EXISTS (
                          SELECT FROM team_members m WHERE m.team_id = t.id AND m.role = 'owner'
                             AND m.account_id::text = current_setting('cmserver.reader', true))
                 FROM teams t WHERE t.id::text = current_setting('cmserver.team_id', true)) THEN 'own' ELSE '' END, true)"""
"""Of a statement that has set the team and the reader: `own` where the team does not let the reader read all words."""

READS_ALL_WORDS: LiteralString = "(coalesce(current_setting('cmserver.words', true), '') <> 'own')"
"""Whether the transaction reads the words of all people of the team."""

# Also checks that row-level security binds this transaction, since a pooler may use a connection of another role, and sets the
# time limit, since poolers keep no settings of connections, and which words may be read; in one statement, to save round trips.
_SET_TEAM = Query(
    bool,
    f"""
    SELECT set_config('cmserver.team_id', %(team)s, true) <> '' AND row_security_active('observations')
           AND set_config('cmserver.user_id', %(person)s, true) IS NOT NULL
           AND set_config('cmserver.reader', %(reader)s, true) IS NOT NULL
           AND {SET_WORDS} IS NOT NULL
           AND set_config('statement_timeout', coalesce(%(timeout)s::text, current_setting('statement_timeout')), true) <> ''
    """,
)
_SET_IDLE_TIMEOUT = Query(str, "SELECT set_config('idle_in_transaction_session_timeout', %(milliseconds)s, true)")
_ROLE_NOT_BOUND = (
    "Row-level security does not bind the database's connections for requests, so every request is refused. "
    "Restart the server: it reports what to do."
)
_WRITE_MEGABYTE = Query(
    int, "CREATE TEMPORARY TABLE room ON COMMIT DROP AS SELECT repeat('room', 250) FROM generate_series(1, 1000)"
)
"""Writes a megabyte that is dropped at commit."""
_WORDS_POLICY = "words"
"""What PostgreSQL names where a row that somebody would write is not theirs to read."""
_OF_SEVERAL = (
    "This is made of what several people said, and your team does not let you read all of that. Nothing was changed. An owner of "
    "the team says who may: `cmserver teams words`."
)
_AWAY = "The database cannot be reached. Try again in a moment."
_TIMED_OUT = (
    "The database took too long, so the query was ended (CMSERVER_STATEMENT_TIMEOUT_SECONDS). Ask for less: fewer words, a "
    "smaller page, or one project."
)
_RETRY_AFTER_SECONDS = 10.0
_DEADLOCK_PAUSES_SECONDS = (0.01, 0.04)
_STOPPING_WAIT_SECONDS = 0.5
_SILENCE_SECONDS = 5.0
"""How long after a statement's time limit the database must have said that it ended it."""
_READ_ONLY_SECONDS = 5.0
"""How long a database that may only be read is not left again: it may stay so."""
_SESSIONS = 4
"""Connections past a transaction pooler: for procrastinate's two workers, and for making indexes."""
_LOG_INTERVAL_SECONDS = 60.0
_EXHAUSTION_SENTENCES = {
    "53100": "The database's disk is full: nothing was stored. Its operator must make room; then it goes on by itself.",
    "53200": "The database is out of memory: nothing was stored. Try again later; its operator can give it more.",
    "53300": "The database has no connections left: nothing was stored. Try again later; its operator can raise max_connections.",
    "53400": "The database has reached a limit of its configuration: nothing was stored. Its operator must raise it.",
    "53000": "The database is out of resources: nothing was stored. Its operator can see of which in its log.",
    "58030": "The database's disk fails: nothing was stored. Its operator can see how in its log.",
    "25006": "The database may only be read, as after a failover or when a disk is full: nothing was stored.",
}
"""By SQLSTATE: 58030 is a failing disk, 25006 a read-only database."""
_DISK_FULL = "53100"
_AWAY_AND_FULL = (
    "The database's disk is full, and the database does not answer. Its operator must make room; then it goes on by itself."
)
_WAL_SEGMENT_BYTES = 16 << 20
"""With less free space PostgreSQL may stop, and cannot start again."""
_ANSWERS_OF_STATEMENTS = (
    errors.DeadlockDetected,
    errors.SerializationFailure,
    errors.ProgramLimitExceeded,
    errors.StatementTooComplex,
    errors.LockNotAvailable,
)
"""Operational errors of a database that is there: callers deal with them. A statement is too complex by a fault of ours, such as a
policy that asks itself, since all that comes from outside is bounded.
"""
_BACKEND_PID = Query(int, "SELECT pg_backend_pid()")
_SILENT_SESSION_SECONDS, _ASK_SECONDS = 20, 5.0
"""A session of its own is ended by the database after so long a silence, and asked so often that it is not silent."""
_END_WHEN_SILENT = Query(
    object,
    """
    SELECT set_config('idle_session_timeout', %(seconds)s::text || 's', false),
           set_config('idle_in_transaction_session_timeout', %(seconds)s::text || 's', false)
    """,
)
_ASK = Query(int, "SELECT 1")
_SHARING_ROUNDS = 3
_SHARING_TIMEOUT_SECONDS = 5.0


class DatabaseUrls(msgspec.Struct, frozen=True, kw_only=True):
    """The database's URLs for the owner, for requests and for sessions, and the kind of pooler before it."""

    owner: str
    tenant: str | None = None
    """With the login role for requests; None switches the owner's login to that role, impossible with transaction pooling."""
    direct: str | None = None
    """Past a transaction pooler."""
    pooling: Pooling = "none"

    @property
    def session(self) -> str:
        """For LISTEN, session locks and migrations."""
        return self.direct or self.owner

    def __repr__(self) -> str:
        return f"DatabaseUrls(pooling={self.pooling!r})"  # the URLs hold passwords


class PoolTimeouts(msgspec.Struct, frozen=True, kw_only=True):
    """How long callers wait for a connection, and how long an idle one stays open."""

    wait_seconds: float = 3.0
    idle_seconds: float = 120.0


class Exhaustion:
    """Remembers whether the database reported exhaustion. `disk` is a folder on its disk, if that is a local one."""

    def __init__(self, disk: Path | None = None) -> None:
        self.is_noted = False
        self._disk = disk
        self._logged_at: dict[str, float] = {}

    def recognize(self, error: psycopg.Error) -> DatabaseExhausted | None:
        """The error to raise instead, logged once a minute per cause; None for other errors."""
        state = error.sqlstate
        if state is None or (sentence := _EXHAUSTION_SENTENCES.get(state)) is None:
            return None
        return self._note(state, sentence, error.diag.message_primary)

    def why_away(self) -> DatabaseExhausted | None:
        """The error to raise when the database does not answer because its disk is full, else None."""
        try:
            disk = os.statvfs(self._disk) if self._disk else None
        except OSError:
            return None
        if disk is None or disk.f_bavail * disk.f_frsize >= _WAL_SEGMENT_BYTES:
            return None
        return self._note(_DISK_FULL, _AWAY_AND_FULL, f"PostgreSQL does not answer, and {self._disk} is full")

    def _note(self, state: str, sentence: str, reason: str | None) -> DatabaseExhausted:
        self.is_noted = True
        now = time.monotonic()
        if now - self._logged_at.get(state, -_LOG_INTERVAL_SECONDS) >= _LOG_INTERVAL_SECONDS:
            self._logged_at[state] = now
            log.error("database.exhausted", sqlstate=state, reason=reason)
        return DatabaseExhausted(sentence, _RETRY_AFTER_SECONDS)

    def forget(self) -> None:
        """Reset: the database can write again."""
        self.is_noted = False
        self._logged_at.clear()


class SystemDb(Protocol):
    """Where batches find and write what they work on: the database, or a shadow of it."""

    def system(self, *, answer_seconds: float | None = None) -> AbstractAsyncContextManager[Conn]:
        """A transaction of the owner."""
        ...

    async def in_system(self, act: Callable[[Conn], Awaitable[T]], *, answer_seconds: float | None = None) -> T:
        """Run `act` in such a transaction."""
        ...


class Db:
    """Connection pools for the owner and for tenants, and for sessions past a transaction pooler. Open it with `async with`.

    `disk` is a folder on the database's disk, if that is a local one. A connection breaks when the database falls silent on it:
    when a request's statement is not answered 5 seconds after its time limit, or a statement of the owner's transactions within
    `answer_seconds` (None: no limit).
    Erasures are written to the `journal` before they commit.
    """

    def __init__(
        self,
        urls: DatabaseUrls | str,
        *,
        size: int = 10,
        timeouts: PoolTimeouts | None = None,
        statement_timeout_seconds: float = 0,
        idle_in_transaction_seconds: float = 10,
        answer_seconds: float | None = None,
        disk: Path | None = None,
        journal: ErasureJournal | None = None,
    ) -> None:
        timeouts = timeouts or PoolTimeouts()
        urls = DatabaseUrls(owner=urls) if isinstance(urls, str) else urls
        self.url = urls.owner
        self.session_url = urls.session
        self._exhaustion = Exhaustion(disk)
        self._journal = journal
        self._refusal: str | None = None
        self._idle_milliseconds = str(int(idle_in_transaction_seconds * 1000))
        self._statement_milliseconds = str(max(1, round(statement_timeout_seconds * 1000))) if statement_timeout_seconds else None
        self._statement_answer_seconds = statement_timeout_seconds + _SILENCE_SECONDS if statement_timeout_seconds else None
        self._answer_seconds = answer_seconds
        self._draining: set[asyncio.Task[None]] = set()
        self._left_read_only_at = -math.inf
        self._is_shared = urls.pooling == "transaction"
        owner = _Login(urls.owner, urls.pooling, {"idle_in_transaction_session_timeout": self._idle_milliseconds})
        tenant = _tenant_login(urls, self._statement_milliseconds)
        self._owner = owner.pool("owner", size, timeouts)
        self._tenant = tenant.pool("tenant", size, timeouts, check=self._check_tenant)
        self._shares = ConnectionShares(size)
        self._session = self._owner
        if self._is_shared:
            self._session = msgspec.structs.replace(owner, url=urls.session, pooling="none").pool(
                "session", _SESSIONS, timeouts, min_size=0
            )

    async def __aenter__(self) -> Self:
        for pool in self._pools:
            await pool.open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        for pool in reversed(self._pools):
            await pool.close()

    @property
    def _pools(self) -> list[_Pool]:
        return list(dict.fromkeys([self._owner, self._session, self._tenant]))

    @property
    def session_pool(self) -> _Pool:
        """The owner's pool of connections that are sessions, which procrastinate uses as well."""
        return self._session

    def pool_stats(self) -> dict[str, dict[str, int]]:
        """Numbers of each pool by its name, as psycopg_pool counts them: `pool_size`, `requests_waiting`, `requests_wait_ms` ..."""
        return {pool.name: pool.get_stats() for pool in self._pools}

    def _leave_silent_database(self) -> None:
        """Where one connection was silent the others are likely to be: none of them is to be waited for in its turn."""
        log.warning("database.silent")
        self._replace_connections()

    def _leave_read_only_database(self) -> None:
        """A primary that became a standby keeps its connections; new ones may lead to the new primary."""
        now = time.monotonic()
        if now - self._left_read_only_at >= _READ_ONLY_SECONDS:
            self._left_read_only_at = now
            self._replace_connections()

    def _replace_connections(self) -> None:

        async def drain() -> None:
            for pool in self._pools:
                await pool.drain()

        task = asyncio.create_task(drain())
        self._draining.add(task)
        task.add_done_callback(self._draining.discard)

    def hurry(self) -> None:
        """Shorten the wait for connections, so that a database that is away does not delay the stop of the process."""
        for pool in self._pools:
            pool.timeout = _STOPPING_WAIT_SECONDS

    @asynccontextmanager
    async def tenant(
        self, team_id: UUID, person_id: UUID | None = None, *, has_time_limit: bool = True, reads_all: bool = False
    ) -> AsyncGenerator[Conn]:
        """A transaction of one team, and for what is a person's alone of that person.

        Of others' words it sees what the running request may read (`read_as`); with `reads_all` all, for deleting them.

        Unavailable when row-level security does not bind it, StatementTimeout past its limit.
        """
        timeout = self._statement_milliseconds if has_time_limit else "0"
        answer_seconds = self._statement_answer_seconds if has_time_limit else None
        reader = "" if reads_all else _reader.get()
        async with self._tenant_connection(answer_seconds) as conn, conn.transaction(), self._journalled(conn):
            if not await _SET_TEAM.one(conn, team=str(team_id), person=str(person_id or ""), reader=reader, timeout=timeout):
                raise Unavailable(_ROLE_NOT_BOUND)
            try:
                yield conn
            except errors.InsufficientPrivilege as error:
                if _WORDS_POLICY in (error.diag.message_primary or ""):
                    raise Forbidden(_OF_SEVERAL) from error
                raise

    async def check_tenant(self) -> None:
        """Raise Unavailable when row-level security does not bind requests."""
        async with self._tenant_connection(self._statement_answer_seconds) as conn:
            try:
                await tenant_role.check_tenant_role(conn)
            except tenant_role.UnsafeConnection as error:
                raise Unavailable(str(error)) from error

    async def statement_in_tenant(self, act: Callable[[Conn], Awaitable[T]]) -> T:
        """Run `act`, one statement that names its team, on a tenant connection in autocommit; repeated like `in_tenant`."""
        return await _repeat_on_conflict(lambda: self._tenant_connection(self._statement_answer_seconds), act)

    @asynccontextmanager
    async def system(self, *, answer_seconds: float | None = None) -> AsyncGenerator[Conn]:
        """The owner's transaction. A statement is answered within `answer_seconds` (math.inf: hours), or the connection breaks."""
        seconds = answer_seconds or self._answer_seconds
        async with self._connection(self._owner, seconds) as conn, conn.transaction(), self._journalled(conn):
            if self._is_shared:  # a setting of the connection would be lost in the next transaction
                await _SET_IDLE_TIMEOUT.run(conn, milliseconds=self._idle_milliseconds)
            yield conn

    @asynccontextmanager
    async def system_statement(self, *, answer_seconds: float | None = None) -> AsyncGenerator[Conn]:
        """A connection of the owner in autocommit, for single quick statements: by default they have the time of a request's."""
        async with self._connection(self._owner, answer_seconds or self._statement_answer_seconds) as conn:
            yield conn

    @asynccontextmanager
    async def owner_session(self) -> AsyncGenerator[Conn]:
        """A connection of the owner in autocommit that stays one session, for locks that span statements."""
        async with self._connection(self._session, None) as conn:
            yield conn

    @asynccontextmanager
    async def own_session(self) -> AsyncGenerator[Conn]:
        """A connection of the owner in autocommit for the caller alone, outside of the pools: closed with all its settings.

        It breaks when a statement is not answered in the time of the owner's transactions, and the database ends it, with its locks
        and temporary tables, when it has heard nothing of this process for some seconds: the network may never tell it.
        """
        try:
            async with await TimedConnection.connect(with_time_limits(self.session_url), autocommit=True) as conn:
                conn.answer_seconds = self._answer_seconds
                await _END_WHEN_SILENT.run(conn, seconds=_SILENT_SESSION_SECONDS)
                async with _asking(conn):
                    yield conn
        except errors.OperationalError as error:
            if isinstance(error, _ANSWERS_OF_STATEMENTS):
                raise
            raise self._exhaustion.recognize(error) or Unavailable(_AWAY) from error

    async def require_room(self) -> None:
        """Raise DatabaseExhausted while the database cannot write; tested only after it has reported exhaustion."""
        if self._exhaustion.is_noted:
            async with self.system() as conn:
                await _WRITE_MEGABYTE.run(conn)
            self._exhaustion.forget()

    async def in_tenant(
        self,
        team_id: UUID,
        act: Callable[[Conn], Awaitable[T]],
        *,
        person_id: UUID | None = None,
        has_time_limit: bool = True,
        reads_all: bool = False,
    ) -> T:
        """Run `act` in a tenant transaction; repeated after deadlocks and serialization failures."""

        def connect() -> AbstractAsyncContextManager[Conn]:
            return self.tenant(team_id, person_id, has_time_limit=has_time_limit, reads_all=reads_all)

        return await _repeat_on_conflict(connect, act)

    async def in_system(self, act: Callable[[Conn], Awaitable[T]], *, answer_seconds: float | None = None) -> T:
        """Run `act` in a transaction of the owner; repeated like `in_tenant`. `answer_seconds` as for `system`."""
        return await _repeat_on_conflict(lambda: self.system(answer_seconds=answer_seconds), act)

    @asynccontextmanager
    async def _connection(self, pool: _Pool, answer_seconds: float | None) -> AsyncGenerator[Conn]:
        async with _connection(pool, self._exhaustion) as conn:
            conn.on_silence = self._leave_silent_database
            conn.answer_seconds = None if answer_seconds == math.inf else answer_seconds
            try:
                yield conn
            except errors.ReadOnlySqlTransaction:
                self._leave_read_only_database()
                raise
            finally:
                conn.answer_seconds = self._answer_seconds  # procrastinate takes connections from the pool itself

    @asynccontextmanager
    async def _tenant_connection(self, answer_seconds: float | None) -> AsyncGenerator[Conn]:
        try:
            async with self._shares.hold(self._tenant.timeout), self._connection(self._tenant, answer_seconds) as conn:
                yield conn
        except Unavailable as error:
            if isinstance(error.__cause__, PoolTimeout) and self._refusal is not None:
                raise Unavailable(self._refusal) from error
            raise

    @asynccontextmanager
    async def _journalled(self, conn: Conn) -> AsyncGenerator[None]:
        """Write the erasures that the block has noted to the journal, before the transaction around it commits."""
        try:
            yield
        except BaseException:
            take_noted(conn)
            raise
        erasures = take_noted(conn)
        if erasures and self._journal is not None:
            await asyncio.to_thread(self._journal.append, await locate(conn, erasures))

    async def _check_tenant(self, conn: Conn) -> None:
        """Check a new connection. The pool drops one that fails, and logs the error."""
        try:
            await tenant_role.check_tenant_role(conn)
        except tenant_role.UnsafeConnection as error:
            self._refusal = str(error)
            raise
        self._refusal = None


async def prepare_tenant(urls: DatabaseUrls) -> None:
    """Check the login of requests after migrations; UnsafeConnection when teams would not be kept apart."""
    if urls.pooling == "transaction" and urls.tenant is None:
        raise tenant_role.missing_request_role()
    async with _tenant_login(urls).connection() as conn:
        await tenant_role.check_tenant_role(conn)
        if urls.tenant is not None:
            await tenant_role.keep_role_settings(conn)


async def check_pooling(urls: DatabaseUrls) -> None:
    """Raise UnsafeConnection when connections pass a pooler that the setting does not name.

    Sharing may go unnoticed while others use the pooler; each transaction of a request checks its role, and /readyz LISTEN.
    """
    urls_by_setting = {"CMSERVER_DATABASE_URL": urls.owner, "CMSERVER_DATABASE_TENANT_URL": urls.tenant}
    for setting, url in urls_by_setting.items():
        if url is not None and urls.pooling == "none" and await _passes_pooler(url):
            raise tenant_role.UnsafeConnection(
                f"CMSERVER_DATABASE_POOLING is 'none', but {setting} leads to a pooler. Set it to 'session' or 'transaction', as "
                "the pooler is set, or connect directly."
            )
        if url is not None and urls.pooling == "session" and await _is_shared(url):
            raise tenant_role.UnsafeConnection(
                f"CMSERVER_DATABASE_POOLING is 'session', but {setting} leads to a pooler that shares its connections "
                "between transactions. Set it to 'transaction', or the pooler to session pooling."
            )
    if urls.direct is not None and await _is_shared(urls.direct):
        raise tenant_role.UnsafeConnection(
            "CMSERVER_DATABASE_DIRECT_URL leads to a pooler that shares its connections between transactions: LISTEN and locks "
            "would be lost. Let it lead past the pooler."
        )


async def _passes_pooler(url: str) -> bool:
    """Whether the login reports another backend than the one that answers: poolers make up its number."""
    async with await _connect(url) as conn:
        return conn.info.backend_pid != await _BACKEND_PID.one(conn)


async def _is_shared(url: str) -> bool:
    """Whether two connections are answered by one backend, or one of them by several."""
    async with await _connect(url) as first, await _connect(url) as second:
        first_pid = await _BACKEND_PID.one(first)
        for _ in range(_SHARING_ROUNDS):
            try:
                second_pid = await asyncio.wait_for(_BACKEND_PID.one(second), _SHARING_TIMEOUT_SECONDS)
            except TimeoutError:
                return False  # session pooling with a single connection
            if second_pid == first_pid or await _BACKEND_PID.one(first) != first_pid:
                return True
    return False


async def _connect(url: str) -> AsyncConnection[TupleRow]:
    return await AsyncConnection.connect(url, autocommit=True, prepare_threshold=None)


@asynccontextmanager
async def _asking(conn: AsyncConnection[TupleRow]) -> AsyncGenerator[None]:
    """Keep a session of its own from being silent while nothing is asked in it."""

    async def ask() -> None:
        with suppress(errors.OperationalError):  # whoever uses it next is told
            while True:
                await asyncio.sleep(_ASK_SECONDS)
                if conn.info.transaction_status == TransactionStatus.IDLE:
                    with suppress(errors.InFailedSqlTransaction):  # one that has begun meanwhile
                        await _ASK.run(conn)

    asking = asyncio.create_task(ask())
    try:
        yield
    finally:
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)


async def _repeat_on_conflict(connect: Callable[[], AbstractAsyncContextManager[Conn]], act: Callable[[Conn], Awaitable[T]]) -> T:
    """The result of `act` on such a connection, repeated after deadlocks and serialization failures."""
    pauses = iter(_DEADLOCK_PAUSES_SECONDS)
    while True:
        try:
            async with connect() as conn:
                return await act(conn)
        except (errors.DeadlockDetected, errors.SerializationFailure) as error:
            if (pause_seconds := next(pauses, None)) is None:
                raise Unavailable("Other requests are changing the same rows. Try again.") from error
        await asyncio.sleep(pause_seconds)


@asynccontextmanager
async def _connection(pool: _Pool, exhaustion: Exhaustion) -> AsyncGenerator[TimedConnection]:
    try:
        async with pool.connection() as conn:
            yield conn
    except (PoolTimeout, PoolClosed) as error:
        raise exhaustion.why_away() or Unavailable(_AWAY) from error
    except psycopg.Error as error:
        if (exhausted := exhaustion.recognize(error)) is not None:
            raise exhausted from error
        if isinstance(error, errors.QueryCanceled):
            raise StatementTimeout(_TIMED_OUT, _RETRY_AFTER_SECONDS) from error
        if not isinstance(error, (errors.OperationalError, errors.IdleInTransactionSessionTimeout, psycopg.InterfaceError)):
            raise
        if isinstance(error, _ANSWERS_OF_STATEMENTS):
            raise
        raise exhaustion.why_away() or Unavailable(_AWAY) from error


class _Login(msgspec.Struct, frozen=True):
    """The arguments and settings of connections."""

    url: str
    pooling: Pooling
    settings: Mapping[str, str]

    @property
    def conninfo(self) -> str:
        # As start-up options they, the role included, survive RESET ROLE and RESET ALL, but poolers refuse or drop them.
        options = " ".join(f"-c {name}={value}" for name, value in self.settings.items()) if self.pooling == "none" else ""
        return with_options(self.url, options)

    @property
    def arguments(self) -> dict[str, object]:
        # A transaction pooler may use another connection, without the prepared statement.
        return {"prepare_threshold": None} if self.pooling == "transaction" else {}

    async def configure(self, conn: Conn) -> None:
        # Here and not in the pool's kwargs: procrastinate passes autocommit itself when it opens its listener from this pool.
        await conn.set_autocommit(True)
        if self.pooling == "session":
            for name, value in self.settings.items():
                await conn.execute("SELECT set_config(%s, %s, false)", [name, value])

    @asynccontextmanager
    async def connection(self) -> AsyncGenerator[Conn]:
        async with await AsyncConnection.connect(self.conninfo, **self.arguments) as conn:  # pyright: ignore[reportArgumentType]
            await self.configure(conn)
            yield conn

    def pool(
        self,
        name: str,
        size: int,
        timeouts: PoolTimeouts,
        *,
        min_size: int = 2,
        check: Callable[[Conn], Awaitable[None]] | None = None,
    ) -> _Pool:
        """`check` raises for a new connection that must not be used."""

        async def configure(conn: Conn) -> None:
            await self.configure(conn)
            if check is not None:
                await check(conn)

        return AsyncConnectionPool(
            self.conninfo,
            connection_class=TimedConnection,
            kwargs=self.arguments,
            min_size=min(min_size, size),
            max_size=size,
            open=False,
            configure=configure,
            timeout=timeouts.wait_seconds,
            # Short: after a restart of the database the next caller tries again at once, instead of waiting out a long back-off.
            reconnect_timeout=2,
            max_idle=timeouts.idle_seconds,
            name=name,
        )


def _tenant_login(urls: DatabaseUrls, statement_milliseconds: str | None = None) -> _Login:
    """The login role of requests, which has its own settings, or the owner's login switched to the tenant role."""
    timeout = {"statement_timeout": statement_milliseconds} if statement_milliseconds else {}
    if urls.tenant is not None:
        return _Login(urls.tenant, urls.pooling, timeout)
    return _Login(urls.owner, urls.pooling, {"role": tenant_role.TENANT_ROLE, **tenant_role.TENANT_SETTINGS, **timeout})


def with_options(url: str, options: str) -> str:
    """The connection string with server options added to those it has."""
    both = " ".join(filter(None, [str(conninfo_to_dict(url).get("options") or ""), options]))
    return make_conninfo(with_time_limits(url), options=both or None, application_name="cmserver")
