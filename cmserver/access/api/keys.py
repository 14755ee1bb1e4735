"""Keys over HTTP. POST /v1/keys has the shape of claude-mem's server, and more."""

from __future__ import annotations

import re
import shlex
from datetime import UTC
from typing import Annotated, cast

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from cmserver.access import repository as access
from cmserver.access.api.inputs import forget
from cmserver.access.api.teams import EventsPerMonth, RequestsPerMinute
from cmserver.access.clean import Name, clean_name
from cmserver.access.keys import manage as manage_keys
from cmserver.access.keys import repository as keys
from cmserver.access.keys.manage import NO_SUCH
from cmserver.access.keys.model import KeyRequest, NewKey
from cmserver.access.model import Principal
from cmserver.access.projects import Projects
from cmserver.access.wire import KeyOut, KeysOut, ListedKeyOut, NewKeyOut, OneKeyOut, RevokedKeyOut
from cmserver.base import lookalikes
from cmserver.base.errors import Invalid, NotFound
from cmserver.base.http.operation import delete, get, post
from cmserver.base.http.wire import answer, caller, convert, db, dependency, path_id, query, read
from cmserver.base.http.wire import body as read_body
from cmserver.base.json_text import decode_json
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

    only: bool = False


class KeyIn(msgspec.Struct, rename="camel", kw_only=True):
    """POST /v1/keys. `label` is claude-mem's word for `name`; `projectId` is the same as `project`; `actorId` is the name under
    which it acts. Without `scopes` the key may read (`memories:read`). What else is left out is as in the caller's key, with at
    most the server's usual requests a minute; a limit of null is none.
    """

    label: Label120 | None = None
    name: Label120 | None = None
    scopes: Annotated[list[Label], Meta(min_length=1, max_length=20)] | None = None
    project: Line | None = None
    project_id: Line | None = None
    actor_id: Name | None = None
    expires_in_days: Annotated[int, Meta(ge=1, le=365)] | None = None
    requests_per_minute: RequestsPerMinute | UnsetType | None = UNSET
    events_per_month: EventsPerMonth | UnsetType | None = UNSET


class RotateIn(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """How long the old key goes on working beside the new one."""

    overlap_seconds: Annotated[int, Meta(ge=0, le=2_592_000)] = OVERLAP_SECONDS


async def get_keys(request: Request) -> Response:
    """A page of the team's keys, newest first; for a key that is bound to a project, those of that project."""
    principal = await caller(request, Principal)
    params = query(request, KeysQuery)
    before, before_id = place(params.cursor)
    async with db(request).tenant(principal.team_id) as conn:
        rows = await keys.newest(
            conn,
            principal.team_id,
            project_id=principal.project_id,
            active=params.active,
            before=before,
            before_id=before_id,
            limit=params.limit + 1,
        )
        keys_of_page, next_cursor = page(rows, params.limit, lambda row: (row.created_at, row.id))
        names = await access.names_of(conn, principal.team_id, {key.project_id for key in keys_of_page if key.project_id})
    listed = [reshape(key, ListedKeyOut, project=names.get(key.project_id) if key.project_id else None) for key in keys_of_page]
    return answer(KeysOut(keys=listed, next_cursor=next_cursor))


async def post_key(request: Request) -> Response:
    """Make a key, which may do at most what the caller's may."""
    principal = await caller(request, Principal)
    value = decode_json(await read_body(request) or b"{}")
    _refuse_other_limits(value)
    body = convert(value, KeyIn)
    project_id = None
    reference, at = (body.project_id, "$.projectId") if body.project is None else (body.project, "$.project")
    if reference is not None:
        project_id = (await dependency(request, Projects).named_or_own(principal, reference, at=at)).id
    key_request = reshape(
        body,
        KeyRequest,
        scopes=body.scopes or ["memories:read"],
        name=lookalikes.clean_name(redact(body.name or body.label or "")[0]),
        project_id=project_id,
        actor_id=None if body.actor_id is None else clean_name(body.actor_id, at="$.actorId"),
    )
    new_key = await db(request).in_tenant(principal.team_id, lambda conn: manage_keys.create(conn, principal, key_request))
    return answer(new_key_out(request, new_key), 201)


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


async def get_key(request: Request) -> Response:
    """One key."""
    principal = await caller(request, Principal)
    async with db(request).tenant(principal.team_id) as conn:
        key = await manage_keys.require_key(conn, principal, path_id(request, NO_SUCH))
    return answer(OneKeyOut(key=reshape(key, KeyOut)))


async def get_current_key(request: Request) -> Response:
    """The key that the request is made with. NotFound for a person at the pages, and for a trusted program without a key."""
    principal = await caller(request, Principal)
    if principal.key_id is None:
        raise NotFound("This request was made without a key.")
    async with db(request).tenant(principal.team_id) as conn:
        key = await manage_keys.require_key(conn, principal, principal.key_id)
    return answer(OneKeyOut(key=reshape(key, KeyOut)))


async def post_rotate(request: Request) -> Response:
    """Replace a key by a new one that may do the same; both work for a while.

    Any key may rotate itself; for another one it takes `keys:write`.
    """
    principal = await caller(request, Principal)
    body = await read(request, RotateIn)
    key_id = path_id(request, NO_SUCH)
    new_key = await db(request).in_tenant(
        principal.team_id, lambda conn: manage_keys.rotate(conn, principal, key_id, overlap_seconds=body.overlap_seconds)
    )
    forget(request, principal)
    return answer(new_key_out(request, new_key), 201)


async def delete_key(request: Request) -> Response:
    """Revoke a key and what it was rotated to and from, at once and everywhere.

    Any key may revoke itself; for another one it takes `keys:write`.
    """
    principal = await caller(request, Principal)
    params = query(request, RevokeQuery)
    key_id = path_id(request, NO_SUCH)
    revoked = await db(request).in_tenant(
        principal.team_id, lambda conn: manage_keys.revoke(conn, principal, key_id, only=params.only)
    )
    forget(request, principal)
    others = [reshape(key, KeyOut) for key in revoked.others]
    return answer(RevokedKeyOut(revoked=True, id=key_id, key=reshape(revoked.key, KeyOut), also_revoked=others))


def new_key_out(request: Request, new_key: NewKey) -> NewKeyOut:
    key = new_key.key
    mcp_url = f"{request.base_url}v1/mcp"
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


routes = [
    get("/v1/keys", get_keys, "keys:write", KeysOut, query=KeysQuery),
    post("/v1/keys", post_key, "keys:write", NewKeyOut, status=201, body=KeyIn),
    get("/v1/keys/current", get_current_key, "", OneKeyOut),
    get("/v1/keys/{id}", get_key, "keys:write", OneKeyOut),
    post("/v1/keys/{id}/rotate", post_rotate, "", NewKeyOut, status=201, body=RotateIn),
    delete("/v1/keys/{id}", delete_key, "", RevokedKeyOut, query=RevokeQuery),
]
