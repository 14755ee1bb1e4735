"""What was measured is kept question by question, compared by their ids, and written as it was saved."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.bench.recall import page, results, table
from tests.bench.recall.arms import ARMS, PLAIN_ARMS, SEARCH
from tests.bench.recall.corpus import HALVES, Question
from tests.bench.recall.prompts import Unasked
from tests.bench.recall.results import CorpusResult, Results, Silence, compare, find_saved, read_saved, score_arm
from tests.bench.recall.scores import Answer, Answers
from tests.bench.recall.test_scores import make_question


def _answer(questions: list[Question], ranked: list[list[str]]) -> Answers:
    return {question.id: Answer(ranked=keys, milliseconds=2.0) for question, keys in zip(questions, ranked, strict=True)}


def _corpus(questions: list[Question], **ranked: list[list[str]]) -> CorpusResult:
    return CorpusResult(
        corpus="own",
        half="test",
        described="80 documents",
        questions=[question.id for question in questions],
        kinds=[question.kind for question in questions],
        arms=[score_arm(arm, questions, _answer(questions, keys)) for arm, keys in ranked.items()],
    )


def _results(corpus: CorpusResult, commit: str = "abc1234", at: str = "2026-11-24T0800Z") -> Results:
    unasked = [Unasked(half="test", unrelated=32, silent=0.9, related=32, helped=0.75, useful_lines=0.5)]
    facts = {"embedder": "none", "date": "2026-11-24"}
    return Results(commit=commit, measured_at=at, command="it", measured_with=facts, corpora=[corpus], unasked=unasked)


def _eighty() -> CorpusResult:
    """Eighty questions of which search answers 78, and the plain arms answer 60."""
    questions = [make_question(f"q{n}", [f"d{n}"], kind="why" if n % 2 else "when") for n in range(80)]
    found = [[f"d{n}"] for n in range(80)]
    ranked = {SEARCH: [["x"]] * 2 + found[2:], **{arm: [["x"]] * 20 + found[20:] for arm in PLAIN_ARMS}}
    corpus = _corpus(questions, **ranked)
    silence = Silence(threshold=0.21, strangers=50, refused=0.96, answerable=80, lost=0.05)
    return msgspec.structs.replace(corpus, arms=[msgspec.structs.replace(corpus.arms[0], silence=silence), *corpus.arms[1:]])


def test_an_arm_is_scored_by_depth_and_first_rank():
    questions = [make_question("q1", ["a"], ["b"]), make_question("q2", ["c"])]

    scored = score_arm("x", questions, _answer(questions, [["a", *"vwxyz", "b"], ["x"]]))

    assert scored.recall_5 == [0.5, 0]
    assert scored.recall_10 == [1, 0]
    assert scored.reciprocal_ranks == [1, 0]
    assert scored.p50_ms == 2.0


def test_two_runs_are_compared_by_the_questions_that_both_were_asked():
    questions = [make_question(f"q{n}", [f"d{n}"]) for n in range(3)]
    now = _corpus(questions, search=[["d0"], ["d1"], ["x"]])
    before = _corpus([questions[2], questions[1]], search=[["x"], ["x"]])

    difference = compare(now, now.arms[0], before, before.arms[0])

    assert difference.recall_10.mean == 0.5  # q1 is better, q2 the same, q0 was not asked


def test_the_table_has_each_arm_beside_one_of_them_or_beside_itself_in_another_run():
    ours = _results(_eighty())
    worse = [msgspec.structs.replace(arm, recall_10=[0.0] * 80, first_ranks=[0] * 80) for arm in ours.corpora[0].arms[:2]]
    other = msgspec.structs.replace(ours, corpora=[msgspec.structs.replace(ours.corpora[0], arms=worse)])

    beside_search = table.build_rows(ours, SEARCH)
    beside_other = table.build_rows(ours, "an older commit", other)

    assert [str(row.difference.recall_10) if row.difference else "" for row in beside_search][:2][0] == ""
    assert beside_search[1].cells[1:5] == ["contextify", "0.750", "0.750", "0.750"]
    assert beside_search[1].difference is not None
    assert beside_search[1].difference.recall_10.mean == pytest.approx(-0.225)
    means = [round(row.difference.recall_10.mean, 3) if row.difference else None for row in beside_other]
    assert means == [0.975, 0.75, None, None]


def test_aims_are_judged_by_what_was_measured():
    aims = {aim.name: aim.is_met for aim in table.judge_aims(_results(_eighty()))}

    assert [met for name, met in aims.items() if "surely better" in name] == [True] * len(PLAIN_ARMS)
    assert [met for name, met in aims.items() if name.startswith("prompts")] == [False, True]
    assert [met for name, met in aims.items() if "answerable" in name] == [False]
    assert [met for name, met in aims.items() if "another project" in name] == [True]


def test_what_is_saved_is_found_again_by_the_beginning_of_its_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(results, "MEASURED", tmp_path)
    first, second = _results(_eighty()), _results(_eighty(), commit="def5678", at="2026-11-25T0800Z")

    results.save(second)
    path = results.save(first)
    results.save(msgspec.structs.replace(first, command="again"))

    assert find_saved("abc1") == msgspec.structs.replace(first, command="again")
    assert find_saved("0000") is None
    assert read_saved() == second
    assert len(list(tmp_path.iterdir())) == 2
    assert max(len(line.split()) for line in path.read_text().splitlines()) >= 80  # a list of all questions is one line


def test_the_page_is_made_of_what_was_measured_last():
    saved = read_saved()

    assert page.PAGE.read_text(encoding="utf-8") == page.render(saved), "bin/check --fix"
    ours = [saved.corpus(name, half) for name in ("own", "hard") for half in HALVES]
    assert all(corpus is not None and [arm.arm for arm in corpus.arms] == list(ARMS) for corpus in ours)


def test_the_page_names_kinds_silence_and_what_is_not_met():
    written = page.render(_results(_eighty()))

    assert "when 0.975, why 0.975" in written
    assert "| own, test | search | 96.0% of 50 | 5.0% of 80 |" in written
    assert "| prompts, test: unrelated prompts told nothing, at least 93% | 90.0% | **no** |" in written
