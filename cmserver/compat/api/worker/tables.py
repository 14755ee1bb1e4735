"""Findings as text for a model: a table in which no title can forge a line, a cell, or the end of what we say."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

import msgspec

from cmserver.compat.api.worker.rows import Named
from cmserver.observations.model import Observation, estimate_tokens
from cmserver.observations.plain import one_line, wrapped
from cmserver.observations.wire import type_shown
from cmserver.recall.timeline.model import TimedPrompt
from cmserver.sessions.model import ListedPrompt

_TITLE_CHARS = 160


class Part(msgspec.Struct, frozen=True):
    """A piece of what a tool answers."""

    text: str
    type: str = "text"


class ContentOut(msgspec.Struct, frozen=True):
    """The answer of a tool, as clients of the Model Context Protocol take it."""

    content: list[Part]


def told(head: str, lines: Iterable[str] = (), foot: str = "") -> ContentOut:
    """One text between our marks, by which it is known if it is ever sent back as something that happened."""
    return ContentOut([Part(wrapped(f"{line}\n" for line in (head, *lines, *([foot] if foot else ()))))])


def table(rows: Sequence[Observation | ListedPrompt], named: Named, *, mark: Observation | ListedPrompt | None = None) -> list[str]:
    """A line for each: #12 is an observation, #S13 a summary. Those of several projects say which."""
    many = len({one.project_id for one in rows}) > 1
    heads = ["id", "time (UTC)", "type", "title", "~tokens", *(["project"] if many else [])]
    lines = [_line(heads), "|" + "---|" * len(heads)]
    for one in rows:
        cells = _observed(one) if isinstance(one, Observation) else _asked(one)
        if mark is not None and one is mark:
            cells[0] = f"→ {cells[0]}"
        lines.append(_line([*cells, *([cell(named.project(one.project_id))] if many else [])]))
    return lines


def cell(text: str) -> str:
    """One line, without what would end the cell."""
    return one_line(text, _TITLE_CHARS).replace("\\", "\\\\").replace("|", "\\|")


def _observed(one: Observation) -> list[str]:
    sign = f"#S{one.number}" if one.kind == "summary" else f"#{one.number}"
    title = one.title or one.narrative or one.content
    return [sign, _time(one.created_at), type_shown(one.kind, one.type), cell(title), f"{one.cost:,}"]


def _asked(one: ListedPrompt) -> list[str]:
    tokens = one.cost if isinstance(one, TimedPrompt) else estimate_tokens(one.text)
    return [f"prompt {one.prompt_number}", _time(one.created_at), "prompt", cell(one.text), f"{tokens:,}"]


def _time(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M")


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
