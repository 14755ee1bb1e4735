"""A timeline as an agent reads it: a line for each thing, or the whole of it, below its day and session.

Where they are of several projects each is named there, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date
from itertools import groupby
from uuid import UUID

from cmserver.observations.model import Observation
from cmserver.observations.plain import block, one_line, said, wrapped
from cmserver.observations.wire import type_shown
from cmserver.recall.timeline.model import TimedPrompt, Timeline

_TITLE_CHARS = 160
_NAME_CHARS = 160
_ANCHOR = "→ "


def in_lines(told: Timeline, *, full: bool) -> str:
    """The whole as a block that an agent is told, oldest first, with an arrow before the anchor."""
    return wrapped(f"{line}\n" for line in _lines(told, full=full))


def _lines(told: Timeline, *, full: bool) -> Iterator[str]:
    for (day, session_id, project_id), group in groupby(told.told, key=_heading):
        project = told.names.get(project_id)
        where = f", {one_line(project, _NAME_CHARS)}" if project else ""
        yield f"{day}, {f'session {session_id}' if session_id else 'without a session'}{where}"
        for one in group:
            mark = _ANCHOR if one is told.anchor else ""
            yield from _whole(one, mark) if full else [f"{mark}{_line(one)}"]


def _heading(one: Observation | TimedPrompt) -> tuple[date, UUID | None, UUID]:
    return one.created_at.astimezone(UTC).date(), one.server_session_id, one.project_id


def _line(one: Observation | TimedPrompt) -> str:
    at = f"{one.created_at.astimezone(UTC):%H:%M}"
    if isinstance(one, TimedPrompt):
        return f"prompt {one.prompt_number} {at} {one_line(one.text, _TITLE_CHARS)} ~{one.cost}"
    title = one_line(one.title or one.narrative or one.content, _TITLE_CHARS)
    return f"#{one.number} {at} {type_shown(one.kind, one.type)} {title} ~{one.cost}"


def _whole(one: Observation | TimedPrompt, mark: str) -> Iterator[str]:
    if isinstance(one, TimedPrompt):
        yield f"{mark}prompt {one.prompt_number} {one.created_at.astimezone(UTC):%H:%M}"
        yield f"  {block(one.text)}"
    else:
        first, *rest = said(one)
        yield from (f"{mark}{first}", *rest)
