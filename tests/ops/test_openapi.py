"""The document says what the router does, both ways, and the page shows it."""

from __future__ import annotations

import base64
import hashlib
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from typing import Any, cast

import jsonschema_rs
import msgspec
import pytest
from httpx import AsyncClient
from starlette.requests import Request
from starlette.responses import Response

from cmserver.app import ROUTES
from cmserver.base.http.operation import Operation
from cmserver.base.http.wire import Handler
from cmserver.base.text import Key, Text
from cmserver.ops.openapi.document import ID_PATHS, ID_POINTERS, build_document, encode_document
from cmserver.ops.openapi.page import SERVER, render_page
from cmserver.ops.openapi.schemas import ABOUT_NO_NUL, ANYTHING, PREFIX
from tests.conftest import Cast
from tests.house.house import ROOT
from tests.table import try_rows

Json = dict[str, Any]
NO_MEANING = (None, "", ABOUT_NO_NUL, ANYTHING)
"""Descriptions that say only what a value may look like."""


def openapi(operations: list[Operation] | None = None) -> Json:
    return msgspec.json.decode(_document() if operations is None else encode_document(build_document(operations)))


@cache
def _document() -> bytes:
    return encode_document(build_document(ROUTES))


def list_operations(spec: Json) -> Iterator[tuple[str, str, Json]]:
    for path, methods in spec["paths"].items():
        for method, described in methods.items():
            yield method.upper(), path, described


def plain(path: str) -> str:
    return re.sub(r":\w+\}", "}", path)


# ---- the document


def test_the_router_has_what_the_document_says_and_the_document_what_the_router_has():
    in_document = [(method, path) for method, path, _ in list_operations(openapi())]
    in_router = [(route.method, plain(route.path)) for route in ROUTES]

    assert sorted(in_document) == sorted(in_router), "two operations of one method and path, or one that is not told"


@pytest.fixture(scope="module")
def spec() -> Json:
    return openapi()


