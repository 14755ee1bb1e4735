"""What others did whose words the reader may not read, as lines of an index: files, checks and commits, and no word of it."""

from __future__ import annotations

from datetime import UTC
from uuid import UUID

from cmserver.access.model import Principal
from cmserver.base.sql import Conn
from cmserver.observations.plain import one_line
from cmserver.sessions import repository as sessions
from cmserver.sessions.model import OthersWork

_SESSIONS, _COMMITS, _NAME_CHARS = 5, 5, 40


async def describe_others_work(conn: Conn, principal: Principal, project_id: UUID) -> list[str]:
    """Lines about the newest sessions of others; none where the reader may read all words."""
    rows = await sessions.others_work(conn, principal.team_id, project_id, limit=_SESSIONS)
    lines = [f"{row.started_at.astimezone(UTC):%Y-%m-%d} {describe_work(row)}\n" for row in reversed(principal.named(rows))]
    return ["\nWork of others in the team, without their words:\n", *lines] if lines else []


def describe_work(work: OthersWork) -> str:
    """`ann: 1 file edited, checks passed, commit abc1234`."""
    done: list[str] = []
    if work.files:
        done.append("1 file edited" if work.files == 1 else f"{work.files:,} files edited")
    if work.checks:
        done.append(f"checks {work.checks}")
    if work.commits:
        more = f" and {len(work.commits) - _COMMITS:,} more" if len(work.commits) > _COMMITS else ""
        done.append(f"{'commit' if len(work.commits) == 1 else 'commits'} {', '.join(work.commits[-_COMMITS:])}{more}")
    return f"{one_line(work.actor_id or 'somebody', _NAME_CHARS)}: {', '.join(done)}"
