"""Makes text short. Nothing here raises."""

from __future__ import annotations

import re

from cmserver.base.text import shorten

MAX_TITLE = 80
MAX_LAID_DOWN = 200
"""The title of what a user laid down or decided, whose second half says as much as the first."""
ACCEPTED_PLAN = "Accepted plan: "
"""How the title of a plan begins that the user accepted."""
MAX_QUOTE = 400
_MAX_OUTPUT = 16_000
_LEFT_OUT = re.compile(r"^\[\.\.\. \d[\d,]{0,19} characters in (\d[\d,]{0,19}) lines left out", re.MULTILINE)
_NAME = re.compile(r"\w+[./_(-]\w|[a-z]+[A-Z0-9]")
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[\"'(A-Z0-9`])")


def bounded(text: str) -> str:
    """Head and tail of a long output, where errors and totals stand."""
    half = _MAX_OUTPUT // 2
    return text if len(text) <= _MAX_OUTPUT else f"{text[:half]}\n{text[-half:]}"


def count_lines(text: str) -> int:
    """How many lines a text had before its middle was left out."""
    return len(text.splitlines()) + sum(int(count.replace(",", "")) - 2 for count in _LEFT_OUT.findall(text))


def first_sentence(text: str, limit: int) -> str:
    """The first sentence of a text, without the Markdown marks in front of it."""
    lines = (line.strip().lstrip("#*>- ").strip() for line in text[:4000].splitlines())
    line = next((line for line in lines if line), "")
    return shorten(_SENTENCE.split(line, maxsplit=1)[0], limit)


def capitalize(text: str) -> str:
    """Upper case for the first letter only, unless it begins a name: the rest may hold names."""
    return text if _NAME.match(text) else text[:1].upper() + text[1:]


def count_noun(count: int, noun: str) -> str:
    """`1 file`, `2 files`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
