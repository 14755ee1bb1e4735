"""Observations, summaries and prompts as rows of claude-mem's worker, and the filters of its clients.

Our numbers are its ids. Lists within a row are JSON texts, as in the tables of the original.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated
from uuid import UUID

import msgspec
from msgspec import Meta
from starlette.requests import Request

from cmserver.access import repository as access
from cmserver.access.model import Principal
from cmserver.access.projects import Projects
from cmserver.base.errors import Invalid, NotFound
from cmserver.base.http.wire import dependency
from cmserver.base.ids import epoch_ms, from_epoch_ms, from_iso, iso
from cmserver.base.sql import Conn
from cmserver.base.text import LINE_MOST, storable
from cmserver.observations.model import Observation
from cmserver.observations.wire import type_shown
from cmserver.recall.timeline.model import TimedTurn
from cmserver.sessions import repository as sessions
from cmserver.sessions.model import SessionBrief
from cmserver.sessions.turns.model import SessionTurn

MAX_PAGE_ITEMS = 100
"""A page has no more items, whatever the `limit`, as in the original."""
MAX_PROJECTS = 1_000

Many = Annotated[int, Meta(ge=1, le=1_000_000)]
Offset = Annotated[int, Meta(ge=0, le=10_000)]
"""To read further, use the cursors of /v1."""

_MAX_PLATFORM_CHARS = 100
_PLATFORMS = {"codex": "codex", "cursor": "cursor", "claude": "claude", "transcript": "codex"}
"""Part of a client's word for a kind of agent, and claude-mem's word. The first match counts."""
_ENCODER = msgspec.json.Encoder()


class ObservationRow(msgspec.Struct, frozen=True, kw_only=True):
    """An observation; `id` is its number here.

    `type` is its type, or `summary` for a summary. `facts` are single statements, as a list in JSON text; `concepts` are words of
    the field, as a list in JSON text; `files_read` are paths, as a list in JSON text; `files_modified` are paths, as a list in JSON
    text. `metadata` is an object as JSON text, or null for an empty one. `text` is always null: the text is in `narrative`. The
    original's fields for its cloud and curation are empty.
    """

    id: int
    memory_session_id: str | None
    session_id: str | None
    project: str
    platform_source: str
    text: None = None
    type: str
    title: str | None
    subtitle: str | None
    facts: str
    narrative: str | None
    concepts: str
    files_read: str
    files_modified: str
    prompt_number: int | None
    discovery_tokens: int
    created_at: str
    created_at_epoch: int
    content_hash: str
    generated_by_model: str | None
    relevance_count: int = 0
    merged_into_project: None = None
    agent_type: None = None
    agent_id: None = None
    metadata: str | None
    synced_at: None = None
    origin_device_id: None = None
    origin_local_id: None = None
    sync_rev: int = 0


class SummaryRow(msgspec.Struct, frozen=True, kw_only=True):
    """A session's summary; `id` is its number here. `notes` are what else was worth a note."""

    id: int
    session_id: str | None
    memory_session_id: str | None
    platform_source: str
    request: str | None
    investigated: str | None
    learned: str | None
    completed: str | None
    next_steps: str | None
    notes: str | None
    project: str
    created_at: str
    created_at_epoch: int


class PromptRow(msgspec.Struct, frozen=True, kw_only=True):
    """A user's prompt; `id` is that of its event, for GET /v1/events/{id}."""

    id: UUID
    content_session_id: str
    project: str
    platform_source: str
    prompt_number: int | None
    prompt_text: str
    created_at: str
    created_at_epoch: int


class RowScope(msgspec.Struct, frozen=True):
    """The project that a query is limited to; None for the whole team."""

    project_id: UUID | None


class RowNames(msgspec.Struct, frozen=True):
    """Names of the projects and sessions of some rows."""

    projects: dict[UUID, str]
    sessions: dict[UUID, SessionBrief]

    def project(self, project_id: UUID) -> str:
        return self.projects.get(project_id, "")

    def session(self, session_id: UUID | None) -> str | None:
        """The session's id at its agent."""
        row = self.sessions.get(session_id) if session_id else None
        return (row.external_id or str(row.id)) if row else None

    def platform(self, session_id: UUID | None) -> str:
        row = self.sessions.get(session_id) if session_id else None
        return platform(row.platform_source if row else None)


async def resolve_scope(request: Request, principal: Principal, project_name: str | None) -> RowScope | None:
    """The key's project, else the named one, else the whole team; None when there is no project of that name.

    That is no error: hooks name the project of their folder before anything was recorded in it.
    """
    if principal.project_id is not None or not (project_name or "").strip():
        return RowScope(principal.project_id)
    try:
        return RowScope(await dependency(request, Projects).within(principal, project_name))
    except NotFound:
        return None


