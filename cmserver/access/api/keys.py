"""Keys over HTTP. POST /v1/keys has the shape of claude-mem's server, and more."""

from __future__ import annotations

import re
import shlex
import time
from datetime import UTC
from typing import Annotated, cast

import msgspec
from msgspec import UNSET, Meta, UnsetType

from cmserver.access import repository as access
from cmserver.access import verb
from cmserver.access.api.teams import EventsPerMonth, RequestsPerMinute
from cmserver.access.clean import Name, clean_name
from cmserver.access.keys import manage as manage_keys
from cmserver.access.keys import repository as keys
from cmserver.access.keys.manage import NO_SUCH
from cmserver.access.keys.model import KeyRequest, NewKey
from cmserver.access.projects import Projects
from cmserver.access.verb import VerbCall, command, option
from cmserver.access.wire import KeyOut, KeysOut, ListedKeyOut, NewKeyOut, OneKeyOut, RevokedKeyOut
from cmserver.base import lookalikes
from cmserver.base.columns import Columns
from cmserver.base.errors import Invalid, NotFound
from cmserver.base.ids import require_id
from cmserver.base.paging import Limit, page, place
from cmserver.base.structs import reshape
from cmserver.base.text import Label, Line, Text, storable
from cmserver.redaction.redact import redact

Label120 = Annotated[Text, Meta(max_length=120)]
OVERLAP_SECONDS = 86_400


class KeysQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`active` is true for keys that are neither revoked nor expired, false for the others; without it, all."""

    active: bool | None = None
    limit: Limit = 50
    cursor: str | None = None


class RevokeQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`only` is whether the keys that it was rotated to, or from, stay as they are."""

    id: str
    only: bool = False


class KeyIn(msgspec.Struct, rename="camel", kw_only=True):
    """POST /v1/keys. `label` is claude-mem's word for `name`; `projectId` is the same as `project`; `actorId` is the name under
    which it acts; `personal` is whether what is yours alone is read with it: never with a key of another name. Without `scopes`
    the key may read (`memories:read`). What else is left out is as in the caller's key, with at most the server's usual requests
    a minute; a limit of null is none.
    """

    label: Label120 | None = None
    name: Label120 | None = None
    scopes: Annotated[list[Label], Meta(min_length=1, max_length=20)] | None = None
    project: Line | None = None
    project_id: Line | None = None
    actor_id: Name | None = None
    personal: bool = True
    expires_in_days: Annotated[int, Meta(ge=1, le=365)] | None = None
    requests_per_minute: RequestsPerMinute | UnsetType | None = UNSET
    events_per_month: EventsPerMonth | UnsetType | None = UNSET


