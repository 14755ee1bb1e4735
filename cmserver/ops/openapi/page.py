"""Renders the OpenAPI document as one HTML page without scripts or external files."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shlex
from collections.abc import Mapping
from typing import cast

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from cmserver.ops.openapi.document import JSON, Document, PathOperation, Ref, Response
from cmserver.ops.openapi.schemas import NO_NUL, PREFIX, Schema, strip_null

_ID = "0198a6f2-7d4e-7000-8000-000000000000"
_HASH = "4c1e2f3a5b6d7e8f90a1b2c3d4e5f60718293a4b"
EXAMPLES: dict[str, object] = {
    "relationship": "CAUSES",
    "projectId": "github.com/acme/orders",
    "project": "github.com/acme/orders",
    "canonicalId": "github.com/acme/orders",
    "eventType": "tool_use",
    "query": "retry",
    "content": "Orders are retried three times.",
    "payload": {"tool_name": "Edit"},
    "team": "blue",
    "user": "bob",
    "client": "claude-code",
    "role": "member",
    "name": "billing",
}
"""Example values by the name of a field or parameter; others are derived from their schema."""

SERVER = "http://127.0.0.1:37877"
"""In the examples; the address that the page was asked for at replaces it."""
_LIMIT_TEXTS = {
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minimum": "from {}",
    "exclusiveMinimum": "more than {}",
    "maximum": "to {}",
    "exclusiveMaximum": "less than {}",
    "minItems": "at least {} of them",
    "maxItems": "at most {} of them",
    "pattern": "matches {}",
}
_CODE = re.compile(r"`([^`]*)`")


class FieldRow(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a table: a parameter with its `place` (path, query), or a field of a body or an answer."""

    name: str
    place: str
    type: Markup
    required: bool
    description: str


class AnswerRow(msgspec.Struct, frozen=True, kw_only=True):
    """One answer of an operation, or a refusal that operations share."""

    status: str
    description: str
    forms: list[Markup]


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """One operation on the page."""

    id: str
    method: str
    path: str
    summary: str
    description: str
    needs: str
    parameters: list[FieldRow]
    body: Markup | None
    fields: list[FieldRow]
    answers: list[AnswerRow]
    refusals: list[str]
    """Their statuses; the page's end describes them."""
    curl: str


def render_page(document: Document) -> str:
    """Return the page as HTML."""
    view = _View(document)
    template = _environment.get_template("page.html")
    return template.render(
        document=document,
        style=Markup(STYLE),  # noqa: S704 - ours
        tags=[(tag["name"], tag.get("description", ""), view.list_sections(tag["name"])) for tag in document.tags],
        refusals=view.list_refusals(),
        schemas=[
            (name, str(schema.get("description", "")), view.list_fields(schema)) for name, schema in sorted(view.schemas.items())
        ],
    )


def build_content_security_policy() -> str:
    """Return the policy that allows only the page's own style, and no framing."""
    digest = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


