"""API keys of the team: listed, made (shown once) and revoked."""

from __future__ import annotations

import shlex
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta
from starlette.responses import Response

from cmserver.access import announce
from cmserver.access import repository as access
from cmserver.access.clean import clean_name
from cmserver.access.keys import manage as manage_keys
from cmserver.access.keys import repository as keys
from cmserver.access.keys.manage import NO_SUCH
from cmserver.access.keys.model import KeyRequest
from cmserver.access.model import SCOPES
from cmserver.access.projects import Projects
from cmserver.base import lookalikes, paging
from cmserver.base.errors import Invalid, NotFound
from cmserver.base.notifications import NotificationListener
from cmserver.base.text import Text
from cmserver.doors.web.page import Page
from cmserver.doors.web.pages.memory import list_projects
from cmserver.doors.web.visit import Visit
from cmserver.redaction.redact import redact

_PAGE = 50
_USUAL_SCOPES = ["events:write", "sessions:write", "observations:read", "observations:write", "jobs:read"]
"""What a coding agent needs."""


class KeyFilters(msgspec.Struct, frozen=True):
    """Keys that work, unless `all`."""

    all: bool = False
    cursor: str | None = None


class KeyForm(msgspec.Struct, frozen=True):
    """`whose` is whether the key is the visitor's own, or somebody else's or a machine's, which may have a name."""

    once: str
    whose: Literal["mine", "other"] | None = None
    actor: Annotated[Text, Meta(max_length=100)] | None = None
    name: Annotated[Text, Meta(max_length=120)] = ""
    scopes: list[str] = []
    project: str | None = None
    days: Annotated[int, Meta(ge=1, le=365)] | None = None
    requests_per_minute: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None


class RevokeForm(msgspec.Struct, frozen=True):
    only: bool = False


async def get_keys(visit: Visit) -> Response:
    """The team's API keys, with what each may do and when it was used."""
    principal = visit.principal
    filters = visit.query(KeyFilters)
    before, before_id = paging.place(filters.cursor)
    async with visit.tenant() as conn:
        rows = await keys.newest(
            conn,
            principal.team_id,
            project_id=principal.project_id,
            active=None if filters.all else True,
            before=before,
            before_id=before_id,
            limit=_PAGE + 1,
        )
        keys_of_page, next_cursor = paging.page(rows, _PAGE, lambda key: (key.created_at, key.id))
        names = await access.short_names(conn, principal.team_id, {key.project_id for key in keys_of_page if key.project_id})
        projects = await list_projects(conn, principal)
        rotated = await keys.rotated(conn, principal.team_id, [key.id for key in keys_of_page])
    return visit.render(
        "keys.html",
        title="Keys",
        keys=keys_of_page,
        revocable=manage_keys.find_revocable(principal, keys_of_page),
        rotated=rotated,
        names=names,
        projects=projects,
        filters=filters,
        parameters=msgspec.structs.asdict(filters),
        next_cursor=next_cursor,
        scopes=[scope for scope in SCOPES if principal.may(scope)],
        chosen_scopes=visit.submitted.get("scopes", _USUAL_SCOPES),
        usual_requests_per_minute=manage_keys.USUAL_REQUESTS_PER_MINUTE,
    )


async def post_key(visit: Visit) -> Response:
    """Make a key; it shows once."""
    principal = visit.principal
    form = await visit.form(KeyForm)
    if form.whose is None and principal.user_id is not None:
        raise Invalid.at("$.whose", "Say for whom the key is: what is remembered for you alone is read with a key of yours.")
    if form.actor is not None and form.whose == "mine":
        raise Invalid.at("$.actor", "A key for you has your own name. Choose somebody else, or leave the name out.")
    project_id = None
    if form.project:
        project_id = (await visit.dependency(Projects).named_or_own(principal, form.project, at="$.project")).id
    request = KeyRequest(
        scopes=form.scopes or ["observations:read"],
        name=lookalikes.clean_name(redact(form.name)[0]),
        project_id=project_id,
        actor_id=None if form.actor is None else clean_name(form.actor, at="$.actor"),
        personal=form.whose == "mine",
        expires_in_days=form.days,
        requests_per_minute=UNSET if form.requests_per_minute is None else form.requests_per_minute,
    )
    key_id = visit.form_id(form.once)
    async with visit.tenant() as conn:
        new_key = await manage_keys.create(conn, principal, request, key_id=key_id)
    command = shlex.join(["cmserver", "connect", "claude-code", "--server", visit.server_url])
    is_personal = new_key.key.user_id is not None
    return visit.render("key.html", title="New key", status=201, new_key=new_key, is_personal=is_personal, command=command)


async def post_revoke(visit: Visit) -> Response:
    """Revoke a key and, unless its box is ticked, what it was rotated to and from, at once and everywhere."""
    principal = visit.principal
    form = await visit.form(RevokeForm)
    key_id = visit.id_parameter("id")
    if key_id is None:
        raise NotFound(NO_SUCH)
    revoked = await visit.db.in_tenant(principal.team_id, lambda conn: manage_keys.revoke(conn, principal, key_id, only=form.only))
    announce.drop_cached_here(visit.dependency(NotificationListener), principal.team_id)
    rest = f", and {len(revoked.others)} of its rotations" if revoked.others else ""
    return visit.redirect(
        "/ui/team/keys",
        f"The key {revoked.key.name or revoked.key.id} is revoked{rest}. That cannot be taken back: make a new key instead.",
    )


routes = [
    Page("GET", "/ui/team/keys", get_keys, scope="keys:write"),
    Page("POST", "/ui/team/keys", post_key, scope="keys:write", form_of=get_keys),
    Page("POST", "/ui/team/keys/{id}/revoke", post_revoke, scope="keys:write", form_of=get_keys),
]
