"""The aims of context on a prompt, on the labelled prompts of tests/recall/history."""

from __future__ import annotations

import pytest

from cmserver.base.db import Db
from tests.conftest import Cast
from tests.recall.history.measure import Typed, figures, fill, table, typed


@pytest.fixture
async def done(db: Db, cast: Cast) -> list[Typed]:
    async with db.tenant(cast.alice.team_id) as conn:
        await fill(conn, cast.alice.project)
        return await typed(conn, cast.alice.principal, cast.alice.project)


async def test_prompts_are_told_what_helps_and_mostly_nothing_else(done: list[Typed]):
    print(f"\n{table(done)}")  # noqa: T201 - shown by pytest -s

    for of, helped in ((figures(done, "test"), 0.6), (figures(done, "second"), 0.5), (figures(done), 0.6)):
        assert of.unrelated >= 27
        assert of.related >= 27
        assert of.silent >= 0.9
        assert of.helped >= helped