@try_rows("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_an_operation_is_told_with_all_that_it_says_of_itself(spec: Json, route: Operation):
    described = spec["paths"][plain(route.path)][route.method.lower()]

    assert described["summary"].endswith((".", ":")), "its handler's docstring begins with a sentence"
    assert described.get("x-required-scope", "") == (route.scope or None if route.scope is not None else "")
    assert ({} in (described["security"] or [{}])) == (route.scope is None)
    assert ("requestBody" in described) == (route.body is not None)
    assert {str(status) for status in route.answers} <= described["responses"].keys()
    if route.scope is not None:
        assert {"400", "401", "403", "404", "429", "500", "503"} <= described["responses"].keys()
    in_query = {parameter["name"] for parameter in described.get("parameters", []) if parameter["in"] == "query"}
    assert in_query == set(route.query.__struct_encode_fields__ if route.query else ())
    in_path = {parameter["name"] for parameter in described.get("parameters", []) if parameter["in"] == "path"}
    assert in_path == set(re.findall(r"\{(\w+)", route.path))


def test_operations_have_names_of_their_own():
    names = [described["operationId"] for _, _, described in list_operations(openapi())]

    assert len(names) == len(set(names))


def test_every_reference_leads_somewhere_and_every_schema_is_one():
    spec = openapi()

    for reference in references(spec):
        target: Any = spec
        for step in reference.removeprefix("#/").split("/"):
            target = target[step]
    for name, schema in spec["components"]["schemas"].items():
        jsonschema_rs.validator_for({**schema, "components": spec["components"]})
        assert schema["title"] == name


def references(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for name, inner in cast("Json", value).items():
            if name == "$ref" and isinstance(inner, str):
                yield inner
            yield from references(inner)
    elif isinstance(value, list):
        for inner in cast("list[object]", value):
            yield from references(inner)


def test_every_field_of_a_struct_has_a_type():
    """`object` is the only type that says nothing, and it says so."""
    schemas: dict[str, Json] = openapi()["components"]["schemas"]

    untyped = [
        f"{name}.{field}"
        for name, schema in schemas.items()
        for field, field_schema in schema.get("properties", {}).items()
        if not field_schema.keys() & {"type", "$ref", "anyOf", "enum"}
        and not field_schema.get("description", "").endswith(ANYTHING)
    ]

    assert untyped == []


def test_texts_have_a_pattern_that_tools_can_read():
    text = encode_document(build_document(ROUTES)).decode()

    assert "^[^\\\\u0000]*$" in text
    assert "\\ud800" not in text.lower()
    assert text.encode()


def test_what_may_be_missing_in_an_answer_is_not_required_and_all_else_is():
    schema = openapi()["components"]["schemas"]["EventResultOut"]

    assert schema["required"] == ["event"]
    assert "generationJob" in schema["properties"]


def test_every_field_and_parameter_has_a_meaning(spec: Json):
    fields = [
        (f"{name}.{field}", schema)
        for name, struct in spec["components"]["schemas"].items()
        for field, schema in struct.get("properties", {}).items()
    ] + [
        (f"{path} ?{parameter['name']}", parameter["schema"])
        for _, path, described in list_operations(spec)
        for parameter in described.get("parameters", [])
        if parameter["in"] == "query"
    ]
    silent = [name for name, schema in fields if schema.get("description") in NO_MEANING]

    promised = [
        name
        for name, schema in fields
        if " ?" not in name and "type" in schema and "null" not in str(schema["type"]) and "; null" in str(schema["description"])
    ]

    assert promised == [], "it is never null"
    assert silent == [], 'begin a sentence of the class\'s docstring with "`field` is ...", or put its name into meanings.toml'
    meanings = tomllib.loads((ROOT / "cmserver" / "ops" / "openapi" / "meanings.toml").read_text(encoding="utf-8"))
    shown = {(re.split(r"[.?]", name)[-1], text) for name, schema in fields if (text := str(schema.get("description", "")))}
    unused = {name for name, meaning in meanings.items() if not any(n == name and text.startswith(meaning) for n, text in shown)}
    assert unused == set(), "no field has this meaning any more"


def test_a_meaning_of_the_file_is_never_that_of_a_record(spec: Json):
    meanings = tomllib.loads((ROOT / "cmserver" / "ops" / "openapi" / "meanings.toml").read_text(encoding="utf-8"))

    wrong = [
        f"{name}.{field}"
        for name, struct in spec["components"]["schemas"].items()
        for field, schema in struct.get("properties", {}).items()
        if "$ref" in str(schema) and field in meanings and schema.get("description", "").startswith(meanings[field])
    ]

    assert wrong == []


def test_a_field_means_what_the_docstrings_of_its_class_and_of_its_record_say():
    schemas = openapi([operation(body=ThingIn)])["components"]["schemas"]

    fields = schemas["ThingIn"]["properties"]
    assert fields["someName"]["description"].startswith("What people call it.")
    assert fields["text"]["description"].startswith("What it says, or empty.")
    assert fields["part"]["description"] == "A part of a thing."


async def _nothing(_request: Request) -> Response:
    """Do nothing. It is only looked at."""
    raise NotImplementedError


def operation(
    path: str = "/v1/things",
    *,
    handler: Handler = _nothing,
    answers: type[msgspec.Struct] | None = None,
    body: object = None,
    query: type[msgspec.Struct] | None = None,
) -> Operation:
    return Operation("POST", path, handler, "admin", answers or ProviderSettings, body=body, query=query)


class ThingPart(msgspec.Struct):
    """A part of a thing. It has no fields."""


class ThingIn(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """What comes in: `text` is what it says, or empty; `someName` is what people call it. More on it."""

    some_name: Key
    text: Text = ""
    anything: object = None
    part: ThingPart | None = None


class ProviderSettings(msgspec.Struct, rename="camel"):
    """What goes out."""

    always: str = "x"
    sometimes: int | msgspec.UnsetType = msgspec.UNSET


class ThingQuery(msgspec.Struct, kw_only=True):
    which: str
    how_many: int | None = None


def test_what_a_new_room_adds_is_told_without_anybody_writing_it():
    spec = openapi([operation("/v1/things/{thing:path}/parts", body=ThingIn, query=ThingQuery)])

    described = spec["paths"]["/v1/things/{thing}/parts"]["post"]
    assert (described["summary"], described["description"], described["tags"]) == (
        "Do nothing.",
        "It is only looked at.",
        ["things"],
    )
    assert described["parameters"] == [
        {"name": "thing", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}},
        {"name": "which", "in": "query", "required": True, "schema": {"type": "string"}},
        {"name": "how_many", "in": "query", "required": False, "schema": {"type": "integer"}},
    ]
    schemas = spec["components"]["schemas"]
    assert schemas["ThingIn"]["required"] == ["someName"]
    assert schemas["ThingIn"]["additionalProperties"] is False
    assert schemas["ProviderSettings"]["required"] == ["always"]
    assert "ThingQuery" not in schemas


def test_two_rooms_may_call_their_structs_the_same():
    def in_room(module: str) -> type[msgspec.Struct]:
        return msgspec.defstruct("OneOut", [(module.split(".")[1], str)], module=module)

    sessions_struct, teams_struct = in_room("cmserver.sessions.api"), in_room("cmserver.access.api.teams")

    spec = openapi([operation("/v1/a", answers=sessions_struct), operation("/v1/b", answers=teams_struct)])

    assert {"SessionsOneOut", "TeamsOneOut"} <= spec["components"]["schemas"].keys()
    assert list(spec["components"]["schemas"]["SessionsOneOut"]["properties"]) == ["sessions"]
    response = spec["paths"]["/v1/b"]["post"]["responses"]["200"]["content"]["application/json"]["schema"]
    assert response == {"$ref": f"{PREFIX}TeamsOneOut"}
    assert {described["operationId"] for _, _, described in list_operations(spec)} == {"_nothing_a", "_nothing_b"}


# ---- links


def test_the_answer_to_an_event_leads_to_the_event():
    links = openapi()["paths"]["/v1/events"]["post"]["responses"]["201"]["links"]

    assert links["event_get_event"] == {"operationId": "get_event", "parameters": {"id": "$response.body#/event/id"}}


def test_every_link_has_an_operation_whose_path_takes_what_it_gives_and_a_field_to_take_it_from():
    spec = openapi()
    by_id = {described["operationId"]: path for _, path, described in list_operations(spec)}

    for _, path, described in list_operations(spec):
        for status, response in described["responses"].items():
            for link in response.get("links", {}).values():
                for parameter, expression in link["parameters"].items():
                    assert f"{{{parameter}}}" in by_id[link["operationId"]]
                    schema = response["content"]["application/json"]["schema"]
                    assert has(spec, schema, expression.removeprefix("$response.body#/").split("/")), (path, status, expression)


def has(spec: Json, schema: Json, steps: list[str]) -> bool:
    """Whether the schema has a value at that place."""
    while "$ref" in schema:
        schema = spec["components"]["schemas"][schema["$ref"].removeprefix(PREFIX)]
    if not steps:
        return True
    if variants := schema.get("anyOf"):  # an answer of several forms
        return any(has(spec, variant, steps) for variant in variants)
    inner = schema.get("items") if steps[0].isdigit() else schema.get("properties", {}).get(steps[0])
    return inner is not None and has(spec, inner, steps[1:])


def test_the_table_of_links_names_only_routes_that_there_are():
    served = {(route.method, plain(route.path)) for route in ROUTES}

    assert ID_POINTERS.keys() - served == set(), "take these out of ID_POINTERS, or give them their new path"
    assert {kind for kinds in ID_POINTERS.values() for kind in kinds} <= ID_PATHS.keys()


def test_paths_of_other_systems_have_groups_of_their_own_behind_ours():
    spec = openapi()
    groups: dict[str, set[str]] = {}
    for _, path, described in list_operations(spec):
        groups.setdefault(described["tags"][0], set()).add(path)

    names = [tag["name"] for tag in spec["tags"]]
    assert names[0] == "server"
    assert names[-3:] == ["claude-mem", "contextify", "memory-service"]
    assert {"/healthz", "/readyz", "/metrics", "/mcp"} <= groups["server"]
    for name in names[:-3]:
        assert not [path for path in groups[name] if path.startswith(("/api/", "/claude-mem"))], name
    assert all(path.startswith("/api/v1/") for path in groups["contextify"])
    assert not groups.keys() - set(names)
    assert "entity-relations" not in groups


# ---- over HTTP


async def test_json_ends_with_a_newline(client: AsyncClient, cast: Cast):
    for path, status in [("/healthz", 200), ("/openapi.json", 200), ("/no/such", 404), ("/v1/search", 405), ("/v1/events", 401)]:
        response = await client.get(path)

        assert response.status_code == status, path
        assert response.content.endswith(b"}\n"), path


async def test_the_document_and_the_page_are_there_without_a_key(client: AsyncClient, cast: Cast):
    response = await client.get("/openapi.json")

    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    assert response.content == encode_document(build_document(ROUTES))


async def test_the_page_may_load_nothing_but_its_own_style(client: AsyncClient, cast: Cast):
    response = await client.get("/docs")

    assert response.headers["content-type"] == "text/html; charset=utf-8"
    policy = response.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy
    style = re.search(r"<style>(.*?)</style>", response.text, re.DOTALL)
    assert style
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    assert f"'sha256-{digest}'" in policy
    for forbidden in ("<script", "<img", "<link", " style=", " src=", " onclick"):
        assert forbidden not in response.text


async def test_the_examples_name_the_address_that_was_asked(client: AsyncClient, cast: Cast):
    here = (await client.get("http://localhost:4711/docs")).text
    strange = (await client.get("/docs", headers={"Host": "a'b$(c)"})).text

    assert "http://localhost:4711/v1/search" in here
    assert SERVER not in here
    assert "b$(c)" not in strange


class Page(HTMLParser):
    """Ids, links to them, and whether every element is closed in its order."""

    VOID = ("meta", "br", "link", "img", "input")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self.ids += [attributes["id"] or ""] if "id" in attributes else []
        self.links += [attributes["href"] or ""] if "href" in attributes else []
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, self.getpos()


def test_the_page_shows_every_operation_every_parameter_and_every_field():
    spec = openapi()
    text = render_page(build_document(ROUTES))
    shown = Page(text)

    assert shown.open == []
    assert len(shown.ids) == len(set(shown.ids))
    assert {link.removeprefix("#") for link in shown.links if link.startswith("#")} <= set(shown.ids)
    for _, path, described in list_operations(spec):
        assert described["operationId"] in shown.ids
        assert f"<code>{path}</code>" in text
        for parameter in described.get("parameters", []):
            assert f"<code>{parameter['name']}</code>" in text
    for name, schema in spec["components"]["schemas"].items():
        assert f"schema-{name}" in shown.ids
        assert all(f"<code>{field}</code>" in text for field in schema.get("properties", {}))


def test_nothing_that_is_told_becomes_markup():
    async def handler(request: Request) -> Response:
        """Look at `<b>this</b>` and <script>alert(1)</script>."""
        raise NotImplementedError

    text = render_page(build_document([operation(handler=handler)]))

    assert "<script" not in text
    assert "<code>&lt;b&gt;this&lt;/b&gt;</code>" in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text


def test_each_example_on_the_page_is_a_request_that_its_schema_allows():
    spec = openapi()
    examples = re.findall(r'<details id="(\w+)">.*?<pre tabindex="0">(.*?)</pre>', render_page(build_document(ROUTES)), re.DOTALL)
    bodies = {
        described["operationId"]: described["requestBody"]["content"]["application/json"]["schema"]
        for _, _, described in list_operations(spec)
        if "requestBody" in described
    }

    assert len(examples) == len(list(list_operations(spec)))
    for name, written in examples:
        sent = re.search(r"-d &#39;(.*)&#39;$", written, re.DOTALL)
        assert (sent is not None) == (name in bodies), name
        if sent:
            body = msgspec.json.decode(sent[1].replace("&#34;", '"').replace("&#39;&#34;&#39;&#34;&#39;", "'"))
            jsonschema_rs.validator_for({**bodies[name], "components": spec["components"]}).validate(body)


async def test_a_path_that_does_not_take_a_method_says_which_it_takes(client: AsyncClient, cast: Cast):
    spec = openapi()

    for path, methods in spec["paths"].items():
        response = await client.request("OPTIONS", re.sub(r"\{\w+\}", "1", path))

        allowed = set(response.headers["allow"].lower().split(", "))
        assert response.status_code == 405
        assert allowed - {"head"} == methods.keys(), path
