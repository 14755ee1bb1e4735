"""`cmserver keys`: API keys. A key's text is printed once, where it is created."""

from __future__ import annotations

import time
from collections.abc import Mapping
from uuid import UUID

import click

from cmserver.access.wire import KeyOut, KeysOut, ListedKeyOut, NewKeyOut, OneKeyOut, RevokedKeyOut
from cmserver.cli.api_client import ApiClient, api_command, confirm, limit_option, path_segment, present, yes_option
from cmserver.cli.output import Columns, render_fields

_quiet = click.option("--quiet", is_flag=True, help="Print only the key: KEY=$(cmserver keys create --quiet).")


@click.group()
def keys() -> None:
    """API keys of the team."""


@keys.command("list")
@click.option("--active", is_flag=True, help="Without revoked and expired keys.")
@limit_option
@api_command
async def list_keys(client: ApiClient, limit: int, *, active: bool) -> None:
    """List the team's keys, newest first, without their texts."""
    client.show(await client.pages("/v1/keys", "keys", {"active": active or None}, limit=limit), KeysOut, _table)


def _table(page: KeysOut) -> str:
    shrink = ("name", "actor", "scopes", "project")
    return _COLUMNS.table(page.keys, page.next_cursor, empty="There are no keys.", shrink=shrink)


def key_state(key: KeyOut) -> str:
    if key.revoked_at_epoch is not None:
        return "revoked"
    if key.expires_at_epoch is not None and key.expires_at_epoch <= time.time() * 1000:
        return "expired"
    return "replaced" if key.replaced_by else "active"


_COLUMNS = Columns(
    ListedKeyOut,
    "id, name, actor=actor_id, scopes, project, state, last used, expires",
    scopes=lambda key: " ".join(key.scopes),
    project=lambda key: key.project or key.project_id,
    state=key_state,
)
_LINES = Columns(
    KeyOut,
    "id, name, actor=actor_id, scopes, project=project_id, state, requests/min=requests_per_minute, events/month=events_per_month, "
    "last used, expires, revoked, replaced by, created",
    scopes=lambda key: " ".join(key.scopes),
    state=key_state,
)


def _lines(key: KeyOut) -> str:
    return render_fields(*_LINES.fields(key))


@keys.command()
@click.option("--name", help="What the key is for.")
@click.option("--scope", "scopes", multiple=True, help="A scope of the key; may be repeated. [default: memories:read]")
@click.option("--project", help="Restrict the key to one project. [default: as the key that creates it]")
@click.option("--actor", metavar="USER", help="Who uses the key. [default: as the key that creates it]")
@click.option(
    "--expires-in-days", type=click.IntRange(1, 365), help="How long the key works. [default: as long as the key that creates it]"
)
@click.option(
    "--requests-per-minute",
    type=click.IntRange(1),
    help="The maximum number of requests in a minute. [default: 600, or the limit of the key that creates it if that is lower]",
)
@click.option(
    "--events-per-month",
    type=click.IntRange(0),
    help="The maximum number of events in a calendar month. [default: as the key that creates it]",
)
@_quiet
@api_command
async def create(
    client: ApiClient,
    name: str | None,
    scopes: tuple[str, ...],
    project: str | None,
    actor: str | None,
    expires_in_days: int | None,
    requests_per_minute: int | None,
    events_per_month: int | None,
    *,
    quiet: bool,
) -> None:
    """Create a key and print it, once. It cannot be allowed more than the key that creates it."""
    body = {
        "name": name,
        "scopes": list(scopes) or None,
        "project": project,
        "actorId": actor,
        "expiresInDays": expires_in_days,
        "requestsPerMinute": requests_per_minute,
        "eventsPerMonth": events_per_month,
    }
    await _create(client, "/v1/keys", present(body), quiet=quiet)


@keys.command()
@click.argument("key_id")
@api_command
async def show(client: ApiClient, key_id: str) -> None:
    """Show one key, without its text."""
    client.show(await client.get(_path(key_id)), OneKeyOut, lambda result: _lines(result.key))


@keys.command()
@api_command
async def current(client: ApiClient) -> None:
    """Show the key that commands use here, without its text: whose it is, what it may, and when it expires."""
    client.show(await client.get("/v1/keys/current"), OneKeyOut, lambda result: _lines(result.key))


@keys.command()
@click.argument("key_id")
@click.option("--overlap-seconds", type=click.IntRange(0, 2_592_000), help="How long the old key still works. [default: a day]")
@_quiet
@api_command
async def rotate(client: ApiClient, key_id: str, overlap_seconds: int | None, *, quiet: bool) -> None:
    """Replace a key by a new one and print it, once. The old one still works for a while.

    If the old key is the one in the data folder's credentials file, the new one replaces it there.
    """
    created = await _create(client, f"{_path(key_id)}/rotate", present({"overlapSeconds": overlap_seconds}), quiet=quiet)
    client.store_rotated_key(UUID(key_id), created.api_key)


@keys.command()
@click.argument("key_id")
@click.option("--only", is_flag=True, help="Leave the keys that it was rotated to, or from, as they are.")
@yes_option
@api_command
async def revoke(client: ApiClient, key_id: str, *, only: bool, yes: bool) -> None:
    """Revoke a key and what it was rotated to and from, for ever. Jobs that were queued with them fail when their turn comes."""
    rest = "" if only else " and what it was rotated to and from"
    confirm(f"Revoke the key {key_id}{rest}, for ever?", yes=yes)
    answer = await client.delete(_path(key_id), {"only": only or None})
    client.show(answer, RevokedKeyOut, _revoked)


def _revoked(result: RevokedKeyOut) -> str:
    return "\n".join(f"The key {key.id} ({key.name or key.actor_id}) is revoked." for key in [result.key, *result.also_revoked])


async def _create(client: ApiClient, path: str, body: Mapping[str, object], *, quiet: bool) -> NewKeyOut:
    answer = await client.post(path, body)
    if not quiet:
        client.show(answer, NewKeyOut, lambda result: f"{_lines(result.key)}\nkey, shown only now:\n{result.api_key}")
    created = answer.read(NewKeyOut)
    if quiet:
        click.echo(created.api_key)
    return created


def _path(key_id: str) -> str:
    return f"/v1/keys/{path_segment(key_id)}"
