from __future__ import annotations

import asyncio

import msgspec
import pytest

from cmserver.base.errors import Unavailable
from cmserver.base.settings import Settings
from cmserver.embeddings import model_choice, repository
from cmserver.embeddings.embedding_worker import EmbeddingWorker, embed_pending
from cmserver.embeddings.model import EmbeddingModel
from tests.conftest import Cast
from tests.embeddings.conftest import Room
from tests.embeddings.fake import vector_of
from tests.make import Make
from tests.timeouts import until


async def work(room: Room, name: str) -> EmbeddingWorker:
    """A worker of that setting, until there is nothing more to do."""
    keeper = EmbeddingWorker(room.db, room.chosen(name), room.makers)
    while await keeper.round():
        pass
    return keeper


def states(models: list[EmbeddingModel]) -> list[tuple[str, str]]:
    return [(one.model, one.state) for one in models]


async def test_the_first_model_is_used_at_once_and_older_observations_are_embedded(room: Room, make: Make, cast: Cast):
    old = [await make.observation(project=one.project) for one in (cast.alice, cast.alice, cast.charlie)]

    model = await room.choose("one")
    assert (model.state, await room.rows()) == ("current", [])
    await work(room, "one")

    assert {row.observation_id for row in await room.rows() if row.is_embedded} == {one.id for one in old}
    assert [one.is_backfilled for one in await room.models()] == [True]


async def test_older_observations_are_let_wait_in_batches_the_newest_first(room: Room, make: Make, cast: Cast):
    old = [await make.observation(project=cast.alice.project) for _ in range(5)]
    model = await room.choose()

    async with room.db.system() as conn:
        more = [await repository.backfill(conn, model.id, 2)]
    first = {row.observation_id for row in await room.rows()}
    async with room.db.system() as conn:
        more += [await repository.backfill(conn, model.id, 2) for _ in range(3)]

    assert first == {old[4].id, old[3].id}
    assert more == [True, True, False, False]
    assert len(await room.rows()) == 5


async def test_whoever_writes_an_observation_does_not_wait_for_older_ones_to_be_let_wait(room: Room, make: Make, cast: Cast):
    await make.observation(project=cast.alice.project)
    model = await room.choose()
    refer = "SELECT id FROM embedding_models FOR KEY SHARE NOWAIT"  # as the reference of a new row does

    async with room.db.system() as conn:
        await repository.backfill(conn, model.id, 2)
        written = room.ask(refer)
    room.ask("UPDATE embedding_models SET state = 'retired'")
    async with room.db.system() as conn:
        await repository.clear(conn, model.id, 2)
        cleared = room.ask(refer)

    assert written == cleared == [{"id": model.id}]


async def test_what_is_deleted_while_older_ones_are_let_wait_is_left_out(room: Room, make: Make, cast: Cast):
    old = [await make.observation(project=cast.alice.project) for _ in range(4)]
    model = await room.choose()

    async with room.db.system() as deleting:
        await deleting.execute("DELETE FROM observations WHERE id = %s", [old[2].id])
        waiting = asyncio.create_task(room.db.in_system(lambda conn: repository.backfill(conn, model.id, 2)))
        await until("it waits for a lock", lambda: room.ask("SELECT 1 FROM pg_locks WHERE NOT granted"), waiting)
    more = await waiting

    assert more
    assert {row.observation_id for row in await room.rows()} == {old[3].id, old[1].id}


