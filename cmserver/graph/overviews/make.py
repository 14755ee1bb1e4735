"""Makes the page about a project and reads it."""

from __future__ import annotations

from uuid import UUID

import structlog
from structlog.typing import FilteringBoundLogger

from cmserver.access import audit
from cmserver.access import repository as access
from cmserver.access.model import Principal, Project
from cmserver.base.db import Db
from cmserver.base.errors import Conflict
from cmserver.base.sql import Conn
from cmserver.graph.overviews import repository
from cmserver.graph.overviews.compose import OverviewSource, compose_overview
from cmserver.graph.overviews.model import Overview
from cmserver.observations import repository as observations

log: FilteringBoundLogger = structlog.get_logger(__name__)

NOTHING_YET = "Nothing is remembered of this project yet."
_TECHNOLOGIES, _FILES, _INSTRUCTIONS, _SUMMARIES, _OPEN_ENDS = 8, 200, 6, 5, 8
_DUE_AT_ONCE = 20


async def make_overview(conn: Conn, principal: Principal, project: Project) -> Overview:
    """Make the page of the project anew; Conflict when nothing is remembered of it."""
    overview = await _make(conn, principal.team_id, project)
    if overview is None:
        raise Conflict(NOTHING_YET)
    await audit.record(conn, principal, "overview.made", "project", project.id, project_id=project.id, numbers=overview.numbers)
    return overview


async def read_overview(conn: Conn, principal: Principal, project_id: UUID) -> Overview | None:
    """The page of the project; None when there is none yet."""
    overview = await repository.of_project(conn, principal.team_id, project_id)
    if overview is not None:
        await audit.record(
            conn, principal, "overview.served", "project", project_id, project_id=project_id, numbers=overview.numbers
        )
    return overview


async def make_due_overviews(db: Db) -> bool:
    """Make the pages that are missing, and those of projects with ten new summaries; whether there are more."""
    due = await db.in_system(lambda conn: repository.due(conn, _DUE_AT_ONCE))
    for overview in due:
        try:
            await db.in_tenant(
                overview.team_id,
                lambda conn, overview=overview: _make_of(conn, overview.team_id, overview.project_id),
            )
        except Exception as error:  # of one project: the others get theirs
            log.exception("overview.failed", project=str(overview.project_id), exc_info=error)
    return len(due) == _DUE_AT_ONCE


async def _make_of(conn: Conn, team_id: UUID, project_id: UUID) -> None:
    project = await access.project(conn, team_id, project_id)
    if project is not None:
        await _make(conn, team_id, project)


async def _make(conn: Conn, team_id: UUID, project: Project) -> Overview | None:
    """Make and store the page; None, and none is kept, when nothing is remembered."""
    counts = await observations.counts(conn, team_id, project.id)
    if not counts.observations + counts.summaries:
        await repository.drop(conn, team_id, project.id)
        return None
    summaries = await observations.newest(conn, team_id, project_id=project.id, kind="summary", limit=_SUMMARIES)
    open_ends = await observations.open_ends(conn, team_id, project.id, _OPEN_ENDS)
    composed = compose_overview(
        OverviewSource(
            name=project.name,
            counts=counts,
            technologies=await repository.technologies(conn, team_id, project.id, _TECHNOLOGIES),
            files=await repository.files(conn, team_id, project.id, _FILES),
            instructions=await repository.instructions(conn, team_id, project.id, _INSTRUCTIONS),
            # A page would keep what expires longer than it may be shown.
            summaries=[row for row in summaries if row.expires_at is None],
            open_ends=[row for row in open_ends if row.expires_at is None],
        )
    )
    return await repository.keep(
        conn,
        team_id,
        project.id,
        body=composed.body,
        opening=composed.opening,
        numbers=composed.numbers,
        made_by="rules",
        summary_count=counts.summaries,
    )
