"""What was measured of one corpus: kept as a file, shown on the terminal, and a part of docs/reference/recall.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import msgspec

from tests.bench.recall import scores
from tests.bench.recall.arms import AIMED, OURS, UNBOUND
from tests.bench.recall.corpus import Corpus, Half, Question, span
from tests.bench.recall.scores import AIMED_DEPTH, Answers, Interval, Row

MEASURED = Path(__file__).parent / "measured"
AHEAD_AT_LEAST = 0.05
EMPTY_AT_LEAST, LOST_AT_MOST = 0.8, 0.03
_INSTEAD = 3


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A question that was not answered in full by the first hits, and what these were; one without an answer that has got hits."""

    question: str
    kind: str
    found: str
    """How much of what was needed."""
    instead: list[str]


class OfHalf(msgspec.Struct, frozen=True, kw_only=True):
    """`kinds` counts the questions. `lost` is what the minimum score costs the answerable ones."""

    half: Half
    kinds: dict[str, int]
    rows: list[Row]
    ours_by_kind: dict[str, Interval]
    """Strict recall of search as it is."""
    lost: float | None
    failures: list[Failure]

    def row(self, arm: str) -> Row | None:
        return next((row for row in self.rows if row.arm == arm), None)


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """`described` says what the corpus is, `measured_with` what it was asked on."""

    corpus: str
    described: str
    command: str
    measured_with: dict[str, str]
    halves: list[OfHalf]

    def half(self, half: Half) -> OfHalf | None:
        return next((one for one in self.halves if one.half == half), None)


