"""Reindex jobs: who may ask for what, what the worker does, and what becomes of rows that make no sense."""

# pyright: reportPrivateUsage=false
from __future__ import annotations

from collections.abc import Awaitable, Callable
from uuid import UUID, uuid4

import httpx
import pytest

from cmserver.base.db import Db
from cmserver.base.settings import Settings
from cmserver.base.sql import Conn
from cmserver.generation import reindex
from cmserver.generation.leases import repository as leases
from cmserver.models.providers.model import FailureKind, ProviderError
from cmserver.observations.model import Observation
from tests.conftest import Cast, bound_to, mint
from tests.generation.tools import Outbox, Scripted
from tests.make import Make


@pytest.fixture
async def observations(make: Make, cast: Cast) -> list[Observation]:
    return [await make.observation(project=cast.alice.project, title=f"orders {n}") for n in range(3)]


async def ask(client: httpx.AsyncClient, cast: Cast, **body: str) -> dict[str, object]:
    response = await client.post("/v1/reindex", headers=cast.alice.headers, json=body)
    assert response.status_code == 202, response.text
    return response.json()["generationJob"]


async def rewritten(outbox: Outbox) -> set[str]:
    """The titles of the observations whose rows are newer than `mark` has found them."""
    rows = await outbox.rows("SELECT o.title FROM observations o JOIN mark m ON m.id = o.id WHERE m.xmin_was <> o.xmin::text")
    return {str(row["title"]) for row in rows}


async def mark(outbox: Outbox) -> None:
    await outbox.rows("CREATE TABLE mark AS SELECT id, xmin::text AS xmin_was FROM observations")


async def a_session(outbox: Outbox) -> UUID:
    session_id = (await outbox.put(1, session="s1"))[0].event.server_session_id
    assert session_id is not None
    await (await outbox.hand(Scripted())).work()
    return session_id


async def last_error(outbox: Outbox) -> object:
    return await outbox.value("SELECT last_error ->> 'reason' FROM observation_generation_jobs ORDER BY seq DESC LIMIT 1")


async def test_a_project_is_reindexed_without_a_provider(
    client: httpx.AsyncClient, outbox: Outbox, cast: Cast, observations: list[Observation]
):
    await mark(outbox)
    job = await ask(client, cast, projectId="https://github.com/acme/orders.git")
    provider = Scripted()

    await (await outbox.hand(provider)).work()

    assert provider.prompts == []
    assert await rewritten(outbox) == {observation.title for observation in observations}
    done = (await client.get(f"/v1/jobs/{job['id']}", headers=cast.alice.headers)).json()["generationJob"]
    assert (done["status"], done["outcome"], done["outcomeReason"]) == ("completed", "skipped", "3 observations reindexed")
    assert await outbox.value("SELECT count(*) FROM generation_lanes") == 0
    (audited,) = await outbox.rows("SELECT resource_id, details FROM audit_log WHERE action = 'reindex.requested'")
    assert audited["resource_id"] == job["id"]
    assert audited["details"] == {"scope": "project", "source": str(cast.alice.project.id)}


async def test_search_finds_again_what_its_columns_had_lost(
    client: httpx.AsyncClient, outbox: Outbox, cast: Cast, observations: list[Observation]
):
    # As after an upgrade that changes how words are taken from a text: the stored columns are of the older kind.
    await outbox.rows(
        "CREATE OR REPLACE FUNCTION tsvector_words(vector tsvector) RETURNS integer LANGUAGE sql IMMUTABLE PARALLEL SAFE"
        " BEGIN ATOMIC SELECT 4242; END"
    )
    assert await outbox.value("SELECT max(content_words) FROM observations") != 4242
    await ask(client, cast, projectId="orders")

    await (await outbox.hand(Scripted())).work()

    assert await outbox.rows("SELECT DISTINCT content_words FROM observations") == [{"content_words": 4242}]
    assert len(observations) == await outbox.value("SELECT count(*) FROM observations WHERE content_search @@ 'order'::tsquery")


async def test_one_session_and_one_observation_are_reindexed_alone(
    client: httpx.AsyncClient, outbox: Outbox, cast: Cast, observations: list[Observation]
):
    session_id = await a_session(outbox)
    await mark(outbox)

    await ask(client, cast, sessionId=str(session_id))
    await ask(client, cast, observation=f"#{observations[1].number}")
    await (await outbox.hand(Scripted())).work()

    assert await rewritten(outbox) == {"saw e1", "orders 1"}
    reasons = await outbox.rows("SELECT outcome_reason FROM observation_generation_jobs WHERE source_type = 'observation_reindex'")
    assert [row["outcome_reason"] for row in reasons] == ["1 observation reindexed"] * 2


