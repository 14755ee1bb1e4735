"""Who generates observations, and whether they are paused, over HTTP."""

from __future__ import annotations

from typing import Literal, cast

import msgspec
import structlog
from starlette.requests import Request
from starlette.responses import Response
from structlog.typing import FilteringBoundLogger

from cmserver.access.model import Principal
from cmserver.base.http.operation import Operation
from cmserver.base.http.wire import answer, caller, db
from cmserver.base.settings import Settings
from cmserver.generation.bell import Bell
from cmserver.generation.calls import repository as calls
from cmserver.ops.providers.resume import resume
from cmserver.ops.wire import PauseOut, pause_out
from cmserver.providers.registry import described

log: FilteringBoundLogger = structlog.get_logger(__name__)


class KnownProviderOut(msgspec.Struct, frozen=True, kw_only=True):
    """A provider: paused, or to be asked when those before it are. `model` is null where only the provider itself knows it."""

    name: str
    model: str | None
    state: Literal["ready", "paused"]
    pause: PauseOut | None


class ProvidersOut(msgspec.Struct, frozen=True, kw_only=True):
    """In the order in which they are asked; then those that are paused and not among them (any more)."""

    providers: list[KnownProviderOut]


class ResumedOut(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the provider was paused until now."""

    resumed: bool
    name: str


async def get_providers(request: Request) -> Response:
    """Who generates observations, in the order in which they are asked, and who is paused."""
    who = await caller(request, Principal)
    async with db(request).system() as conn:
        paused = {one.provider: one for one in await calls.pauses(conn) if one.seconds_left > 0}
    models = {one.name: one.model for one in described(_settings(request))}
    return answer(
        ProvidersOut(
            providers=[
                KnownProviderOut(
                    name=name,
                    model=models.get(name),
                    state="paused" if name in paused else "ready",
                    pause=pause_out(paused[name], who) if name in paused else None,
                )
                for name in [*models, *(name for name in paused if name not in models)]
            ]
        )
    )


async def post_resume(request: Request) -> Response:
    """Ask a paused provider again before its pause ends, in the whole server; what waited for it goes on."""
    who = await caller(request, Principal)
    name = str(request.path_params["provider"])
    chain = [one.name for one in described(_settings(request))]
    resumed = await db(request).in_system(lambda conn: resume(conn, who, name, chain))
    if resumed:
        log.info("provider.resumed", provider=name)
        cast("Bell", request.app.state.bell).ring()
    return answer(ResumedOut(resumed=resumed, name=name))


def _settings(request: Request) -> Settings:
    return cast("Settings", request.app.state.settings)


routes = [
    Operation("GET", "/v1/providers", get_providers, scope="", answers={200: ProvidersOut}),
    Operation("POST", "/v1/providers/{provider}/resume", post_resume, scope="*", answers={200: ResumedOut}),
]
