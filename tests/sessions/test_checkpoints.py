"""The end of a turn asks for a summary only when enough has happened since the last one."""

from __future__ import annotations

from uuid import UUID

import httpx
import msgspec
import pytest

from cmserver.base.db import Db
from cmserver.base.errors import NotFound
from cmserver.generation.model import Job
from cmserver.ingest import session_lifecycle as sessions
from cmserver.ingest.model import Checkpoints
from tests.conftest import Cast, Person
from tests.generation.tools import Outbox, Scripted
from tests.ingest.test_api import event
from tests.sessions.test_api import start

AFTER_THREE = Checkpoints(events=3, minutes=30)


async def turn(db: Db, person: Person, session_id: object, after: Checkpoints = AFTER_THREE) -> Job | None:
    return await db.in_tenant(
        person.team_id,
        lambda conn: sessions.checkpoint(conn, person.principal, UUID(str(session_id)), source_adapter="hook", after=after),
    )


async def work(client: httpx.AsyncClient, person: Person, events: int, first: int = 0) -> None:
    for n in range(first, first + events):
        await client.post("/v1/events", json=event(contentSessionId="s1", sourceEventId=f"e{n}"), headers=person.headers)


async def summaries(outbox: Outbox) -> object:
    return await outbox.value("SELECT count(*) FROM observation_generation_jobs WHERE source_type = 'session_summary'")


async def test_a_turn_costs_a_summary_only_after_enough_new_events(client: httpx.AsyncClient, cast: Cast, db: Db, outbox: Outbox):
    session = await start(client, cast.alice, "s1")

    await work(client, cast.alice, 2)
    too_early = await turn(db, cast.alice, session["id"])
    await work(client, cast.alice, 1, first=2)
    first = await turn(db, cast.alice, session["id"])
    await work(client, cast.alice, 3, first=3)
    while_it_is_queued = await turn(db, cast.alice, session["id"])
    await (await outbox.hand(Scripted())).work()
    second = await turn(db, cast.alice, session["id"])
    nothing_new = await turn(db, cast.alice, session["id"])
    await (await outbox.hand(Scripted())).work()
    await work(client, cast.alice, 2, first=6)
    too_early_again = await turn(db, cast.alice, session["id"])

    assert too_early is None
    assert first is not None
    assert while_it_is_queued is None
    assert second is not None
    assert (first.source_run, second.source_run) == (1, 2)
    assert nothing_new is None
    assert too_early_again is None  # only what is new since the last one counts
    assert await outbox.value("SELECT ended_at FROM server_sessions") is None
    assert await outbox.value("SELECT count(*) FROM audit_log WHERE action = 'session.checkpoint'") == 2


async def test_a_turn_long_after_the_last_summary_costs_one_when_there_is_any_news(
    client: httpx.AsyncClient, cast: Cast, db: Db, outbox: Outbox
):
    session = await start(client, cast.alice, "s1")
    await outbox.rows("UPDATE server_sessions SET started_at = started_at - interval '31 minutes'")

    without_news = await turn(db, cast.alice, session["id"])
    await work(client, cast.alice, 1)
    with_news = await turn(db, cast.alice, session["id"])

    assert without_news is None
    assert with_news is not None


async def test_the_end_after_a_checkpoint_summarises_only_what_is_new(
    client: httpx.AsyncClient, cast: Cast, db: Db, outbox: Outbox
):
    session = await start(client, cast.alice, "s1")
    await work(client, cast.alice, 3)
    checkpoint = await turn(db, cast.alice, session["id"])

    at_once = (await client.post(f"/v1/sessions/{session['id']}/end", headers=cast.alice.headers)).json()

    assert checkpoint is not None
    assert at_once["generationJob"]["id"] == str(checkpoint.id)
    assert at_once["session"]["endedAtEpoch"] is not None
    assert await summaries(outbox) == 1


