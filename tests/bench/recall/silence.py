"""How well the confidence of an answer tells questions about a project from those about another one."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tests.bench.recall.corpus import Corpus, Half, Question
from tests.bench.recall.results import Silence
from tests.bench.recall.scores import Answers

MIN_CONFIDENCE = 0.21
"""A question with less is taken for one about another project. What is told unasked needs more: see `prompts.py`."""
REFUSED_AT_LEAST = {"own": 0.9, "hard": 0.9}
"""The share of strangers' questions. Of the talks of other corpora half are about what everybody talks of."""
LOST_AT_MOST = 0.045
_STRANGERS = 200


def find_strangers(corpus: Corpus, corpora: Sequence[Corpus], half: Half) -> list[Question]:
    """Up to 200 questions of the half that are about another project, each put to a project of the corpus.

    They come from the corpus's own next project. A corpus of a single project gets those of the other corpora.
    """
    projects = corpus.projects
    own = {question.project for question in corpus.questions}
    if len(projects) > 1:
        after = dict(zip(projects, [*projects[1:], projects[0]], strict=True))
        strangers = [
            msgspec.structs.replace(question, project=after[question.project])
            for question in corpus.of_half(half)
            if question.is_answerable
        ]
    else:
        strangers = [
            msgspec.structs.replace(question, project=projects[0])
            for other in corpora
            for question in other.of_half(half)
            if question.is_answerable and question.project not in own and other.name != "scripts"  # no letter is known here
        ]
    step = max(len(strangers) / _STRANGERS, 1.0)
    return [strangers[int(place * step)] for place in range(min(_STRANGERS, len(strangers)))]


def judge(questions: Sequence[Question], answers: Answers, strangers: Sequence[float | None]) -> Silence | None:
    """None where the server knows no confidence, or there are no strangers."""
    own = [answers[question.id].confidence for question in questions]
    own_known = [value for value in own if value is not None]
    strangers_known = [value for value in strangers if value is not None]
    if len(own_known) < len(own) or not own_known or not strangers_known:
        return None
    return Silence(
        threshold=MIN_CONFIDENCE,
        strangers=len(strangers_known),
        refused=round(sum(value < MIN_CONFIDENCE for value in strangers_known) / len(strangers_known), 4),
        answerable=len(own_known),
        lost=round(sum(value < MIN_CONFIDENCE for value in own_known) / len(own_known), 4),
    )
