"""Builds the OpenAPI document from the router's operations."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import cast, get_args

import msgspec

from cmserver import __version__
from cmserver.base import errors
from cmserver.base.http.operation import Answer, Operation, TextAnswer
from cmserver.base.http.wire import STATUS
from cmserver.ops.openapi.schemas import PREFIX, Schema, Schemas

JSON = "application/json"
_PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")
_ABOUT = """\
Memory for coding agents. Times are epoch milliseconds, ids are text, lists are never null. A project is named by its id, its
canonical id (`github.com/user/repo`, a name, a path), a URL form of it, or an alias. What belongs to another team, or to a
project outside the key's, answers as if it did not exist. `X-Request-Id` is accepted or generated, and returned."""

_COMPATIBLE = {"claude_mem": "claude-mem", "contextify": "contextify", "memory_service": "memory-service"}
"""Groups of the doors in `cmserver.doors` that are for clients of other systems."""
_GROUPS = {
    "server": "The server itself: whether it runs, its numbers, this reference, and MCP.",
    "claude-mem": "Paths of claude-mem's worker and server, for its clients and viewer.",
    "contextify": "Paths of Contextify, for its clients.",
    "memory-service": "Paths of the memory service, for its clients.",
}

ID_POINTERS: dict[tuple[str, str], dict[str, str]] = {
    ("POST", "/v1/sessions/start"): {"session": "/session/id", "project": "/session/projectId", "team": "/session/teamId"},
    ("POST", "/v1/sessions/{id}/end"): {"session": "/session/id", "job": "/generationJob/id"},
    ("POST", "/v1/events"): {"event": "/event/id", "job": "/generationJob/id", "project": "/event/projectId"},
    ("POST", "/v1/events/batch"): {"event": "/events/0/event/id", "job": "/events/0/generationJob/id"},
    ("POST", "/v1/observations"): {"observation": "/observation/number"},
    ("POST", "/v1/observations/batch"): {"observation": "/observations/0/number"},
    ("POST", "/v1/memories"): {"memory": "/memory/id", "observation": "/memory/number"},
    ("POST", "/v1/entities"): {"entity": "/entity/id", "project": "/entity/projectId"},
    ("POST", "/v1/projects"): {"project": "/project/id", "team": "/project/teamId"},
    ("POST", "/v1/keys"): {"key": "/id"},
    ("POST", "/v1/keys/{id}/rotate"): {"key": "/id"},
    ("POST", "/v1/teams"): {"team": "/team/id"},
    ("POST", "/v1/reindex"): {"job": "/generationJob/id"},
}
"""By method and path: the resources whose ids the answer holds, each with the JSON pointer to its id."""

ID_PATHS: dict[str, str] = {
    "session": "/v1/sessions/{id}",
    "event": "/v1/events/{id}",
    "job": "/v1/jobs/{id}",
    "observation": "/v1/observations/{id}",
    "memory": "/v1/memories/{id}",
    "entity": "/v1/entities/{id}",
    "key": "/v1/keys/{id}",
    "project": "/v1/projects/{project}",
    "team": "/v1/teams/{team}",
}
"""The path of each resource; the paths below it take its id, too."""


class Ref(msgspec.Struct, frozen=True):
    """A reference to a component."""

    ref: str = msgspec.field(name="$ref")


class Media(msgspec.Struct, frozen=True, kw_only=True):
    schema: Schema


class Header(msgspec.Struct, frozen=True, kw_only=True):
    description: str
    required: bool
    schema: Schema


class Link(msgspec.Struct, rename={"operation_id": "operationId"}, frozen=True, kw_only=True):
    """An operation that takes an id from the answer."""

    operation_id: str
    parameters: dict[str, str]


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


class PathOperation(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    rename={"operation_id": "operationId", "request_body": "requestBody", "scope": "x-required-scope"},
):
    """One method of a path. `scope` is null where any key is enough, and absent where none is needed."""

    operation_id: str
    tags: list[str]
    summary: str
    description: str = ""
    scope: str | msgspec.UnsetType | None = msgspec.UNSET
    security: list[dict[str, list[str]]]
    parameters: list[Parameter] = []
    request_body: RequestBody | None = None
    responses: dict[str, Response | Ref]


class DocumentInfo(msgspec.Struct, frozen=True, kw_only=True):
    title: str
    version: str
    description: str