async def projects_in(conn: Conn, principal: Principal, where: RowScope) -> dict[UUID, str]:
    """The canonical ids of the projects in scope, by id: at most the newest MAX_PROJECTS of a team."""
    if where.project_id:
        return await access.names_of(conn, principal.team_id, [where.project_id])
    rows = await access.projects(
        conn, principal.team_id, only=None, archived=False, isolated=False, before=None, before_id=None, limit=MAX_PROJECTS
    )
    return {row.id: row.canonical_id for row in rows}


def platform(text_sent: str | None) -> str:
    """The kind of agent as claude-mem normalizes it; Claude Code when there is none."""
    plain = "-".join(storable((text_sent or "")[:LINE_MOST]).lower().split())[:_MAX_PLATFORM_CHARS]
    return next((meant for part, meant in _PLATFORMS.items() if part in plain), plain or "claude")


def requested_platform(request: Request, *candidates: str | None) -> str | None:
    """The kind of agent to filter by, from the query or a header; None for all."""
    headers = (request.headers.get("x-platform-source"), request.headers.get("x-claude-mem-platform-source"))
    text = next((word for word in (*candidates, *headers) if word and word.strip()), None)
    return platform(text) if text else None


def moment(text: str | None, at: str) -> datetime | None:
    """A time in ISO 8601 (in UTC without a zone) or in epoch milliseconds; Invalid when it is neither."""
    if not text:
        return None
    try:
        return from_epoch_ms(int(text)) if text.isdecimal() and len(text) > 8 else from_iso(text)
    except (ValueError, OverflowError) as error:
        raise Invalid.at(at, "Invalid time: use 2026-11-22, 2026-11-22T10:00:00Z or epoch milliseconds.") from error


async def read_names(conn: Conn, principal: Principal, rows: Sequence[Observation | SessionTurn | TimedTurn]) -> RowNames:
    """The names of the rows' projects and sessions."""
    projects = await access.names_of(conn, principal.team_id, {row.project_id for row in rows})
    ids = {row.server_session_id for row in rows if row.server_session_id}
    briefs = await sessions.briefs(conn, principal.team_id, ids) if ids else []
    return RowNames(projects, {row.id: row for row in briefs})


async def observation_rows(conn: Conn, principal: Principal, observations: Sequence[Observation]) -> list[ObservationRow]:
    names = await read_names(conn, principal, observations)
    return [_observation_row(row, names) for row in observations]


async def summary_rows(conn: Conn, principal: Principal, observations: Sequence[Observation]) -> list[SummaryRow]:
    names = await read_names(conn, principal, observations)
    return [_summary_row(row, names) for row in observations]


async def prompt_rows(conn: Conn, principal: Principal, prompts: Sequence[SessionTurn]) -> list[PromptRow]:
    names = await read_names(conn, principal, prompts)
    return [_prompt_row(row, names) for row in prompts]


def _observation_row(row: Observation, names: RowNames) -> ObservationRow:
    model = row.metadata.get("model")
    session = names.session(row.server_session_id)
    return ObservationRow(
        id=row.number,
        memory_session_id=session,
        session_id=session,
        project=names.project(row.project_id),
        platform_source=names.platform(row.server_session_id),
        type=type_shown(row.kind, row.type),
        title=row.title,
        subtitle=row.subtitle,
        facts=_json(row.facts or []),
        # What was written by hand, or is a summary, may have its text there only.
        narrative=row.narrative or (row.content if not (row.facts or row.title) or row.kind != "observation" else None),
        concepts=_json(row.concepts or []),
        files_read=_json(row.files_read or []),
        files_modified=_json(row.files_modified or []),
        prompt_number=row.prompt_number,
        discovery_tokens=row.discovery_tokens or 0,
        created_at=iso(row.created_at),
        created_at_epoch=epoch_ms(row.created_at),
        content_hash=hashlib.sha256(row.content.encode()).hexdigest()[:16],
        generated_by_model=model if isinstance(model, str) else None,
        metadata=_json(row.metadata) if row.metadata else None,
    )


def _summary_row(row: Observation, names: RowNames) -> SummaryRow:
    summary = row.summary or {}
    session = names.session(row.server_session_id)
    return SummaryRow(
        id=row.number,
        session_id=session,
        memory_session_id=session,
        platform_source=names.platform(row.server_session_id),
        request=summary.get("request") or row.title,
        investigated=summary.get("investigated"),
        learned=summary.get("learned"),
        completed=summary.get("completed"),
        next_steps=summary.get("next_steps"),
        notes=summary.get("notes"),
        project=names.project(row.project_id),
        created_at=iso(row.created_at),
        created_at_epoch=epoch_ms(row.created_at),
    )


def _prompt_row(row: SessionTurn, names: RowNames) -> PromptRow:
    return PromptRow(
        id=row.event_id or row.id,
        content_session_id=names.session(row.server_session_id) or "",
        project=names.project(row.project_id),
        platform_source=names.platform(row.server_session_id),
        prompt_number=row.prompt_number,
        prompt_text=row.prompt,
        created_at=iso(row.created_at),
        created_at_epoch=epoch_ms(row.created_at),
    )


def _json(value: object) -> str:
    return _ENCODER.encode(value).decode()
