"""`cmserver reindex`."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Cms
from tests.conftest import Cast
from tests.make import Make


async def test_a_reindexing_is_a_job(cms: Cms, cast: Cast, make: Make):
    made = await make.observation(project=cast.alice.project)

    of_project = await cms("reindex", "--project", "github.com/acme/orders", key=cast.alice.key)
    of_one = await cms("reindex", "--observation", str(made.number), key=cast.alice.key)

    assert of_project.code == 0, of_project.err
    assert of_one.code == 0, of_one.err
    job = of_project.out.split()[2]
    assert "observation_reindex" in (await cms("jobs", "show", job, key=cast.alice.key)).out


@pytest.mark.parametrize("words", [[], ["--project", "x", "--session", "y"]])
async def test_a_reindexing_is_of_one_thing(cms: Cms, cast: Cast, words: list[str]):
    said = await cms("reindex", *words, key=cast.alice.key)

    assert (said.code, "--observation" in said.err) == (2, True)


async def test_a_reindexing_of_strangers_things_is_refused(cms: Cms, cast: Cast):
    said = await cms("reindex", "--project", str(cast.charlie.project.id), key=cast.alice.key)

    assert (said.code, said.out) == (1, "")
