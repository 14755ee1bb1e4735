from __future__ import annotations

import asyncio

import pytest

from cmserver.embeddings import repository
from cmserver.embeddings.embedding_worker import GIVEN_UP_AFTER, embed_pending
from cmserver.embeddings.model import document_text
from cmserver.models.providers.model import FailureKind, ProviderError
from cmserver.observations import repository as observations
from tests.conftest import Cast
from tests.embeddings.conftest import Room
from tests.embeddings.fake import Fake, vector_of
from tests.make import Make
from tests.timeouts import until

DOWN = ProviderError(FailureKind.TRANSIENT, "No connection", out_of_reach=True)


async def test_whoever_stores_an_observation_lets_it_wait_for_its_vector(room: Room, make: Make, cast: Cast):
    await room.choose()

    first = await make.observation(project=cast.alice.project)
    second = await make.observation(project=cast.charlie.project, kind="summary", summary={"request": "a"}, title=None, content="x")

    rows = await room.rows()
    assert {one.observation_id for one in rows} == {first.id, second.id}
    assert all(not one.is_embedded and one.due for one in rows)


async def test_without_a_wanted_model_nothing_waits(room: Room, make: Make, cast: Cast):
    await make.observation(project=cast.alice.project)

    assert await room.rows() == []


async def test_what_waits_is_embedded_in_batches_of_what_one_call_takes(room: Room, make: Make, cast: Cast):
    model = await room.choose()
    made = [await make.observation(project=cast.alice.project, title=f"Title {n}", facts=["so it is"]) for n in range(6)]

    counts = [await embed_pending(room.db, room.fake, model) for _ in range(3)]

    assert counts == [4, 2, 0]
    assert all(one.is_embedded and one.last_error is None for one in await room.rows())
    assert room.vector(made[0].id, model) == pytest.approx(vector_of("Title 0\nso it is"), abs=0.001)
    assert sorted(room.fake.texts) == sorted(document_text(one) for one in made)


async def test_the_first_answer_tells_how_long_the_vectors_are(room: Room, make: Make, cast: Cast):
    model = await room.choose()
    await make.observation(project=cast.alice.project)

    await embed_pending(room.db, room.fake, model)

    assert model.dimensions is None
    assert [one.dimensions for one in await room.models()] == [16]


async def test_vectors_of_another_length_are_not_stored_beside_the_others(room: Room, make: Make, cast: Cast):
    await room.choose()
    room.ask("UPDATE embedding_models SET dimensions = 99")
    (model,) = await room.models()
    await make.observation(project=cast.alice.project)

    with pytest.raises(ProviderError, match="16 dimensions"):
        await embed_pending(room.db, room.fake, model)

    assert [(one.is_embedded, one.last_error) for one in await room.rows()] == [(False, "setup_required")]


async def test_numbers_that_are_next_to_nothing_are_stored_as_nothing(room: Room, make: Make, cast: Cast):
    model = await room.choose()
    one = await make.observation(project=cast.alice.project)

    class Faint(Fake):
        async def embed(self, texts: object, purpose: object) -> list[list[float]]:
            return [[1.0, 1e-46, -5e-324]]

    await embed_pending(room.db, Faint(), model)

    assert room.vector(one.id, model) == [1, 0, 0]


async def test_a_dead_embedder_leaves_the_reason_and_a_later_time(room: Room, make: Make, cast: Cast):
    model = await room.choose()
    await make.observation(project=cast.alice.project)
    room.fake.error = DOWN

    for _ in range(7):
        room.make_due()
        with pytest.raises(ProviderError):
            await embed_pending(room.db, room.fake, model)

    (row,) = await room.rows()
    assert (row.attempts, row.last_error, row.due, row.given_up) == (7, "transient", False, False)


