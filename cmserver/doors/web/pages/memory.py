"""What several pages of the memory show alike: lines of observations, names of projects and sessions, options of selects."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Literal
from uuid import UUID

import msgspec

from cmserver.access import repository as access
from cmserver.access.model import Principal, Project
from cmserver.base import paging
from cmserver.base.sql import Conn
from cmserver.base.text import Text
from cmserver.models.providers.model import KINDS
from cmserver.observations import repository as observations
from cmserver.observations.model import MIN_INSTRUCTION_IMPORTANCE, Observation
from cmserver.observations.plain import one_line
from cmserver.observations.read import audit_read
from cmserver.observations.wire import type_shown
from cmserver.personal.keep import can_be_taken
from cmserver.sessions import repository as sessions
from cmserver.sessions.model import Session, SessionLabel
from cmserver.sessions.read import audit_prompt_read

TITLE_CHARS = 160
MAX_PROJECTS = 200
PAGE_SESSIONS = 50
NO_SESSION = "A session"
"""One that is gone, or not to be read."""

TYPES: tuple[str, ...] = tuple(KINDS)
BADGES: dict[str, str] = {name: kind.badge for name, kind in KINDS.items()}


class PastQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A moment to look back to, and what of it is shown: what was `true` then, or what was `known` to the server."""

    as_of: Text | None = None
    view: Literal["true", "known"] = "true"

    @property
    def true_at(self) -> str | None:
        """The moment of which is asked what was true, as the API takes it. A time without a zone is of UTC, as all of the pages."""
        return self._text if self.view == "true" else None

    @property
    def known_at(self) -> str | None:
        """The moment of which is asked what the server knew."""
        return self._text if self.view == "known" else None

    @property
    def minute(self) -> str:
        """The moment as a field for times has it; empty for none."""
        return f"{self._time:%Y-%m-%dT%H:%M}" if self._time else ""

    @property
    def _text(self) -> str | None:
        return self._time.isoformat() if self._time else self.as_of

    @property
    def _time(self) -> datetime | None:
        try:
            moment = datetime.fromisoformat((self.as_of or "").strip())
        except ValueError:
            return None
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)


class ObservationItem(msgspec.Struct, frozen=True, kw_only=True):
    """An observation in a list."""

    number: int
    title: str
    type: str
    project: str
    who: str
    """Whose key it came by; empty where nobody knows."""
    created_at: datetime
    read_tokens: int
    state: str | None = None
    is_shared: bool = False
    expires_at: datetime | None = None
    is_rule: bool = False
    """Whether it stands with what users laid down."""
    is_writable: bool = True
    """Whether the visitor may change it, with the scope for that."""
    may_take: bool = False
    """Whether the visitor may make it theirs alone, with the scope for that."""


class SessionItem(msgspec.Struct, frozen=True, kw_only=True):
    """A session in a list."""

    session: Session
    label: str
    project: str
    who: str
    """Whose key began it; empty where nobody knows."""

    @property
    def seconds(self) -> float | None:
        """How long it took; None while it runs."""
        return (self.session.ended_at - self.session.started_at).total_seconds() if self.session.ended_at else None


def title_of(observation: Observation) -> str:
    """Its title, or the beginning of its text, on one line."""
    return one_line(observation.title or observation.narrative or observation.content, TITLE_CHARS)


def is_rule(observation: Observation) -> bool:
    """Whether it stands with what users laid down."""
    return observation.type == "decision" and observation.importance > MIN_INSTRUCTION_IMPORTANCE


def observation_line(principal: Principal, observation: Observation, projects: dict[UUID, str]) -> ObservationItem:
    return ObservationItem(
        number=observation.number,
        title=title_of(observation),
        type=type_shown(observation.kind, observation.type, observation.origin, observation.caller_type),
        project=projects.get(observation.project_id, "shared by another project"),
        who=principal.name_of(observation.actor_id) or "",
        created_at=observation.created_at,
        read_tokens=observation.cost,
        state=observation.state,
        is_shared=observation.scope == "team",
        expires_at=observation.expires_at,
        is_rule=is_rule(observation),
        is_writable=principal.sees(observation.project_id),
        may_take=principal.user_id is not None and can_be_taken(observation),
    )


async def list_projects(conn: Conn, principal: Principal, *, archived: bool = False) -> list[Project]:
    """The projects that the visitor may choose from, newest first, each by the name that tells it from the others."""
    rows = await access.projects(
        conn, principal.team_id, only=principal.project_id, archived=archived, before=None, before_id=None, limit=MAX_PROJECTS
    )
    return await named_apart(conn, rows)


