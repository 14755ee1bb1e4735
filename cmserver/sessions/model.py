"""Sessions of coding agents, and what their users asked for in them."""

from __future__ import annotations

from datetime import datetime
from typing import Literal
from uuid import UUID

import msgspec

Started = Literal["new", "resumed", "known"]
"""What a start did: made the session, opened it again after its end, or found it open."""


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """One conversation of an agent with its user, in one project.

    Found or made by its id at the agent; ended, resumed, ended again.
    """

    id: UUID
    project_id: UUID
    team_id: UUID
    external_session_id: str | None
    content_session_id: str | None
    agent_id: str | None
    agent_type: str | None
    platform_source: str | None
    generation_status: str
    metadata: dict[str, object]
    started_at: datetime
    ended_at: datetime | None
    last_generated_at: datetime | None
    created_at: datetime
    updated_at: datetime


class SessionOfTeam(msgspec.Struct, frozen=True, kw_only=True):
    """Which session, and whose."""

    id: UUID
    team_id: UUID


class NewSession(msgspec.Struct, frozen=True, kw_only=True):
    """What a session is found or made by."""

    external_session_id: str | None = None
    content_session_id: str | None = None
    agent_id: str | None = None
    agent_type: str | None = None
    platform_source: str | None = None
    metadata: dict[str, object] = {}


class SessionPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """A user's prompt; numbered from 1 in its session."""

    prompt_number: int
    text: str
    created_at: datetime


class SessionPlace(msgspec.Struct, frozen=True, kw_only=True):
    """A session and the project it is of."""

    id: UUID
    project_id: UUID


class SessionBrief(msgspec.Struct, frozen=True, kw_only=True):
    """A session by the name that its agent gave it."""

    id: UUID
    named: str | None
    platform_source: str | None


class PlatformOfProject(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of agent that has worked on a project."""

    project_id: UUID
    platform_source: str | None


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """How many sessions there are; those that have not ended are active."""

    sessions: int
    active: int


class ListedPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """A user's prompt with the session and the event that it came in."""

    event_id: UUID
    project_id: UUID
    server_session_id: UUID
    prompt_number: int
    text: str
    created_at: datetime


class FoundPrompt(ListedPrompt, frozen=True, kw_only=True):
    """One that a search found; its own id, which leads to it."""

    id: UUID


class Conversation(msgspec.Struct, frozen=True, kw_only=True):
    """A session that was found by what its agent calls it, and its newest prompt."""

    id: UUID
    project_id: UUID
    prompts: int
    """How many prompts it has had."""
    is_private: bool
    """Whether all of the newest prompt was private."""
    is_repeated: bool
    """Whether a prompt that is just asked about is the newest one, a moment ago."""
