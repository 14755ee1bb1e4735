"""What claude-mem makes of a prompt before it looks at it."""

from __future__ import annotations

import hashlib
import re

MOST_BYTES = 256 * 1024
MEDIA = "[media prompt]"
"""A prompt without any text: a picture, say."""

_NOTIFICATION = re.compile(r"\s*<task-notification\b[^>]*>(?:(?!</?task-notification\b).)*</task-notification>\s*", re.DOTALL)
_PRIVATE = re.compile(r"(?:\s|\[redacted:private\])*")


def cut(prompt: str | None) -> str:
    """At most 256 KiB of it as UTF-8, with no half of a character at its end."""
    if not prompt:
        return MEDIA
    if len(prompt) * 4 <= MOST_BYTES:
        return prompt
    return prompt.encode("utf-8", "surrogatepass")[:MOST_BYTES].decode("utf-8", "ignore")


def is_protocol(prompt: str) -> bool:
    """Whether it is nothing but a note of the agent to itself, which its hooks take for a prompt."""
    return _NOTIFICATION.fullmatch(prompt) is not None


def is_private(text: str) -> bool:
    """Whether nothing is left of it as it is stored."""
    return _PRIVATE.fullmatch(text) is not None


def digest(text: str) -> str:
    """Tells two prompts of one number apart. Of the text as it is stored, so it gives nothing away."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]
