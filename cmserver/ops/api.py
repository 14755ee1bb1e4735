"""Is it alive, is it ready, and how is the queue."""

from __future__ import annotations

from typing import cast

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cmserver import __version__
from cmserver.access.model import Principal
from cmserver.base.errors import Unavailable
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


async def get_healthz(_request: Request) -> Response:
    """Alive: no I/O."""
    return answer({"status": "ok", "runtime": "cmserver"})


async def get_readyz(request: Request) -> Response:
    """Ready: the database answers and has this program's schema. That no worker runs is told only: events are stored and wait."""
    async with db(request).system_statement() as conn:
        schema = await repository.schema(conn)
    if schema.number != newest():
        raise Unavailable("The database has another schema than this program; restart the program that is older.")
    return answer({"status": "ready", "runtime": "cmserver", "schemaVersion": schema.number, "workers": schema.workers})


async def get_info(request: Request) -> Response:
    """The server, its schema and provider, and the team's queue at a glance."""
    who = await caller(request, Principal, "jobs:read")
    settings = cast("Settings", request.app.state.settings)
    async with db(request).tenant(who.team_id) as conn:
        counts = await generation.queue_counts(conn, who.team_id)
    async with db(request).system() as conn:
        schema = await repository.schema(conn)
        pauses = [one for one in await generation.pauses(conn) if one.seconds_left > 0]
    return answer(
        {
            "name": "cmserver",
            "runtime": "cmserver",
            "version": __version__,
            "schemaVersion": schema.number,
            "postgres": {"version": schema.postgres, "embedded": settings.database_url is None, "vectors": schema.vectors},
            "provider": {"name": settings.provider, "pauses": [_pause_out(pause) for pause in pauses]},
            "team": {"id": who.team_id, "name": who.team_name},
            "workers": schema.workers,
            "queue": _queue_out(counts),
        }
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
    Route("/healthz", get_healthz),
    Route("/readyz", get_readyz),
    Route("/v1/info", get_info),
]
