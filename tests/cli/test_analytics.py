"""`cmserver analytics`."""

from __future__ import annotations

from tests.cli.conftest import Cms
from tests.conftest import Cast
from tests.make import Make


async def test_what_was_stored_is_counted_by_project(cms: Cms, cast: Cast, make: Make):
    await make.observation(project=cast.alice.project)
    await make.observation(project=cast.charlie.project)

    said = await cms("analytics", "--days", "7", key=cast.alice.key)

    assert "stored" in said.out
    assert cast.alice.project.canonical_id in said.out
    assert "No observation was shown." in said.out


async def test_usage_as_csv(cms: Cms, cast: Cast, make: Make):
    await make.run(project=cast.alice.project, input_tokens=10, cost_usd="0.5")

    said = await cms("usage", "--by", "project", "--csv", key=cast.alice.key)

    assert said.out.splitlines()[0].startswith("project,calls,")
    assert said.out.splitlines()[1].startswith(f"{cast.alice.project.canonical_id},1,")
