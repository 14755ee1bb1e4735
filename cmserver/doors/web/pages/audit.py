"""The audit log of the team: filtered, and exported as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Annotated, cast
from uuid import UUID

import msgspec
from msgspec import Meta
from starlette.responses import Response

from cmserver.access.audit import repository as audit_log
from cmserver.access.audit.model import AuditEntry, AuditFilter
from cmserver.access.people.accounts import Accounts
from cmserver.access.people.repository import members
from cmserver.access.projects import Projects
from cmserver.base import paging
from cmserver.base.sql import Conn
from cmserver.base.text import Text
from cmserver.base.token_cipher import InstallationSecret, TokenCipher
from cmserver.doors.web.page import Page
from cmserver.doors.web.pages.memory import names_of_projects
from cmserver.doors.web.templates import format_exact
from cmserver.doors.web.visit import Visit

_PAGE = 100
_MAX_EXPORTED = 10_000
_EXPORT_PAGE = 1000
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""What a spreadsheet takes for the beginning of a formula."""


class AuditFilters(msgspec.Struct, frozen=True):
    """The filter in the address; what is left out is any. Who was given what is shown with `reads`, or by its action."""

    action: Annotated[Text, Meta(max_length=200)] | None = None
    actor: Annotated[Text, Meta(max_length=200)] | None = None
    type: Annotated[Text, Meta(max_length=200)] | None = None
    id: Annotated[Text, Meta(max_length=200)] | None = None
    project: str | None = None
    reads: bool = False
    cursor: str | None = None


async def get_audit(visit: Visit) -> Response:
    """Who did what in the team, newest first."""
    filters = visit.query(AuditFilters)
    cipher = TokenCipher(visit.dependency(InstallationSecret).value, b"audit")
    before = None if filters.cursor is None else cipher.decrypt_number(filters.cursor)
    if filters.cursor is not None and before is None:
        raise paging.no_cursor()
    criteria = await _criteria(visit, filters)
    async with visit.tenant() as conn:
        rows = await audit_log.newest(conn, visit.team_id, criteria, before=before, limit=_PAGE + 1)
        entries = rows[:_PAGE]
        names = await _names_of_things(conn, visit, entries)
    return visit.render(
        "audit.html",
        title="Audit log",
        entries=[(entry, _describe_details(entry)) for entry in entries],
        names=names,
        filters=filters,
        parameters=msgspec.structs.asdict(filters),
        next_cursor=cipher.encrypt_number(entries[-1].id) if len(rows) > _PAGE else None,
        max_exported=_MAX_EXPORTED,
    )


async def _names_of_things(conn: Conn, visit: Visit, entries: Sequence[AuditEntry]) -> dict[str, str]:
    """The names of the projects of these entries, of the team's people and of the team, by id."""
    ids = {UUID(entry.resource_id) for entry in entries if entry.resource_id and entry.resource_type == "project"}
    projects = await names_of_projects(conn, visit.principal, ids)
    people = await visit.dependency(Accounts).run(lambda system: members(system, visit.team_id))
    named = {**projects, **{person.account_id: person.name for person in people}, visit.team_id: visit.principal.team_name}
    return {str(thing): name for thing, name in named.items()}


def _describe_details(entry: AuditEntry) -> str:
    """`name: value` of each detail; numbers of observations as `#12, #15`."""
    return "; ".join(f"{name.replace('_', ' ')}: {_describe(name, value)}" for name, value in entry.details.items())


def _describe(name: str, value: object) -> str:
    if isinstance(value, list):
        return ", ".join(_describe(name, item) for item in cast("list[object]", value))
    if isinstance(value, int) and name.endswith(("number", "numbers", "sources")):
        return f"#{value}"
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


async def get_export(visit: Visit) -> Response:
    """The filtered audit log as CSV, newest first, up to 10,000 rows."""
    criteria = await _criteria(visit, visit.query(AuditFilters))
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(["when", "who", "action", "of", "id", "project", "key", "person", "request", "details"])
    before: int | None = None
    for _ in range(_MAX_EXPORTED // _EXPORT_PAGE):
        async with visit.tenant() as conn:
            rows = await audit_log.newest(conn, visit.team_id, criteria, before=before, limit=_EXPORT_PAGE)
        for entry in rows:
            writer.writerow([_cell(value) for value in _values(entry)])
        if len(rows) < _EXPORT_PAGE:
            break
        before = rows[-1].id
    return visit.download(out.getvalue().encode(), name="audit.csv", media_type="text/csv")


async def _criteria(visit: Visit, filters: AuditFilters) -> AuditFilter:
    return AuditFilter(
        project_id=await visit.dependency(Projects).within(visit.principal, filters.project),
        action=filters.action,
        resource_type=filters.type,
        resource_id=filters.id,
        actor_id=filters.actor,
        without_reads=not filters.reads and filters.action is None,
    )


def _values(entry: AuditEntry) -> list[object]:
    details = msgspec.json.encode(entry.details).decode() if entry.details else ""
    what = [entry.action, entry.resource_type, entry.resource_id, entry.project_id, entry.api_key_id, entry.user_id]
    return [format_exact(entry.created_at), entry.actor_id, *what, entry.request_id, details]


def _cell(value: object) -> str:
    """The value as text that no spreadsheet takes for a formula."""
    text = "" if value is None else str(value)
    return f"'{text}" if text.startswith(_FORMULA) else text


routes = [
    Page("GET", "/ui/team/audit", get_audit, scope="admin"),
    Page("GET", "/ui/team/audit.csv", get_export, scope="admin"),
]
