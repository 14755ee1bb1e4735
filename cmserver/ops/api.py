"""Is it alive, is it ready, and how is the queue."""

from __future__ import annotations

from typing import Literal, cast
from uuid import UUID

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from cmserver import __version__
from cmserver.access.model import Principal
from cmserver.base.errors import Unavailable
from cmserver.base.http.operation import Operation
from cmserver.base.http.wire import answer, caller, db
from cmserver.base.ids import epoch_ms
from cmserver.base.migrate import newest
from cmserver.base.settings import Settings
from cmserver.generation import repository as generation
from cmserver.generation.model import Pause, QueueCounts
from cmserver.ops import repository


class QueueOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The team's queue at a glance."""

    waiting: int
    active: int
    delayed: int
    held: int
    completed: int
    failed: int
    cancelled: int
    oldest_waiting_seconds: float | None


class PauseOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Why a provider is left alone."""

    provider: str
    reason: str
    message: str
    paused_at_epoch: int
    until_epoch: int


class HealthOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The process is alive."""

    status: Literal["ok"] = "ok"
    runtime: Literal["cmserver"] = "cmserver"


class ReadyOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The database answers and has this program's schema; `workers` have a lease that holds."""

    status: Literal["ready"] = "ready"
    runtime: Literal["cmserver"] = "cmserver"
    schema_version: int
    workers: int


class PostgresOut(msgspec.Struct, frozen=True, kw_only=True):
    """The database."""

    version: str
    embedded: bool
    vectors: bool


class ProviderOut(msgspec.Struct, frozen=True, kw_only=True):
    """Who generates observations."""

    name: str
    pauses: list[PauseOut]


class TeamOut(msgspec.Struct, frozen=True, kw_only=True):
    """The key's team."""

    id: UUID
    name: str


class InfoOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The server, and the team's queue."""

    name: Literal["cmserver"] = "cmserver"
    runtime: Literal["cmserver"] = "cmserver"
    version: str
    schema_version: int
    postgres: PostgresOut
    provider: ProviderOut
    team: TeamOut
    workers: int
    queue: QueueOut


async def get_healthz(_request: Request) -> Response:
    """Alive: no I/O."""
    return answer(HealthOut())


async def get_readyz(request: Request) -> Response:
    """Ready: the database answers and has this program's schema. That no worker runs is told only: events are stored and wait."""
    async with db(request).system_statement() as conn:
        schema = await repository.schema(conn)
    if schema.number != newest():
        raise Unavailable("The database has another schema than this program; restart the program that is older.")
    return answer(ReadyOut(schema_version=schema.number, workers=schema.workers))


async def get_info(request: Request) -> Response:
    """The server, its schema and provider, and the team's queue at a glance."""
    who = await caller(request, Principal)
    settings = cast("Settings", request.app.state.settings)
    async with db(request).tenant(who.team_id) as conn:
        counts = await generation.queue_counts(conn, who.team_id)
    async with db(request).system() as conn:
        schema = await repository.schema(conn)
        pauses = [one for one in await generation.pauses(conn) if one.seconds_left > 0]
    return answer(
        InfoOut(
            version=__version__,
            schema_version=schema.number,
            postgres=PostgresOut(version=schema.postgres, embedded=settings.database_url is None, vectors=schema.vectors),
            provider=ProviderOut(name=settings.provider, pauses=[_pause_out(pause) for pause in pauses]),
            team=TeamOut(id=who.team_id, name=who.team_name),
            workers=schema.workers,
            queue=_queue_out(counts),
        )
    )


def _queue_out(counts: QueueCounts) -> QueueOut:
    return QueueOut(
        waiting=counts.waiting,
        active=counts.active,
        delayed=counts.delayed,
        held=counts.held,
        completed=counts.completed,
        failed=counts.failed,
        cancelled=counts.cancelled,
        oldest_waiting_seconds=counts.oldest_waiting_seconds,
    )


def _pause_out(pause: Pause) -> PauseOut:
    return PauseOut(
        provider=pause.provider,
        reason=pause.reason,
        message=pause.message,
        paused_at_epoch=epoch_ms(pause.paused_at),
        until_epoch=epoch_ms(pause.until_at),
    )


routes = [
    Operation("GET", "/healthz", get_healthz, scope=None, answers={200: HealthOut}),
    Operation("GET", "/readyz", get_readyz, scope=None, answers={200: ReadyOut}),
    Operation("GET", "/v1/info", get_info, scope="jobs:read", answers={200: InfoOut}),
]
