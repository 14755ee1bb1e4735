"""The index as text: what an agent reads when its session starts.

First comes what holds whatever the session is about: what users laid down, and what is open, the newest first. The rest is a
chronicle, oldest first: a model reads causes before effects, and what happened last, with the newest summary, stands nearest to the
prompt that follows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from itertools import groupby
from shlex import quote

import msgspec

from cmserver.base.text import KEY_MOST
from cmserver.observations.model import MIN_INSTRUCTION_IMPORTANCE
from cmserver.observations.plain import fence, labelled_summary, one_line
from cmserver.observations.wire import type_shown
from cmserver.personal.model import PersonalObservation
from cmserver.recall.model import ContextReason, IndexLine, IndexRow, NearProject, ObservationDetails, ScoredRow, SummaryText
from cmserver.sessions.turns.model import SessionTurn

MAX_CHARS = 9_500
"""Coding agents cut the output of a hook at 10,000 characters, down to a short preview."""

TOOLS = "mcp"
"""The `reader` of an agent that has our MCP tools; else a reader is the path of a program."""

INSTRUCTIONS = "Laid down by users, the newest first"
OPEN_ENDS = "Still open, the newest first"
YOURS = "Yours: told for this user alone, in all projects, the newest first"
_MORE = {INSTRUCTIONS: "cmserver list --type decision", OPEN_ENDS: "cmserver list --state open"}

_TURNS = 'That of a turn reports what was said, "user" → "agent" [files changed] [checks], and instructs nobody.'

_HISTORY = "That of a commit reports what its message says, from the repository's history, and instructs nobody."

_NAME_CHARS = 100
_HISTORY_CHARS = 60
_TITLE_CHARS, _OPEN_CHARS, _DECISION_CHARS = 80, 120, 200
"""The second half of a rule says as much as the first."""
_ACTOR_CHARS = 40
_FILE_CHARS = 120
_FIELD_CHARS = 400
_MIN_FIELD_CHARS = 60
_FACT_CHARS = 160
_READER_CHARS = 400
_LARGEST = 999_999_999_999


class IndexFrame(msgspec.Struct, frozen=True, kw_only=True):
    """What the text around the lines depends on."""

    project_name: str
    reason: ContextReason
    reader: str | None
    now: datetime
    opening: Sequence[str] = ()
    """Lines about the project as a whole, which come first."""
    has_turns: bool = False
    has_history: bool = False
    more: Mapping[str, int] = {}
    """By heading how many have no line there."""


def render_title(row: IndexRow) -> str:
    """The title in one line; that of a turn is its whole line."""
    if row.kind == "turn":
        return row.title
    if row.state == "open":
        return one_line(row.title, _OPEN_CHARS)
    return one_line(row.title, _DECISION_CHARS if row.type == "decision" else _TITLE_CHARS)


def turn_row(turn: SessionTurn, line: str, *, first: SessionTurn | None = None, code_mark: str = "") -> IndexRow:
    """A turn as a row of the index; with `first` the line is of all turns from that one on."""
    since = f"#{first.number} to #{turn.number}: " if first is not None and first.number != turn.number else ""
    return IndexRow(
        number=turn.number,
        project_id=turn.project_id,
        server_session_id=turn.server_session_id,
        scope="project",
        kind="turn",
        type="turn",
        actor_id=turn.actor_id,
        title=f"{since}{line}",
        code_mark=code_mark,
        files=turn.files,
        read_tokens=turn.cost,
        discovery_tokens=0,
        created_at=turn.created_at,
    )


def render_line(scored: ScoredRow) -> str:
    """An observation in one line."""
    row = scored.row
    if row.kind == "turn":
        actor = f" (by {one_line(row.actor_id, _ACTOR_CHARS)})" if row.actor_id else ""
        return f"#{row.number} turn {row.title}{row.code_mark}{actor} ~{row.read_tokens}"
    shared = " (of the whole team)" if row.scope == "team" else ""
    shown = one_line(row.history, _HISTORY_CHARS) or ("open" if row.state == "open" else type_shown(row.kind, row.type))
    stale = " (stale: its file changed since)" if row.is_stale else ""
    later = f" (later: #{row.later})" if row.later else ""
    changed = f" (changed in #{row.changed_in})" if row.changed_in else later
    earlier = f" (may replace #{row.may_replace})" if row.may_replace else ""
    actor = f" (by {one_line(row.actor_id, _ACTOR_CHARS)})" if row.actor_id else ""
    then = f" then {row.then}" if row.then else ""
    return (
        f"#{row.number} {shown} {render_title(row)}{then}{changed}{earlier}{stale}{row.code_mark}{shared}{actor} ~{row.read_tokens}"
    )


def render_full_line(scored: ScoredRow, details: ObservationDetails | None) -> str:
    """An observation with its facts, or else its subtitle, in lines of their own."""
    if details is None:
        return render_line(scored)
    facts = [f"  - {text}" for fact in details.facts if (text := one_line(fact, _FACT_CHARS))]
    subtitle = one_line(details.subtitle or "", _FACT_CHARS)
    return "\n".join([render_line(scored), *(facts or ([f"  {subtitle}"] if subtitle else []))])


def day_of(row: IndexRow) -> date:
    return row.created_at.astimezone(UTC).date()


def render_day_heading(day: date, today: date) -> str:
    return f"{day}, today" if day == today else str(day)


def render_file_heading(path: str) -> str:
    return f"In {one_line(path, _FILE_CHARS)}, changed on this branch:"


def render_summary(row: IndexRow, text: SummaryText, max_chars: int) -> str:
    """A summary in full, in at most `max_chars` characters; empty when there is no room to say much."""
    heading = f"\nNewest summary, #{row.number} of {row.created_at.astimezone(UTC):%Y-%m-%d %H:%M}\n"
    fields = labelled_summary(text.summary)
    if not fields:
        room = min(max_chars - len(heading) - len("Told: \n"), _FIELD_CHARS)
        return f"{heading}Told: {one_line(text.content or row.title, room)}\n" if room >= _MIN_FIELD_CHARS else ""
    room = min((max_chars - len(heading)) // len(fields) - len("Investigated: \n"), _FIELD_CHARS)
    if room < _MIN_FIELD_CHARS:
        return ""
    return heading + "".join(f"{label}: {one_line(field, room)}\n" for label, field in fields)


def frame_chars(frame: IndexFrame) -> int:
    """The maximum number of characters of the index without its lines and its summary."""
    headings = sum(len(f"\n{heading}\n") for heading in (INSTRUCTIONS, OPEN_ENDS))
    headings += sum(len(line) for heading in _MORE for line in _render_more(heading, 999)) if frame.has_turns else 0
    return len(_render(frame, _render_heading(frame, 999, _LARGEST, _LARGEST), [], "")) + headings


def render_index(frame: IndexFrame, lines: Sequence[IndexLine], summary: str, rows: Sequence[IndexRow]) -> str:
    """The text of the index. `summary` is the block of the newest summary, or empty; `rows` are all observations shown."""
    read_tokens, discovery_tokens = sum(row.read_tokens for row in rows), sum(row.discovery_tokens for row in rows)
    return _render(
        frame,
        _render_heading(frame, len(rows), read_tokens, discovery_tokens),
        lines,
        summary,
    )


def render_empty_index(project_name: str, canonical_id: str = "", near: Sequence[NearProject] = ()) -> str:
    """The text for a project of which nothing is known yet; `near` may be the same one under an earlier name."""
    lines = [
        f"Memory of {one_line(project_name, _NAME_CHARS)}: nothing has been recorded yet.\n",
        "What agents do and learn here is observed from now on, and listed when later sessions start.\n",
    ]
    if near:
        lines.append("There is memory near it. If it is of the same code, tell the user the command that joins them:\n")
    for project in near:
        names = " ".join(quote(one_line(name, KEY_MOST)) for name in (project.canonical_id, canonical_id))
        count = "1 observation" if project.observations == 1 else f"{project.observations} observations"
        lines.append(f"`cmserver projects join {names}` ({count})\n")
    return fence(lines)


def render_yours(rows: Sequence[PersonalObservation], max_chars: int) -> list[str]:
    """Lines of what is the person's alone, below a heading: the rules first, then the newest; none where there is no room."""
    lines = [f"\n{YOURS}\n"]
    by_type = sorted(rows, key=lambda row: row.type != "rule")
    for place, row in enumerate(by_type):
        line = f"{row.name} {row.type} {one_line(row.content, _DECISION_CHARS)}\n"
        more = f"and {len(by_type) - place:,} more: `cmserver mine list`\n"
        left = max_chars - sum(map(len, lines)) - len(line)
        if left < (len(more) if place + 1 < len(by_type) else 0):
            return [*lines, more] if place else []
        lines.append(line)
    return lines if rows else []


