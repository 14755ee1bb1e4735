"""How the server behaves, under the names that claude-mem's viewer has for it. Nothing secret, and nothing that can be changed."""

from __future__ import annotations

from typing import Literal, cast

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from cmserver.base.errors import Forbidden
from cmserver.base.http.operation import Operation
from cmserver.base.http.wire import answer
from cmserver.base.settings import Settings
from cmserver.compat.api.guest import guest
from cmserver.providers.registry import described

_NAMES = {
    "runtime": "CLAUDE_MEM_RUNTIME",
    "provider": "CLAUDE_MEM_PROVIDER",
    "model": "CLAUDE_MEM_MODEL",
    "mode": "CLAUDE_MEM_MODE",
    "context_observations": "CLAUDE_MEM_CONTEXT_OBSERVATIONS",
    "context_sessions": "CLAUDE_MEM_CONTEXT_SESSION_COUNT",
    "semantic_inject": "CLAUDE_MEM_SEMANTIC_INJECT",
    "worker_port": "CLAUDE_MEM_WORKER_PORT",
}


class SettingsOut(msgspec.Struct, rename=_NAMES, frozen=True, kw_only=True):
    """Texts, as in the original. Keys, addresses and paths are not among them."""

    runtime: Literal["server"] = "server"
    provider: str
    model: str
    mode: Literal["code"] = "code"
    context_observations: str
    context_sessions: str
    semantic_inject: str
    worker_port: str


async def get_settings(request: Request) -> Response:
    """How the server behaves, without secrets, for claude-mem's viewer."""
    await guest(request)
    settings = cast("Settings", request.app.state.settings)
    first = described(settings)[0]
    told = SettingsOut(
        provider=first.name,
        model=first.model or "",
        context_observations=str(settings.context_observations),
        context_sessions=str(settings.context_summaries),
        semantic_inject="true" if settings.context_on_prompt == "on" else "false",
        worker_port=str(settings.port),
    )
    return answer(told)


async def post_settings(request: Request) -> Response:
    """Refused: settings are the operator's, and read when the server starts."""
    await guest(request)
    raise Forbidden(
        "Settings are not changed over HTTP. The operator sets them in the environment or in the configuration file, "
        "and starts the server again; `cmserver config` shows them."
    )


routes = [
    Operation("GET", "/api/settings", get_settings, scope="observations:read", answers={200: SettingsOut}),
    Operation("POST", "/api/settings", post_settings, scope="observations:read", answers={}),
]