class Components(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    schemas: dict[str, Schema]
    responses: dict[str, Response]
    security_schemes: dict[str, dict[str, str]]


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """An OpenAPI 3.1 document."""

    openapi: str = "3.1.0"
    info: DocumentInfo
    servers: list[dict[str, str]]
    tags: list[dict[str, str]]
    paths: dict[str, dict[str, PathOperation]]
    components: Components


class Refusal(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """An error. `error` is its name for programs; `message` is a sentence for people; `issues` are the wrong fields."""

    error: str
    message: str
    request_id: str
    issues: list[errors.Issue] | msgspec.UnsetType = msgspec.UNSET


def _make_integer_header(description: str) -> Header:
    return Header(description=description, required=True, schema={"type": "integer"})


_RETRY_AFTER = {"Retry-After": _make_integer_header("Seconds until the next try.")}
_HEADERS: dict[type[errors.CmserverError], dict[str, Header]] = {
    errors.Unavailable: _RETRY_AFTER,
    errors.DatabaseExhausted: _RETRY_AFTER,
    errors.StatementTimeout: _RETRY_AFTER,
    errors.RateLimited: {
        **_RETRY_AFTER,
        "X-RateLimit-Limit": _make_integer_header("Requests allowed per minute."),
        "X-RateLimit-Remaining": _make_integer_header("Requests allowed now: none."),
        "X-RateLimit-Reset": _make_integer_header("When the full limit is available again, in seconds since 1970."),
    },
}
_INTERNAL = ("InternalError", 500)
_KEYED = (errors.Invalid, errors.Unauthenticated, errors.Forbidden, errors.NotFound, errors.RateLimited, errors.Unavailable)


def build_document(operations: Sequence[Operation]) -> Document:
    """Return the OpenAPI document of the operations."""
    ids = _name_operations(operations)
    answers = [form for operation in operations for forms in operation.answers.values() for form in _list_forms(forms)]
    schemas = Schemas(
        [input_ for operation in operations for input_ in (operation.query, operation.body) if input_ is not None],
        [Refusal, *(form for form in answers if not isinstance(form, TextAnswer))],
    )
    targets = list(zip(map(_format_path, operations), ids, strict=True))
    paths: dict[str, dict[str, PathOperation]] = {}
    for operation, (path, operation_id) in zip(operations, targets, strict=True):
        paths.setdefault(path, {})[operation.method.lower()] = _describe_operation(operation, operation_id, schemas, targets)
    queries = {schemas.component_name(operation.query) for operation in operations if operation.query}
    return Document(
        info=DocumentInfo(title="cmserver", version=__version__, description=" ".join(_ABOUT.split())),
        servers=[{"url": "/"}],
        tags=_list_tags({_find_tag(operation) for operation in operations}),
        paths=paths,
        components=Components(
            schemas={name: schema for name, schema in schemas.components.items() if name not in queries},
            responses=_build_refusals(schemas),
            security_schemes={
                "bearer": {"type": "http", "scheme": "bearer", "description": "Authorization: Bearer <key>"},
                "apiKey": {
                    "type": "apiKey",
                    "in": "header",
                    "name": "X-Api-Key",
                    "description": "The same key in its own header.",
                },
            },
        ),
    )


def encode_document(document: Document) -> bytes:
    """Return the document as indented JSON, with sorted keys."""
    return msgspec.json.format(msgspec.json.encode(document, order="sorted"), indent=2) + b"\n"


def _describe_operation(
    operation: Operation, operation_id: str, schemas: Schemas, targets: Sequence[tuple[str, str]]
) -> PathOperation:
    summary, rest = _split_first_sentence(inspect.getdoc(operation.endpoint) or "")
    links = dict(_list_links(operation.method, _format_path(operation), targets))
    return PathOperation(
        operation_id=operation_id,
        tags=[_find_tag(operation)],
        summary=summary,
        description="\n\n".join(filter(None, [rest, _describe(operation.query) if operation.query else ""])),
        scope=msgspec.UNSET if operation.scope is None else operation.scope or None,
        security=_list_security(operation),
        parameters=list(_list_parameters(operation, schemas)),
        request_body=None if operation.body is None else _describe_body(operation, schemas),
        responses={
            **{
                str(status): _describe_response(status, _list_forms(forms), schemas, links)
                for status, forms in sorted(operation.answers.items())
            },
            **{str(status): Ref(f"#/components/responses/{name}") for status, name in sorted(_list_refusals(operation))},
        },
    )


def _list_links(method: str, path: str, targets: Iterable[tuple[str, str]]) -> Iterator[tuple[str, Link]]:
    """Yield name and link for each target that takes an id from the operation's answer. `targets` are path and operation id."""
    for kind, pointer in ID_POINTERS.get((method, path), {}).items():
        start = ID_PATHS[kind]
        parameter = start.rpartition("{")[2].removesuffix("}")
        for target, operation_id in targets:
            if target == start or target.startswith(f"{start}/"):
                yield f"{kind}_{operation_id}", Link(operation_id=operation_id, parameters={parameter: f"$response.body#{pointer}"})


def _list_security(operation: Operation) -> list[dict[str, list[str]]]:
    keys: list[dict[str, list[str]]] = [{"bearer": []}, {"apiKey": []}]
    if operation.key_optional:
        return [{}, *keys]
    return [] if operation.scope is None else keys


def _list_parameters(operation: Operation, schemas: Schemas) -> Iterator[Parameter]:
    for name in cast("list[str]", _PARAMETER.findall(operation.path)):
        yield Parameter(name=name, in_="path", required=True, schema={"type": "string", "minLength": 1})
    if operation.query:
        for name, required, schema in schemas.parameters(operation.query):
            yield Parameter(name=name, in_="query", required=required, schema=schema)


def _describe_body(operation: Operation, schemas: Schemas) -> RequestBody:
    """Return the body; optional when no field of it is required."""
    schema = schemas.schema_for(operation.body)
    fields = schemas.components.get(str(schema.get("$ref", "")).removeprefix(PREFIX), {"required": ["all"]})
    return RequestBody(content={JSON: Media(schema=schema)}, required=bool(fields["required"]))


def _describe_response(status: int, forms: tuple[Answer, ...], schemas: Schemas, links: dict[str, Link]) -> Response:
    json = [schemas.schema_for(form) for form in forms if not isinstance(form, TextAnswer)]
    content = {
        form.media_type: Media(schema={"type": "object" if form.media_type == JSON else "string"})
        for form in forms
        if isinstance(form, TextAnswer)
    }
    if json:
        content = {JSON: Media(schema=json[0] if len(json) == 1 else {"anyOf": json}), **content}
    descriptions = [form.description if isinstance(form, TextAnswer) else _describe(form) for form in forms]
    return Response(
        description=" ".join(filter(None, descriptions)) or "Done.", content=content, links=links if 200 <= status < 300 else {}
    )


def _describe(form: type) -> str:
    """Return the first paragraph of the class's docstring; of a list, of its items' class."""
    form = next(iter(get_args(form)), form)
    return " ".join((form.__doc__ or "").partition("\n\n")[0].split())  # getdoc would return msgspec's own


def _build_refusals(schemas: Schemas) -> dict[str, Response]:
    """Return the responses that operations share, by the name under `error`."""
    content = {JSON: Media(schema={"$ref": PREFIX + schemas.component_name(Refusal)})}
    refusals = {
        name: Response(
            description="Too many requests." if kind is errors.RateLimited else _describe(kind),
            content=content,
            headers=_HEADERS.get(kind, {}),
        )
        for kind, (_, name) in STATUS.items()
    }
    return {**refusals, _INTERNAL[0]: Response(description="A server error; the log has the request's id.", content=content)}


def _list_refusals(operation: Operation) -> Iterator[tuple[int, str]]:
    """Yield the status and name of each refusal that the operation can return and does not declare itself."""
    kinds: list[type[errors.CmserverError]] = [errors.Unavailable] if operation.scope is None else list(_KEYED)
    kinds += operation.refusals
    if operation.key_optional:
        kinds += [errors.Forbidden, errors.RateLimited]
    if operation.scope is not None and operation.method != "GET" and not operation.scope.endswith(":read"):
        kinds.append(errors.Conflict)
    if operation.scope == "events:write":  # a quota is of events
        kinds.append(errors.QuotaExceeded)
    if operation.body is not None:
        kinds += [errors.RequestTimeout, errors.TooLarge]
    for status, name in [*(STATUS[kind] for kind in kinds), (_INTERNAL[1], _INTERNAL[0])]:
        if status not in operation.answers:
            yield status, name


def _split_first_sentence(doc: str) -> tuple[str, str]:
    """Return the first sentence, and the rest."""
    first, _, more = doc.partition("\n\n")
    first = " ".join(first.split())
    sentence, dot, rest = first.partition(". ")
    return f"{sentence}{dot}".strip(), "\n\n".join(filter(None, [rest, more]))


def _name_operations(operations: Sequence[Operation]) -> list[str]:
    """Return the operation ids: the handlers' names, with words of the path where a handler serves several paths."""
    count = Counter(operation.endpoint.__name__ for operation in operations)
    paths = {_format_path(operation) for operation in operations}
    return [
        operation.endpoint.__name__
        if count[operation.endpoint.__name__] == 1
        else "_".join(
            [
                operation.endpoint.__name__,
                *_split_path(operation, keep_version=_format_path(operation).removeprefix("/v1") in paths),
            ]
        )
        for operation in operations
    ]


def _split_path(operation: Operation, *, keep_version: bool = False) -> list[str]:
    """Return the words of the path; without the `v1` unless `keep_version`."""
    return re.findall(r"\w+", _format_path(operation) if keep_version else _format_path(operation).removeprefix("/v1"))


def _format_path(operation: Operation) -> str:
    """Return the path as OpenAPI writes it: `{project}` for `{project:path}`."""
    return _PARAMETER.sub(r"{\1}", operation.path)


def _find_tag(operation: Operation) -> str:
    """Return the group: the system whose paths these are, the first word of a path below /v1, or `server`."""
    door = operation.endpoint.__module__.removeprefix("cmserver.doors.").partition(".")[0]
    if door in _COMPATIBLE:
        return _COMPATIBLE[door]
    word = operation.path.removeprefix("/v1/").partition("/")[0]
    return {"entity-relations": "entities"}.get(word, word) if operation.path.startswith("/v1/") else "server"


def _list_tags(tags: set[str]) -> list[dict[str, str]]:
    """Return the groups in their order: the server, what is our own, other systems' paths."""
    order = sorted(tags, key=lambda tag: (tag != "server", tag in _GROUPS, tag))
    return [{"name": tag, **({"description": _GROUPS[tag]} if tag in _GROUPS else {})} for tag in order]


def _list_forms(forms: Answer | tuple[Answer, ...]) -> tuple[Answer, ...]:
    return forms if isinstance(forms, tuple) else (forms,)
