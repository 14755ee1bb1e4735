"""Takes private spans and secrets out of texts and leaves typed marks (`[redacted:github_token]`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from cmserver.base.redaction import private, secret_rules
from cmserver.base.redaction.secret_rules import REACH, RULES, Rule
from cmserver.base.redaction.spans import Span, merge, render, render_items

Counts = dict[str, int]
"""How many spans of each kind were taken out."""

_ROUNDS = 8


def redact(text: str) -> tuple[str, Counts]:
    """The text without private spans, tool contexts, private keys and secrets."""
    counts: Counts = {}
    text = take_private(text, counts)
    return take_secrets(text, RULES, counts), counts


def take_private(text: str, counts: Counts) -> str:
    """Private spans, tool contexts and private keys."""
    return _settled(text, private.find, counts) if private.may_be_in(text) else text


def take_secrets(text: str, rules: Sequence[Rule], counts: Counts) -> str:
    """What these rules find (and private spans that were not there before)."""
    return _settled(text, lambda now: _all(now, rules), counts)


def take_private_items(items: list[str], counts: Counts) -> list[str]:
    """As `take_private`, for texts that follow each other, as the lines of a patch do: a span may reach over several."""
    for _ in range(_ROUNDS):
        spans = merge(private.find("\n".join(items)))
        if not spans:
            return items
        _count(spans, counts)
        items = render_items(items, spans)
    return [_nothing_left(counts) for _ in items]


def take_secrets_from_ends(text: str, head: int, tail: int, rules: Sequence[Rule], counts: Counts) -> tuple[str, str]:
    """The first `head` and the last `tail` characters, redacted. A secret that lies across the cut is replaced whole.

    Looks no further than REACH into what is between: a text of megabytes costs no more than its ends.
    """
    front, back = text[: head + REACH], text[-(tail + REACH) :]
    cut = len(back) - tail
    front_spans = [span for span in merge(secret_rules.find(front, rules)) if span.start < head]
    back_spans = [span for span in merge(secret_rules.find(back, rules)) if span.end > cut]
    _count(front_spans, counts)
    _count(back_spans, counts)
    return render(front, front_spans, 0, head), render(back, back_spans, cut)


def _all(text: str, rules: Sequence[Rule]) -> Iterable[Span]:
    yield from private.find(text)
    yield from secret_rules.find(text, rules)


def _settled(text: str, find: Callable[[str], Iterable[Span]], counts: Counts) -> str:
    """Again until nothing is found: what was on the two sides of a removed span may now be a tag or a secret."""
    for _ in range(_ROUNDS):
        spans = merge(find(text))
        if not spans:
            return text
        _count(spans, counts)
        text = render(text, spans)
    return _nothing_left(counts)


def _nothing_left(counts: Counts) -> str:
    """Only a text that was made for it needs so many rounds; nothing of it is worth the risk."""
    counts[private.PRIVATE] = counts.get(private.PRIVATE, 0) + 1
    return f"[redacted:{private.PRIVATE}]"


def _count(spans: Iterable[Span], counts: Counts) -> None:
    for span in spans:
        counts[span.kind] = counts.get(span.kind, 0) + 1
