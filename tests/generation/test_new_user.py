"""Three sessions of somebody new: what was concluded, laid down and left open is found, shown and closed without a model."""

from __future__ import annotations

from typing import cast

import httpx
import pytest

from tests.conftest import Cast
from tests.generation.test_turns import Agent
from tests.generation.tools import Outbox

CAUSE = "The webhook charges twice because `handle_payment` never checks `order.status`."
NOT_DONE = "Not done: the refund path does not yet increase `order.attempt`."
MONEY = "never use floats for money, we agreed on integer cents"
DEPLOY = "we deploy with `make deploy-eu`, never with the github action, remember that"
DROP_ERROR = 'psycopg.errors.DependentObjectsStillExist: cannot drop column status: view "revenue_daily" depends on it'


@pytest.fixture
async def agent(client: httpx.AsyncClient, cast: Cast, outbox: Outbox) -> Agent:
    """After the three sessions."""
    agent = Agent(client, cast, outbox)
    await agent.prompt("customers are charged twice, find out why")
    await agent.edit("pay.py", "retry(order)\n", "if order.status != 'paid':\n    retry(order)\n")
    await agent.run("pytest -q", "5 passed in 0.10s")
    await agent.stop(f"All done! {CAUSE}\n\n{NOT_DONE}")
    agent.session = "s2"
    await agent.prompt(MONEY)
    await agent.prompt(DEPLOY)
    await agent.edit("money.py", "total: float\n", "total_cents: int\n")
    await agent.stop("Totals are integer cents now; `Order.total` is gone.")
    agent.session = "s3"
    await agent.prompt("drop the old status column")
    await agent.run("pytest -q tests/test_migrations.py", f"E   {DROP_ERROR}\n1 failed in 0.30s", failed=True)
    await agent.stop("It does not go through, I look at the view next.")
    await agent.edit("migrations/0013.sql", "DROP COLUMN status\n", "DROP VIEW revenue_daily;\nDROP COLUMN status\n")
    await agent.run("pytest -q tests/test_migrations.py", "1 passed in 0.30s")
    await agent.stop("The migration drops the view `revenue_daily` first and makes it again.")
    return agent


async def _index(agent: Agent) -> str:
    agent.session = "s4"
    answer = await agent.send("SessionStart", source="startup")
    return cast("dict[str, str]", answer["hookSpecificOutput"])["additionalContext"]


async def test_each_sentence_that_matters_is_found(agent: Agent):
    rows = await agent.observations()

    def find(text: str, state: str | None = None) -> object:
        return next(row["number"] for row in rows if text in f"{row['quote'] or row['narrative']}" and row["state"] == state)

    assert await agent.search("does anything check order.status?") == find(CAUSE)
    assert await agent.search("what is left to do about order.attempt?") == find("does not yet increase `order.attempt`", "open")
    assert await agent.search("may I use floats for money?") == find(MONEY)


async def test_the_index_begins_with_what_was_laid_down_and_what_is_open(agent: Agent):
    lines = (await _index(agent)).splitlines()

    laid_down = lines[lines.index("Laid down by users, the newest first") + 1 :]
    assert ["make deploy-eu" in laid_down[0], "floats for money" in laid_down[1]] == [True, True]
    still_open = lines[lines.index("Still open, the newest first") + 1 :]
    assert "The refund path does not yet increase `order.attempt`" in still_open[0]


async def test_a_prompt_that_touches_the_rule_is_answered_with_it_and_a_greeting_with_nothing(agent: Agent):
    agent.session = "s5"

    assert await agent.prompt("hello") == ""
    assert "make deploy-eu" in await agent.prompt("deploy this with the github action please")


async def test_the_failure_has_its_message_as_title_is_marked_as_fixed_and_leaves_the_index(agent: Agent):
    observations = await agent.observations()
    (failure,) = [row for row in observations if "cannot drop column status" in str(row["title"])]

    assert 'view "revenue_daily" depends on it' in str(failure["title"])
    assert (failure["state"], failure["closed_by"]) == ("done", observations[-1]["number"])
    assert "cannot drop column" not in await _index(agent)