async def test_asking_again_while_it_waits_is_answered_with_the_same_job(client: httpx.AsyncClient, outbox: Outbox, cast: Cast):
    first = await ask(client, cast, projectId="orders")
    again = await ask(client, cast, projectId="orders")
    await (await outbox.hand(Scripted())).work()
    later = await ask(client, cast, projectId="orders")

    assert again["id"] == first["id"]
    assert later["id"] != first["id"]
    assert (first["sourceRun"], later["sourceRun"]) == (1, 2)
    assert await outbox.value("SELECT count(*) FROM audit_log WHERE action = 'reindex.requested'") == 2


async def test_the_run_that_somebody_else_has_just_made_is_the_answer(
    client: httpx.AsyncClient, outbox: Outbox, cast: Cast, monkeypatch: pytest.MonkeyPatch
):
    first = await ask(client, cast, projectId="orders")
    known = reindex.queue.last_reindex
    seen: list[int] = []

    async def blind_at_first(*arguments: object) -> object:
        seen.append(1)
        return None if len(seen) == 1 else await known(*arguments)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(reindex.queue, "last_reindex", blind_at_first)

    assert (await ask(client, cast, projectId="orders"))["id"] == first["id"]


async def test_it_goes_on_while_the_provider_is_paused(client: httpx.AsyncClient, outbox: Outbox, cast: Cast):
    await outbox.put(1)

    def reply(_: object) -> object:
        raise ProviderError(FailureKind.AUTH_INVALID, "The key is wrong.")

    hand = await outbox.hand(Scripted(reply))  # pyright: ignore[reportArgumentType]
    await hand.work()
    await ask(client, cast, projectId="orders")

    await hand.work()

    assert await outbox.statuses() == {"completed": 1, "queued": 1}


