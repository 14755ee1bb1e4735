"""Reads which commands of a line take changes of files back, put them away, or bring them back: git's ways, and those of others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from cmserver.tooluse.model import CommandLine, SimpleCommand

ALL = ""
"""The path of all files, wherever the command runs."""
_HERE = "."
_MAKES_BRANCH = {"-b", "-B", "-c", "-C", "--orphan", "--create"}
_DISCARDS = {"-f", "--force", "--discard-changes"}
_DRY = {"-n", "--dry-run", "-p", "--patch", "-i", "--interactive"}
"""Flags by which nothing is done, or nobody knows what."""
_STASH_VALUES = {"-m", "--message"}


class GitDeed(msgspec.Struct, frozen=True, kw_only=True):
    """What one command does to changes that are in no commit yet.

    `takes` takes them back, `stashes` puts them away, `pops` brings back what was put away last, `adds` puts new files under
    control, `commits` keeps them for good, `reverts` takes back commits.
    """

    verb: Literal["takes", "stashes", "pops", "adds", "commits", "reverts"]
    paths: list[str] = []
    """Files and folders as the command names them, ALL for all."""
    tracked: bool = True
    """Whether it is about files that were there before, or were added."""
    untracked: bool = False
    """Whether it is about new files, which nobody added."""
    commit: str = ""
    """The commit that it goes back to, or that it reverts, as it is named there: `HEAD~2`, `3f9c2ab`, `HEAD~2..`."""


def read_takings(line: CommandLine) -> list[tuple[SimpleCommand, GitDeed]]:
    """What the commands of a line that ended well did, in order. Not what is put away and brought back again in the line."""
    takings = [(it, taking) for it in line.commands if (taking := _read(it)) is not None]
    pops = [place for place, (_, taking) in enumerate(takings) if taking.verb == "pops"]
    stashes = [place for place, (_, taking) in enumerate(takings) if taking.verb == "stashes"]
    if pops and stashes and stashes[0] < pops[-1]:
        takings = [it for place, it in enumerate(takings) if place not in {stashes[0], pops[-1]}]
    return takings


def _read(it: SimpleCommand) -> GitDeed | None:
    program, words = it.label.partition(" ")[0], it.words
    if program == "git":
        return _read_git(it)
    if words[1:2] == ["revert"] and program in {"hg", "svn"}:
        names = _arguments(words[2:])
        return GitDeed(verb="takes", paths=names or [ALL])
    if program == "jj" and words[1:2] == ["restore"]:
        return GitDeed(verb="takes", paths=_arguments(words[2:]) or [ALL], untracked=True)
    return None


def _read_git(it: SimpleCommand) -> GitDeed | None:
    deed = it.label.partition(" ")[2]
    rest = it.words[it.words.index(deed) + 1 :] if deed in it.words else []
    flags = {word.partition("=")[0] for word in rest if word.startswith("-")}
    reader = _GIT.get(deed)
    return reader(rest, flags) if reader and (deed == "stash" or not flags & _DRY) else None


def _read_checkout(rest: list[str], flags: set[str]) -> GitDeed | None:
    if flags & _MAKES_BRANCH:
        return None
    return GitDeed(verb="takes", paths=[ALL]) if flags & _DISCARDS else _paths_taken(rest)


def _read_switch(_rest: list[str], flags: set[str]) -> GitDeed | None:
    return GitDeed(verb="takes", paths=[ALL]) if flags & _DISCARDS and not flags & _MAKES_BRANCH else None


def _read_restore(rest: list[str], flags: set[str]) -> GitDeed | None:
    return None if flags & {"--staged", "-S"} and not flags & {"--worktree", "-W"} else _paths_taken(rest)


def _read_reset(rest: list[str], flags: set[str]) -> GitDeed | None:
    return GitDeed(verb="takes", paths=[ALL], commit=_first(rest)) if "--hard" in flags else None


def _read_clean(rest: list[str], flags: set[str]) -> GitDeed | None:
    is_forced = any("f" in flag for flag in flags)
    return GitDeed(verb="takes", paths=_paths(rest) or [_HERE], tracked=False, untracked=True) if is_forced else None


def _read_revert(rest: list[str], flags: set[str]) -> GitDeed | None:
    return None if flags & {"--abort", "--quit", "--skip", "--continue"} else GitDeed(verb="reverts", commit=_first(rest))


def _read_add(rest: list[str], flags: set[str]) -> GitDeed:
    return GitDeed(verb="adds", paths=[ALL] if flags & {"-A", "--all"} else _paths(rest))


def _read_commit(_rest: list[str], _flags: set[str]) -> GitDeed:
    return GitDeed(verb="commits", paths=[ALL])


def _read_stash(rest: list[str], flags: set[str]) -> GitDeed | None:
    deed, *others = rest if rest and not rest[0].startswith("-") else ["push", *rest]
    if deed in {"pop", "apply", "branch"}:
        return GitDeed(verb="pops")
    if deed not in {"push", "save"} or flags & {*_DRY, "--staged", "-S"}:
        return None
    if deed == "save":
        others = [word for word in others if word.startswith("-")]
    takes_new = bool(flags & {"-u", "--include-untracked", "-a", "--all"})
    named = [word for place, word in enumerate(others) if place == 0 or others[place - 1] not in _STASH_VALUES]
    return GitDeed(verb="stashes", paths=_paths(named) or [ALL], untracked=takes_new)


def _paths_taken(rest: list[str]) -> GitDeed | None:
    paths = _paths(rest)
    return GitDeed(verb="takes", paths=paths) if paths else None


def _paths(rest: list[str]) -> list[str]:
    """The arguments that may be files or folders: those behind `--` where it stands."""
    words = rest[rest.index("--") + 1 :] if "--" in rest else _arguments(rest)
    return [_path(word) for word in words]


def _path(word: str) -> str:
    return (
        ALL if word in {":/", ":/*"} else _HERE if word == "*" else word.removeprefix(":/").removeprefix("./").rstrip("/") or _HERE
    )


def _arguments(rest: list[str]) -> list[str]:
    return [word for word in rest if not word.startswith("-")]


def _first(rest: list[str]) -> str:
    return "".join(_arguments(rest)[:1])


_GIT: dict[str, Callable[[list[str], set[str]], GitDeed | None]] = {
    "checkout": _read_checkout,
    "switch": _read_switch,
    "restore": _read_restore,
    "reset": _read_reset,
    "clean": _read_clean,
    "revert": _read_revert,
    "stash": _read_stash,
    "add": _read_add,
    "commit": _read_commit,
}
