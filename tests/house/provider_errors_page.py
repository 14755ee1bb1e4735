"""The reference page on errors of providers."""

from __future__ import annotations

from collections.abc import Iterable

from cmserver.models.providers.failures import FAILURE_HELP, SIGNS, Sign


def provider_errors_page() -> str:
    """docs/reference/provider-errors.md."""
    kinds = "\n".join(
        f"| `{kind.value}` | It {entry.predicate}. | {entry.consequence} | {_sentence(entry.remedy)} |"
        for kind, entry in FAILURE_HELP.items()
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

<!-- Generated from cmserver/models/providers/failures.py. -->

Every failed call of a provider is one of these kinds. A job's error and a pause's reason in `cmserver providers list` begin with
the kind. `cmserver doctor provider` makes one call and reports it.

| kind | meaning | what cmserver does | what to do |
|---|---|---|---|
{kinds}

A pause lasts as long as the provider says, or one minute; each further one is twice as long, up to an hour. `cmserver providers
resume NAME` ends it at once. Restart the server after you changed a key or another setting.

## By status

The first row that matches decides. A `yes` means that the body must match, too. `or refused` means that a gateway may object to the
content of one request: the provider is paused first; when it answers other jobs and fails the same ones again, it refuses them.

| status | body must match | kind |
|---|---|---|
{signs}

No connection, a broken one, and an answer that takes longer than CMSERVER_PROVIDER_TIMEOUT_SECONDS are `transient`; a provider
that is unreachable three times in a row is paused. An answer with status 200 that is only a sentence about limits, keys or load
counts as that error.
"""
