"""What attaching an agent talks about: which hooks it gets, and what is remembered of having attached it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

Agent = Literal["claude-code", "codex", "gemini", "claude-mem"]
AGENTS: tuple[Agent, ...] = ("claude-code", "codex", "gemini", "claude-mem")

SCOPES = ("events:write", "sessions:write", "observations:read")
"""The least that hooks need: to send, to open and close sessions, to be told what is known."""


class Hook(msgspec.Struct, frozen=True):
    """One event of an agent that we listen to. `timeout` is in the agent's own unit."""

    event: str
    timeout: int
    matcher: str | None = None


class Attachment(msgspec.Struct, frozen=True, kw_only=True):
    """An agent whose hooks stand in a file of JSON: which file, which hooks, and what its user should know."""

    agent: Agent
    title: str
    """What people call it."""
    program: str
    add_mcp: Callable[[Sequence[str]], list[str]]
    """What its program is told so that it starts that command as the MCP server `cmserver`, for this user."""
    hooks: tuple[Hook, ...]
    settings: Callable[[Mapping[str, str], Path], Path]
    """The user's own settings file, from the environment and the home folder."""
    notes: Callable[[dict[str, object], Path], list[str]]
    """Sentences about what stands in the settings, or beside them, and keeps hooks from working."""
    named: bool = False
    """Whether a hook has a name in the settings."""


class Connection(msgspec.Struct, frozen=True, kw_only=True):
    """That an agent is attached, kept in its client folder. Made by `cmserver connect`, removed by `cmserver disconnect`."""

    agent: Agent
    url: str
    settings: list[str]
    """The settings files that have our hooks."""
    key_id: str | None = None
    """The key that its calls carry; None where they carry none, or one whose id its text does not tell."""
    key_is_ours: bool = False
    """Whether `cmserver connect` made the key, and so `cmserver disconnect` revokes it."""
    on_file: bool = False
    plugin: str | None = None
    """The folder of the marketplace, where the hooks are a plugin's."""
    before: dict[str, str | None] = {}
    """What stood in claude-mem's settings where now our values stand; None is nothing."""
    written: dict[str, str] = {}
    """Our values there."""
