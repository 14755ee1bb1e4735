"""What was done in a turn, read from the events of a batch: files that were changed, checks, commits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

import msgspec

from cmserver.base.sql import Conn
from cmserver.base.text import shorten
from cmserver.generation.model import ClaimedJob
from cmserver.reading.model import CommandRun, EventReading, FileEdit
from cmserver.sessions.turns import repository as turns
from cmserver.tooluse.model import Purpose

_MAX_ITEMS = 100
_MAX_ITEM_CHARS = 300


class TurnWork(msgspec.Struct, kw_only=True):
    """Paths, checks with how they ended, and commands that committed."""

    files: set[str] = msgspec.field(default_factory=set[str])
    checks: list[str] = msgspec.field(default_factory=list[str])
    commits: list[str] = msgspec.field(default_factory=list[str])


async def add_turn_work(conn: Conn, jobs: Sequence[ClaimedJob], readings: Mapping[UUID, EventReading]) -> None:
    """Add what the jobs' events did to their turns. Call it once for each job, in the transaction that ends it."""
    for (team_id, session_id, prompt_number), work in _collect_work(jobs, readings).items():
        await turns.add_work(
            conn,
            team_id,
            session_id,
            prompt_number,
            files=work.files,
            checks=work.checks,
            commits=work.commits,
            max_items=_MAX_ITEMS,
        )


def _collect_work(jobs: Sequence[ClaimedJob], readings: Mapping[UUID, EventReading]) -> dict[tuple[UUID, UUID, int], TurnWork]:
    """What was done, by team, session and number of the prompt; turns in which nothing was done are left out."""
    by_turn: dict[tuple[UUID, UUID, int], TurnWork] = {}
    for job in jobs:
        if job.id not in readings or job.server_session_id is None or job.prompt_number is None:
            continue
        act = readings[job.id].act
        is_run = isinstance(act, CommandRun) and (act.command.is_check or act.command.main.purpose is Purpose.COMMIT)
        if not isinstance(act, FileEdit) and not is_run:
            continue
        work = by_turn.setdefault((job.team_id, job.server_session_id, job.prompt_number), TurnWork())
        if isinstance(act, FileEdit):
            work.files |= {change.path[:_MAX_ITEM_CHARS] for change in act.changes}
        elif isinstance(act, CommandRun):
            text, failure = shorten(act.command.text, _MAX_ITEM_CHARS), act.outcome.failure
            if act.command.is_check:
                ended = f"failed ({shorten(failure, 100)})" if failure else "failed" if act.outcome.failed else "passed"
                work.checks.append(f"{text}: {ended}")
            elif not act.outcome.failed:
                work.commits.append(text)
    return by_turn
