"""docs/reference/evaluation.md: what the labelled set is, and how the offline provider does on it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

from cmserver.generation.evaluate.cases import cases
from cmserver.generation.evaluate.evaluate import evaluate
from cmserver.generation.evaluate.model import Report
from cmserver.providers.model import Verbosity
from cmserver.providers.offline import Offline

_PAGE = """\
# Evaluation

`cmserver evaluate generation` shows a provider {events} events of {sessions} made-up sessions, one call for each session,
through the prompt and the parser that workers use, and compares what it keeps with labels that were given by hand. It needs no
server and no database. The sessions are in `cmserver/generation/evaluate/sessions/`; the README there says how labels were given.
{keep} events are to be kept, {skip} are to be skipped; the other {either} may be either, and are not counted.

```sh
cmserver evaluate generation                                   # the configured provider
cmserver evaluate generation --provider anthropic --verbose    # another one, with each event that went wrong
cmserver evaluate generation --json                            # the whole report
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
change.
At `normal`, of the events to be kept by the types that are right for them:

| Right type | Events | Kept | Of a right type |
|---|---:|---:|---:|
{types}

An event with several right types is counted for each.
"""


def evaluation_page() -> str:
    """The page as it stands in the repository; a test compares."""
    labels = Counter(event.label for case in cases() for event in case.events)
    verbosities: tuple[Verbosity, ...] = ("minimal", "normal", "verbose")
    reports = asyncio.run(_reports(verbosities))
    return _PAGE.format(
        events=labels.total(),
        sessions=len(cases()),
        keep=labels["keep"],
        skip=labels["skip"],
        either=labels["either"],
        rows="\n".join(_row(one) for one in reports),
        types="\n".join(f"| {name} | {total} | {kept} | {right} |" for name, total, kept, right in by_type(reports[1])),
    )


def by_type(report: Report) -> Sequence[tuple[str, int, int, int]]:
    """Of the events to be kept, by each type that is right for them: how many, how many were kept, how many of a right type."""
    wanted = [one for one in report.judged if one.label == "keep"]
    names = sorted({name for one in wanted for name in one.types})
    of = {name: [one for one in wanted if name in one.types] for name in names}
    return [(name, len(of[name]), sum(one.kept for one in of[name]), sum(one.right_type for one in of[name])) for name in names]


def percent(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.1%}".replace("%", " %")


async def _reports(verbosities: Sequence[Verbosity]) -> list[Report]:
    return [await evaluate(Offline(), verbosity=one) for one in verbosities]


def _row(report: Report) -> str:
    ratios = (report.precision, report.recall, report.f1, report.type_accuracy, report.file_recall)
    return f"| {report.verbosity} | {' | '.join(percent(one) for one in ratios)} | {report.observations} |"
