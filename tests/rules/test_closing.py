"""Tests of what closes a failure: runs that pass, and what looks like it."""

from __future__ import annotations

from cmserver.models.providers.model import PriorObservation
from cmserver.reading.model import CommandResult
from cmserver.rules.failures import RecordedFailures


def run(*selectors: str, failing: tuple[str, ...] = (), command: str = "pytest") -> CommandResult:
    return CommandResult(command=command, kind="check", passed=not failing, selectors=list(selectors), failing=list(failing))


def failure(number: int, result: CommandResult) -> PriorObservation:
    return PriorObservation(number=number, type="discovery", title="2 tests fail", state="open", commands=[result])


def test_a_failure_is_over_when_runs_that_pass_cover_all_that_failed():
    failures = RecordedFailures([failure(1, run(failing=("tests/test_a.py", "tests/test_b.py")))])

    assert failures.add(run("tests/test_c.py")) == []
    assert failures.add(run("tests/test_a.py")) == []
    assert [line.number for line in failures.add(run("tests/test_b.py::test_total"))] == [1]


def test_a_failure_of_another_session_is_over_when_everything_passes():
    failures = RecordedFailures([], [failure(7, run(failing=("tests/test_a.py",)))])

    assert failures.numbers(run()) == [7]
    assert [line.number for line in failures.add(run())] == [7]
    assert failures.lines == []


def test_a_build_is_over_when_the_tests_of_its_program_pass_but_not_by_those_before_it():
    failures = RecordedFailures([failure(1, run(command="cargo test")), failure(2, run(failing=("main",), command="cargo check"))])

    assert failures.add(run(command="cargo fmt")) == []
    assert [line.number for line in failures.add(run(command="cargo test"))] == [2]
