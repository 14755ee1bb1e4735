"""Reads the audit log, page by page."""

from __future__ import annotations

from uuid import UUID

import msgspec

from cmserver.access.audit import repository
from cmserver.access.audit.model import AuditEntry
from cmserver.access.model import Principal
from cmserver.base.sql import Conn


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """Which rows; None is any."""

    project_id: UUID | None = None
    action: str | None = None
    resource_type: str | None = None
    resource_id: str | None = None
    actor_id: str | None = None
    api_key_id: UUID | None = None


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """Rows, newest first, and whether there are older ones."""

    entries: list[AuditEntry]
    more: bool


async def page(conn: Conn, principal: Principal, which: Filter, *, limit: int, before: int | None) -> Page:
    """The newest rows of the team, older than `before` where that is given."""
    rows = await repository.newest(conn, principal.team_id, **msgspec.structs.asdict(which), before=before, limit=limit + 1)
    return Page(entries=rows[:limit], more=len(rows) > limit)
