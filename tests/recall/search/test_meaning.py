"""A query's meaning is a bonus: whatever the embedder does, search answers."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import msgspec
import psycopg
import pytest

from cmserver.base.db import Db
from cmserver.base.errors import Invalid
from cmserver.base.http.frame import Frame
from cmserver.base.settings import Settings
from cmserver.observations.embedding import choose
from cmserver.providers.embedding.model import Embedder, EmbedderGiven
from cmserver.providers.model import FailureKind, ProviderError
from cmserver.recall.search import meaning
from cmserver.recall.search.meaning import Meaning
from tests.conftest import Cast
from tests.make import Make
from tests.observations.embedding.fake import DIMENSIONS, Fake, Makers, vector_of
from tests.recall.search.tools import Vectors, answered

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
    monkeypatch.setattr(meaning, "time", clock)
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
def asker(settings: Settings, db: Db, makers: Makers, clock: Clock) -> Meaning:
    return Meaning(settings, db, makers)


async def test_without_a_model_there_is_no_meaning(asker: Meaning, makers: Makers):
    assert await asker.of("anything") is None
    assert makers.made == {}


async def test_a_query_is_embedded_as_a_query_by_the_model_in_use(asker: Meaning, makers: Makers, use: Callable[[str], None]):
    use("one")

    sought = await asker.of("feed the wombat")

    assert sought is not None
    assert sought.dimensions == DIMENSIONS
    assert [float(number) for number in sought.vector.strip("[]").split(",")] == vector_of("feed the wombat", "one")
    assert makers.named("one").texts == ["feed the wombat"]


async def test_of_a_long_query_the_beginning_is_embedded_and_of_an_empty_one_nothing(
    asker: Meaning, makers: Makers, use: Callable[[str], None]
):
    use("one")

    assert await asker.of(" \n ") is None
    await asker.of("x" * 9_999)

    assert makers.named("one").texts == ["x" * meaning.QUERY_MOST]


async def test_a_dead_embedder_is_left_alone_for_a_while_and_asked_again(
    asker: Meaning, makers: Makers, use: Callable[[str], None], clock: Clock
):
    use("one")
    fake = makers.named("one")
    fake.error = DOWN

    assert await asker.of("x") is None
    assert await asker.of("x") is None
    assert fake.calls == 1

    fake.error = None
    clock.now += meaning.PAUSE_SECONDS
    assert await asker.of("x") is not None
    assert await asker.of("x") is not None


async def test_a_query_that_is_refused_leaves_the_others_their_meaning(
    asker: Meaning, makers: Makers, use: Callable[[str], None], clock: Clock
):
    use("one")
    makers.named("one").refuses = {"secret"}

    assert await asker.of("the secret") is None
    assert await asker.of("x") is not None


async def test_nobody_waits_for_a_slow_embedder(
    asker: Meaning, makers: Makers, use: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
):
    use("one")
    monkeypatch.setattr(meaning, "ANSWER_SECONDS", 0.01)
    fake = makers.named("one")
    fake.gate = meaning.asyncio.Event()  # which nobody opens

    assert await asker.of("x") is None
    assert await asker.of("x") is None
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
        assert await Meaning(settings, db, lambda _, fake=fake: fake).of("x") is None


async def test_another_model_is_noticed_and_the_old_embedder_closed(
    asker: Meaning, makers: Makers, use: Callable[[str], None], clock: Clock
):
    use("one")
    first = await asker.of("x")
    use("two")
    soon = await asker.of("x")
    clock.now += meaning.LOOK_SECONDS
    later = await asker.of("x")

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
    made: list[EmbedderGiven] = []

    def make(given: EmbedderGiven) -> Embedder:
        made.append(given)
        if len(made) == 1:
            raise Invalid("There is no key.")
        return Fake()

    asker = Meaning(settings, db, make)

    assert await asker.of("x") is None
    clock.now += meaning.LOOK_SECONDS
    assert await asker.of("x") is not None


async def test_search_answers_by_words_while_the_embedder_is_dead(
    client: httpx.AsyncClient,
    app: Frame,
    cast: Cast,
    make: Make,
    asker: Meaning,
    makers: Makers,
    use: Callable[[str], None],
    clock: Clock,
):
    use("one")
    app.state.searcher.meaning = asker
    await make.observation(project=cast.alice.project, title="The wombat is fed")
    fake = makers.named("one")

    alive = await answered(client, cast.alice, "wombat")
    fake.error = DOWN
    dead = await answered(client, cast.alice, "wombat")
    paused = await answered(client, cast.alice, "wombat")
    fake.error = None
    clock.now += meaning.PAUSE_SECONDS
    again = await answered(client, cast.alice, "wombat")

    assert [one["byMeaning"] for one in (alive, dead, paused, again)] == [True, False, False, True]
    assert all([hit["number"] for hit in one["observations"]] == [1] for one in (alive, dead, paused, again))


async def test_a_model_of_the_settings_is_asked_as_they_say(settings: Settings, db: Db, vectors: Vectors, clock: Clock):
    wanted = msgspec.structs.replace(settings, embedder="ollama", embedder_model="ours")
    with psycopg.connect(db.url, autocommit=True) as conn:
        conn.execute("UPDATE embedding_models SET state = 'retired'")
    await choose.settle(db, wanted)
    with psycopg.connect(db.url, autocommit=True) as conn:
        conn.execute("UPDATE embedding_models SET dimensions = %s WHERE state = 'current'", [DIMENSIONS])
    given: list[EmbedderGiven] = []

    def make(one: EmbedderGiven) -> Embedder:
        given.append(one)
        return Fake("ours")

    assert await Meaning(wanted, db, make).of("x") is not None
    assert [(one.provider, one.model) for one in given] == [("ollama", "ours")]
