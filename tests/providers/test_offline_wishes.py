"""The offline provider as people wish it: how much it tells, in which language, and that neither breaks what it reads again."""

from __future__ import annotations

import string
from itertools import count
from typing import cast

import msgspec
import pytest

from cmserver.providers.model import Answer, DraftObservation, Prompt, PromptEvent, Recorded, Verbosity, Wishes
from cmserver.providers.offline import Offline
from cmserver.providers.rules.drafts import open_failures, settled_failures
from cmserver.providers.rules.phrases import record
from cmserver.providers.rules.phrases.english import ENGLISH
from cmserver.providers.rules.phrases.manner import EVERY, as_wished, known, words
from cmserver.providers.rules.phrases.words import Words
from tests.providers.session_orders import RECORDED, REQUESTS, ROOT, long_session, prompt_events

LANGUAGES = ["English", "German", "French", "Spanish"]


async def answer(prompt: Prompt) -> Answer:
    return msgspec.json.decode((await Offline().complete(prompt)).text, type=Answer)


async def told(
    *events: PromptEvent,
    verbosity: Verbosity = "normal",
    language: str = "English",
    recorded: list[Recorded] | None = None,
    requests: list[str] | None = None,
) -> Answer:
    return await answer(
        Prompt(
            kind="observations",
            project="orders",
            root=ROOT,
            requests=requests or [],
            recorded=recorded or [],
            events=list(events),
            wishes=Wishes(verbosity=verbosity, language=language),
        )
    )


def used(tag: str, tool: str, tool_input: object, tool_response: object = None, error: str | None = None) -> PromptEvent:
    return PromptEvent(
        tag=tag,
        event_type="tool_use",
        occurred_at_epoch=0,
        tool_name=tool,
        tool_input=tool_input,
        tool_response=tool_response,
        error=error,
    )


def ran(tag: str, command: str, stdout: str = "") -> PromptEvent:
    return used(tag, "Bash", {"command": command}, {"stdout": stdout, "stderr": "", "interrupted": False})


def broke(tag: str, command: str, output: str) -> PromptEvent:
    return used(tag, "Bash", {"command": command}, error=f"Exit code 1\n{output}")


def edited(tag: str, path: str, old: str = "def a():\n    return 1\n", new: str = "def a():\n    return 2\n") -> PromptEvent:
    return used(tag, "Edit", {"file_path": f"{ROOT}/{path}", "old_string": old, "new_string": new})


def looked(tag: str, path: str) -> PromptEvent:
    return used(tag, "Read", {"file_path": f"{ROOT}/{path}"}, "x = 1")


def lines(drafts: list[DraftObservation], numbers: count[int]) -> list[Recorded]:
    return [
        Recorded(
            number=next(numbers),
            type=one.type,
            title=one.title or "",
            facts=one.facts,
            files_read=one.files_read,
            files_modified=one.files_modified,
        )
        for one in drafts
    ]


FAILED = "FAILED tests/test_a.py::test_total - AssertionError: assert 1 == 2\n1 failed, 3 passed in 0.1s"
PASSED = "4 passed in 0.1s"


# ------------------------------------------------------------------------------------------------------ verbosity


async def test_minimal_leaves_out_a_change_and_says_why():
    given = await told(
        edited("e1", "a.py"), ran("e2", "git push origin main", "To x\n   1a2b3c4..2b3c4d5  main -> main"), verbosity="minimal"
    )

    assert given.observations == []
    assert {one.event: one.reason for one in given.skipped} == {
        "e1": "too little for verbosity minimal: change",
        "e2": "too little for verbosity minimal: change",
    }


