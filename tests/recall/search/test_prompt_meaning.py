"""Context on a prompt by meaning: the nearest sentences of the project are told, whatever their words."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import msgspec
import pytest
from psycopg import errors

from cmserver.base.db import Db
from cmserver.embeddings.model import Calibration, QueryVector
from cmserver.embeddings.turn_sentences import write_due_sentences
from cmserver.models.providers.embedding.model import Purpose
from cmserver.observations.model import Observation
from cmserver.recall import prompt_context
from cmserver.recall.model import Context, ContextRequest, NewReceipt
from cmserver.recall.prompt_context import build_prompt_context
from cmserver.recall.receipts import repository as receipts
from cmserver.recall.search.model import NearText
from cmserver.sessions.model import NewSession
from cmserver.sessions.turns.model import SessionTurn
from cmserver.sessions.write import find_or_make
from tests.conftest import Cast, Person
from tests.embeddings.fake import Fake
from tests.make import Make
from tests.recall.search.tools import Vectors

PROMPT = "the mailbox does not exist any more, bury the address"
RULE = "Hard bounces end a subscription."


@pytest.fixture
async def bounce(cast: Cast, make: Make, vectors: Vectors) -> Observation:
    """What PROMPT is about, in other words, among much else."""
    for n in range(20):
        vectors.give(await make.observation(project=cast.alice.project, title=f"Invoice {n} was paid"), [0, 1])
    made = await make.observation(project=cast.alice.project, title="Hard bounces end a subscription")
    vectors.give(made, [1, 0])
    return made


class ByHand(Fake):
    """Finds RULE at [1, 0], and all else at [0, 1]."""

    async def embed(self, texts: Sequence[str], purpose: Purpose) -> list[list[float]]:
        return [[1.0, 0.0] if text == RULE else [0.0, 1.0] for text in texts]


async def told_turn(db: Db, cast: Cast, make: Make, vectors: Vectors) -> SessionTurn:
    """A turn in which the user says RULE."""
    turn = await make.turn(project=cast.alice.project, prompt=f"Commit it. {RULE}", reply="It is put into `bounce.py`.")
    vectors.give(turn, [0.7, 0.7])
    await write_due_sentences(db, ByHand(), vectors.model_id)
    return turn


async def show(
    db: Db, person: Person, vector: QueryVector | None, prompt: str = PROMPT, session_id: UUID | None = None
) -> Context | None:
    async with db.tenant(person.team_id) as conn:
        request = ContextRequest(reason="prompt", session_id=session_id)
        return await build_prompt_context(conn, person.principal, person.project, request, prompt, vector)


def first_number(context: Context | None) -> int | None:
    return context.numbers[0] if context else None


async def test_the_nearest_sentence_is_told_with_the_turn_s_next(db: Db, cast: Cast, make: Make, vectors: Vectors):
    turn = await told_turn(db, cast, make, vectors)

    context = await show(db, cast.alice, vectors.near(1, 0))

    assert context is not None
    assert f'#{turn.number} {turn.created_at:%Y-%m-%d} turn "Commit it. … {RULE}"' in context.text


async def test_a_prompt_is_not_told_itself(db: Db, cast: Cast, make: Make, vectors: Vectors):
    turn = await told_turn(db, cast, make, vectors)

    context = await show(db, cast.alice, vectors.near(1, 0), prompt=RULE.lower())

    assert context is None or RULE not in context.text
    assert first_number(await show(db, cast.alice, vectors.near(1, 0), prompt=f"why do {RULE.lower()}")) == turn.number


async def test_what_is_near_in_meaning_is_shown(db: Db, cast: Cast, bounce: Observation, vectors: Vectors):
    assert first_number(await show(db, cast.alice, vectors.near(1, 0))) == bounce.number


@pytest.mark.usefixtures("bounce")
async def test_nothing_is_shown_for_a_prompt_that_is_near_to_nothing(db: Db, cast: Cast, vectors: Vectors):
    assert await show(db, cast.alice, vectors.near(-1, -0.2)) is None


@pytest.mark.usefixtures("bounce")
async def test_without_a_vector_only_words_count(db: Db, cast: Cast):
    assert await show(db, cast.alice, None) is None


async def test_a_cosine_of_another_model_counts_as_the_local_one_that_says_as_much(
    db: Db, cast: Cast, bounce: Observation, vectors: Vectors
):
    near = vectors.near(1, 0)
    sure = msgspec.structs.replace(near, provider="ollama", calibration=Calibration(intercept=-7.3, slope=22.0))
    unsure = msgspec.structs.replace(near, provider="ollama", calibration=Calibration(intercept=-7.3, slope=4.0))

    assert first_number(await show(db, cast.alice, sure)) == bounce.number
    assert await show(db, cast.alice, unsure) is None


async def test_what_the_session_said_itself_is_not_shown_to_it(db: Db, cast: Cast, make: Make, vectors: Vectors):
    turn = await told_turn(db, cast, make, vectors)

    assert await show(db, cast.alice, vectors.near(1, 0), session_id=turn.server_session_id) is None
    assert first_number(await show(db, cast.alice, vectors.near(1, 0))) == turn.number


async def test_an_index_does_not_keep_a_line_from_a_prompt_and_a_prompt_does(
    db: Db, cast: Cast, bounce: Observation, vectors: Vectors
):
    async with db.tenant(cast.alice.team_id) as conn:
        session, _ = await find_or_make(conn, cast.alice.team_id, cast.alice.project.id, NewSession(external_session_id="s-1"))
        receipt = NewReceipt(reason="startup", server_session_id=session.id, numbers=[bounce.number])
        await receipts.insert(conn, cast.alice.team_id, cast.alice.project.id, receipt)

    assert first_number(await show(db, cast.alice, vectors.near(1, 0), session_id=session.id)) == bounce.number
    assert first_number(await show(db, cast.alice, vectors.near(1, 0), session_id=session.id)) != bounce.number


@pytest.mark.usefixtures("bounce")
async def test_a_search_that_takes_too_long_is_given_up_and_the_transaction_goes_on(
    db: Db, cast: Cast, vectors: Vectors, monkeypatch: pytest.MonkeyPatch
):
    async def too_slow(*_: object, **__: object) -> list[NearText]:
        raise errors.QueryCanceled

    monkeypatch.setattr(prompt_context, "find_nearest", too_slow)

    assert await show(db, cast.alice, vectors.near(1, 0)) is None
