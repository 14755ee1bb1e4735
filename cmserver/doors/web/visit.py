"""One request of a page: who is signed in, what the address and the form say, and the answers that a page can give."""

from __future__ import annotations

import asyncio
import base64
import math
import shlex
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Annotated, TypeVar, cast, get_origin
from urllib.parse import parse_qsl, urlencode
from uuid import UUID, uuid4, uuid5

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from cmserver.access.model import Principal
from cmserver.access.people.model import Client, Login
from cmserver.base.db import Db
from cmserver.base.errors import CmserverError, Invalid, RateLimited, TooLarge, Unauthenticated
from cmserver.base.fair_threads import FairThreads
from cmserver.base.http import wire
from cmserver.base.ids import parse_id
from cmserver.base.sql import Conn
from cmserver.base.text import storable
from cmserver.doors.web import security
from cmserver.doors.web.navigation import visible_groups, visible_tabs
from cmserver.doors.web.templates import render_template

T = TypeVar("T")

_LOOPBACK = {"localhost", "127.0.0.1", "::1"}
_NOTICE_COOKIE = "cmserver_notice"
_NOTICE_SECONDS = 60
_MAX_NOTICE_CHARS = 500
CSRF_FIELD = "token"
"""The hidden field of every form."""
MAX_FORM_BYTES = 262_144
"""Of a form's body. No page takes files; the longest texts are cut to `FIELD_MOST` characters, which is less."""
MAX_FORM_FIELDS = 2_000
SECRET_FIELDS = frozenset({CSRF_FIELD, "password", "current", "key"})
"""Fields of forms that are never shown again."""
_QUICK_BYTES = 8_192
"""A body of this size is decoded at once; a longer one in a thread, since every escape takes about a microsecond."""
_decoders = FairThreads(2, "form")


class UndoOffer(msgspec.Struct, frozen=True):
    """The number of an observation whose change can be undone, and what it is with that change."""

    number: Annotated[int, msgspec.Meta(ge=1)]
    version: Annotated[int, msgspec.Meta(ge=1)]
    expired: bool = False


class Notice(msgspec.Struct, frozen=True):
    """What a page says once about what was just done, and how that is undone."""

    text: Annotated[str, msgspec.Meta(max_length=_MAX_NOTICE_CHARS)]
    undo: UndoOffer | None = None
    undo_own: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """The number of what is the visitor's alone whose last change can be undone."""
    undo_new: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """The number of what was just made, which is undone by forgetting it; of the visitor's own with `is_own`."""
    is_own: bool = False
    alike: Annotated[list[int], msgspec.Meta(max_length=10)] = []
    """The numbers of those that say nearly the same as what was ended, and still hold."""