async def test_minimal_keeps_fixes_commits_decisions_and_what_still_fails_with_one_fact_each():
    decision = PromptEvent(
        tag="e6", event_type="note", occurred_at_epoch=0, payload={"text": "We decided to use PostgreSQL rather than Redis."}
    )

    given = await told(
        broke("e1", "pytest -q", FAILED),
        edited("e2", "a.py"),
        ran("e3", "pytest -q", PASSED),
        ran("e4", "git commit -m 'Round half up'", "[main 1a2b3c4] Round half up\n 1 file changed, 1 insertion(+)"),
        broke("e5", "npm run build", "Error: no such module"),
        decision,
        verbosity="minimal",
    )

    assert [(one.type, one.subtitle, len(one.facts)) for one in given.observations] == [
        ("bugfix", None, 1),
        ("discovery", None, 1),
        ("decision", None, 0),
    ]
    assert [one.narrative for one in given.observations] == [None, None, "We decided to use PostgreSQL rather than Redis."]
    assert given.observations[0].files_modified == ["a.py"]


async def test_minimal_still_knows_in_a_later_batch_what_failed_and_that_it_passes_again():
    numbers = count(1)
    first = lines((await told(broke("e1", "pytest -q", FAILED), verbosity="minimal")).observations, numbers)

    second = await told(
        edited("e1", "a.py"),
        ran("e2", "pytest -q", PASSED),
        ran("e3", "git commit -m 'Round half up'", "[main 1a2b3c4] Round half up\n 1 file changed, 1 insertion(+)"),
        recorded=first,
        verbosity="minimal",
    )

    assert list(open_failures(first)) == ["pytest"]
    assert settled_failures([*first, *lines(second.observations, numbers)]) == {1}


async def test_verbose_also_tells_what_was_looked_at_what_passes_and_what_was_run():
    events = [
        looked("e1", "a.py"),
        looked("e2", "b.py"),
        ran("e3", "ls"),
        ran("e4", "pytest -q", PASSED),
        ran("e5", "ruff check"),
        ran("e6", "docker compose up -d", "Container db  Started"),
    ]

    normal, verbose = await told(*events), await told(*events, verbosity="verbose")

    assert normal.observations == []
    assert [(one.type, one.title, one.facts, one.files_read, one.events) for one in verbose.observations] == [
        ("discovery", "Looked at a.py and b.py", [], ["a.py", "b.py"], ["e1", "e2"]),
        (
            "discovery",
            "Checks pass: pytest and ruff check",
            ["Passes: `pytest -q` (4 passed)", "Passes: `ruff check`"],
            [],
            ["e4", "e5"],
        ),
        (
            "change",
            "Ran `docker compose up -d`",
            ["Command: `docker compose up -d`", "Answer: Container db Started"],
            [],
            ["e6"],
        ),
    ]
    assert [one.event for one in verbose.skipped] == ["e3"]


async def test_verbose_does_not_tell_twice_what_was_read_for_a_change():
    given = await told(looked("e1", "a.py"), edited("e2", "a.py"), verbosity="verbose")

    assert [one.files_read for one in given.observations] == [["a.py"]]
    assert [(one.event, one.reason) for one in given.skipped] == [("e1", "read for what was changed")]


async def test_verbose_has_room_for_more_facts():
    events = [edited(f"e{place}", f"{'abcdef'[place % 6]}.py", f"x{place} = 1\n", f"x{place} = 2\n") for place in range(1, 7)]
    commit = ran("e8", "git commit -m 'Set all'", "[main 1a2b3c4] Set all\n 12 files changed, 12 insertions(+)")
    more = [edited(f"e{place}", f"{'ghijkl'[place % 6]}.py", f"x{place} = 1\n", f"x{place} = 2\n") for place in range(9, 15)]
    all_of_them = [*events, *more, msgspec.structs.replace(commit, tag="e15")]

    normal, verbose = await told(*all_of_them), await told(*all_of_them, verbosity="verbose")

    assert [len(one.facts) for one in normal.observations] == [8]
    assert [len(one.facts) for one in verbose.observations] == [13]


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("verbosity", ["minimal", "normal", "verbose"])
async def test_every_event_of_a_long_session_is_named_or_skipped_once(verbosity: Verbosity, language: str):
    recorded, numbers = list[Recorded](), count(1)
    payloads = long_session()
    for batch, first in enumerate(range(0, len(payloads), 20)):
        events = prompt_events(payloads[first : first + 20])

        given = await told(*events, verbosity=verbosity, language=language, recorded=recorded, requests=REQUESTS[: batch + 1])

        named = [tag for one in given.observations for tag in one.events]
        skipped = [one.event for one in given.skipped]
        assert sorted([*dict.fromkeys(named), *skipped]) == sorted(event.tag for event in events)
        assert all(one.title and len(one.title) <= 100 for one in given.observations)
        assert all(
            len(one.facts) == 1 and one.narrative is None for one in given.observations if verbosity == "minimal" and one.facts
        )
        recorded += lines(given.observations, numbers)
    assert recorded


