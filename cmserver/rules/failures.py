"""Follows what fails until the same check passes: runs of the batch, and failures on record, also of other sessions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cmserver.models.providers.model import PriorObservation
from cmserver.reading.model import CommandResult
from cmserver.tooluse.places import ALL_BELOW, contains, is_below, is_same_place

_BUILDS = {"build", "check", "compile", "vet"}
"""What also passes when the tests of the same program do."""


class Passes:
    """The runs that passed, until the same check fails again: one of a single file, folder or branch says nothing of the others."""

    def __init__(self) -> None:
        self._passed: list[CommandResult] = []

    def add(self, result: CommandResult) -> None:
        """Take a run; one that fails takes back what the same program passed before, of the same files."""
        if result.passed:
            self._passed += [result] if result not in self._passed else []
        else:
            self._passed = [passed for passed in self._passed if not _contradicts(result, passed)]

    def cover(self, failed: CommandResult) -> bool:
        """Whether what had failed passes by now, as far as its output said what that was."""
        return _take_in(self._passed, failed)


class FollowedFailures:
    """What failed in one run, until all of it passes. It keeps only those of later runs that say something of it."""

    def __init__(self, failed: Sequence[CommandResult]) -> None:
        self._failed = failed
        self._passes = Passes()

    def add(self, result: CommandResult) -> None:
        """Take a later run."""
        if not result.passed or any(_helps(result, failed) for failed in self._failed):
            self._passes.add(result)

    @property
    def is_over(self) -> bool:
        return all(map(self._passes.cover, self._failed))


class RecordedFailures:
    """Observations of failures, until the runs that follow show them to be over."""

    def __init__(self, recorded: Iterable[PriorObservation], elsewhere: Iterable[PriorObservation] = ()) -> None:
        """`recorded` are the session's observations, `elsewhere` what is open in others."""
        self.lines: list[PriorObservation] = [line for line in elsewhere if _failed_results(line)]
        self.passes = Passes()
        for line in recorded:
            for result in line.commands:
                self.add(result)
            if _failed_results(line) and line.state not in {"done", "dropped"}:
                self.lines.append(line)

    def add(self, result: CommandResult) -> list[PriorObservation]:
        """Take a run of the session; the lines that are over with it."""
        self.passes.add(result)
        over = [line for line in self.lines if result.passed and all(map(self.passes.cover, _failed_results(line)))]
        self.lines = [line for line in self.lines if line not in over]
        return over

    def numbers(self, failed: CommandResult) -> list[int]:
        """The lines that are about failures of that check only, of which it has tried all."""
        return [
            line.number
            for line in self.lines
            if all(result.command == failed.command and takes_in(failed, result) for result in _failed_results(line))
        ]


def is_same_check(passed: CommandResult, failed: CommandResult) -> bool:
    """Whether one run tries what the other tried: by program, settings and branch, and by place or by paths as arguments."""
    is_program = passed.command == failed.command or (
        _is_same_program(passed.command, failed.command) and _is_build(failed) and "test" in passed.command and not passed.selectors
    )
    if not is_program or not _is_same_branch(passed, failed):
        return False
    settings = dict(setting.split("=", 1) for setting in passed.settings if "=" in setting)
    others = dict(setting.split("=", 1) for setting in failed.settings if "=" in setting)
    if any(settings[name] != others[name] for name in settings.keys() & others.keys()):
        return False
    is_place = is_same_place(passed.folder, failed.folder) or contains(passed.folder, failed.folder)
    return is_place or bool(_paths(passed)) or bool(_paths(failed))


def _is_same_branch(passed: CommandResult, failed: CommandResult) -> bool:
    """Whether both may be of one branch: who has just come to one was on another before."""
    if not failed.branch:
        return not passed.is_elsewhere
    return not passed.branch or passed.branch == failed.branch


def takes_in(run: CommandResult, failed: CommandResult) -> bool:
    """Whether the run tries all that had failed in another one."""
    return _take_in([run], failed)


def _take_in(runs: Iterable[CommandResult], failed: CommandResult) -> bool:
    """Whether the runs together try all that had failed."""
    same = [run for run in runs if is_same_check(run, failed)]
    selectors: set[str] = set()
    for run in same:
        if _covers_all(run, failed):
            return True
        selectors.update(_limits(run))
    if failed.selectors and selectors >= set(failed.selectors):
        return True
    return bool(same) and bool(failed.failing) and all(any(_names(it, name) for it in selectors) for name in failed.failing)


def _helps(run: CommandResult, failed: CommandResult) -> bool:
    """Whether the run tries something of what had failed."""
    if not is_same_check(run, failed):
        return False
    limits = _limits(run)
    return (
        _covers_all(run, failed)
        or not limits.isdisjoint(failed.selectors)
        or any(_names(it, name) for it in limits for name in failed.failing)
    )


def _limits(run: CommandResult) -> set[str]:
    return set(run.selectors or filter(None, [_below(run)]))


def _covers_all(passed: CommandResult, failed: CommandResult) -> bool:
    """Whether a run takes in all that the other one ran."""
    scopes = _paths(failed) or [_below(failed)]
    if not passed.selectors and (is_same_place(passed.folder, failed.folder) or contains(passed.folder, failed.folder)):
        return True
    if passed.folder is None or failed.folder is None or len(scopes) < len(failed.selectors):
        return False  # a name that is no path means what it means in its folder
    wide = _paths(passed) if passed.selectors else [passed.folder]
    is_whole = len(wide) == max(1, len(passed.selectors)) and all(wide)
    return (
        is_whole
        and all(any(is_below(scope, it) for it in wide) for scope in scopes)
        and (bool(passed.selectors) or bool(_paths(failed)))
    )


def _contradicts(failed: CommandResult, passed: CommandResult) -> bool:
    """Whether a run that fails says that what passed before may not pass any more."""
    if not _is_same_program(failed.command, passed.command) or not (
        is_same_place(failed.folder, passed.folder)
        or contains(failed.folder, passed.folder)
        or contains(passed.folder, failed.folder)
    ):
        return False
    if not failed.selectors or not passed.selectors:
        return True
    return any(_names(it, other) or _names(other, it) for it in failed.selectors for other in passed.selectors)


def _names(selector: str, name: str) -> bool:
    """Whether a run that was limited to the selector ran what has that name: a file, a folder, or a test."""
    file, _, test = selector.partition("::")
    other, _, other_test = name.partition("::")
    if test and other_test and test != other_test:
        return False
    if "/" in file or "/" in other or "." in other:
        return bool(other) and (is_below(other, file) or other.endswith(f"/{file}") or file.endswith(f"/{other}"))
    return (test or file) == other or other in selector or file in other


def _below(result: CommandResult) -> str:
    return (result.folder or "").removesuffix(ALL_BELOW).rstrip("/")


def _paths(result: CommandResult) -> list[str]:
    """Those of its selectors that are paths."""
    return [selector for selector in result.selectors if "/" in selector or "." in selector]


def _failed_results(line: PriorObservation) -> Sequence[CommandResult]:
    return [result for result in line.commands if not result.passed]


def _is_build(result: CommandResult) -> bool:
    return result.command.partition(" ")[2] in _BUILDS


def _is_same_program(command: str, other: str) -> bool:
    return command.partition(" ")[0] == other.partition(" ")[0]
