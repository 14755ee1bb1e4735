"""Takes the hooks of coding agents as they send them, and answers in each agent's own schema."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import cast
from uuid import UUID

import msgspec
import psycopg
import structlog
from starlette.requests import Request
from starlette.responses import Response
from structlog.typing import FilteringBoundLogger

from cmserver.access import announce, audit
from cmserver.access.model import Principal, Project
from cmserver.access.projects import Projects
from cmserver.base.errors import Conflict, Forbidden, Invalid, NotFound, Unauthenticated
from cmserver.base.http.operation import Operation
from cmserver.base.http.wire import STATUS, answer, caller, db, dependency, read_leniently
from cmserver.base.ids import from_epoch_ms
from cmserver.base.notifications import NotificationListener
from cmserver.base.settings import Settings
from cmserver.base.text import storable
from cmserver.generation.job_notifier import JobNotifier
from cmserver.hooks import claude_code, codex, cursor, gemini, opencode
from cmserver.hooks.model import Adapter, HookCall, HookOutput, HookReply
from cmserver.hooks.payload import TRANSCRIPT_END
from cmserver.ingest import session as sessions
from cmserver.ingest.record import EventRecorder, EventSubmission
from cmserver.ingest.wire import EventIn
from cmserver.ops.joining.follow import follow_name
from cmserver.recall.context import build_context
from cmserver.recall.file_context import build_file_context
from cmserver.recall.model import MAX_CHANGED_FILES, ContextBudget, ContextRequest
from cmserver.recall.prompt_context import build_prompt_context
from cmserver.recall.search.query_embedder import QueryEmbedder
from cmserver.redaction.clean import clean
from cmserver.redaction.identifiers import Identifiers
from cmserver.sessions import repository
from cmserver.sessions.model import NewSession
from cmserver.sessions.turns import repository as turns
from cmserver.tooluse.typed_prompt import typed_text

log: FilteringBoundLogger = structlog.get_logger(__name__)

ADAPTERS: dict[str, Adapter] = {
    adapter.platform: adapter for adapter in (claude_code.ADAPTER, codex.ADAPTER, gemini.ADAPTER, cursor.ADAPTER, opencode.ADAPTER)
}

_MAX_DELAY = timedelta(days=30)
_MAX_AHEAD = timedelta(minutes=5)
_MAX_PATH_CHARS = 1_000
_MAX_PROMPT_CHARS = 20_000
"""More of a prompt is not cleaned; search takes its beginning."""


async def post_hook(request: Request) -> Response:
    """Take a hook's payload as the agent sends it. The answer is the agent's hook output, with context where the hook takes it."""
    adapter = ADAPTERS.get(request.path_params["client"])
    try:
        principal = await caller(request, Principal)
    except (Unauthenticated, Forbidden) as error:
        # Hooks that call curl do not see the status: the body makes a wrong key visible to the user.
        status, name = STATUS[type(error)]
        refusal = {"error": name, "message": str(error), "requestId": audit.request_id()}
        output = adapter.render(None, HookReply(message=f"cmserver: {error}")) if adapter else HookOutput()
        return answer({**refusal, **msgspec.to_builtins(output)}, status)
    if adapter is None:
        raise NotFound(f"Unknown agent. Known agents: {', '.join(sorted(ADAPTERS))}.")
    payload, size_bytes = await read_leniently(request)
    call = adapter.parse(payload, request.headers.get("x-cmserver-delivery"))
    identifiers = dependency(request, Identifiers)
    call = msgspec.structs.replace(call, session_id=identifiers.clean(call.session_id))
    if call.name == TRANSCRIPT_END and not await _is_missing_words(request, principal, adapter, call):
        return answer(adapter.render(call, HookReply()))
    project = await _find_project(request, principal, adapter, call)
    session_id = await _start_session(request, principal, adapter, project, call) if call.moment == "start" else None
    session_id = await _store_events(request, principal, adapter, project, call, size_bytes) or session_id
    if session_id is not None:
        await _end_turn_or_session(request, principal, project, call, session_id)
    reply = HookReply()
    if not _read_header(request, "late"):
        try:
            reply = HookReply(context=await _find_context(request, principal, adapter, project, call, session_id))
        except psycopg.Error as error:  # its session may just have been erased; the event is stored, and must not be sent again
            log.warning("hook.told_nothing", agent=adapter.platform, error=type(error).__name__)  # its text may quote values
    return answer(adapter.render(call, reply))


async def _is_missing_words(request: Request, principal: Principal, adapter: Adapter, call: HookCall) -> bool:
    """Whether the turn that the agent's words are of is known, and has none."""
    said_at, now = call.said_at, datetime.now(UTC)
    if not call.events or said_at is None or not now - _MAX_DELAY <= said_at <= now + _MAX_AHEAD:
        return False
    place = await dependency(request, EventRecorder).find_hook_session(principal, call.session_id, adapter.platform)
    if place is None or not principal.sees(place.project_id):
        return False
    async with db(request).tenant(principal.team_id) as conn:
        return await turns.is_unanswered(conn, principal.team_id, place.id, said_at)


