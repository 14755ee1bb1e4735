"""The door for coding agents: their hooks' payloads come in raw, and go out as their own hook output."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import cast

from starlette.requests import Request
from starlette.responses import Response

from cmserver.access import audit
from cmserver.access.model import Principal, Project
from cmserver.access.projects import Projects
from cmserver.base.errors import Forbidden, NotFound, Unauthenticated
from cmserver.base.http.operation import Operation
from cmserver.base.http.wire import STATUS, answer, body, caller, db
from cmserver.base.ids import from_epoch_ms
from cmserver.base.redaction.clean import clean, decode_json
from cmserver.base.text import storable
from cmserver.generation.bell import Bell
from cmserver.hooks import claude_code
from cmserver.hooks.claude_code import HookCall, HookOutput
from cmserver.ingest import session as sessions
from cmserver.ingest.model import Incoming
from cmserver.ingest.record import Recorder
from cmserver.recall.context import context
from cmserver.sessions.model import NewSession
from cmserver.sessions.start import find_or_make

CONTEXT_LINES = 50
_LONGEST_DELAY = timedelta(days=30)


async def post_hook(request: Request) -> Response:
    """Take a hook's payload as the coding agent sends it; a session start is answered with the project's context."""
    try:
        who = await caller(request, Principal)
    except (Unauthenticated, Forbidden) as error:
        # Hooks that call curl do not see the status: the body makes a wrong key visible to the user.
        status, name = STATUS[type(error)]
        told = {"error": name, "message": str(error), "systemMessage": f"cmserver: {error}", "requestId": audit.request_id()}
        return answer(told, status)
    if request.path_params["client"] != claude_code.PLATFORM:
        raise NotFound(f"There are no hooks for this client here; there are for: {claude_code.PLATFORM}.")
    raw = await body(request)
    payload = decode_json(raw)
    call = claude_code.understand(payload, request.headers.get("x-cmserver-delivery"))
    project = await _project(request, who, call)
    if call.starts_session:
        await _start(request, who, project, call, payload)
    if call.event_type is not None:
        await _store(request, who, project, call, payload, len(raw))
    if call.ends_session:
        await _end(request, who, project, call)
    if call.starts_session and who.may("observations:read"):
        async with db(request).tenant(who.team_id) as conn:
            shown = await context(conn, who, project, CONTEXT_LINES)
        return answer(claude_code.context_output(shown.text))
    return answer(HookOutput())


async def _project(request: Request, who: Principal, call: HookCall) -> Project:
    """The key's project; else the one the hook client names; else the folder's git remote; else the folder itself."""
    headers = request.headers
    named = headers.get("x-cmserver-project") or headers.get("x-cmserver-git-remote") or call.cwd
    return await cast("Projects", request.app.state.projects).named_or_own(
        who, None if who.project_id or not named else storable(named), at="$.cwd", make=True
    )


async def _start(request: Request, who: Principal, project: Project, call: HookCall, payload: object) -> None:
    metadata = clean(claude_code.session_metadata(payload), field_max_chars=1000).value
    new = _session(call, cast("dict[str, object]", metadata))
    await db(request).in_tenant(who.team_id, lambda conn: sessions.start(conn, who, project, new))


async def _store(request: Request, who: Principal, project: Project, call: HookCall, payload: object, size_bytes: int) -> None:
    branch = request.headers.get("x-cmserver-git-branch")
    incoming = Incoming(
        project=project,
        event_type=call.event_type or "unknown",
        payload=payload,
        occurred_at=_occurred_at(request),
        source_adapter="hook",
        origin="hook",
        generate=call.generate,
        source_event_id=call.source_event_id,
        content_session_id=call.session_id,
        platform_source=claude_code.PLATFORM,
        metadata={**call.metadata, "git_branch": branch[:200]} if branch else call.metadata,
        size_bytes=size_bytes,
    )
    await cast("Recorder", request.app.state.recorder).record(who, [incoming])


async def _end(request: Request, who: Principal, project: Project, call: HookCall) -> None:
    most = cast("int", request.app.state.job_max_attempts)
    session, _ = await db(request).in_tenant(
        who.team_id, lambda conn: find_or_make(conn, who.team_id, project.id, _session(call, {}))
    )
    _, _, is_new = await db(request).in_tenant(
        who.team_id, lambda conn: sessions.end(conn, who, session.id, source_adapter="hook", max_attempts=most)
    )
    if is_new:
        cast("Bell", request.app.state.bell).ring()


def _session(call: HookCall, metadata: dict[str, object]) -> NewSession:
    return NewSession(
        external_session_id=call.session_id,
        content_session_id=call.session_id,
        platform_source=claude_code.PLATFORM,
        metadata=metadata,
    )


def _occurred_at(request: Request) -> datetime:
    """When the hook client says it was sent (a spool may deliver later), within reason; else now."""
    now = datetime.now(UTC)
    sent = request.headers.get("x-cmserver-sent-at", "")
    if not sent.isdigit() or len(sent) > 15:
        return now
    try:
        at = from_epoch_ms(int(sent))
    except OverflowError:
        return now
    return at if now - _LONGEST_DELAY <= at <= now + timedelta(minutes=5) else now


routes = [
    Operation("POST", "/v1/hooks/{client}", post_hook, scope="events:write", body=dict[str, object], answers={200: HookOutput})
]
