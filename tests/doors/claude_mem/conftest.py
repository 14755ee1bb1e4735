"""Guests: programs on the server's machine that have no key, as claude-mem's hooks have none."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import httpx
import msgspec
import pytest

from cmserver.base.http.frame import AsgiFrame
from cmserver.base.settings import Settings
from tests.conftest import Cast

LOCAL = "http://127.0.0.1:37877"


def visitor(app: AsgiFrame, peer: str = "127.0.0.1", url: str = LOCAL) -> httpx.AsyncClient:
    """Somebody without a key, at that address, who asks at that one."""
    transport = httpx.ASGITransport(app, client=(peer, 50_000))  # pyright: ignore[reportArgumentType] - httpx types ASGI more narrowly
    return httpx.AsyncClient(transport=transport, base_url=url)


@pytest.fixture
def settings(settings: Settings, cast: Cast) -> Settings:
    """Guests are Alice's team's."""
    return msgspec.structs.replace(settings, trust_loopback="blue")


@pytest.fixture
async def guest(app: AsgiFrame, cast: Cast) -> AsyncGenerator[httpx.AsyncClient]:
    async with visitor(app) as opened:
        yield opened
