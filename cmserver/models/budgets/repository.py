"""All SQL on budgets. Generation knows what is spent of them."""

from __future__ import annotations

from decimal import Decimal
from uuid import UUID

from psycopg import errors

from cmserver.base.errors import NotFound
from cmserver.base.sql import Conn, Query, query
from cmserver.models.budgets.model import Budget, Period

OWNS = {"budgets"}


# The new cap is warned about again.
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


# In the order of their ids, against deadlocks between workers.
@query("""
    SELECT id FROM budgets
     WHERE team_id = %(team_id)s AND (project_id IS NULL OR project_id = %(project_id)s)
     ORDER BY id FOR NO KEY UPDATE
    """)
async def lock(conn: Conn, team_id: UUID, project_id: UUID) -> list[UUID]:
    """The budgets that apply to the project's calls, its own and its team's, locked until the transaction ends."""
    ...


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
    """Insert the budget with this id, or update the one of the same team or project and period; returns it."""
    try:
        return await PUT.one(
            conn, id=budget_id, team_id=team_id, project_id=project_id, period=period, max_tokens=max_tokens, max_usd=max_usd
        )
    except errors.ForeignKeyViolation as error:  # deleted meanwhile
        raise NotFound("Project not found.") from error


@query("""
    DELETE FROM budgets
     WHERE team_id = %(team_id)s AND project_id IS NOT DISTINCT FROM %(project_id)s::uuid AND period = %(period)s
    RETURNING id
    """)
async def remove(conn: Conn, team_id: UUID, project_id: UUID | None, period: Period) -> UUID | None: ...


@query("UPDATE budgets SET warned_at = now() WHERE team_id = %(team_id)s AND id = %(budget_id)s")
async def mark_warned(conn: Conn, team_id: UUID, budget_id: UUID) -> None: ...


@query("UPDATE budgets SET exhausted_at = now() WHERE team_id = %(team_id)s AND id = %(budget_id)s")
async def mark_exhausted(conn: Conn, team_id: UUID, budget_id: UUID) -> None: ...
