"""Questions of another project, and what the threshold of the confidence makes of them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tests.bench.recall.corpus import Corpus, Document, Question, Session
from tests.bench.recall.scores import Answer
from tests.bench.recall.silence import MIN_CONFIDENCE, find_strangers, judge
from tests.bench.recall.test_scores import make_question

_AT = datetime(2026, 3, 1, tzinfo=UTC)


def _corpus(name: str, *projects: str, questions: list[Question]) -> Corpus:
    sessions = [Session(name=f"{name}-{project}", project=project, agent="codex", started_at=_AT) for project in projects]
    documents = [Document(key=f"{session.name}/1", session=session.name, created_at=_AT) for session in sessions]
    return Corpus(name=name, sessions=sessions, documents=documents, questions=questions)


def test_strangers_are_asked_in_the_next_project_of_their_corpus():
    questions = [make_question("a1", ["a"], project="a"), make_question("b1", ["b"], project="b"), make_question("b2", project="b")]

    strangers = find_strangers(_corpus("talks", "a", "b", questions=questions), [], "development")

    assert [(stranger.id, stranger.project) for stranger in strangers] == [("a1", "b"), ("b1", "a")]


def test_a_corpus_of_one_project_is_asked_the_questions_of_the_others_evenly():
    own = _corpus("own", "p", questions=[make_question("mine", ["x"])])
    talks = _corpus("talks", "a", "b", questions=[make_question(f"q{n}", ["a"], project="a") for n in range(500)])

    strangers = find_strangers(own, [own, talks], "development")

    assert len(strangers) == 200
    assert [stranger.id for stranger in strangers][:3] == ["q0", "q2", "q5"]
    assert {stranger.project for stranger in strangers} == {"p"}


def test_both_shares_count_what_is_below_the_threshold():
    questions = [make_question(f"q{n}", ["x"]) for n in range(4)]
    low, high = MIN_CONFIDENCE - 0.01, MIN_CONFIDENCE
    answers = {
        question.id: Answer(ranked=[], milliseconds=1, confidence=low if question.id == "q0" else high) for question in questions
    }

    silence = judge(questions, answers, [low, low, high])

    assert silence is not None
    assert (silence.lost, silence.refused) == (0.25, pytest.approx(2 / 3, abs=1e-4))
    assert (silence.answerable, silence.strangers) == (4, 3)


def test_without_a_confidence_nothing_is_judged():
    question = make_question("q", ["x"])

    assert judge([question], {"q": Answer(ranked=[], milliseconds=1)}, [0.1]) is None
    assert judge([question], {"q": Answer(ranked=[], milliseconds=1, confidence=0.5)}, [None]) is None
