"""The two doors to the database: the tenant's, behind row-level security, and the owner's, for work that spans teams.

`db` may open transactions of its own; what it opens is a `conn`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Self, TypeVar
from uuid import UUID

import psycopg
from psycopg import AsyncConnection, errors
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import TupleRow
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout

from cmserver.base.errors import Unavailable
from cmserver.base.sql import Conn, Query

T = TypeVar("T")

TENANT_ROLE = "cmserver_tenant"
_SET_TEAM = Query(str, "SELECT set_config('cmserver.team_id', %(team)s, true)")
_AWAY = "The database cannot be reached at the moment; try again in a moment."
_TRIES = 3
_HURRIED_SECONDS = 0.5


class Db:
    """Two pools on one database. Open it with `async with`."""

    def __init__(self, url: str, *, size: int = 10, idle_in_transaction_seconds: float = 10) -> None:
        self.url = url
        self._owner = _pool("owner", url, size, f"-c idle_in_transaction_session_timeout={int(idle_in_transaction_seconds * 1000)}")
        # The role as a start-up option survives RESET ROLE and RESET ALL.
        # Somebody waits for what a tenant asks: several processes for one statement, and code that is compiled for it, take longer
        # to come than most statements take, and longer than they save in the others.
        quick = "-c max_parallel_workers_per_gather=0 -c jit=off"
        self._tenant = _pool("tenant", url, size, f"-c role={TENANT_ROLE} -c idle_in_transaction_session_timeout=10000 {quick}")

    async def __aenter__(self) -> Self:
        await self._owner.open()
        await self._tenant.open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._tenant.close()
        await self._owner.close()

    @property
    def owner_pool(self) -> AsyncConnectionPool[AsyncConnection[TupleRow]]:
        """For procrastinate, which shares it."""
        return self._owner

    def hurry(self) -> None:
        """From now on nobody waits long for a connection: the process stops, and a database that is away must not keep it."""
        self._owner.timeout = self._tenant.timeout = _HURRIED_SECONDS

    @asynccontextmanager
    async def tenant(self, team_id: UUID) -> AsyncGenerator[Conn]:
        """A transaction that sees one team only."""
        async with _connection(self._tenant) as conn, conn.transaction():
            await _SET_TEAM.run(conn, team=str(team_id))
            yield conn

    async def statement_in_tenant(self, act: Callable[[Conn], Awaitable[T]]) -> T:
        """`act` on a tenant's connection in autocommit, for one statement that names its team itself; repeated like `in_tenant`."""

        async def once() -> T:
            async with _connection(self._tenant) as conn:
                return await act(conn)

        return await _repeated(once)

    @asynccontextmanager
    async def system(self) -> AsyncGenerator[Conn]:
        """A transaction of the owner: claim and effects, key lookup, readiness, reaper, operators' commands."""
        async with _connection(self._owner) as conn, conn.transaction():
            yield conn

    @asynccontextmanager
    async def system_statement(self) -> AsyncGenerator[Conn]:
        """The owner's connection in autocommit, for single statements."""
        async with _connection(self._owner) as conn:
            yield conn

    async def in_tenant(self, team_id: UUID, act: Callable[[Conn], Awaitable[T]]) -> T:
        """`act` in a tenant transaction, repeated when the database broke a deadlock by ending it."""

        async def once() -> T:
            async with self.tenant(team_id) as conn:
                return await act(conn)

        return await _repeated(once)

    async def in_system(self, act: Callable[[Conn], Awaitable[T]]) -> T:
        """`act` in a transaction of the owner, repeated like `in_tenant`."""

        async def once() -> T:
            async with self.system() as conn:
                return await act(conn)

        return await _repeated(once)


async def _repeated(once: Callable[[], Awaitable[T]]) -> T:
    for attempt in range(_TRIES):
        try:
            return await once()
        except (errors.DeadlockDetected, errors.SerializationFailure):
            await asyncio.sleep(0.01 * 4**attempt)
    raise Unavailable("The database is too busy with the same rows at the moment; try again in a moment.")


@asynccontextmanager
async def _connection(pool: AsyncConnectionPool[AsyncConnection[TupleRow]]) -> AsyncGenerator[Conn]:
    try:
        async with pool.connection() as conn:
            yield conn
    except (PoolTimeout, PoolClosed) as error:
        raise Unavailable(_AWAY) from error
    except (errors.OperationalError, errors.IdleInTransactionSessionTimeout, psycopg.InterfaceError) as error:
        if isinstance(error, (errors.DeadlockDetected, errors.SerializationFailure, errors.ProgramLimitExceeded)):
            raise
        raise Unavailable(_AWAY) from error


def _pool(name: str, url: str, size: int, options: str) -> AsyncConnectionPool[AsyncConnection[TupleRow]]:
    return AsyncConnectionPool(
        with_options(url, options),
        min_size=min(2, size),
        max_size=size,
        open=False,
        configure=_configure,
        timeout=3,
        # An attempt that gives up soon is made again by the next caller; a patient one would wait out its back-off after a restart.
        reconnect_timeout=2,
        max_idle=120,
        name=name,
    )


def with_options(url: str, options: str) -> str:
    """The connection string with further server options behind those it already has."""
    present = conninfo_to_dict(url).get("options")
    return make_conninfo(url, options=f"{present} {options}" if present else options, application_name="cmserver")


async def _configure(conn: AsyncConnection[TupleRow]) -> None:
    # Here and not in the pool's kwargs: procrastinate passes autocommit itself when it opens its listener from this pool.
    await conn.set_autocommit(True)