async def test_no_checkpoint_goes_before_events_that_wait_for_the_session_s_end(
    client: httpx.AsyncClient, cast: Cast, db: Db, outbox: Outbox
):
    await outbox.rows("""UPDATE projects SET generation_policy = '{"mode": "at_end"}' WHERE id = %s""", cast.alice.project.id)
    session = await start(client, cast.alice, "s1")
    await work(client, cast.alice, 4)

    assert await turn(db, cast.alice, session["id"]) is None
    assert await summaries(outbox) == 0


async def test_a_guest_that_ends_its_session_after_every_turn_does_not_pay_for_every_turn(
    client: httpx.AsyncClient, cast: Cast, outbox: Outbox
):
    ended: list[httpx.Response] = []
    for n in range(3):
        session = await start(client, cast.alice, "s1")
        await work(client, cast.alice, 1, first=n)
        last_message = event(
            eventType="assistant_message",
            sourceType="hook",
            serverSessionId=session["id"],
            contentSessionId=None,
            payload={"last_assistant_message": f"Turn {n} is done."},
            occurredAtEpoch=1_795_300_000_001 + n,
        )
        await client.post("/v1/events?generate=false", json=last_message, headers=cast.alice.headers)
        ended.append(await client.post(f"/v1/sessions/{session['id']}/end", json={}, headers=cast.alice.headers))

    assert [response.status_code for response in ended] == [200, 200, 200]
    assert ["generationJob" in response.json() for response in ended] == [False, False, False]
    assert ended[0].json()["session"]["endedAtEpoch"] is None
    assert await summaries(outbox) == 0


async def test_a_hook_s_turn_ends_are_checkpoints(client: httpx.AsyncClient, cast: Cast, outbox: Outbox):
    common = {"session_id": "s9", "cwd": "/home/alice/src/orders"}

    for n in range(50):
        use = {
            **common,
            "hook_event_name": "PostToolUse",
            "tool_name": "Bash",
            "tool_use_id": f"t{n}",
            "tool_input": {"command": "ls"},
        }
        await client.post("/v1/hooks/claude-code", json=use, headers=cast.alice.headers)
        if n in (10, 49):
            stop = {**common, "hook_event_name": "Stop", "last_assistant_message": f"Done with {n}."}
            await client.post("/v1/hooks/claude-code", json=stop, headers=cast.alice.headers)
            summary_count = await summaries(outbox)
            assert summary_count == (1 if n == 49 else 0)

    assert await outbox.value("SELECT ended_at FROM server_sessions") is None


async def test_whoever_ends_a_session_whose_hooks_speak_for_themselves_means_it(
    client: httpx.AsyncClient, cast: Cast, outbox: Outbox
):
    stop = {"session_id": "s9", "cwd": "/home/alice/src/orders", "hook_event_name": "Stop", "last_assistant_message": "Done."}
    await client.post("/v1/hooks/claude-code", json=stop, headers=cast.alice.headers)
    session_id = await outbox.value("SELECT id FROM server_sessions")

    ended = await client.post(f"/v1/sessions/{session_id}/end", json={}, headers=cast.alice.headers)

    assert ended.json()["session"]["endedAtEpoch"] is not None
    assert await summaries(outbox) == 1


@pytest.mark.parametrize("of_another", ["team", "project"])
async def test_nobody_asks_for_a_checkpoint_of_a_stranger_s_session(client: httpx.AsyncClient, cast: Cast, db: Db, of_another: str):
    session = await start(client, cast.alice, "s1", **({"projectId": "github.com/acme/other"} if of_another == "project" else {}))
    bound = msgspec.structs.replace(cast.alice.principal, project_id=cast.alice.project.id)
    principal = cast.charlie.principal if of_another == "team" else bound

    with pytest.raises(NotFound, match="session"):
        await db.in_tenant(
            principal.team_id,
            lambda conn: sessions.checkpoint(conn, principal, UUID(str(session["id"])), source_adapter="hook", after=AFTER_THREE),
        )