async def _find_project(request: Request, principal: Principal, adapter: Adapter, call: HookCall) -> Project:
    """The project of the session, which its first call decided; at that call, the one that the key or the folder names."""
    projects, recorder = dependency(request, Projects), dependency(request, EventRecorder)
    await _follow_name(request, principal, call)
    for _ in range(2):
        place = await recorder.find_hook_session(principal, call.session_id, adapter.platform)
        if place is None:
            return await _name_project(request, principal, call)
        with suppress(NotFound):
            return await projects.find(principal, str(place.project_id))
        recorder.forget_sessions()  # it was remembered from before its project was deleted
    raise Conflict("The project of this session is archived. Restore it with an admin key: PATCH /v1/projects/{id}.")


async def _name_project(request: Request, principal: Principal, call: HookCall) -> Project:
    """The key's project; else the one that the hook client names; else the folder's git remote; else the folder.

    Invalid names and unknown ids are skipped: the repository chose them, and its event must not be lost for that.
    """
    projects = dependency(request, Projects)
    candidates = _list_names(request, call)
    if principal.project_id is None:
        for name in candidates[:-1]:
            with suppress(Invalid, NotFound):
                return await projects.named_or_own(principal, name, at="$.cwd", make=True)
    last = None if principal.project_id or not candidates else candidates[-1]
    return await projects.named_or_own(principal, last, at="$.cwd", make=True)


def _list_names(request: Request, call: HookCall) -> list[str]:
    """What the folder may be called, the best name first."""
    names = (_read_header(request, "project"), _read_header(request, "git-remote"), _read_header(request, "root"), call.cwd)
    return [name for name in names if name]


def _read_name_before(request: Request) -> str:
    """What the folder was called when the hook client saw it last, if that was otherwise; older clients tell of remotes only."""
    return _read_header(request, "name-before") or _read_header(request, "git-remote-before")


async def _follow_name(request: Request, principal: Principal, call: HookCall) -> None:
    """Let the project follow its folder to a new name, whether a session begins or goes on."""
    before, names = _read_name_before(request), _list_names(request, call)
    folder = next(iter(_read_place(request, call).values()), None)
    if before and names and isinstance(folder, str):
        await follow_name(db(request), principal, before, names[0], folder)
        announce.drop_cached_here(dependency(request, NotificationListener), principal.team_id)


def _read_place(request: Request, call: HookCall) -> dict[str, object]:
    """The root of the repository, else the agent's working folder, as it is kept with a session."""
    root = _read_header(request, "root")
    place = {"root": root} if root else {"cwd": call.cwd} if call.cwd else {}
    return cast("dict[str, object]", clean(place, field_max_chars=_MAX_PATH_CHARS).value)


async def _end_turn_or_session(request: Request, principal: Principal, project: Project, call: HookCall, session_id: UUID) -> None:
    """Do what the end of a turn or of the session asks for; nothing at other moments."""
    place = db(request), dependency(request, JobNotifier), dependency(request, Settings), principal
    if call.moment == "turn_end":
        await sessions.checkpoint_turn(*place, project, session_id, occurred_at=_read_sent_at(request))
    elif call.moment == "end":
        await sessions.end_session(*place, session_id, occurred_at=_read_sent_at(request))
    elif call.moment == "prompt" or any(event.event_type == "turn_failed" for event in call.events):
        await sessions.release_turn(*place, project, session_id)


