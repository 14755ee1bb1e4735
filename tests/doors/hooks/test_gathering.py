"""Which hooks make the events of a turn due, and under which policies they do not."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from cmserver.base.settings import Settings
from tests.conftest import Cast
from tests.generation.tools import Outbox

DUE_IN = "SELECT greatest(extract(epoch FROM due_at - now()), 0)::float8 FROM generation_lanes"


@pytest.fixture
def settings(database: str, tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path, database_url=database, generation_debounce_seconds=2, generation_gather_seconds=600)


async def send(client: httpx.AsyncClient, cast: Cast, hook: str, **fields: object) -> None:
    headers = {**cast.alice.headers, "X-Cmserver-Project": cast.alice.project.canonical_id}
    body = {"hook_event_name": hook, "session_id": "s1", "cwd": "/src", **fields}
    assert (await client.post("/v1/hooks/claude-code", json=body, headers=headers)).status_code == 200


async def edit(client: httpx.AsyncClient, cast: Cast) -> None:
    await send(client, cast, "PostToolUse", tool_name="Edit", tool_use_id="t1", tool_input={"file_path": "/src/a.py"})


@pytest.mark.parametrize(
    ("hook", "fields"),
    [
        ("Stop", {"last_assistant_message": "All done!"}),
        ("StopFailure", {"error": "overloaded"}),
        ("UserPromptSubmit", {"prompt": "go on with the next one"}),
    ],
)
async def test_the_end_of_a_turn_makes_its_events_due(
    client: httpx.AsyncClient, cast: Cast, outbox: Outbox, hook: str, fields: dict[str, object]
):
    await edit(client, cast)
    waiting = await outbox.value(DUE_IN)
    await send(client, cast, hook, **fields)

    assert isinstance(waiting, float)
    assert 300 < waiting <= 600
    assert await outbox.value(DUE_IN) == 0


@pytest.mark.parametrize(
    ("policy", "least", "most"), [({"mode": "at_end"}, 86_400 * 29, 86_400 * 30), ({"debounceSeconds": 300}, 150, 300)]
)
async def test_a_policy_that_says_when_is_not_hastened_by_a_turns_end(
    client: httpx.AsyncClient, cast: Cast, outbox: Outbox, policy: dict[str, object], least: float, most: float
):
    path = f"/v1/projects/{cast.alice.project.id}"
    assert (await client.patch(path, json={"generationPolicy": policy}, headers=cast.alice.headers)).status_code == 200
    await edit(client, cast)
    await send(client, cast, "UserPromptSubmit", prompt="go on")
    await send(client, cast, "Stop", last_assistant_message="All done!")

    seconds = await outbox.value(DUE_IN)

    assert isinstance(seconds, float)
    assert least < seconds <= most