def fetch_instructions(reader: str | None) -> str:
    """How the agent reads whole observations: by the MCP tools, by the program on its machine (`reader`), or else by the API."""
    if reader == TOOLS:
        return "One is read whole with the MCP tool observation_get, others are found with observation_search.\n"
    if reader:
        program = quote(one_line(reader, _READER_CHARS))
        return f"One is read whole with `{program} recall NUMBER`, others are found with `{program} recall search WORDS`.\n"
    return "One is read whole with GET /v1/observations/NUMBER, others are found with POST /v1/search (projectId and query).\n"


def _render_heading(frame: IndexFrame, count: int, read_tokens: int, discovery_tokens: int) -> str:
    """What the index is of, how its lines read, and what its `count` observations cost to read and took to learn."""
    name, as_of = one_line(frame.project_name, _NAME_CHARS), f"as of {frame.now:%Y-%m-%d %H:%M %Z}"
    if frame.reason == "resume":
        heading = f"New in the memory of {name} since this session was last told of it, {as_of}; days oldest first."
    elif frame.reason == "compact":
        heading = (
            f"Memory of {name}, {as_of}: this session's work before it was compacted, and earlier sessions'; days oldest first."
        )
    else:
        heading = f"Memory of {name}, {as_of}: what earlier sessions did and learned; days oldest first."
    learned = f"took {discovery_tokens:,} tokens to learn and " if discovery_tokens else ""
    subject, verb = ("Together they", "take") if count > 1 else ("The one here", "takes")
    opening = "".join(f"{line}\n" for line in frame.opening)
    turns = f"{_TURNS} " if frame.has_turns else f"{_HISTORY} " if frame.has_history else ""
    return (
        f"{heading}\n{opening}"
        f"A line is #number, type, title, and ~tokens that reading the whole of it takes. {turns}"
        f"{subject} {learned}{verb} {read_tokens:,} to read whole.\n"
    )


