"""Trying again by hand what could not be embedded."""

from __future__ import annotations

from cmserver.access import announce, audit
from cmserver.access.model import Principal
from cmserver.base.sql import Conn
from cmserver.observations.embedding import repository


async def retry(conn: Conn, principal: Principal) -> int:
    """All that failed in what the key reaches is due now; how many embeddings."""
    count = await repository.retry(conn, principal.team_id, principal.project_id)
    await audit.record(conn, principal, "embeddings.retried", "embedding", None, project_id=principal.project_id, embeddings=count)
    await announce.news(conn)  # workers look at once
    return count
