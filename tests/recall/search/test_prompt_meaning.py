"""Context on a prompt by meaning: what is near is shown, provided that the prompt is about the project."""

from __future__ import annotations

from uuid import UUID

import msgspec
import pytest
from psycopg import errors

from cmserver.base.db import Db
from cmserver.observations.embedding.model import QueryVector
from cmserver.observations.model import Observation
from cmserver.recall import prompt_context
from cmserver.recall.model import Context, ContextRequest, NewReceipt
from cmserver.recall.prompt_context import build_prompt_context, remove_operators
from cmserver.recall.receipts import repository as receipts
from cmserver.recall.search.lexical import parse_query
from cmserver.recall.search.model import SearchPage
from cmserver.sessions.model import NewSession
from cmserver.sessions.write import find_or_make
from tests.conftest import Cast, Person
from tests.make import Make
from tests.recall.search.tools import Vectors

PROMPT = "the mailbox does not exist any more, bury the address"


@pytest.fixture
async def bounce(cast: Cast, make: Make, vectors: Vectors) -> Observation:
    """What PROMPT is about, in other words, among much else."""
    for n in range(20):
        vectors.give(await make.observation(project=cast.alice.project, title=f"Invoice {n} was paid"), [0, 1])
    made = await make.observation(project=cast.alice.project, title="Hard bounces end a subscription")
    vectors.give(made, [1, 0])
    return made


async def show(
    db: Db, person: Person, vector: QueryVector | None, prompt: str = PROMPT, session_id: UUID | None = None
) -> Context | None:
    async with db.tenant(person.team_id) as conn:
        request = ContextRequest(reason="prompt", session_id=session_id)
        return await build_prompt_context(conn, person.principal, person.project, request, prompt, vector)


def first_number(context: Context | None) -> int | None:
    return context.numbers[0] if context else None


async def test_what_is_near_in_meaning_is_shown(db: Db, cast: Cast, bounce: Observation, vectors: Vectors):
    assert first_number(await show(db, cast.alice, vectors.near(1, 0))) == bounce.number


async def test_only_the_nearest_is_shown(db: Db, cast: Cast, make: Make, bounce: Observation, vectors: Vectors):
    vectors.give(await make.observation(project=cast.alice.project, title="Soft bounces are counted"), [1, 0.1])

    context = await show(db, cast.alice, vectors.near(1, 0))

    assert context is not None
    assert context.numbers == [bounce.number]


@pytest.mark.usefixtures("bounce")
async def test_nothing_is_shown_for_a_prompt_that_is_near_to_nothing(db: Db, cast: Cast, vectors: Vectors):
    assert await show(db, cast.alice, vectors.near(-1, -0.2)) is None


@pytest.mark.usefixtures("bounce")
async def test_without_a_vector_or_with_another_embedder_s_only_words_count(db: Db, cast: Cast, vectors: Vectors):
    assert await show(db, cast.alice, None) is None
    assert await show(db, cast.alice, msgspec.structs.replace(vectors.near(1, 0), provider="openai")) is None


async def test_quotes_and_signs_of_a_prompt_exclude_nothing(db: Db, cast: Cast, bounce: Observation, vectors: Vectors):
    prompt = f'{PROMPT} -bounces "no such phrase"'

    assert first_number(await show(db, cast.alice, vectors.near(1, 0), prompt)) == bounce.number


async def test_what_the_session_observed_itself_is_not_shown_to_it(db: Db, cast: Cast, make: Make, vectors: Vectors):
    async with db.tenant(cast.alice.team_id) as conn:
        session, _ = await find_or_make(conn, cast.alice.team_id, cast.alice.project.id, NewSession(external_session_id="s-1"))
    own = await make.observation(project=cast.alice.project, title="Hard bounces end a subscription", server_session_id=session.id)
    vectors.give(own, [1, 0])

    assert await show(db, cast.alice, vectors.near(1, 0), session_id=session.id) is None
    assert first_number(await show(db, cast.alice, vectors.near(1, 0))) == own.number


@pytest.mark.parametrize(
    "prompt", ["what does --force do", "run pytest --maxfail=1 and --no-cov", 'use the "-verbose" flag', '"- a" --b -c']
)
def test_nothing_in_a_prompt_is_an_operator(prompt: str):
    assert parse_query(remove_operators(prompt))[1] == ""


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
    async def too_slow(*_: object) -> SearchPage:
        raise errors.QueryCanceled

    monkeypatch.setattr(prompt_context, "find_page", too_slow)

    assert await show(db, cast.alice, vectors.near(1, 0)) is None
