"""Finds the folder or the package that a command works in, by its options: `make -C api test`, `pnpm --filter api test`."""

from __future__ import annotations

import posixpath
import re
from pathlib import PurePosixPath

import msgspec

from cmserver.tooluse.model import CommandPlace

ALL_BELOW = "**"
"""The end of a place: the folder, and each package below it."""
_PACKAGE = "*/"
"""How a place begins that is named like a package: its folder is not known."""
_CHANGES_FOLDER = {"cd", "chdir", "pushd", "Set-Location", "sl"}
_FILES = {"Cargo.toml", "pom.xml", "package.json", "composer.json", "Makefile", "build.gradle", "build.gradle.kts"}
_CONTAINERS = {"docker", "docker-compose", "podman", "podman-compose"}
_CONTAINER_VALUES = {"-e", "--env", "-u", "--user", "-w", "--workdir", "-v", "--volume", "--name", "--network", "-p", "--publish"}
_GRADLE_TASK = re.compile(r":?((?:[\w.-]+:)*[\w.-]+):([\w-]+)")


class _Options(msgspec.Struct, frozen=True):
    """The options of a program that name a folder, a package, or all packages."""

    folder: str = ""
    package: str = ""
    everything: str = ""
    words_before: int | None = None
    """How many words stand before the command that it runs, whose options are not its own; None for a program that runs none."""


_OPTIONS = {
    "npm": _Options("--prefix -C", "-w --workspace", "-ws --workspaces"),
    "pnpm": _Options("-C --dir --prefix", "-F --filter --filter-prod", "-r --recursive"),
    "yarn": _Options("--cwd"),
    "bun": _Options("--cwd", "-F --filter"),
    "turbo": _Options("--cwd", "--filter -F --scope"),
    "lerna": _Options("", "--scope"),
    "nx": _Options("", "--project --projects"),
    "rush": _Options("", "--to -t --only -o"),
    "make": _Options("-C --directory"),
    "gmake": _Options("-C --directory"),
    "ninja": _Options("-C"),
    "just": _Options("-d --working-directory"),
    "task": _Options("-d --dir"),
    "git": _Options("-C"),
    "go": _Options("-C"),
    "cargo": _Options("-C --manifest-path", "-p --package", "--workspace --all"),
    "swift": _Options("--package-path -C"),
    "mvn": _Options("-f --file", "-pl --projects"),
    "mvnw": _Options("-f --file", "-pl --projects"),
    "gradle": _Options("-p --project-dir"),
    "gradlew": _Options("-p --project-dir"),
    "composer": _Options("-d --working-dir"),
    "ctest": _Options("--test-dir"),
    "terraform": _Options("-chdir"),
    "jest": _Options("--rootDir"),
    "vitest": _Options("--root --dir"),
    "uv": _Options("--directory --project", "--package", words_before=1),
    "poetry": _Options("-C --directory -P --project", words_before=1),
    "env": _Options("-C --chdir", words_before=0),
}


def place_below(inner: CommandPlace, outer: CommandPlace) -> CommandPlace:
    """The place as seen from where the outer one is, of a wrapper or of the line."""
    names = ",".join(filter(None, [outer.package, inner.package]))
    return CommandPlace(join(outer.folder, inner.folder), names, outer.is_all or inner.is_all)


def join(folder: str, path: str) -> str:
    """The path behind the folder; one of them alone where the other is empty or the path is whole."""
    is_whole = path.startswith(("/", "~", "$")) or path[1:2] == ":"
    return path if is_whole or not folder else posixpath.normpath(f"{folder}/{path}") if path else folder


def entered_folder(words: list[str]) -> str | None:
    """The folder that `cd` and its like enter; None for another command, and for one that goes back."""
    if not words or words[0] not in _CHANGES_FOLDER:
        return None
    named = [word for word in words[1:] if word not in {"--", "/d", "-P", "-L", "-Path", "-LiteralPath"}]
    return named[0].replace("\\", "/") if named and named[0] != "-" else None


