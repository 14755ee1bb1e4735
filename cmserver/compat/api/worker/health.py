"""Is it there: what claude-mem's hooks ask five times before each call, so it costs no I/O. Nobody needs a key for it.

A hook whose own version differs from a `version` in the health takes the server for an old worker, tries to kill it and sends
nothing. So there is none; nor are there a process id and paths, which are nobody's business.
"""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime
from typing import Literal, cast

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from cmserver import __version__
from cmserver.base.http.operation import Operation
from cmserver.base.http.wire import answer
from cmserver.base.ids import epoch_ms
from cmserver.base.settings import Settings

_STARTED = time.monotonic()


class AiOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Who generates; what is asked, and how, is told to those who have a key (GET /v1/info)."""

    provider: Literal["cmserver"] = "cmserver"
    auth_method: Literal["server"] = "server"
    last_interaction: None = None


class DependenciesOut(msgspec.Struct, frozen=True, kw_only=True):
    """There are none besides the database (GET /readyz)."""

    degraded: bool = False
    statuses: list[str] = []


class QueueOut(msgspec.Struct, frozen=True, kw_only=True):
    """The queue is the database; what waits in it is told to those who have a key (GET /v1/info)."""

    engine: Literal["postgres"] = "postgres"
    lanes: list[str] = []


class HealthOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The process is alive. `uptime` is in milliseconds."""

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
    queue: QueueOut = QueueOut()


class ReadinessOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """It takes calls."""

    status: Literal["ready"] = "ready"
    mcp_ready: bool = True


class VersionOut(msgspec.Struct, frozen=True, kw_only=True):
    """The version of this program."""

    version: str = __version__


class PlainHealthOut(msgspec.Struct, frozen=True, kw_only=True):
    """The process is alive. `uptime` is in seconds, `timestamp` in milliseconds since 1970."""

    status: Literal["ok"] = "ok"
    runtime: Literal["server-beta"] = "server-beta"
    timestamp: int
    uptime: float
    port: int


def uptime_seconds() -> float:
    return time.monotonic() - _STARTED


async def get_health(_request: Request) -> Response:
    """Whether the server is alive, for clients of claude-mem. Never with a `version`."""
    return answer(HealthOut(uptime=int(uptime_seconds() * 1000)))


async def get_readiness(_request: Request) -> Response:
    """Whether calls are taken, for clients of claude-mem: always, for what they do not send is lost. GET /readyz looks closer."""
    return answer(ReadinessOut())


async def get_version(_request: Request) -> Response:
    """The version of this program."""
    return answer(VersionOut())


async def get_plain_health(request: Request) -> Response:
    """Whether the server is alive, for older clients of claude-mem."""
    port = cast("Settings", request.app.state.settings).port
    return answer(PlainHealthOut(timestamp=epoch_ms(datetime.now(UTC)), uptime=round(uptime_seconds(), 3), port=port))


routes = [
    Operation("GET", "/api/health", get_health, scope=None, answers={200: HealthOut}),
    Operation("GET", "/api/readiness", get_readiness, scope=None, answers={200: ReadinessOut}),
    Operation("GET", "/api/version", get_version, scope=None, answers={200: VersionOut}),
    Operation("GET", "/health", get_plain_health, scope=None, answers={200: PlainHealthOut}),
]
