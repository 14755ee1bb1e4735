"""docs/reference/recall.md, made whole of what was measured and saved."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tests.bench.load import ROOT
from tests.bench.recall.arms import ARMS, OURS
from tests.bench.recall.corpora.history import KINDS
from tests.bench.recall.report import OfHalf, Report, aims, signed
from tests.bench.recall.scores import AIMED_DEPTH, RESAMPLES, Row

PAGE = ROOT / "docs" / "reference" / "recall.md"

_HEAD = f"""# Recall

Written by `bin/bench recall --write`; do not edit. How well search finds what answers a question, beside other ways to rank the
same documents. [How to measure it yourself](../howto/measure-recall.md).

Each question names the facts that its answer needs, and for each the observations that state it. Recall at a depth is counted in
three ways: *any* fact is found, all of them (*strict*), or which part (*fraction*). MRR is the mean of 1/rank of the first
observation that was expected. Search is asked over HTTP, one question after the other, for 20 hits; what it is compared with ranks
by SQL on the same database, where the words of all texts are unpacked beforehand. Milliseconds are those of a request, and for SQL
those of the embedding and the statement. Tokens are those of the answer as an agent reads it, a quarter of its characters. In
brackets stands where 95 of 100 paired resamples of the questions ({RESAMPLES:,} were drawn) have the difference. Weights were
chosen by the half `development`; nobody who did it has seen the questions of the half `test`.
"""

_WRITTEN_FOR_IT = """What coding agents have recorded in half a year of work on one product, a dispatch service in several
languages. It was written for this measurement, before any weight was chosen, and is in `tests/bench/recall/history`: {described}.
"""
_FAILED = f"""Questions of which not everything is among the first {AIMED_DEPTH}, and what is there first instead; and those that
nothing answers and that got hits.
"""


def write(reports: Sequence[Report]) -> None:
    PAGE.write_text(text(reports), encoding="utf-8")


def text(reports: Sequence[Report]) -> str:
    """The first report is told in full, others by their main table."""
    parts = [_HEAD, "## What is compared\n", _table(["arm", ""], [[f"`{name}`", arm.what] for name, arm in ARMS.items()])]
    for report in reports[:1]:
        parts += _in_full(report)
    for report in reports[1:]:
        parts += _in_short(report)
    return "\n".join(parts).rstrip() + "\n"


def _in_full(report: Report) -> list[str]:
    kinds = [[kind, what, *(str(half.kinds.get(kind, 0)) for half in report.halves)] for kind, what in KINDS.items()]
    parts = [
        "## The corpus\n",
        _WRITTEN_FOR_IT.format(described=report.described),
        _table(["kind", "a question that", *(half.half for half in report.halves)], kinds),
        _measured(report),
    ]
    if test := report.half("test"):
        parts += [
            "## Aims, on the half `test`\n",
            _table(["aim", "measured", "met"], [[one.name, one.measured, "yes" if one.is_met else "**no**"] for one in aims(test)]),
        ]
    for half in reversed(report.halves):
        parts += [f"## The half `{half.half}`\n", _arms(half), f"Strict recall@{AIMED_DEPTH} by kind:\n", _by_kind(half)]
        parts += ["What the minimum score does:\n", _minimum(half)]
    if test:
        parts += ["## Failures of the half `test`\n", _failures(test)]
    return parts


def _in_short(report: Report) -> list[str]:
    parts = [f"## {report.corpus}\n", f"{report.described}.\n", _measured(report)]
    for half in reversed(report.halves):
        parts += [f"The half `{half.half}`:\n", _arms(half), f"Strict recall@{AIMED_DEPTH} by kind:\n", _by_kind(half)]
    return parts


def _measured(report: Report) -> str:
    facts = [["command", f"`{report.command}`"], *([name, value] for name, value in report.measured_with.items())]
    return _table(["", ""], facts)


def _arms(half: OfHalf) -> str:
    head = ["arm", "any@5/10/20", "strict@5/10/20", "fraction@5/10/20", "MRR", "p50, p99 ms", "tokens"]
    head += [f"`{OURS}` better by, strict recall@{AIMED_DEPTH}", f"`{OURS}` better by, MRR"]
    return _table(head, (_arm(row) for row in half.rows))


def _arm(row: Row) -> list[str]:
    return [
        f"`{row.arm}`",
        *(" ".join(f"{value:.3f}" for value in of.values()) for of in (row.any, row.strict, row.fractional)),
        f"{row.mrr:.3f}",
        f"{row.p50_ms:.1f}, {row.p99_ms:.1f}",
        "" if row.tokens is None else f"{row.tokens:.0f}",
        signed(row.ours_above_recall) if row.ours_above_recall else "",
        signed(row.ours_above_mrr) if row.ours_above_mrr else "",
    ]


def _by_kind(half: OfHalf) -> str:
    kinds = list(half.ours_by_kind or (half.rows[0].strict_by_kind if half.rows else {}))
    rows = [[f"`{row.arm}`", *(f"{row.strict_by_kind[kind]:.3f}" for kind in kinds)] for row in half.rows]
    if half.ours_by_kind:
        sure = (f"{one.low:.2f} to {one.high:.2f}" for one in half.ours_by_kind.values())
        rows.insert(1, [f"`{OURS}`, 95 of 100", *sure])
    return _table(["arm", *(f"{kind} ({half.kinds[kind]})" for kind in kinds)], rows)


def _minimum(half: OfHalf) -> str:
    rows = [
        [f"`{row.arm}`", "" if row.unanswerable_empty is None else f"{row.unanswerable_empty:.3f}", f"{row.answerable_empty:.3f}"]
        for row in half.rows
    ]
    table = _table(["arm", "unanswerable, answered with nothing", "answerable, answered with nothing"], rows)
    if half.lost is None:
        return table
    return f"{table}\nAnswered in full among the first {AIMED_DEPTH} without the minimum score, and not with it: {half.lost:.1%}.\n"


def _failures(half: OfHalf) -> str:
    rows = [[one.question, one.kind, one.found, "; ".join(map(_cell, one.instead)) or "nothing"] for one in half.failures]
    return _FAILED + "\n" + _table(["question", "kind", "found", "instead"], rows)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _cell(title: str) -> str:
    return title.replace("|", "\\|").replace("\n", " ")
