"""All SQL on the pages about projects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import LiteralString
from uuid import UUID

from cmserver.base.ids import new_id
from cmserver.base.sql import Conn, Jsonb, Query, RowCount, query, unprepared_query
from cmserver.graph.overviews.model import DueOverview, Instruction, NamedFile, Overview, SummaryCount
from cmserver.observations.model import LIVE, MIN_INSTRUCTION_IMPORTANCE

OWNS = {"project_overviews"}

_COLUMNS: LiteralString = "id, project_id, body, opening, numbers, made_by, summary_count, new_summaries, made_at"

COUNT_SUMMARIES = Query(
    int,
    """
    INSERT INTO project_overviews AS v (id, project_id, team_id, new_summaries)
    SELECT gen_random_uuid(), n.project_id, %(team_id)s, n.summaries
      FROM jsonb_to_recordset(%(rows)s) AS n (project_id uuid, summaries integer)
      JOIN projects p ON p.id = n.project_id AND p.team_id = %(team_id)s
     ORDER BY n.project_id
    ON CONFLICT (project_id) DO UPDATE SET new_summaries = v.new_summaries + excluded.new_summaries
    """,
)
# Several workers read the same list: one of them makes the page.
TAKE_DUE = Query(
    UUID,
    """
    SELECT project_id FROM project_overviews
     WHERE project_id = %(project_id)s AND team_id = %(team_id)s AND (body IS NULL OR new_summaries >= 10)
       FOR UPDATE SKIP LOCKED
    """,
)
# One that was made anew or emptied meanwhile stays as it is: what the words were made of may be gone.
WORD = Query(
    int,
    """
    UPDATE project_overviews SET body = %(body)s, made_by = %(made_by)s
     WHERE id = %(id)s AND team_id = %(team_id)s AND made_at = %(made_at)s AND body IS NOT NULL
    """,
)
KEEP = Query(
    Overview,
    f"""
    INSERT INTO project_overviews (id, project_id, team_id, body, opening, numbers, made_by, summary_count, made_at)
    VALUES (%(id)s, %(project_id)s, %(team_id)s, %(body)s, %(opening)s, %(numbers)s, %(made_by)s, %(summary_count)s, now())
    ON CONFLICT (project_id) DO UPDATE
       SET body = excluded.body, opening = excluded.opening, numbers = excluded.numbers, made_by = excluded.made_by,
           summary_count = excluded.summary_count, new_summaries = 0, made_at = excluded.made_at
    RETURNING {_COLUMNS}
    """,
)

INSTRUCTIONS = Query(
    Instruction,
    f"""
    SELECT number, coalesce(title, left(content, 200)) AS title FROM observations
     WHERE team_id = %(team_id)s AND project_id = %(project_id)s AND type = 'decision' AND importance > %(importance)s AND {LIVE}
       AND expires_at IS NULL
       AND created_at > '-infinity' -- all are: the index by type says it, see rule 3 of migration 0001
     ORDER BY created_at DESC, id DESC LIMIT %(limit)s
    """,
)


async def count_summaries(conn: Conn, team_id: UUID, counts: Sequence[SummaryCount]) -> None:
    """Count new session summaries; a project without a page gets one."""
    await COUNT_SUMMARIES.run(conn, team_id=team_id, rows=Jsonb(list(counts)))


# After ten session summaries a page is made anew; the index says it. In no order: pages that fail keep no others waiting.
@query("""
    SELECT v.team_id, v.project_id FROM project_overviews v JOIN projects p ON p.id = v.project_id AND p.team_id = v.team_id
     WHERE (v.body IS NULL OR v.new_summaries >= 10) AND p.archived_at IS NULL ORDER BY random() LIMIT %(limit)s
    """)
async def due(conn: Conn, limit: int) -> list[DueOverview]:
    """The projects of all teams whose page is to be made."""
    ...


async def take_due(conn: Conn, team_id: UUID, project_id: UUID) -> bool:
    """Lock the page until the end of the transaction; False when it is not due any more, or another worker makes it."""
    return await TAKE_DUE.first(conn, team_id=team_id, project_id=project_id) is not None


@query(f"SELECT {_COLUMNS} FROM project_overviews WHERE project_id = %(project_id)s AND team_id = %(team_id)s AND body IS NOT NULL")
async def of_project(conn: Conn, team_id: UUID, project_id: UUID) -> Overview | None:
    """The page about the project, if one is made."""
    ...


@query(f"SELECT {_COLUMNS} FROM project_overviews WHERE id = %(overview_id)s AND team_id = %(team_id)s AND body IS NOT NULL")
async def by_id(conn: Conn, team_id: UUID, overview_id: UUID) -> Overview | None: ...


@query(f"""
    UPDATE project_overviews SET body = %(body)s, made_by = 'people', made_at = now()
     WHERE id = %(overview_id)s AND team_id = %(team_id)s
    RETURNING {_COLUMNS}
    """)
async def change(conn: Conn, team_id: UUID, overview_id: UUID, body: str) -> Overview:
    """Give the page another text."""
    ...


async def word(conn: Conn, team_id: UUID, overview: Overview, body: str, made_by: str) -> bool:
    """Give the page these words; False when it is not any more what they were made for."""
    return await WORD.run(conn, id=overview.id, team_id=team_id, made_at=overview.made_at, body=body, made_by=made_by) > 0


async def keep(
    conn: Conn,
    team_id: UUID,
    project_id: UUID,
    *,
    body: str,
    opening: Sequence[str],
    numbers: Sequence[int],
    made_by: str,
    summary_count: int,
) -> Overview:
    """Store the page in the place of the one before."""
    return await KEEP.one(
        conn,
        id=new_id(),
        team_id=team_id,
        project_id=project_id,
        body=body,
        opening=list(opening),
        numbers=list(numbers),
        made_by=made_by,
        summary_count=summary_count,
    )


@query("DELETE FROM project_overviews WHERE project_id = %(project_id)s AND team_id = %(team_id)s")
async def drop(conn: Conn, team_id: UUID, project_id: UUID) -> None:
    """Delete the page of a project of which nothing is left."""
    ...


@unprepared_query("""
    DELETE FROM project_overviews
     WHERE team_id = %(team_id)s AND (%(project_id)s::uuid IS NULL OR project_id = %(project_id)s::uuid)
    """)
async def erase(conn: Conn, team_id: UUID, project_id: UUID | None) -> RowCount:
    """Delete the pages of the project, or of the whole team for None; how many there were."""
    ...


async def instructions(conn: Conn, team_id: UUID, project_id: UUID, limit: int) -> list[Instruction]:
    """What users laid down for good, the newest first."""
    return await INSTRUCTIONS.all(conn, team_id=team_id, project_id=project_id, importance=MIN_INSTRUCTION_IMPORTANCE, limit=limit)


@query("""
    SELECT name AS path, mention_count AS mentions FROM entities
     WHERE project_id = %(project_id)s AND team_id = %(team_id)s AND type = 'file' AND merged_into IS NULL AND mention_count > 0
     ORDER BY mention_count DESC, id LIMIT %(limit)s
    """)
async def files(conn: Conn, team_id: UUID, project_id: UUID, limit: int) -> list[NamedFile]:
    """The files that are mentioned most."""
    ...


@query("""
    SELECT name FROM entities
     WHERE project_id = %(project_id)s AND team_id = %(team_id)s AND type = 'technology' AND merged_into IS NULL
       AND mention_count >= 3 -- once or twice says little of a project
     ORDER BY mention_count DESC, id LIMIT %(limit)s
    """)
async def technologies(conn: Conn, team_id: UUID, project_id: UUID, limit: int) -> list[str]:
    """The technologies that are mentioned most."""
    ...
