"""The OpenAPI document, made of the operations that the router has."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import cast, get_args

import msgspec

from cmserver import __version__
from cmserver.base.errors import (
    CmserverError,
    Conflict,
    Forbidden,
    Invalid,
    Issue,
    NotFound,
    QuotaExceeded,
    RateLimited,
    RequestTimeout,
    TooLarge,
    Unauthenticated,
    Unavailable,
)
from cmserver.base.http.operation import Answer, Operation
from cmserver.base.http.operation import Text as TextAnswer
from cmserver.base.http.wire import STATUS
from cmserver.ops.openapi.links import Link, links
from cmserver.ops.openapi.schemas import PREFIX, Schema, Schemas

JSON = "application/json"
_PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")
_ABOUT = """\
Memory for coding agents. Times are epoch milliseconds, ids are text, lists are never null. A project is named by its id, its
canonical id (`github.com/user/repo`, a name, a path), a URL form of it, or an alias. Whatever belongs to another team, or to a
project that the key is not for, answers like what does not exist. `X-Request-Id` is taken or made, and returned."""


class Ref(msgspec.Struct, frozen=True):
    """To something under components."""

    ref: str = msgspec.field(name="$ref")


class Media(msgspec.Struct, frozen=True, kw_only=True):
    schema: Schema


class Header(msgspec.Struct, frozen=True, kw_only=True):
    description: str
    required: bool
    schema: Schema


class Response(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    description: str
    content: dict[str, Media] = {}
    headers: dict[str, Header] = {}
    links: dict[str, Link] = {}


class Parameter(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename={"in_": "in"}):
    name: str
    in_: str
    required: bool
    schema: Schema
    description: str = ""


class RequestBody(msgspec.Struct, frozen=True, kw_only=True):
    content: dict[str, Media]
    required: bool


class Act(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    rename={"operation_id": "operationId", "request_body": "requestBody", "scope": "x-required-scope"},
):
    """One method of one path. `scope` is null where any key will do; it is not there where none is asked for."""

    operation_id: str
    tags: list[str]
    summary: str
    description: str = ""
    scope: str | msgspec.UnsetType | None = msgspec.UNSET
    security: list[dict[str, list[str]]]
    parameters: list[Parameter] = []
    request_body: RequestBody | None = None
    responses: dict[str, Response | Ref]


class Info(msgspec.Struct, frozen=True, kw_only=True):
    title: str
    version: str
    description: str


class Components(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    schemas: dict[str, Schema]
    responses: dict[str, Response]
    security_schemes: dict[str, dict[str, str]]


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """As OpenAPI 3.1 wants it."""

    openapi: str = "3.1.0"
    info: Info
    servers: list[dict[str, str]]
    tags: list[dict[str, str]]
    paths: dict[str, dict[str, Act]]
    components: Components


class Refusal(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Why the request was not answered as asked: a name for programs, a sentence for people, and what is wrong with which field."""

    error: str
    message: str
    request_id: str
    issues: list[Issue] | msgspec.UnsetType = msgspec.UNSET


def _number(description: str) -> Header:
    return Header(description=description, required=True, schema={"type": "integer"})


_RETRY_AFTER = {"Retry-After": _number("After how many seconds to try again.")}
_HEADERS: dict[type[CmserverError], dict[str, Header]] = {
    Unavailable: _RETRY_AFTER,
    RateLimited: {
        **_RETRY_AFTER,
        "X-RateLimit-Limit": _number("How many requests a minute there may be."),
        "X-RateLimit-Remaining": _number("How many there may be now: none."),
        "X-RateLimit-Reset": _number("When as many as the limit says may come at once again, in seconds since 1970."),
    },
}
_INTERNAL = ("InternalError", 500)
_KEYED = (Invalid, Unauthenticated, Forbidden, NotFound, RateLimited, Unavailable)


def document(operations: Sequence[Operation]) -> Document:
    """Everything that the operations say of themselves."""
    acts = list(zip(operations, _ids(operations), strict=True))
    schemas = Schemas(
        [one for each in operations for one in (each.query, each.body) if one is not None],
        [Refusal, *(one for each in operations for forms in each.answers.values() for one in _forms(forms) if _is_struct(one))],
    )
    targets = [(_path(one), operation_id) for one, operation_id in acts]
    paths: dict[str, dict[str, Act]] = {}
    for one, operation_id in acts:
        paths.setdefault(_path(one), {})[one.method.lower()] = _act(one, operation_id, schemas, targets)
    queries = {schemas.name(one.query) for one in operations if one.query}
    return Document(
        info=Info(title="cmserver", version=__version__, description=" ".join(_ABOUT.split())),
        servers=[{"url": "/"}],
        tags=[{"name": tag} for tag in sorted({_tag(one) for one in operations})],
        paths=paths,
        components=Components(
            schemas={name: schema for name, schema in schemas.components.items() if name not in queries},
            responses=_shared(schemas),
            security_schemes={
                "bearer": {"type": "http", "scheme": "bearer", "description": "Authorization: Bearer <key>"},
                "apiKey": {
                    "type": "apiKey",
                    "in": "header",
                    "name": "X-Api-Key",
                    "description": "The same key in a header of its own.",
                },
            },
        ),
    )


def encoded(whole: Document) -> bytes:
    """As JSON: the same document is the same text."""
    return msgspec.json.format(msgspec.json.encode(whole, order="sorted"), indent=2) + b"\n"


