"""Claude Code: which hooks it gets, and where its settings are. Its timeouts are in seconds.

https://code.claude.com/docs/en/hooks
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from cmserver.hooks.attach.jsontext import Json, table
from cmserver.hooks.attach.model import Attachment, Hook

_TIMEOUT = 5
_END_TIMEOUT = 10
"""Without one of its own, all hooks of a session's end share 1.5 seconds."""

HOOKS = (
    Hook("SessionStart", _TIMEOUT),
    Hook("UserPromptSubmit", _TIMEOUT),
    Hook("PostToolUse", _TIMEOUT),  # and not PostToolBatch, which says the same again
    Hook("PostToolUseFailure", _TIMEOUT),
    Hook("SubagentStart", _TIMEOUT),
    Hook("SubagentStop", _TIMEOUT),
    Hook("PreCompact", _TIMEOUT),
    Hook("PostCompact", _TIMEOUT),
    Hook("Stop", _TIMEOUT),
    Hook("StopFailure", _TIMEOUT),
    Hook("SessionEnd", _END_TIMEOUT),
)
ON_FILE = Hook("PreToolUse", _TIMEOUT, matcher="Read")
"""Only when it is asked for: it costs every read of a file the start of a program."""


def settings(environ: Mapping[str, str], home: Path) -> Path:
    """The user's own settings, which hold for all projects."""
    folder = environ.get("CLAUDE_CONFIG_DIR")
    return (Path(folder) if folder else home / ".claude") / "settings.json"


def notes(found: Json, file: Path) -> list[str]:
    """What in the settings keeps hooks from working, or records beside us."""
    said: list[str] = []
    if found.get("disableAllHooks") is True:
        said.append(f'{file} says "disableAllHooks": true. Nothing is recorded until that is taken out.')
    if table(found.get("enabledPlugins")).get("claude-mem@thedotmack") is True:
        said.append("The plugin claude-mem is enabled as well: the agent will be told things twice. One of them is enough.")
    return said


def add_mcp(command: Sequence[str]) -> list[str]:
    """For all projects of the user."""
    return ["mcp", "add", "--scope", "user", "cmserver", "--", *command]


ATTACHMENT = Attachment(
    agent="claude-code",
    title="Claude Code",
    program="claude",
    add_mcp=add_mcp,
    hooks=HOOKS,
    settings=settings,
    notes=notes,
)
