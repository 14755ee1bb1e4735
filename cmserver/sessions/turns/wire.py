"""Turns on the wire."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

import msgspec
from msgspec import Meta

from cmserver.base.paging import Limit
from cmserver.base.structs import reshape
from cmserver.base.text import Key, Text
from cmserver.sessions.turns.model import MAX_LINE_CHARS, SessionTurn


class TurnsQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Without `project`, a key of the whole team sees all its projects. `session` is our id of one, or its agent's."""

    project: Text | None = None
    session: Key | None = None
    limit: Limit = 50
    cursor: str | None = None


class TurnOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A turn: what the user asked and what the agent answered, null until it has.

    `ownLine` is what a person says its line shall be: empty for none, null for the one that is made of it.
    `prompt` is what the user asked. `promptNumber` is counted in the session from 1, and null for a sub-agent's turn, which has an
    `agentId`. `eventId` is the event that brought the prompt, or null for a turn written by hand. `files` are the paths that were
    changed in it; `checks` are the commands in it that check something, each with how it ended. `actorId` is whose key it was, or
    null; `endedAtEpoch` is when it ended, or null while the agent is at work.
    """

    id: UUID
    number: int
    event_id: UUID | None
    project_id: UUID
    server_session_id: UUID
    prompt_number: int | None
    prompt: str
    reply: str | None
    files: list[str]
    checks: list[str]
    commits: list[str]
    actor_id: str | None
    agent_id: str | None
    own_line: str | None
    read_tokens: int
    created_at_epoch: int
    ended_at_epoch: int | None


class LineIn(msgspec.Struct, rename="camel", frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`ownLine` is what the line of a turn shall be, for all sessions: empty for none, null for the one that is made of it."""

    id: str
    own_line: Annotated[str, Meta(max_length=MAX_LINE_CHARS)] | None


class OneTurnOut(msgspec.Struct, frozen=True, kw_only=True):
    """One turn."""

    turn: TurnOut


class TurnsOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Newest first."""

    turns: list[TurnOut]
    next_cursor: str | None


def turn_out(turn: SessionTurn) -> TurnOut:
    """A turn on the wire."""
    return reshape(turn, TurnOut, read_tokens=turn.cost)
