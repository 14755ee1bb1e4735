"""All SQL on budgets. What is spent of them is known to generation."""

from __future__ import annotations

from decimal import Decimal
from uuid import UUID

from psycopg import errors

from cmserver.access.budgets.model import Budget, Period
from cmserver.base.errors import NotFound
from cmserver.base.sql import Conn, Query

OWNS = {"budgets"}

# In the order of their ids, so that two workers never wait for each other. Where there are none this is all that is asked.
LOCK = Query(
    UUID,
    """
    SELECT id FROM budgets
     WHERE team_id = %(team_id)s AND (project_id IS NULL OR project_id = %(project_id)s)
     ORDER BY id FOR NO KEY UPDATE
    """,
)

# What was said of the old cap is to be said again of the new one.
PUT = Query(
    Budget,
    """
    INSERT INTO budgets AS b (id, team_id, project_id, period, max_tokens, max_usd)
    VALUES (%(id)s, %(team_id)s, %(project_id)s, %(period)s, %(max_tokens)s, %(max_usd)s)
    ON CONFLICT (team_id, project_id, period) DO UPDATE
       SET max_tokens = excluded.max_tokens, max_usd = excluded.max_usd, warned_at = NULL, exhausted_at = NULL, updated_at = now()
     WHERE b.team_id = %(team_id)s
    RETURNING id, team_id, project_id, period, max_tokens, max_usd
    """,
)

REMOVE = Query(
    UUID,
    """
    DELETE FROM budgets
     WHERE team_id = %(team_id)s AND project_id IS NOT DISTINCT FROM %(project_id)s::uuid AND period = %(period)s
    RETURNING id
    """,
)

MARK_WARNED = Query(int, "UPDATE budgets SET warned_at = now() WHERE team_id = %(team_id)s AND id = %(id)s")

MARK_EXHAUSTED = Query(int, "UPDATE budgets SET exhausted_at = now() WHERE team_id = %(team_id)s AND id = %(id)s")


async def lock(conn: Conn, team_id: UUID, project_id: UUID) -> list[UUID]:
    """The budgets under which the project's calls fall, its team's and its own, locked until the transaction ends."""
    return await LOCK.all(conn, team_id=team_id, project_id=project_id)


async def put(
    conn: Conn,
    budget_id: UUID,
    team_id: UUID,
    project_id: UUID | None,
    period: Period,
    *,
    max_tokens: int | None,
    max_usd: Decimal | None,
) -> Budget:
    """The budget of that team or project and period, as it is now; a new one has the id that is given."""
    try:
        return await PUT.one(
            conn, id=budget_id, team_id=team_id, project_id=project_id, period=period, max_tokens=max_tokens, max_usd=max_usd
        )
    except errors.ForeignKeyViolation as error:  # deleted since it was named
        raise NotFound("There is no such project.") from error


async def remove(conn: Conn, team_id: UUID, project_id: UUID | None, period: Period) -> UUID | None:
    return await REMOVE.first(conn, team_id=team_id, project_id=project_id, period=period)


async def mark_warned(conn: Conn, team_id: UUID, budget_id: UUID) -> None:
    await MARK_WARNED.run(conn, team_id=team_id, id=budget_id)


async def mark_exhausted(conn: Conn, team_id: UUID, budget_id: UUID) -> None:
    await MARK_EXHAUSTED.run(conn, team_id=team_id, id=budget_id)
