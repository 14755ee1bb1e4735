"""A session's end: one summary for each run, whoever asks and however often."""

from __future__ import annotations

import asyncio

import httpx

from cmserver.base.db import Db
from tests.conftest import Cast
from tests.generation.tools import Outbox, Scripted
from tests.ingest.test_api import count, event
from tests.sessions.test_api import start


async def test_an_end_that_is_repeated_gives_the_same_answer_also_when_its_job_has_finished(
    client: httpx.AsyncClient, cast: Cast, outbox: Outbox
):
    session = await start(client, cast.alice, "s1")
    await client.post("/v1/events", json=event(contentSessionId="s1"), headers=cast.alice.headers)
    first = (await client.post(f"/v1/sessions/{session['id']}/end", headers=cast.alice.headers)).json()

    at_once = (await client.post(f"/v1/sessions/{session['id']}/end", headers=cast.bob.headers)).json()
    await (await outbox.hand(Scripted())).work()
    later = (await client.post(f"/v1/sessions/{session['id']}/end", headers=cast.alice.headers)).json()

    assert at_once["generationJob"]["id"] == later["generationJob"]["id"] == first["generationJob"]["id"]
    assert first["session"]["endedAtEpoch"] == later["session"]["endedAtEpoch"]
    assert first["session"] == at_once["session"]
    assert later["generationJob"]["status"] == "completed"
    assert await outbox.value("SELECT count(*) FROM observation_generation_jobs WHERE source_type = 'session_summary'") == 1


async def test_a_session_that_goes_on_has_another_end(client: httpx.AsyncClient, cast: Cast, outbox: Outbox):
    session = await start(client, cast.alice, "s1")
    first = (await client.post(f"/v1/sessions/{session['id']}/end", headers=cast.alice.headers)).json()
    resumed = await start(client, cast.alice, "s1")
    nothing_new = (await client.post(f"/v1/sessions/{session['id']}/end", headers=cast.alice.headers)).json()
    await start(client, cast.alice, "s1")
    await client.post("/v1/events", json=event(contentSessionId="s1"), headers=cast.alice.headers)
    second = (await client.post(f"/v1/sessions/{session['id']}/end", headers=cast.alice.headers)).json()
    prompt = event(contentSessionId="s1", eventType="user_prompt", payload={"prompt": "and now?"})
    await client.post("/v1/events", json=prompt, headers=cast.alice.headers)
    third = (await client.post(f"/v1/sessions/{session['id']}/end", headers=cast.alice.headers)).json()

    assert resumed["endedAtEpoch"] is None
    assert nothing_new["generationJob"]["id"] == first["generationJob"]["id"]
    assert nothing_new["session"]["endedAtEpoch"] is not None
    assert len({answer["generationJob"]["id"] for answer in (first, second, third)}) == 3
    runs = await outbox.rows(
        "SELECT source_run FROM observation_generation_jobs WHERE source_type = 'session_summary' ORDER BY seq"
    )
    assert [row["source_run"] for row in runs] == [1, 2, 3]


async def test_a_session_in_which_more_happened_after_its_end_ends_when_it_is_ended_again(
    client: httpx.AsyncClient, cast: Cast, outbox: Outbox
):
    session = await start(client, cast.alice, "s1")
    await client.post(f"/v1/sessions/{session['id']}/end", headers=cast.alice.headers)
    await outbox.rows("UPDATE server_sessions SET ended_at = ended_at - interval '1 hour', updated_at = now() - interval '1 hour'")
    await client.post("/v1/events", json=event(contentSessionId="s1"), headers=cast.alice.headers)

    again = (await client.post(f"/v1/sessions/{session['id']}/end", headers=cast.alice.headers)).json()["session"]

    assert again["endedAtEpoch"] >= session["startedAtEpoch"]
    assert again["endedAtEpoch"] == again["updatedAtEpoch"]


async def test_events_that_are_only_stored_are_no_news(client: httpx.AsyncClient, cast: Cast):
    session = await start(client, cast.alice, "s1")
    first = (await client.post(f"/v1/sessions/{session['id']}/end", headers=cast.alice.headers)).json()
    await client.post("/v1/events?generate=false", json=event(contentSessionId="s1"), headers=cast.alice.headers)

    again = (await client.post(f"/v1/sessions/{session['id']}/end", headers=cast.alice.headers)).json()

    assert again["generationJob"]["id"] == first["generationJob"]["id"]


async def test_ends_that_come_at_once_make_one_job(client: httpx.AsyncClient, cast: Cast, db: Db):
    for n in range(5):
        session = await start(client, cast.alice, f"s{n}")

        ends = await asyncio.gather(
            *(client.post(f"/v1/sessions/{session['id']}/end", headers=cast.alice.headers) for _ in range(6))
        )

        assert {response.status_code for response in ends} == {200}
        assert len({response.json()["generationJob"]["id"] for response in ends}) == 1
    assert await count(db, "observation_generation_jobs") == 5


async def test_a_session_of_a_project_that_was_archived_ends_and_nothing_is_generated(
    client: httpx.AsyncClient, cast: Cast, outbox: Outbox
):
    session = await start(client, cast.alice, "s1")
    await client.post("/v1/events", json=event(contentSessionId="s1"), headers=cast.alice.headers)
    await outbox.rows("UPDATE projects SET archived_at = now() WHERE id = %s", cast.alice.project.id)
    provider = Scripted()

    ended = await client.post(f"/v1/sessions/{session['id']}/end", headers=cast.alice.headers)
    await (await outbox.hand(provider)).work()

    assert ended.status_code == 200
    assert provider.prompts == []
    reasons = await outbox.rows("SELECT last_error ->> 'reason' AS reason FROM observation_generation_jobs")
    assert [row["reason"] for row in reasons] == ["project_closed", "project_closed"]


async def test_start_resume_and_end_leave_their_trace(client: httpx.AsyncClient, cast: Cast, outbox: Outbox):
    headers = {**cast.alice.headers, "X-Request-Id": "r1"}
    session = await start(client, cast.alice, "s1")
    await client.post("/v1/events", json=event(contentSessionId="s1"), headers=cast.alice.headers)
    ended = await client.post(f"/v1/sessions/{session['id']}/end", headers=headers)
    await client.post(f"/v1/sessions/{session['id']}/end", headers=headers)
    await start(client, cast.bob, "s1")
    await start(client, cast.bob, "s1")

    rows = await outbox.rows(
        "SELECT action, resource_id, actor_id, project_id, details, request_id FROM audit_log"
        " WHERE action LIKE 'session.%%' ORDER BY id"
    )

    assert [(row["action"], row["actor_id"]) for row in rows] == [
        ("session.started", "alice"),
        ("session.ended", "alice"),
        ("session.resumed", "bob"),
    ]
    assert {row["resource_id"] for row in rows} == {session["id"]}
    assert {row["project_id"] for row in rows} == {cast.alice.project.id}
    assert rows[1]["details"] == {"job": ended.json()["generationJob"]["id"], "run": 1}
    assert rows[1]["request_id"] == "r1"
