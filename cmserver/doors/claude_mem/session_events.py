"""Finds the session and project of a claude-mem client's call, and records its events and prompts.

Prompts are cut and classified as claude-mem does.
"""

from __future__ import annotations

import hashlib
import re
from datetime import UTC, datetime
from typing import cast
from uuid import UUID

import msgspec
from starlette.requests import Request

from cmserver.access.model import Principal, Project
from cmserver.access.projects import Projects
from cmserver.base.errors import Conflict, NotFound
from cmserver.base.http.wire import db, dependency
from cmserver.base.ids import named_id, new_id
from cmserver.base.text import KEY_MOST, storable
from cmserver.ingest import session_lifecycle
from cmserver.ingest.model import EventSubmission, RecordedEvent
from cmserver.ingest.record import EventRecorder
from cmserver.reading.model import REPLY_TYPE
from cmserver.redaction.clean import clean_aside
from cmserver.sessions import repository as sessions
from cmserver.sessions.model import NewSession, SessionAndLastPrompt
from cmserver.tooluse.model import ToolUse

NO_PROJECT = "unknown"
"""The project of sessions whose project was never sent."""
MAX_PROMPT_BYTES = 256 * 1024
MEDIA = "[media prompt]"
"""A prompt without any text: a picture, say."""
_REPEATED_SECONDS = 10.0
_METADATA_CHARS = 1_000
_SEPARATOR = re.compile(r"[\\/]+")
_NOTIFICATION = re.compile(r"\s*<task-notification\b[^>]*>(?:(?!</?task-notification\b).)*</task-notification>\s*", re.DOTALL)
_PRIVATE = re.compile(r"(?:\s|\[redacted:private\])*")


class AgentSession(msgspec.Struct, frozen=True, kw_only=True):
    """The caller, the session's id at its agent, and the kind of agent."""

    principal: Principal
    session: str
    platform: str


class StoredPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """A recorded prompt."""

    session_id: UUID
    number: int
    is_known: bool
    """Whether the session existed before."""
    is_private: bool
    """Whether its text is empty after redaction."""
    is_repeated: bool


def is_protocol(prompt: str) -> bool:
    """Whether the prompt is only a task notification, which hooks send as a prompt."""
    return _NOTIFICATION.fullmatch(prompt) is not None


def _cut_prompt(prompt: str | None) -> str:
    """The first 256 KiB of the prompt as UTF-8, in whole characters; MEDIA for none."""
    if not prompt:
        return MEDIA
    if len(prompt) * 4 <= MAX_PROMPT_BYTES:
        return prompt
    return prompt.encode("utf-8", "surrogatepass")[:MAX_PROMPT_BYTES].decode("utf-8", "ignore")


def session_number(session_id: UUID) -> int:
    """A number for clients' logs: 53 bits of the SHA-256 of the session's id, never 0. Nothing is looked up by it."""
    return (int.from_bytes(hashlib.sha256(session_id.bytes).digest()[:8]) >> 11) or 1


async def find_session(request: Request, speaker: AgentSession, prompt: str | None = None) -> SessionAndLastPrompt | None:
    """The stored session, if any, and whether `prompt` (as it would be stored) repeats its newest one."""
    principal = speaker.principal
    async with db(request).tenant(principal.team_id) as conn:
        return await sessions.session_and_last_prompt(
            conn,
            principal.team_id,
            speaker.session,
            speaker.platform,
            only=principal.project_id,
            prompt=prompt,
            within_seconds=_REPEATED_SECONDS,
        )


async def find_project(
    request: Request,
    speaker: AgentSession,
    existing_session: SessionAndLastPrompt | None,
    *,
    project_name: str | None = None,
    folder: str | None = None,
) -> Project | None:
    """The key's project, else the session's, else the one of that name or folder, made when there is none.

    None when it is archived: nothing is recorded there.
    """
    projects = dependency(request, Projects)
    principal = speaker.principal
    try:
        if principal.project_id is not None:
            return await projects.find(principal, str(principal.project_id))
        if existing_session is not None:
            return await projects.find(principal, str(existing_session.project_id))
        if project_name := clean_name(project_name):
            is_id = named_id(project_name) is not None
            return (await find_named_project(request, principal, project_name) if is_id else None) or await projects.find_or_make(
                principal, _name_or_unknown(project_name)
            )
        if folder := clean_name(folder):
            return await _project_in(projects, principal, folder)
        return await projects.find_or_make(principal, NO_PROJECT)
    except (NotFound, Conflict):
        return None


