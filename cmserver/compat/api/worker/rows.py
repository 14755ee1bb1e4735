"""What claude-mem's worker shows of an observation, a summary and a prompt; and what its clients narrow their questions to.

Numbers of ours are its ids. Lists within a row are JSON texts, as in the tables of the original.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, cast
from uuid import UUID

import msgspec
from msgspec import Meta
from starlette.requests import Request

from cmserver.access import repository as access
from cmserver.access.model import Principal
from cmserver.access.projects import Projects
from cmserver.base.errors import Invalid, NotFound
from cmserver.base.ids import epoch_ms, from_epoch_ms, from_iso
from cmserver.base.sql import Conn
from cmserver.compat.platform import platform
from cmserver.observations.model import Observation
from cmserver.observations.wire import type_shown
from cmserver.sessions import repository as sessions
from cmserver.sessions.model import ListedPrompt, SessionBrief

PAGE_MOST = 100
"""As many as a page has at most, however many are asked for: so it is in the original."""
PROJECTS_MOST = 1_000
PROMPT_MOST_CHARS = 16_000

Many = Annotated[int, Meta(ge=1, le=1_000_000)]
Offset = Annotated[int, Meta(ge=0, le=10_000)]
"""Whoever wants to go on behind it uses the cursors of /v1."""

_ENCODER = msgspec.json.Encoder()


class ObservationRow(msgspec.Struct, frozen=True, kw_only=True):
    """An observation, with `id` its number here. Of what the original keeps for its cloud and its curation, nothing is known."""

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
    """What a session came to, with `id` its number here."""

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
    """What a user asked for. Prompts have no number of their own here: `id` is that of the event, for GET /v1/events/{id}."""

    id: UUID
    content_session_id: str
    project: str
    platform_source: str
    prompt_number: int
    prompt_text: str
    created_at: str
    created_at_epoch: int


class Where(msgspec.Struct, frozen=True):
    """What a question is narrowed to: a project, or without one the whole team."""

    project_id: UUID | None


class Named(msgspec.Struct, frozen=True):
    """What the projects and sessions of some rows are called."""

    projects: dict[UUID, str]
    sessions: dict[UUID, SessionBrief]

    def project(self, project_id: UUID) -> str:
        return self.projects.get(project_id, "")

    def session(self, session_id: UUID | None) -> str | None:
        """By the agent's own id, as its client knows it."""
        one = self.sessions.get(session_id) if session_id else None
        return (one.named or str(one.id)) if one else None

    def platform(self, session_id: UUID | None) -> str:
        one = self.sessions.get(session_id) if session_id else None
        return platform(one.platform_source if one else None)


async def reach(request: Request, who: Principal, named: str | None) -> Where | None:
    """What the key may see of the project, or of all of its team without a name; None where it knows no such project.

    That is no error here: hooks ask about the project of the folder that they are in, before anything was ever recorded in it. A
    key that is bound to a project sees that one, whatever the folder is called.
    """
    if who.project_id is not None or not (named or "").strip():
        return Where(who.project_id)
    try:
        return Where(await cast("Projects", request.app.state.projects).within(who, named))
    except NotFound:
        return None


async def projects_in(conn: Conn, who: Principal, where: Where) -> dict[UUID, str]:
    """The projects that are meant, each with its canonical id: the newest PROJECTS_MOST of a team."""
    if where.project_id:
        return await access.names_of(conn, who.team_id, [where.project_id])
    found = await access.projects(conn, who.team_id, only=None, archived=False, before=None, before_id=None, limit=PROJECTS_MOST)
    return {one.id: one.canonical_id for one in found}


def platform_asked(request: Request, *given: str | None) -> str | None:
    """The kind of agent that a question is narrowed to, from the query or a header; None for all."""
    headers = (request.headers.get("x-platform-source"), request.headers.get("x-claude-mem-platform-source"))
    said = next((one for one in (*given, *headers) if one and one.strip()), None)
    return platform(said) if said else None


