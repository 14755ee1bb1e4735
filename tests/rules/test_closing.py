"""Tests of what closes an open end: work, words and runs that pass, and what looks like it."""

from __future__ import annotations

import pytest

from cmserver.providers.model import PriorObservation
from cmserver.reading.model import CommandResult
from cmserver.rules.closing import DoneWork, OpenEnds, find_user_reports, is_agreement
from cmserver.rules.failures import RecordedFailures
from tests.table import try_rows

NOISE = [
    "Bump the version of the release",
    "The cache keeps entries for an hour",
    "Rename the payments module",
    "Add a lock to compact",
]


def end(text: str, number: int = 1, **fields: object) -> PriorObservation:
    return PriorObservation(number=number, type="discovery", title=text, quote=text, state="open", **fields)  # type: ignore[arg-type]


@try_rows(
    ("text", "done"),
    [
        (
            "Nothing purges `webhook_events` yet.",
            "Added purge_webhook_events in src/worker.py: purge the handled events after 30 days",
        ),
        (
            "The CSRF token reuse in `Session.Rotate` I left alone.",
            "Issue a new CSRF token on rotate. Changed src/session/rotate.go",
        ),
        (
            "`late_fees.py` still writes its rows one by one.",
            "Late fees write their rows in a single insert now. Changed src/billing/late_fees.py",
        ),
        (
            "Der Export in `delivery_note.py` ist noch nicht umgestellt.",
            "Export der Lieferscheine umgestellt; changed delivery_note.py",
        ),
        ("`TourneeRepositoryIT` ne démarre pas encore.", "`TourneeRepositoryIT` démarre à nouveau, 9 tests sur 9"),
    ],
)
def test_work_that_shares_rare_words_closes_an_open_end(text: str, done: str):
    name = text.split("`")[1]

    assert OpenEnds([end(text, anchors=[name])], NOISE).find_done(DoneWork(text=done)) == [1]


@pytest.mark.parametrize(
    ("text", "done"),
    [
        ("orders.py is not yet tested.", "Round to cents in orders.py"),
        ("The migration has not been run on production.", "Refund webhooks: lock the charge first. Changed src/webhooks.py"),
        ("The Android build still ships clear text traffic.", "Bump the version of the release. Changed android/build.gradle"),
    ],
)
def test_work_on_the_same_file_or_with_common_words_closes_nothing(text: str, done: str):
    assert OpenEnds([end(text, files_read=["orders.py"], anchors=["orders.py"])], NOISE).find_done(DoneWork(text=done)) == []


def test_what_is_still_open_after_the_same_turn_is_not_done():
    ends = OpenEnds([end("The refund path does not yet increase `order.attempt`.", anchors=["order.attempt"])], NOISE)
    work = "The refund path locks the order. Changed refund.py"

    assert ends.find_done(DoneWork(text=work + " order.attempt")) == [1]
    assert ends.find_done(DoneWork(text=work, left_open=["The refund path still does not increase `order.attempt`."])) == []


def test_what_the_user_agreed_to_needs_fewer_words_in_common():
    text, work = "Promo codes are emptied by the same guard.", DoneWork(text="Changed src/router.ts: guard keeps what was chosen")

    assert OpenEnds([end(text)], NOISE).find_done(work) == []
    assert OpenEnds([end(text)], NOISE, agreed=[1]).find_done(DoneWork(text="The guard keeps promo now")) == [1]


@try_rows("prompt", ["yes please both", "ja mach", "oui vas-y", "ok do it", "go ahead"])
def test_a_short_yes_is_agreement(prompt: str):
    assert is_agreement(prompt)


@pytest.mark.parametrize("prompt", ["perfect, thx. next: the flaky test", "no, leave it", "why?", "super, feierabend"])
def test_praise_and_other_requests_are_none(prompt: str):
    assert not is_agreement(prompt)


@try_rows(
    "prompt",
    [
        "dana put the new token into vault and restarted it",
        "dbas ran 0051 on prod last night",
        "die plattform hat 0043 gestern eingespielt",
        "toutes les sondes ont reçu la 0x21",
        "the backfill is off, forget the 312 tickets, the team leads don't want them merged",
    ],
)
def test_a_user_reports_what_is_over(prompt: str):
    assert list(find_user_reports(prompt)) == [prompt]


@pytest.mark.parametrize(
    "prompt", ["did the dbas run 0051?", "the export failed again on prod", "please fix the token", "forget it"]
)
def test_questions_trouble_and_requests_report_nothing(prompt: str):
    assert list(find_user_reports(prompt)) == []


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
