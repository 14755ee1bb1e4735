"""The audit log over HTTP."""

from __future__ import annotations

from typing import cast
from uuid import UUID

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from cmserver.access import projects
from cmserver.access.audit import read
from cmserver.access.audit.read import Filter
from cmserver.access.model import Principal
from cmserver.access.projects import NO_SUCH
from cmserver.access.wire import AuditEntryOut, audit_entry_out
from cmserver.base import paging
from cmserver.base.errors import NotFound
from cmserver.base.http.operation import Operation
from cmserver.base.http.wire import answer, caller, db, query
from cmserver.base.ids import named_id
from cmserver.base.sealed import Seal
from cmserver.base.sql import Conn
from cmserver.base.text import Text


class AuditQuery(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """`key` is a key's id. A project that is erased is named by the id it had: the log outlives it."""

    project: str | None = None
    action: Text | None = None
    resource_type: Text | None = None
    resource_id: Text | None = None
    actor: Text | None = None
    key: UUID | None = None
    limit: paging.Limit = 50
    cursor: str | None = None


class AuditOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Newest first; `nextCursor` is null on the last page."""

    entries: list[AuditEntryOut]
    next_cursor: str | None


async def get_audit(request: Request) -> Response:
    """A page of who did what, newest first; for a key that is bound to a project, what was done in that project."""
    who = await caller(request, Principal)
    asked = query(request, AuditQuery)
    seal = cast("Seal", request.app.state.audit_seal)
    before = None if asked.cursor is None else seal.open_number(asked.cursor)
    if asked.cursor is not None and before is None:
        raise paging.no_cursor()
    async with db(request).tenant(who.team_id) as conn:
        which = Filter(
            project_id=who.project_id if asked.project is None else await _project(conn, who, asked.project),
            action=asked.action,
            resource_type=asked.resource_type,
            resource_id=asked.resource_id,
            actor_id=asked.actor,
            api_key_id=asked.key,
        )
        page = await read.page(conn, who, which, limit=asked.limit, before=before)
    shown = [audit_entry_out(one, seal.close_number(one.id)) for one in page.entries]
    return answer(AuditOut(entries=shown, next_cursor=shown[-1].id if page.more else None))


async def _project(conn: Conn, principal: Principal, named: str) -> UUID:
    project_id = named_id(named)
    if project_id is None:
        return (await projects.one(conn, principal, named)).id
    if not principal.sees(project_id):
        raise NotFound(NO_SUCH)
    return project_id


routes = [Operation("GET", "/v1/audit", get_audit, scope="admin", query=AuditQuery, answers={200: AuditOut})]
