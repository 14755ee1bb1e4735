"""The sentences of turns: written when a turn has ended, with vectors as soon as there are any, never those of an older text."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from uuid import uuid4

import pytest

from cmserver.base.db import Db
from cmserver.embeddings.turn_sentences import write_due_sentences
from cmserver.models.providers.embedding.model import Purpose
from cmserver.models.providers.model import FailureKind, ProviderError
from cmserver.sessions.turns.sentences.repository import DUE
from cmserver.sessions.turns.sentences.vectors import compare, pack
from tests.conftest import Cast
from tests.embeddings.fake import DIMENSIONS, Fake, vector_of
from tests.make import Make

PROMPT = "Never deploy on Fridays."
REPLY = "Understood: `deploy.sh` asks for the day now. Shall I commit?"
TOLD = [PROMPT, "Understood: `deploy.sh` asks for the day now."]


class Stored:
    """The rows as psql sees them."""

    def __init__(self, db: Db) -> None:
        self._db = db

    async def rows(self) -> list[tuple[list[str], int, int, bytes | None, int]]:
        """Sentences, how many are the user's, the model, its vectors, and how many have words."""
        async with self._db.system() as conn:
            cursor = await conn.execute(
                "SELECT texts, of_user, model_id, vectors, cardinality(words) FROM turn_sentences ORDER BY turn_id"
            )
            return await cursor.fetchall()

    async def run(self, statement: str, *parameters: object) -> None:
        async with self._db.system() as conn:
            await conn.execute(statement.encode(), parameters)


@pytest.fixture
def stored(db: Db) -> Stored:
    return Stored(db)


async def test_without_a_model_sentences_have_words(db: Db, cast: Cast, make: Make, stored: Stored):
    await make.turn(project=cast.alice.project, prompt=PROMPT, reply=REPLY)
    await make.turn(project=cast.alice.project, prompt="It goes on.")

    assert not await write_due_sentences(db, None, 0)

    assert await stored.rows() == [(TOLD, 1, 0, None, 2)]


async def test_a_vector_that_comes_late_is_the_one_that_would_have_come(db: Db, cast: Cast, make: Make, stored: Stored):
    await make.turn(project=cast.alice.project, prompt=PROMPT, reply=REPLY)
    await write_due_sentences(db, None, 0)
    late = Fake()
    late.error = ProviderError(FailureKind.TRANSIENT, "away")
    with pytest.raises(ProviderError):
        await write_due_sentences(db, late, 7)
    assert (await stored.rows())[0][2:4] == (0, None)
    late.error = None

    await write_due_sentences(db, late, 7)
    await make.turn(project=cast.alice.project, prompt=PROMPT, reply=REPLY, session="s2")
    await write_due_sentences(db, Fake(), 7)

    before, after = await stored.rows()
    assert before == after == (TOLD, 1, 7, pack([vector_of(text) for text in TOLD]), 2)
    assert late.texts == TOLD


async def test_another_model_makes_the_vectors_anew(db: Db, cast: Cast, make: Make, stored: Stored):
    await make.turn(project=cast.alice.project, prompt=PROMPT, reply=REPLY)
    for model_id, name in ((9, "one"), (4, "two"), (6, "three")):
        await write_due_sentences(db, Fake(name), model_id)
        await write_due_sentences(db, Fake("never"), model_id)

    assert (await stored.rows())[0][2:4] == (6, pack([vector_of(text, "three") for text in TOLD]))


async def test_a_turn_that_is_refused_leaves_its_neighbours_their_vectors(db: Db, cast: Cast, make: Make, stored: Stored):
    for place, reply in enumerate((REPLY, "The secret plan is ready now.", REPLY)):
        await make.turn(project=cast.alice.project, prompt=PROMPT, reply=reply, session=f"s{place}")
    embedder = Fake()
    embedder.refuses = {"secret"}

    await write_due_sentences(db, embedder, 7)

    assert [(model_id, vectors is None) for _, _, model_id, vectors, _ in await stored.rows()] == [
        (7, False),
        (7, True),
        (7, False),
    ]


async def test_what_is_changed_in_a_turn_is_gone_at_once_and_what_is_deleted_too(db: Db, cast: Cast, make: Make, stored: Stored):
    turn = await make.turn(project=cast.alice.project, prompt=PROMPT, reply=REPLY)
    await write_due_sentences(db, Fake(), 7)

    await stored.run("UPDATE turns SET reply = 'The day is redacted.' WHERE id = %s", turn.id)
    assert await stored.rows() == [([], 0, 0, None, 0)]
    await write_due_sentences(db, None, 0)
    assert (await stored.rows())[0][0] == [PROMPT, "The day is redacted."]
    await stored.run("DELETE FROM turns WHERE id = %s", turn.id)
    assert await stored.rows() == []


