"""The memory-service's routes, line by line: as an honest client asks and with wrong input; two teams never meet."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import httpx
import msgspec
import pytest

from cmserver.base.db import Db
from cmserver.base.http.frame import AsgiFrame
from cmserver.embeddings.query_embedder import QueryEmbedder
from tests.conftest import Cast, bound_to, mint
from tests.make import Make
from tests.recall.search.conftest import vectors
from tests.recall.search.test_filters import FakeEmbedder
from tests.recall.search.tools import Vectors
from tests.table import Failures

__all__ = ["vectors"]  # a fixture

LINES = {
    "GET /health",
    "GET /sessions",
    "POST /sessions",
    "GET /sessions/by-external/:externalId",
    "PATCH /sessions/by-external/:externalId",
    "DELETE /sessions/by-external/:externalId",
    "GET /episodes",
    "POST /episodes",
    "GET /episodes/search",
    "GET /sessions/:id/episodes",
    "DELETE /episodes/:id",
    "POST /entities",
    "GET /entities/by-type/:type",
    "GET /entities/:id",
    "DELETE /entities/:id",
    "POST /relationships",
    "GET /entities/:id/relationships",
    "DELETE /relationships",
    "GET /projects",
    "POST /projects",
    "GET /projects/:id",
    "PATCH /projects/:id",
    "DELETE /projects/:id",
    "POST /projects/:id/summarize",
    "GET /projects/:id/overview",
    "GET /projects/:id/summaries",
    "POST /summaries",
    "GET /sessions/:id/summaries",
    "PATCH /summaries/:id",
    "DELETE /summaries/:id",
}
Json = Any
NOBODY = "0198c3f0-0000-7000-8000-000000000000"


class Step(msgspec.Struct, frozen=True):
    """A request, its status, and what its answer shows: a part of an object, `[]` or `null`, or the ids of a list in their order.

    `{name}` stands for the id of the answer that was kept under that name.
    """

    line: str
    path: str
    body: Json = None
    status: int = 200
    shows: Json = ...
    keep: str = ""
    wrong: str = ""
    """The path of the wrong field."""


HONEST = [
    Step("GET /health", "/health"),
    Step("GET /projects", "/projects", shows=[]),
    Step("GET /sessions", "/sessions", shows=[]),
    Step("GET /episodes", "/episodes", shows=[]),
    Step("POST /projects", "/projects", {"name": "Kitchen"}, 201, {"name": "Kitchen", "isolated": False}, "kitchen"),
    Step("POST /projects", "/projects", {"name": "Kitchen"}, 409),
    Step("POST /projects", "/projects", {"name": "Vault", "isolated": True}, 201, {"isolated": True}, "vault"),
    Step("GET /projects/:id/overview", "/projects/{kitchen}/overview", shows=None),
    Step("POST /projects/:id/summarize", "/projects/{kitchen}/summarize", status=422),
    Step(
        "POST /sessions",
        "/sessions",
        {"externalId": "chat-1", "name": "Soup", "metadata": {"client": "walk"}},
        201,
        {"externalId": "chat-1", "name": "Soup", "projectId": None, "metadata": {"client": "walk"}},
        "soup",
    ),
    Step("POST /sessions", "/sessions", {"externalId": "chat-1"}, 409),
    Step("POST /sessions", "/sessions", {"externalId": "a/b", "projectId": "{kitchen}"}, 201, {"projectId": "{kitchen}"}, "bread"),
    Step("POST /sessions", "/sessions", {"externalId": "chat-1", "projectId": "{kitchen}"}, 409),
    Step("POST /sessions", "/sessions", {"externalId": "hidden", "projectId": "{vault}"}, 201, keep="hidden"),
    Step("GET /projects", "/projects", shows=["{vault}", "{kitchen}"]),
    Step("GET /projects", "/projects?limit=1&offset=1", shows=["{kitchen}"]),
    Step("GET /sessions", "/sessions", shows=["{bread}", "{soup}"]),
    Step("GET /sessions", "/sessions?limit=1&offset=1", shows=["{soup}"]),
    Step("GET /sessions", "/sessions?projectId={vault}", shows=["{hidden}"]),
    Step("GET /sessions/by-external/:externalId", "/sessions/by-external/a%2Fb", shows={"id": "{bread}", "name": None}),
    Step("PATCH /sessions/by-external/:externalId", "/sessions/by-external/a%2Fb", {"name": "Bread"}, shows={"name": "Bread"}),
    Step("PATCH /sessions/by-external/:externalId", "/sessions/by-external/a%2Fb", {"name": None}, shows={"name": None}),
    Step(
        "POST /episodes",
        "/episodes",
        {"sessionId": "{soup}", "userMessage": "What is a wombat?", "aiResponse": "A marsupial."},
        201,
        {"sessionId": "{soup}", "userMessage": "What is a wombat?", "aiResponse": "A marsupial."},
        "first",
    ),
    Step(
        "POST /episodes",
        "/episodes",
        {"sessionId": "{soup}", "userMessage": "Password?", "aiResponse": "It is <private>hunter2</private>."},
        201,
        keep="second",
    ),
    Step("POST /episodes", "/episodes", {"sessionId": "{bread}", "userMessage": "wombat", "aiResponse": "here"}, 201, keep="third"),
    Step(
        "POST /episodes", "/episodes", {"sessionId": "{hidden}", "userMessage": "wombat", "aiResponse": "gold"}, 201, keep="fourth"
    ),
    Step("GET /episodes", "/episodes", shows=["{third}", "{second}", "{first}"]),
    Step("GET /episodes", "/episodes?sessionId={hidden}", shows=["{fourth}"]),
    Step("GET /episodes", "/episodes?projectId={kitchen}", shows=["{third}"]),
    Step("GET /sessions/:id/episodes", "/sessions/{soup}/episodes", shows=["{second}", "{first}"]),
    Step("GET /sessions/:id/episodes", "/sessions/{soup}/episodes?limit=1&offset=1", shows=["{first}"]),
    Step("GET /episodes/search", "/episodes/search?q=marsupial", shows=["{first}"]),
    Step("GET /episodes/search", "/episodes/search?q=hunter2", shows=[]),
    Step("GET /episodes/search", "/episodes/search?q=wombat&limit=1&sessionId={soup}", shows=["{first}"]),
    Step("GET /episodes/search", "/episodes/search?q=wombat&projectId={kitchen}", shows=["{third}"]),
    Step("GET /episodes/search", "/episodes/search?q=wombat&sessionId={hidden}", shows=["{fourth}"]),
    Step("GET /episodes/search", "/episodes/search?q=gold", shows=[]),
    Step("GET /episodes/search", "/episodes/search?q=%22%20AND%20(*", shows=[]),
    Step("GET /episodes/:id", "/episodes/{first}", shows={"id": "{first}"}),
    Step("DELETE /episodes/:id", "/episodes/{first}", shows={"id": "{first}"}),
    Step("GET /episodes/search", "/episodes/search?q=marsupial", shows=[]),
    Step("DELETE /episodes/:id", "/episodes/{first}", status=404),
    Step("POST /projects/:id/summarize", "/projects/{kitchen}/summarize", status=201, shows={"sessionId": None}, keep="overview"),
    Step("GET /projects/:id/overview", "/projects/{kitchen}/overview", shows={"id": "{overview}", "projectId": "{kitchen}"}),
    Step("GET /projects/:id/summaries", "/projects/{kitchen}/summaries", shows=["{overview}"]),
    Step("PATCH /summaries/:id", "/summaries/{overview}", {"content": "A warm room."}, shows={"content": "A warm room."}),
    Step("GET /projects/:id/overview", "/projects/{kitchen}/overview", shows={"content": "A warm room."}),
    Step("DELETE /summaries/:id", "/summaries/{overview}", shows={"id": "{overview}"}),
    Step("GET /projects/:id/overview", "/projects/{kitchen}/overview", shows=None),
    Step(
        "POST /summaries",
        "/summaries",
        {"content": "We baked.", "sessionId": "{bread}"},
        201,
        {"content": "We baked.", "sessionId": "{bread}", "projectId": "{kitchen}"},
        "baked",
    ),
    Step(
        "POST /summaries",
        "/summaries",
        {"content": "A kitchen.", "projectId": "{kitchen}"},
        201,
        {"sessionId": None, "projectId": "{kitchen}"},
        "kitchens",
    ),
    Step("POST /summaries", "/summaries", {"content": "Of soup.", "sessionId": "{soup}"}, 201, {"projectId": None}, keep="of soup"),
    Step("GET /projects/:id/overview", "/projects/{kitchen}/overview", shows={"id": "{kitchens}", "content": "A kitchen."}),
    Step("GET /projects/:id/summaries", "/projects/{kitchen}/summaries", shows=["{kitchens}", "{baked}"]),
    Step("GET /projects/:id/summaries", "/projects/{kitchen}/summaries?limit=1&offset=1", shows=["{baked}"]),
    Step("GET /sessions/:id/summaries", "/sessions/{bread}/summaries", shows=["{baked}"]),
    Step("PATCH /summaries/:id", "/summaries/{baked}", {"content": "We cooked."}, shows={"content": "We cooked."}),
    Step("DELETE /summaries/:id", "/summaries/{kitchens}", shows={"id": "{kitchens}"}),
    Step("GET /projects/:id/overview", "/projects/{kitchen}/overview", shows=None),
    Step("POST /projects/:id/summarize", "/projects/{kitchen}/summarize", status=201, keep="overview"),
    Step(
        "POST /entities",
        "/entities",
        {"name": "Ana", "type": "person", "notes": "draws maps"},
        201,
        {"name": "Ana", "type": "person", "notes": "draws maps", "projectId": None},
        "ana",
    ),
    Step(
        "POST /entities", "/entities", {"name": "ana", "type": "person", "notes": None}, 201, {"id": "{ana}", "notes": "draws maps"}
    ),
    Step("POST /entities", "/entities", {"name": "ana", "type": "person", "notes": ""}, 201, {"notes": "draws maps"}),
    Step("POST /entities", "/entities", {"name": "Ana", "type": "person", "notes": "has a cat"}, 201, {"notes": "has a cat"}),
    Step(
        "POST /entities",
        "/entities",
        {"name": "Ana", "type": "person", "projectId": "{kitchen}"},
        201,
        {"projectId": "{kitchen}", "notes": None},
        "other ana",
    ),
    Step("POST /entities", "/entities", {"name": "Oslo", "type": "place"}, 201, keep="oslo"),
    Step("POST /entities", "/entities", {"name": "Gold", "type": "concept", "projectId": "{vault}"}, 201, keep="gold"),
    Step("GET /entities/by-type/:type", "/entities/by-type/person", shows=["{other ana}", "{ana}"]),
    Step("GET /entities/by-type/:type", "/entities/by-type/person?limit=1&offset=1", shows=["{ana}"]),
    Step("GET /entities/by-type/:type", "/entities/by-type/concept", shows=[]),
    Step("GET /entities/:id", "/entities/{ana}", shows={"id": "{ana}"}),
    Step(
        "POST /relationships",
        "/relationships",
        {"fromId": "{ana}", "toId": "{oslo}", "label": "lives in"},
        201,
        {"fromId": "{ana}", "toId": "{oslo}", "label": "lives in"},
        "lives",
    ),
    Step(
        "POST /relationships",
        "/relationships",
        {"fromId": "{ana}", "toId": "{oslo}", "label": "lives in"},
        201,
        {"id": "{lives}"},
    ),
    Step("GET /entities/:id/relationships", "/entities/{ana}/relationships", shows=["{lives}"]),
    Step("GET /entities/:id/relationships", "/entities/{oslo}/relationships", shows=[]),
    Step("DELETE /relationships", "/relationships", {"fromId": "{ana}", "toId": "{oslo}", "label": "lives in"}),
    Step("GET /entities/:id/relationships", "/entities/{ana}/relationships", shows=[]),
    Step("DELETE /relationships", "/relationships", {"fromId": "{ana}", "toId": "{oslo}", "label": "lives in"}, 404),
    Step("DELETE /entities/:id", "/entities/{oslo}"),
    Step("GET /entities/:id", "/entities/{oslo}", status=404),
    Step(
        "PATCH /sessions/by-external/:externalId",
        "/sessions/by-external/chat-1",
        {"projectId": "{kitchen}", "name": "Stew"},
        shows={"id": "{soup}", "projectId": "{kitchen}", "name": "Stew"},
    ),
    Step("GET /episodes", "/episodes?projectId={kitchen}", shows=["{third}", "{second}"]),
    Step("GET /projects/:id/summaries", "/projects/{kitchen}/summaries", shows=["{overview}", "{of soup}", "{baked}"]),
    Step("GET /projects/:id/summaries", "/projects/{kitchen}/summaries?limit=1", shows=["{overview}"]),
    Step("GET /projects/:id/summaries", "/projects/{kitchen}/summaries?limit=1&offset=1", shows=["{of soup}"]),
    Step("GET /projects/:id/summaries", "/projects/{kitchen}/summaries?limit=5&offset=2", shows=["{baked}"]),
    Step("GET /projects/:id/summaries", "/projects/{kitchen}/summaries?offset=3", shows=[]),
    Step("PATCH /sessions/by-external/:externalId", "/sessions/by-external/chat-1", {"projectId": None}, shows={"projectId": None}),
    Step("DELETE /sessions/by-external/:externalId", "/sessions/by-external/a%2Fb", shows={"id": "{bread}"}),
    Step("GET /sessions/by-external/:externalId", "/sessions/by-external/a%2Fb", status=404),
    Step("GET /episodes", "/episodes", shows=["{second}"]),
    Step("GET /projects/:id/summaries", "/projects/{kitchen}/summaries", shows=[]),
    Step("POST /sessions", "/sessions", {"externalId": "a/b"}, 201, keep="again"),
    Step("GET /projects/:id", "/projects/{kitchen}", shows={"id": "{kitchen}"}),
    Step("PATCH /projects/:id", "/projects/{kitchen}", {"name": "Cellar"}, shows={"name": "Cellar", "isolated": False}),
    Step("PATCH /projects/:id", "/projects/{kitchen}", {"isolated": True}, shows={"name": "Cellar", "isolated": True}),
    Step("PATCH /projects/:id", "/projects/{kitchen}", {"name": "Vault"}, 409),
    Step("POST /projects", "/projects", {"name": "Cellar"}, 409),
    Step("DELETE /projects/:id", "/projects/{kitchen}", shows={"id": "{kitchen}"}),
    Step("GET /projects/:id", "/projects/{kitchen}", status=404),
    Step("GET /projects", "/projects", shows=["{vault}"]),
]

WRONG = [
    Step("GET /health", "/health?limit=x", status=200),
    Step("GET /sessions", "/sessions?limit=0", status=400, wrong="$.limit"),
    Step("GET /sessions", "/sessions?limit=many", status=400, wrong="$.limit"),
    Step("GET /sessions", "/sessions?offset=-1", status=400, wrong="$.offset"),
    Step("GET /sessions", f"/sessions?projectId={NOBODY}", status=404, wrong="$.projectId"),
    Step("POST /sessions", "/sessions", {}, 400, wrong="$.externalId"),
    Step("POST /sessions", "/sessions", [], 400),
    Step("POST /sessions", "/sessions", {"externalId": ""}, 400, wrong="$.externalId"),
    Step("POST /sessions", "/sessions", {"externalId": 7}, 400, wrong="$.externalId"),
    Step("POST /sessions", "/sessions", {"externalId": "x", "name": " "}, 400, wrong="$.name"),
    Step("POST /sessions", "/sessions", {"externalId": "x", "projectId": NOBODY}, 404, wrong="$.projectId"),
    Step("POST /sessions", "/sessions", {"externalId": "x", "projectId": "no such name"}, 404, wrong="$.projectId"),
    Step("GET /sessions/by-external/:externalId", "/sessions/by-external/x", status=404),
    Step("PATCH /sessions/by-external/:externalId", "/sessions/by-external/x", {"name": "y"}, 404),
    Step("PATCH /sessions/by-external/:externalId", "/sessions/by-external/chat", {"name": 7}, 400, wrong="$.name"),
    Step("PATCH /sessions/by-external/:externalId", "/sessions/by-external/chat", {"name": " "}, 400, wrong="$.name"),
    Step("PATCH /sessions/by-external/:externalId", "/sessions/by-external/chat", {"projectId": NOBODY}, 404, wrong="$.projectId"),
    Step(
        "PATCH /sessions/by-external/:externalId",
        "/sessions/by-external/chat",
        {"name": "Moved", "projectId": NOBODY},
        404,
        wrong="$.projectId",
    ),
    Step("DELETE /sessions/by-external/:externalId", "/sessions/by-external/x", status=404),
    Step("GET /episodes", "/episodes?limit=201", status=400, wrong="$.limit"),
    Step("GET /episodes", "/episodes?sessionId=7", status=400, wrong="$.sessionId"),
    Step("GET /episodes", f"/episodes?projectId={NOBODY}", status=404, wrong="$.projectId"),
    Step("POST /episodes", "/episodes", {"sessionId": "{chat}", "userMessage": "a"}, 400, wrong="$.aiResponse"),
    Step("POST /episodes", "/episodes", {"sessionId": "{chat}", "userMessage": "", "aiResponse": "b"}, 400, wrong="$.userMessage"),
    Step("POST /episodes", "/episodes", {"sessionId": 1, "userMessage": "a", "aiResponse": "b"}, 400, wrong="$.sessionId"),
    Step("POST /episodes", "/episodes", {"sessionId": NOBODY, "userMessage": "a", "aiResponse": "b"}, 404),
    Step("GET /episodes/search", "/episodes/search", status=400, wrong="$.q"),
    Step("GET /episodes/search", "/episodes/search?q=", status=400, wrong="$.q"),
    Step("GET /episodes/search", "/episodes/search?q=a&limit=0", status=400, wrong="$.limit"),
    Step("GET /episodes/search", "/episodes/search?q=a&sessionId=x", status=400, wrong="$.sessionId"),
    Step("GET /episodes/search", f"/episodes/search?q=a&projectId={NOBODY}", status=404, wrong="$.projectId"),
    Step("GET /sessions/:id/episodes", f"/sessions/{NOBODY}/episodes", status=404),
    Step("GET /sessions/:id/episodes", "/sessions/7/episodes", status=404),
    Step("GET /sessions/:id/episodes", "/sessions/{chat}/episodes?offset=x", status=400, wrong="$.offset"),
    Step("DELETE /episodes/:id", f"/episodes/{NOBODY}", status=404),
    Step("DELETE /episodes/:id", "/episodes/none", status=404),
    Step("POST /entities", "/entities", {"type": "person"}, 400, wrong="$.name"),
    Step("POST /entities", "/entities", {"name": "", "type": "person"}, 400, wrong="$.name"),
    Step("POST /entities", "/entities", {"name": "Ana"}, 400, wrong="$.type"),
    Step("POST /entities", "/entities", {"name": "Ana", "type": "animal"}, 400, wrong="$.type"),
    Step("POST /entities", "/entities", {"name": "hello", "type": "person"}, 400, wrong="$.name"),
    Step("POST /entities", "/entities", {"name": "Ana", "type": "person", "notes": 7}, 400, wrong="$.notes"),
    Step("POST /entities", "/entities", {"name": "Ana", "type": "person", "projectId": NOBODY}, 404, wrong="$.projectId"),
    Step("GET /entities/by-type/:type", "/entities/by-type/animal", status=400, wrong="$.type"),
    Step("GET /entities/by-type/:type", "/entities/by-type/person?limit=0", status=400, wrong="$.limit"),
    Step("GET /entities/:id", "/entities/7", status=404),
    Step("DELETE /entities/:id", f"/entities/{NOBODY}", status=404),
    Step("POST /relationships", "/relationships", {"fromId": "{redis}", "label": "needs"}, 400, wrong="$.toId"),
    Step("POST /relationships", "/relationships", {"fromId": "{redis}", "toId": "{queue}"}, 400, wrong="$.label"),
    Step("POST /relationships", "/relationships", {"fromId": "{redis}", "toId": "{queue}", "label": " "}, 400, wrong="$.label"),
    Step("POST /relationships", "/relationships", {"fromId": 1, "toId": "{queue}", "label": "needs"}, 400, wrong="$.fromId"),
    Step("POST /relationships", "/relationships", {"fromId": "{redis}", "toId": "{redis}", "label": "needs"}, 400, wrong="$.toId"),
    Step("POST /relationships", "/relationships", {"fromId": "{redis}", "toId": NOBODY, "label": "needs"}, 404, wrong="$.toId"),
    Step("POST /relationships", "/relationships", {"fromId": NOBODY, "toId": "{queue}", "label": "needs"}, 404, wrong="$.fromId"),
    Step("GET /entities/:id/relationships", f"/entities/{NOBODY}/relationships", status=404),
    Step("DELETE /relationships", "/relationships", {"fromId": "{redis}", "toId": "{queue}"}, 400, wrong="$.label"),
    Step("DELETE /relationships", "/relationships", {"fromId": "{redis}", "toId": "{queue}", "label": "needs"}, 404),
    Step("GET /projects", "/projects?limit=-1", status=400, wrong="$.limit"),
    Step("POST /projects", "/projects", {}, 400, wrong="$.name"),
    Step("POST /projects", "/projects", {"name": ""}, 400, wrong="$.name"),
    Step("POST /projects", "/projects", {"name": " "}, 400, wrong="$.name"),
    Step("POST /projects", "/projects", {"name": 7}, 400, wrong="$.name"),
    Step("POST /projects", "/projects", {"name": "New", "isolated": "yes"}, 400, wrong="$.isolated"),
    Step("GET /projects/:id", f"/projects/{NOBODY}", status=404),
    Step("PATCH /projects/:id", f"/projects/{NOBODY}", {"name": "x"}, 404),
    Step("PATCH /projects/:id", "/projects/{project}", {"name": " "}, 400, wrong="$.name"),
    Step("PATCH /projects/:id", "/projects/{project}", {"name": None}, 400, wrong="$.name"),
    Step("PATCH /projects/:id", "/projects/{project}", {"isolated": 2}, 400, wrong="$.isolated"),
    Step("DELETE /projects/:id", f"/projects/{NOBODY}", status=404),
    Step("POST /projects/:id/summarize", f"/projects/{NOBODY}/summarize", status=404),
    Step("GET /projects/:id/overview", f"/projects/{NOBODY}/overview", status=404),
    Step("GET /projects/:id/summaries", f"/projects/{NOBODY}/summaries", status=404),
    Step("GET /projects/:id/summaries", "/projects/{project}/summaries?limit=x", status=400, wrong="$.limit"),
    Step("POST /summaries", "/summaries", {"content": "x"}, 400, wrong="$.sessionId"),
    Step("POST /summaries", "/summaries", {"sessionId": "{chat}"}, 400, wrong="$.content"),
    Step("POST /summaries", "/summaries", {"content": "", "sessionId": "{chat}"}, 400, wrong="$.content"),
    Step("POST /summaries", "/summaries", {"content": "x", "projectId": NOBODY}, 404, wrong="$.projectId"),
    Step("POST /summaries", "/summaries", {"content": "x", "sessionId": NOBODY}, 404),
    Step(
        "POST /summaries", "/summaries", {"content": "x", "sessionId": "{chat}", "projectId": "{project}"}, 400, wrong="$.projectId"
    ),
    Step("GET /sessions/:id/summaries", "/sessions/none/summaries", status=404),
    Step("PATCH /summaries/:id", f"/summaries/{NOBODY}", {"content": "x"}, 404),
    Step("PATCH /summaries/:id", "/summaries/{summary}", {}, 400, wrong="$.content"),
    Step("DELETE /summaries/:id", f"/summaries/{NOBODY}", status=404),
]
THINGS = [
    Step("POST /projects", "/projects", {"name": "Project"}, 201, keep="project"),
    Step("POST /sessions", "/sessions", {"externalId": "chat"}, 201, keep="chat"),
    Step("POST /summaries", "/summaries", {"content": "of chat", "sessionId": "{chat}"}, 201, keep="summary"),
    Step("POST /episodes", "/episodes", {"sessionId": "{chat}", "userMessage": "a", "aiResponse": "b"}, 201, keep="episode"),
    Step("POST /entities", "/entities", {"name": "Redis", "type": "technology"}, 201, keep="redis"),
    Step("POST /entities", "/entities", {"name": "Queue", "type": "concept"}, 201, keep="queue"),
    Step("POST /relationships", "/relationships", {"fromId": "{queue}", "toId": "{redis}", "label": "uses"}, 201, keep="uses"),
]
STATE = ["/projects", "/sessions", "/sessions/{chat}/episodes", "/sessions/{chat}/summaries", "/entities/by-type/technology"]


class Walk:
    """Makes the requests of steps with a key, and keeps ids."""

    def __init__(self, client: httpx.AsyncClient, headers: Mapping[str, str]) -> None:
        self._client, self._headers = client, headers
        self.ids: dict[str, str] = {}

    def fill(self, value: Json) -> Json:
        """The value with ids in the place of names."""
        text = json.dumps(value)
        for name, id_ in self.ids.items():
            text = text.replace(f"{{{name}}}", id_)
        return json.loads(text)

    async def ask(self, method: str, path: str, body: Json = None) -> httpx.Response:
        return await self._client.request(method, self.fill(path), json=self.fill(body), headers=self._headers)

    async def take(self, step: Step) -> None:
        response = await self.ask(step.line.split()[0], step.path, step.body)
        assert response.status_code == step.status, response.text
        answer: Json = response.json()
        if step.keep:
            self.ids[step.keep] = answer["id"]
        if step.wrong:
            assert [issue["path"] for issue in answer["issues"]] == [step.wrong]
        if step.shows is ...:
            return
        shows = self.fill(step.shows)
        if shows is None or isinstance(shows, list):
            assert (answer and [row["id"] for row in answer]) == shows
        else:
            assert answer | shows == answer

    async def take_all(self, steps: list[Step]) -> None:
        failures = Failures()
        for number, step in enumerate(steps):
            with failures.of(f"{number} {step.line} {step.path} {step.body or ''}"):
                await self.take(step)
        failures.report()


def test_each_line_of_the_service_is_walked_twice():
    assert {step.line for step in HONEST} >= LINES
    assert {step.line for step in WRONG} >= LINES


async def test_an_honest_client_walks_each_line(client: httpx.AsyncClient, cast: Cast):
    await client.delete(f"/projects/{cast.alice.project.id}", headers=cast.alice.headers)

    await Walk(client, cast.alice.headers).take_all(HONEST)


async def test_wrong_input_is_refused_with_its_path_and_changes_nothing(client: httpx.AsyncClient, cast: Cast):
    walk = Walk(client, cast.alice.headers)
    await walk.take_all(THINGS)
    before = [(await walk.ask("GET", path)).json() for path in STATE]

    await walk.take_all(WRONG)

    assert [(await walk.ask("GET", path)).json() for path in STATE] == before


async def test_to_delete_a_project_and_to_open_an_isolated_one_needs_an_admin(client: httpx.AsyncClient, db: Db, cast: Cast):
    _, key = await mint(db, cast.alice.team_id, "agent", scopes=["observations:read", "observations:write", "events:write"])
    agent = Walk(client, {"Authorization": f"Bearer {key}"})
    made = (await agent.ask("POST", "/projects", {"name": "Vault", "isolated": True})).json()

    opened = await agent.ask("PATCH", f"/projects/{made['id']}", {"isolated": False})
    deleted = await agent.ask("DELETE", f"/projects/{made['id']}")

    assert (opened.status_code, deleted.status_code) == (403, 403)
    assert (await agent.ask("GET", f"/projects/{made['id']}")).json() == made


async def test_a_stranger_and_a_key_of_another_project_find_none_of_it(client: httpx.AsyncClient, db: Db, cast: Cast):
    bound = await bound_to(db, cast.alice, "github.com/acme/other")
    walk = Walk(client, cast.alice.headers)
    await walk.take_all(THINGS)
    before = [(await walk.ask("GET", path)).json() for path in STATE]
    paths = [
        "GET /projects/{project}",
        "DELETE /projects/{project}",
        "GET /projects/{project}/overview",
        "GET /projects/{project}/summaries",
        "GET /sessions/by-external/chat",
        "DELETE /sessions/by-external/chat",
        "GET /sessions/{chat}/episodes",
        "GET /sessions/{chat}/summaries",
        "GET /episodes/{episode}",
        "DELETE /episodes/{episode}",
        "DELETE /summaries/{summary}",
        "GET /entities/{redis}",
        "DELETE /entities/{redis}",
        "GET /entities/{redis}/relationships",
    ]
    bodies = [
        ("PATCH", "/projects/{project}", {"name": "Mine"}),
        ("PATCH", "/sessions/by-external/chat", {"name": "Mine"}),
        ("PATCH", "/summaries/{summary}", {"content": "Mine"}),
        ("POST", "/episodes", {"sessionId": "{chat}", "userMessage": "a", "aiResponse": "b"}),
        ("POST", "/summaries", {"content": "x", "sessionId": "{chat}"}),
        ("POST", "/sessions", {"externalId": "theirs", "projectId": "{project}"}),
        ("POST", "/entities", {"name": "Ana", "type": "person", "projectId": "{project}"}),
        ("POST", "/relationships", {"fromId": "{redis}", "toId": "{queue}", "label": "needs"}),
        ("POST", "/projects/{project}/summarize", None),
    ]
    lists = ["/projects", "/sessions", "/episodes", "/episodes/search?q=a", "/entities/by-type/technology"]

    for person in (cast.charlie, bound):
        theirs = Walk(client, person.headers)
        theirs.ids = walk.ids
        failures = Failures()
        for method, path, body in [*((*path.split(), None) for path in paths), *bodies]:
            with failures.of(f"{method} {path}"):
                response = await theirs.ask(method, path, body)
                assert response.status_code == 404, response.text
        for path in lists:
            with failures.of(path):
                shown = {row["id"] for row in (await theirs.ask("GET", path)).json()}
                assert shown.isdisjoint(walk.ids.values())
        failures.report()

    assert [(await walk.ask("GET", path)).json() for path in STATE] == before


async def test_episodes_are_found_by_what_they_mean(
    client: httpx.AsyncClient, app: AsgiFrame, cast: Cast, make: Make, vectors: Vectors, monkeypatch: pytest.MonkeyPatch
):
    near, far = [
        await make.turn(project=cast.alice.project, prompt=prompt, reply="Done.") for prompt in ("Why is it slow?", "Rename it")
    ]
    vectors.give(near, [1, 0.1])
    vectors.give(far, [-1, 0.5])
    monkeypatch.setattr(app.dependencies.get(QueryEmbedder), "embed", FakeEmbedder(vectors.near(1, 0)).embed)

    found = await client.get("/episodes/search?q=latency", headers=cast.alice.headers)

    assert [episode["id"] for episode in found.json()] == [str(near.id)]
