"""A query's meaning is a bonus: whatever the embedder does, search answers."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import msgspec
import psycopg
import pytest

from cmserver.base.db import Db
from cmserver.base.errors import Invalid
from cmserver.base.http.frame import AsgiFrame
from cmserver.base.settings import Settings
from cmserver.base.text import QUERY_MOST
from cmserver.embeddings import model_choice, query_embedder
from cmserver.embeddings.query_embedder import QueryEmbedder
from cmserver.models.providers.embedding.model import Embedder, EmbedderSettings
from cmserver.models.providers.model import FailureKind, ProviderError
from cmserver.recall.search.searcher import Searcher
from tests.conftest import Cast
from tests.embeddings.fake import DIMENSIONS, Fake, Makers, vector_of
from tests.make import Make
from tests.recall.search.tools import Vectors, post_search

DOWN = ProviderError(FailureKind.TRANSIENT, "No connection", out_of_reach=True)


class Clock:
    """What `time` is for the module."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(query_embedder, "time", clock)
    return clock


@pytest.fixture
def makers() -> Makers:
    return Makers()


@pytest.fixture
def use(database: str, request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Lets the model of that name be the current one."""
    request.getfixturevalue("vectors")

    def use(name: str) -> None:
        with psycopg.connect(database, autocommit=True) as conn:
            conn.execute("UPDATE embedding_models SET state = 'retired'")
            conn.execute(
                "INSERT INTO embedding_models (provider, model, dimensions, state, is_backfilled)"
                " VALUES ('ollama', %s, %s, 'current', true)",
                [name, DIMENSIONS],
            )

    return use


@pytest.fixture
def embedder(settings: Settings, db: Db, makers: Makers, clock: Clock) -> QueryEmbedder:
    return QueryEmbedder(settings, db, makers)


async def test_without_a_model_there_is_no_meaning(embedder: QueryEmbedder, makers: Makers):
    assert await embedder.embed("anything") is None
    assert makers.made == {}


async def test_a_query_is_embedded_as_a_query_by_the_model_in_use(
    embedder: QueryEmbedder, makers: Makers, use: Callable[[str], None]
):
    use("one")

    vector = await embedder.embed("feed the wombat")

    assert vector is not None
    assert vector.dimensions == DIMENSIONS
    assert [float(number) for number in vector.vector.strip("[]").split(",")] == vector_of("feed the wombat", "one")
    assert makers.named("one").texts == ["feed the wombat"]


async def test_of_a_long_query_the_beginning_is_embedded_and_of_an_empty_one_nothing(
    embedder: QueryEmbedder, makers: Makers, use: Callable[[str], None]
):
    use("one")

    assert await embedder.embed(" \n ") is None
    await embedder.embed("x" * 9_999)

    assert makers.named("one").texts == ["x" * QUERY_MOST]


async def test_a_dead_embedder_is_left_alone_for_a_while_and_asked_again(
    embedder: QueryEmbedder, makers: Makers, use: Callable[[str], None], clock: Clock
):
    use("one")
    fake = makers.named("one")
    fake.error = DOWN

    assert await embedder.embed("x") is None
    assert await embedder.embed("x") is None
    assert fake.calls == 1

    fake.error = None
    clock.now += query_embedder.PAUSE_SECONDS
    assert await embedder.embed("x") is not None
    assert await embedder.embed("x") is not None


async def test_a_query_that_is_refused_leaves_the_others_their_meaning(
    embedder: QueryEmbedder, makers: Makers, use: Callable[[str], None], clock: Clock
):
    use("one")
    makers.named("one").refuses = {"secret"}

    assert await embedder.embed("the secret") is None
    assert await embedder.embed("x") is not None


async def test_nobody_waits_for_a_slow_embedder(
    embedder: QueryEmbedder, makers: Makers, use: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
):
    use("one")
    monkeypatch.setattr(query_embedder, "ANSWER_SECONDS", 0.01)
    fake = makers.named("one")
    fake.gate = query_embedder.asyncio.Event()  # which nobody opens

    assert await embedder.embed("x") is None
    assert await embedder.embed("x") is None
    assert fake.calls == 1


async def test_a_vector_of_another_length_or_none_at_all_is_of_no_use(
    settings: Settings, db: Db, use: Callable[[str], None], clock: Clock
):
    use("one")

    class Short(Fake):
        async def embed(self, texts: object, purpose: object) -> list[list[float]]:
            return [[1.0, 0.0]]

    class Broken(Fake):
        async def embed(self, texts: object, purpose: object) -> list[list[float]]:
            return []

    for fake in (Short(), Broken()):
        assert await QueryEmbedder(settings, db, lambda _, fake=fake: fake).embed("x") is None


async def test_another_model_is_noticed_and_the_old_embedder_closed(
    embedder: QueryEmbedder, makers: Makers, use: Callable[[str], None], clock: Clock
):
    use("one")
    first = await embedder.embed("x")
    use("two")
    soon = await embedder.embed("x")
    clock.now += query_embedder.REFRESH_SECONDS
    later = await embedder.embed("x")

    assert first is not None
    assert soon is not None
    assert later is not None
    assert first.model_id == soon.model_id != later.model_id
    assert makers.named("one").closed
    assert not makers.named("two").closed


async def test_an_embedder_that_cannot_be_made_here_is_done_without(
    settings: Settings, db: Db, use: Callable[[str], None], clock: Clock
):
    use("one")
    made: list[EmbedderSettings] = []

    def make(embedder_settings: EmbedderSettings) -> Embedder:
        made.append(embedder_settings)
        if len(made) == 1:
            raise Invalid("There is no key.")
        return Fake()

    embedder = QueryEmbedder(settings, db, make)

    assert await embedder.embed("x") is None
    clock.now += query_embedder.REFRESH_SECONDS
    assert await embedder.embed("x") is not None


async def test_search_answers_by_words_while_the_embedder_is_dead(
    client: httpx.AsyncClient,
    app: AsgiFrame,
    cast: Cast,
    make: Make,
    embedder: QueryEmbedder,
    makers: Makers,
    use: Callable[[str], None],
    clock: Clock,
):
    use("one")
    app.dependencies.get(Searcher).embedder = embedder
    await make.observation(project=cast.alice.project, title="The wombat is fed")
    fake = makers.named("one")

    alive = await post_search(client, cast.alice, "wombat")
    fake.error = DOWN
    dead = await post_search(client, cast.alice, "wombat")
    paused = await post_search(client, cast.alice, "wombat")
    fake.error = None
    clock.now += query_embedder.PAUSE_SECONDS
    again = await post_search(client, cast.alice, "wombat")

    assert [page["byMeaning"] for page in (alive, dead, paused, again)] == [True, False, False, True]
    assert all([hit["number"] for hit in page["observations"]] == [1] for page in (alive, dead, paused, again))


async def test_a_model_of_the_settings_is_asked_as_they_say(settings: Settings, db: Db, vectors: Vectors, clock: Clock):
    wanted = msgspec.structs.replace(settings, embedder="ollama", embedder_model="ours")
    with psycopg.connect(db.url, autocommit=True) as conn:
        conn.execute("UPDATE embedding_models SET state = 'retired'")
    await model_choice.apply_choice(db, wanted)
    with psycopg.connect(db.url, autocommit=True) as conn:
        conn.execute("UPDATE embedding_models SET dimensions = %s WHERE state = 'current'", [DIMENSIONS])
    made_from: list[EmbedderSettings] = []

    def make(settings: EmbedderSettings) -> Embedder:
        made_from.append(settings)
        return Fake("ours")

    assert await QueryEmbedder(wanted, db, make).embed("x") is not None
    assert [(settings.provider, settings.model) for settings in made_from] == [("ollama", "ours")]
