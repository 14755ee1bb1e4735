"""The audit log over HTTP."""

from __future__ import annotations

from uuid import UUID

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from cmserver.access import projects
from cmserver.access.audit import repository as audit_log
from cmserver.access.audit.model import AuditFilter
from cmserver.access.model import Principal
from cmserver.access.projects import NO_SUCH
from cmserver.access.wire import AuditOut, audit_entry_out
from cmserver.base import paging
from cmserver.base.errors import NotFound
from cmserver.base.http.operation import get
from cmserver.base.http.wire import answer, caller, db, dependency, query
from cmserver.base.ids import named_id
from cmserver.base.sql import Conn
from cmserver.base.text import Text
from cmserver.base.token_cipher import InstallationSecret, TokenCipher


class AuditQuery(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """`key` is a key's id; `actor` is who did it, by the name in the log. A project that is erased is named by the id it had: the
    log outlives it.
    """

    project: str | None = None
    action: Text | None = None
    resource_type: Text | None = None
    resource_id: Text | None = None
    actor: Text | None = None
    key: UUID | None = None
    limit: paging.Limit = 50
    cursor: str | None = None


async def get_audit(request: Request) -> Response:
    """A page of who did what, newest first; for a key that is bound to a project, what was done in that project."""
    principal = await caller(request, Principal)
    params = query(request, AuditQuery)
    cipher = TokenCipher(dependency(request, InstallationSecret).value, b"audit")
    before = None if params.cursor is None else cipher.decrypt_number(params.cursor)
    if params.cursor is not None and before is None:
        raise paging.no_cursor()
    async with db(request).tenant(principal.team_id) as conn:
        audit_filter = AuditFilter(
            project_id=principal.project_id if params.project is None else await _find_project_id(conn, principal, params.project),
            action=params.action,
            resource_type=params.resource_type,
            resource_id=params.resource_id,
            actor_id=params.actor,
            api_key_id=params.key,
        )
        rows = await audit_log.newest(conn, principal.team_id, audit_filter, before=before, limit=params.limit + 1)
    entries = [audit_entry_out(row, cipher.encrypt_number(row.id)) for row in rows[: params.limit]]
    return answer(AuditOut(entries=entries, next_cursor=entries[-1].id if len(rows) > params.limit else None))


async def _find_project_id(conn: Conn, principal: Principal, reference: str) -> UUID:
    project_id = named_id(reference)
    if project_id is None:
        return (await projects.require_project(conn, principal, reference)).id
    if not principal.sees(project_id):
        raise NotFound(NO_SUCH)
    return project_id


routes = [get("/v1/audit", get_audit, "admin", AuditOut, query=AuditQuery)]
