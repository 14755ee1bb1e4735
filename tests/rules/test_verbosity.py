"""How much the offline provider tells at each verbosity, what it knows of earlier batches, and its summaries of small sessions."""

from __future__ import annotations

from itertools import count

import pytest

from cmserver.models.providers.model import PriorObservation, Verbosity, event_tag
from cmserver.reading.model import CommandResult
from cmserver.rules.failures import RecordedFailures
from tests.rules.offline import edit, failed_run, note, observe, record, run, summarise
from tests.rules.session_orders import REQUESTS, long_session, read_payloads

FAILED = "FAILED tests/test_a.py::test_total - AssertionError: assert 1 == 2\n1 failed, 3 passed in 0.1s"
PASSED = "4 passed in 0.1s"


# ------------------------------------------------------------------------------------------------------ verbosity


async def test_minimal_leaves_out_a_change_and_says_why():
    answer = await observe(
        edit("a.py"), run("git push origin main", "To x\n   1a2b3c4..2b3c4d5  main -> main"), verbosity="minimal"
    )

    assert answer.observations == []
    assert {skip.event: skip.reason for skip in answer.skipped} == {
        "e1": "too little for verbosity minimal: change",
        "e2": "too little for verbosity minimal: change",
    }


async def test_minimal_keeps_fixes_commits_decisions_and_what_still_fails_with_one_fact_each():
    decision = note("note", {"text": "We decided to use PostgreSQL rather than Redis."})

    answer = await observe(
        failed_run("pytest -q", FAILED),
        edit("a.py"),
        run("pytest -q", PASSED),
        run("git commit -m 'Round half up'", "[main 1a2b3c4] Round half up\n 1 file changed, 1 insertion(+)"),
        failed_run("npm run build", "Error: no such module"),
        decision,
        verbosity="minimal",
    )

    assert [(draft.type, draft.subtitle, len(draft.facts)) for draft in answer.observations] == [
        ("bugfix", None, 1),
        ("discovery", None, 1),
        ("discovery", None, 0),
    ]
    assert [draft.narrative for draft in answer.observations] == [None, None, "We decided to use PostgreSQL rather than Redis."]
    assert answer.observations[0].files_modified == ["a.py"]


async def test_minimal_still_knows_in_a_later_batch_what_failed_and_that_it_passes_again():
    numbers = count(1)
    failure = failed_run("pytest -q", FAILED)
    first = record(await observe(failure, verbosity="minimal"), [failure], numbers)
    events = [
        edit("a.py"),
        run("pytest -q", PASSED),
        run("git commit -m 'Round half up'", "[main 1a2b3c4] Round half up\n 1 file changed, 1 insertion(+)"),
    ]

    second = record(await observe(*events, recorded=first, verbosity="minimal"), events, numbers)

    assert [line.number for line in RecordedFailures(first).lines] == [1]
    assert RecordedFailures([*first, *second]).lines == []


async def test_verbose_has_room_for_more_facts():
    events = [edit(f"{'abcdef'[place % 6]}.py", f"x{place} = 1\n", f"x{place} = 2\n") for place in range(1, 7)]
    commit = run("git commit -m 'Set all'", "[main 1a2b3c4] Set all\n 12 files changed, 12 insertions(+)")
    more = [edit(f"{'ghijkl'[place % 6]}.py", f"x{place} = 1\n", f"x{place} = 2\n") for place in range(9, 15)]
    all_of_them = [*events, *more, commit]

    normal, verbose = await observe(*all_of_them), await observe(*all_of_them, verbosity="verbose")

    assert [len(draft.facts) for draft in normal.observations] == [8]
    assert [len(draft.facts) for draft in verbose.observations] == [13]


@pytest.mark.parametrize("verbosity", ["minimal", "normal", "verbose"])
async def test_every_event_of_a_long_session_is_named_or_skipped_once(verbosity: Verbosity):
    recorded, numbers = list[PriorObservation](), count(1)
    payloads = long_session()
    for batch, first in enumerate(range(0, len(payloads), 20)):
        events = read_payloads(payloads[first : first + 20])

        answer = await observe(*events, verbosity=verbosity, recorded=recorded, requests=REQUESTS[: batch + 1])

        named = [tag for draft in answer.observations for tag in draft.events]
        skipped = [skip.event for skip in answer.skipped]
        assert sorted([*dict.fromkeys(named), *skipped]) == sorted(event_tag(place) for place in range(len(events)))
        assert all(draft.title and len(draft.title) <= 100 for draft in answer.observations)
        assert all(
            len(draft.facts) == 1 and draft.narrative is None
            for draft in answer.observations
            if verbosity == "minimal" and draft.facts
        )
        recorded += record(answer, events, numbers)
    assert recorded


