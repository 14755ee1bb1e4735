"""The audit log: who did what, in ids and names, never in texts."""

from __future__ import annotations

from uuid import UUID

from cmserver.access.audit import repository
from cmserver.access.model import Principal
from cmserver.base import erasure_journal
from cmserver.base.erasure_journal import ERASURE_ACTIONS
from cmserver.base.ids import request_id
from cmserver.base.sql import Conn


async def record(
    conn: Conn,
    principal: Principal,
    action: str,
    resource_type: str,
    resource_id: UUID | str | None,
    *,
    project_id: UUID | None = None,
    **details: object,
) -> None:
    """Append one row in the caller's transaction; an erasure goes to the journal beside the backups before that commits."""
    if action in ERASURE_ACTIONS and resource_id is not None:
        erasure_journal.note(conn, action, principal.team_id, str(resource_id))
    await repository.append(
        conn,
        team_id=principal.team_id,
        project_id=project_id,
        actor_id=principal.actor_id,
        api_key_id=principal.key_id,
        user_id=principal.user_id,
        action=action,
        resource_type=resource_type,
        resource_id=None if resource_id is None else str(resource_id),
        request_id=request_id(),
        details=details,
    )
