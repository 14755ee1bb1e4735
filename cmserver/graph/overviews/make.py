"""Makes the page about a project and reads it."""

from __future__ import annotations

from uuid import UUID

from msgspec import structs

from cmserver.access import audit
from cmserver.access import repository as access
from cmserver.access.model import Principal, Project
from cmserver.access.projects import require_project
from cmserver.base.db import Db
from cmserver.base.errors import Conflict
from cmserver.base.logs import get_logger
from cmserver.base.sql import Conn
from cmserver.graph.overviews import repository
from cmserver.graph.overviews.compose import LATEST, OverviewSource, add_summaries, compose_overview
from cmserver.graph.overviews.model import Overview
from cmserver.graph.overviews.writer import OverviewDraft, OverviewWriter, list_texts
from cmserver.observations import repository as observations
from cmserver.observations.model import ObservationFilter
from cmserver.sessions.turns import repository as turns

log = get_logger(__name__)

NOTHING_YET = "Nothing is remembered of this project yet."
_TECHNOLOGIES, _FILES, _INSTRUCTIONS, _OPEN_ENDS = 8, 200, 6, 8
_DUE_AT_ONCE = 20


async def make_overview(db: Db, writer: OverviewWriter, principal: Principal, name: str) -> Overview:
    """Make the page of the project with that id or name anew; Conflict when nothing is remembered of it."""

    async def make(conn: Conn) -> OverviewDraft:
        project = await require_project(conn, principal, name)
        made = await _make(conn, principal.team_id, project, texts=writer.max_texts)
        if made is None:
            raise Conflict(NOTHING_YET)
        numbers = made.overview.numbers
        await audit.record(conn, principal, "overview.made", "project", project.id, project_id=project.id, numbers=numbers)
        return made

    return await writer.word(principal.team_id, await db.in_tenant(principal.team_id, make))


async def read_overview(conn: Conn, principal: Principal, project_id: UUID) -> Overview | None:
    """The page of the project, with the summaries that came since, unless people wrote it; None when there is none yet."""
    overview = await repository.of_project(conn, principal.team_id, project_id)
    if overview is not None:
        overview = await _add_newest(conn, overview, principal.team_id)
        await audit.record(
            conn, principal, "overview.served", "project", project_id, project_id=project_id, numbers=overview.numbers
        )
    return overview


async def _add_newest(conn: Conn, overview: Overview, team_id: UUID) -> Overview:
    if overview.made_by == "people":
        return overview
    wanted = ObservationFilter(project_id=overview.project_id, kind="summary")
    newest = await observations.newest(conn, team_id, wanted, limit=LATEST)
    since = [row for row in newest if row.created_at > overview.made_at and row.number not in overview.numbers]
    return structs.replace(
        overview,
        body=add_summaries(overview.body, since),
        numbers=sorted({*overview.numbers, *(row.number for row in since)}),
    )


async def find_overview(conn: Conn, principal: Principal, overview_id: UUID) -> Overview | None:
    """The page with that id; None also when the key may not see its project."""
    overview = await repository.by_id(conn, principal.team_id, overview_id)
    return overview if overview is not None and principal.sees(overview.project_id) else None


async def change_overview(conn: Conn, principal: Principal, overview: Overview, body: str) -> Overview:
    """Give the page another text, which stands until it is made anew."""
    changed = await repository.change(conn, principal.team_id, overview.id, body)
    await audit.record(conn, principal, "overview.changed", "project", overview.project_id, project_id=overview.project_id)
    return changed


async def delete_overview(conn: Conn, principal: Principal, overview: Overview) -> None:
    """Delete the page; one is made again after the next session summary."""
    await repository.drop(conn, principal.team_id, overview.project_id)
    await audit.record(conn, principal, "overview.deleted", "project", overview.project_id, project_id=overview.project_id)


async def make_due_overviews(db: Db, writer: OverviewWriter) -> bool:
    """Make the pages that are missing, and those of projects with ten new summaries; whether there are more that can be made."""
    is_any_made = False
    due = await db.in_system(lambda conn: repository.due(conn, _DUE_AT_ONCE))
    for overview in due:
        try:
            made = await db.in_tenant(
                overview.team_id,
                lambda conn, overview=overview: _make_due(conn, overview.team_id, overview.project_id, texts=writer.max_texts),
            )
            is_any_made = True
            if made is not None:
                await writer.word(overview.team_id, made)
        except Exception as error:  # of one project: the others get theirs
            log.exception("overview.failed", project=str(overview.project_id), exc_info=error)
    return is_any_made and len(due) == _DUE_AT_ONCE


async def _make_due(conn: Conn, team_id: UUID, project_id: UUID, *, texts: int) -> OverviewDraft | None:
    if not await repository.take_due(conn, team_id, project_id):
        return None
    project = await access.project(conn, team_id, project_id)
    return None if project is None else await _make(conn, team_id, project, texts=texts)


async def _make(conn: Conn, team_id: UUID, project: Project, *, texts: int) -> OverviewDraft | None:
    """Make and store the page by rules, of so many summaries or turns; None, and none is kept, when nothing is remembered."""
    counts = await observations.counts(conn, team_id, project.id)
    latest = [] if counts.summaries else await turns.newest(conn, team_id, project_id=project.id, limit=texts, of_users=True)
    if not counts.observations + counts.summaries + len(latest):
        await repository.drop(conn, team_id, project.id)
        return None
    summaries = await observations.newest(conn, team_id, ObservationFilter(project_id=project.id, kind="summary"), limit=texts)
    open_ends = await observations.open_ends(conn, team_id, project.id, _OPEN_ENDS)
    source = OverviewSource(
        name=project.name,
        first_at=counts.first_at,
        technologies=await repository.technologies(conn, team_id, project.id, _TECHNOLOGIES),
        files=await repository.files(conn, team_id, project.id, _FILES),
        instructions=await repository.instructions(conn, team_id, project.id, _INSTRUCTIONS),
        # A page would keep what expires longer than it may be shown.
        summaries=[row for row in summaries if row.expires_at is None],
        turns=latest,
        open_ends=[row for row in open_ends if row.expires_at is None],
    )
    composed = compose_overview(source)
    overview = await repository.keep(
        conn,
        team_id,
        project.id,
        body=composed.body,
        opening=composed.opening,
        # A model may be shown more than the page by rules cites: the page forgets what any of it forgets.
        numbers=sorted({*composed.numbers, *(row.number for row in (*source.summaries, *latest))}),
        made_by="rules",
        summary_count=counts.summaries,
    )
    return OverviewDraft(overview=overview, project=project.name, texts=list_texts(source))
