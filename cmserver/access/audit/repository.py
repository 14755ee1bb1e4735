"""All SQL on the audit log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import LiteralString
from uuid import UUID

import msgspec

from cmserver.access.audit.model import AuditEntry, AuditFilter, NewAuditEntry, ReaderCount
from cmserver.base.sql import Conn, Jsonb, Query, unprepared_query

OWNS = {"audit_log"}

APPEND = Query(
    int,
    """
    INSERT INTO audit_log (team_id, project_id, actor_id, api_key_id, user_id, action, resource_type, resource_id, request_id,
                           details)
    VALUES (%(team_id)s, %(project_id)s, %(actor_id)s, %(api_key_id)s, %(user_id)s, %(action)s, %(resource_type)s,
            %(resource_id)s, %(request_id)s, %(details)s)
    """,
)

APPEND_ALL = Query(
    int,
    """
    INSERT INTO audit_log (team_id, project_id, actor_id, api_key_id, action, resource_type, resource_id, request_id, details)
    SELECT %(team_id)s, n.project_id, n.actor_id, n.api_key_id, n.action, n.resource_type, n.resource_id, n.request_id, n.details
      FROM jsonb_to_recordset(%(entries)s) AS n(project_id uuid, actor_id text, api_key_id uuid, action text, resource_type text,
                                               resource_id text, request_id text, details jsonb)
    """,
)

# Ids are in the order of time, so they are the cursor, and the indexes by team and by project begin the same way.
_SELECT: LiteralString = """
    SELECT id, action, resource_type, resource_id, project_id, actor_id, api_key_id, user_id, request_id, details, created_at
      FROM audit_log
     WHERE team_id = %(team_id)s
       AND (%(before)s::bigint IS NULL OR id < %(before)s)
       AND (%(action)s::text IS NULL OR action = %(action)s)
       AND (%(resource_type)s::text IS NULL OR resource_type = %(resource_type)s)
       AND (%(resource_id)s::text IS NULL OR resource_id = %(resource_id)s)
       AND (%(actor_id)s::text IS NULL OR actor_id = %(actor_id)s)
       AND (%(api_key_id)s::uuid IS NULL OR api_key_id = %(api_key_id)s)
       AND (NOT %(without_reads)s OR right(action, 7) <> '.served')
"""
NEWEST_OF_TEAM = Query(AuditEntry, f"{_SELECT} ORDER BY id DESC LIMIT %(limit)s", prepare=False)
NEWEST_OF_PROJECT = Query(AuditEntry, f"{_SELECT} AND project_id = %(project_id)s ORDER BY id DESC LIMIT %(limit)s", prepare=False)


async def append(
    conn: Conn,
    *,
    team_id: UUID,
    project_id: UUID | None,
    actor_id: str | None,
    api_key_id: UUID | None,
    user_id: UUID | None = None,
    action: str,
    resource_type: str,
    resource_id: str | None,
    request_id: str | None,
    details: Mapping[str, object],
) -> None:
    """Add an entry to the audit log. `details` has ids and names, never texts."""
    await APPEND.run(
        conn,
        team_id=team_id,
        project_id=project_id,
        actor_id=actor_id,
        api_key_id=api_key_id,
        user_id=user_id,
        action=action,
        resource_type=resource_type,
        resource_id=resource_id,
        request_id=request_id,
        details=Jsonb(details),
    )


async def append_all(conn: Conn, team_id: UUID, entries: Sequence[NewAuditEntry]) -> None:
    """Add the entries, in their order."""
    await APPEND_ALL.run(conn, team_id=team_id, entries=Jsonb(list(entries)))


async def newest(conn: Conn, team_id: UUID, audit_filter: AuditFilter, *, before: int | None, limit: int) -> list[AuditEntry]:
    """Newest first; of the whole team without a project."""
    query = NEWEST_OF_TEAM if audit_filter.project_id is None else NEWEST_OF_PROJECT
    return await query.all(conn, team_id=team_id, **msgspec.structs.asdict(audit_filter), before=before, limit=limit)


# What was shown to a session at its start has a receipt, which says more. What people see on pages stands in the audit log only.
@unprepared_query("""
    SELECT actor_id, details ->> 'via' AS via, count(*)::integer AS count, max(created_at) AS last_at
      FROM (SELECT actor_id, details, created_at, action, project_id FROM audit_log
             WHERE team_id = %(team_id)s ORDER BY id DESC LIMIT %(looked_at)s) latest
     WHERE action = 'observations.served' AND details -> 'numbers' @> to_jsonb(%(number)s::bigint)
       AND details ->> 'via' NOT IN ('context', 'prompt', 'file', 'page')
       AND (%(project_id)s::uuid IS NULL OR project_id = %(project_id)s::uuid)
     GROUP BY 1, 2 ORDER BY 4 DESC LIMIT %(limit)s
    """)
async def readers(
    conn: Conn, team_id: UUID, number: int, *, project_id: UUID | None, looked_at: int, limit: int
) -> list[ReaderCount]:
    """Who was given the observation of that number, among the newest `looked_at` rows of the log, the last reader first."""
    ...
