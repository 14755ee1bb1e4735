"""The situations of Contextify's clients, without a key: against the application, and over HTTP on Contextify's own port."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import httpx
import pytest

from cmserver.base.http.frame import AsgiFrame
from cmserver.base.settings import Settings
from tests.base.http.tools import serving
from tests.doors.contextify.situations import SITUATIONS, Contextify
from tests.timeouts import scaled

PORT = 8420
"""Which Contextify's clients have in their code. Where something else listens there, any other one."""


@pytest.mark.parametrize("check", SITUATIONS, ids=lambda check: check.__name__.removeprefix("check_"))
async def test_without_a_key(guest: httpx.AsyncClient, check: Callable[[Contextify], Awaitable[None]]):
    await check(Contextify(guest))


async def test_over_http_one_after_the_other_on_one_server(app: AsgiFrame, settings: Settings):
    async with (
        serving(app, settings, PORT) as port,
        httpx.AsyncClient(base_url=f"http://localhost:{port}", timeout=scaled(20), trust_env=False) as http,
    ):
        assert (await http.get("/health")).json()["status"] == "ok"
        for check in SITUATIONS:
            await check(Contextify(http))
