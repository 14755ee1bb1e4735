"""Makes the page of a hand-off: what is open, was decided and changed on a branch, without a model."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import groupby
from uuid import UUID

from cmserver.access.model import Principal, Project
from cmserver.base.sql import Conn
from cmserver.recall import repository as recall
from cmserver.recall.handoff import repository
from cmserver.recall.handoff.model import HandoffPage
from cmserver.recall.index.layout import OPEN_ENDS as OPEN_SECTION
from cmserver.recall.index.layout import IndexFrame, day_of, render_day_heading, section_of
from cmserver.recall.index.selection import IndexInput, compose_index
from cmserver.recall.model import ContextBudget, IndexLine, IndexRow
from cmserver.sessions.ledger import repository as ledger
from cmserver.sessions.turns import repository as turns
from cmserver.sessions.turns.model import SessionTurn
from cmserver.sessions.turns.sentences import repository as sentences

PAGE_TOKENS = 1_500
_TURNS, _LOOKED_AT, _ROWS, _POINTING, _AGENTS, _LINES = 60, 1_000, 200, 40, 60, 60
OPEN_ENDS, DECIDED, CHANGED = "Still open, the newest first", "Decided, the newest first", "Done and changed, the oldest first"


async def build_page(conn: Conn, principal: Principal, project: Project, branch: str, *, tokens: int = PAGE_TOKENS) -> HandoffPage:
    """The page of the branch, or without one of the project, in so many tokens; of what the newest turns say, none older."""
    team_id = principal.team_id
    shown = principal.named(await _find_turns(conn, team_id, project.id, branch))
    rows = principal.named(await _find_rows(conn, team_id, project.id, branch, shown))
    if not shown and not rows:
        return HandoffPage()
    numbers = [turn.number for turn in shown]
    source = IndexInput(
        rows=rows,
        newest_at=[row.created_at for row in rows],
        turns=shown,
        over=await ledger.of_turns(conn, team_id, numbers) if shown else [],
        pointers=await sentences.pointers(conn, team_id, numbers[:_POINTING]) if shown else [],
        agents=await turns.subagents(conn, team_id, {turn.server_session_id for turn in shown}, _AGENTS) if shown else [],
    )
    frame = IndexFrame(project_name=project.name, reason="asked", reader=None, now=datetime.now(UTC), has_turns=bool(shown))
    composed = compose_index(frame, ContextBudget(tokens=tokens, observations=_LINES, summaries=0), source)
    lines = sorted(composed.lines, key=lambda line: (line.scored.row.created_at, line.number))
    left_out = sum(line.omission in {"budget", "limit"} for line in composed.omitted)
    told = [line.number for line in lines]
    return HandoffPage(lines=_render(lines, left_out, frame.now), numbers=told, covered=[*told, *numbers])


async def _find_turns(conn: Conn, team_id: UUID, project_id: UUID, branch: str) -> list[SessionTurn]:
    """Newest first."""
    if not branch:
        return await turns.newest_ended(conn, team_id, project_id, _TURNS)
    ids = await repository.turns_on(conn, team_id, project_id, branch, looked_at=_LOOKED_AT, limit=_TURNS)
    found = {turn.id: turn for turn in await turns.by_ids(conn, team_id, ids)}
    return [found[id_] for id_ in ids if id_ in found]


async def _find_rows(conn: Conn, team_id: UUID, project_id: UUID, branch: str, shown: Sequence[SessionTurn]) -> list[IndexRow]:
    """The project's own observations that are no summaries; of a branch those of its turns."""
    if not branch:
        rows = await recall.newest(conn, team_id, project_id, with_files=False, limit=_ROWS)
    elif shown:
        sessions = {turn.server_session_id for turn in shown}
        numbers = [turn.number for turn in shown]
        rows = await recall.of_turns(conn, team_id, project_id, sessions, numbers, with_files=False, limit=_ROWS)
    else:
        rows = []
    return [row for row in rows if row.kind != "summary"]


def _render(lines: Sequence[IndexLine], left_out: int, now: datetime) -> list[str]:
    """The lines, given oldest first, below their headings."""
    is_open = [line for line in lines if section_of(line.scored.row) == OPEN_SECTION]
    decided = [line for line in lines if line.scored.row.type == "decision" and line not in is_open]
    changed = [line for line in lines if line not in is_open and line not in decided]
    parts = list[str]()
    for heading, section in ((OPEN_ENDS, is_open), (DECIDED, decided)):
        if section:
            parts += [f"\n{heading}\n", *(f"{line.text}\n" for line in reversed(section))]
    if changed:
        parts.append(f"\n{CHANGED}\n")
    for day, of_day in groupby(changed, key=lambda line: day_of(line.scored.row)):
        parts += [f"{render_day_heading(day, now.astimezone(UTC).date())}\n", *(f"{line.text}\n" for line in of_day)]
    return [*parts, f"and {left_out:,} more\n"] if left_out else parts
