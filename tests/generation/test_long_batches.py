"""A worker's heartbeats go on while a long batch is read: that happens in a thread."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import cast
from uuid import UUID

from cmserver.generation.batch import Batch
from cmserver.generation.model import Claim, ClaimedJob

NOBODY = UUID(int=0)


async def _count_turns(output: object) -> int:
    """How often another task of the loop gets its turn while a batch of one test run is read."""
    turns = 0

    async def beat() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    payload = {"tool_name": "Bash", "tool_input": {"command": "pytest -q"}, "tool_response": output}
    job = SimpleNamespace(
        id=NOBODY, event_type="tool_use", payload=payload, root=None, branch=None, occurred_at=None, created_at=datetime.now(UTC)
    )
    batch = Batch(Claim(lane=NOBODY, team_id=NOBODY, project_id=NOBODY, claim=1, job_ids=[NOBODY]))
    batch.jobs = [cast("ClaimedJob", job)]
    beating = asyncio.create_task(beat())
    try:
        await batch.read_events()
    finally:
        beating.cancel()
    assert list(batch.readings) == [NOBODY]
    return turns


async def test_heartbeats_go_on_while_a_long_batch_is_read():
    assert await _count_turns([{"text": "1" * 15_000} for _ in range(4)]) > 0
