"""A provider's address, played."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from tests.models.providers.fake.server import FakeProvider, fake_provider


@pytest.fixture
async def fake() -> AsyncGenerator[FakeProvider]:
    async with fake_provider() as fake:
        yield fake