async def find_named_project(request: Request, principal: Principal, project_name: str) -> Project | None:
    """The key's project, or else the one of that name; None when there is none."""
    projects = dependency(request, Projects)
    try:
        return await projects.find(principal, project_name if principal.project_id is None else str(principal.project_id))
    except NotFound:
        return None


async def _project_in(projects: Projects, principal: Principal, folder: str) -> Project:
    """The project of that path or folder name, made when there is none: claude-mem names a project like its folder."""
    for folder_name in (folder, _SEPARATOR.split(folder.rstrip("\\/"))[-1]):
        try:
            if folder_name:
                return await projects.find(principal, _name_or_unknown(folder_name))
        except NotFound:
            continue
    return await projects.find_or_make(principal, _name_or_unknown(folder))


async def record_prompt(
    request: Request,
    speaker: AgentSession,
    prompt: str | None,
    *,
    project_name: str | None,
    metadata: dict[str, object],
    size_bytes: int,
    moves: bool = False,
) -> StoredPrompt | None:
    """Open the session and store its prompt; None when its project is archived.

    A wholly private prompt is stored without its text; one repeated within ten seconds is not stored again. With `moves`, a session
    id used in another project than `project_name` is a new session.
    """
    principal = speaker.principal
    prompt_text = _cut_prompt(prompt)
    text = cast("str", (await clean_aside(prompt_text, size_bytes=size_bytes, at="$.prompt")).value)
    existing_session = await find_session(request, speaker, text)
    project = await find_project(request, speaker, None if moves and project_name else existing_session, project_name=project_name)
    if project is None:
        return None
    clean_metadata = await clean_aside(metadata, field_max_chars=_METADATA_CHARS, size_bytes=size_bytes)
    new = NewSession(
        external_session_id=speaker.session,
        content_session_id=speaker.session,
        platform_source=speaker.platform,
        actor_id=principal.actor_id,
        person_id=principal.user_id,
        metadata=cast("dict[str, object]", clean_metadata.value),
        from_hooks=not moves,
    )
    session, _ = await db(request).in_tenant(principal.team_id, lambda conn: session_lifecycle.start(conn, principal, project, new))
    before = existing_session if existing_session is not None and existing_session.id == session.id else None
    is_repeated = before is not None and before.is_repeated
    number = before.prompt_count if before is not None else 0
    if not is_repeated:
        number += 1
        await record_event(
            request,
            speaker,
            project,
            session.id,
            event_type="user_prompt",
            payload={"prompt": prompt_text},
            # Two requests at once with the same prompt are one; the same prompt later is another one.
            # The hash tells two prompts of one number apart; it is of the stored text, so it reveals nothing private.
            source_event_id=f"prompt:{session.id}:{number}:{hashlib.sha256(text.encode()).hexdigest()[:32]}",
            size_bytes=size_bytes,
        )
    return StoredPrompt(
        session_id=session.id,
        number=number,
        is_known=before is not None,
        is_private=_PRIVATE.fullmatch(text) is not None,
        is_repeated=is_repeated,
    )


async def record_event(
    request: Request,
    speaker: AgentSession,
    project: Project,
    session_id: UUID | None,
    *,
    event_type: str,
    payload: dict[str, object],
    source_event_id: str | None,
    size_bytes: int,
    tool: ToolUse | None = None,
    metadata: dict[str, object] | None = None,
) -> RecordedEvent:
    """Record an event of the session, which is made when there is none.

    Without `source_event_id`, each arrival is a new event; but a reply that comes again within a moment is the same one.
    """
    is_reply = source_event_id is None and event_type == REPLY_TYPE
    submission = EventSubmission(
        event_type=event_type,
        source_adapter="hook",
        payload=payload,
        source_event_id=None if is_reply else source_event_id or f"arrival:{new_id()}",
        server_session_id=session_id,
        content_session_id=speaker.session,
        platform_source=speaker.platform,
        metadata=metadata or {},
        project=project,
        origin="hook",
        identity="moment" if is_reply else "id",
        tool=tool,
        occurred_at=datetime.now(UTC),
        size_bytes=size_bytes,
    )
    (recorded,) = await dependency(request, EventRecorder).record(speaker.principal, [submission])
    return recorded


def clean_name(text: str | None) -> str:
    """The text as a project's name: storable, trimmed and bounded; may be empty."""
    return storable(text or "").strip()[:KEY_MOST].strip()


def _name_or_unknown(project_name: str) -> str:
    """The name, or NO_PROJECT for one that looks like an id: no project is made of those."""
    return project_name if named_id(project_name) is None else NO_PROJECT
