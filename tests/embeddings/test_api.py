from __future__ import annotations

import httpx

from cmserver.embeddings import repository
from cmserver.embeddings.embedding_worker import embed_pending
from tests.conftest import Cast, bound_to
from tests.embeddings.conftest import Room
from tests.make import Make


async def state(client: httpx.AsyncClient, headers: dict[str, str]) -> dict[str, object]:
    answer = await client.get("/v1/embeddings", headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.json()["embeddings"]


async def test_a_team_sees_which_model_embeds_and_what_of_its_own_waits(
    client: httpx.AsyncClient, room: Room, make: Make, cast: Cast
):
    model = await room.choose()
    room.ask("UPDATE embedding_models SET is_backfilled = true")
    for _ in range(2):
        await make.observation(project=cast.alice.project)

    waiting, others = await state(client, cast.alice.headers), await state(client, cast.charlie.headers)
    await embed_pending(room.db, room.fake, model)
    done = await state(client, cast.alice.headers)

    assert (waiting["state"], waiting["embedder"], waiting["model"], waiting["waiting"]) == ("filling", "ollama", "one", 2)
    assert (others["state"], others["waiting"]) == ("complete", 0)
    assert (done["state"], done["waiting"], done["dimensions"], done["building"]) == ("complete", 0, 16, None)


async def test_a_key_of_one_project_sees_what_of_that_waits(client: httpx.AsyncClient, room: Room, make: Make, cast: Cast):
    await room.choose()
    other = await bound_to(room.db, cast.alice, "github.com/acme/other")
    await make.observation(project=cast.alice.project)

    assert (await state(client, other.headers))["waiting"] == 0
    assert (await state(client, cast.alice.headers))["waiting"] == 1


async def test_the_model_that_is_being_built_is_shown_beside_the_one_in_use(
    client: httpx.AsyncClient, room: Room, make: Make, cast: Cast
):
    await room.choose("one")
    await make.observation(project=cast.alice.project)
    await room.choose("two")

    shown = await state(client, cast.alice.headers)

    assert (shown["model"], shown["building"]) == (
        "one",
        {"embedder": "ollama", "model": "two", "dimensions": None, "waiting": 1, "failing": 0, "pulled_percent": None},
    )


async def test_what_was_there_before_the_model_is_counted_too(client: httpx.AsyncClient, room: Room, make: Make, cast: Cast):
    for _ in range(5):
        await make.observation(project=cast.alice.project)
    model = await room.choose()
    await make.observation(project=cast.alice.project)

    before = await state(client, cast.alice.headers)
    async with room.db.system() as conn:
        await repository.backfill(conn, model.id, 2)
    halfway = await state(client, cast.alice.headers)
    strangers = await state(client, cast.charlie.headers)

    assert (before["waiting"], halfway["waiting"], strangers["waiting"]) == (6, 6, 0)


async def test_what_failed_is_told_with_its_reason_and_can_be_tried_again(
    client: httpx.AsyncClient, room: Room, make: Make, cast: Cast
):
    model = await room.choose()
    await make.observation(project=cast.alice.project)
    room.ask("UPDATE observation_embeddings SET attempts = 5, last_error = 'refused', next_at = 'infinity'")

    told = (await client.get("/v1/embeddings", headers=cast.alice.headers)).json()
    strangers = (await client.post("/v1/embeddings/retry", headers=cast.charlie.headers)).json()
    untouched = [(one.given_up, one.attempts) for one in await room.rows()]
    retried = (await client.post("/v1/embeddings/retry", headers=cast.alice.headers)).json()

    assert told["reasons"] == [{"reason": "refused", "observations": 1, "givenUp": 1}]
    assert told["embeddings"]["failing"] == 1
    assert (strangers, untouched) == ({"retried": 0}, [(True, 5)])
    assert retried == {"retried": 1}
    assert [(one.due, one.attempts) for one in await room.rows()] == [(True, 0)]
    assert await embed_pending(room.db, room.fake, model) == 1
    (trace,) = room.ask("SELECT details FROM audit_log WHERE action = 'embeddings.retried' AND details->>'embeddings' = '1'")
    assert trace["details"] == {"embeddings": 1}


async def test_the_servers_info_says_it_too(client: httpx.AsyncClient, room: Room, make: Make, cast: Cast):
    await room.choose()
    await make.observation(project=cast.alice.project)

    info = (await client.get("/v1/info", headers=cast.alice.headers)).json()

    assert info["embeddings"]["model"] == "one"
    assert info["embeddings"]["waiting"] == 1


async def test_that_the_model_cannot_be_asked_from_here_is_said(client: httpx.AsyncClient, room: Room, make: Make, cast: Cast):
    await room.choose()
    room.ask("UPDATE embedding_models SET provider = 'voyage', model = 'voyage-4'")

    shown = await state(client, cast.alice.headers)

    assert shown["hint"] is not None
    assert shown["model"] == "voyage-4"


async def test_a_model_that_is_being_downloaded_is_shown_with_its_percent(client: httpx.AsyncClient, room: Room, cast: Cast):
    model = await room.choose("one")
    await room.db.in_system(lambda conn: repository.set_pulled_percent(conn, model.id, 42))

    shown = await state(client, cast.alice.headers)

    assert shown["pulled_percent"] == 42