@pytest.mark.parametrize(("attempts", "least", "most"), [(0, 1, 2), (3, 8, 16), (9, 300, 600), (30, 300, 600)])
async def test_the_pause_doubles_up_to_ten_minutes(room: Room, make: Make, cast: Cast, attempts: int, least: int, most: int):
    model = await room.choose()
    await make.observation(project=cast.alice.project)
    room.ask("UPDATE observation_embeddings SET attempts = %s", [attempts])
    room.fake.error = DOWN

    with pytest.raises(ProviderError):
        await embed_pending(room.db, room.fake, model)

    (row,) = room.ask("SELECT extract(epoch FROM next_at - now()) AS seconds FROM observation_embeddings")
    assert least - 5 < float(str(row["seconds"])) <= most


async def test_a_text_that_is_refused_by_itself_does_not_block_its_neighbours(room: Room, make: Make, cast: Cast):
    model = await room.choose()
    await make.observation(project=cast.alice.project, title="a poisoned text")
    for n in range(3):
        await make.observation(project=cast.alice.project, title=f"Title {n}")
    room.fake.refuses = {"poisoned"}

    count = await embed_pending(room.db, room.fake, model)

    assert count == 4
    rows = await room.rows()
    assert [one.is_embedded for one in rows] == [False, True, True, True]
    assert (rows[0].last_error, rows[0].attempts, rows[0].due) == ("refused", 1, False)


async def test_a_text_that_is_refused_again_and_again_is_given_up(room: Room, make: Make, cast: Cast):
    model = await room.choose()
    await make.observation(project=cast.alice.project, title="a poisoned text")
    room.fake.refuses = {"poisoned"}

    for _ in range(GIVEN_UP_AFTER):
        room.make_due()
        await embed_pending(room.db, room.fake, model)

    assert [(one.given_up, one.attempts) for one in await room.rows()] == [(True, GIVEN_UP_AFTER)]
    assert await embed_pending(room.db, room.fake, model) == 0


async def test_when_not_one_of_several_is_taken_it_is_not_the_texts(room: Room, make: Make, cast: Cast):
    model = await room.choose()
    for _ in range(3):
        await make.observation(project=cast.alice.project, title="a poisoned text")
    room.fake.refuses = {"poisoned"}

    for _ in range(GIVEN_UP_AFTER + 1):
        room.make_due()
        with pytest.raises(ProviderError):
            await embed_pending(room.db, room.fake, model)

    assert all(not one.given_up for one in await room.rows())


async def test_a_text_that_changes_while_it_is_embedded_is_embedded_again(room: Room, make: Make, cast: Cast):
    model = await room.choose()
    one = await make.observation(project=cast.alice.project, title="Old words")
    room.fake.gate = asyncio.Event()
    embedding = asyncio.create_task(embed_pending(room.db, room.fake, model))
    await room.fake.asked.wait()

    room.ask("UPDATE observations SET title = 'New words' WHERE id = %s", [one.id])
    room.fake.gate.set()
    await embedding

    assert [(row.is_embedded, row.due) for row in await room.rows()] == [(False, True)]
    await embed_pending(room.db, room.fake, model)
    assert room.vector(one.id, model) == pytest.approx(vector_of("New words"), abs=0.001)


async def test_a_text_that_is_being_changed_when_it_is_claimed_is_embedded_again(room: Room, make: Make, cast: Cast):
    """Its row is claimed with the old text, before the trigger has come to it."""
    model = await room.choose()
    one = await make.observation(project=cast.alice.project, title="Old words")
    room.ask(
        "CREATE FUNCTION slowly() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_advisory_xact_lock(42); RETURN NULL; END'"
    )
    room.ask("CREATE TRIGGER a_slow_one AFTER UPDATE ON observations FOR EACH ROW EXECUTE FUNCTION slowly()")

    async with room.db.system() as holding:
        await holding.execute("SELECT pg_advisory_xact_lock(42)")
        changing = asyncio.create_task(asyncio.to_thread(room.ask, "UPDATE observations SET title = 'New words'"))
        waits = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        await until("the change waits", lambda: room.ask(waits), changing)
        await embed_pending(room.db, room.fake, model)
    await changing

    assert room.fake.texts == ["Old words"]
    assert [(row.is_embedded, row.due) for row in await room.rows()] == [(False, True)]
    await embed_pending(room.db, room.fake, model)
    assert room.vector(one.id, model) == pytest.approx(vector_of("New words"), abs=0.001)


