"""The reference page on evaluation: what the labelled set is, and how the offline provider does on it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

from cmserver.models.providers.model import Verbosity
from tests.evaluation.cases import cases
from tests.evaluation.evaluate import EvaluationReport, count_by_type, evaluate, format_percent
from tests.rules.as_model import RulesAsModel

_PAGE = """\
# Evaluation

`bin/bench generation`, in a clone, shows a provider {events} events of {sessions} made-up sessions, one call for each session,
through the prompt and the parser that workers use, and compares what it keeps with labels that were given by hand. It needs no
server and no database. The sessions are in `tests/evaluation/sessions/`; the README there says how labels were given.
{keep} events are to be kept, {skip} are to be skipped; the other {either} may be either, and are not counted.

```sh
bin/bench generation                                   # the configured provider
bin/bench generation --provider anthropic --verbose    # another one, with each event that went wrong
bin/bench generation --json                            # the whole report
```

## The figures

- **Precision**: of the events that were kept (at least one observation names them), how many are labelled so.
- **Recall**: of the events that are labelled to be kept, how many were. A call that fails keeps nothing, and is counted beside it.
- **F1**: the harmonic mean of both.
- **Type accuracy**: of the events that were rightly kept, how many have an observation of a type that is right for them.
- **File recall**: of the files that the observations of those events have to name, how many are named.

## The offline provider

| Verbosity | Precision | Recall | F1 | Type accuracy | File recall | Observations |
|---|---:|---:|---:|---:|---:|---:|
{rows}

At `minimal` much of what is labelled to be kept is left out on purpose. Rules see what was done and not what it means: they miss
what was found out by reading, by asking a database or another machine, and they take a decision that was written into a file for a
change. `verbose` keeps the same events as `normal`, with more facts of each.
At `normal`, of the events to be kept by the types that are right for them:

| Right type | Events | Kept | Of a right type |
|---|---:|---:|---:|
{types}

An event with several right types is counted for each.
"""


def evaluation_page() -> str:
    """docs/reference/evaluation.md."""
    labels = Counter(event.label for case in cases() for event in case.events)
    verbosities: tuple[Verbosity, ...] = ("minimal", "normal")
    reports = asyncio.run(_reports(verbosities))
    return _PAGE.format(
        events=labels.total(),
        sessions=len(cases()),
        keep=labels["keep"],
        skip=labels["skip"],
        either=labels["either"],
        rows="\n".join(_row(report) for report in reports),
        types="\n".join(f"| {name} | {total} | {kept} | {right} |" for name, total, kept, right in count_by_type(reports[1])),
    )


async def _reports(verbosities: Sequence[Verbosity]) -> list[EvaluationReport]:
    return [await evaluate(RulesAsModel(), verbosity=verbosity) for verbosity in verbosities]


def _row(report: EvaluationReport) -> str:
    ratios = (report.precision, report.recall, report.f1, report.type_accuracy, report.file_recall)
    return f"| {report.verbosity} | {' | '.join(format_percent(ratio) for ratio in ratios)} | {report.observations} |"
