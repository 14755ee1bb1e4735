"""Keys over HTTP. POST /v1/keys has the shape of claude-mem's server, and more."""

from __future__ import annotations

import shlex
from datetime import UTC
from typing import Annotated, cast
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from cmserver.access.api.given import Name, clean_name, forget
from cmserver.access.api.teams import EventsPerMonth, RequestsPerMinute
from cmserver.access.keys import manage, repository
from cmserver.access.keys.manage import NO_SUCH, Wanted
from cmserver.access.keys.model import Made
from cmserver.access.model import Principal
from cmserver.access.projects import Projects
from cmserver.access.wire import KeyOut, key_out
from cmserver.base.errors import NotFound
from cmserver.base.http.operation import Operation
from cmserver.base.http.wire import answer, caller, db, query, read
from cmserver.base.ids import named_id
from cmserver.base.paging import Limit, page, place
from cmserver.base.redaction.redact import redact
from cmserver.base.settings import Settings
from cmserver.base.text import Label, Text

Label120 = Annotated[Text, Meta(max_length=120)]
OVERLAP_SECONDS = 86_400


class KeysQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`active`: true for keys that are neither revoked nor expired, false for the others; without it, all."""

    active: bool | None = None
    limit: Limit = 50
    cursor: str | None = None


class KeyIn(msgspec.Struct, rename="camel", kw_only=True):
    """POST /v1/keys. `label` is claude-mem's word for `name`, and `projectId` means `project`. What is not said is as with the
    asking key; null limits none.
    """

    label: Label120 | None = None
    name: Label120 | None = None
    scopes: Annotated[list[Label], Meta(min_length=1, max_length=20)] | None = None
    project: Text | None = None
    project_id: Text | None = None
    actor_id: Name | None = None
    expires_in_days: Annotated[int, Meta(ge=1, le=365)] | None = None
    requests_per_minute: RequestsPerMinute | UnsetType | None = UNSET
    events_per_month: EventsPerMonth | UnsetType | None = UNSET


class RotateIn(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """How long the old key goes on working beside the new one."""

    overlap_seconds: Annotated[int, Meta(ge=0, le=2_592_000)] = OVERLAP_SECONDS


class KeysOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Newest first; `nextCursor` is null on the last page."""

    keys: list[KeyOut]
    next_cursor: str | None


class OneKeyOut(msgspec.Struct, frozen=True, kw_only=True):
    """One key."""

    key: KeyOut


class MadeOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A new key. `apiKey` is its text, shown only now; `expiresAt` is ISO 8601."""

    id: UUID
    api_key: str
    scopes: list[str]
    expires_at: str | None
    mcp_url: str
    connect_command: str
    key: KeyOut


class RevokedOut(msgspec.Struct, frozen=True, kw_only=True):
    """The key that opens nothing any more."""

    revoked: bool
    id: UUID
    key: KeyOut


async def get_keys(request: Request) -> Response:
    """A page of the team's keys, newest first; for a key that is bound to a project, those of that project."""
    who = await caller(request, Principal)
    asked = query(request, KeysQuery)
    before, before_id = place(asked.cursor)
    async with db(request).tenant(who.team_id) as conn:
        rows = await repository.newest(
            conn,
            who.team_id,
            project_id=who.project_id,
            active=asked.active,
            before=before,
            before_id=before_id,
            limit=asked.limit + 1,
        )
    shown, more = page(rows, asked.limit, lambda one: (one.created_at, one.id))
    return answer(KeysOut(keys=[key_out(one) for one in shown], next_cursor=more))


async def post_key(request: Request) -> Response:
    """Make a key, which may do at most what the caller's may."""
    who = await caller(request, Principal)
    asked = await read(request, KeyIn)
    project_id = None
    named, at = (asked.project_id, "$.projectId") if asked.project is None else (asked.project, "$.project")
    if named is not None:
        project_id = (await _projects(request).named_or_own(who, named, at=at)).id
    wanted = Wanted(
        scopes=asked.scopes or ["memories:read"],
        name=redact(asked.name or asked.label or "")[0].strip(),
        project_id=project_id,
        actor_id=None if asked.actor_id is None else clean_name(asked.actor_id, at="$.actorId"),
        expires_in_days=asked.expires_in_days,
        requests_per_minute=asked.requests_per_minute,
        events_per_month=asked.events_per_month,
    )
    usual = cast("Settings", request.app.state.settings).key_requests_per_minute
    made = await db(request).in_tenant(who.team_id, lambda conn: manage.create(conn, who, wanted, usual_requests_per_minute=usual))
    return answer(_made_out(request, made), 201)


async def get_key(request: Request) -> Response:
    """One key."""
    who = await caller(request, Principal)
    async with db(request).tenant(who.team_id) as conn:
        key = await manage.one(conn, who, _id(request))
    return answer(OneKeyOut(key=key_out(key)))


async def post_rotate(request: Request) -> Response:
    """Replace a key by a new one that may do the same; both work for a while.

    Any key may rotate itself; for another one it takes `keys:write`.
    """
    who = await caller(request, Principal)
    asked = await read(request, RotateIn)
    key_id = _id(request)
    made = await db(request).in_tenant(
        who.team_id, lambda conn: manage.rotate(conn, who, key_id, overlap_seconds=asked.overlap_seconds)
    )
    forget(request, who)
    return answer(_made_out(request, made), 201)


async def delete_key(request: Request) -> Response:
    """Revoke a key, at once and everywhere.

    Any key may revoke itself; for another one it takes `keys:write`.
    """
    who = await caller(request, Principal)
    key_id = _id(request)
    key = await db(request).in_tenant(who.team_id, lambda conn: manage.revoke(conn, who, key_id))
    forget(request, who)
    return answer(RevokedOut(revoked=True, id=key.id, key=key_out(key)))


def _projects(request: Request) -> Projects:
    return cast("Projects", request.app.state.projects)


def _id(request: Request) -> UUID:
    key_id = named_id(str(request.path_params["id"]))
    if key_id is None:
        raise NotFound(NO_SUCH)
    return key_id


def _made_out(request: Request, made: Made) -> MadeOut:
    key = made.key
    mcp_url = f"{request.base_url}v1/mcp"
    command = ["claude", "mcp", "add", "--transport", "http", "cmserver", mcp_url, "--header", f"Authorization: Bearer {made.text}"]
    return MadeOut(
        id=key.id,
        api_key=made.text,
        scopes=key.scopes,
        expires_at=None if key.expires_at is None else key.expires_at.astimezone(UTC).isoformat().replace("+00:00", "Z"),
        mcp_url=mcp_url,
        connect_command=shlex.join(command),
        key=key_out(key),
    )


routes = [
    Operation("GET", "/v1/keys", get_keys, scope="keys:write", query=KeysQuery, answers={200: KeysOut}),
    Operation("POST", "/v1/keys", post_key, scope="keys:write", body=KeyIn, answers={201: MadeOut}),
    Operation("GET", "/v1/keys/{id}", get_key, scope="keys:write", answers={200: OneKeyOut}),
    Operation("POST", "/v1/keys/{id}/rotate", post_rotate, scope="", body=RotateIn, answers={201: MadeOut}),
    Operation("DELETE", "/v1/keys/{id}", delete_key, scope="", answers={200: RevokedOut}),
]