def moment(text: str | None, at: str) -> datetime | None:
    """A time in ISO 8601 (in UTC without a zone) or in epoch milliseconds; Invalid when it is neither."""
    if not text:
        return None
    try:
        return from_epoch_ms(int(text)) if text.isdecimal() and len(text) > 8 else from_iso(text)
    except (ValueError, OverflowError) as error:
        raise Invalid.at(at, "This is no time: send 2026-11-22, 2026-11-22T10:00:00Z or epoch milliseconds.") from error


def words(text: str | None) -> list[str]:
    """What stands between commas."""
    return [word.strip() for word in (text or "").split(",") if word.strip()]


async def named_of(conn: Conn, who: Principal, rows: Sequence[Observation | ListedPrompt]) -> Named:
    """What their projects and sessions are called."""
    projects = await access.names_of(conn, who.team_id, {one.project_id for one in rows})
    ids = {one.server_session_id for one in rows if one.server_session_id}
    found = await sessions.briefs(conn, who.team_id, ids) if ids else []
    return Named(projects, {one.id: one for one in found})


async def observation_rows(conn: Conn, who: Principal, observations: Sequence[Observation]) -> list[ObservationRow]:
    """In their order."""
    named = await named_of(conn, who, observations)
    return [_observation_row(one, named) for one in observations]


async def summary_rows(conn: Conn, who: Principal, observations: Sequence[Observation]) -> list[SummaryRow]:
    """In their order."""
    named = await named_of(conn, who, observations)
    return [_summary_row(one, named) for one in observations]


async def prompt_rows(conn: Conn, who: Principal, prompts: Sequence[ListedPrompt]) -> list[PromptRow]:
    """In their order."""
    named = await named_of(conn, who, prompts)
    return [_prompt_row(one, named) for one in prompts]


def _observation_row(one: Observation, named: Named) -> ObservationRow:
    model = one.metadata.get("model")
    session = named.session(one.server_session_id)
    return ObservationRow(
        id=one.number,
        memory_session_id=session,
        session_id=session,
        project=named.project(one.project_id),
        platform_source=named.platform(one.server_session_id),
        type=type_shown(one.kind, one.type),
        title=one.title,
        subtitle=one.subtitle,
        facts=_json(one.facts or []),
        # What was written by hand, or is a summary, may have its text there only.
        narrative=one.narrative or (one.content if not (one.facts or one.title) or one.kind != "observation" else None),
        concepts=_json(one.concepts or []),
        files_read=_json(one.files_read or []),
        files_modified=_json(one.files_modified or []),
        prompt_number=one.prompt_number,
        discovery_tokens=one.discovery_tokens or 0,
        created_at=_iso(one.created_at),
        created_at_epoch=epoch_ms(one.created_at),
        content_hash=hashlib.sha256(one.content.encode()).hexdigest()[:16],
        generated_by_model=model if isinstance(model, str) else None,
        metadata=_json(one.metadata) if one.metadata else None,
    )


def _summary_row(one: Observation, named: Named) -> SummaryRow:
    summary = one.summary or {}
    session = named.session(one.server_session_id)
    return SummaryRow(
        id=one.number,
        session_id=session,
        memory_session_id=session,
        platform_source=named.platform(one.server_session_id),
        request=summary.get("request") or one.title,
        investigated=summary.get("investigated"),
        learned=summary.get("learned"),
        completed=summary.get("completed"),
        next_steps=summary.get("next_steps"),
        notes=summary.get("notes"),
        project=named.project(one.project_id),
        created_at=_iso(one.created_at),
        created_at_epoch=epoch_ms(one.created_at),
    )


def _prompt_row(one: ListedPrompt, named: Named) -> PromptRow:
    return PromptRow(
        id=one.event_id,
        content_session_id=named.session(one.server_session_id) or "",
        project=named.project(one.project_id),
        platform_source=named.platform(one.server_session_id),
        prompt_number=one.prompt_number,
        prompt_text=one.text,
        created_at=_iso(one.created_at),
        created_at_epoch=epoch_ms(one.created_at),
    )


def _json(value: object) -> str:
    return _ENCODER.encode(value).decode()


def _iso(at: datetime) -> str:
    """As JavaScript writes it."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
