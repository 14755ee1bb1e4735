"""Which agent speaks, in the few words that claude-mem has for them."""

from __future__ import annotations

from cmserver.base.text import storable

_MOST_CHARS = 100
_PLATFORMS = {"codex": "codex", "cursor": "cursor", "claude": "claude", "transcript": "codex"}
"""What is part of a client's word, and what it means. The first that is counts."""


def platform(said: str | None) -> str:
    """The word that claude-mem would make of it: who says nothing is Claude Code."""
    plain = "-".join(storable(said or "").lower().split())[:_MOST_CHARS]
    return next((meant for part, meant in _PLATFORMS.items() if part in plain), plain or "claude")
