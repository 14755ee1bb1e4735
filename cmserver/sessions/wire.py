"""Sessions on the wire."""

from __future__ import annotations

from typing import Annotated, Literal
from uuid import UUID

import msgspec
from msgspec import Meta

from cmserver.base.columns import Columns
from cmserver.base.paging import Limit
from cmserver.base.text import Label, Text
from cmserver.sessions.model import MAX_TITLE_CHARS, SessionArm


class SessionsQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Without `project`, a key of the whole team sees all its projects. `active` is true for sessions that have not ended, and
    false for the others; `platform` is the agent's program.
    """

    project: Text | None = None
    active: bool | None = None
    platform: Label | None = None
    limit: Limit = 50
    cursor: str | None = None


class RenameIn(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`null` removes the title."""

    id: str
    title: Annotated[Text, Meta(min_length=1, max_length=MAX_TITLE_CHARS)] | None


class SessionOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A session. `actorId` is whose key began it, or null. `arm` is what it is compared as, `told` or `untold`, or null for one
    that is not compared. Times in epoch milliseconds.
    """

    id: UUID
    project_id: UUID
    team_id: UUID
    external_session_id: str | None
    content_session_id: str | None
    agent_id: str | None
    agent_type: str | None
    actor_id: str | None
    platform_source: str | None
    generation_status: str
    title: str | None
    arm: SessionArm | None
    metadata: dict[str, object]
    started_at_epoch: int
    ended_at_epoch: int | None
    last_generated_at_epoch: int | None
    created_at_epoch: int
    updated_at_epoch: int


SESSION_LINES = Columns(
    SessionOut,
    "id, title, agent's id=external_session_id, project=project_id, platform=platform_source, agent, status=generation_status, "
    "arm, started, ended, last observations=last_generated",
    agent=lambda session: " ".join(filter(None, [session.agent_type, session.agent_id])),
)


class ListedSessionOut(SessionOut, rename="camel", frozen=True, kw_only=True):
    """A session in a list. `project` is the canonical id of its project; `firstPrompt` is the beginning of its first prompt, or
    null.
    """

    project: str | None = None
    first_prompt: str | None = None


class SessionsOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Newest first."""

    sessions: list[ListedSessionOut]
    next_cursor: str | None


class OneSessionOut(msgspec.Struct, frozen=True, kw_only=True):
    """One session."""

    session: SessionOut


class OthersWorkQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Without `project`, a key of the whole team sees all its projects."""

    project: Text | None = None
    limit: Limit = 50
    cursor: str | None = None


class OthersWorkOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """What was done in a session of another member whose words the caller may not read. `id` is the session's; `actorId` is whose
    key began it; `files` is how many files were changed; `checks` is how the last check ended, null without one; `commits` are the
    first seven digits of each.
    """

    id: UUID
    project_id: UUID
    actor_id: str | None
    files: int
    checks: Literal["passed", "failed"] | None
    commits: list[str]
    started_at_epoch: int


class OthersWorksOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Newest first; empty where the team lets the caller read all words."""

    work: list[OthersWorkOut]
    next_cursor: str | None
