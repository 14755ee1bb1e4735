"""One row a verb: its route, its commands, its lines in OpenAPI and in the reference.

    @command("budgets remove", lambda _, typed: f"Removed the {typed['period']} budget.")
    @option("--period", "A calendar day or month in UTC.", default="month")
    @delete("/v1/budgets", "admin")
    async def delete_budget(call: VerbCall, given: OneBudgetQuery) -> DeletedBudgetOut:

In and Out are those of the signature, the text is the docstring. The fields of In that the path names come from there, the others
from the query of GET and DELETE, else from the body; `given: str` is the one name in the path. `-> tuple[Out, bool]` is Out and
whether it is new: status 201 or 200. Before the act the key is checked: its scope, and with `whole_team` that it is bound to no
project. With `plain`, who accepts only text/plain gets that text of Out. By hand, as an `Operation` with a handler, stay
streams and files, other systems' paths, and what goes by headers.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import cache, partial, wraps
from types import UnionType
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

import msgspec
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from cmserver.access import announce
from cmserver.access.model import Principal
from cmserver.access.teams import require_team_key
from cmserver.base.db import Db
from cmserver.base.http.operation import Answer, Method, Operation, TextAnswer
from cmserver.base.http.wire import Dependencies, answer, body, caller, convert, public_url, query, wants_text
from cmserver.base.json_text import decode_json
from cmserver.base.notifications import NotificationListener
from cmserver.base.sql import Conn
from cmserver.base.structs import reshape

T = TypeVar("T")
Typed = Mapping[str, Any]
"""What was typed, by the names of options and arguments."""
_PATH_NAME = re.compile(r"\{(\w+)")


class VerbCall(msgspec.Struct, frozen=True, kw_only=True):
    """A request for a verb: who asks, and by its class what the act works with.

    `base_url` is the server's, as it was called, without a slash at its end.
    """

    principal: Principal
    dependencies: Dependencies
    base_url: str = ""
    size_bytes: int = 0

    def dependency(self, class_: type[T]) -> T:
        """The application's instance of that class."""
        return self.dependencies.get(class_)

    def read(self) -> AbstractAsyncContextManager[Conn]:
        """A transaction of the caller's team, which sees of what is a person's alone the caller's."""
        return self.dependency(Db).tenant(self.principal.team_id, self.principal.user_id)

    async def write(self, act: Callable[[Conn], Awaitable[T]]) -> T:
        """Run `act` in a transaction of the caller's team; repeated after deadlocks and serialization failures."""
        return await self.dependency(Db).in_tenant(self.principal.team_id, act, person_id=self.principal.user_id)

    def drop_cached(self) -> None:
        """Drop this process's cached entries of the team before it answers; the others drop them when notified."""
        announce.drop_cached_here(self.dependency(NotificationListener), self.principal.team_id)


class Option(msgspec.Struct, frozen=True, kw_only=True):
    """An option, or an argument where `name` is in capitals, in brackets one that may be left out; its type, range and default are
    those of the verb's field.

    `default` is for a field that the API requires; `on` is what a flag means.
    """

    name: str
    field: str
    text: str
    metavar: str | None
    default: object
    on: object

    @property
    def parameter(self) -> str:
        """Its name in `Typed`."""
        return self.name.strip("-[]").replace("-", "_").lower()


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """A command of a verb: its name with its group, and the text of an answer and of what was typed."""

    name: str
    shows: Callable[[Any, Typed], str]
    options: list[Option]
    text: str
    confirm: Callable[[Typed], str] | None
    quiet: tuple[str, Callable[[Any], str]] | None
    warns: Callable[[Any], str | None] | None
    sets: Typed