async def test_correcting_the_texts_makes_them_wait_again_and_correcting_the_type_does_not(room: Room, make: Make, cast: Cast):
    model = await room.choose()
    one = await make.observation(project=cast.alice.project)
    await embed_pending(room.db, room.fake, model)

    room.ask("UPDATE observations SET type = 'bugfix', metadata = '{\"a\": 1}', access_count = 9, updated_at = now()")
    after_type = await room.rows()
    async with room.db.tenant(one.team_id) as conn:
        await conn.execute("UPDATE observations SET concepts = '{retry}' WHERE id = %s", [one.id])
    after_texts = await room.rows()

    assert [row.is_embedded for row in after_type] == [True]
    assert [(row.is_embedded, row.due, row.attempts) for row in after_texts] == [(False, True, 0)]


async def test_deleting_an_observation_takes_its_vector_along(room: Room, make: Make, cast: Cast):
    model = await room.choose()
    one = await make.observation(project=cast.alice.project)
    await embed_pending(room.db, room.fake, model)

    async with room.db.tenant(one.team_id) as conn:
        await observations.delete(conn, one.team_id, one.id)

    assert await room.rows() == []


async def test_an_observation_that_is_deleted_while_it_is_embedded_stays_away(room: Room, make: Make, cast: Cast):
    model = await room.choose()
    one = await make.observation(project=cast.alice.project)
    room.fake.gate = asyncio.Event()
    embedding = asyncio.create_task(embed_pending(room.db, room.fake, model))
    await room.fake.asked.wait()

    room.ask("DELETE FROM observations WHERE id = %s", [one.id])
    room.fake.gate.set()

    assert await embedding == 1
    assert await room.rows() == []


async def test_what_a_dead_worker_had_in_hand_is_done_again_after_its_lease_and_stored_once(room: Room, make: Make, cast: Cast):
    model = await room.choose()
    one = await make.observation(project=cast.alice.project)
    room.fake.gate = asyncio.Event()
    slow = asyncio.create_task(embed_pending(room.db, room.fake, model, lease_seconds=0))
    await room.fake.asked.wait()
    room.fake.gate, gate = None, room.fake.gate

    again = await embed_pending(room.db, room.fake, model)
    stored = room.ask("SELECT embedded_at, xmin::text FROM observation_embeddings")
    gate.set()
    await slow

    assert again == 1
    assert room.ask("SELECT embedded_at, xmin::text FROM observation_embeddings") == stored
    assert room.vector(one.id, model) == pytest.approx(vector_of(document_text(one)), abs=0.001)


async def test_nobody_takes_what_another_worker_has_in_hand(room: Room, make: Make, cast: Cast):
    model = await room.choose()
    for _ in range(6):
        await make.observation(project=cast.alice.project)
    room.fake.gate = asyncio.Event()
    first = asyncio.create_task(embed_pending(room.db, room.fake, model))
    await room.fake.asked.wait()
    room.fake.gate, gate = None, room.fake.gate

    second = await embed_pending(room.db, room.fake, model)
    third = await embed_pending(room.db, room.fake, model)
    gate.set()

    assert (await first, second, third) == (4, 2, 0)
    assert len(room.fake.texts) == 6


async def test_a_worker_that_is_told_to_stop_gives_back_what_it_has_in_hand(room: Room, make: Make, cast: Cast):
    model = await room.choose()
    await make.observation(project=cast.alice.project)
    room.fake.gate = asyncio.Event()
    embedding = asyncio.create_task(embed_pending(room.db, room.fake, model))
    await room.fake.asked.wait()

    embedding.cancel()
    with pytest.raises(asyncio.CancelledError):
        await embedding

    assert [(row.due, row.attempts) for row in await room.rows()] == [(True, 0)]


