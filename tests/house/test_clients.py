"""The clients for scripts are made of the table of routes: all of it, and what they send the program takes."""

from __future__ import annotations

import asyncio
import importlib
import json
import subprocess
import sys
from collections.abc import Generator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, get_type_hints

import httpx
import msgspec
import pytest

from cmserver.app import ROUTES
from cmserver.base.http.frame import AsgiFrame
from tests.conftest import Cast
from tests.house.clients import generate
from tests.house.house import ROOT
from tests.table import try_rows


@cache
def document() -> Any:
    return generate.describe_routes()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Generator[Path]:
    folder = tmp_path_factory.mktemp("clients")
    generate.write_python(document(), folder / "cmserver_client")
    sys.path.insert(0, str(folder))
    yield folder
    sys.path.remove(str(folder))
    del sys.modules["cmserver_client"]


@pytest.fixture(scope="module")
def package(made: Path) -> Any:
    return importlib.import_module("cmserver_client")


def transport(app: AsgiFrame) -> httpx.ASGITransport:
    return httpx.ASGITransport(app)  # pyright: ignore[reportArgumentType] - httpx types ASGI more narrowly


class LoopTransport(httpx.BaseTransport):
    """Requests of another thread, answered by the application in the loop of the test."""

    def __init__(self, app: AsgiFrame) -> None:
        self._transport, self._loop = transport(app), asyncio.get_running_loop()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return asyncio.run_coroutine_threadsafe(self._answer(request), self._loop).result()

    async def _answer(self, request: httpx.Request) -> httpx.Response:
        answer = await self._transport.handle_async_request(request)
        return httpx.Response(answer.status_code, headers=answer.headers, content=await answer.aread())


