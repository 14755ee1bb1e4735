"""Redacts ids and labels from outside. The mark of a redacted one differs from that of every other."""

from __future__ import annotations

import functools
import hmac

from cmserver.redaction import private, secret_rules
from cmserver.redaction.rule import lower
from cmserver.redaction.spans import merge

_CACHE_SIZE = 4096
_DIGEST_CHARS = 16


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
