"""Enforces the skip rules `path:GLOB` and `command:BEGINNING`: events they match are never shown to a model.

Path rules apply to tools that name the files they touch (editors, readers, searches in a folder, patches), command rules to shell
commands. Which files a shell command reads or writes is not certain, so path rules do not apply to it.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import cast

from cmserver.access.model import SKIP_RULE_PREFIXES
from cmserver.tooluse.model import ToolUse, WorkingFolder
from cmserver.tooluse.shell import simple_commands

_PATH, _COMMAND = SKIP_RULE_PREFIXES
_END = r"(?=/|\Z)"


def find_skip_rule(rules: Sequence[str], use: ToolUse, folder: WorkingFolder) -> str | None:
    """The rule that excludes the tool use, or None.

    Path rules exclude an event that touches files when every file matches one; command rules when every command of the line begins
    with the words of one (`cd` counts with the command it is chained to). When several rules are needed, the first is returned.
    """
    globs = [rule for rule in rules if rule.startswith(_PATH)]
    prefixes = [rule for rule in rules if rule.startswith(_COMMAND)]
    return _match_paths(globs, use, folder) or _match_commands(prefixes, use)


def _match_paths(globs: list[str], use: ToolUse, folder: WorkingFolder) -> str | None:
    """The first `path:` rule, when every file of the event matches one; else None."""
    if not globs:
        return None
    patterns = [(rule, _compile_glob(rule.removeprefix(_PATH).strip())) for rule in globs]
    paths = [_write_from_root(folder, path) for path in use.paths]
    matched = [next((rule for rule, pattern in patterns if pattern.fullmatch(path)), None) for path in paths]
    return matched[0] if all(matched) and matched else None


def _match_commands(prefixes: list[str], use: ToolUse) -> str | None:
    """The first `command:` rule, when every command of the event begins with the words of one; else None."""
    if not prefixes:
        return None
    rule_words = [(rule, words) for rule in prefixes for words, _ in simple_commands(rule.removeprefix(_COMMAND)) if words]
    commands = simple_commands(use.command)
    if len(commands) > 1:
        commands = [command for command in commands if command[0][0] != "cd"]
    matched = [
        next((rule for rule, words in rule_words if words in (written[: len(words)], unwrapped[: len(words)])), None)
        for written, unwrapped in commands
    ]
    return matched[0] if all(matched) and matched else None


def _write_from_root(folder: WorkingFolder, path: str) -> str:
    """The path with a leading slash, which stands for the root for files below it."""
    shown = folder.relative(path.strip())
    return shown if shown.startswith("/") else f"/{'' if shown == '.' else shown}"


@lru_cache(maxsize=500)
def _compile_glob(pattern: str) -> re.Pattern[str]:
    """The pattern of a glob, which means what it means in a .gitignore.

    A name without a slash matches at any depth, anything else from the root; a folder matches its content.

    Not pathspec nor the standard library: their patterns for `a*a*a*a*b` take exponential time, so that one team's rule could
    block every worker. (`glob.translate` came with Python 3.13, and PurePath.match has no `**`.)
    """
    pattern = pattern.removesuffix("/")
    is_name = "/" not in pattern
    text = ""
    for index, block in enumerate(re.split(r"(?:^|/)\*\*(?=/|$)", pattern.removeprefix("./").removeprefix("/"))):
        pieces = [_compile_piece(piece) for piece in block.split("/") if piece]
        fixed = "".join(f"/{piece}" for piece in pieces) + _END if pieces else ""
        # Everything below a match belongs to it, so the first position where a block fits is final: no backtracking.
        text += f"(?>(?:/[^/]+)*?{fixed})" if (index or is_name) and fixed else fixed
    return re.compile(f"{text}/.+" if pattern.endswith("/**") else f"{text}(?:/.*)?", re.DOTALL)


def _compile_piece(piece: str) -> str:
    """The pattern of one name: `*`, `?`, and `[ab]` or `[!ab]` as in a shell."""
    *first, last = (_compile_fixed(part) for part in re.split(r"\*+", piece))
    if not first:
        return last
    return first[0] + "".join(f"(?>[^/]*?{part})" for part in first[1:]) + f"[^/]*{last}"


def _compile_fixed(part: str) -> str:
    chars = cast("list[str]", re.findall(r"\[!?[^\]]+\]|.", part, re.DOTALL))
    return "".join(re.escape(char) if len(char) == 1 and char != "?" else f"(?!/){fnmatch.translate(char)[4:-3]}" for char in chars)
