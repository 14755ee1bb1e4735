"""Composes the page about a project by rules: what it is, its parts, the present work, and what is open."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from cmserver.graph.overviews.model import Instruction, NamedFile
from cmserver.observations.model import Observation
from cmserver.observations.plain import one_line
from cmserver.sessions.turns.model import SessionTurn

OPENING_LINES = 3
OPENING_CHARS = 160
_LINE_CHARS = 240
_PARTS = 8
LATEST = 5
"""At most this many summaries or turns stand on the page."""
_FILES_OF_PART = 3
_PRESENT_WORK = "Present work"


class OverviewSource(msgspec.Struct, frozen=True, kw_only=True):
    """What the page is made of, the newest first."""

    name: str
    first_at: datetime | None
    technologies: Sequence[str] = ()
    files: Sequence[NamedFile] = ()
    instructions: Sequence[Instruction] = ()
    summaries: Sequence[Observation] = ()
    turns: Sequence[SessionTurn] = ()
    """What stands for summaries while there are none."""
    open_ends: Sequence[Observation] = ()


class ComposedOverview(msgspec.Struct, frozen=True, kw_only=True):
    """The page, the lines that open an index, and the numbers of the observations that stand in them."""

    body: str
    opening: list[str]
    numbers: list[int]


class _Part(msgspec.Struct, frozen=True, kw_only=True):
    """A folder with the files that are mentioned most."""

    name: str
    mentions: int
    files: list[str]


def compose_overview(source: OverviewSource) -> ComposedOverview:
    """The page by rules. It says nothing that no observation says."""
    parts, summaries, turns = _find_parts(source.files), source.summaries[:LATEST], source.turns[:LATEST]
    sections = [
        ("What it is", _describe(source)),
        ("Parts", [_render_part(part) for part in parts]),
        (_PRESENT_WORK, [*map(_render_summary, summaries), *map(_render_turn, turns)]),
        ("Open ends", [f"{one_line(_title(row), _LINE_CHARS)} (#{row.number})" for row in source.open_ends]),
    ]
    body = [f"# {one_line(source.name, 100)}"]
    for heading, lines in sections:
        if lines:
            body += ["", f"## {heading}", "", *(f"- {line}" for line in lines)]
    cited = [*source.instructions, *summaries, *turns, *source.open_ends]
    return ComposedOverview(
        body="\n".join(body), opening=_open(source.technologies, parts), numbers=sorted({row.number for row in cited})
    )


def add_summaries(body: str, summaries: Sequence[Observation]) -> str:
    """The page with what came since it was made, the newest first, at the head of the present work."""
    if not summaries:
        return body
    lines, heading = [f"- {_render_summary(row)}" for row in summaries], f"## {_PRESENT_WORK}"
    page = body.splitlines()
    if heading not in page:
        return "\n".join([*page, "", heading, "", *lines])
    start = page.index(heading) + 1
    while start < len(page) and not page[start].strip():
        start += 1
    return "\n".join([*page[:start], *lines, *page[start:]])


def _describe(source: OverviewSource) -> list[str]:
    lines = [f"Remembered since {source.first_at:%Y-%m-%d}."] if source.first_at else []
    if source.technologies:
        lines.append(one_line(f"Mentioned most: {_join(source.technologies)}.", _LINE_CHARS))
    return lines + [f"Laid down by users: {one_line(row.title, _LINE_CHARS)} (#{row.number})" for row in source.instructions]


def _find_parts(files: Iterable[NamedFile]) -> list[_Part]:
    """The folders that are mentioned most: the first two of a path, so that `src/billing` and `src/web` are two parts."""
    mentions: Counter[str] = Counter()
    by_folder: dict[str, list[str]] = {}
    for file in files:
        *folders, name = file.path.split("/")
        folder = "/".join(folders[:2])
        if not folder or folder.startswith(("..", "~")):
            continue
        mentions[folder] += file.mentions
        by_folder.setdefault(folder, []).append(name)
    return [
        _Part(name=folder, mentions=count, files=by_folder[folder][:_FILES_OF_PART])
        for folder, count in mentions.most_common(_PARTS)
    ]


def _render_part(part: _Part) -> str:
    noun = "mention" if part.mentions == 1 else "mentions"
    return one_line(f"{part.name}: {part.mentions:,} {noun}, most of {_join(part.files)}", _LINE_CHARS)


def _render_summary(row: Observation) -> str:
    fields = row.summary or {}
    request, outcome = fields.get("request"), fields.get("completed") or fields.get("learned")
    text = ": ".join(one_line(part, _LINE_CHARS // 2).rstrip(".") for part in (request, outcome) if part) or _title(row)
    return f"{row.created_at:%Y-%m-%d}: {one_line(text, _LINE_CHARS)} (#{row.number})"


def _render_turn(turn: SessionTurn) -> str:
    text = ": ".join(one_line(side, _LINE_CHARS // 2).rstrip(".") for side in (turn.prompt, turn.reply) if side)
    return f"{turn.created_at:%Y-%m-%d}: {one_line(text, _LINE_CHARS)} (#{turn.number})"


def _open(technologies: Sequence[str], parts: Sequence[_Part]) -> list[str]:
    """What an index does not say anyway: it has the present work, the open ends and what users laid down."""
    lines: list[str] = []
    if technologies:
        lines.append(one_line(f"Mentioned most: {_join(technologies)}.", OPENING_CHARS))
    if len(parts) > 1:
        lines.append(one_line(f"Most work is in {_join([part.name for part in parts[:5]])}.", OPENING_CHARS))
    return lines[:OPENING_LINES]


def _title(row: Observation) -> str:
    return row.title or row.content


def _join(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
