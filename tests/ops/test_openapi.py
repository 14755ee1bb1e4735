"""The document says what the router does, both ways, and the page shows it."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator
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
from cmserver.ops.openapi.document import document, encoded
from cmserver.ops.openapi.links import GIVES, TAKES
from cmserver.ops.openapi.page import page
from cmserver.ops.openapi.schemas import PREFIX
from tests.conftest import Cast

Json = dict[str, Any]


def openapi(operations: list[Operation] | None = None) -> Json:
    return msgspec.json.decode(encoded(document(ROUTES if operations is None else operations)))


def acts(told: Json) -> Iterator[tuple[str, str, Json]]:
    for path, methods in told["paths"].items():
        for method, act in methods.items():
            yield method.upper(), path, act


def plain(path: str) -> str:
    return re.sub(r":\w+\}", "}", path)


# ---- the document


def test_the_router_has_what_the_document_says_and_the_document_what_the_router_has():
    in_document = [(method, path) for method, path, _ in acts(openapi())]
    in_router = [(one.method, plain(one.path)) for one in ROUTES]

    assert sorted(in_document) == sorted(in_router), "two operations of one method and path, or one that is not told"


@pytest.mark.parametrize("one", ROUTES, ids=lambda one: f"{one.method} {one.path}")
def test_an_operation_is_told_with_all_that_it_says_of_itself(one: Operation):
    told = openapi()

    act = told["paths"][plain(one.path)][one.method.lower()]

    assert act["summary"].endswith((".", ":")), "its handler's docstring begins with a sentence"
    assert act.get("x-required-scope", "") == (one.scope or None if one.scope is not None else "")
    assert ({} in (act["security"] or [{}])) == (one.scope is None)
    assert ("requestBody" in act) == (one.body is not None)
    assert {str(status) for status in one.answers} <= act["responses"].keys()
    if one.scope is not None:
        assert {"400", "401", "403", "404", "429", "500", "503"} <= act["responses"].keys()
    in_query = {parameter["name"] for parameter in act.get("parameters", []) if parameter["in"] == "query"}
    assert in_query == set(one.query.__struct_encode_fields__ if one.query else ())
    in_path = {parameter["name"] for parameter in act.get("parameters", []) if parameter["in"] == "path"}
    assert in_path == set(re.findall(r"\{(\w+)", one.path))


def test_operations_have_names_of_their_own():
    names = [act["operationId"] for _, _, act in acts(openapi())]

    assert len(names) == len(set(names))


def test_every_reference_leads_somewhere_and_every_schema_is_one():
    told = openapi()

    for reference in references(told):
        found: Any = told
        for step in reference.removeprefix("#/").split("/"):
            found = found[step]
    for name, schema in told["components"]["schemas"].items():
        jsonschema_rs.validator_for({**schema, "components": told["components"]})
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
        for field, told in schema.get("properties", {}).items()
        if not told.keys() & {"type", "$ref", "anyOf", "enum"} and told.get("description") != "Any JSON value."
    ]

    assert untyped == []


def test_texts_have_a_pattern_that_tools_can_read():
    text = encoded(document(ROUTES)).decode()

    assert "^[^\\\\u0000]*$" in text
    assert "\\ud800" not in text.lower()
    assert text.encode()


def test_what_may_be_missing_in_an_answer_is_not_required_and_all_else_is():
    schema = openapi()["components"]["schemas"]["RecordedOut"]

    assert schema["required"] == ["event"]
    assert "generationJob" in schema["properties"]


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
    return Operation("POST", path, handler, scope="admin", body=body, query=query, answers={200: answers or Given})


class Taken(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """What comes in."""

    some_name: Key
    text: Text = ""
    anything: object = None


class Given(msgspec.Struct, rename="camel"):
    """What goes out."""

    always: str = "x"
    sometimes: int | msgspec.UnsetType = msgspec.UNSET


class Asked(msgspec.Struct, kw_only=True):
    which: str
    how_many: int | None = None


def test_what_a_new_room_adds_is_told_without_anybody_writing_it():
    told = openapi([operation("/v1/things/{thing:path}/parts", body=Taken, query=Asked)])

    act = told["paths"]["/v1/things/{thing}/parts"]["post"]
    assert (act["summary"], act["description"], act["tags"]) == ("Do nothing.", "It is only looked at.", ["things"])
    assert act["parameters"] == [
        {"name": "thing", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}},
        {"name": "which", "in": "query", "required": True, "schema": {"type": "string"}},
        {"name": "how_many", "in": "query", "required": False, "schema": {"type": "integer"}},
    ]
    schemas = told["components"]["schemas"]
    assert schemas["Taken"]["required"] == ["someName"]
    assert schemas["Taken"]["additionalProperties"] is False
    assert schemas["Given"]["required"] == ["always"]
    assert "Asked" not in schemas


def test_two_rooms_may_call_their_structs_the_same():
    def in_room(module: str) -> type[msgspec.Struct]:
        return msgspec.defstruct("OneOut", [(module.split(".")[1], str)], module=module)

    one, other = in_room("cmserver.sessions.api"), in_room("cmserver.access.api.teams")

    told = openapi([operation("/v1/a", answers=one), operation("/v1/b", answers=other)])

    assert {"SessionsOneOut", "TeamsOneOut"} <= told["components"]["schemas"].keys()
    assert list(told["components"]["schemas"]["SessionsOneOut"]["properties"]) == ["sessions"]
    answered = told["paths"]["/v1/b"]["post"]["responses"]["200"]["content"]["application/json"]["schema"]
    assert answered == {"$ref": f"{PREFIX}TeamsOneOut"}
    assert {act["operationId"] for _, _, act in acts(told)} == {"_nothing_a", "_nothing_b"}


# ---- links


def test_the_answer_to_an_event_leads_to_the_event():
    found = openapi()["paths"]["/v1/events"]["post"]["responses"]["201"]["links"]

    assert found["event_get_event"] == {"operationId": "get_event", "parameters": {"id": "$response.body#/event/id"}}


def test_every_link_has_an_operation_whose_path_takes_what_it_gives_and_a_field_to_take_it_from():
    told = openapi()
    by_id = {act["operationId"]: path for _, path, act in acts(told)}

    for _, path, act in acts(told):
        for status, response in act["responses"].items():
            for link in response.get("links", {}).values():
                for parameter, expression in link["parameters"].items():
                    assert f"{{{parameter}}}" in by_id[link["operationId"]]
                    schema = response["content"]["application/json"]["schema"]
                    assert has(told, schema, expression.removeprefix("$response.body#/").split("/")), (path, status, expression)


def has(told: Json, schema: Json, steps: list[str]) -> bool:
    """Whether the schema has a value at that place."""
    while "$ref" in schema:
        schema = told["components"]["schemas"][schema["$ref"].removeprefix(PREFIX)]
    if not steps:
        return True
    inner = schema.get("items") if steps[0].isdigit() else schema.get("properties", {}).get(steps[0])
    return inner is not None and has(told, inner, steps[1:])


def test_the_table_of_links_names_only_routes_that_there_are():
    served = {(one.method, plain(one.path)) for one in ROUTES}

    assert GIVES.keys() - served == set(), "take these out of GIVES, or give them their new path"
    assert {kind for kinds in GIVES.values() for kind in kinds} <= TAKES.keys()


# ---- over HTTP


async def test_the_document_and_the_page_are_there_without_a_key(client: AsyncClient, cast: Cast):
    answered = await client.get("/openapi.json")

    assert answered.status_code == 200
    assert answered.headers["content-type"] == "application/json"
    assert answered.content == encoded(document(ROUTES))


async def test_the_page_may_load_nothing_but_its_own_style(client: AsyncClient, cast: Cast):
    answered = await client.get("/docs")

    assert answered.headers["content-type"] == "text/html; charset=utf-8"
    policy = answered.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy
    style = re.search(r"<style>(.*?)</style>", answered.text, re.DOTALL)
    assert style
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    assert f"'sha256-{digest}'" in policy
    for forbidden in ("<script", "<img", "<link", " style=", " src=", " onclick"):
        assert forbidden not in answered.text


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
        given = dict(attrs)
        self.ids += [given["id"] or ""] if "id" in given else []
        self.links += [given["href"] or ""] if "href" in given else []
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, self.getpos()


def test_the_page_shows_every_operation_every_parameter_and_every_field():
    told = openapi()
    text = page(document(ROUTES))
    shown = Page(text)

    assert shown.open == []
    assert len(shown.ids) == len(set(shown.ids))
    assert {link.removeprefix("#") for link in shown.links if link.startswith("#")} <= set(shown.ids)
    for _, path, act in acts(told):
        assert act["operationId"] in shown.ids
        assert f"<code>{path}</code>" in text
        for parameter in act.get("parameters", []):
            assert f"<code>{parameter['name']}</code>" in text
    for name, schema in told["components"]["schemas"].items():
        assert f"schema-{name}" in shown.ids
        assert all(f"<code>{field}</code>" in text for field in schema.get("properties", {}))


def test_nothing_that_is_told_becomes_markup():
    async def handler(request: Request) -> Response:
        """Look at `<b>this</b>` and <script>alert(1)</script>."""
        raise NotImplementedError

    text = page(document([operation(handler=handler)]))

    assert "<script" not in text
    assert "<code>&lt;b&gt;this&lt;/b&gt;</code>" in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text


def test_each_example_on_the_page_is_a_request_that_its_schema_allows():
    told = openapi()
    examples = re.findall(r'<details id="(\w+)">.*?<pre tabindex="0">(.*?)</pre>', page(document(ROUTES)), re.DOTALL)
    bodies = {
        act["operationId"]: act["requestBody"]["content"]["application/json"]["schema"]
        for _, _, act in acts(told)
        if "requestBody" in act
    }

    assert len(examples) == len(list(acts(told)))
    for name, written in examples:
        sent = re.search(r"-d &#39;(.*)&#39;$", written, re.DOTALL)
        assert (sent is not None) == (name in bodies), name
        if sent:
            body = msgspec.json.decode(sent[1].replace("&#34;", '"').replace("&#39;&#34;&#39;&#34;&#39;", "'"))
            jsonschema_rs.validator_for({**bodies[name], "components": told["components"]}).validate(body)


async def test_a_path_that_does_not_take_a_method_says_which_it_takes(client: AsyncClient, cast: Cast):
    told = openapi()

    for path, methods in told["paths"].items():
        answered = await client.request("OPTIONS", re.sub(r"\{\w+\}", "1", path))

        allowed = set(answered.headers["allow"].lower().split(", "))
        assert answered.status_code == 405
        assert allowed - {"head"} == methods.keys(), path