async def test_what_is_embedded_is_the_texts_or_else_the_content(make: Make, cast: Cast):
    project = cast.alice.project
    titled = await make.observation(
        project=project, title="T", subtitle="S", narrative="N", facts=["F1", "F2"], concepts=["c1", "c2"], content="else"
    )
    untitled = await make.observation(project=project, title=None, facts=["F1"], content="Only this")
    summary = await make.observation(project=project, title="T", summary={"request": "R"}, kind="summary", content="R: this")
    long = await make.observation(project=project, title="T", narrative="word " * 10_000)

    assert document_text(titled) == "T\nS\nN\nF1\nF2\nc1, c2"
    assert document_text(untitled) == "Only this"
    assert document_text(summary) == "R: this"
    assert len(document_text(long)) == 16_000


async def test_a_turn_waits_for_its_vector_from_its_end_on_and_anew_when_more_is_said(room: Room, make: Make, cast: Cast):
    model = await room.choose()
    turn = await make.turn(project=cast.alice.project, prompt="Why is it slow?")
    beside = await make.observation(project=cast.alice.project, title="Beside")
    at_the_prompt = await embed_pending(room.db, room.fake, model)

    room.ask("UPDATE turns SET reply = 'A cold cache', ended_at = now()")
    at_the_end = await embed_pending(room.db, room.fake, model)
    room.ask("UPDATE turns SET files = '{a.py}', ended_at = now()")
    unchanged = await embed_pending(room.db, room.fake, model)
    room.ask("UPDATE turns SET reply = 'A cold cache, and no index'")
    (outdated,) = room.ask(
        "SELECT embedding IS NOT NULL AND is_outdated AS is_used FROM observation_embeddings WHERE turn_id IS NOT NULL"
    )
    changed = await embed_pending(room.db, room.fake, model)

    assert (at_the_prompt, at_the_end, unchanged, changed) == (1, 1, 0, 1)
    assert room.fake.texts[1:] == ["Why is it slow?\n\nA cold cache", "Why is it slow?\n\nA cold cache, and no index"]
    assert outdated["is_used"]
    assert [row.observation_id for row in await room.rows()] == [beside.id]
    room.ask("DELETE FROM turns WHERE id = %s", [turn.id])
    assert room.ask("SELECT 1 FROM observation_embeddings WHERE turn_id IS NOT NULL") == []


async def test_a_turn_that_is_refused_is_given_up_beside_what_is_embedded(room: Room, make: Make, cast: Cast):
    model = await room.choose()
    await make.turn(project=cast.alice.project, prompt="a poisoned prompt", reply="No.")
    await make.observation(project=cast.alice.project)
    room.fake.refuses = {"poisoned"}

    for _ in range(GIVEN_UP_AFTER):
        room.make_due()
        await embed_pending(room.db, room.fake, model)

    state = "SELECT turn_id IS NOT NULL AS is_turn, embedding IS NOT NULL AS done, next_at = 'infinity' AS given_up, last_error"
    assert room.ask(f"{state} FROM observation_embeddings ORDER BY 1") == [
        {"is_turn": False, "done": True, "given_up": False, "last_error": None},
        {"is_turn": True, "done": False, "given_up": True, "last_error": "refused"},
    ]


async def test_a_new_model_embeds_old_turns_and_a_retired_one_leaves_none(room: Room, make: Make, cast: Cast):
    for n in range(3):
        await make.turn(project=cast.alice.project, reply=f"Answer {n}")
        await make.observation(project=cast.alice.project)
    await make.turn(project=cast.alice.project, prompt="Open")
    model = await room.choose()

    async with room.db.system() as conn:
        while await repository.backfill(conn, model.id, 2):
            pass
        waiting = (await repository.waiting(conn, cast.alice.team_id, None))[model.id].waiting
    while await embed_pending(room.db, room.fake, model):
        pass
    count = "SELECT count(*) AS rows FROM observation_embeddings"
    embedded = room.ask(f"{count} WHERE embedding IS NOT NULL")
    async with room.db.system() as conn:
        await repository.retire(conn, model.id)
        while await repository.clear(conn, model.id, 2):
            pass

    assert (waiting, embedded) == (6, [{"rows": 6}])
    assert room.ask(count) == [{"rows": 0}]
