"""How much is told: at `minimal` what changes how one works on, at `verbose` also what `normal` passes over but may be of use."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from cmserver.providers.model import DraftObservation
from cmserver.providers.rules import drafts
from cmserver.providers.rules.acts import Ran
from cmserver.providers.rules.commands import read
from cmserver.providers.rules.phrases import record
from cmserver.providers.rules.phrases.manner import counted, most_facts, words
from cmserver.providers.rules.text import MAX_TITLE, listed, shorten

_ESSENTIAL = {"bugfix", "feature", "decision", "security_alert", "security_note", "sensitive"}
_NAMED = 3


def is_essential(draft: DraftObservation, was_failing: Iterable[str]) -> bool:
    """Told at `minimal`, besides commits: also what is still failing, and whatever ends a failure that is on record."""
    ends = {read(command).key for command in record.passed(draft.facts)} & set(was_failing)
    return draft.type in _ESSENTIAL or "gotcha" in draft.concepts or bool(ends)


def shortened(draft: DraftObservation) -> DraftObservation:
    """The title and one fact: the one by which later batches know what failed, was committed, or passes again."""
    command = [fact for fact in draft.facts if record.command([fact])]
    commit = [fact for fact in draft.facts if record.is_commit([fact])]
    passes = [fact for fact in draft.facts if record.passed([fact])]
    known = "; ".join(command[:1] or [*commit[:1], *passes])
    told = None if draft.facts else draft.narrative
    return msgspec.structs.replace(draft, subtitle=None, narrative=told, facts=[known] if known else draft.facts[:1])


def of_looks(looks: Sequence[tuple[str, list[str]]]) -> DraftObservation:
    """Files that were looked at, one after the other."""
    paths = list(dict.fromkeys(path for _, reads in looks for path in reads))
    return DraftObservation(
        type="discovery",
        title=shorten(words().looked_at.format(files=listed(paths, _NAMED)), MAX_TITLE),
        subtitle=f"{counted(words().files, len(paths))}.",
        concepts=["how-it-works"],
        files_read=paths[: most_facts()],
        events=[tag for tag, _ in looks],
    )


def of_checks(checks: Sequence[tuple[str, Ran]]) -> DraftObservation:
    """Runs that pass, with nothing changed before them."""
    names = list(dict.fromkeys(ran.command.chief.label for _, ran in checks))
    return DraftObservation(
        type="discovery",
        title=shorten(words().checks.format(checks=listed(names, _NAMED)), MAX_TITLE),
        facts=list(dict.fromkeys(drafts.passes_fact(ran) for _, ran in checks))[: most_facts()],
        concepts=["how-it-works"],
        events=[tag for tag, _ in checks],
    )


def of_routine(routine: Sequence[tuple[str, Ran]]) -> DraftObservation:
    """Commands that are neither a look nor a deed, as far as the rules know."""
    shown = list(dict.fromkeys(f"`{ran.command.shown}`" for _, ran in routine))
    facts: list[str] = []
    for _, ran in routine:
        answer = [line for line in ran.outcome.output.splitlines() if line.strip()][-1:]
        facts += [f"{words().command}: `{ran.command.shown}`", *(f"{words().answer}: {shorten(line, 160)}" for line in answer)]
    return DraftObservation(
        type="change",
        title=shorten(words().routine.format(commands=listed(shown, _NAMED)), MAX_TITLE),
        facts=facts[: most_facts()],
        concepts=["what-changed"],
        events=[tag for tag, _ in routine],
    )
