"""Who was given an observation: sessions and people, as far as one may know."""

from __future__ import annotations

import httpx

from cmserver.base.db import Db
from tests.conftest import Cast, mint
from tests.make import Make


async def show_to_session(client: httpx.AsyncClient, cast: Cast) -> str:
    body = {"projectId": str(cast.alice.project.id), "externalSessionId": "s1", "platformSource": "claude-code"}
    started = await client.post("/v1/sessions/start", json=body, headers=cast.alice.headers)
    session_id: str = started.json()["session"]["id"]
    context = await client.get("/v1/context", params={"session": session_id, "source": "startup"}, headers=cast.alice.headers)
    assert context.status_code == 200, context.text
    return session_id


async def test_the_session_that_was_shown_it_and_the_person_who_read_it_are_named(
    client: httpx.AsyncClient, cast: Cast, make: Make
):
    observation = await make.observation(project=cast.alice.project)
    session_id = await show_to_session(client, cast)
    await client.get(f"/v1/observations/{observation.number}", headers=cast.bob.headers)

    readers = (await client.get(f"/v1/observations/{observation.number}/readers", headers=cast.alice.headers)).json()

    assert [(shown["sessionId"], shown["reason"]) for shown in readers["shown"]] == [(session_id, "startup")]
    assert [(reader["actorId"], reader["via"], reader["count"]) for reader in readers["readers"]] == [("bob", "get", 1)]


async def test_who_may_not_read_the_audit_log_learns_of_sessions_only(client: httpx.AsyncClient, db: Db, cast: Cast, make: Make):
    observation = await make.observation(project=cast.alice.project)
    await show_to_session(client, cast)
    _, key = await mint(db, cast.alice.team_id, "reader", scopes=["observations:read"])

    answer = await client.get(f"/v1/observations/{observation.number}/readers", headers={"Authorization": f"Bearer {key}"})

    assert answer.json()["readers"] is None
    assert len(answer.json()["shown"]) == 1
