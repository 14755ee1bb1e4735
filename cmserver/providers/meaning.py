"""What each kind of failure means to an operator; and docs/reference/provider-errors.md, made of that and of the table of signs."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from cmserver.providers.failures import SIGNS, Sign
from cmserver.providers.model import FailureKind


class Meaning(msgspec.Struct, frozen=True, kw_only=True):
    """One kind: what has happened, what cmserver does then, and what helps."""

    what: str
    """Said of a provider: `<name> refused the key`."""
    then: str
    helps: str
    """`{key}` is where the provider's key is set."""


MEANINGS: dict[FailureKind, Meaning] = {
    FailureKind.TRANSIENT: Meaning(
        what="gave no answer this time",
        then="The jobs are tried again, each time after a longer pause.",
        helps="time; if it stays so, look at the provider's status page, and whether CMSERVER_BASE_URL and the network are right",
    ),
    FailureKind.RATE_LIMITED: Meaning(
        what="takes no more requests for the moment",
        then="The jobs are tried again when the provider says (`Retry-After`), or after a pause that grows.",
        helps="time; if it comes often, let fewer workers ask, or ask the provider for a higher limit",
    ),
    FailureKind.QUOTA_EXHAUSTED: Meaning(
        what="gives nothing more for what was paid or agreed",
        then="It is paused for all workers, and the next of CMSERVER_PROVIDER is asked; without one the jobs wait.",
        helps="credit or a higher limit at the provider, or the day on which its limit begins anew",
    ),
    FailureKind.AUTH_INVALID: Meaning(
        what="refused the key",
        then="It is paused in the same way.",
        helps="check {key}",
    ),
    FailureKind.SETUP_REQUIRED: Meaning(
        what="does not take such a request",
        then="It is paused in the same way.",
        helps="check CMSERVER_MODEL and CMSERVER_BASE_URL, and whether the provider offers that model to you",
    ),
    FailureKind.CONTEXT_TOO_LONG: Meaning(
        what="finds the request too long",
        then="A batch is tried again in two halves; an event that is too long by itself fails.",
        helps="a smaller CMSERVER_PROMPT_EVENT_TOKENS, or a model with a larger context",
    ),
    FailureKind.REFUSED: Meaning(
        what="refused to answer",
        then="A batch is tried again in two halves. A job that is refused by itself fails, and what was said is kept with its call "
        "(`cmserver jobs show JOB --answer`).",
        helps="another model or provider, and then `cmserver jobs retry JOB`",
    ),
    FailureKind.UNUSABLE_ANSWER: Meaning(
        what="gave an answer that cannot be read",
        then="As with refused.",
        helps="a larger model, or a larger CMSERVER_ANSWER_MAX_TOKENS where it was cut",
    ),
}


def failures_page() -> str:
    """docs/reference/provider-errors.md."""
    kinds = "\n".join(
        f"| `{kind.value}` | It {meaning.what}. | {meaning.then} | {_sentence(meaning.helps)} |"
        for kind, meaning in MEANINGS.items()
    )
    signs = "\n".join(f"| {_statuses(sign)} | {'yes' if sign.words else ''} | {_kinds(sign)} |" for sign in SIGNS)
    return _PAGE.format(kinds=kinds, signs=signs)


def _sentence(text: str) -> str:
    text = text.format(key="its key")
    return f"{text[0].upper()}{text[1:]}."


def _kinds(sign: Sign) -> str:
    return f"`{sign.kind.value}`, or `refused`" if sign.doubtful else f"`{sign.kind.value}`"


def _statuses(sign: Sign) -> str:
    return "any other" if sign.statuses is None else ", ".join(_runs(sorted(sign.statuses)))


def _runs(numbers: Iterable[int]) -> list[str]:
    """300, 301 ... 499 are `300 to 499`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return [str(run[0]) if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs]


_PAGE = """\
# Errors of providers

<!-- Generated from cmserver/providers/meaning.py and failures.py. -->

Whatever a provider answers instead of observations is one of these. A job's error begins with the word, and so does a pause's
reason in `cmserver providers list`. `cmserver doctor provider` makes one call and says which it is.

| kind | what has happened | what cmserver does | what helps |
|---|---|---|---|
{kinds}

A pause lasts as long as the provider says, or one minute; each one that follows is twice as long, up to an hour. Then the provider
is asked again. `cmserver providers resume NAME` does that at once. A server goes by the settings it was started with: with another
key it is started anew.

## By status

The first row that fits decides. Where there is a `yes`, the body has to say so, too. Where it says `or refused`, a gateway may mean
what stands in one request: the provider is paused at first, and when it has answered others since and fails the same jobs again,
it is them that it refuses.

| status | and in words | kind |
|---|---|---|
{signs}

No connection, a broken one, and an answer that takes longer than CMSERVER_PROVIDER_TIMEOUT_SECONDS are `transient`; out of reach
three times in a row, a provider is paused. An answer with
status 200 that is only a sentence about limits, keys or load is taken for what it says.
"""
