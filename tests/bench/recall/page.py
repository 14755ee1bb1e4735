"""docs/reference/recall.md, made whole of what was measured and saved last."""

from __future__ import annotations

from tests.bench.load import ROOT
from tests.bench.recall import table
from tests.bench.recall.arms import ARMS, SEARCH
from tests.bench.recall.corpora.history import HARD_KINDS, KINDS, SCRIPT_KINDS
from tests.bench.recall.results import Results
from tests.bench.recall.scores import RESAMPLES

PAGE = ROOT / "docs" / "reference" / "recall.md"

_HEAD = f"""# Recall

Written by `bin/bench recall --write`; do not edit. How well search finds what answers a question, beside other ways to rank the
same documents. [How to measure it yourself](../howto/measure-recall.md).

Each question names the facts that its answer needs, and for each the documents that state it. R@5 and R@10 are the share of these
facts among the first 5 and 10 hits. MRR is the mean of 1/rank of the first document that was expected, among 20 hits. Search is
asked over HTTP, one question after the other; what it is compared with ranks by SQL on the same database, where the words of all
texts are unpacked beforehand. Milliseconds are those of a request, and for SQL those of the embedding and the statement. In
brackets stands where 95 of 100 paired resamples of the questions ({RESAMPLES:,} are drawn) have the difference. Constants are
chosen by the half `development` of several corpora at once; nobody who does it sees the questions of the half `test`.
"""
_CORPORA = """`own` is what coding agents have recorded in half a year of work on one product, a dispatch service in several
languages, with questions in the kinds below. It was written for this measurement, before any constant was chosen
(`tests/bench/recall/history`). `hard` has other questions about the same documents, which are difficult on purpose.
`scripts` is a small memory in Chinese, Japanese and Thai.
`locomo` is [LoCoMo](https://github.com/snap-research/locomo): conversations of two people, with a document for each turn. `beam` is
[BEAM](https://github.com/mohammadtavakoli78/BEAM): long chats, with a document for each message.
"""
_SILENCE = """A search says its `confidence`: how likely the question is about this project at all. Here questions are asked in the
project of somebody else: those below the threshold would be refused, and with them the share of answerable questions in the last
column. Only what is told unasked has a threshold; a search hides nothing.
"""
_UNASKED = """The labelled prompts of `tests/recall/history`, each typed into a session of its own
([how they were labelled](../why/context-on-a-prompt.md)).
"""


def write(results: Results) -> None:
    PAGE.write_text(render(results), encoding="utf-8")


def render(results: Results) -> str:
    """The page."""
    corpora = {corpus.corpus: corpus.described for corpus in results.corpora}
    all_kinds = KINDS | HARD_KINDS | SCRIPT_KINDS
    kinds = [[kind, what] for kind, what in all_kinds.items() if any(kind in corpus.kinds for corpus in results.corpora)]
    facts = {"command": f"`{results.command}`", "commit": results.commit, **results.measured_with}
    parts = [
        _HEAD,
        "## What is compared\n",
        table.render_markdown(["arm", ""], [[f"`{name}`", arm.what] for name, arm in ARMS.items()]),
        "## The corpora\n",
        _CORPORA,
        table.render_markdown(["corpus", ""], [[name, described] for name, described in corpora.items()]),
        table.render_markdown(["kind", "a question that"], kinds),
        "## Figures\n",
        table.render_markdown(table.build_head(f"`{SEARCH}`"), [row.cells for row in table.build_rows(results, SEARCH)]),
        f"R@10 of `{SEARCH}` by kind:\n",
        table.render_markdown(["corpus", "R@10"], table.build_kind_rows(results, SEARCH)),
    ]
    if silence := table.build_silence_rows(results):
        parts += ["## Questions about another project\n", _SILENCE, table.render_markdown(table.SILENCE_HEAD, silence)]
    if unasked := table.build_unasked_rows(results):
        parts += ["## What is told unasked\n", _UNASKED, table.render_markdown(table.UNASKED_HEAD, unasked)]
    aims = [[aim.name, aim.measured, "yes" if aim.is_met else "**no**"] for aim in table.judge_aims(results)]
    parts += ["## Aims\n", table.render_markdown(["aim", "measured", "met"], aims)]
    parts += ["## Measured with\n", table.render_markdown(["", ""], [[name, value] for name, value in facts.items()])]
    return "\n".join(parts).rstrip() + "\n"