class Aim(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of search, on questions that no weight was chosen by."""

    name: str
    measured: str
    is_met: bool


def of_half(half: Half, corpus: Corpus, questions: Sequence[Question], answers: dict[str, Answers]) -> OfHalf:
    known = [one for one in questions if one.is_answerable]
    lines = {one.key: one.line for one in corpus.documents}
    by_kind = {kind: [one for one in known if one.kind == kind] for kind in dict.fromkeys(one.kind for one in known)}
    mine = answers.get(OURS)
    return OfHalf(
        half=half,
        kinds=dict(Counter(one.kind for one in questions)),
        rows=scores.rows(questions, answers, OURS),
        ours_by_kind={kind: _strict(of, mine) for kind, of in by_kind.items()} if mine else {},
        lost=scores.lost(questions, mine, answers[UNBOUND]) if mine and UNBOUND in answers else None,
        failures=_failures(questions, mine, lines) if mine else [],
    )


def describe(corpus: Corpus) -> str:
    words = f"{len(corpus.documents):,} documents in {len(corpus.sessions):,} sessions over {span(corpus).days:,} days"
    projects = len(corpus.projects)
    return f"{words}{f', {projects} projects' if projects > 1 else ''}; {len(corpus.questions):,} questions"


def aims(of: OfHalf) -> list[Aim]:
    """Those that can be judged by the arms that were asked."""
    found: list[Aim] = []
    for arm in AIMED:
        row = of.row(arm)
        if row and row.ours_above_recall and row.ours_above_mrr:
            recall, mrr = row.ours_above_recall, row.ours_above_mrr
            found.append(
                Aim(
                    name=f"surely better than `{arm}`, by at least {AHEAD_AT_LEAST} of strict recall@{AIMED_DEPTH}, and in MRR",
                    measured=f"{signed(recall)}; MRR {signed(mrr)}",
                    is_met=round(recall.mean, 4) >= AHEAD_AT_LEAST and recall.low > 0 and mrr.low > 0,
                )
            )
    ours = of.row(OURS)
    if ours and ours.unanswerable_empty is not None:
        found.append(
            Aim(
                name=f"nothing for at least {EMPTY_AT_LEAST:.0%} of what nothing answers",
                measured=f"{ours.unanswerable_empty:.1%}",
                is_met=ours.unanswerable_empty >= EMPTY_AT_LEAST,
            )
        )
    if of.lost is not None:
        found.append(
            Aim(
                name=f"the minimum score costs at most {LOST_AT_MOST:.0%} of what can be answered",
                measured=f"{of.lost:.1%}",
                is_met=of.lost <= LOST_AT_MOST,
            )
        )
    return found


def save(report: Report) -> None:
    MEASURED.mkdir(exist_ok=True)
    written = msgspec.json.format(msgspec.json.encode(_rounded(msgspec.to_builtins(report))), indent=1)
    (MEASURED / f"{report.corpus}.json").write_bytes(written + b"\n")


def saved(corpora: Sequence[str]) -> list[Report]:
    """Of those of the corpora that were measured, in their order."""
    files = [MEASURED / f"{corpus}.json" for corpus in corpora]
    return [msgspec.json.decode(one.read_bytes(), type=Report) for one in files if one.exists()]


def signed(interval: Interval) -> str:
    return f"{interval.mean:+.3f} [{interval.low:+.3f}, {interval.high:+.3f}]"


def terminal(of: OfHalf) -> str:
    """The half as it is printed."""
    asked = sum(of.kinds.values())
    head = f"{'arm':15}{'any@5/10/20':>20}{'strict@5/10/20':>20}{'fraction@5/10/20':>20}{'MRR':>7}{'p50':>7}{'p99':>7}"
    head += f"{'tokens':>8}{'empty':>7}{'none*':>7}   ours - it: recall@{AIMED_DEPTH}, MRR"
    lines = [f"half {of.half}: {asked} questions (empty: the answerable that got nothing, none*: the unanswerable)", head]
    for row in of.rows:
        recalls = "".join(f"{_three(one):>20}" for one in (row.any, row.strict, row.fractional))
        tokens = "" if row.tokens is None else f"{row.tokens:.0f}"
        none = "" if row.unanswerable_empty is None else f"{row.unanswerable_empty:.2f}"
        above = f"{signed(row.ours_above_recall)}, " if row.ours_above_recall else ""
        above += signed(row.ours_above_mrr) if row.ours_above_mrr else ""
        lines.append(
            f"{row.arm:15}{recalls}{row.mrr:7.3f}{row.p50_ms:7.1f}{row.p99_ms:7.1f}{tokens:>8}{row.answerable_empty:7.2f}"
            f"{none:>7}   {above}"
        )
    kinds = [kind for kind in of.kinds if of.rows and kind in of.rows[0].strict_by_kind]
    lines += ["", f"{f'strict@{AIMED_DEPTH}':15}" + "".join(f"{f'{kind} {of.kinds[kind]}':>16}" for kind in kinds)]
    lines += [f"{row.arm:15}" + "".join(f"{row.strict_by_kind[kind]:16.3f}" for kind in kinds) for row in of.rows]
    lines += ["", *(f"{'ok ' if one.is_met else 'NOT'}  {one.name}: {one.measured}" for one in aims(of)), ""]
    return "\n".join(lines)


def failures(of: OfHalf) -> str:
    """Line by line, as they are printed: the question, how much of it was found, and what came first instead."""
    found = (f"{one.question:16}{one.kind:14}{one.found:8}{' | '.join(one.instead)}" for one in of.failures)
    return "\n".join(
        [f"not in full among the first {AIMED_DEPTH}, or found though nothing answers it, and what was first:", *found, ""]
    )


def _strict(questions: Sequence[Question], answers: Answers) -> Interval:
    found = [scores.all_found(one, answers[one.id].ranked, AIMED_DEPTH) for one in questions]
    return scores.intervals([found])[0]


def _failures(questions: Sequence[Question], answers: Answers, lines: Mapping[str, str]) -> list[Failure]:
    failed: list[Failure] = []
    for one in questions:
        ranked = answers[one.id].ranked
        needed = len(one.expects)
        found = round(scores.share_found(one, ranked, AIMED_DEPTH) * needed) if needed else 0
        if (ranked and not needed) or found < needed:
            wanted = {key for group in one.expects for key in group}
            instead = [lines.get(key, "a prompt") for key in ranked if key not in wanted][:_INSTEAD]
            failed.append(Failure(question=one.id, kind=one.kind, found=f"{found} of {needed}" if needed else "", instead=instead))
    return failed


def _three(by_depth: Mapping[int, float]) -> str:
    return " ".join(f"{value:.3f}" for value in by_depth.values())


def _rounded(found: object) -> object:
    """So that a file is read, and its differences, too."""
    if isinstance(found, float):
        return round(found, 4)
    if isinstance(found, dict):
        return {name: _rounded(value) for name, value in cast("dict[str, object]", found).items()}
    if isinstance(found, list):
        return [_rounded(value) for value in cast("list[object]", found)]
    return found