class Verb(Operation):
    """A row. `given` is In: a Struct, `str`, or None where nothing can be said."""

    def __init__(
        self,
        method: Method,
        path: str,
        scope: str,
        act: Callable[..., Awaitable[object]],
        *,
        status: int = 200,
        whole_team: bool = False,
        check: Callable[[object], None] | None = None,
        plain: Callable[[Any], str] | None = None,
    ) -> None:
        hints = get_type_hints(act, include_extras=True)
        out: Any = hints["return"]
        self.given: Any = hints.get("given")
        self.commands: list[Command] = []
        self.options: list[Option] = []
        self._act, self.whole_team, self._check, self._plain = act, whole_team, check, plain
        self._of_path, self._sent = _split(self.given, *_PATH_NAME.findall(path))
        is_query = method in {"GET", "DELETE"}
        kind: Any = get_args(out)[0] if get_origin(out) is tuple else out
        forms: Answer | tuple[Answer, ...] = get_args(kind) if get_origin(kind) is UnionType else kind
        if plain is not None:
            forms = (kind, TextAnswer("text/plain", "As an agent reads it, when only text/plain is accepted."))

        @wraps(act)
        async def handle(request: Request) -> Response:
            return await self._answer(request)

        super().__init__(
            method,
            path,
            handle,
            scope,
            {200: forms, 201: forms} if kind is not out else {status: forms},
            query=self._sent if is_query else None,
            body=None if is_query else self._sent,
        )

    async def _answer(self, request: Request) -> Response:
        principal = await caller(request, Principal)
        if self.whole_team:
            require_team_key(principal)
        sent, size = await self._read(request)
        dependencies: Dependencies = request.scope["dependencies"]
        call = VerbCall(principal=principal, dependencies=dependencies, base_url=public_url(request), size_bytes=size)
        done = await (self._act(call) if self.given is None else self._act(call, self._join(request, sent)))
        out, is_new = cast("tuple[object, bool | None]", done if isinstance(done, tuple) else (done, None))
        if self._plain is not None and wants_text(request):
            return PlainTextResponse(self._plain(out))
        return answer(out, next(iter(self.answers)) if is_new is None else 201 if is_new else 200)

    async def _read(self, request: Request) -> tuple[msgspec.Struct | None, int]:
        """What the query or the body says, and the size of the body."""
        if self._sent is None:
            return None, 0
        if self.query is not None:
            return query(request, self._sent), 0
        raw = await body(request)
        value = decode_json(raw or b"{}")
        if self._check is not None:
            self._check(value)
        return convert(value, self._sent), len(raw)

    def _join(self, request: Request, sent: msgspec.Struct | None) -> object:
        """In, of what was sent and of what the path names."""
        named = {name: convert(str(request.path_params[name]), type_, at=f"$.{name}") for name, type_ in self._of_path.items()}
        if self.given is str:
            return next(iter(named.values()))
        if sent is None:
            return self.given(**named)
        return reshape(sent, self.given, **named) if named else sent


@cache  # one Struct of a name, as OpenAPI wants it, for all verbs that are given the same
def _split(given: Any, *names: str) -> tuple[dict[str, Any], type[msgspec.Struct] | None]:
    """The types of the fields that the path names, and a Struct of the same name with the others; None when there are no others."""
    if given in (None, str):
        return dict.fromkeys(names, str), None
    hints = get_type_hints(given, include_extras=True)
    fields = [field for field in msgspec.structs.fields(given) if field.name not in names]
    if not names or not fields:
        return {name: hints[name] for name in names}, given if fields else None
    sent = msgspec.defstruct(
        given.__name__,
        [
            (field.name, hints[field.name], *([] if field.required else [field.default]))
            if field.default_factory is msgspec.NODEFAULT
            else (field.name, hints[field.name], field.default_factory())  # an empty list or dict
            for field in fields
        ],
        module=given.__module__,
        namespace={"__doc__": given.__doc__},
        rename={field.name: field.encode_name for field in fields},
        kw_only=True,
        forbid_unknown_fields=given.__struct_config__.forbid_unknown_fields,
    )
    return {name: hints[name] for name in names}, sent


def _verb(method: Method, path: str, scope: str, **more: Any) -> Callable[[Callable[..., Awaitable[object]]], Verb]:
    return lambda act: Verb(method, path, scope, act, **more)


get, post, put = partial(_verb, "GET"), partial(_verb, "POST"), partial(_verb, "PUT")
patch, delete = partial(_verb, "PATCH"), partial(_verb, "DELETE")


def option(
    name: str, text: str = "", *, field: str = "", metavar: str | None = None, default: object = None, on: object = True
) -> Callable[[Verb], Verb]:
    """Give the verb's command above an option for a field; without `field` for the one of its own name."""
    field = field or name.strip("-[]").replace("-", "_").lower()
    given = Option(name=name, field=field, text=text, metavar=metavar, default=default, on=on)

    def add(verb: Verb) -> Verb:
        verb.options.insert(0, given)
        return verb

    return add


def command(
    name: str,
    shows: Callable[[Any, Typed], str],
    *,
    text: str = "",
    confirm: Callable[[Typed], str] | None = None,
    quiet: tuple[str, Callable[[Any], str]] | None = None,
    warns: Callable[[Any], str | None] | None = None,
    sets: Typed | None = None,
) -> Callable[[Verb], Verb]:
    """Make a command of the verb, with the options below. `text` is its help, without it the first paragraph of the docstring.

    `confirm` is what is asked before, without --yes; `quiet` is the help of --quiet and what is printed then;
    `warns` is what is wrong with the answer, told beside it on standard error; `sets` are fields that the command's name says.
    """

    def add(verb: Verb) -> Verb:
        given = Command(
            name=name, shows=shows, options=verb.options, text=text, confirm=confirm, quiet=quiet, warns=warns, sets=sets or {}
        )
        verb.commands.append(given)
        verb.options = []
        return verb

    return add
