"""Why a line of a file is as it is: the turn that wrote it, what was said there, and what came later.

Git is on the developer's machine, which says which commit the line is of. Precision goes before recall: a turn wrote a line if it
put exactly that in, or if the commit is known to have its edits and only white space differs; else at most it made the commit.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from typing import Literal
from uuid import UUID

import msgspec

from cmserver.access.model import Principal
from cmserver.base.errors import Invalid
from cmserver.base.ids import from_epoch_ms
from cmserver.base.sql import Conn
from cmserver.base.tolerant_json import field, record
from cmserver.events import repository as events
from cmserver.events.model import ToolUseWithText
from cmserver.git import repository as git_rows
from cmserver.git.model import KEY
from cmserver.observations.plain import fence
from cmserver.reading.edit_lines import read_added_lines
from cmserver.reading.edit_tokens import find_tokens
from cmserver.reading.read import read_event
from cmserver.recall import repository
from cmserver.recall.file_paths import MAX_SESSIONS, spell_path
from cmserver.recall.index.over import LaterTurns
from cmserver.recall.model import KnownFolder
from cmserver.recall.turn_line import SHORT_CHARS, SIDE_CHARS, render_turn
from cmserver.sessions.ledger import repository as ledger
from cmserver.sessions.ledger.model import COMMIT_DIGITS, FileTrace
from cmserver.sessions.read import audit_prompt_read
from cmserver.sessions.turns import repository as turns
from cmserver.sessions.turns.model import SessionTurn
from cmserver.sessions.turns.sentences import repository as sentences
from cmserver.tooluse.model import find_working_folder

How = Literal["wrote", "committed"]
Later = Literal["edited", "changed", "mentioned"]

_SKEW = timedelta(minutes=1)
"""Clocks of two machines differ by so much."""
_MOST_TRACES, _MAX_TRACES, _MAX_TURNS = 5_000, 200, 20
"""Edits of the file that are looked at, those of turns of the time, and turns whose calls are looked through for the line."""
_MOST_USES, _MAX_USES = 500, 20
"""Calls of each that are looked through, and those of them that may have the line."""
_RUNNING = 3
"""Of so many of the project's newest turns it may not be noted yet which files they edited."""
_MAX_LATER = 3
LATER: dict[Later, str] = {"changed": "changed by", "mentioned": "taken up in", "edited": "file edited in"}
_WORD = re.compile(r"\w+")
_WORKTREES = "/.claude/worktrees/"


class WhyQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a file, or the file where `text` is None, and its commit; None where it is in none, or nobody knows.

    `occurrences` is how often the line stands in the file; None where nobody counted.
    """

    paths: Sequence[str]
    text: str | None
    occurrences: int | None
    commit: str | None
    written_at: datetime | None
    """When the line was there at the latest; None for now."""


class LaterTurn(msgspec.Struct, frozen=True, kw_only=True):
    """A later turn: it edited the file, changed what the turn says, or took it up again."""

    number: int
    created_at: datetime
    line: str
    how: Later


class Why(msgspec.Struct, frozen=True, kw_only=True):
    """Why a line is as it is. `turn` is None where no agent wrote it; `history` is the number of the commit that was taken over."""

    how: How | None
    turn: SessionTurn | None
    line: str
    later: list[LaterTurn]
    history: int | None


def read_time(epoch: int | None, at: str) -> datetime | None:
    """The moment; Invalid for one that is none. One in the future is now, and one before 1970 says nothing."""
    try:
        moment = None if epoch is None else from_epoch_ms(epoch)
    except OverflowError:
        raise Invalid.at(at, "Invalid time: use milliseconds since 1970.") from None
    return moment if moment is not None and datetime(1970, 1, 1, tzinfo=UTC) < moment < datetime.now(UTC) else None


async def find_why(conn: Conn, principal: Principal, project_id: UUID, question: WhyQuestion) -> Why:
    """The turn of the project that wrote the line, or committed it, with what came later."""
    team_id, commit = principal.team_id, question.commit
    known = await git_rows.known_commit(conn, team_id, project_id, f"{KEY}:{commit}") if commit else None
    number = known.number if known else None
    folders = await repository.known_folders(conn, team_id, [project_id], sessions=MAX_SESSIONS)
    names = _spell(question.paths, folders, project_id)
    until = (known.authored_at if known else question.written_at or datetime.now(UTC)) + _SKEW
    traces = await ledger.of_file(conn, team_id, project_id, names, until=until, most=_MOST_TRACES, limit=_MAX_TRACES)
    turn_id, how = await _find_turn(conn, team_id, project_id, question, names, traces, until)
    found = await turns.by_ids(conn, team_id, [turn_id]) if turn_id else []
    if not found:
        return Why(how=None, turn=None, line="", later=[], history=number)
    (turn,) = principal.named(found)
    line, later = await _tell(conn, team_id, turn, names)
    await audit_prompt_read(conn, principal, project_id, 1 + len(later))
    return Why(how=how, turn=turn, line=line, later=later, history=number)


def render_why(why: Why) -> str:
    """What a model is told."""
    if why.turn is None:
        told = "No turn is known that wrote it."
        return f"{told} Its commit is #{why.history}." if why.history else told
    done = "Written in" if why.how == "wrote" else "Who wrote it is not known. Committed in"
    lines = [f"{done} #{why.turn.number} {why.turn.created_at:%Y-%m-%d} {why.line}\n"]
    lines += [f"Later {LATER[it.how]} #{it.number} {it.created_at:%Y-%m-%d} {it.line}\n" for it in why.later]
    lines += [f"Its commit is #{why.history}.\n"] if why.history else []
    return fence(lines)


def _spell(paths: Sequence[str], folders: Sequence[KnownFolder], project_id: UUID) -> list[str]:
    """How turns may call the file: from the root, whole, and from the root in a work tree below it."""
    names = [name for path in paths for name, whose in spell_path(path, folders) if whose in {None, project_id}]
    trees = {folder.cwd.split(_WORKTREES, 1)[1].partition("/")[0] for folder in folders if _WORKTREES in folder.cwd}
    names += [f"{_WORKTREES[1:]}{tree}/{path}" for tree in sorted(trees) if tree for path in paths if not path.startswith("/")]
    return list(dict.fromkeys(filter(None, names)))


async def _find_turn(
    conn: Conn,
    team_id: UUID,
    project_id: UUID,
    question: WhyQuestion,
    names: Collection[str],
    traces: Sequence[FileTrace],
    until: datetime,
) -> tuple[UUID | None, How | None]:
    commit, text = question.commit, (question.text or "").strip()
    committed = [trace for trace in traces if commit and trace.commit and _is_same(trace.commit, commit)]
    if question.text is None and committed:
        return committed[0].turn_id, "wrote"
    if text:
        of_commit = list(dict.fromkeys(trace.turn_id for trace in committed))[:_MAX_TURNS]
        writers = await _find_writers(conn, team_id, of_commit, text, names, until, of_commit=True)
        # What every file has, like a bracket, and what stands in this one elsewhere, tells by itself nothing of who wrote it.
        if not writers and find_tokens(text) and question.occurrences in {1, None}:
            looked_at = list(dict.fromkeys([*of_commit, *(trace.turn_id for trace in traces)]))[:_MAX_TURNS]
            newest = await turns.newest(
                conn, team_id, project_id=project_id, before=until, before_id=_LAST_ID, limit=_RUNNING, of_users=True
            )
            others = {*looked_at, *(turn.id for turn in newest)} - set(of_commit)
            writers = await _find_writers(conn, team_id, list(others), text, names, until, of_commit=False)
        if writers and (len(writers) == 1 or question.occurrences == 1):
            return writers[0], "wrote"
    if commit:
        made = await ledger.commits(conn, team_id, project_id, commit[:COMMIT_DIGITS], _MAX_TURNS)
        by_turn = next((it.turn_id for it in made if _is_same(it.commit, commit)), None)
        return by_turn, "committed" if by_turn else None
    return None, None


_LAST_ID = UUID(int=2**128 - 1)


def _is_same(printed: str, commit: str) -> bool:
    """Whether two hashes are of one commit, as far as both go."""
    return len(printed) >= COMMIT_DIGITS and (commit.startswith(printed) or printed.startswith(commit))


async def _find_writers(
    conn: Conn, team_id: UUID, turn_ids: Sequence[UUID], text: str, names: Collection[str], until: datetime, *, of_commit: bool
) -> list[UUID]:
    """The turns that put exactly this line into the file, the newest first. Of those whose edits the line's commit has, a line
    counts that a formatter came over, and a file that was written as a whole.
    """
    tried = [(text, _as_it_is)]
    tried += [(max(_WORD.findall(text), key=len, default=text), _without_blanks)] if of_commit else []
    for part, read in tried if turn_ids else ():
        escaped = json.dumps(part, ensure_ascii=False)[1:-1]
        uses = await events.tool_uses_with(conn, team_id, turn_ids, escaped, until=until, most=_MOST_USES, limit=_MAX_USES)
        line = read(text)
        found = [use for use in uses if line in {read(added) for added in _read_added(use, names, may_be_older=of_commit)}]
        if found:
            return list(dict.fromkeys(use.turn_id for use in sorted(found, key=lambda use: use.at, reverse=True)))
    return []


def _as_it_is(line: str) -> str:
    return line


def _without_blanks(line: str) -> str:
    return "".join(line.split())


def _read_added(use: ToolUseWithText, names: Collection[str], *, may_be_older: bool) -> list[str]:
    """The lines that the call put into the file; with those that it may have found there only where that is wanted."""
    root = find_working_folder(use.root, field(record(use.payload), "cwd")).root
    reading = read_event(use.event_type, use.payload, root)
    files = [] if reading.has_failed else read_added_lines(reading)
    return [line for it in files if it.path in names and (may_be_older or not it.may_be_older) for line in it.lines]


async def _tell(conn: Conn, team_id: UUID, turn: SessionTurn, names: Collection[str]) -> tuple[str, list[LaterTurn]]:
    """The turn's line, with what of it is over, and later turns: those that changed what it says, then those of the file."""
    before = await turns.newest(
        conn,
        team_id,
        project_id=turn.project_id,
        session_id=turn.server_session_id,
        before=turn.created_at,
        before_id=turn.id,
        limit=1,
        of_users=True,
    )
    entries = await ledger.of_turns(conn, team_id, [turn.number])
    marked, mark = LaterTurns([], entries).mark(turn)
    line = render_turn(marked, before[0] if before else None, SIDE_CHARS, (), mark)
    edited = await ledger.of_file(
        conn, team_id, turn.project_id, names, until=datetime.now(UTC), most=_MOST_TRACES, limit=_MAX_TRACES
    )
    after = [trace.number for trace in edited if (trace.created_at, trace.number) > (turn.created_at, turn.number)]
    pointed = [pointer.later_number for pointer in await sentences.pointers(conn, team_id, [turn.number])]
    changed = [entry.later_number for entry in entries if entry.kind == "edit"]
    how: dict[int, Later] = {}
    kinds: Sequence[tuple[Sequence[int], Later]] = ((pointed, "mentioned"), (after, "edited"), (changed, "changed"))
    for numbers, what in kinds:
        how |= dict.fromkeys(sorted(set(numbers), reverse=True)[:_MAX_LATER], what)
    rows = [row for row in await turns.by_numbers(conn, team_id, how) if row.project_id == turn.project_id] if how else []
    later = [
        LaterTurn(number=row.number, created_at=row.created_at, line=render_turn(row, None, SHORT_CHARS), how=how[row.number])
        for row in rows
    ]
    return line, sorted(later, key=lambda it: (it.created_at, it.number))
