"""Follows what fails until it passes: runs of the batch, and failures on record, also of other sessions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cmserver.providers.model import PriorObservation
from cmserver.reading.model import CommandResult

_BUILDS = {"build", "check", "compile", "vet"}
"""What also passes when the tests of the same program do."""


def open_failures(recorded: Iterable[PriorObservation]) -> list[PriorObservation]:
    """The observations of failures that are still open, oldest first."""
    return RecordedFailures(recorded).lines


class Passes:
    """The runs of each command that passed since it failed: one of a single file says nothing of the others."""

    def __init__(self) -> None:
        self._selectors: dict[str, list[str]] = {}

    def add(self, result: CommandResult) -> None:
        """Take a run; one that fails takes back what its program passed before."""
        if result.passed:
            self._selectors.setdefault(result.command, []).extend(result.selectors or [""])
        else:
            self._selectors = {name: found for name, found in self._selectors.items() if not _is_same_program(name, result.command)}

    def cover(self, failed: CommandResult) -> bool:
        """Whether what had failed passes by now, as far as its output said what that was."""
        tests = [name for name in self._selectors if "test" in name and _is_same_program(name, failed.command)]
        if failed.command.partition(" ")[2] in _BUILDS and any("" in self._selectors[name] for name in tests):
            return True
        selectors = self._selectors.get(failed.command, [])
        if "" in selectors or (failed.selectors and set(selectors) >= set(failed.selectors)):
            return True
        return bool(selectors) and all(
            any(selector.split("::")[0] in name or name in selector for selector in selectors) for name in failed.failing
        )


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

    def numbers(self, command: str) -> list[int]:
        """The lines that are about failures of that command only."""
        return [line.number for line in self.lines if all(result.command == command for result in _failed_results(line))]


def _failed_results(line: PriorObservation) -> Sequence[CommandResult]:
    return [result for result in line.commands if not result.passed]


def _is_same_program(command: str, other: str) -> bool:
    return command.partition(" ")[0] == other.partition(" ")[0]
