"""`cmserver audit`: who did what."""

from __future__ import annotations

import click
import msgspec

from cmserver.access.wire import AuditEntryOut, AuditOut
from cmserver.cli.api_client import ApiClient, api_command, limit_option
from cmserver.cli.output import Columns


@click.group()
def audit() -> None:
    """The audit log: ids and names, never texts."""


@audit.command("list")
@click.option("--project", help="Only entries about this project.")
@click.option("--action", help="Only this action, for example key.created.")
@click.option("--resource-type", metavar="TYPE", help="Only this type of resource, for example api_key.")
@click.option("--resource-id", metavar="ID", help="Only this resource.")
@click.option("--actor", metavar="USER", help="Only actions of this person.")
@click.option("--key-id", metavar="ID", help="Only actions with this key.")
@limit_option
@api_command
async def list_entries(
    client: ApiClient,
    project: str | None,
    action: str | None,
    resource_type: str | None,
    resource_id: str | None,
    actor: str | None,
    key_id: str | None,
    limit: int,
) -> None:
    """List the team's audit log, newest first."""
    query = {
        "project": project,
        "action": action,
        "resourceType": resource_type,
        "resourceId": resource_id,
        "actor": actor,
        "key": key_id,
    }
    client.show(await client.pages("/v1/audit", "entries", query, limit=limit), AuditOut, _table)


_COLUMNS = Columns(
    AuditEntryOut,
    "when=created, who=actor_id, action, of=resource_type, id=resource_id, key=api_key_id, details",
    details=lambda entry: msgspec.json.encode(entry.details).decode() if entry.details else None,
)


def _table(page: AuditOut) -> str:
    return _COLUMNS.table(page.entries, page.next_cursor, empty="No entries.", shrink=("details",))