class Visit:
    """What a handler works with: `query` and `form` read, `render` and `redirect` answer."""

    def __init__(self, request: Request, signed_in: Login | None) -> None:
        self.request = request
        self.signed_in = signed_in
        self.error: CmserverError | None = None
        """Why the form that was sent was refused, when its page is shown again."""
        self.submitted: Mapping[str, list[str]] = {}
        """The fields of the form as they were sent."""
        self._has_read_form = False
        self._principal: Principal | None = signed_in.principal if signed_in else None
        self._new_token: str | None = None

    # ---- who

    @property
    def principal(self) -> Principal:
        """The caller in the current team. Unauthenticated when nobody is signed in, or the person has no team."""
        if self._principal is None:
            raise Unauthenticated("Sign in first, or ask an owner of a team for an invitation.")
        return self._principal

    @property
    def team_id(self) -> UUID:
        return self.principal.team_id

    @property
    def is_operator(self) -> bool:
        """Whether the visitor may run the server as a whole."""
        return self.signed_in is not None and (
            self.signed_in.is_operator or (self._principal is not None and self._principal.may("*"))
        )

    def may(self, scope: str) -> bool:
        """Whether the visitor has the scope; for what a page offers. The page's route checks what it needs."""
        return self._principal is not None and self._principal.may(scope)

    @property
    def client(self) -> Client:
        """The address and the browser."""
        browser = storable(self.request.headers.get("user-agent", ""))[:300]
        return Client(address=wire.client_address(self.request), browser=browser)

    # ---- read

    def dependency(self, class_: type[T]) -> T:
        """The application's instance of that class, which `create_app` provides."""
        return wire.dependency(self.request, class_)

    @property
    def db(self) -> Db:
        return wire.db(self.request)

    def tenant(self) -> AbstractAsyncContextManager[Conn]:
        """A transaction in the current team, which sees of what is a person's alone the visitor's."""
        return self.db.tenant(self.team_id, self.principal.user_id)

    @property
    def path(self) -> str:
        """The page's path, without the one below which a proxy shows the server."""
        return str(self.request.url.path)

    @property
    def address(self) -> str:
        """The page's path and query, for forms that come back to it (`back`)."""
        return f"{self.path}?{self.request.url.query}" if self.request.url.query else self.path

    @staticmethod
    def way_back(sent: str | None, usual: str) -> str:
        """The page that a form names as the one to come back to, where it is one of ours."""
        return sent if sent is not None and (sent == "/ui" or sent.startswith(("/ui/", "/ui?"))) else usual

    @property
    def server_url(self) -> str:
        """The server's address as the visitor sees it."""
        return wire.public_url(self.request)

    @property
    def connect_command(self) -> str:
        """What somebody who sees this page types to connect an agent; with the address, unless the server is on their machine."""
        words = ["cmserver", "connect", "claude-code"]
        is_here = self.request.url.hostname in _LOOPBACK
        return shlex.join(words if is_here else [*words, "--server", self.server_url])

    def parameter(self, name: str) -> str:
        """A parameter of the path."""
        return str(self.request.path_params[name])

    def id_parameter(self, name: str) -> UUID | None:
        """A parameter of the path that is an id; None when it is written in another way."""
        return parse_id(self.parameter(name).lower())

    def query(self, type_: type[T]) -> T:
        """The query string as a Struct: empty values are left out, fields of a list type take every value of their name."""
        return _convert(_grouped(parse_qsl(self.request.scope["query_string"].decode("latin-1"))), type_)

    async def form(self, type_: type[T]) -> T:
        """The form that was sent as a Struct, as `query`. Checkboxes are `bool = False` and send `true`."""
        await self.read_form()
        fields = {name: values for name, values in self.submitted.items() if name != CSRF_FIELD}
        return _convert(fields, type_)

    async def read_form(self) -> None:
        """Read the body into `submitted`, once; TooLarge, or Invalid when it is no form."""
        if self._has_read_form:
            return
        self._has_read_form = True
        try:
            body = await wire.body(self.request, max_bytes=MAX_FORM_BYTES)
        except TooLarge as error:
            limit = f"A form takes at most {MAX_FORM_BYTES:,} bytes"
            raise TooLarge(f"{limit}. Nothing was changed: shorten the text, or send it by the API.") from error
        try:
            if len(body) <= _QUICK_BYTES:
                self.submitted = _decode_form(body)
            else:
                holder = self.signed_in.session.id if self.signed_in else self.client.address
                self.submitted = await asyncio.wrap_future(_decoders.submit(holder, lambda: _decode_form(body)))
        except ValueError as error:
            raise Invalid("The form could not be read. Reload the page and send it again.") from error

    @property
    def typed(self) -> list[tuple[str, str]]:
        """The fields of the form that may be shown again, in the order in which they were sent."""
        return [(name, value) for name, values in self.submitted.items() if name not in SECRET_FIELDS for value in values]

    def form_id(self, once: str) -> UUID:
        """An id for what a form makes, the same whenever the same form is sent (`ui.once()`): so it is made only once."""
        form = parse_id(once)
        if form is None or self.signed_in is None:
            raise Invalid("The form could not be read. Reload the page and send it again.")
        return uuid5(self.signed_in.session.id, once)

    def confirm(self, typed: str, name: str) -> None:
        """Invalid unless the visitor has typed the name of what goes."""
        if typed.strip() != name:
            raise Invalid.at("$.confirm", f"Type {name} to confirm.")

    # ---- answer

    def render(self, template: str, *, title: str, status: int = 200, **values: object) -> Response:
        """The page. `title` names the browser's tab; the template gets the values, `visit`, and the macros of `ui`."""
        notice = self.request.cookies.get(_NOTICE_COOKIE)
        context: dict[str, object] = {
            **values,
            "visit": self,
            "title": title,
            "navigation": visible_groups(self._principal, is_operator=self.is_operator),
            "tabs": visible_tabs(self.path, self._principal, is_operator=self.is_operator),
            "notice": _read_notice(notice) if notice else None,
            "address": self.address,
            "error": self.error,
            "submitted": self.submitted,
            "form_nonce": uuid4(),
            "csrf_field": CSRF_FIELD,
            "csrf_token": self.signed_in.csrf_token if self.signed_in else "",
        }
        status = wire_status(self.error) if self.error else status
        response = Response(render_template(template, context, below=wire.base_path(self.request)), status, media_type="text/html")
        if isinstance(self.error, RateLimited):
            response.headers["Retry-After"] = str(max(1, math.ceil(self.error.retry_after_seconds)))
        if notice:
            response.delete_cookie(_NOTICE_COOKIE, path=security.cookie_path(self.request))
        return self._secured(response)

    def redirect(
        self,
        path: str,
        notice: str = "",
        *,
        undo: UndoOffer | None = None,
        undo_own: int | None = None,
        undo_new: int | None = None,
        is_own: bool = False,
        alike: Sequence[int] = (),
        **query: object,
    ) -> Response:
        """Go to another page after a form (303). `notice` is shown there once, with a button that undoes the change `undo`, the
        last one of the visitor's own of the number `undo_own`, or the making of `undo_new` (of the visitor's own with `is_own`).
        """
        parameters = {name: str(value) for name, value in query.items() if value not in (None, "")}
        target = f"{wire.base_path(self.request)}{path}"
        response = RedirectResponse(f"{target}?{urlencode(parameters)}" if parameters else target, 303)
        if notice:
            shown = Notice(notice[:_MAX_NOTICE_CHARS], undo, undo_own, undo_new, is_own, list(alike))
            text = base64.urlsafe_b64encode(msgspec.json.encode(shown)).decode()
            place = security.cookie_path(self.request)
            response.set_cookie(_NOTICE_COOKIE, text, max_age=_NOTICE_SECONDS, path=place, httponly=True, samesite="lax")
        return self._secured(response)

    def download(self, content: bytes, *, name: str, media_type: str) -> Response:
        """A file to save."""
        response = Response(content, media_type=media_type, headers={"Content-Disposition": f'attachment; filename="{name}"'})
        return self._secured(response)

    def set_session(self, token: str | None) -> None:
        """Sign in with this token, or out with None, by the cookie of the answer."""
        self._new_token = token or ""

    def _secured(self, response: Response) -> Response:
        response.headers.update(security.HEADERS)
        if self._new_token is not None:
            security.set_session_cookie(self.request, response, self._new_token)
        return response


