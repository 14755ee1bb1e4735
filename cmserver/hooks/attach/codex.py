"""Codex: which hooks it gets, and where they stand. Its timeouts are in seconds, and it allows a session's end no more than three.

Its file of hooks takes no members but `hooks` and `description`, so all of ours stands below `hooks`.
https://developers.openai.com/codex/hooks
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from cmserver.hooks.attach.jsontext import Json, table
from cmserver.hooks.attach.model import Attachment, Hook

_TIMEOUT = 5
_END_TIMEOUT = 3

HOOKS = (
    Hook("SessionStart", _TIMEOUT),
    Hook("UserPromptSubmit", _TIMEOUT),
    Hook("PostToolUse", _TIMEOUT),
    Hook("SubagentStart", _TIMEOUT),
    Hook("SubagentStop", _TIMEOUT),
    Hook("PreCompact", _TIMEOUT),
    Hook("PostCompact", _TIMEOUT),
    Hook("Stop", _TIMEOUT),
    Hook("StopFailure", _TIMEOUT),
    Hook("SessionEnd", _END_TIMEOUT),
)


def settings(environ: Mapping[str, str], home: Path) -> Path:
    """The user's own hooks, which hold for all projects."""
    folder = environ.get("CODEX_HOME")
    return (Path(folder) if folder else home / ".codex") / "hooks.json"


def notes(_found: Json, file: Path) -> list[str]:
    """Codex runs no hook that its user has not looked at; and what in config.toml keeps all of them from running."""
    said = [
        "Codex runs only hooks that you have reviewed and trusted: type /hooks in Codex now, and again whenever they change.",
        "Versions of Codex before hooks were on by default need codex_hooks = true below [features] in config.toml.",
    ]
    config = file.with_name("config.toml")
    try:
        config_table = cast("Json", tomllib.loads(config.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return said
    features = table(config_table.get("features"))
    if features.get("hooks") is False or features.get("codex_hooks") is False:
        said.append(f"{config} turns hooks off below [features]. Nothing is recorded until that is taken out.")
    if table(config_table.get("hooks")).keys() - {"state"}:
        said.append(f"There are hooks in {config}, too. Codex runs both, and says at each start that one place would be better.")
    return said


def add_mcp(command: Sequence[str]) -> list[str]:
    """For all projects of the user."""
    return ["mcp", "add", "cmserver", "--", *command]


ATTACHMENT = Attachment(
    agent="codex",
    title="Codex",
    program="codex",
    add_mcp=add_mcp,
    hooks=HOOKS,
    settings=settings,
    notes=notes,
)
