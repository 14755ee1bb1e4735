"""What takes long to clean leaves room for other teams."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from uuid import UUID, uuid4

from cmserver.base.shares import Share, set_share
from cmserver.redaction.clean import LARGE_BYTES, run_aside
from tests.timeouts import ENOUGH_SECONDS


async def test_two_keys_of_a_team_leave_a_thread_to_other_teams():
    gate, busy_team = threading.Event(), uuid4()

    async def clean(team_id: UUID, function: Callable[[], bool]) -> bool:
        set_share(Share(uuid4(), "ingest", team_id))
        return await run_aside(function, size_bytes=LARGE_BYTES)

    held = [asyncio.create_task(clean(busy_team, gate.wait)) for _ in range(2)]
    await asyncio.sleep(0)

    assert await asyncio.wait_for(asyncio.create_task(clean(uuid4(), lambda: True)), ENOUGH_SECONDS)

    gate.set()
    assert all(await asyncio.gather(*held))
