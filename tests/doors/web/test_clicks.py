"""What a newcomer does, from `/` in at most five clicks: no JavaScript, only the links and forms of the pages."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime, timedelta

import httpx
import pytest

from cmserver.base.db import Db
from cmserver.base.http.frame import AsgiFrame
from cmserver.graph.read_observations import read_new_observations
from cmserver.models.providers.model import Completion, FailureKind, Prompt, ProviderError
from tests.conftest import Cast
from tests.doors.web.clicks import Clicker
from tests.doors.web.visitor import visit_as
from tests.generation.tools import Outbox, Scripted
from tests.make import Make

MAX_CLICKS = 5
Newcomer = Callable[[], AbstractAsyncContextManager[Clicker]]


@pytest.fixture
def newcomer(app: AsgiFrame, db: Db, cast: Cast) -> Newcomer:
    @asynccontextmanager
    async def within_five_clicks() -> AsyncGenerator[Clicker]:
        clicker = Clicker(await visit_as(app, db, cast.alice.team_id, "owner"))
        await clicker.begin()
        yield clicker
        assert clicker.clicks <= MAX_CLICKS

    return within_five_clicks


async def work_in_a_session(client: httpx.AsyncClient, cast: Cast) -> None:
    for fields in (
        {"hook_event_name": "SessionStart", "source": "startup"},
        {"hook_event_name": "UserPromptSubmit", "prompt": "Why do the orders tests fail?"},
    ):
        payload = {"session_id": "s1", "cwd": "/work/orders", **fields}
        headers = {**cast.alice.headers, "X-Cmserver-Project": "github.com/acme/orders"}
        answer = await client.post("/v1/hooks/claude-code", json=payload, headers=headers)
        assert answer.status_code == 200, answer.text


async def test_find_why_something_was_decided(newcomer: Newcomer, cast: Cast, make: Make):
    why = "The provider retries by itself, so a second charge must be refused."
    await make.observation(project=cast.alice.project, title="Chose an idempotency key per order", narrative=why, type="decision")

    async with newcomer() as person:
        await person.follow("Observations", within="header")
        await person.send("Search", q="idempotency key")
        await person.follow("Chose an idempotency key per order")

        assert why in person.main.text


async def test_find_who_was_told_what(newcomer: Newcomer, client: httpx.AsyncClient, cast: Cast, make: Make):
    await make.observation(project=cast.alice.project, title="The queue is called orders-v2")
    await work_in_a_session(client, cast)

    async with newcomer() as person:
        await person.follow("Sessions", within="header")
        await person.follow("Why do the orders tests fail?")
        await person.follow("What it was told when the session started")

        assert "The queue is called orders-v2" in person.main.text

    async with newcomer() as person:
        await person.follow("Observations", within="header")
        await person.follow("The queue is called orders-v2")

        assert "Why do the orders tests fail?" in person.main.text


async def test_correct_a_wrong_observation_and_undo_it(newcomer: Newcomer, cast: Cast, make: Make):
    await make.observation(project=cast.alice.project, title="The limit is 10")

    async with newcomer() as person:
        await person.follow("Observations", within="header")
        await person.follow("The limit is 10")
        await person.follow("Edit", within="main")
        await person.send("Save", title="The limit is 20")
        assert person.heading == "The limit is 20"
        await person.send("Undo")

        assert person.heading == "The limit is 10"


async def test_merge_two(newcomer: Newcomer, cast: Cast, make: Make):
    one = await make.observation(project=cast.alice.project, title="The orders client retries three times")
    two = await make.observation(project=cast.alice.project, title="The orders client tries three times")
    await make.suggestion(project=cast.alice.project, left=one.id, right=two.id)

    async with newcomer() as person:
        await person.follow("Review", within="header")
        await person.send("Merge into #1")

        assert "#2 is merged into #1." in person.main.text


async def test_merge_two_that_nobody_suggested(newcomer: Newcomer, cast: Cast, make: Make):
    await make.observation(project=cast.alice.project, title="Retries three times")
    await make.observation(project=cast.alice.project, title="Waits a second between tries")

    async with newcomer() as person:
        await person.follow("Observations", within="header")
        await person.follow("Retries three times")
        await person.send("Merge", sources="2")

        assert "Merged #2 into this one." in person.main.text


async def test_preview_what_the_next_session_is_told(newcomer: Newcomer, cast: Cast, make: Make):
    await make.observation(project=cast.alice.project, title="The queue is called orders-v2")

    async with newcomer() as person:
        await person.follow("Projects", within="header")
        await person.follow("orders", within="main")
        await person.follow("What the next session is told")

        assert "Why each line" in person.main.text
        assert "The queue is called orders-v2" in person.main.text


async def test_stop_recording_a_project(newcomer: Newcomer, client: httpx.AsyncClient, cast: Cast):
    async with newcomer() as person:
        await person.follow("Projects", within="header")
        await person.follow("orders", within="main")
        await person.send("Stop recording it")

        assert "Nothing is recorded of it since" in person.main.text

    project = await client.get(f"/v1/projects/{cast.alice.project.id}", headers=cast.alice.headers)
    assert project.json()["project"]["archivedAtEpoch"] is not None


async def test_find_the_session_of_yesterday(newcomer: Newcomer, client: httpx.AsyncClient, db: Db, cast: Cast):
    await work_in_a_session(client, cast)
    async with db.system() as conn:
        await conn.execute("UPDATE server_sessions SET started_at = %s", [datetime.now(UTC) - timedelta(days=1)])

    async with newcomer() as person:
        await person.follow("Sessions", within="header")
        assert "Yesterday" in person.main.text
        await person.follow("Why do the orders tests fail?")

        assert person.heading == "Why do the orders tests fail?"


async def test_find_the_failed_job_and_its_providers_answer(newcomer: Newcomer, outbox: Outbox):
    def refuse(_: Prompt) -> Completion:
        said = Completion(text="I had rather not say.", model="script-1", input_tokens=10, output_tokens=5)
        raise ProviderError(FailureKind.REFUSED, "The model refused.", completion=said)

    await outbox.put(1)
    await (await outbox.hand(Scripted(refuse))).work()
    await outbox.put(3, session="waiting")

    async with newcomer() as person:
        await person.follow("1 job failed", within="main")
        await person.follow("event", within="table")

        assert "The model refused." in person.main.text
        assert "I had rather not say." in person.main.text


async def test_make_a_key(newcomer: Newcomer, client: httpx.AsyncClient):
    async with newcomer() as person:
        await person.follow("Team", within="header")
        await person.follow("Keys", within="main")
        await person.send("Make the key", whose="mine", name="laptop")
        key = re.search(r"cms_[0-9a-f]+_[0-9a-f]+", person.main.text)

    assert key is not None
    assert (await client.get("/v1/observations", headers={"X-Api-Key": key[0]})).status_code == 200


async def test_see_what_today_cost(newcomer: Newcomer, cast: Cast, make: Make):
    await make.run(project=cast.alice.project, input_tokens=1_000, cost_usd="1.75")

    async with newcomer() as person:
        await person.follow("Costs", within="header")

        assert "$1.75 today" in person.main.text


async def test_set_a_budget(newcomer: Newcomer):
    async with newcomer() as person:
        await person.follow("Costs", within="header")
        await person.follow("Budgets", within="main")
        await person.send("Set the budget", period="month", max_usd="20.00")

        assert "$0.00 of $20.00" in person.main.text


async def test_find_what_a_file_is_about(newcomer: Newcomer, db: Db, cast: Cast, make: Make):
    await make.observation(project=cast.alice.project, title="Retries three times", files_modified=["src/orders/client.py"])
    await read_new_observations(db)

    async with newcomer() as person:
        await person.follow("Graph", within="header")
        await person.follow("src/orders/client.py")

        assert "Retries three times" in person.main.text


async def test_let_the_steward_only_try(newcomer: Newcomer):
    async with newcomer() as person:
        await person.follow("Steward", within="header")
        await person.send("Save", mode="dry_run")

        assert "dry run" in person.main.text
