"""The audit log."""

from __future__ import annotations

from uuid import UUID

import msgspec

from cmserver.access import projects, verb
from cmserver.access.audit import repository as audit_log
from cmserver.access.audit.model import AuditFilter
from cmserver.access.model import Principal
from cmserver.access.projects import NO_SUCH
from cmserver.access.verb import VerbCall, command, option
from cmserver.access.wire import AuditEntryOut, AuditOut, audit_entry_out
from cmserver.base import paging
from cmserver.base.columns import Columns
from cmserver.base.errors import NotFound
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


_COLUMNS = Columns(
    AuditEntryOut,
    "when=created, who=actor_id, action, of=resource_type, id=resource_id, key=api_key_id, details",
    details=lambda entry: msgspec.json.encode(entry.details).decode() if entry.details else None,
)


@command("audit list", _COLUMNS.page("entries", "No entries.", shrink=("details",)))
@option("--project", "Only entries about this project.")
@option("--action", "Only this action, for example key.created.")
@option("--resource-type", "Only this type of resource, for example api_key.", metavar="TYPE")
@option("--resource-id", "Only this resource.", metavar="ID")
@option("--actor", "Only actions of this person.", metavar="USER")
@option("--key-id", "Only actions with this key.", field="key", metavar="ID")
@verb.get("/v1/audit", "admin")
async def get_audit(call: VerbCall, given: AuditQuery) -> AuditOut:
    """List the team's audit log, newest first.

    A key that is bound to a project sees what was done in that project.
    """
    principal = call.principal
    cipher = TokenCipher(call.dependency(InstallationSecret).value, b"audit")
    before = None if given.cursor is None else cipher.decrypt_number(given.cursor)
    if given.cursor is not None and before is None:
        raise paging.no_cursor()
    async with call.read() as conn:
        audit_filter = AuditFilter(
            project_id=principal.project_id if given.project is None else await _find_project_id(conn, principal, given.project),
            action=given.action,
            resource_type=given.resource_type,
            resource_id=given.resource_id,
            actor_id=given.actor,
            api_key_id=given.key,
        )
        rows = await audit_log.newest(conn, principal.team_id, audit_filter, before=before, limit=given.limit + 1)
    entries = [audit_entry_out(row, cipher.encrypt_number(row.id)) for row in rows[: given.limit]]
    return AuditOut(entries=entries, next_cursor=entries[-1].id if len(rows) > given.limit else None)


async def _find_project_id(conn: Conn, principal: Principal, reference: str) -> UUID:
    project_id = named_id(reference)
    if project_id is None:
        return (await projects.require_project(conn, principal, reference)).id
    if not principal.sees(project_id):
        raise NotFound(NO_SUCH)
    return project_id


routes = [get_audit]
