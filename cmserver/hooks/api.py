"""The door for coding agents: their hooks' payloads come in raw, and go out as their own hook output."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import cast
from uuid import UUID

import msgspec
import psycopg
import structlog
from starlette.requests import Request
from starlette.responses import Response
from structlog.typing import FilteringBoundLogger

from cmserver.access import audit
from cmserver.access.change_project import follow
from cmserver.access.model import Principal, Project
from cmserver.access.projects import Projects
from cmserver.base.errors import Forbidden, NotFound, Unauthenticated
from cmserver.base.http.operation import Operation
from cmserver.base.http.wire import STATUS, answer, body, caller, db
from cmserver.base.ids import from_epoch_ms
from cmserver.base.redaction.clean import clean, decode_json
from cmserver.base.settings import Settings
from cmserver.base.text import storable
from cmserver.hooks import claude_code, codex, gemini
from cmserver.hooks.model import Adapter, HookCall, Told
from cmserver.hooks.output import HookOutput
from cmserver.ingest import session as sessions
from cmserver.ingest.ends import Ends
from cmserver.ingest.model import Incoming
from cmserver.ingest.record import Recorder
from cmserver.recall.context import context
from cmserver.recall.model import MOST_CHANGED_FILES, Occasion, Shape
from cmserver.recall.on_file import file_context
from cmserver.recall.prompted import prompt_context
from cmserver.sessions import repository
from cmserver.sessions.model import NewSession

log: FilteringBoundLogger = structlog.get_logger(__name__)

ADAPTERS: dict[str, Adapter] = {one.platform: one for one in (claude_code.ADAPTER, codex.ADAPTER, gemini.ADAPTER)}

_LONGEST_DELAY = timedelta(days=30)
_PROMPT_CHARS = 20_000
"""So much of a prompt is cleaned; search takes the beginning of what that leaves."""


async def post_hook(request: Request) -> Response:
    """Take a hook's payload as the agent sends it; the answer is the agent's hook output, with context where it belongs."""
    adapter = ADAPTERS.get(request.path_params["client"])
    try:
        who = await caller(request, Principal)
    except (Unauthenticated, Forbidden) as error:
        # Hooks that call curl do not see the status: the body makes a wrong key visible to the user.
        status, name = STATUS[type(error)]
        told = {"error": name, "message": str(error), "requestId": audit.request_id()}
        seen = adapter.output(None, Told(message=f"cmserver: {error}")) if adapter else None
        return answer({**told, **msgspec.to_builtins(seen)} if seen else told, status)
    if adapter is None:
        raise NotFound(f"There are no hooks for this agent here; there are for: {', '.join(sorted(ADAPTERS))}.")
    raw = await body(request)
    payload = decode_json(raw)
    call = adapter.understand(payload, request.headers.get("x-cmserver-delivery"))
    project = await _project(request, who, call)
    session_id = await _start(request, who, adapter, project, call) if call.moment == "start" else None
    session_id = await _store(request, who, adapter, project, call, len(raw)) or session_id
    if call.moment == "turn_end" and session_id is not None:
        await cast("Ends", request.app.state.ends).turn(who, session_id)
    if call.moment == "end" and session_id is not None:
        await cast("Ends", request.app.state.ends).session(who, session_id)
    told = Told()
    if not _header(request, "late"):
        try:
            told = Told(context=await _context(request, who, adapter, project, call, session_id))
        except psycopg.Error as error:  # its session may just have been erased; what it sent is stored, and must not be sent again
            log.warning("hook.told_nothing", agent=adapter.platform, error=type(error).__name__)  # its text may quote values
    return answer(adapter.output(call, told))


async def _project(request: Request, who: Principal, call: HookCall) -> Project:
    """The key's project; else the one that the hook client names; else the folder's git remote; else the folder."""
    projects = cast("Projects", request.app.state.projects)
    remote, before = _header(request, "git-remote"), _header(request, "git-remote-before")
    named = _header(request, "project") or remote or _header(request, "root") or call.cwd
    if remote and before and named == remote and who.project_id is None:
        await db(request).in_tenant(who.team_id, lambda conn: follow(conn, who, before, remote))
    return await projects.named_or_own(who, None if who.project_id else named, at="$.cwd", make=True)


async def _start(request: Request, who: Principal, adapter: Adapter, project: Project, call: HookCall) -> UUID:
    new = NewSession(
        external_session_id=call.session_id,
        content_session_id=call.session_id,
        platform_source=adapter.platform,
        metadata=cast("dict[str, object]", clean(call.metadata, field_max_chars=1000).value),
    )
    session, _ = await db(request).in_tenant(who.team_id, lambda conn: sessions.start(conn, who, project, new))
    return session.id


async def _store(
    request: Request, who: Principal, adapter: Adapter, project: Project, call: HookCall, size_bytes: int
) -> UUID | None:
    """The session that the events are of; None when there is nothing to store."""
    if not call.events:
        return None
    branch = _header(request, "git-branch")
    occurred_at = _occurred_at(request)
    incoming = [
        Incoming(
            project=project,
            event_type=one.event_type,
            payload=one.payload,
            occurred_at=occurred_at,
            source_adapter="hook",
            origin="hook",
            generate=one.generate,
            source_event_id=one.source_event_id,
            content_session_id=call.session_id,
            platform_source=adapter.platform,
            metadata={**one.metadata, "git_branch": branch[:200]} if branch else one.metadata,
            size_bytes=size_bytes,
        )
        for one in call.events
    ]
    recorded = await cast("Recorder", request.app.state.recorder).record(who, incoming)
    return recorded[0].event.server_session_id


async def _context(
    request: Request, who: Principal, adapter: Adapter, project: Project, call: HookCall, session_id: UUID | None
) -> str | None:
    """What the agent is told on this occasion, if anything."""
    settings = cast("Settings", request.app.state.settings)
    wanted = {
        "start": True,
        "prompt": settings.context_on_prompt == "on" and call.prompt,
        "file": settings.context_on_file == "on" and call.file,
    }
    if not wanted.get(call.moment) or call.is_subagent or not who.may("observations:read"):
        return None
    reader = _header(request, "hook") or None
    async with db(request).tenant(who.team_id) as conn:
        if call.moment == "start":
            files = [name for name in _header(request, "changed-files").split("\t") if name][:MOST_CHANGED_FILES]
            occasion = Occasion(
                reason=call.source, session_id=session_id, platform=adapter.platform, changed_files=files, reader=reader
            )
            told = await context(conn, who, project, occasion, cast("Shape", request.app.state.context_shape))
        elif call.moment == "prompt":
            occasion = Occasion(reason="prompt", session_id=session_id, platform=adapter.platform, reader=reader)
            prompt = clean((call.prompt or "")[:_PROMPT_CHARS], field_max_chars=_PROMPT_CHARS).value
            told = await prompt_context(conn, who, project, occasion, cast("str", prompt))
        else:
            known = await repository.by_external_id(conn, who.team_id, project.id, call.session_id, adapter.platform)
            known_id = known.id if known else None
            occasion = Occasion(reason="file", session_id=known_id, platform=adapter.platform, reader=reader)
            told = await file_context(conn, who, project, occasion, call.file or "")
    return told.text or None if told else None


def _header(request: Request, name: str) -> str:
    """What the hook client says under `X-Cmserver-...`, which is UTF-8; the empty string when it says nothing."""
    return storable(request.headers.get(f"x-cmserver-{name}", "").encode("latin-1").decode("utf-8", "replace")).strip()


def _occurred_at(request: Request) -> datetime:
    """When the hook client says it was sent (a spool may deliver later), within reason; else now."""
    now = datetime.now(UTC)
    sent = _header(request, "sent-at")
    if not (sent.isascii() and sent.isdigit()) or len(sent) > 15:
        return now
    try:
        at = from_epoch_ms(int(sent))
    except OverflowError:
        return now
    return at if now - _LONGEST_DELAY <= at <= now + timedelta(minutes=5) else now


routes = [
    Operation(
        "POST",
        "/v1/hooks/{client}",
        post_hook,
        scope="events:write",
        body=dict[str, object],
        answers={200: HookOutput},
    )
]