def _act(one: Operation, operation_id: str, schemas: Schemas, targets: Sequence[tuple[str, str]]) -> Act:
    told = inspect.getdoc(one.endpoint) or ""
    summary, rest = _first_sentence(told)
    next_acts = dict(links(one, _path(one), targets))
    return Act(
        operation_id=operation_id,
        tags=[_tag(one)],
        summary=summary,
        description="\n\n".join(filter(None, [rest, _about(one.query) if one.query else ""])),
        scope=msgspec.UNSET if one.scope is None else one.scope or None,
        security=_security(one),
        parameters=list(_parameters(one, schemas)),
        request_body=None if one.body is None else _body(one, schemas),
        responses={
            **{str(status): _response(status, _forms(forms), schemas, next_acts) for status, forms in sorted(one.answers.items())},
            **{str(status): Ref(f"#/components/responses/{name}") for status, name in sorted(_refusals(one))},
        },
    )


def _security(one: Operation) -> list[dict[str, list[str]]]:
    keys: list[dict[str, list[str]]] = [{"bearer": []}, {"apiKey": []}]
    if one.key_optional:
        return [{}, *keys]
    return [] if one.scope is None else keys


def _parameters(one: Operation, schemas: Schemas) -> Iterator[Parameter]:
    for name in cast("list[str]", _PARAMETER.findall(one.path)):
        yield Parameter(name=name, in_="path", required=True, schema={"type": "string", "minLength": 1})
    if one.query:
        for name, required, schema in schemas.parameters(one.query):
            yield Parameter(name=name, in_="query", required=required, schema=schema)


def _body(one: Operation, schemas: Schemas) -> RequestBody:
    """No body at all is `{}`, where that is enough."""
    schema = schemas.of(one.body)
    fields = schemas.components.get(str(schema.get("$ref", "")).removeprefix(PREFIX), {"required": ["all"]})
    return RequestBody(content={JSON: Media(schema=schema)}, required=bool(fields["required"]))


def _response(status: int, forms: tuple[Answer, ...], schemas: Schemas, next_acts: dict[str, Link]) -> Response:
    json = [schemas.of(form) for form in forms if not isinstance(form, TextAnswer)]
    content = {
        form.media_type: Media(schema={"type": "object" if form.media_type == JSON else "string"})
        for form in forms
        if isinstance(form, TextAnswer)
    }
    if json:
        content = {JSON: Media(schema=json[0] if len(json) == 1 else {"anyOf": json}), **content}
    said = [form.description if isinstance(form, TextAnswer) else _about(form) for form in forms]
    return Response(
        description=" ".join(filter(None, said)) or "Done.", content=content, links=next_acts if 200 <= status < 300 else {}
    )


def _about(form: type) -> str:
    """Of a list, what one of its items is."""
    form = next(iter(get_args(form)), form)
    return " ".join((form.__doc__ or "").partition("\n\n")[0].split())  # not getdoc: that would give msgspec's own


def _shared(schemas: Schemas) -> dict[str, Response]:
    """The refusals, by the name under `error`."""
    content = {JSON: Media(schema={"$ref": PREFIX + schemas.name(Refusal)})}
    shared = {
        name: Response(
            description="Too many requests." if kind is RateLimited else _about(kind),
            content=content,
            headers=_HEADERS.get(kind, {}),
        )
        for kind, (_, name) in STATUS.items()
    }
    return {**shared, _INTERNAL[0]: Response(description="A fault of the server; its log has the request's id.", content=content)}


def _refusals(one: Operation) -> Iterator[tuple[int, str]]:
    """Status and name of each refusal that can happen there and is not told by the operation itself."""
    kinds: list[type[CmserverError]] = [Unavailable] if one.scope is None else list(_KEYED)
    if one.key_optional:
        kinds += [Forbidden, RateLimited]
    if one.scope is not None and one.method != "GET" and not one.scope.endswith(":read"):
        kinds.append(Conflict)
    if one.scope == "events:write":  # a quota is of events
        kinds.append(QuotaExceeded)
    if one.body is not None:
        kinds += [RequestTimeout, TooLarge]
    for status, name in [*(STATUS[kind] for kind in kinds), (_INTERNAL[1], _INTERNAL[0])]:
        if status not in one.answers:
            yield status, name


def _first_sentence(doc: str) -> tuple[str, str]:
    """The first sentence, and what follows."""
    first, _, more = doc.partition("\n\n")
    first = " ".join(first.split())
    sentence, dot, rest = first.partition(". ")
    return f"{sentence}{dot}".strip(), "\n\n".join(filter(None, [rest, more]))


def _ids(operations: Sequence[Operation]) -> list[str]:
    """The handlers' names; where one handler serves several paths, with the words of its path behind it."""
    count = Counter(one.endpoint.__name__ for one in operations)
    paths = {_path(one) for one in operations}
    return [
        one.endpoint.__name__
        if count[one.endpoint.__name__] == 1
        else "_".join([one.endpoint.__name__, *(_all_words(one) if _path(one).removeprefix("/v1") in paths else _words(one))])
        for one in operations
    ]


def _all_words(one: Operation) -> list[str]:
    return re.findall(r"\w+", _path(one))


def _words(one: Operation) -> list[str]:
    return re.findall(r"\w+", _path(one).removeprefix("/v1"))


def _path(one: Operation) -> str:
    """As OpenAPI writes it: `{project:path}` is `{project}`."""
    return _PARAMETER.sub(r"{\1}", one.path)


def _tag(one: Operation) -> str:
    """The first noun of a path below /v1; the rest is about the server itself."""
    return _words(one)[0] if one.path.startswith("/v1/") else "server"


def _forms(forms: Answer | tuple[Answer, ...]) -> tuple[Answer, ...]:
    return forms if isinstance(forms, tuple) else (forms,)


def _is_struct(form: Answer) -> bool:
    return not isinstance(form, TextAnswer)