# ------------------------------------------------------------------------------------------------------- language


@pytest.mark.parametrize(
    ("language", "title", "narrative", "failure"),
    [
        ("English", "Added note.txt; changed `line 5` to `line five` in big.txt", "Asked for", "failed: oops"),
        ("German", "Neu: note.txt; geändert: `line 5` zu `line five` in big.txt", "Auftrag", "ist fehlgeschlagen: oops"),
        ("French", "Ajoute note.txt; modifie `line 5` en `line five` dans big.txt", "Demande", "a échoué : oops"),
        ("Spanish", "Añade note.txt; cambia `line 5` a `line five` en big.txt", "Petición", "falló: oops"),
    ],
)
async def test_the_recorded_session_in_each_language(language: str, title: str, narrative: str, failure: str):
    given = await told(*prompt_events(RECORDED), language=language, requests=["Please"])

    change, broken = given.observations
    assert (change.title, change.narrative) == (title, f'{narrative}: "Please"')
    assert broken.title == f"`echo oops >&2; exit 3` {failure}"
    assert change.facts[1] == "big.txt (+1/-1): `line 5` → `line five`"


async def test_what_was_fixed_is_told_in_german():
    given = await told(broke("e1", "pytest -q", FAILED), edited("e2", "a.py"), ran("e3", "pytest -q", PASSED), language="Deutsch")

    (fix,) = given.observations
    assert fix.type == "bugfix"
    assert fix.title == "test_total behoben: geändert: a in a.py: `return 1` → `return 2`"
    assert fix.subtitle == "Geändert: a in a.py: `return 1` → `return 2`; 1 Datei, +1/-1 Zeilen; pytest läuft durch (4 passed)."
    assert fix.facts[1:] == [
        "Zuvor fehlgeschlagen: `pytest -q`: AssertionError: assert 1 == 2",
        "Es schlagen fehl: test_total",
        "Läuft durch: `pytest -q` (4 passed)",
    ]


@pytest.mark.parametrize("now", LANGUAGES)
@pytest.mark.parametrize("before", LANGUAGES)
@pytest.mark.parametrize(
    ("command", "failed", "passed", "subject"),
    [
        ("pytest -q", FAILED, PASSED, "test_total"),
        ("pytest -q", FAILED.replace("1 failed", "2 failed") + "\nFAILED tests/test_a.py::test_tax - KeyError: 1", PASSED, "2 "),
        ("npm run build", "Error: no such module", "built", "no such module"),
    ],
    ids=["one test", "several tests", "another command"],
)
async def test_a_failure_is_known_and_settled_whatever_language_it_was_recorded_in(
    before: str, now: str, command: str, failed: str, passed: str, subject: str
):
    numbers = count(1)
    first = lines((await told(broke("e1", command, failed), language=before)).observations, numbers)

    again = await told(ran("e1", command, passed), recorded=first, language=now)
    fixed = await told(edited("e1", "a.py"), ran("e2", command, passed), recorded=first, language=now)

    assert [line.number for line in open_failures(first).values()] == [1]
    assert settled_failures([*first, *lines(again.observations, numbers)]) == {1}
    assert settled_failures([*first, *lines(fixed.observations, numbers)]) == {1}
    assert fixed.observations[0].type == "bugfix"
    assert subject in (fixed.observations[0].title or "")
    assert subject in (again.observations[0].title or "")


@pytest.mark.parametrize("language", LANGUAGES)
async def test_a_commit_is_known_as_one_in_each_language(language: str):
    commit = ran("e2", "git commit -m 'Add a'", "[main 1a2b3c4] Add a\n 1 file changed, 1 insertion(+)")

    given = await told(edited("e1", "a.py"), commit, language=language)

    assert record.is_commit(given.observations[0].facts)


