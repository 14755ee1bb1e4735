"""Gemini CLI: which hooks it gets, and where its settings are. Its timeouts are in milliseconds.

https://geminicli.com/docs/hooks/reference
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from cmserver.hooks.attach.jsontext import Json, items, table
from cmserver.hooks.attach.model import Attachment, Hook

_TIMEOUT_MS = 5_000
_END_TIMEOUT_MS = 10_000

HOOKS = (
    Hook("SessionStart", _TIMEOUT_MS),
    Hook("BeforeAgent", _TIMEOUT_MS),
    Hook("AfterTool", _TIMEOUT_MS),
    Hook("AfterAgent", _TIMEOUT_MS),
    Hook("PreCompress", _TIMEOUT_MS),
    Hook("SessionEnd", _END_TIMEOUT_MS),
)


def settings(environ: Mapping[str, str], home: Path) -> Path:
    """The user's own settings, which hold for all projects."""
    folder = environ.get("GEMINI_CLI_HOME")
    return (Path(folder) if folder else home) / ".gemini" / "settings.json"


def notes(found: Json, file: Path) -> list[str]:
    """What in the settings keeps hooks from working."""
    said: list[str] = []
    config = table(found.get("hooksConfig"))
    if config.get("enabled") is False:
        said.append(f'{file} says "hooksConfig": {{"enabled": false}}. Nothing is recorded until that is taken out.')
    if "cmserver" in items(config.get("disabled")):
        said.append(f"{file} has cmserver among the disabled hooks. Nothing is recorded until that is taken out.")
    return said


def add_mcp(command: Sequence[str]) -> list[str]:
    """For all projects of the user."""
    return ["mcp", "add", "--scope", "user", "cmserver", command[0], "--", *command[1:]]


ATTACHMENT = Attachment(
    agent="gemini",
    title="Gemini CLI",
    program="gemini",
    add_mcp=add_mcp,
    hooks=HOOKS,
    settings=settings,
    notes=notes,
    named=True,
)