class NewerServer(httpx.ASGITransport):
    """The application as it may be later: it knows one more word for what was done, and answers with one more field."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        answer = await super().handle_async_request(request)
        text = (await answer.aread()).replace(b'"created"', b'"framed"').replace(b"{", b'{"mood":1,', 1)
        return httpx.Response(answer.status_code, content=text)


# ---- the methods


def test_each_route_of_our_own_is_one_method_with_a_name_of_its_own():
    methods = [*generate.list_methods(document())]
    refused = [route for route in ROUTES if not generate.is_native(route)]

    assert len({method.name for method in methods}) == len(methods) == len(ROUTES) - len(refused) > 100
    assert {route.path for route in refused if route.path.startswith("/v1/")} == {
        *("/v1/hooks/{client}", "/v1/code", "/v1/mcp", "/v1/stream", "/v1/memories", "/v1/memories/{id}"),
    }


def test_no_argument_and_no_field_hides_another_one():
    methods = [*generate.list_methods(document())]
    names = {method.name: [generate.to_snake(name) for name, *_ in method.arguments] for method in methods}
    for name in generate.find_components(document(), document()):
        names[name] = [generate.to_snake(field) for field, *_ in generate.list_fields(document(), name)]

    assert {owner: listed for owner, listed in names.items() if len(set(listed)) < len(listed) or "self" in listed} == {}


@try_rows(
    ("method", "path", "name"),
    [
        ("get", "/v1/observations", "get_observations"),
        ("get", "/v1/observations/{id}", "get_observation"),
        ("post", "/v1/entities/{id}/merge", "post_entity_merge"),
        ("delete", "/v1/entity-relations/{id}", "delete_entity_relation"),
        ("put", "/v1/teams/{team}/members/{user}", "put_team_member"),
        ("post", "/v1/steward/policies/{key}/rollback", "post_steward_policy_rollback"),
    ],
)
def test_a_method_is_named_for_its_route(method: str, path: str, name: str):
    assert generate.name_method(method, path) == name


def test_a_method_has_one_type_of_answer_so_it_takes_no_format():
    methods = {method.name: method for method in generate.list_methods(document())}

    for name, answer in (("post_search", "SearchOut"), ("get_usage", "UsageOut"), ("get_context", "IndexOut")):
        assert [row for row in methods[name].arguments if row[0] == "format"] == [], name
        assert methods[name].write_answer({}) == answer


# ---- the Python package


def test_every_answer_can_be_decoded(package: ModuleType):
    for method in generate.list_methods(document()):
        for client in (package.Client, package.AsyncClient):
            get_type_hints(getattr(client, method.name), vars(package))
        for schema in method.answers.values():
            msgspec.json.Decoder(getattr(package, generate.write_type(schema, {})))


def test_what_is_made_is_formatted_and_has_nothing_to_complain_about(made: Path):
    config = ("--config", ROOT / "pyproject.toml")
    ignored = "--ignore=A002"  # arguments are named as the API names them, `id` and `type` among them
    for words in (("check", "--quiet", *config, ignored), ("format", "--check", "--quiet", *config)):
        done = subprocess.run([sys.executable, "-m", "ruff", *words, made], capture_output=True, text=True, check=False)

        assert done.returncode == 0, done.stdout + done.stderr


async def test_a_script_writes_searches_reads_and_pages(package: Any, app: AsgiFrame, cast: Cast):
    project = "github.com/acme/orders"
    async with package.AsyncClient("http://cmserver", cast.alice.key, transport=transport(app)) as client:
        titles = [f"The retry gives up after {count} attempts" for count in (3, 4, 5)]
        stored = [(await client.post_observations(project_id=project, title=title)).observation for title in titles]
        hits = await client.post_search(query="When does the retry give up?", project_id=project)
        read = await client.get_observation(id=str(stored[0].number))
        pages = [page async for page in client.pages(client.get_observations, project=project, limit=2)]
        whole = await client.get_project(project=project)
        changed = await client.patch_observation(id=str(stored[0].number), subtitle="In the shop")
        cleared = await client.patch_observation(id=str(stored[0].number), subtitle=None)

    with pytest.raises(RuntimeError, match="closed"):
        await client.get_server()
    assert {hit.title for hit in hits.observations} == set(titles)
    assert read.observation.title == titles[0]
    assert [[row.title for row in page.observations] for page in pages] == [[titles[2], titles[1]], [titles[0]]]
    assert whole.project.canonical_id == project
    assert (changed.observation.subtitle, cleared.observation.subtitle) == ("In the shop", None)


async def test_without_asyncio_it_is_the_same(package: Any, app: AsgiFrame, cast: Cast):
    def script(loop: LoopTransport) -> tuple[list[int], Any]:
        with package.Client("http://cmserver", cast.alice.key, transport=loop) as client:
            client.post_projects(canonical_id="orders")
            given = [package.EventIn(event_type="tool_use", project_id="orders", payload={"a": [n, None]}) for n in (1, 2, 3)]
            client.post_events_batch(body=given, generate=False)
            pages = [*client.pages(client.get_events, project="orders", limit=2)]
            return [len(page.events) for page in pages], client.get_event(id=pages[1].events[0].id).event

    counts, event = await asyncio.to_thread(script, LoopTransport(app))

    assert counts == [2, 1]
    assert (event.payload, event.generate) == ({"a": [1, None]}, False)


async def test_the_answer_of_a_newer_server_is_read(package: Any, app: AsgiFrame, cast: Cast):
    newer = NewerServer(transport(app).app)
    async with package.AsyncClient("http://cmserver", cast.alice.key, transport=newer) as client:
        stored = await client.post_observations(project_id="github.com/acme/orders", title="It is retried")

    assert (stored.action, stored.observation.title) == ("framed", "It is retried")


async def test_a_refusal_is_one_error_with_its_code_and_the_wrong_fields(package: Any, app: AsgiFrame, cast: Cast):
    async with package.AsyncClient("http://cmserver", cast.alice.key, transport=transport(app)) as client:
        with pytest.raises(package.ApiError) as wrong:
            await client.post_observations(project_id="github.com/acme/orders", title="x" * 10_000)
        with pytest.raises(package.ApiError) as missing:
            await client.get_observation(id="999")
        for nothing in ("", ".", ".."):
            with pytest.raises(ValueError, match="names nothing"):
                await client.delete_observation(id=nothing)

    assert (wrong.value.status, wrong.value.code) == (400, "ValidationError")
    assert [issue.path for issue in wrong.value.issues] == ["$.title"]
    assert wrong.value.request_id
    assert (missing.value.status, missing.value.code, missing.value.issues) == (404, "NotFound", [])


@try_rows(("status", "text"), [(502, "<html>Bad gateway"), (200, "<html>Sign in"), (200, "[]"), (204, ""), (500, '"no"')])
def test_an_answer_of_something_else_is_a_refusal_without_a_code(package: Any, status: int, text: str):
    between = httpx.MockTransport(lambda _: httpx.Response(status, text=text))

    with package.Client("http://cmserver", "key", transport=between) as client, pytest.raises(package.ApiError) as caught:
        client.get_server()

    assert (caught.value.status, caught.value.code) == (status, "")


def test_fields_without_a_value_are_not_sent_and_names_stay_one_segment(package: Any):
    sent: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        return httpx.Response(500)

    with package.Client("http://cmserver/below/", "key", transport=httpx.MockTransport(answer)) as client:
        for call in (
            lambda: client.get_events(project="a b", limit=1),
            lambda: client.patch_project(project="github.com/acme/orders", name="Shop"),
        ):
            with pytest.raises(package.ApiError):
                call()

    assert [str(request.url) for request in sent] == [
        "http://cmserver/below/v1/events?project=a+b&limit=1",
        "http://cmserver/below/v1/projects/github.com%2Facme%2Forders",
    ]
    assert json.loads(sent[1].content) == {"name": "Shop"}
    assert sent[0].headers["authorization"] == "Bearer key"