# ------------------------------------------------------------------------------------------------ earlier batches


@pytest.mark.parametrize(
    ("command", "failed", "passed", "subject"),
    [
        ("pytest -q", FAILED, PASSED, "test_total"),
        ("pytest -q", FAILED.replace("1 failed", "2 failed") + "\nFAILED tests/test_a.py::test_tax - KeyError: 1", PASSED, "2 "),
        ("npm run build", "Error: no such module", "built", "no such module"),
    ],
    ids=["one test", "several tests", "another command"],
)
async def test_a_recorded_failure_is_known_and_settled_by_a_pass(command: str, failed: str, passed: str, subject: str):
    numbers = count(1)
    failure, change = failed_run(command, failed), edit("a.py")
    first = record(await observe(failure), [failure], numbers)

    again = await observe(run(command, passed), recorded=first)
    fixed = await observe(change, run(command, passed), recorded=first)

    assert [observation.number for observation in RecordedFailures(first).lines] == [1]
    assert RecordedFailures([*first, *record(again, [run(command, passed)], numbers)]).lines == []
    assert RecordedFailures([*first, *record(fixed, [change, run(command, passed)], numbers)]).lines == []
    assert fixed.observations[0].type == "bugfix"
    assert subject in (fixed.observations[0].title or "")
    assert subject in (again.observations[0].title or "")


async def test_a_recorded_failure_is_known_by_its_data_whatever_its_title_says():
    result = CommandResult(command="pytest", kind="check", passed=False, failure="test_total")
    recorded = [PriorObservation(number=1, type="bugfix", title="Tests, again", commands=[result])]

    answer = await observe(edit("a.py"), run("pytest -q", PASSED), recorded=recorded)

    assert (answer.observations[0].title or "").startswith("Fixed test_total: ")


async def test_a_title_that_sounds_like_a_failure_is_none():
    recorded = [PriorObservation(number=1, type="discovery", title="test_total fails: KeyError", facts=["Command: `pytest -q`"])]

    answer = await observe(run("pytest -q", PASSED), recorded=recorded)

    assert [skip.reason for skip in answer.skipped] == ["passes, nothing changed: pytest"]


async def test_a_commit_is_known_as_one():
    events = [
        edit("a.py"),
        run("git commit -m 'Add a'", "[main 1a2b3c4] Add a\n 1 file changed, 1 insertion(+)"),
    ]

    (recorded,) = record(await observe(*events), events, count(1))

    assert [(result.command, result.kind, result.passed) for result in recorded.commands] == [("git commit", "commit", True)]


# -------------------------------------------------------------------------------------------------------- summary


async def test_a_session_that_only_looked_has_no_summary():
    end = await summarise(requests=["What is the limit?"], last_message="It is 60.")

    assert end.summary is None
    assert [skip.reason for skip in end.skipped] == ["nothing was changed, found or decided"]


async def test_what_was_recorded_is_not_called_nothing():
    change = PriorObservation(number=1, type="change", title="Added a in a.py", files_modified=["a.py"])

    end = await summarise(recorded=[change])

    assert end.summary is not None
    assert end.summary.completed == "1 file changed: a.py."


async def test_a_summary_says_what_was_asked_for_first_and_nothing_of_what_is_open():
    failure = PriorObservation(
        number=1,
        type="discovery",
        title="test_a fails: KeyError: 1",
        files_read=["a.py", "b.py"],
        commands=[CommandResult(command="pytest", kind="check", passed=False, failure="test_a")],
    )

    end = await summarise(recorded=[failure], requests=["One", "Two", "Three"], last_message="Done.")

    assert end.summary is not None
    assert end.summary.request == "One"
    assert end.summary.next_steps is None