async def named_apart(conn: Conn, projects: Sequence[Project]) -> list[Project]:
    """The projects of a team, each by the name that tells it from all others of the team."""
    if not projects:
        return []
    names = await access.short_names(conn, projects[0].team_id, {project.id for project in projects})
    return [msgspec.structs.replace(project, name=names[project.id]) for project in projects]


async def names_of_projects(conn: Conn, principal: Principal, ids: Iterable[UUID]) -> dict[UUID, str]:
    """Short names of those of the projects that the visitor may see."""
    seen = {project_id for project_id in ids if principal.sees(project_id)}
    return await access.short_names(conn, principal.team_id, seen) if seen else {}


async def list_sessions(
    conn: Conn, principal: Principal, *, project_id: UUID | None, running: bool, platform: str | None = None, cursor: str | None
) -> tuple[list[SessionItem], str | None]:
    """A page of sessions, newest first, and the cursor of the next one. Audits the prompts that stand for titles."""
    before, before_id = paging.place(cursor)
    rows = await sessions.newest(
        conn,
        principal.team_id,
        project_id=project_id,
        active=True if running else None,
        platform_source=platform,
        before=before,
        before_id=before_id,
        limit=PAGE_SESSIONS + 1,
    )
    page, next_cursor = paging.page(rows, PAGE_SESSIONS, lambda session: (session.started_at, session.id))
    labels = await sessions.labels(conn, principal.team_id, [session.id for session in page])
    await audit_prompt_read(conn, principal, project_id, sum(bool(one.title or one.first_prompt) for one in labels.values()))
    texts = await _label_texts(conn, principal.team_id, labels)
    names = await names_of_projects(conn, principal, {session.project_id for session in page})
    items = [
        SessionItem(
            session=row,
            label=texts.get(row.id, NO_SESSION),
            project=names.get(row.project_id, ""),
            who=principal.name_of(row.actor_id) or "",
        )
        for row in page
    ]
    return items, next_cursor


async def session_labels(conn: Conn, team_id: UUID, ids: Sequence[UUID]) -> dict[UUID, str]:
    """What a person knows the sessions by."""
    labels = await sessions.labels(conn, team_id, ids) if ids else {}
    return dict.fromkeys(ids, NO_SESSION) | await _label_texts(conn, team_id, labels)


async def _label_texts(conn: Conn, team_id: UUID, labels: dict[UUID, SessionLabel]) -> dict[UUID, str]:
    """The title, or the beginning of the first prompt; of a session with neither when it began, and how many files it edited."""
    silent = [label.id for label in labels.values() if not (label.title or label.first_prompt)]
    edited = {row.session_id: row.files for row in await observations.edited_files(conn, team_id, silent)} if silent else {}
    return {
        label.id: one_line(text, TITLE_CHARS) if text else _describe_silent(label.started_at, edited.get(label.id, 0))
        for label in labels.values()
        for text in [label.title or label.first_prompt]
    }


def _describe_silent(started_at: datetime, files: int) -> str:
    """`No prompt; started 14:02 UTC, 3 files edited`."""
    moment = started_at.astimezone(UTC)
    day = "" if moment.date() == datetime.now(UTC).date() else f"{moment:%Y-%m-%d} "
    edited = f", {files:,} file{'' if files == 1 else 's'} edited" if files else ""
    return f"No prompt; started {day}{moment:%H:%M} UTC{edited}"


async def names_of_work(
    conn: Conn, principal: Principal, project_ids: Iterable[UUID], session_ids: Iterable[UUID | None], *, of_project: UUID | None
) -> tuple[dict[UUID, str], dict[UUID, str]]:
    """Names of projects and sessions with jobs that the visitor may read; without `of_project` none of isolated ones."""
    if not principal.may("observations:read"):
        return {}, {}
    known = {session_id for session_id in session_ids if session_id}
    labels = await sessions.labels(conn, principal.team_id, known, unless_isolated=of_project is None)
    names = await access.short_names(conn, principal.team_id, set(project_ids))
    return names, await _label_texts(conn, principal.team_id, labels)


async def lines_of_numbers(conn: Conn, principal: Principal, numbers: Iterable[int]) -> dict[int, Observation]:
    """Those of the observations that are shown and that the visitor may see, by number. Audited as the lines of a list."""
    rows = await observations.by_numbers(conn, principal.team_id, set(numbers), project_id=principal.project_id)
    await audit_read(conn, principal, principal.project_id, "list", rows)
    return {row.number: row for row in rows}
