"""What is stored, looked at past every policy."""

from __future__ import annotations

from typing import Any

from psycopg.rows import dict_row

from cmserver.base.db import Db


async def rows(db: Db, statement: str, *params: object) -> list[dict[str, Any]]:
    """The rows of the statement by the names of their columns; nothing for one that gives none."""
    async with db.system() as conn, conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(statement, params)  # pyright: ignore[reportArgumentType, reportCallIssue]
        return await cursor.fetchall() if cursor.description else []