async def test_another_model_is_built_side_by_side_and_takes_over_when_it_has_everything(room: Room, make: Make, cast: Cast):
    old = await make.observation(project=cast.alice.project, title="Old words")
    await work(room, "one")
    room.makers.named("two").gate = gate = asyncio.Event()
    keeper = EmbeddingWorker(room.db, room.chosen("two"), room.makers)
    working = asyncio.create_task(keeper.round())
    await room.makers.named("two").asked.wait()

    # Search uses the old one, for what is old and what is new.
    new = await make.observation(project=cast.alice.project, title="New words")
    one, two = await room.models()
    await embed_pending(room.db, room.makers.named("one"), one)
    assert states([one, two]) == [("one", "current"), ("two", "building")]
    assert room.vector(new.id, one) == pytest.approx(vector_of("New words", "one"), abs=0.001)

    gate.set()
    await working
    assert not keeper.switched.is_set(), "the new observation waits for the new model, too"
    while await keeper.round():
        pass

    assert keeper.switched.is_set()
    assert states(await room.models()) == [("two", "current")]
    assert room.vector(old.id, two) == pytest.approx(vector_of("Old words", "two"), abs=0.001)
    assert [(row.model, row.is_embedded) for row in await room.rows()] == [("two", True), ("two", True)]
    assert room.ask("SELECT model FROM embedding_models") == [{"model": "two"}], "the old one is gone with its vectors"
    assert room.makers.named("one").closed


async def test_what_no_model_will_take_does_not_keep_the_new_one_from_being_used(room: Room, make: Make, cast: Cast):
    await make.observation(project=cast.alice.project, title="a poisoned text")
    await work(room, "one")
    room.makers.named("two").refuses = {"poisoned"}

    await work(room, "two")
    before = states(await room.models())
    for _ in range(5):
        room.make_due()
        await work(room, "two")

    assert before == [("one", "current"), ("two", "building")]
    assert states(await room.models()) == [("two", "current")]


async def test_changing_back_while_the_other_is_built_keeps_what_there_was(room: Room, make: Make, cast: Cast):
    one = await make.observation(project=cast.alice.project)
    await work(room, "one")
    (model,) = await room.models()
    stored = room.vector(one.id, model)

    await room.choose("two")
    await room.choose("one")
    await work(room, "one")

    assert await room.models() == [msgspec.structs.replace(model)]
    assert room.vector(one.id, model) == stored
    assert len(await room.rows()) == 1


async def test_a_third_model_takes_the_place_of_the_one_that_is_built(room: Room, make: Make, cast: Cast):
    await make.observation(project=cast.alice.project)
    await work(room, "one")

    await room.choose("two")
    await room.choose("three")
    before = states(await room.models())
    await work(room, "three")

    assert before == [("one", "current"), ("three", "building")]
    assert states(await room.models()) == [("three", "current")]
    assert [row.model for row in await room.rows()] == ["three"]


async def test_there_and_back_again(room: Room, make: Make, cast: Cast):
    await make.observation(project=cast.alice.project)

    for name in ("one", "two", "one"):
        await work(room, name)

    assert states(await room.models()) == [("one", "current")]
    assert [(row.model, row.is_embedded) for row in await room.rows()] == [("one", True)]


async def test_none_takes_all_embeddings_away_and_nothing_waits(room: Room, make: Make, cast: Cast):
    await make.observation(project=cast.alice.project)
    await work(room, "one")
    await room.choose("two")
    keeper = EmbeddingWorker(room.db, msgspec.structs.replace(room.settings, embedder="none"), room.makers)

    while await keeper.round():
        pass
    await make.observation(project=cast.alice.project)

    assert room.ask("SELECT model FROM embedding_models") == []
    assert await room.rows() == []


@pytest.mark.parametrize(
    "chosen",
    [
        {"embedder": "auto"},
        {"embedder": "voyage", "embedder_key": None},
        {"embedder": "local", "embedder_model": "no such model"},
    ],
    ids=["auto finds none", "a key is missing", "a wrong model"],
)
async def test_what_cannot_be_asked_from_here_changes_nothing(
    room: Room, make: Make, cast: Cast, monkeypatch: pytest.MonkeyPatch, chosen: dict[str, str | None]
):
    await room.choose("one")
    monkeypatch.setattr("cmserver.models.providers.embedding.registry.is_installed", lambda: False)

    await model_choice.apply_choice(room.db, msgspec.structs.replace(room.settings, **chosen))

    assert states(await room.models()) == [("one", "current")]


