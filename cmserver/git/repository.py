"""SQL on what was taken over of repositories: rows of observations, which `observations` writes."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from cmserver.base.sql import Conn, query
from cmserver.git.model import HistoryCounts, KnownCommit, StoredDocument
from cmserver.observations.model import LIVE

OWNS: set[str] = set()


@query("""
    SELECT coalesce(generation_key, '') FROM observations
     WHERE team_id = %(team_id)s AND project_id = %(project_id)s AND generation_key = ANY(%(keys)s)
    """)
async def known_keys(conn: Conn, team_id: UUID, project_id: UUID, keys: Collection[str]) -> list[str]:
    """Those of the generation keys that the project has, also of rows that are merged or expired."""
    ...


@query(f"""
    SELECT id, substr(metadata ->> 'git', 10) AS path, coalesce(metadata ->> 'blob', '') AS blob FROM observations
     WHERE team_id = %(team_id)s AND project_id = %(project_id)s AND origin = 'git' AND caller_type = 'document' AND {LIVE}
     ORDER BY path
    """)
async def documents(conn: Conn, team_id: UUID, project_id: UUID) -> list[StoredDocument]:
    """The documents of the project, by path."""
    ...


@query(f"""
    SELECT count(*) AS commits, max(created_at) AS newest_at FROM observations
     WHERE team_id = %(team_id)s AND project_id = %(project_id)s AND origin = 'git' AND caller_type = 'commit' AND {LIVE}
    """)
async def counts(conn: Conn, team_id: UUID, project_id: UUID) -> HistoryCounts: ...


@query(f"""
    SELECT number, created_at AS authored_at FROM observations
     WHERE team_id = %(team_id)s AND project_id = %(project_id)s AND generation_key = %(key)s AND {LIVE}
    """)
async def known_commit(conn: Conn, team_id: UUID, project_id: UUID, key: str) -> KnownCommit | None:
    """The project's commit with that generation key."""
    ...
