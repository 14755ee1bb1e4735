"""The skip rules that are law: what they forbid is never shown to a model. The others are sentences, which a model is told.

`path:GLOB` is about tools that say which files they touch (editors, readers, searches in a folder, patches), `command:BEGINNING`
about shell commands. What a shell command reads or writes is not known for certain, so no path rule decides on it.
"""

from __future__ import annotations

import fnmatch
import posixpath
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import cast

from cmserver.access.model import LAWS
from cmserver.providers.model import PromptEvent
from cmserver.providers.rules.commands import simple_commands

_PATH, _COMMAND = LAWS
_FIELDS = ("file_path", "absolute_path", "notebook_path", "filePath", "path", "dir_path", "dir")
_LISTS = ("paths", "file_paths", "files")
_PATCHED = re.compile(r"^\*\*\* (?:(?:Add|Update|Delete) File|Move to): (.+)$", re.MULTILINE)
_END = r"(?=/|\Z)"
_ABSOLUTE = re.compile(r"/|[A-Za-z]:/")


def skipped(rules: Sequence[str], event: PromptEvent, root: str | None) -> str | None:
    """The rule that forbids to record the event; None when none does.

    An event falls under path rules when it touches files and each of them matches; under command rules when each command of its
    line begins with the words of one (`cd` goes with whatever it is chained to). Several may do it together: the first is named.
    """
    globs = [rule for rule in rules if rule.startswith(_PATH)]
    beginnings = [rule for rule in rules if rule.startswith(_COMMAND)]
    return _by_paths(globs, event, root) or _by_commands(beginnings, event)


def _by_paths(globs: list[str], event: PromptEvent, root: str | None) -> str | None:
    if not globs:
        return None
    patterns = [(rule, _glob(rule.removeprefix(_PATH).strip())) for rule in globs]
    named: list[str] = []
    for path in _files(event, root):
        rule = next((rule for rule, pattern in patterns if pattern.fullmatch(path)), None)
        if rule is None:
            return None
        named.append(rule)
    return named[0] if named else None


def _by_commands(beginnings: list[str], event: PromptEvent) -> str | None:
    if not beginnings:
        return None
    ways = [(rule, words) for rule in beginnings for words, _ in simple_commands(rule.removeprefix(_COMMAND)) if words]
    commands = simple_commands(_line(event))
    if len(commands) > 1:
        commands = [one for one in commands if one[0][0] != "cd"]
    named: list[str] = []
    for written, unwrapped in commands:
        rule = next((rule for rule, words in ways if words in (written[: len(words)], unwrapped[: len(words)])), None)
        if rule is None:
            return None
        named.append(rule)
    return named[0] if named else None


def _line(event: PromptEvent) -> str:
    """The shell command of the event, or nothing."""
    given = _fields(event.tool_input)
    command = given.get("command", given.get("cmd"))
    if isinstance(command, list):  # Codex: ["bash", "-lc", "npm ci"]
        words = [word for word in cast("list[object]", command) if isinstance(word, str)]
        command = words[2] if len(words) == 3 and words[1] in {"-c", "-lc"} else " ".join(words)
    return command if isinstance(command, str) and "*** Begin Patch" not in command else ""


def _files(event: PromptEvent, root: str | None) -> list[str]:
    """The files and folders that the event says it touches: relative to the root, those outside of it from the file system's."""
    given = _fields(event.tool_input)
    if _line(event):
        return []
    patches = [text for text in (event.tool_input, *given.values()) if isinstance(text, str) and "*** Begin Patch" in text]
    listed = [one for name in _LISTS for one in _texts(given.get(name))]
    found = [*(given.get(name) for name in _FIELDS), *listed, *(path for patch in patches for path in _PATCHED.findall(patch))]
    return [_as_seen_from(root, path) for path in found if isinstance(path, str) and path.strip()]


def _fields(value: object) -> dict[str, object]:
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}


def _texts(value: object) -> list[str]:
    return [one for one in cast("list[object]", value) if isinstance(one, str)] if isinstance(value, list) else []


def _as_seen_from(root: str | None, path: str) -> str:
    """Always with a slash at the front: of the root's own files it stands for the root. `..` is resolved."""
    path = path.strip().replace("\\", "/")
    base = (root or "").replace("\\", "/").rstrip("/")
    whole = posixpath.normpath(path if _ABSOLUTE.match(path) else f"{base}/{path}")
    if base and (whole == base or whole.startswith(f"{base}/")):
        return whole[len(base) :] or "/"
    return whole if whole.startswith("/") else f"/{whole}"


@lru_cache(maxsize=500)
def _glob(pattern: str) -> re.Pattern[str]:
    """As in a .gitignore: a name without a slash is at any depth, anything else begins at the root; a folder is all that is in it.

    Ours, because what pathspec and the standard library make of `a*a*a*a*b` tries for ever: one team's rule would hold up
    everybody's worker. (And `glob.translate` came with Python 3.13, and PurePath.match has no `**`.)
    """
    pattern = pattern.removesuffix("/")
    name = "/" not in pattern
    text = ""
    for place, block in enumerate(re.split(r"(?:^|/)\*\*(?=/|$)", pattern.removeprefix("./").removeprefix("/"))):
        pieces = [_piece(piece) for piece in block.split("/") if piece]
        fixed = "".join(f"/{piece}" for piece in pieces) + _END if pieces else ""
        # What is below a match belongs to it, so the first place where a block fits is as good as any: nothing is tried twice.
        text += f"(?>(?:/[^/]+)*?{fixed})" if (place or name) and fixed else fixed
    return re.compile(f"{text}/.+" if pattern.endswith("/**") else f"{text}(?:/.*)?", re.DOTALL)


def _piece(piece: str) -> str:
    """The pattern of one name: `*`, `?`, and `[ab]` or `[!ab]` as a shell has them."""
    *first, last = (_fixed(part) for part in re.split(r"\*+", piece))
    if not first:
        return last
    return first[0] + "".join(f"(?>[^/]*?{part})" for part in first[1:]) + f"[^/]*{last}"


def _fixed(part: str) -> str:
    tokens = cast("list[str]", re.findall(r"\[!?[^\]]+\]|.", part, re.DOTALL))
    return "".join(re.escape(one) if len(one) == 1 and one != "?" else f"(?!/){fnmatch.translate(one)[4:-3]}" for one in tokens)
