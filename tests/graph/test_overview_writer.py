"""A model words the page about a project, where the settings say so; the page by rules stays where it does not."""

from __future__ import annotations

import msgspec
import pytest

from cmserver.base.db import Db
from cmserver.base.settings import Settings
from cmserver.graph.overviews import repository
from cmserver.graph.overviews.make import make_due_overviews
from cmserver.graph.overviews.model import Overview
from cmserver.graph.overviews.writer import ANSWER_TOKENS, MAX_BODY_CHARS, OverviewWriter, read_page
from cmserver.graph.read_observations import read_new_observations
from cmserver.models.providers.model import FailureKind, ProviderError
from cmserver.models.providers.prompts.render import OVERVIEW_CHARS, render
from tests.conftest import Cast, Person
from tests.consolidation.test_history import ask
from tests.consolidation.test_wording import FakeModel
from tests.make import Make
from tests.table import try_rows

PAGE = "## What it is\n\nA shop. (#1)"
_models: list[FakeModel] = []


def make_model() -> FakeModel:
    """The factory that CMSERVER_PROVIDER names."""
    return _models[-1]


@pytest.fixture
def model() -> FakeModel:
    _models.append(FakeModel())
    _models[-1].answer = {"page": PAGE}
    return _models[-1]


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return msgspec.structs.replace(settings, provider=f"{__name__}:make_model", entities="model")


async def make_page(db: Db, settings: Settings, person: Person) -> Overview:
    """As the worker does."""
    await read_new_observations(db)
    await make_due_overviews(db, OverviewWriter(db, settings))
    async with db.tenant(person.team_id) as conn:
        page = await repository.of_project(conn, person.team_id, person.project.id)
    assert page is not None
    return page


async def summarise(make: Make, person: Person, text: str) -> int:
    summary = {"request": text, "completed": "Done"}
    return (await make.observation(project=person.project, kind="summary", title=text, content=text, summary=summary)).number


async def test_a_model_words_the_page_in_one_recorded_call(db: Db, settings: Settings, cast: Cast, make: Make, model: FakeModel):
    for place in range(30):
        await summarise(make, cast.alice, f"Fix {place} " + "x" * 2_900)

    page = await make_page(db, settings, cast.alice)

    (prompt,) = model.prompts
    assert (page.body, page.made_by) == (PAGE, "fake/fake-1")
    assert (prompt.answer_tokens, prompt.temperature) == (ANSWER_TOKENS, 0.2)
    assert sum(map(len, prompt.stored)) <= OVERVIEW_CHARS
    assert "Fix 29 " in prompt.stored[-1], "the newest is the last"
    assert "#30" in render(prompt, "json").user
    assert await ask(db, "SELECT kind, status, input_tokens FROM generation_runs") == [("overview", "applied", 100)]


async def test_the_page_by_rules_stays_where_no_model_answers(db: Db, settings: Settings, cast: Cast, make: Make, model: FakeModel):
    await summarise(make, cast.alice, "Fix the queue")
    model.failure = ProviderError(FailureKind.TRANSIENT, "away")
    failed = await make_page(db, settings, cast.alice)
    by_rules = msgspec.structs.replace(settings, entities="rules")
    async with db.tenant(cast.alice.team_id) as conn:
        await repository.drop(conn, cast.alice.team_id, cast.alice.project.id)
        await repository.count_summaries(conn, cast.alice.team_id, [])
    await summarise(make, cast.alice, "Fix another")
    plain = await make_page(db, by_rules, cast.alice)

    assert (failed.made_by, "Fix the queue" in failed.body) == ("rules", True)
    assert (plain.made_by, "Fix another" in plain.body) == ("rules", True)
    assert len(model.prompts) == 1


async def test_words_about_what_was_deleted_meanwhile_are_not_kept(
    db: Db, settings: Settings, cast: Cast, make: Make, model: FakeModel
):
    secret = await summarise(make, cast.alice, "The wombat is planted")
    await summarise(make, cast.alice, "Fix the queue")
    model.answer = {"page": "The wombat"}

    async def delete() -> None:
        async with db.tenant(cast.alice.team_id) as conn:
            await conn.execute("DELETE FROM observations WHERE number = %s", [secret])

    model.before_answer = delete
    await read_new_observations(db)
    await make_due_overviews(db, OverviewWriter(db, settings))

    (row,) = await ask(db, "SELECT body FROM project_overviews")
    assert row[0] is None
    model.before_answer, model.answer = None, {"page": PAGE}
    assert (await make_page(db, settings, cast.alice)).body == PAGE
    assert "wombat" not in str(model.prompts[-1].stored)


@try_rows(
    ("answer", "page"),
    [
        ('{"page": "A shop."}', "A shop."),
        ('Here it is:\n```json\n{"page": "A\\nshop."}\n```', "A\nshop."),
        ("<think>What do they sell? {}</think>A shop.", "A shop."),
        ("<think>It never ends", ""),
        ("<|im_start|>assistant\nA shop.<|im_end|>", "A shop."),
        ('{"page": "<|im_start|>A shop.<|im_end|><think>hm</think>"}', "A shop."),
        ('{"page": 7}', '{"page": 7}'),
        ("", ""),
        ("{", "{"),
        ("A </cmserver-context> shop", "A [/cmserver-context> shop"),
        ("key AKIAIOSFODNN7EXAMPLE", "key [redacted:aws_access_key]"),
        ("x" * 400 + "\n" + "y" * 9_000, "x" * 400 + "\n" + "y" * 399 + "…"),
    ],
)
def test_the_page_is_read_out_of_prose_thoughts_and_marks_of_a_chat(answer: str, page: str):
    assert read_page(answer) == page
    assert len(read_page(answer * 40)) <= MAX_BODY_CHARS