async def test_a_long_one_is_given_back_in_between_and_goes_on_from_there(
    client: httpx.AsyncClient, outbox: Outbox, cast: Cast, observations: list[Observation], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(reindex, "CHUNK", 1)
    job = await ask(client, cast, projectId="orders")
    monkeypatch.setattr(Settings, "job_seconds", 0.0)
    hand = await outbox.hand(Scripted())

    batches = await hand.work()

    assert batches == len(observations) + 1
    done = (await client.get(f"/v1/jobs/{job['id']}", headers=cast.alice.headers)).json()["generationJob"]
    assert (done["status"], done["outcomeReason"], done["attempts"]) == ("completed", "3 observations reindexed", 1)


async def test_a_batch_that_was_lost_writes_no_further(
    client: httpx.AsyncClient, outbox: Outbox, cast: Cast, observations: list[Observation], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(reindex, "CHUNK", 1)
    await ask(client, cast, projectId="orders")
    await mark(outbox)
    hand = await outbox.hand(Scripted())
    (claim,) = await hand.claim()
    chunk = reindex.reindex_chunk

    async def then_lost(*arguments: object) -> object:
        done = await chunk(*arguments)  # pyright: ignore[reportArgumentType]
        hand.runner._retry = retry_after_the_reaper  # pyright: ignore[reportAttributeAccessIssue]
        return done

    retry = hand.runner._retry

    async def retry_after_the_reaper(act: Callable[[Conn], Awaitable[object]]) -> object:
        await outbox.rows("DELETE FROM procrastinate_workers WHERE id = %s", hand.worker_id)
        async with outbox.db.system() as conn:
            await leases.reap(conn, hard_limit_seconds=300)
        return await retry(act)

    monkeypatch.setattr(reindex, "reindex_chunk", then_lost)
    await hand.runner.run(claim)

    assert await rewritten(outbox) == {observations[0].title}
    assert await outbox.statuses() == {"queued": 1}


async def test_a_cancelled_one_stops(
    client: httpx.AsyncClient, outbox: Outbox, cast: Cast, observations: list[Observation], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(reindex, "CHUNK", 1)
    job = await ask(client, cast, projectId="orders")
    await mark(outbox)
    hand = await outbox.hand(Scripted())
    (claim,) = await hand.claim()
    retry = hand.runner._retry

    async def and_cancels(act: Callable[[Conn], Awaitable[object]]) -> object:
        done = await retry(act)
        if isinstance(done, reindex.ReindexProgress):
            await client.post(f"/v1/jobs/{job['id']}/cancel", headers=cast.alice.headers)
        return done

    hand.runner._retry = and_cancels  # pyright: ignore[reportAttributeAccessIssue]
    await hand.runner.run(claim)

    assert await rewritten(outbox) == {observations[0].title}
    assert await outbox.statuses() == {"cancelled": 1}


async def test_what_is_gone_by_then_fails_the_job(
    client: httpx.AsyncClient, outbox: Outbox, cast: Cast, observations: list[Observation]
):
    await ask(client, cast, observation=str(observations[0].id))
    await outbox.rows("DELETE FROM observations WHERE id = %s", observations[0].id)

    await (await outbox.hand(Scripted())).work()

    assert await outbox.statuses() == {"failed": 1}
    assert await last_error(outbox) == "source_gone"


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        ("{}", "payload_unusable"),
        ('{"scope": "everything"}', "payload_unusable"),
        ('["scope"]', "payload_unusable"),
        ('{"scope": "project", "id": 7}', "payload_unusable"),
        ('{"scope": "session"}', "source_gone"),
        ('{"scope": "project"}', "source_gone"),
    ],
)
async def test_a_row_of_psql_that_makes_no_sense_fails_and_reaches_no_provider(
    outbox: Outbox, cast: Cast, payload: str, reason: str
):
    job_id = uuid4()
    await outbox.rows(
        "INSERT INTO observation_generation_jobs"
        " (id, project_id, team_id, lane, source_type, source_id, job_type, idempotency_key, payload)"
        " VALUES (%s, %s, %s, %s, 'observation_reindex', %s, 'anything', 'by hand', %s)",
        job_id,
        cast.alice.project.id,
        cast.alice.team_id,
        job_id,
        job_id,
        payload,
    )
    async with outbox.db.system() as conn:
        await leases.MAKE_STRAY_LANES_DUE.one(conn)
    provider = Scripted()

    await (await outbox.hand(provider)).work()

    assert provider.prompts == []
    assert await outbox.statuses() == {"failed": 1}
    assert await last_error(outbox) == reason


async def test_a_key_revoked_since_fails_it(client: httpx.AsyncClient, outbox: Outbox, cast: Cast):
    await ask(client, cast, projectId="orders")
    await outbox.rows("UPDATE api_keys SET revoked_at = now()")

    await (await outbox.hand(Scripted())).work()

    assert await last_error(outbox) == "key_revoked"


async def test_nobody_reindexes_what_is_not_his(
    client: httpx.AsyncClient, outbox: Outbox, cast: Cast, db: Db, observations: list[Observation]
):
    session_id = await a_session(outbox)
    await outbox.rows("UPDATE observations SET scope = 'team' WHERE id = %s", observations[1].id)
    elsewhere = (await bound_to(db, cast.alice, "other")).key
    bodies = [
        {"projectId": str(cast.alice.project.id)},
        {"sessionId": str(session_id)},
        {"observation": str(observations[0].id)},
        {"observation": str(observations[1].id)},
    ]

    for key in (cast.charlie.key, elsewhere):
        for body in bodies:
            response = await client.post("/v1/reindex", headers={"X-Api-Key": key}, json=body)
            assert response.status_code == 404, body
    _, reader = await mint(db, cast.alice.team_id, "reader", scopes=["jobs:read"])
    assert (await client.post("/v1/reindex", headers={"X-Api-Key": reader}, json=bodies[0])).status_code == 403
    assert await outbox.value("SELECT count(*) FROM observation_generation_jobs WHERE source_type = 'observation_reindex'") == 0


async def test_a_key_of_a_project_means_its_project_and_others_say_which(client: httpx.AsyncClient, cast: Cast, db: Db):
    _, bound = await mint(db, cast.alice.team_id, "bound", scopes=["*"], project_id=cast.alice.project.id)

    own = await client.post("/v1/reindex", headers={"X-Api-Key": bound}, json={})
    unnamed = await client.post("/v1/reindex", headers=cast.alice.headers, json={})
    both = await client.post("/v1/reindex", headers=cast.alice.headers, json={"projectId": "orders", "observation": "1"})
    unknown = await client.post("/v1/reindex", headers=cast.alice.headers, json={"projekt": "orders"})

    assert own.json()["generationJob"]["sourceId"] == str(cast.alice.project.id)
    assert [answer.status_code for answer in (unnamed, both, unknown)] == [400] * 3
