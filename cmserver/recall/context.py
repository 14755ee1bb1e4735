"""What a new session is told about its project: an index of its newest observations, from which it can fetch more."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import groupby

from cmserver.access.model import Principal, Project
from cmserver.base.sql import Conn
from cmserver.observations import repository as observations
from cmserver.observations.model import Observation, estimate_tokens
from cmserver.observations.read import served
from cmserver.observations.wire import kind_shown
from cmserver.recall.model import Context

MOST_CHARS = 9_500
"""Coding agents cut what a hook says at 10,000 characters, down to a short preview."""

_TITLE_CHARS = 160
_FIELD_CHARS = 700
_FIELDS = {
    "request": "Request",
    "investigated": "Investigated",
    "learned": "Learned",
    "completed": "Completed",
    "next_steps": "Next steps",
    "notes": "Notes",
}


async def context(conn: Conn, principal: Principal, project: Project, limit: int) -> Context:
    """The newest `limit` observations of the project or shared with its team, and its newest summary where that is older."""
    own = await observations.newest(conn, principal.team_id, project_id=project.id, limit=limit)
    shared = await observations.newest_shared(conn, principal.team_id, project_id=project.id, limit=limit)
    newest = sorted([*own, *shared], key=lambda one: (one.created_at, one.id), reverse=True)[:limit]
    if not any(one.kind == "summary" for one in newest):
        newest += await observations.newest(conn, principal.team_id, project_id=project.id, limit=1, kind="summary")
    await served(conn, principal, project.id, "context", newest)
    text = index_text(project.name, newest, datetime.now(UTC))
    return Context(text=text, observations=newest, tokens=estimate_tokens(text))


def index_text(project_name: str, observations: Sequence[Observation], now: datetime) -> str:
    """The index, in the time zone of `now`, never longer than MOST_CHARS: the oldest lines go first.

    It is a chronicle, oldest first: a model reads causes before effects, and what happened last, with the newest summary, stands
    nearest to the prompt that follows.
    """
    name = _one_line(project_name, 100)
    if not observations:
        return (
            f"Memory of {name}: nothing has been recorded yet.\n"
            "Observations will be listed here once an agent whose hooks send its events has worked on the project.\n"
        )
    chronicle = sorted(observations, key=lambda one: (one.created_at, one.number))
    summary = next((one for one in reversed(chronicle) if one.kind == "summary"), None)
    lines = [one for one in chronicle if one is not summary]
    left_out = 0
    while len(text := _text(name, lines[left_out:], left_out, summary, chronicle[-1], now)) > MOST_CHARS and left_out < len(lines):
        left_out += 1
    return text


def title_shown(one: Observation) -> str:
    """The title in one line; where it is missing, the beginning of the text."""
    return _one_line(one.title or one.narrative or one.content, _TITLE_CHARS)


def tokens_shown(one: Observation) -> int:
    """What reading the observation costs a model."""
    return estimate_tokens(one.content) if one.read_tokens is None else one.read_tokens


def _text(
    name: str, lines: Sequence[Observation], left_out: int, summary: Observation | None, newest: Observation, now: datetime
) -> str:
    head = (
        f"Memory of {name}, as of {now:%Y-%m-%d %H:%M %Z}: what earlier sessions did and learned, oldest first.\n"
        "A line is number, time, type, title, and roughly how many tokens the whole costs.\n"
    )
    parts = [head]
    if left_out:
        parts.append(f"({left_out} older left out to keep this short.)\n")
    for day, of_day in groupby(lines, key=lambda one: one.created_at.astimezone(now.tzinfo).date()):
        heading = f"{day}, today" if day == now.date() else str(day)
        parts.append("\n".join([heading, *(_line(one, now) for one in of_day)]) + "\n")
    if summary:
        parts.append(_summary(summary, now))
    parts.append(
        f"To read one in full: GET /v1/observations/{newest.number}. To find others: POST /v1/search with projectId and query.\n"
    )
    return "\n".join(parts)


def _line(one: Observation, now: datetime) -> str:
    at = one.created_at.astimezone(now.tzinfo)
    shared = " (of the whole team)" if one.scope == "team" else ""
    return f"#{one.number} {at:%H:%M} {kind_shown(one.kind, one.type)} {title_shown(one)}{shared} ~{tokens_shown(one)}"


def _summary(one: Observation, now: datetime) -> str:
    at = one.created_at.astimezone(now.tzinfo)
    head = f"Newest summary, #{one.number} of {at:%Y-%m-%d %H:%M}"
    told = [(label, (one.summary or {}).get(field)) for field, label in _FIELDS.items()]
    body = [f"{label}: {_one_line(text, _FIELD_CHARS)}" for label, text in told if text]
    return "\n".join([head, *(body or [_one_line(one.content, _FIELD_CHARS)])]) + "\n"


def _one_line(text: str, most: int) -> str:
    """Without line breaks and control characters: a title must not look like another line of the index."""
    line = " ".join("".join(each if each.isprintable() else " " for each in text[: most * 4]).split())
    return line if len(line) <= most else line[: most - 1].rstrip() + "…"
