"""The labelled set, and the figures that come of it: with a provider that is right, one that is wrong, and one that fails."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from decimal import Decimal

import msgspec

from cmserver.models.providers.model import Answer, Completion, DraftObservation, FailureKind, Prompt, ProviderError, Skip
from cmserver.observations.model import TYPES
from tests.evaluation.cases import Case, Event, cases, payload
from tests.evaluation.evaluate import evaluate
from tests.house.evaluation_page import evaluation_page
from tests.house.pages import REFERENCE, present
from tests.rules.as_model import RulesAsModel
from tests.table import try_rows

ALL = [(case, event) for case in cases() for event in case.events]


class ScriptedProvider:
    """A provider that answers from a script, and remembers the prompts."""

    name = "scripted"
    model = "scripted-1"

    def __init__(self, answer: Callable[[Prompt], Answer | str | ProviderError]) -> None:
        self.answer = answer
        self.prompts: list[Prompt] = []

    async def complete(self, prompt: Prompt) -> Completion:
        self.prompts.append(prompt)
        answer = self.answer(prompt)
        if isinstance(answer, ProviderError):
            raise answer
        text = answer if isinstance(answer, str) else msgspec.json.encode(answer).decode()
        return Completion(
            text=text, model=self.model, input_tokens=100, cache_read_tokens=40, output_tokens=10, cost_usd=Decimal("0.01")
        )


def case(*events: Event) -> Case:
    return Case(project="orders", cwd="/srv/orders", requests=["Fix it."], events=list(events), name="a-case")


def kept(file: str) -> Event:
    return Event(label="keep", types=["bugfix"], files=[file], edited=file, old="a\n", new="b\n")


LISTING = Event(label="skip", ran="ls", output="a.py")
ANY = Event(label="either", ran="pytest -q", output="1 passed in 0.1s")


def observing(type_: str, *files: str, events: list[str]) -> DraftObservation:
    return DraftObservation(type=type_, title="Something", files_modified=list(files), events=events)


# -------------------------------------------------------------------------------------------------------- the set


def test_the_set_is_large_and_as_much_to_skip_as_to_keep():
    labels = Counter(event.label for _, event in ALL)

    assert labels["keep"] + labels["skip"] >= 80
    assert min(labels["keep"], labels["skip"]) >= 40
    assert 10 <= len(cases()) <= 20
    assert {session.agent for session in cases()} == {"claude-code", "codex", "gemini"}


@try_rows("session", cases(), ids=lambda session: session.name)
def test_each_label_says_what_it_has_to(session: Case):
    assert 5 <= len(session.events) <= 10
    for event in session.events:
        assert set(event.types) <= TYPES
        assert (event.label == "keep") <= bool(event.types), event.shown
        assert (event.label == "skip") <= (not event.types and not event.files), event.shown
        assert not any(path.startswith("/") for path in event.files), event.shown


def test_a_short_form_becomes_what_the_hook_sends():
    edit = kept("a.py")
    broken = Event(label="skip", ran="ls x", failed="Exit code 2\nno such file\n")

    sent, failed = payload(case(edit), edit), payload(case(broken), broken)

    assert (sent["hook_event_name"], sent["tool_name"], sent["cwd"]) == ("PostToolUse", "Edit", "/srv/orders")
    assert sent["tool_input"] == {"file_path": "/srv/orders/a.py", "old_string": "a\n", "new_string": "b\n", "replace_all": False}
    assert (failed["hook_event_name"], failed["error"]) == ("PostToolUseFailure", "Exit code 2\nno such file")
    assert "tool_response" not in failed


# ---------------------------------------------------------------------------------------------------- the figures


async def test_a_provider_that_is_right_has_full_marks():
    right = ScriptedProvider(
        lambda _: Answer(
            observations=[observing("bugfix", "a.py", "b.py", events=["e1", "e2", "e4"])],
            skipped=[Skip(event="e3", reason="a listing")],
        )
    )

    report = await evaluate(right, sessions=[case(kept("a.py"), kept("b.py"), LISTING, ANY)])

    assert (report.precision, report.recall, report.f1, report.type_accuracy, report.file_recall) == (1, 1, 1, 1, 1)
    assert (report.events, report.right_kept, report.right_skipped, report.missed, report.wrong_kept) == (3, 2, 1, 0, 0)
    assert (report.input_tokens, report.cached_tokens, report.output_tokens, report.cost_usd) == (140, 40, 10, Decimal("0.01"))
    assert (report.calls, report.failed_calls, report.observations, report.model) == (1, 0, 1, "scripted-1")


async def test_each_kind_of_mistake_is_told_by_its_own_figure():
    wrong = ScriptedProvider(
        lambda _: Answer(
            observations=[
                observing("bugfix", "a.py", events=["e1"]),
                observing("feature", events=["e2"]),
                observing("change", events=["e4"]),
            ],
            skipped=[Skip(event="e3", reason="too small")],
        )
    )
    other = Event(label="keep", types=["bugfix"], files=["never.sql"], ran="psql -f never.sql", output="ok")

    report = await evaluate(wrong, sessions=[case(kept("a.py"), other, kept("c.py"), LISTING)])

    assert (report.precision, report.recall) == (0.667, 0.667)
    assert (report.type_accuracy, report.file_recall) == (0.5, 0.5)
    assert [event.reason for event in report.judged if event.label == "keep" and not event.kept] == ["too small"]


async def test_a_call_that_fails_is_counted_and_its_events_are_missed():
    paid = Completion(text="No.", model="scripted-1", input_tokens=7, output_tokens=3, cost_usd=Decimal("0.5"))
    answers = iter(
        [
            Answer(observations=[observing("bugfix", events=["e1"])]),
            ProviderError(FailureKind.REFUSED, "scripted refused.", completion=paid),
            "no answer in any format",
        ]
    )

    report = await evaluate(ScriptedProvider(lambda _: next(answers)), sessions=[case(kept("a.py"))] * 3)

    assert (report.calls, report.failed_calls, report.missed, report.recall) == (3, 2, 2, 0.333)
    assert (report.input_tokens, report.cost_usd) == (140 + 7 + 140, Decimal("0.52"))
    assert [event.asked for event in report.judged] == [True, False, False]


async def test_nothing_kept_at_all_is_no_figure():
    report = await evaluate(
        ScriptedProvider(lambda prompt: Answer(skipped=[Skip(event=tag, reason="no") for tag in prompt.tags])),
        sessions=[case(LISTING)],
    )

    assert (report.precision, report.recall, report.type_accuracy, report.right_skipped) == (None, None, None, 1)


async def test_the_prompts_are_the_ones_of_generation():
    scripted = ScriptedProvider(lambda _: Answer(skipped=[Skip(event="summary", reason="nothing")]))

    await evaluate(scripted, verbosity="verbose", language="German", event_tokens=99)

    first = scripted.prompts[0]
    assert len(scripted.prompts) == len(cases())
    assert (first.kind, first.project, first.root, first.event_tokens) == ("observations", "orders", "/home/alice/src/orders", 99)
    assert (first.preferences.verbosity, first.preferences.language) == ("verbose", "German")
    assert first.tags == [f"e{number}" for number in range(1, 10)]
    assert first.events[1].has_failed
    assert [prompt.recorded[0].number for prompt in scripted.prompts if prompt.recorded] == [311]


# ------------------------------------------------------------------------------------------- the offline provider


async def test_the_offline_provider_tells_more_the_more_is_asked_for():
    minimal, normal, verbose = [
        await evaluate(RulesAsModel(), verbosity=verbosity) for verbosity in ("minimal", "normal", "verbose")
    ]

    assert minimal.observations < normal.observations == verbose.observations
    assert (minimal.recall or 0) < (normal.recall or 0) == (verbose.recall or 0)
    assert (normal.precision or 0) > 0.7
    assert (normal.recall or 0) > 0.6


async def test_the_language_changes_words_and_no_figure():
    english, german = await evaluate(RulesAsModel()), await evaluate(RulesAsModel(), language="Deutsch")

    assert msgspec.structs.replace(german, language="English", judged=[]) == msgspec.structs.replace(english, judged=[])


def test_the_figures_in_the_reference_are_those_of_today():
    assert present(REFERENCE / "evaluation.md") == evaluation_page(), "bin/check --fix writes it anew"
