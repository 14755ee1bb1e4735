"""Finds the branch that a session works on, where its client does not tell it: by what git prints."""

from __future__ import annotations

import re

from cmserver.reading.model import Branch
from cmserver.tooluse.model import ToolKind, ToolUse
from cmserver.tooluse.text import printed_text

_NAME = r"([\w./+@#-]{1,200})"
_SWITCHED = re.compile(rf"^(?:Output: )?Switched to branch '{_NAME}'", re.MULTILINE)
_MADE = re.compile(rf"^(?:Output: )?Switched to a new branch '{_NAME}'", re.MULTILINE)
_ON = re.compile(
    rf"^(?:Output: )?(?:Already on '{_NAME}'|On branch {_NAME}$|\[{_NAME} (?:\(root-commit\) )?[0-9a-f]{{6,40}}\])", re.MULTILINE
)
_SHOWN = re.compile(rf"\s*{_NAME}\s*")
_MAX_OUTPUT = 20_000


def find_branch(use: ToolUse, before: Branch) -> Branch:
    """The branch after a call: as git says it of a command that is about git, else that of before."""
    if before.is_told or use.kind is not ToolKind.SHELL or "git " not in use.command:
        return before
    output = printed_text(use.output)[:_MAX_OUTPUT]
    if made := _MADE.search(output):
        return Branch(made[1], before.is_elsewhere)
    if switched := _SWITCHED.search(output):
        return Branch(switched[1], is_elsewhere=not before.name or before.is_elsewhere)
    if "branch --show-current" in use.command or "rev-parse --abbrev-ref HEAD" in use.command:
        shown = _SHOWN.fullmatch(output)
        return Branch(shown[1], before.is_elsewhere) if shown else before
    on = _ON.search(output)
    return Branch(next(filter(None, on.groups())), before.is_elsewhere) if on else before
