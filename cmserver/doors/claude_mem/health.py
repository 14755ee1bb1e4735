"""Health routes, which claude-mem's hooks call five times before each call: no I/O, no key.

A hook whose own version differs from a `version` in the health takes the server for an old worker, tries to kill it and sends
nothing. So there is none; nor are there a process id and paths, which are nobody's business. The numbers are sums over all teams,
as they were a few seconds ago. GET /v1/info has the numbers of a team, for its keys.
"""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime
from typing import Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from cmserver import __version__
from cmserver.base.http.operation import get
from cmserver.base.http.wire import answer, dependency
from cmserver.base.ids import epoch_ms
from cmserver.base.process import resident_bytes
from cmserver.base.settings import Settings
from cmserver.generation.queue_monitor import QueueMonitor

_STARTED = time.monotonic()


class AiOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The generator; GET /v1/info has the models, for callers with a key. `provider` is always `cmserver`."""

    provider: Literal["cmserver"] = "cmserver"
    auth_method: Literal["server"] = "server"
    last_interaction: None = None


class DependenciesOut(msgspec.Struct, frozen=True, kw_only=True):
    """None besides the database (GET /readyz)."""

    degraded: bool = False
    statuses: list[str] = []


class WorkerQueueOut(msgspec.Struct, frozen=True, kw_only=True):
    """The queue is the database. `queued` is how many jobs of all teams wait, or null until they have been counted; `processing` is
    how many of them are worked on, or null until then.
    """

    engine: Literal["postgres"] = "postgres"
    lanes: list[str] = []
    queued: int | None
    processing: int | None


class ProcessMemoryOut(msgspec.Struct, frozen=True, kw_only=True):
    """Resident memory of the server's process, in bytes."""

    rss: int


class WorkerHealthOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The process is alive.

    `uptime` is how long it has run, in milliseconds. `initialized` is always true; `status` is always `ok`.
    """

    status: Literal["ok"] = "ok"
    runtime: Literal["server-beta"] = "server-beta"
    uptime: int
    managed: bool = False
    has_ipc: bool = False
    platform: str = sys.platform
    initialized: bool = True
    mcp_ready: bool = True
    ai: AiOut = AiOut()
    dependencies: DependenciesOut = DependenciesOut()
    queue: WorkerQueueOut
    active_sessions: int | None
    memory: ProcessMemoryOut


class ReadinessOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The server takes calls: `status` is always `ready`."""

    status: Literal["ready"] = "ready"
    mcp_ready: bool = True


class VersionOut(msgspec.Struct, frozen=True, kw_only=True):
    """The version of this program."""

    version: str = __version__


class PlainHealthOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The process is alive: `status` is always `ok`. `uptime` is how long it has run, in seconds."""

    status: Literal["ok"] = "ok"
    runtime: Literal["server-beta"] = "server-beta"
    timestamp: int
    uptime: float
    port: int
    queue: WorkerQueueOut
    active_sessions: int | None
    memory: ProcessMemoryOut


def uptime_seconds() -> float:
    return time.monotonic() - _STARTED


async def get_health(request: Request) -> Response:
    """Whether the server is alive, for clients of claude-mem. Never with a `version`."""
    queue, active_sessions = _load_out(request)
    return answer(
        WorkerHealthOut(
            uptime=int(uptime_seconds() * 1000),
            queue=queue,
            active_sessions=active_sessions,
            memory=ProcessMemoryOut(rss=resident_bytes()),
        )
    )


async def get_readiness(_request: Request) -> Response:
    """Whether calls are taken, for clients of claude-mem: always, for what they do not send is lost. GET /readyz looks closer."""
    return answer(ReadinessOut())


async def get_version(_request: Request) -> Response:
    """The version of this program."""
    return answer(VersionOut())


async def get_plain_health(request: Request) -> Response:
    """Whether the server is alive, for older clients of claude-mem."""
    port = dependency(request, Settings).port
    queue, active_sessions = _load_out(request)
    return answer(
        PlainHealthOut(
            timestamp=epoch_ms(datetime.now(UTC)),
            uptime=round(uptime_seconds(), 3),
            port=port,
            queue=queue,
            active_sessions=active_sessions,
            memory=ProcessMemoryOut(rss=resident_bytes()),
        )
    )


def _load_out(request: Request) -> tuple[WorkerQueueOut, int | None]:
    """The queue and the number of sessions as they were at the last look."""
    load = dependency(request, QueueMonitor).load
    if load is None:
        return WorkerQueueOut(queued=None, processing=None), None
    return WorkerQueueOut(queued=load.queued, processing=load.processing), load.active_sessions


routes = [
    get("/api/health", get_health, None, WorkerHealthOut),
    get("/api/readiness", get_readiness, None, ReadinessOut),
    get("/api/version", get_version, None, VersionOut),
    get("/health", get_plain_health, None, PlainHealthOut),
]
