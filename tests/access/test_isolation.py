"""Nothing of an isolated project is found from elsewhere, and it sees nothing that others share: by every door."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from cmserver.base.db import Db
from cmserver.consolidation.model import NewSuggestion
from cmserver.consolidation.repository import suggest
from cmserver.graph.read_observations import read_new_observations
from tests.conftest import Cast, Person, bound_to
from tests.make import Make

Json = dict[str, Any]


class Doors:
    """Requests with a key; what an answer says is looked at as text."""

    def __init__(self, client: httpx.AsyncClient, person: Person) -> None:
        self._client, self.person = client, person

    async def __call__(self, method: str, path: str, body: object = None, **params: Any) -> httpx.Response:
        return await self._client.request(method, path, json=body, params=params, headers=self.person.headers)

    async def tool(self, name: str, **arguments: object) -> str:
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments}}
        headers = {**self.person.headers, "Accept": "application/json, text/event-stream"}
        return (await self._client.post("/mcp", json=call, headers=headers)).text


@pytest.fixture
async def secret(client: httpx.AsyncClient, db: Db, cast: Cast, make: Make) -> Person:
    """Whoever works in the isolated project. It has shared a wombat with the team before; the team's project shares a quokka."""
    person = await bound_to(db, cast.alice, "github.com/acme/secret")
    first = await make.observation(project=person.project, title="The wombat is in `wombat_queue`", scope="team")
    second = await make.observation(project=person.project, title="A wombat of its own", files_modified=["src/wombat.py"])
    await make.observation(project=cast.alice.project, title="The quokka is shared", scope="team", files_modified=["src/quokka.py"])
    async with db.tenant(person.team_id) as conn:
        pair = NewSuggestion(left_id=first.id, right_id=second.id, similarity=0.9, measured_by="words", reason="same")
        await suggest(conn, person.team_id, person.project.id, [pair])
    said = {"hook_event_name": "UserPromptSubmit", "session_id": "w", "prompt": "The wombat is in the cellar, is it?"}
    await client.post("/v1/hooks/claude-code", json=said, headers={**person.headers})
    await read_new_observations(db)
    answer = await Doors(client, cast.alice)("PATCH", f"/v1/projects/{person.project.id}", {"isolated": True})
    assert answer.json()["project"]["isolated"] is True, answer.text
    return person


async def test_nothing_of_it_is_found_from_elsewhere(client: httpx.AsyncClient, db: Db, cast: Cast, secret: Person):
    team = Doors(client, cast.alice)
    bound = Doors(client, await bound_to(db, cast.alice, cast.alice.project.canonical_id))
    other = cast.alice.project.canonical_id
    prompt = {"hook_event_name": "UserPromptSubmit", "session_id": "h", "prompt": "Where is the wombat and its wombat_queue?"}
    start = {"hook_event_name": "SessionStart", "session_id": "h", "source": "startup"}
    found: dict[str, str] = {}
    for name, doors in (("team", team), ("bound", bound)):
        answers = {
            "search": await doors("POST", "/v1/search", {"query": "wombat"}),
            "search of a project": await doors("POST", "/v1/search", {"query": "wombat", "projectId": other}),
            "list": await doors("GET", "/v1/observations"),
            "timeline by query": await doors("POST", "/v1/timeline", {"query": "wombat"}),
            "timeline by time": await doors("POST", "/v1/timeline", {"anchor": "2100-01-01T00:00:00Z", "before": 50}),
            "context": await doors("GET", "/v1/context", project=other),
            "entities": await doors("GET", "/v1/entities", search="wombat"),
            "memories": await doors("GET", "/api/v1/memories", limit=50),
            "recall": await doors("POST", "/api/v1/memories/recall", {"query": "wombat"}),
            "memories/search": await doors("POST", "/api/v1/memories/search", {"query": "wombat"}),
            "compat search": await doors("GET", "/api/search", query="wombat"),
            "compat list": await doors("GET", "/api/observations", limit=50),
            "compat prompts": await doors("GET", "/api/prompts", limit=50),
            "turns": await doors("GET", "/v1/turns"),
            "sessions": await doors("GET", "/v1/sessions"),
            "jobs": await doors("GET", "/v1/jobs"),
            "lanes": await doors("GET", "/v1/lanes"),
            "suggestions": await doors("GET", "/v1/suggestions"),
            "Contextify's suggestions": await doors("GET", "/api/v1/consolidation/suggestions"),
            "Contextify's duplicates": await doors("GET", "/api/v1/memories/duplicates"),
        }
        for hook in (start, prompt):
            headers = {**doors.person.headers, "X-Cmserver-Project": other}
            answers[hook["hook_event_name"]] = await client.post("/v1/hooks/claude-code", json=hook, headers=headers)
        found |= {f"{name}: {door}": answer.text for door, answer in answers.items()}
        found[f"{name}: MCP search"] = await doors.tool("observation_search", query="wombat")
        found[f"{name}: MCP context"] = await doors.tool("observation_context", project=other)

    told = {door: text for door, text in found.items() if "wombat is in" in text.lower() or "wombat of its own" in text.lower()}
    assert told == {}
    assert "wombat.py" not in found["team: entities"]
    assert "quokka" in found["team: list"]
    own_jobs = await team("GET", "/v1/jobs", project=secret.project.canonical_id)
    assert "wombat is in" in own_jobs.text


