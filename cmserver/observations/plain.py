"""Observations as an agent reads them, in one line or whole: unable to look like lines of ours, or to end the block around them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import UTC

from cmserver.observations.model import Observation
from cmserver.observations.wire import type_shown

FIRST_LINE, LAST_LINE = "<cmserver-context>", "</cmserver-context>"
"""Around all that an agent is told. What comes in between these is never stored again."""

SUMMARY_LABELS = {
    "request": "Request",
    "investigated": "Investigated",
    "learned": "Learned",
    "completed": "Completed",
    "next_steps": "Next steps",
    "notes": "Notes",
}
"""What a summary says, in this order, and how each part is called."""

_TITLE_CHARS = 160
_FILES = 20
# Coding agents put what a hook says into elements of their own.
_TAG = re.compile(r"<(?=\s*/?\s*(?:cmserver-context|system-reminder))", re.IGNORECASE)

_LIKE_OURS = re.compile(r"(?:→ ?)?(?:#|prompt )? ?\d", re.IGNORECASE)

# Selectors of variants print nothing, and can carry a text that only a model sees.
_UNSEEN = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]")


def one_line(text: str, most: int) -> str:
    """In at most so many characters, and without line breaks, control characters and the tags around what agents are told.

    A title must not look like a line.
    """
    text = _UNSEEN.sub("", text[: most * 4])
    if not text.isprintable():
        text = "".join(each if each.isprintable() else " " for each in text)
    line = " ".join(text.split())
    line = _TAG.sub("\N{SINGLE LEFT-POINTING ANGLE QUOTATION MARK}", line)
    return line if len(line) <= most else line[: most - 1].rstrip() + "…"


def wrapped(parts: Iterable[str]) -> str:
    """The parts, each of which ends with a line break, as the block that an agent is told."""
    return "".join([FIRST_LINE, "\n", *parts, LAST_LINE, "\n"])


def summed_up(one: Observation) -> str:
    """An observation in one line: number, day, type, title, and about what reading the whole of it takes."""
    title = one_line(one.title or one.narrative or one.content, _TITLE_CHARS)
    shared = " (of the whole team)" if one.scope == "team" else ""
    return f"#{one.number} {one.created_at.astimezone(UTC):%Y-%m-%d} {type_shown(one.kind, one.type)} {title}{shared} ~{one.cost}"


def whole(one: Observation) -> str:
    """All that an observation says, as a block that an agent is told."""
    return wrapped(f"{line}\n" for line in said(one))


def wholes(several: Iterable[Observation]) -> str:
    """The same of several, one after the other, with an empty line between."""
    texts = ["".join(f"{line}\n" for line in said(one)) for one in several]
    return wrapped(["\n".join(texts)])


def said(one: Observation) -> Iterator[str]:
    """All that an observation says, in lines: the first sums it up."""
    yield summed_up(one)
    told = [(label, (one.summary or {}).get(name)) for name, label in SUMMARY_LABELS.items()]
    fields = [f"{label}: {block(text)}" for label, text in told if text]
    if one.subtitle:
        yield _apart(one_line(one.subtitle, len(one.subtitle)))
    if fields:
        yield from fields
    elif one.narrative or not (one.subtitle or one.facts):
        yield _apart(block(one.narrative or one.content))
    yield from (f"- {one_line(fact, len(fact))}" for fact in one.facts or ())
    for label, files in (("Modified", one.files_modified), ("Read", one.files_read)):
        if files:
            more = f" and {len(files) - _FILES} more" if len(files) > _FILES else ""
            yield f"{label}: {', '.join(one_line(file, 200) for file in files[:_FILES])}{more}"


def _apart(text: str) -> str:
    """Indented where it begins as a line of ours does: `#7`, `→ #7`, `prompt 7`, or a day."""
    return f"  {text}" if _LIKE_OURS.match(text) else text


def block(text: str) -> str:
    """A text that may have lines: those after the first are indented, as none of ours is."""
    return "\n  ".join(one_line(line, len(line)) for line in text.splitlines() if line.strip())
