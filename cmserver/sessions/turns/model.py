"""Turns: what a user asked for, and what the agent answered."""

from __future__ import annotations

import re
from datetime import datetime
from typing import LiteralString
from uuid import UUID

import msgspec

from cmserver.base.ids import named_id

MAX_SIDE_CHARS = 20_000
"""Of a prompt, and of a reply: of a longer one the beginning and the end are kept."""
MAX_LINE_CHARS = 600
"""Of a line that somebody writes."""
_TAIL_CHARS = 8_000
_CUT = "\n[…]\n"
_NUMBER = re.compile(r"#?([0-9]{1,18})")


def cut_side(text: str) -> str:
    """The text of a prompt or a reply as it is stored."""
    if len(text) <= MAX_SIDE_CHARS:
        return text
    return text[: MAX_SIDE_CHARS - _TAIL_CHARS - len(_CUT)] + _CUT + text[-_TAIL_CHARS:]


def join_sides(prompt: str, reply: str | None) -> str:
    """What was said on both sides, in a line."""
    return " → ".join(side for side in (prompt, reply) if side)


def parse_turn_name(name: str) -> int | UUID | None:
    """The number in `12` or `#12`, or the id; None where it is neither."""
    match = _NUMBER.fullmatch(name)
    return int(match[1]) if match else named_id(name)


class SessionPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """A user's prompt; numbered from 1 in its session."""

    session_id: UUID
    prompt_number: int
    text: str
    created_at: datetime


class SessionReply(msgspec.Struct, frozen=True, kw_only=True):
    """What the agent said last in a turn of the session."""

    session_id: UUID
    reply: str


class TurnPlace(msgspec.Struct, frozen=True, kw_only=True):
    """The session of the turn with that number."""

    number: int
    session_id: UUID


class NewTurn(msgspec.Struct, frozen=True, kw_only=True):
    """A turn at its prompt. `number` is the team's next one."""

    id: UUID
    number: int
    project_id: UUID
    session_id: UUID
    event_id: UUID | None
    agent_id: str | None = None
    """The sub-agent whose turn it is; None for the session's own."""
    prompt: str
    reply: str | None = None
    actor_id: str | None
    occurred_at: datetime | None = None
    """When the user asked, by his client; None for now."""
    received_at: datetime | None = None
    """When his client's event was stored; None for now."""


class SessionTurn(msgspec.Struct, frozen=True, kw_only=True):
    """One turn of a session. Its number means nothing else in the team; `prompt_number` counts the user's prompts in its session.

    A sub-agent's turn has its `agent_id` and no `prompt_number`; its prompt is empty where only its last message is known.
    `event_id` is the event that brought the prompt, None where somebody wrote the turn by hand. `checks` are commands that check
    something, each with how it ended; `ended_at` is None while the agent is at work.
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
    created_at: datetime
    ended_at: datetime | None
    own_line: str | None = None
    """What a person says its line shall be: empty for none, None for the one that is made of it."""
    borrowed: list[int] = []
    """Hashes of the reply's sentences that are a tool's words, see `find_borrowed`."""

    @property
    def text(self) -> str:
        """What was said on both sides."""
        return "\n\n".join(side for side in (self.prompt, self.reply) if side)

    @property
    def line(self) -> str:
        """What was said on both sides, for a list."""
        return join_sides(self.prompt, self.reply)

    @property
    def cost(self) -> int:
        """The tokens that reading both sides takes; see estimate_tokens."""
        return (len(self.text) + 3) // 4


TURN_COLUMNS: LiteralString = (
    "id, number, agent_event_id AS event_id, project_id, server_session_id, prompt_number, prompt, reply, files, checks, commits,"
    " actor_id, agent_id, created_at, ended_at, own_line, borrowed"
)
