"""Sessions of coding agents, and what their users asked for in them."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, LiteralString
from uuid import UUID

import msgspec

SessionArm = Literal["told", "untold"]


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """One conversation of an agent with its user, in one project. It can end, be resumed, and end again."""

    id: UUID
    project_id: UUID
    team_id: UUID
    external_session_id: str | None
    content_session_id: str | None
    agent_id: str | None
    agent_type: str | None
    actor_id: str | None
    """Whose key began it."""
    platform_source: str | None
    generation_status: str
    title: str | None
    """Set by a person; None until then."""
    metadata: dict[str, object]
    started_at: datetime
    ended_at: datetime | None
    last_generated_at: datetime | None
    created_at: datetime
    updated_at: datetime
    key_id: UUID
    """The project by whose name it was made: its identity and that of its events contain it, wherever the session is now."""
    from_hooks: bool
    """Whether hooks find it by its agent's id alone, whatever project their folder is."""
    arm: SessionArm | None
    """What it is compared as; None for one that is not compared. One that is `untold` is told only what it asks for."""


MAX_TITLE_CHARS = 200
MAX_LABEL_CHARS = 100
"""Of a first prompt that stands for a title."""

SESSION_COLUMNS: LiteralString = (
    "id, project_id, team_id, external_session_id, content_session_id, agent_id, agent_type, actor_id, platform_source,"
    " generation_status, title, metadata, started_at, ended_at, last_generated_at, created_at, updated_at,"
    " coalesce(origin_project_id, project_id) AS key_id, from_hooks, arm"
)


class SessionOfTeam(msgspec.Struct, frozen=True, kw_only=True):
    """The id of a session, and its team."""

    id: UUID
    team_id: UUID


class NewSession(msgspec.Struct, frozen=True, kw_only=True):
    """The fields by which a session is found, or with which it is made."""

    external_session_id: str | None = None
    content_session_id: str | None = None
    agent_id: str | None = None
    agent_type: str | None = None
    actor_id: str | None = None
    person_id: UUID | None = None
    """The person whose key begins it; None for nobody's."""
    platform_source: str | None = None
    metadata: dict[str, object] = {}
    started_at: datetime | None = None
    """When the session began, by its client: used for late deliveries. None for now."""
    from_hooks: bool = False
    """Whether a hook reports it, which knows the agent and the agent's id, and of the project only what its folder is now."""
    is_comparable: bool = False
    """Whether it may be compared: it begins now, and its agent takes what it is told."""


class SessionPlace(msgspec.Struct, frozen=True, kw_only=True):
    """A session and its project, and the project by whose name it was made (Session.key_id)."""

    id: UUID
    project_id: UUID
    key_id: UUID


class SessionLabel(msgspec.Struct, frozen=True, kw_only=True):
    """What a person knows a session by: its title, and the beginning of its first prompt, or else when it began."""

    id: UUID
    title: str | None
    first_prompt: str | None
    started_at: datetime


class SessionBrief(msgspec.Struct, frozen=True, kw_only=True):
    """A session with the id that its agent gave it."""

    id: UUID
    external_id: str | None
    platform_source: str | None


class PlatformOfProject(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of agent that has worked on a project."""

    project_id: UUID
    platform_source: str | None


class SessionCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How many sessions there are; those that have not ended are active."""

    sessions: int
    active: int


class SessionAndLastPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """A session found by its id at the agent, and facts about its newest prompt."""

    id: UUID
    project_id: UUID
    prompt_count: int
    is_private: bool
    """Whether all of the newest prompt was private."""
    is_repeated: bool
    """Whether the prompt in question repeats the newest one, sent moments ago."""


class OthersWork(msgspec.Struct, frozen=True, kw_only=True):
    """What was done in a session of somebody whose words the reader may not read, without a word of it."""

    id: UUID
    project_id: UUID
    actor_id: str | None
    started_at: datetime
    files: int
    """How many were changed."""
    checks: Literal["passed", "failed"] | None
    """How the last one ended."""
    commits: list[str]
    """The first seven digits of each."""
