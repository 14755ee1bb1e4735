"""Takes the hooks of coding agents as they send them, and answers in each agent's own schema."""

from __future__ import annotations

import re
from datetime import datetime
from importlib import import_module

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from cmserver.access.model import Principal
from cmserver.base.errors import Conflict, Forbidden, NoPerson, NotFound, Unauthenticated
from cmserver.base.http.operation import post
from cmserver.base.http.wire import STATUS, answer, caller, dependency, read_leniently, read_sized
from cmserver.base.ids import from_epoch_ms, named_id, request_id
from cmserver.base.text import storable
from cmserver.client.agents import AGENTS
from cmserver.doors.hooks.code import take_code_changes
from cmserver.doors.hooks.model import Adapter, HookCall, HookHeaders, HookOutput, HookReply, SpecificOutput
from cmserver.doors.hooks.take import HookDelivery, HookTaker
from cmserver.doors.hooks.wire import CodeChangesIn, CodeChangesOut

_HASH = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
ADAPTERS: dict[str, Adapter] = {
    agent.name: import_module(f"cmserver.doors.hooks.{agent.name.replace('-', '_')}").ADAPTER
    for agent in AGENTS.values()
    if agent.records
}
"""By the name of the agent, which is also that of the adapter's file."""


async def post_hook(request: Request) -> Response:
    """Take a hook's payload as the agent sends it. The answer is the agent's hook output, with context where the hook takes it."""
    adapter = ADAPTERS.get(request.path_params["client"])
    try:
        principal = await caller(request, Principal)
    except NoPerson as error:
        return await _keep_nothing(request, adapter, error)
    except (Unauthenticated, Forbidden) as error:
        return _refuse(adapter, error, STATUS[type(error)][0])
    if adapter is None:
        raise NotFound(f"Unknown agent. Known agents: {', '.join(sorted(ADAPTERS))}.")
    payload, size_bytes = await read_leniently(request)
    call = adapter.parse(payload, request.headers.get("x-cmserver-delivery"))
    delivery = HookDelivery(
        principal=principal,
        platform=adapter.platform,
        takes_context=call.name in adapter.context_hooks,
        starts_with_prompt=adapter.starts_with_prompt,
        call=call,
        headers=_read_headers(request),
        size_bytes=size_bytes,
    )
    reply = await dependency(request, HookTaker).take(delivery)
    return answer(render_output(adapter, call, reply))


async def post_code(request: Request) -> Response:
    """Take what commits did to the files of a clone since it told last, and which are not merged.

    The headers name its project, as those of a hook do.
    """
    principal = await caller(request, Principal)
    changes, size_bytes = await read_sized(request, CodeChangesIn)
    taken = await take_code_changes(
        dependency(request, HookTaker), principal, _read_headers(request), changes, size_bytes=size_bytes
    )
    return answer(taken)


def render_output(adapter: Adapter, call: HookCall | None, reply: HookReply) -> HookOutput:
    """The hook's output; without a call when it could not be parsed, or its key is wrong. Never a decision on permissions."""
    message = reply.message or None
    if call is None:
        return HookOutput(system_message=message)
    if adapter.flat_field:
        context = (reply.context or None) if call.name in adapter.context_hooks else None
        return (
            HookOutput(additional_context=context)
            if adapter.flat_field == "additional_context"
            else HookOutput(flat_context=context)
        )
    if call.name in adapter.silent_hooks:
        return HookOutput()
    specific = None
    if reply.context and call.name in adapter.context_hooks:
        specific = SpecificOutput(hook_event_name=call.name, additional_context=reply.context)
    return HookOutput(hook_specific_output=specific, system_message=message)


async def _keep_nothing(request: Request, adapter: Adapter | None, error: NoPerson) -> Response:
    """Answer a call of a private session whose key is nobody's. It is told so at its start.

    The key is right, so nothing waits for another one. What comes late, of which nobody hears, is refused with 409 and counted.
    """
    headers = _read_headers(request)
    if adapter is None or headers.is_late:
        return _refuse(adapter, error, STATUS[Conflict][0])
    payload, _ = await read_leniently(request)
    call = adapter.parse(payload, None)
    return answer(render_output(adapter, call, HookReply(message=f"cmserver: {error}" if call.moment == "start" else None)))


def _refuse(adapter: Adapter | None, error: Unauthenticated | Forbidden, status: int) -> Response:
    """The refusal as the agent's output, too: hooks that call curl do not see the status."""
    refusal = {"error": STATUS[type(error)][1], "message": str(error), "requestId": request_id()}
    output = render_output(adapter, None, HookReply(message=f"cmserver: {error}")) if adapter else HookOutput()
    return answer({**refusal, **msgspec.to_builtins(output)}, status)


def _read_headers(request: Request) -> HookHeaders:
    """What the hook client says; older clients tell of a folder's name before only when it was a git remote."""
    return HookHeaders(
        project=_read_header(request, "project"),
        git_remote=_read_header(request, "git-remote"),
        git_branch=_read_header(request, "git-branch"),
        git_commit=_read_commit(_read_header(request, "git-commit")),
        clone_id=named_id(_read_header(request, "clone")),
        root=_read_header(request, "root"),
        name_before=_read_header(request, "name-before") or _read_header(request, "git-remote-before"),
        changed_files=[name for name in _read_header(request, "changed-files").split("\t") if name],
        hook=_read_header(request, "hook"),
        sent_at=_read_time(_read_header(request, "sent-at")),
        is_late=bool(_read_header(request, "late")),
    )


def _read_header(request: Request, name: str) -> str:
    """The hook client's header `X-Cmserver-...` as UTF-8; empty without one."""
    return storable(request.headers.get(f"x-cmserver-{name}", "").encode("latin-1").decode("utf-8", "replace")).strip()


def _read_commit(text: str) -> str:
    """The hash; empty for what is none."""
    return text if _HASH.fullmatch(text) else ""


def _read_time(epoch_ms: str) -> datetime | None:
    if not (epoch_ms.isascii() and epoch_ms.isdigit()) or len(epoch_ms) > 15:
        return None
    try:
        return from_epoch_ms(int(epoch_ms))
    except OverflowError:
        return None


routes = [
    post("/v1/hooks/{client}", post_hook, "events:write", HookOutput, body=dict[str, object]),
    post("/v1/code", post_code, "events:write", CodeChangesOut, body=CodeChangesIn),
]
