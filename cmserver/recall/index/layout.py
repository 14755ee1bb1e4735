"""The index as text: what an agent reads when its session starts.

It is a chronicle, oldest first: a model reads causes before effects, and what happened last, with the newest summary, stands
nearest to the prompt that follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime
from itertools import groupby
from shlex import quote

import msgspec

from cmserver.observations.plain import SUMMARY_LABELS, one_line, wrapped
from cmserver.observations.wire import type_shown
from cmserver.recall.index.model import Details, Judged, Line, Row, SummaryText
from cmserver.recall.model import Reason

MOST_CHARS = 9_500
"""Coding agents cut what a hook says at 10,000 characters, down to a short preview."""

TOOLS = "mcp"
"""The reader of an agent that has our MCP tools; else a reader is the path of a program."""

_NAME_CHARS = 100
_TITLE_CHARS = 160
_FILE_CHARS = 120
_FIELD_CHARS = 400
_FIELD_LEAST = 60
_FACT_CHARS = 160
_READER_CHARS = 400
_MANY = 999_999_999_999


class Occasional(msgspec.Struct, frozen=True, kw_only=True):
    """What the frame of the index depends on."""

    project_name: str
    reason: Reason
    reader: str | None
    now: datetime


# -- lines


def title_shown(row: Row) -> str:
    """The title in one line."""
    return one_line(row.title, _TITLE_CHARS)


def line(judged: Judged) -> str:
    """An observation in one line."""
    row = judged.row
    shared = " (of the whole team)" if row.scope == "team" else ""
    at = f"{row.created_at.astimezone(UTC):%H:%M}"
    return f"#{row.number} {at} {type_shown(row.kind, row.type)} {title_shown(row)}{shared} ~{row.read_tokens}"


def full_line(judged: Judged, details: Details | None) -> str:
    """An observation with its facts, or else its subtitle, in lines of their own."""
    if details is None:
        return line(judged)
    facts = [f"  - {said}" for fact in details.facts if (said := one_line(fact, _FACT_CHARS))]
    subtitle = one_line(details.subtitle or "", _FACT_CHARS)
    return "\n".join([line(judged), *(facts or ([f"  {subtitle}"] if subtitle else []))])


def day_of(row: Row) -> date:
    return row.created_at.astimezone(UTC).date()


def day_line(day: date, today: date) -> str:
    return f"{day}, today" if day == today else str(day)


def file_line(path: str) -> str:
    return f"In {one_line(path, _FILE_CHARS)}, changed on this branch:"


# -- the newest summary


def summary_block(row: Row, told: SummaryText, most: int) -> str:
    """A summary in full, in at most so many characters; empty when it would not say much in them."""
    head = f"\nNewest summary, #{row.number} of {row.created_at.astimezone(UTC):%Y-%m-%d %H:%M}\n"
    fields = [(label, text) for name, label in SUMMARY_LABELS.items() if (text := (told.summary or {}).get(name))]
    if not fields:
        room = min(most - len(head) - len("Told: \n"), _FIELD_CHARS)
        return f"{head}Told: {one_line(told.content or row.title, room)}\n" if room >= _FIELD_LEAST else ""
    room = min((most - len(head)) // len(fields) - len("Investigated: \n"), _FIELD_CHARS)
    if room < _FIELD_LEAST:
        return ""
    return head + "".join(f"{label}: {one_line(text, room)}\n" for label, text in fields)


# -- the whole


def frame_chars(about: Occasional) -> int:
    """How many characters the text has without its lines and its summary, at most."""
    return len(_text(about, head(about, 999, _MANY, _MANY), [], ""))


def index_text(about: Occasional, lines: Sequence[Line], summary: str, read_tokens: int, discovery_tokens: int) -> str:
    """The index. `summary` is the block of the newest one, or empty; the sums are over all that is shown."""
    told = len(lines) + (1 if summary else 0)
    return _text(about, head(about, told, read_tokens, discovery_tokens), lines, summary)


def empty_text(project_name: str) -> str:
    """What is said once of a project of which nothing is known."""
    return wrapped(
        [
            f"Memory of {one_line(project_name, _NAME_CHARS)}: nothing has been recorded yet.\n",
            "What agents do and learn here is observed from now on, and listed when later sessions start.\n",
        ]
    )


def head(about: Occasional, count: int, read_tokens: int, discovery_tokens: int) -> str:
    name, as_of = one_line(about.project_name, _NAME_CHARS), f"as of {about.now:%Y-%m-%d %H:%M %Z}"
    if about.reason == "resume":
        what = f"New in the memory of {name} since this session was last told of it, {as_of}, oldest first."
    elif about.reason == "compact":
        what = f"Memory of {name}, {as_of}: this session's work before it was compacted, and earlier sessions', oldest first."
    else:
        what = f"Memory of {name}, {as_of}: what earlier sessions did and learned, oldest first."
    learned = f"took {discovery_tokens:,} tokens to learn and " if discovery_tokens else ""
    who, takes = ("Together they", "take") if count > 1 else ("The one here", "takes")
    return (
        f"{what}\n"
        "A line is #number, time, type, title, and ~tokens that reading the whole of it takes. "
        f"{who} {learned}{takes} {read_tokens:,} to read whole.\n"
    )


def how_to_fetch(reader: str | None) -> str:
    """By what means this agent gets at the rest: our tools, the program on its machine that reads here, or else the API."""
    if reader == TOOLS:
        return "One is read whole with the MCP tool observation_get, others are found with observation_search.\n"
    if reader:
        program = quote(one_line(reader, _READER_CHARS))
        return f"One is read whole with `{program} recall NUMBER`, others are found with `{program} recall search WORDS`.\n"
    return "One is read whole with GET /v1/observations/NUMBER, others are found with POST /v1/search (projectId and query).\n"


def _text(about: Occasional, top: str, lines: Sequence[Line], summary: str) -> str:
    parts = [top]
    chronicle = sorted(lines, key=lambda one: (one.judged.row.created_at, one.judged.row.number))
    for day, of_day in groupby(chronicle, key=lambda one: day_of(one.judged.row)):
        parts.append(f"\n{day_line(day, about.now.astimezone(UTC).date())}\n")
        parts += [f"{said}\n" for said in _grouped(list(of_day))]
    return wrapped([*parts, summary, "\n", how_to_fetch(about.reader)])


def _grouped(of_day: Sequence[Line]) -> list[str]:
    """The lines of a day, those about a file under change together, below its name."""
    said = [one.text for one in of_day if one.judged.file is None]
    for file in dict.fromkeys(one.judged.file for one in of_day if one.judged.file is not None):
        said += [file_line(file), *(one.text for one in of_day if one.judged.file == file)]
    return said
