"""`cmserver usage`."""

from __future__ import annotations

from tests.cli.conftest import Cms
from tests.conftest import Cast


async def test_usage_is_told_with_its_limits(cms: Cms, cast: Cast):
    said = await cms("usage", key=cast.alice.key)

    assert said.code == 0, said.err
    assert said.out.startswith("since")
    assert "requests" in said.out
    assert "limit" in said.out