def wire_status(error: CmserverError) -> int:
    """The HTTP status of a refusal."""
    return next((wire.STATUS[kind][0] for kind in type(error).__mro__ if kind in wire.STATUS), 500)


def _decode_form(body: bytes) -> dict[str, list[str]]:
    """ValueError for what is no form."""
    return _grouped(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=MAX_FORM_FIELDS))


def _grouped(pairs: list[tuple[str, str]]) -> dict[str, list[str]]:
    grouped: dict[str, list[str]] = {}
    for name, value in pairs:
        grouped.setdefault(name, []).append(value)
    return grouped


def _convert(fields: Mapping[str, list[str]], type_: type[T]) -> T:
    """The fields as a Struct. A field whose type is a list gets all values, any other the last one; empty ones are left out."""
    lists = {field.encode_name for field in msgspec.structs.fields(cast("type[msgspec.Struct]", type_)) if _is_list(field.type)}
    values = {name: [value for value in sent if value] if name in lists else sent[-1] for name, sent in fields.items() if any(sent)}
    try:
        return msgspec.convert(values, type_, strict=False)
    except msgspec.ValidationError as error:
        raise wire.invalid(error, type_) from error


def _is_list(type_: object) -> bool:
    inner = getattr(type_, "__origin__", type_) if hasattr(type_, "__metadata__") else type_
    return get_origin(inner) is list


def _read_notice(cookie: str) -> Notice | None:
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(cookie.encode()), type=Notice)
    except ValueError:  # also what msgspec refuses
        return None
