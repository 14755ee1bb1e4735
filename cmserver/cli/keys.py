"""`cmserver keys`: API keys. A key's text is printed where it is made, once, and nowhere else."""

from __future__ import annotations

import time
from collections.abc import Mapping
from uuid import UUID

import click
import msgspec

from cmserver.cli.show import moment, pairs, table
from cmserver.cli.talk import Talk, confirm, limit_option, more, segment, talks, yes_option


class Key(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A key as the API shows it."""

    id: str
    name: str
    project_id: str | None
    actor_id: str
    scopes: list[str]
    requests_per_minute: int | None
    events_per_month: int | None
    last_used_at_epoch: int | None
    expires_at_epoch: int | None
    revoked_at_epoch: int | None
    replaced_by: str | None
    created_at_epoch: int

    @property
    def state(self) -> str:
        if self.revoked_at_epoch is not None:
            return "revoked"
        if self.expires_at_epoch is not None and self.expires_at_epoch <= time.time() * 1000:
            return "expired"
        return "replaced" if self.replaced_by else "active"


class OneKey(msgspec.Struct, frozen=True, kw_only=True):
    """An answer with one key."""

    key: Key


class NewKey(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The answer to a new key; its text is shown only now."""

    key: Key
    api_key: str


class Keys(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """An answer with keys."""

    keys: list[Key]
    next_cursor: str | None


_quiet = click.option("--quiet", is_flag=True, help="Print the key and nothing else: KEY=$(cmserver keys create --quiet).")


@click.group()
def keys() -> None:
    """API keys of the team."""


@keys.command("list")
@click.option("--active", is_flag=True, help="Without those that are revoked or expired.")
@limit_option
@talks
async def list_keys(talk: Talk, limit: int, *, active: bool) -> None:
    """The team's keys, newest first; never their texts."""
    answer = await talk.api.pages("/v1/keys", "keys", {"active": active or None}, limit=limit)
    talk.tell(answer, Keys, _table)


def _table(found: Keys) -> str:
    more(found.next_cursor)
    return table(
        ("id", "name", "actor", "scopes", "project", "state", "last used", "expires"),
        [
            (
                key.id,
                key.name,
                key.actor_id,
                " ".join(key.scopes),
                key.project_id,
                key.state,
                moment(key.last_used_at_epoch),
                moment(key.expires_at_epoch),
            )
            for key in found.keys
        ],
        nothing="There are no keys.",
        wide=("name", "actor", "scopes"),
    )


def _lines(key: Key) -> str:
    return pairs(
        ("id", key.id),
        ("name", key.name),
        ("actor", key.actor_id),
        ("scopes", " ".join(key.scopes)),
        ("project", key.project_id),
        ("state", key.state),
        ("requests/min", key.requests_per_minute),
        ("events/month", key.events_per_month),
        ("last used", moment(key.last_used_at_epoch)),
        ("expires", moment(key.expires_at_epoch)),
        ("revoked", moment(key.revoked_at_epoch)),
        ("replaced by", key.replaced_by),
        ("created", moment(key.created_at_epoch)),
    )


@keys.command()
@click.option("--name", help="What it is for; for people.")
@click.option("--scope", "scopes", multiple=True, help="What it may do; may be repeated. Without one it may read.")
@click.option("--project", help="Bind it to one project, outside of which it sees nothing.")
@click.option("--actor", metavar="USER", help="Who uses it; else whoever makes it.")
@click.option("--expires-in-days", type=click.IntRange(1, 365), help="How long it works; else as long as the key that makes it.")
@click.option("--requests-per-minute", type=click.IntRange(1), help="The most requests in a minute.")
@click.option("--events-per-month", type=click.IntRange(0), help="The most events in a calendar month.")
@_quiet
@talks
async def create(
    talk: Talk,
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
    """Make a key and show it, once. It can be allowed no more than the key that makes it."""
    said = {
        "name": name,
        "scopes": list(scopes) or None,
        "project": project,
        "actorId": actor,
        "expiresInDays": expires_in_days,
        "requestsPerMinute": requests_per_minute,
        "eventsPerMonth": events_per_month,
    }
    await _make(talk, "/v1/keys", {name: value for name, value in said.items() if value is not None}, quiet=quiet)


@keys.command()
@click.argument("key_id")
@talks
async def show(talk: Talk, key_id: str) -> None:
    """One key; never its text."""
    talk.tell(await talk.api.get(f"/v1/keys/{segment(key_id)}"), OneKey, lambda one: _lines(one.key))


@keys.command()
@click.argument("key_id")
@click.option("--overlap-seconds", type=click.IntRange(0, 2_592_000), help="How long the old one works on; else a day.")
@_quiet
@talks
async def rotate(talk: Talk, key_id: str, overlap_seconds: int | None, *, quiet: bool) -> None:
    """Put a new key in the place of one, and show it, once. The old one works on for a while.

    Where the old one stands in the data folder's credentials, the new one is written in its place.
    """
    body = {} if overlap_seconds is None else {"overlapSeconds": overlap_seconds}
    made = await _make(talk, f"/v1/keys/{segment(key_id)}/rotate", body, quiet=quiet)
    talk.keep(UUID(key_id), made.api_key)


@keys.command()
@click.argument("key_id")
@yes_option
@talks
async def revoke(talk: Talk, key_id: str, *, yes: bool) -> None:
    """Refuse a key from now on, for ever. Jobs that were queued under it fail when their turn comes."""
    confirm(f"Revoke the key {key_id}, for ever?", yes=yes)
    answer = await talk.api.delete(f"/v1/keys/{segment(key_id)}")
    talk.tell(answer, OneKey, lambda one: f"The key {one.key.id} ({one.key.name or one.key.actor_id}) is revoked.")


async def _make(talk: Talk, path: str, body: Mapping[str, object], *, quiet: bool) -> NewKey:
    answer = await talk.api.post(path, body)
    made = answer.read(NewKey)
    if quiet:
        click.echo(made.api_key)
    else:
        talk.tell(answer, NewKey, lambda made: f"{_lines(made.key)}\nkey, shown only now:\n{made.api_key}")
    return made
