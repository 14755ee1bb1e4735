"""Replaces private spans and secrets in texts, ids and labels by marks that name the kind (`[redacted:github_token]`).

Also finds them behind colours, control and invisible characters, which prompts and answers leave out later.
"""

from __future__ import annotations

import functools
import hmac
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from cmserver.base.lookalikes import INVISIBLE, JOINERS, remove_invisible
from cmserver.redaction import private, secret_rules
from cmserver.redaction.rule import REACH, Rule, has_match, lower
from cmserver.redaction.secret_rules import RULES
from cmserver.redaction.spans import Span, merge, render, render_items

Counts = dict[str, int]
"""Number of replaced spans by kind."""

_ROUNDS = 8
_CACHE_SIZE = 4096
_DIGEST_CHARS = 16
_PIECE_CHARS = 100_000
_ESCAPE_CHARS = 200
"""Longer than any escape sequence of a terminal that somebody reads."""
_CONTROLS = bytes(code for code in (*range(32), 127) if chr(code) not in "\t\n\r")
_HIDING = re.compile(f"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f{INVISIBLE}{JOINERS}]")


def redact(text: str) -> tuple[str, Counts]:
    """The text without private spans, tool contexts, private keys and secrets."""
    plain = reveal_hidden(text)
    if plain is not None:
        redacted, counts = _redact(plain)
        if counts:
            return redacted, counts
    return _redact(text)


def reveal_hidden(text: str) -> str | None:
    """The text as its readers see it, without hidden characters; None when it has none."""
    if text.isascii():
        raw = text.encode()
        hides = len(raw.translate(None, _CONTROLS)) != len(raw)
    else:
        hides = has_match(_HIDING, text)
    if not hides:
        return None
    plain = "".join(map(remove_invisible, _cut(text)))
    return plain if plain != text else None


def _cut(text: str) -> Iterator[str]:
    """The text in pieces, since each step holds the interpreter. No cut is within a colour, or in the middle of a line's end."""
    start = 0
    while start < len(text):
        end = start + _PIECE_CHARS
        if end < len(text):
            escape = text.rfind("\x1b", end - _ESCAPE_CHARS, end)
            end = escape if escape > start else end - (text[end - 1] == "\r")
        yield text[start:end]
        start = end


def _redact(text: str) -> tuple[str, Counts]:
    """`redact`, without a search for hidden characters."""
    counts: Counts = {}
    text = take_private(text, counts)
    if secret_rules.select_rules(text, lower(text)):
        text = take_secrets(text, RULES, counts)
    return text, counts


def may_change(text: str) -> bool:
    """Whether `redact` could find something; much cheaper than `redact`. False for joined texts holds for each of them."""
    low = lower(text)
    if secret_rules.select_rules(text, low) or private.may_be_in(text, low):
        return True
    plain = reveal_hidden(text)
    return plain is not None and may_change(plain)


def take_private(text: str, counts: Counts) -> str:
    """The text without private spans, tool contexts and private keys."""
    return _redact_until_clean(text, private.find, counts) if private.may_be_in(text) else text


def take_secrets(text: str, rules: Sequence[Rule], counts: Counts) -> str:
    """The text without what these rules find, and without private spans that arise from that."""
    return _redact_until_clean(text, lambda text: _find_all(text, rules), counts)


def take_private_items(items: list[str], counts: Counts) -> list[str]:
    """The consecutive texts, such as the lines of a patch, without private spans, which may cover several of them."""
    for _ in range(_ROUNDS):
        spans = merge(private.find("\n".join(items)))
        if not spans:
            return items
        count_spans(spans, counts)
        items = render_items(items, spans)
    return [_withhold_all(counts) for _ in items]


def take_secrets_from_ends(text: str, head: int, tail: int, rules: Sequence[Rule], counts: Counts) -> tuple[str, str]:
    """The first `head` and the last `tail` characters, redacted. A secret that crosses the cut is replaced whole.

    Reads at most REACH characters between them: a text of megabytes costs no more than its ends.
    """
    front, back = text[: head + REACH], text[-(tail + REACH) :]
    cut = len(back) - tail
    front_spans = [span for span in merge(secret_rules.find(front, rules)) if span.start < head]
    back_spans = [span for span in merge(secret_rules.find(back, rules)) if span.end > cut]
    count_spans(front_spans, counts)
    count_spans(back_spans, counts)
    return render(front, front_spans, 0, head), render(back, back_spans, cut)


def _find_all(text: str, rules: Sequence[Rule]) -> Iterable[Span]:
    yield from private.find(text)
    yield from secret_rules.find(text, rules)


def _redact_until_clean(text: str, find: Callable[[str], Iterable[Span]], counts: Counts) -> str:
    """Redact until nothing is found: the texts on both sides of a removed span may now form a tag or a secret."""
    for _ in range(_ROUNDS):
        spans = merge(find(text))
        if not spans:
            return text
        count_spans(spans, counts)
        text = render(text, spans)
    return _withhold_all(counts)


def _withhold_all(counts: Counts) -> str:
    """A mark for the whole text. Only a text made for the purpose needs so many rounds, and nothing of it is worth the risk."""
    counts[private.PRIVATE] = counts.get(private.PRIVATE, 0) + 1
    return f"[redacted:{private.PRIVATE}]"


def count_spans(spans: Iterable[Span], counts: Counts) -> None:
    """Add the spans to the counts of their kinds."""
    for span in spans:
        counts[span.kind] = counts.get(span.kind, 0) + 1


class Identifiers:
    """Cleans identifiers. `secret` is the installation's: without it nobody can verify guesses of what was redacted."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._clean_cached = functools.lru_cache(maxsize=_CACHE_SIZE)(self._clean)

    def clean(self, text: str) -> str:
        """The text itself when nothing in it is private or secret; else `[redacted:<kind>]#<keyed hash of the whole text>`.

        Equal texts get equal marks, and different texts different ones: sessions stay apart, and an event sent twice stays one.
        """
        return self._clean_cached(text)

    def clean_optional(self, text: str | None) -> str | None:
        return None if text is None else self._clean_cached(text)

    def _clean(self, text: str) -> str:
        low = lower(text)
        rules = secret_rules.select_rules(text, low)
        if not rules and not private.may_be_in(text, low):
            return text
        spans = merge([*private.find(text), *secret_rules.find(text, rules, low)])
        if not spans:
            return text
        digest = hmac.digest(self._secret, text.encode("utf-8", "surrogatepass"), "sha256").hex()
        return f"[redacted:{spans[0].kind}]#{digest[:_DIGEST_CHARS]}"