@pytest.mark.parametrize(
    ("change", "is_another"),
    [
        ({}, False),
        ({"embedder_model": "two"}, True),
        ({"embedder_base_url": "http://elsewhere:11434"}, True),
        ({"embedder": "openai", "embedder_base_url": "http://here:1"}, True),
    ],
    ids=["nothing", "model", "address", "embedder"],
)
async def test_what_makes_it_another_model(room: Room, make: Make, cast: Cast, change: dict[str, object], is_another: bool):
    await make.observation(project=cast.alice.project)
    await work(room, "one")

    await model_choice.apply_choice(room.db, msgspec.structs.replace(room.chosen("one"), **change))

    assert (len(await room.models()) == 2) is is_another


async def test_a_password_in_the_address_is_not_remembered_and_is_used(room: Room):
    settings = msgspec.structs.replace(room.chosen("one"), embedder_base_url="http://me:secret@models:11434")

    await model_choice.apply_choice(room.db, settings)
    await model_choice.apply_choice(room.db, settings)

    (model,) = await room.models()
    assert model.base_url == "http://models:11434"
    assert model_choice.settings_of_model(settings, model).base_url == "http://me:secret@models:11434"


async def test_a_model_that_is_not_the_chosen_one_is_asked_as_it_is_remembered(room: Room):
    model = await room.choose("one")
    other = Settings(data_dir=room.settings.data_dir, embedder="voyage", embedder_key="pa-1", provider_timeout_seconds=7)

    given = model_choice.settings_of_model(other, model)

    assert (given.provider, given.model, given.base_url, given.api_key, given.timeout_seconds) == ("ollama", "one", None, None, 7)


async def test_no_observation_slips_through_while_the_models_change(room: Room, make: Make, cast: Cast):
    """Who wrote one before, and has not committed, is waited for: else it had no row of the new model."""
    await work(room, "one")
    one = await make.observation(project=cast.alice.project)

    async with room.db.system() as conn:
        await conn.execute("UPDATE observations SET number = number + 1")
        await conn.execute(
            "INSERT INTO observations (id, number, project_id, team_id, origin, content)"
            " SELECT gen_random_uuid(), 77, project_id, team_id, 'api', 'late' FROM observations WHERE id = %s",
            [one.id],
        )
        with pytest.raises(Unavailable):
            await model_choice.apply_choice(room.db, room.chosen("two"))
        assert states(await room.models()) == [("one", "current")]
    await work(room, "two")

    assert states(await room.models()) == [("two", "current")]
    assert [row.is_embedded for row in await room.rows()] == [True, True]


async def test_of_several_workers_one_changes_the_model(room: Room, make: Make, cast: Cast):
    await asyncio.gather(*(model_choice.apply_choice(room.db, room.chosen("one")) for _ in range(3)))
    await make.observation(project=cast.alice.project)
    await asyncio.gather(*(model_choice.apply_choice(room.db, room.chosen("two")) for _ in range(3)))

    assert room.ask("SELECT model, state FROM embedding_models ORDER BY id") == [
        {"model": "one", "state": "current"},
        {"model": "two", "state": "building"},
    ]


async def test_other_words_before_the_texts_make_it_another_model(room: Room):
    first = await room.choose("nomic-embed-text")
    room.ask("UPDATE embedding_models SET document_prefix = 'before: '")

    await room.choose("nomic-embed-text")
    current, building = await room.models()

    assert (current.id, current.state, building.state) == (first.id, "current", "building")
    assert (first.document_prefix, building.document_prefix) == ("search_document: ", "search_document: ")
    used = model_choice.settings_of_model(room.chosen("nomic-embed-text"), current)
    assert (used.model, used.document_prefix) == ("nomic-embed-text", "before: ")


async def test_the_same_words_before_the_texts_make_it_the_same_model(room: Room):
    first = await room.choose("nomic-embed-text")

    again = await room.choose("nomic-embed-text")

    assert again.id == first.id