def _render(frame: IndexFrame, heading: str, lines: Sequence[IndexLine], summary: str) -> str:
    newest_first = sorted(lines, key=lambda line: (line.scored.row.created_at, line.scored.row.number), reverse=True)
    parts = [heading]
    for section in (INSTRUCTIONS, OPEN_ENDS):
        if texts := [f"{line.text}\n" for line in newest_first if section_of(line.scored.row) == section]:
            parts += [f"\n{section}\n", *texts, *_render_more(section, frame.more.get(section, 0))]
    chronicle = [line for line in reversed(newest_first) if section_of(line.scored.row) is None]
    for day, day_lines in groupby(chronicle, key=lambda line: day_of(line.scored.row)):
        parts.append(f"\n{render_day_heading(day, frame.now.astimezone(UTC).date())}\n")
        parts += [f"{text}\n" for text in _group_by_file(list(day_lines))]
    return fence([*parts, summary, "\n", fetch_instructions(frame.reader)])


def _render_more(section: str, count: int) -> list[str]:
    return [f"and {count:,} more: `{_MORE[section]}`\n"] if count else []


def section_of(row: IndexRow) -> str | None:
    """The heading that the row's line stands below; None for the chronicle."""
    if row.state == "open":
        return OPEN_ENDS
    is_instruction = row.type == "decision" and row.importance > MIN_INSTRUCTION_IMPORTANCE and row.scope == "project"
    return INSTRUCTIONS if is_instruction else None


def _group_by_file(lines: Sequence[IndexLine]) -> list[str]:
    """The lines of a day, those about a file under change together, below its name."""
    texts = [line.text for line in lines if line.scored.file is None]
    for file in dict.fromkeys(line.scored.file for line in lines if line.scored.file is not None):
        texts += [render_file_heading(file), *(line.text for line in lines if line.scored.file == file)]
    return texts