class _View:
    def __init__(self, document: Document) -> None:
        self._document = document
        self.schemas = document.components.schemas

    def list_sections(self, tag: str) -> list[Section]:
        return [
            self._build_section(path, method, operation)
            for path, operations in self._document.paths.items()
            for method, operation in operations.items()
            if tag in operation.tags
        ]

    def _build_section(self, path: str, method: str, operation: PathOperation) -> Section:
        """The section of the page on one operation."""
        body = operation.request_body.content[JSON].schema if operation.request_body else None
        return Section(
            id=operation.operation_id,
            method=method.upper(),
            path=path,
            summary=operation.summary,
            description=operation.description,
            needs="no key"
            if {} in (operation.security or [{}])
            else f"a key with the scope {operation.scope}"
            if operation.scope
            else "any key",
            parameters=[
                self._build_field(parameter.name, parameter.schema, required=parameter.required, place=parameter.in_)
                for parameter in operation.parameters
            ],
            body=None if body is None else self._describe_type(body),
            fields=[] if body is None else self.list_fields(resolve_reference(self.schemas, body)),
            answers=[
                self._build_answer(status, response)
                for status, response in operation.responses.items()
                if isinstance(response, Response)
            ],
            refusals=[status for status, response in operation.responses.items() if isinstance(response, Ref)],
            curl=self._render_curl(path, method, operation, body),
        )

    def list_refusals(self) -> list[AnswerRow]:
        """Return the refusals that operations share, by status."""
        names = {
            status: response.ref.rpartition("/")[2]
            for operations in self._document.paths.values()
            for operation in operations.values()
            for status, response in operation.responses.items()
            if isinstance(response, Ref)
        }
        return [self._build_answer(status, self._document.components.responses[name]) for status, name in sorted(names.items())]

    def _build_answer(self, status: str, response: Response) -> AnswerRow:
        forms = [self._describe_type(media.schema) if kind == JSON else escape(kind) for kind, media in response.content.items()]
        return AnswerRow(status=status, description=response.description, forms=forms)

    def list_fields(self, schema: Schema) -> list[FieldRow]:
        """Return the fields of an object schema, or of a list's items."""
        target = resolve_reference(self.schemas, cast("Schema", schema.get("items", schema)))
        required = cast("list[str]", target.get("required", []))
        properties = cast("dict[str, Schema]", target.get("properties", {}))
        return [self._build_field(name, inner, required=name in required) for name, inner in properties.items()]

    def _build_field(self, name: str, schema: Schema, *, required: bool, place: str = "") -> FieldRow:
        parts = [self._describe_limits(strip_null(schema)), str(strip_null(schema).get("description", "")).removesuffix(".")]
        if schema.get("default") not in (None, [], {}, ""):
            parts.insert(0, f"`{json.dumps(schema['default'])}` when left out")
        description = "; ".join(filter(None, parts))
        return FieldRow(name=name, place=place, type=self._describe_type(schema), required=required, description=description)

    def _describe_limits(self, schema: Schema) -> str:
        limits = [text.format(f"`{schema[name]}`") for name, text in _LIMIT_TEXTS.items() if schema.get(name, NO_NUL) != NO_NUL]
        inner = cast("Schema | None", schema.get("items"))
        return ", ".join([*limits, *([f"each {inner_limits}"] if inner and (inner_limits := self._describe_limits(inner)) else [])])

    def _describe_type(self, schema: Schema) -> Markup:
        """The type of a schema as the page names it, with links to its parts."""
        if "$ref" in schema:
            name = str(schema["$ref"]).removeprefix(PREFIX)
            return Markup('<a href="#schema-{0}">{0}</a>').format(name)
        if "anyOf" in schema:
            return Markup(" or ").join(self._describe_type(variant) for variant in cast("list[Schema]", schema["anyOf"]))
        if "enum" in schema:
            return Markup(", ").join(
                Markup("<code>{}</code>").format(json.dumps(choice)) for choice in cast("list[object]", schema["enum"])
            )
        if schema.get("type") == "array":
            return Markup("list of {}").format(self._describe_type(cast("Schema", schema.get("items", {}))))
        if schema.get("type") == "object" and isinstance(values := schema.get("additionalProperties"), dict):
            return Markup("object of {}").format(self._describe_type(cast("Schema", values)))
        return escape(str(schema.get("format") or schema.get("type") or "any"))

    def _render_curl(self, path: str, method: str, operation: PathOperation, body: Schema | None) -> str:
        """A `curl` command that calls the operation with example values."""
        query: list[str] = []
        for parameter in operation.parameters:
            value = str(make_example(self.schemas, parameter.name, parameter.schema))
            if parameter.in_ == "path":
                path = path.replace(f"{{{parameter.name}}}", value.replace("/", "%2F"))
            elif parameter.required:
                query.append(f"{parameter.name}={value}")
        words = ["curl", *([] if method == "get" else ["-X", method.upper()])]
        lines = [" ".join([*words, shlex.quote(f"{SERVER}{path}{'?' if query else ''}{'&'.join(query)}")])]
        if operation.security:
            lines.append('-H "Authorization: Bearer $CMSERVER_KEY"')
        if body is not None:
            lines += ["-H 'Content-Type: application/json'", f"-d {shlex.quote(json.dumps(make_example(self.schemas, '', body)))}"]
        return " \\\n  ".join(lines)


def _mark_up_code(text: str) -> Markup:
    """Escape the text and turn `code` into markup."""
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(text))))  # noqa: S704 - escaped before


def make_example(schemas: Mapping[str, Schema], name: str, schema: Schema) -> object:
    """Return an example value; of an object, with its required fields and those in EXAMPLES. `schemas` are the components."""
    schema = strip_null(resolve_reference(schemas, schema))
    if name in EXAMPLES:
        return EXAMPLES[name]
    if "anyOf" in schema:
        return make_example(schemas, name, cast("list[Schema]", schema["anyOf"])[0])
    if schema.get("type") == "array":
        return [make_example(schemas, "", cast("Schema", schema["items"]))]
    if schema.get("type") == "object":
        required = cast("list[str]", schema.get("required", []))
        properties = cast("dict[str, Schema]", schema.get("properties", {}))
        fields = {field: inner for field, inner in properties.items() if field in required or field in EXAMPLES}
        if not fields and not name:  # a whole body: an empty one would show nothing
            fields = dict(list(properties.items())[:1])
        return {field: make_example(schemas, field, inner) for field, inner in fields.items()}
    return _make_plain_example(name, schema)


def resolve_reference(schemas: Mapping[str, Schema], schema: Schema) -> Schema:
    """Return the component that the schema refers to; the schema itself when it is no reference."""
    return schemas[str(schema["$ref"]).removeprefix(PREFIX)] if "$ref" in schema else schema


def _make_plain_example(name: str, schema: Schema) -> object:
    if "enum" in schema:
        return cast("list[object]", schema["enum"])[0]
    if schema.get("type") in {"integer", "number"}:
        return schema.get("minimum", 1)
    if schema.get("type") == "boolean":
        return True
    if "[0-9a-f]{40}" in str(schema.get("pattern")):
        return _HASH
    return _ID if schema.get("format") == "uuid" or name == "id" else name or "text"


_environment = Environment(
    loader=PackageLoader("cmserver.ops.openapi", "."),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_environment.filters["marked"] = _mark_up_code

STYLE = cast("str", _environment.loader and _environment.loader.get_source(_environment, "page.css")[0])
