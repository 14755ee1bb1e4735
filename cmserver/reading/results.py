"""Reads of a command line which of its commands passed or failed, each with where it ran and what it was limited to."""

from __future__ import annotations

import re

import msgspec

from cmserver.reading.model import UNKNOWN_BRANCH, Branch, CommandKind, CommandResult, Outcome
from cmserver.tooluse.model import CommandLine, CommandPlace, Purpose, SimpleCommand, WorkingFolder, is_absolute
from cmserver.tooluse.places import ALL_BELOW, place_of_package

_MAX_FAILING = 20
_KINDS: dict[Purpose, CommandKind] = {
    **dict.fromkeys((Purpose.TEST, Purpose.CHECK), "check"),
    **dict.fromkeys((Purpose.DEED, Purpose.INSTALL), "deed"),
    Purpose.COMMIT: "commit",
}
_PATH = re.compile(r"[\w@.\[\]-]+(?:/[\w@.\[\]-]+)*(?:::.*)?")
_PATH_SIGN = re.compile(r"/|::|\.[A-Za-z]\w{0,4}$")
_TEST_COUNTS = re.compile(r"passed|failed|passing|failing|examples?")


def read_results(
    command: CommandLine, outcome: Outcome, folder: WorkingFolder, branch: Branch = UNKNOWN_BRANCH
) -> list[CommandResult]:
    """The result of the main command, then those of the line's other checks, as far as it is known how they ended.

    Of a line that failed each check that may be what failed has failed: it is over when all of them pass.
    """
    checks = [it for it in command.commands if it.is_check and it is not command.main]
    if outcome.failed:
        suspects, passed = _find_failed(command, outcome)
        others = [it for it in checks if _is_in(it, suspects)]
    else:
        passed = [it for it in checks if outcome.exit_code == 0 and command.is_decided(it)]
        others = []
    results = [_result(it, outcome, folder, branch, passed=not outcome.failed) for it in [command.main, *others]]
    results[0] = msgspec.structs.replace(results[0], command=command.key)
    return [*results, *(_result(it, None, folder, branch, passed=True) for it in passed)]


def find_place(place: CommandPlace, folder: WorkingFolder) -> str:
    """Where a command ran, as seen from the root: "" there, `*/name` for a package, and `**` behind all packages below a folder."""
    whole = _whole_folder(place, folder)
    package = place.package
    if "/" in package and not package.startswith("@") and "," not in package:
        return _from_root(f"{whole}/{package.strip('.{}')}" if whole else package, folder)
    if package:
        return place_of_package(package)
    found = _from_root(whole, folder)
    return (f"{found}/{ALL_BELOW}" if found else ALL_BELOW) if place.is_all else found


def _result(it: SimpleCommand, outcome: Outcome | None, folder: WorkingFolder, branch: Branch, *, passed: bool) -> CommandResult:
    whole = _whole_folder(it.place, folder)
    failing = (outcome.failing_files or outcome.failing_tests)[:_MAX_FAILING] if outcome else []
    return CommandResult(
        command=it.key,
        kind=_KINDS.get(it.purpose, "other"),
        passed=passed,
        failure=outcome.failure if outcome else "",
        selectors=[_from_whole(selector, whole, folder) for selector in it.selectors] if it.is_check else [],
        failing=[_from_whole(name, whole, folder) for name in failing],
        folder=find_place(it.place, folder),
        branch=branch.name,
        is_elsewhere=branch.is_elsewhere,
        settings=it.settings,
    )


def _find_failed(command: CommandLine, outcome: Outcome) -> tuple[list[SimpleCommand], list[SimpleCommand]]:
    """The checks of a failed line that may be what failed, and those before them that passed."""
    checks = [it for it in command.commands if it.is_check]
    names_tests = bool(outcome.failing_tests or outcome.failing_files or _TEST_COUNTS.search(outcome.counts))
    tests = [it for it in checks if it.purpose is Purpose.TEST]
    suspects = tests if names_tests and tests else checks
    if len(suspects) != 1:
        return suspects, []
    place = next(place for place, it in enumerate(command.commands) if it is suspects[0])
    passed: list[SimpleCommand] = []
    for it in reversed(command.commands[:place]):
        if it.operator != "&&":
            break
        passed += [it] if it.is_check and not it.is_negated else []
    return suspects, passed


def _whole_folder(place: CommandPlace, folder: WorkingFolder) -> str:
    """The whole path of the folder, "" where nothing is known. An agent may tell the folder that `cd` has led to already."""
    path = place.folder.removeprefix("./").rstrip("/")
    if path in {"", "."} or folder.folder.endswith(f"/{path}"):
        return folder.folder or folder.root
    return folder.resolve(path)


def _from_root(path: str, folder: WorkingFolder) -> str:
    found = folder.relative(path)
    return "" if found == "." else found


def _from_whole(name: str, whole: str, folder: WorkingFolder) -> str:
    """A path as seen from the root; what is none, such as the name of a test, as it is."""
    path, sign, test = name.partition("::")
    path = path.removesuffix("/...")
    if is_absolute(path):
        return _from_root(path, folder) + sign + test
    if not _PATH.fullmatch(path + sign + test) or not _PATH_SIGN.search(name):
        return name
    return (_from_root(f"{whole}/{path}" if whole else path, folder)) + sign + test


def _is_in(command: SimpleCommand, commands: list[SimpleCommand]) -> bool:
    return any(command is it for it in commands)