class RotateIn(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """How long the old key goes on working beside the new one."""

    id: str
    overlap_seconds: Annotated[int, Meta(ge=0, le=2_592_000)] = OVERLAP_SECONDS


def _refuse_other_limits(value: object) -> None:
    """Invalid for a field that limits a key under another name than ours: ignored, it would make a key without that limit."""
    known = {field.encode_name for field in msgspec.structs.fields(KeyIn)}
    for name in cast("dict[str, object]", value) if isinstance(value, dict) else ():
        letters = "".join(char for char in name.lower() if char.isalpha())
        ours = next((ours for words, ours in _LIMITS if words.search(letters)), None)
        if name not in known and ours is not None:
            raise Invalid.at(f"$.{storable(name)[:100]}", f"A key has no such field, and would be without that limit. Use {ours}.")


_LIMITS = [
    (re.compile("expir|ttl|lifetime|valid|until|maxage|days|seconds|endsat"), "`expiresInDays`, a number from 1 to 365"),
    (re.compile("scope|permission|role|access|grant|allow|readonly|writeonly|abilit|capabilit"), "`scopes`"),
    (re.compile("project|workspace|^repo"), "`project`"),
    (re.compile("budget|cost|spend|token|usd"), "PUT /v1/budgets for what a team or project may spend"),
    (re.compile("permonth|monthly|quota|maxevents"), "`eventsPerMonth`"),
    (re.compile("permin|^rate|^rpm|limit|maxrequests|perhour|perday|persecond"), "`requestsPerMinute`"),
    (re.compile("actor|owner|userid"), "`actorId`"),
]
"""What a field that limits a key may be called elsewhere, and what it is called here."""


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


def render_new_key(result: NewKeyOut, _: object = None) -> str:
    return f"{_LINES.lines('key')(result, None)}\nkey, shown only now:\n{result.api_key}"


@command("keys list", _COLUMNS.page("keys", "There are no keys.", shrink=("name", "actor", "scopes", "project")))
@option("--active", "Without revoked and expired keys.")
@verb.get("/v1/keys", "keys:write")
async def get_keys(call: VerbCall, given: KeysQuery) -> KeysOut:
    """List the team's keys, newest first, without their texts.

    A key that is bound to a project sees those of that project.
    """
    principal = call.principal
    before, before_id = place(given.cursor)
    async with call.read() as conn:
        rows = await keys.newest(
            conn,
            principal.team_id,
            project_id=principal.project_id,
            active=given.active,
            before=before,
            before_id=before_id,
            limit=given.limit + 1,
        )
        keys_of_page, next_cursor = page(rows, given.limit, lambda row: (row.created_at, row.id))
        names = await access.names_of(conn, principal.team_id, {key.project_id for key in keys_of_page if key.project_id})
    listed = [reshape(key, ListedKeyOut, project=names.get(key.project_id) if key.project_id else None) for key in keys_of_page]
    return KeysOut(keys=listed, next_cursor=next_cursor)


@command(
    "keys create",
    render_new_key,
    text="Create a key and print it, once. It cannot be allowed more than the key that creates it.",
    quiet=("Print only the key: KEY=$(cmserver keys create --quiet).", lambda new: new.api_key),
)
@option("--name", "What the key is for.")
@option("--scope", "A scope of the key; may be repeated. [default: memories:read]", field="scopes")
@option("--project", "Restrict the key to one project. [default: as the key that creates it]")
@option("--actor", "Who uses the key. [default: as the key that creates it]", field="actor_id", metavar="USER")
@option("--for-others", "For somebody else or a machine: what is yours alone is not read with it.", field="personal", on=False)
@option("--expires-in-days", "How long the key works. [default: as long as the key that creates it]")
@option(
    "--requests-per-minute",
    "The maximum number of requests in a minute. [default: 600, or the limit of the key that creates it if that is lower]",
)
@option("--events-per-month", "The maximum number of events in a calendar month. [default: as the key that creates it]")
@verb.post("/v1/keys", "keys:write", status=201, check=_refuse_other_limits)
async def post_key(call: VerbCall, given: KeyIn) -> NewKeyOut:
    """Make a key, which may do at most what the caller's may."""
    principal, project_id = call.principal, None
    reference, at = (given.project_id, "$.projectId") if given.project is None else (given.project, "$.project")
    if reference is not None:
        project_id = (await call.dependency(Projects).named_or_own(principal, reference, at=at)).id
    key_request = reshape(
        given,
        KeyRequest,
        scopes=given.scopes or ["memories:read"],
        name=lookalikes.clean_name(redact(given.name or given.label or "")[0]),
        project_id=project_id,
        actor_id=None if given.actor_id is None else clean_name(given.actor_id, at="$.actorId"),
    )
    new_key = await call.write(lambda conn: manage_keys.create(conn, principal, key_request))
    return new_key_out(call, new_key)


@command("keys show", _LINES.lines("key"))
@option("KEY_ID", field="id")
@verb.get("/v1/keys/{id}", "keys:write")
async def get_key(call: VerbCall, given: str) -> OneKeyOut:
    """Show one key, without its text."""
    async with call.read() as conn:
        key = await manage_keys.require_key(conn, call.principal, require_id(given, NO_SUCH))
    return OneKeyOut(key=reshape(key, KeyOut))


@command(
    "keys current",
    _LINES.lines("key"),
    text="Show the key that commands use here, without its text: whose it is, what it may, and when it expires.",
)
@verb.get("/v1/keys/current", "")
async def get_current_key(call: VerbCall) -> OneKeyOut:
    """The key that the request is made with. NotFound for a person at the pages, and for a trusted program without a key."""
    if call.principal.key_id is None:
        raise NotFound("This request was made without a key.")
    async with call.read() as conn:
        key = await manage_keys.require_key(conn, call.principal, call.principal.key_id)
    return OneKeyOut(key=reshape(key, KeyOut))


@verb.post("/v1/keys/{id}/rotate", "", status=201)
async def post_rotate(call: VerbCall, given: RotateIn) -> NewKeyOut:
    """Replace a key by a new one that may do the same; both work for a while.

    Any key may rotate itself; for another one it takes `keys:write`.
    """
    key_id = require_id(given.id, NO_SUCH)
    new_key = await call.write(lambda conn: manage_keys.rotate(conn, call.principal, key_id, overlap_seconds=given.overlap_seconds))
    call.drop_cached()
    return new_key_out(call, new_key)


@command(
    "keys revoke",
    lambda result, _: "\n".join(
        f"The key {key.id} ({key.name or key.actor_id}) is revoked." for key in [result.key, *result.also_revoked]
    ),
    confirm=lambda typed: (
        f"Revoke the key {typed['key_id']}{'' if typed['only'] else ' and what it was rotated to and from'}, for ever?"
    ),
)
@option("KEY_ID", field="id")
@option("--only", "Leave the keys that it was rotated to, or from, as they are.")
@verb.delete("/v1/keys/{id}", "")
async def delete_key(call: VerbCall, given: RevokeQuery) -> RevokedKeyOut:
    """Revoke a key and what it was rotated to and from, for ever. Jobs that were queued with them fail when their turn comes.

    At once and everywhere. Any key may revoke itself; for another one it takes `keys:write`.
    """
    key_id = require_id(given.id, NO_SUCH)
    revoked = await call.write(lambda conn: manage_keys.revoke(conn, call.principal, key_id, only=given.only))
    call.drop_cached()
    others = [reshape(key, KeyOut) for key in revoked.others]
    return RevokedKeyOut(revoked=True, id=key_id, key=reshape(revoked.key, KeyOut), also_revoked=others)


def new_key_out(call: VerbCall, new_key: NewKey) -> NewKeyOut:
    key = new_key.key
    mcp_url = f"{call.base_url}/v1/mcp"
    options = ["--transport", "http", "cmserver", mcp_url, "--header", f"Authorization: Bearer {new_key.text}"]
    return reshape(
        key,
        NewKeyOut,
        api_key=new_key.text,
        expires_at=None if key.expires_at is None else key.expires_at.astimezone(UTC).isoformat().replace("+00:00", "Z"),
        mcp_url=mcp_url,
        connect_command=shlex.join(["claude", "mcp", "add", *options]),
        key=reshape(key, KeyOut),
    )


routes = [get_keys, post_key, get_current_key, get_key, post_rotate, delete_key]
