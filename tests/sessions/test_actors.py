"""Whose key it was, and of which turn it came, is said at every door; in the index only to others."""

from __future__ import annotations

import httpx

from tests.conftest import Cast
from tests.doors.mcp.tools import call
from tests.generation.tools import Outbox, Scripted
from tests.sessions.test_turns import hook, list_turns, tool


async def test_an_observation_names_its_turn_and_its_actor_and_the_index_the_actor_to_others(
    client: httpx.AsyncClient, cast: Cast, outbox: Outbox
):
    await hook(client, cast, "SessionStart", source="startup")
    await hook(client, cast, "UserPromptSubmit", prompt="Write it down")
    await tool(client, cast, "Write", {"file_path": "/src/bill.py", "content": "x = 1\n"}, {"type": "create"})
    await hook(client, cast, "SessionEnd", reason="other")
    await (await outbox.hand(Scripted())).work()
    body = {"narrative": "By hand.", "projectId": cast.alice.project.canonical_id}
    await client.post("/v1/observations", json=body, headers=cast.bob.headers)
    (turn,) = await list_turns(client, cast)
    alice, bob = cast.alice.principal.actor_id, cast.bob.principal.actor_id

    listed = (await client.get("/v1/observations", headers=cast.alice.headers)).json()["observations"]
    session = (await client.get("/v1/sessions", headers=cast.alice.headers)).json()["sessions"][0]
    index = (await client.get("/v1/context", params={"project": cast.alice.project.canonical_id}, headers=cast.alice.headers)).text

    by_kind = {one["observationKind"]: one for one in listed}
    assert {kind: (one["actorId"], one["turnNumber"]) for kind, one in by_kind.items()} == {
        "manual": (bob, None),
        "observation": (alice, turn["number"]),
        "summary": (alice, turn["number"]),
    }
    assert session["actorId"] == alice
    assert f"(by {bob})" in index
    assert f"by {alice}" not in index
    whole = (await call(client, cast.bob, "observation_get", ids=[by_kind["observation"]["number"]]))[0]
    assert f"By {alice}, Turn #{turn['number']}" in whole
    assert f"turn by {alice}" in (await call(client, cast.bob, "observation_get", ids=[turn["number"]]))[0]