@pytest.mark.parametrize(
    ("language", "first"),
    [("de", "Neu"), ("DE-ch", "Neu"), ("Deutsch", "Neu"), ("german", "Neu"), ("français", "Ajoute"), ("FRANCAIS", "Ajoute"),
     ("fr_FR", "Ajoute"), ("Español (México)", "Añade"), ("en", "Added"), ("Klingon", "Added"), ("日本語", "Added"), ("", "Added")],
)  # fmt: skip
async def test_a_language_goes_by_name_or_code_and_an_unknown_one_is_english(language: str, first: str):
    given = await told(used("e1", "Write", {"file_path": f"{ROOT}/a.py", "content": "x = 1\n"}), language=language)

    assert (given.observations[0].title or "").startswith(f"{first}")


@pytest.mark.parametrize("other", EVERY, ids=LANGUAGES)
def test_every_language_says_everything_with_the_same_blanks(other: Words):
    for name in Words.__struct_fields__:
        ours, theirs = texts(ENGLISH, name), texts(other, name)
        assert all(theirs), name
        assert list(map(blanks, theirs)) == list(map(blanks, ours)), name


def texts(of: Words, name: str) -> list[str]:
    said = cast("str | tuple[str, str]", getattr(of, name))
    return [said] if isinstance(said, str) else list(said)


def blanks(template: str) -> list[str]:
    return sorted(name for _, name, _, _ in string.Formatter().parse(template) if name)


@pytest.mark.parametrize("other", EVERY, ids=LANGUAGES)
def test_what_is_no_failure_does_not_look_like_one(other: Words):
    quiet = [other.flaky, other.passes_again, other.checks, other.looked_at, other.passing]

    assert [text for text in quiet if record.tells_failure(text)] == []


def test_a_language_is_over_with_its_answer():
    with as_wished(Wishes(language="German")):
        inside = words()

    assert inside is known("de")
    assert words() is ENGLISH


# -------------------------------------------------------------------------------------------------------- summary


async def summed_up(language: str = "English", **given: object) -> Answer:
    asked = Prompt(kind="summary", project="orders", root=ROOT, wishes=Wishes(language=language))
    return await answer(msgspec.structs.replace(asked, **given))


@pytest.mark.parametrize(
    ("language", "count_", "notes"),
    [
        ("English", 12, "12 events, none of them worth recording."),
        ("English", 1, "1 event, none of them worth recording."),
        ("German", 12, "12 Ereignisse, nichts davon festhaltenswert."),
    ],
)
async def test_a_session_of_which_nothing_was_recorded_has_a_summary_that_says_so(language: str, count_: int, notes: str):
    end = await summed_up(language, events_in_session=count_)

    assert end.skipped == []
    assert end.summary is not None
    assert (end.summary.notes, end.summary.request, end.summary.completed) == (notes, None, None)


async def test_what_was_recorded_is_not_called_nothing():
    line = Recorded(number=1, type="change", title="Added a in a.py", files_modified=["a.py"])

    end = await summed_up(events_in_session=12, recorded=[line])

    assert end.summary is not None
    assert end.summary.notes == "1 file changed: a.py."


async def test_a_summary_speaks_the_language_whatever_the_record_was_written_in():
    line = Recorded(
        number=1, type="discovery", title="test_a fails: KeyError: 1", facts=["Command: `pytest -q`"], files_read=["a.py", "b.py"]
    )

    end = await summed_up("de", recorded=[line], requests=["Eins", "Zwei", "Drei"], last_message="Fertig.")

    assert end.summary is not None
    assert end.summary.request == "Eins. Zuletzt: Drei (insgesamt 3 Aufträge)."
    assert end.summary.investigated == "Gelesen: a.py und b.py; ausgeführt: `pytest`."
    assert end.summary.next_steps == "Noch offen: test_a fails: KeyError: 1"
    assert end.summary.notes == "Letzte Worte: Fertig."