async def test_it_sees_nothing_that_others_share_and_finds_its_own(client: httpx.AsyncClient, cast: Cast, secret: Person):
    own = Doors(client, secret)
    team = Doors(client, cast.alice)
    name = secret.project.canonical_id
    start = {"hook_event_name": "SessionStart", "session_id": "s", "source": "startup"}
    prompt = {"hook_event_name": "UserPromptSubmit", "session_id": "s", "prompt": "Where is the quokka that is shared?"}
    answers = {
        "search": await own("POST", "/v1/search", {"query": "quokka"}),
        "search by the team's key": await team("POST", "/v1/search", {"query": "quokka", "projectId": name}),
        "by number": await own("GET", "/v1/observations/3"),
        "batch": await own("POST", "/v1/observations/batch", {"ids": [3]}),
        "context": await own("GET", "/v1/context", project=name),
        "memories": await own("GET", "/api/v1/memories", limit=50),
        "recall": await own("POST", "/api/v1/memories/recall", {"query": "quokka", "project_id": name}),
        "compat search": await own("GET", "/api/search", query="quokka", project=name),
    }
    for hook in (start, prompt):
        headers = {**secret.headers, "X-Cmserver-Project": name}
        answers[hook["hook_event_name"]] = await client.post("/v1/hooks/claude-code", json=hook, headers=headers)

    assert {door: answer.text for door, answer in answers.items() if "quokka is shared" in answer.text} == {}
    assert answers["by number"].status_code == 404
    found = await own("POST", "/v1/search", {"query": "wombat"})
    assert {row["number"] for row in found.json()["observations"]} == {1, 2}
    named = await team("POST", "/v1/search", {"query": "wombat", "projectId": name})
    assert {row["number"] for row in named.json()["observations"]} == {1, 2}
    assert "wombat" in answers["context"].text


async def test_it_is_searched_alone(client: httpx.AsyncClient, cast: Cast, secret: Person):
    team = Doors(client, cast.alice)
    names = [secret.project.canonical_id, cast.alice.project.canonical_id]

    refused = await team("POST", "/v1/search", {"query": "wombat", "projects": names})

    assert refused.status_code == 400
    assert refused.json()["issues"][0]["path"] == "$.projects"


async def test_what_is_written_for_the_team_stays_its_own_until_it_is_open_again(
    client: httpx.AsyncClient, cast: Cast, secret: Person
):
    team = Doors(client, cast.alice)
    new = {"projectId": secret.project.canonical_id, "title": "Another wombat", "scope": "team"}

    written = (await team("POST", "/v1/observations", new)).json()["observation"]
    corrected = (await team("PATCH", "/v1/observations/2", {"scope": "team"})).json()["observation"]
    await team("PATCH", f"/v1/projects/{secret.project.id}", {"isolated": False})
    shared = (await team("PATCH", "/v1/observations/2", {"scope": "team"})).json()["observation"]

    assert (written["scope"], corrected["scope"], shared["scope"]) == ("project", "project", "team")
    listed = (await team("GET", "/v1/observations")).json()["observations"]
    assert {row["number"] for row in listed} == {1, 2, 3, written["number"]}
