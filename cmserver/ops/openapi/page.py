"""The document as a page for people: one file of HTML that needs no script and no network."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shlex
from typing import cast

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from cmserver.ops.openapi.document import JSON, Act, Document, Ref, Response
from cmserver.ops.openapi.examples import example, resolved
from cmserver.ops.openapi.schemas import NO_NUL, PREFIX, Schema, without_null

SERVER = "http://127.0.0.1:37877"
_TOLD = {
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


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a table: a parameter in a `place`, or a field of a body or an answer."""

    name: str
    place: str
    type: Markup
    required: bool
    told: str


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One answer of an operation, or a refusal of several."""

    status: str
    told: str
    forms: list[Markup]


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One section of the page."""

    id: str
    method: str
    path: str
    summary: str
    description: str
    needs: str
    parameters: list[Field]
    body: Markup | None
    fields: list[Field]
    answers: list[Entry]
    refusals: list[str]
    """By their statuses; what they are is told once, at the end of the page."""
    curl: str


def page(document: Document) -> str:
    """The whole page."""
    view = _View(document)
    template = _environment.get_template("page.html")
    return template.render(
        document=document,
        style=Markup(STYLE),  # noqa: S704 - ours
        tags=[(tag["name"], view.operations(tag["name"])) for tag in document.tags],
        refusals=view.refusals(),
        schemas=[(name, str(schema.get("description", "")), view.fields(schema)) for name, schema in sorted(view.schemas.items())],
    )


def content_security_policy() -> str:
    """Nothing but the page's own style may be loaded, and nobody may frame it."""
    digest = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


class _View:
    def __init__(self, document: Document) -> None:
        self._document = document
        self.schemas = document.components.schemas

    def operations(self, tag: str) -> list[Operation]:
        return [
            self._operation(path, method, act)
            for path, acts in self._document.paths.items()
            for method, act in acts.items()
            if tag in act.tags
        ]

    def _operation(self, path: str, method: str, act: Act) -> Operation:
        body = act.request_body.content[JSON].schema if act.request_body else None
        return Operation(
            id=act.operation_id,
            method=method.upper(),
            path=path,
            summary=act.summary,
            description=act.description,
            needs="no key" if {} in (act.security or [{}]) else f"a key with the scope {act.scope}" if act.scope else "any key",
            parameters=[self._field(one.name, one.schema, required=one.required, place=one.in_) for one in act.parameters],
            body=None if body is None else self._type(body),
            fields=[] if body is None else self.fields(resolved(self.schemas, body)),
            answers=[self._answer(status, one) for status, one in act.responses.items() if isinstance(one, Response)],
            refusals=[status for status, one in act.responses.items() if isinstance(one, Ref)],
            curl=self._curl(path, method, act, body),
        )

    def refusals(self) -> list[Entry]:
        """Those that several operations share, by status."""
        found = {
            status: given.ref.rpartition("/")[2]
            for acts in self._document.paths.values()
            for act in acts.values()
            for status, given in act.responses.items()
            if isinstance(given, Ref)
        }
        return [self._answer(status, self._document.components.responses[name]) for status, name in sorted(found.items())]

    def _answer(self, status: str, one: Response) -> Entry:
        forms = [self._type(media.schema) if kind == JSON else escape(kind) for kind, media in one.content.items()]
        return Entry(status=status, told=one.description, forms=forms)

    def fields(self, schema: Schema) -> list[Field]:
        """Those of an object; of a list, those of its items."""
        inner = resolved(self.schemas, cast("Schema", schema.get("items", schema)))
        required = cast("list[str]", inner.get("required", []))
        properties = cast("dict[str, Schema]", inner.get("properties", {}))
        return [self._field(name, one, required=name in required) for name, one in properties.items()]

    def _field(self, name: str, schema: Schema, *, required: bool, place: str = "") -> Field:
        told = [self._limits(without_null(schema)), str(without_null(schema).get("description", "")).removesuffix(".")]
        if schema.get("default") not in (None, [], {}, ""):
            told.insert(0, f"`{json.dumps(schema['default'])}` when left out")
        return Field(name=name, place=place, type=self._type(schema), required=required, told="; ".join(filter(None, told)))

    def _limits(self, schema: Schema) -> str:
        said = [words.format(f"`{schema[name]}`") for name, words in _TOLD.items() if schema.get(name, NO_NUL) != NO_NUL]
        inner = cast("Schema | None", schema.get("items"))
        return ", ".join([*said, *([f"each {each}"] if inner and (each := self._limits(inner)) else [])])

    def _type(self, schema: Schema) -> Markup:
        if "$ref" in schema:
            name = str(schema["$ref"]).removeprefix(PREFIX)
            return Markup('<a href="#schema-{0}">{0}</a>').format(name)
        if "anyOf" in schema:
            return Markup(" or ").join(self._type(one) for one in cast("list[Schema]", schema["anyOf"]))
        if "enum" in schema:
            return Markup(", ").join(
                Markup("<code>{}</code>").format(json.dumps(one)) for one in cast("list[object]", schema["enum"])
            )
        if schema.get("type") == "array":
            return Markup("list of {}").format(self._type(cast("Schema", schema.get("items", {}))))
        if schema.get("type") == "object" and isinstance(values := schema.get("additionalProperties"), dict):
            return Markup("object of {}").format(self._type(cast("Schema", values)))
        return escape(str(schema.get("format") or schema.get("type") or "any"))

    def _curl(self, path: str, method: str, act: Act, body: Schema | None) -> str:
        query: list[str] = []
        for one in act.parameters:
            value = str(example(self.schemas, one.name, one.schema))
            if one.in_ == "path":
                path = path.replace(f"{{{one.name}}}", value.replace("/", "%2F"))
            elif one.required:
                query.append(f"{one.name}={value}")
        words = ["curl", *([] if method == "get" else ["-X", method.upper()])]
        lines = [" ".join([*words, shlex.quote(f"{SERVER}{path}{'?' if query else ''}{'&'.join(query)}")])]
        if act.security:
            lines.append('-H "Authorization: Bearer $CMSERVER_KEY"')
        if body is not None:
            lines += ["-H 'Content-Type: application/json'", f"-d {shlex.quote(json.dumps(example(self.schemas, '', body)))}"]
        return " \\\n  ".join(lines)


def _marked(text: str) -> Markup:
    """Text with `code` in it."""
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(text))))  # noqa: S704 - escaped before


_environment = Environment(
    loader=PackageLoader("cmserver.ops.openapi", "."),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_environment.filters["marked"] = _marked

STYLE = cast("str", _environment.loader and _environment.loader.get_source(_environment, "page.css")[0])
