"""`cmserver reindex`."""

from __future__ import annotations

import asyncio

import pytest

from cmserver.cli.progress import Progress
from tests.cli.conftest import Cms
from tests.conftest import Cast
from tests.generation.tools import Outbox, Scripted
from tests.make import Make
from tests.timeouts import until


async def test_a_reindexing_is_a_job(cms: Cms, cast: Cast, make: Make):
    made = await make.observation(project=cast.alice.project)

    of_project = await cms("reindex", "--project", "github.com/acme/orders", key=cast.alice.key)
    of_one = await cms("reindex", "--observation", str(made.number), key=cast.alice.key)

    assert of_project.code == 0, of_project.err
    assert of_one.code == 0, of_one.err
    job = of_project.out.split()[2]
    assert "observation_reindex" in (await cms("jobs", "show", job, key=cast.alice.key)).out


async def test_a_reindexing_is_waited_for(cms: Cms, cast: Cast, make: Make, outbox: Outbox, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("cmserver.cli.reindex.POLL_SECONDS", 0.01)
    shown: list[int] = []
    monkeypatch.setattr(Progress, "show", lambda _, done: shown.append(done))  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    for _ in range(2):
        await make.observation(project=cast.alice.project)

    waiting = asyncio.create_task(cms("reindex", "--project", "github.com/acme/orders", "--wait", key=cast.alice.key))
    await until("it is waited for", lambda: shown, waiting)
    await (await outbox.hand(Scripted())).work()
    said = await waiting

    assert said.code == 0, said.err
    assert "is completed: 2 observations reindexed" in said.out
    assert (
        await outbox.value("SELECT payload ->> 'total' FROM observation_generation_jobs WHERE job_type = 'observation_reindex'")
        == "2"
    )


@pytest.mark.parametrize("words", [[], ["--project", "x", "--session", "y"]])
async def test_a_reindexing_is_of_one_thing(cms: Cms, cast: Cast, words: list[str]):
    said = await cms("reindex", *words, key=cast.alice.key)

    assert (said.code, "--observation" in said.err) == (2, True)
