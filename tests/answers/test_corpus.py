"""Answers as models write them, made by hand, and what is to be read in each. The cases are in corpus/*.txt:

    === name of the case
    the answer
    --- gives
    {"observations": [{"title": ..., "events": [...]}], "reasons": {"e3": ...}}

What a case does not mention is empty; an observation without `events` belongs to all three events of the batch. In quoted.txt, \\0
and \\ud800 stand for what no editor shows.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from cmserver.base.structs import reshape
from cmserver.models.providers.model import FailureKind, ProviderError
from tests.answers.read import ReadAnswer, read_answer
from tests.table import try_rows

TAGS = ["e1", "e2", "e3"]


class Gives(ReadAnswer, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    unusable: bool = False


class Case(msgspec.Struct, frozen=True):
    name: str
    answer: str
    gives: Gives


def cases() -> list[Case]:
    found: list[Case] = []
    for file in sorted(Path(__file__).with_name("corpus").glob("*.txt")):
        text = file.read_text(encoding="utf-8")
        if file.stem == "quoted":
            text = text.replace("\\0", "\0").replace("\\ud800", "\ud800")
        for part in f"\n{text}".split("\n=== ")[1:]:
            name, _, rest = part.partition("\n")
            answer, _, gives = rest.rpartition("\n--- gives\n")
            found.append(Case(f"{file.stem}: {name}", answer, expected(gives)))
    return found


def expected(text: str) -> Gives:
    gives = msgspec.json.decode(text, type=Gives)
    for draft in gives.observations:
        draft.events = draft.events or TAGS
    return gives


def found_in(answer: str) -> Gives:
    try:
        return reshape(read_answer(answer, len(TAGS)), Gives)
    except ProviderError as error:
        return Gives(unusable=error.kind is FailureKind.UNUSABLE_ANSWER)


@try_rows("case", cases(), ids=lambda case: case.name)
def test_what_can_be_read_in_an_answer(case: Case):
    assert found_in(case.answer) == case.gives


def test_the_corpus_is_as_large_as_it_should_be_and_no_answer_is_in_it_twice():
    all_cases = cases()

    assert len(all_cases) >= 250
    assert len({case.name for case in all_cases}) == len({case.answer for case in all_cases}) == len(all_cases)
