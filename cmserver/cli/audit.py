"""`cmserver audit`: who did what."""

from __future__ import annotations

import click
import msgspec

from cmserver.cli.show import moment, table
from cmserver.cli.talk import Talk, limit_option, more, talks


class Entry(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A row of the audit log."""

    action: str
    resource_type: str
    resource_id: str | None
    actor_id: str | None
    api_key_id: str | None
    details: dict[str, object]
    created_at_epoch: int


class Entries(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """An answer with rows of the audit log."""

    entries: list[Entry]
    next_cursor: str | None


@click.group()
def audit() -> None:
    """The audit log: ids and names, never texts."""


@audit.command("list")
@click.option("--project", help="Only what concerns this project.")
@click.option("--action", help="Only this act, for example key.created.")
@click.option("--resource-type", metavar="TYPE", help="Only acts on this kind of thing, for example api_key.")
@click.option("--resource-id", metavar="ID", help="Only acts on this one thing.")
@click.option("--actor", metavar="USER", help="Only what this person did.")
@click.option("--key-id", metavar="ID", help="Only what was done with this key.")
@limit_option
@talks
async def list_entries(
    talk: Talk,
    project: str | None,
    action: str | None,
    resource_type: str | None,
    resource_id: str | None,
    actor: str | None,
    key_id: str | None,
    limit: int,
) -> None:
    """What was done in the team, newest first."""
    asked = {
        "project": project,
        "action": action,
        "resourceType": resource_type,
        "resourceId": resource_id,
        "actor": actor,
        "key": key_id,
    }
    talk.tell(await talk.api.pages("/v1/audit", "entries", asked, limit=limit), Entries, _table)


def _table(found: Entries) -> str:
    more(found.next_cursor)
    return table(
        ("when", "who", "action", "of", "id", "key", "details"),
        [
            (
                moment(entry.created_at_epoch),
                entry.actor_id,
                entry.action,
                entry.resource_type,
                entry.resource_id,
                entry.api_key_id,
                msgspec.json.encode(entry.details).decode() if entry.details else None,
            )
            for entry in found.entries
        ],
        nothing="Nothing of that kind was done.",
        wide=("details",),
    )
