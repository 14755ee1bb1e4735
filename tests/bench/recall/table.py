"""The figures of a run in one table, beside another arm or another commit, and the aims."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import msgspec

from tests.bench.recall.arms import PLAIN_ARMS, SEARCH
from tests.bench.recall.prompts import HELPED_AT_LEAST, SILENT_AT_LEAST
from tests.bench.recall.results import ArmResult, CorpusResult, Difference, Results, compare, recall_by_kind
from tests.bench.recall.silence import LOST_AT_MOST, REFUSED_AT_LEAST


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """An arm in one half of a corpus. `difference` is None for what it would be compared with itself."""

    corpus: CorpusResult
    arm: ArmResult
    difference: Difference | None

    @property
    def cells(self) -> list[str]:
        arm, difference = self.arm, self.difference
        means = [f"{fmean(values):.3f}" for values in (arm.recall_5, arm.recall_10, arm.reciprocal_ranks)]
        differences = ["", ""] if difference is None else [str(difference.recall_10), str(difference.reciprocal_rank)]
        return [f"{self.corpus.corpus}, {self.corpus.half}", arm.arm, *means, f"{arm.p50_ms:.1f}", *differences]


class Aim(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of search and of what is told unasked."""

    name: str
    measured: str
    is_met: bool


def build_head(against: str) -> list[str]:
    return ["corpus", "arm", "R@5", "R@10", "MRR", "p50 ms", f"R@10 less {against}", f"MRR less {against}"]


def build_rows(results: Results, arm: str, other: Results | None = None) -> list[Row]:
    """Each arm beside `arm` of the same run; with `other`, beside itself there."""
    rows: list[Row] = []
    for corpus in results.corpora:
        base_corpus = corpus if other is None else other.corpus(corpus.corpus, corpus.half)
        for result in corpus.arms:
            base = base_corpus.arm(arm if other is None else result.arm) if base_corpus else None
            is_itself = base is None or base is result
            difference = None if is_itself or base_corpus is None or base is None else compare(corpus, result, base_corpus, base)
            rows.append(Row(corpus=corpus, arm=result, difference=difference))
    return rows


def build_kind_rows(results: Results, arm: str) -> list[list[str]]:
    """Of one arm, recall among the first ten by the kind of the question."""
    return [
        [f"{corpus.corpus}, {corpus.half}", ", ".join(f"{kind} {value:.3f}" for kind, value in recall_by_kind(corpus, row).items())]
        for corpus in results.corpora
        if (row := corpus.arm(arm))
    ]


def build_silence_rows(results: Results) -> list[list[str]]:
    """Of each arm whose confidence was judged: what the threshold keeps silent."""
    return [
        [
            f"{corpus.corpus}, {corpus.half}",
            arm.arm,
            f"{arm.silence.refused:.1%} of {arm.silence.strangers}",
            f"{arm.silence.lost:.1%} of {arm.silence.answerable}",
        ]
        for corpus in results.corpora
        for arm in corpus.arms
        if arm.silence
    ]


SILENCE_HEAD = ["corpus", "arm", "questions of another project refused", "answerable questions lost"]


def build_unasked_rows(results: Results) -> list[list[str]]:
    return [
        [
            figures.half,
            f"{figures.silent:.1%} of {figures.unrelated}",
            f"{figures.helped:.1%} of {figures.related}",
            f"{figures.useful_lines:.1%}",
        ]
        for figures in results.unasked
    ]


UNASKED_HEAD = ["half", "unrelated prompts told nothing", "related prompts told a useful line", "lines that are useful"]


def judge_aims(results: Results) -> list[Aim]:
    """Those that can be judged by what was measured."""
    return [*_judge_recall(results), *_judge_silence(results), *_judge_unasked(results)]


def _judge_recall(results: Results) -> list[Aim]:
    aims: list[Aim] = []
    for corpus in results.corpora:
        search = corpus.arm(SEARCH)
        for name in PLAIN_ARMS:
            plain = corpus.arm(name)
            if search and plain:
                recall = compare(corpus, search, corpus, plain).recall_10
                title = f"{corpus.corpus}, {corpus.half}: R@10 surely better than `{name}`"
                aims.append(Aim(name=title, measured=str(recall), is_met=recall.low > 0))
    return aims


def _judge_silence(results: Results) -> list[Aim]:
    aims: list[Aim] = []
    for corpus in results.corpora:
        search = corpus.arm(SEARCH)
        if search is None or search.silence is None:
            continue
        lost, refused = search.silence.lost, search.silence.refused
        place = f"{corpus.corpus}, {corpus.half}"
        name = f"{place}: at most {LOST_AT_MOST:.1%} of the answerable questions below the threshold"
        aims.append(Aim(name=name, measured=f"{lost:.1%}", is_met=lost <= LOST_AT_MOST))
        if least := REFUSED_AT_LEAST.get(corpus.corpus):
            name = f"{place}: at least {least:.0%} of the questions of another project below it"
            aims.append(Aim(name=name, measured=f"{refused:.1%}", is_met=refused >= least))
    return aims


def _judge_unasked(results: Results) -> list[Aim]:
    aims: list[Aim] = []
    for figures in results.unasked:
        pairs = [("unrelated prompts told nothing", figures.silent, SILENT_AT_LEAST)]
        pairs.append(("related prompts told a useful line", figures.helped, HELPED_AT_LEAST))
        for what, share, least in pairs:
            name = f"prompts, {figures.half}: {what}, at least {least:.0%}"
            aims.append(Aim(name=name, measured=f"{share:.1%}", is_met=share >= least))
    return aims


def render_text(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns for the terminal."""
    widths = [max(len(row[place]) for row in [head, *rows]) for place in range(len(head))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in [head, *rows])
    return "\n".join(lines) + "\n"


def render_markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"