async def test_a_text_that_changes_while_it_is_embedded_keeps_nothing_of_before(db: Db, cast: Cast, make: Make, stored: Stored):
    turn = await make.turn(project=cast.alice.project, prompt=PROMPT, reply=REPLY)

    class Slow(Fake):
        async def embed(self, texts: Sequence[str], purpose: Purpose) -> list[list[float]]:
            await stored.run("UPDATE turns SET reply = 'The day is redacted.' WHERE id = %s", turn.id)
            return await super().embed(texts, purpose)

    await write_due_sentences(db, Slow(), 7)

    assert await stored.rows() == [([], 0, 0, None, 0)]


async def test_a_short_answer_is_kept_with_what_it_answers_also_when_that_comes_later(
    db: Db, cast: Cast, make: Make, stored: Stored
):
    first = await make.turn(project=cast.alice.project, prompt="Clean up the tables.")
    await make.turn(project=cast.alice.project, prompt="yes", reply="Dropped `old_orders`.")
    await write_due_sentences(db, None, 0)
    assert [texts for texts, *_ in await stored.rows()] == [["Dropped `old_orders`."]]

    await stored.run("UPDATE turns SET reply = 'Shall I drop `old_orders`?', ended_at = now() WHERE id = %s", first.id)
    await write_due_sentences(db, None, 0)

    assert [texts for texts, *_ in await stored.rows()] == [
        ["Clean up the tables."],
        ["yes (Shall I drop `old_orders`?)", "Dropped `old_orders`."],
    ]


def test_packed_vectors_are_compared_as_they_were():
    vectors = [vector_of("a b c"), vector_of("a b"), vector_of("x y z")]

    cosines = compare(vector_of("a b c"), [pack(vectors[:2]), pack(vectors[2:])], DIMENSIONS)

    exact = [sum(a * b for a, b in zip(vectors[0], vector, strict=True)) for vector in vectors]
    assert cosines == pytest.approx(exact, abs=0.01)


def test_of_a_long_vector_the_beginning_is_kept():
    long = [(-1) ** place * (place * 37 % 101) / 100 for place in range(1_500)]

    assert len(pack([long] * 8)) == 2_048
    assert compare(long, [pack([long])], len(long)) == pytest.approx([1.0], abs=0.02)


@pytest.mark.parametrize("act", ["DELETE FROM turns WHERE id = %s", "UPDATE turns SET reply = 'Gone.' WHERE id = %s"])
async def test_what_a_short_answer_quotes_goes_with_the_reply(db: Db, cast: Cast, make: Make, stored: Stored, act: str):
    asked = await make.turn(project=cast.alice.project, prompt="Which one?", reply="The vault code is 4711. Shall I use it?")
    await make.turn(project=cast.alice.project, prompt="yes", reply="It is used for `deploy.sh` now.")
    await write_due_sentences(db, None, 0)
    assert any("Shall I use it?" in text for texts, *_ in await stored.rows() for text in texts)

    await stored.run(act, asked.id)

    assert not any("Shall I use it?" in text for texts, *_ in await stored.rows() for text in texts)
    await write_due_sentences(db, None, 0)
    assert not any("Shall I use it?" in text for texts, *_ in await stored.rows() for text in texts)


async def test_another_language_of_search_writes_the_words_anew(db: Db, cast: Cast, make: Make, stored: Stored):
    turn = await make.turn(project=cast.alice.project, prompt=PROMPT, reply=REPLY)
    await write_due_sentences(db, None, 0)

    await stored.run("UPDATE turns SET search_language = 'german' WHERE id = %s", turn.id)

    assert (await stored.rows())[0][0] == []
    await write_due_sentences(db, None, 0)
    assert (await stored.rows())[0][0] == TOLD


async def test_only_payloads_of_the_time_of_a_turn_are_read(db: Db):
    async with db.system() as conn:
        cursor = await conn.execute("EXPLAIN " + DUE.text, {"ids": [uuid4()], "most_chars": 1, "most_outputs": 1}, prepare=False)
        told = "\n".join(row[0] for row in await cursor.fetchall())

    outside, scan = told.split("on agent_events", 1)
    assert "jsonb_typeof" in outside
    assert "jsonb_typeof" not in scan


async def test_who_changes_a_turn_meanwhile_does_not_wait_for_its_sentences(db: Db, cast: Cast, make: Make, stored: Stored):
    turn = await make.turn(project=cast.alice.project, prompt=PROMPT, reply=REPLY)
    await stored.run("UPDATE turns SET borrowed = '{1}' WHERE id = %s", turn.id)
    async with db.system() as conn:
        await conn.execute("SELECT FROM turns WHERE id = %s FOR UPDATE", [turn.id])
        writing = asyncio.create_task(write_due_sentences(db, None, 0))
        waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        async with asyncio.timeout(60):
            while await (await conn.execute(waits)).fetchone() == (0,):
                await conn.execute("SELECT pg_stat_clear_snapshot()")
                await asyncio.sleep(0.02)
        await conn.execute("SELECT FROM turn_sentences WHERE turn_id = %s FOR UPDATE NOWAIT", [turn.id])
    await writing

    assert [texts for texts, *_ in await stored.rows()] == [TOLD]