def take_place(words: list[str]) -> tuple[list[str], CommandPlace]:
    """The command without the options that say where it works, and the place."""
    program = PurePosixPath(words[0]).name if words else ""
    if program in _CONTAINERS:
        return _take_container(words)
    options = _OPTIONS.get(program)
    if options is None:
        return words, CommandPlace()
    folders, packages = options.folder.split(), options.package.split()
    kept, folder, names, is_all, bare = words[:1], "", list[str](), False, 0
    rest = iter(words[1:])
    for word in rest:
        name, sign, value = word.partition("=")
        bare += not word.startswith("-")
        if word == "--" or (options.words_before is not None and bare > options.words_before):
            kept += [word, *rest]
        elif name in folders:
            folder = join(folder, value if sign else next(rest, ""))
        elif name in packages:
            names.append(value if sign else next(rest, ""))
        elif word in options.everything.split():
            is_all = True
        else:
            kept.append(word)
    if PurePosixPath(folder).name in _FILES:
        folder = posixpath.dirname(folder)
    kept, named, all_named = _take_workspace(program, kept)
    return kept, CommandPlace(folder, ",".join(sorted(filter(None, [*names, *named]))), is_all or all_named)


def _take_container(words: list[str]) -> tuple[list[str], CommandPlace]:
    """`docker compose exec api pytest` runs `pytest` in what is called api."""
    rest = words[1:]
    if rest[:1] == ["compose"]:
        rest = rest[1:]
    if rest[:1] not in (["exec"], ["run"]):
        return words, CommandPlace()
    rest = rest[1:]
    while rest and rest[0].startswith("-"):
        rest = rest[2:] if rest[0] in _CONTAINER_VALUES else rest[1:]
    return (rest[1:], CommandPlace(package=rest[0])) if len(rest) > 1 else (words, CommandPlace())


def _take_workspace(program: str, words: list[str]) -> tuple[list[str], list[str], bool]:
    """`yarn workspace api test`, `yarn workspaces foreach run test`, `gradle :api:test`."""
    if program == "yarn" and words[1:2] == ["workspace"] and len(words) > 3:
        return [words[0], *words[3:]], [words[2]], False
    if program == "yarn" and words[1:2] == ["workspaces"]:
        rest = [word for word in words[2:] if word != "foreach" and not word.startswith("-")]
        return [words[0], *rest], [], True
    if program in {"gradle", "gradlew"}:
        tasks = [_GRADLE_TASK.fullmatch(word) for word in words]
        names = [task[1].replace(":", "/") for task in tasks if task]
        return [task[2] if task else word for word, task in zip(words, tasks, strict=True)], names, False
    return words, [], False


def place_of_package(name: str) -> str:
    """A package by its name, of which the folder is not known: `@shop/api` and `api...` are `*/api`."""
    return _PACKAGE + name.strip(".^{}[]:").rstrip("/").rpartition("/")[2]


def is_same_place(place: str | None, other: str | None) -> bool:
    """Whether two places are one; a package is in the folder that ends with its name. None is a place that is not known."""
    if place is None or other is None or place == other:
        return True
    is_named = place.startswith(_PACKAGE) or other.startswith(_PACKAGE)
    return is_named and place.rpartition("/")[2] == other.rpartition("/")[2]


def is_below(path: str, folder: str) -> bool:
    """Whether the path is the folder, or in it; "" and "." are the root."""
    return folder in {"", "."} or path == folder or path.startswith(f"{folder}/")


def contains(place: str | None, other: str | None) -> bool:
    """Whether who checks all packages of the first place checks the other one."""
    if place is None or other is None or not place.endswith(ALL_BELOW):
        return False
    return other.startswith(_PACKAGE) or is_below(other, place.removesuffix(ALL_BELOW).rstrip("/"))