async def _start_session(request: Request, principal: Principal, adapter: Adapter, project: Project, call: HookCall) -> UUID:
    metadata = cast("dict[str, object]", clean(call.metadata, field_max_chars=_MAX_PATH_CHARS).value)
    new = NewSession(
        external_session_id=call.session_id,
        content_session_id=call.session_id,
        platform_source=adapter.platform,
        metadata={**metadata, **_read_place(request, call)},
        started_at=_read_sent_at(request),
        actor_id=principal.actor_id,
        from_hooks=True,
    )
    session, _ = await db(request).in_tenant(principal.team_id, lambda conn: sessions.start(conn, principal, project, new))
    return session.id


async def _store_events(
    request: Request, principal: Principal, adapter: Adapter, project: Project, call: HookCall, size_bytes: int
) -> UUID | None:
    """The session that the events are of; None when there is nothing to store."""
    if not call.events:
        return None
    branch = _read_header(request, "git-branch")
    occurred_at = call.said_at or _read_sent_at(request)
    submissions = [
        EventSubmission(
            event=EventIn(
                event_type=event.event_type,
                source_type="hook",
                payload=event.payload,
                source_event_id=event.source_event_id,
                content_session_id=call.session_id,
                platform_source=adapter.platform,
                metadata={**event.metadata, "git_branch": branch[:200]} if branch else event.metadata,
            ),
            project=project,
            origin="hook",
            generate=event.generate,
            identity=event.identity,
            turn_id=event.turn_id,
            is_recovered=call.said_at is not None,
            occurred_at=occurred_at,
            session_metadata=_read_place(request, call),
            size_bytes=size_bytes,
        )
        for event in call.events
    ]
    recorded = await dependency(request, EventRecorder).record(principal, submissions)
    return recorded[0].event.server_session_id


async def _find_context(
    request: Request, principal: Principal, adapter: Adapter, project: Project, call: HookCall, session_id: UUID | None
) -> str | None:
    """The context for the model at this moment, if there is any."""
    settings = dependency(request, Settings)
    typed = typed_text((call.prompt or "")[: 10 * _MAX_PROMPT_CHARS])
    is_wanted = {
        "start": True,
        "prompt": settings.context_on_prompt == "on" and typed,
        "file": settings.context_on_file == "on" and call.file,
    }
    if call.name not in adapter.context_hooks:  # else the receipt would say that the model was shown it
        return None
    if not is_wanted.get(call.moment) or call.is_subagent or not principal.may("observations:read"):
        return None
    prompt, vector = "", None
    if call.moment == "prompt":
        prompt = cast("str", clean(typed[:_MAX_PROMPT_CHARS], field_max_chars=_MAX_PROMPT_CHARS).value)
        vector = await dependency(request, QueryEmbedder).embed_unasked(prompt, principal.team_id)
    new_request = partial(ContextRequest, platform=adapter.platform, reader=_read_header(request, "hook") or None)
    async with db(request).tenant(principal.team_id) as conn:
        if call.moment == "start":
            files = [name for name in _read_header(request, "changed-files").split("\t") if name][:MAX_CHANGED_FILES]
            folders = {*_list_names(request, call)[1:], _read_name_before(request)}
            context_request = new_request(
                reason=call.source, session_id=session_id, changed_files=files, folders=[name for name in folders if name]
            )
            found = await build_context(conn, principal, project, context_request, dependency(request, ContextBudget))
        elif call.moment == "prompt":
            context_request = new_request(reason="prompt", session_id=session_id)
            found = await build_prompt_context(conn, principal, project, context_request, prompt, vector)
        else:
            session = await repository.by_hook(
                conn, principal.team_id, call.session_id, adapter.platform, only=principal.project_id
            )
            context_request = new_request(reason="file", session_id=session.id if session else None)
            found = await build_file_context(conn, principal, project, context_request, call.file or "")
    return found.text or None if found else None


def _read_header(request: Request, name: str) -> str:
    """The hook client's header `X-Cmserver-...` as UTF-8; empty without one."""
    return storable(request.headers.get(f"x-cmserver-{name}", "").encode("latin-1").decode("utf-8", "replace")).strip()


def _read_sent_at(request: Request) -> datetime:
    """When the hook client sent it, which may be long before it arrives; now for an implausible time."""
    now = datetime.now(UTC)
    sent = _read_header(request, "sent-at")
    if not (sent.isascii() and sent.isdigit()) or len(sent) > 15:
        return now
    try:
        at = from_epoch_ms(int(sent))
    except OverflowError:
        return now
    return at if now - _MAX_DELAY <= at <= now + _MAX_AHEAD else now


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
