"""What an agent is told on a prompt and on a file: as the settings say, and only who may read."""

from __future__ import annotations

import httpx
import msgspec
import pytest

from cmserver.base.db import Db
from cmserver.base.settings import Settings
from tests.conftest import Cast, mint
from tests.make import Make
from tests.rows import rows

PROMPT = {"hook_event_name": "UserPromptSubmit", "prompt": "Why does src/pool.py wait for so long?"}
FILE = {"hook_event_name": "PreToolUse", "tool_name": "Read", "tool_input": {"file_path": "/home/alice/src/orders/src/pool.py"}}


@pytest.fixture
def settings(settings: Settings, request: pytest.FixtureRequest) -> Settings:
    """With what the test changes."""
    return msgspec.structs.replace(settings, **getattr(request, "param", {}))


@pytest.fixture(autouse=True)
async def known(cast: Cast, make: Make) -> None:
    """Something about the pool, among much else."""
    for number in range(10):
        await make.observation(project=cast.alice.project, title=f"Thing {number} of the checkout")
    await make.observation(project=cast.alice.project, title="src/pool.py waits for a lock", files_modified=["src/pool.py"])


async def read_context(client: httpx.AsyncClient, key: str, **body: object) -> str:
    headers = {"X-Api-Key": key, "X-Cmserver-Project": "github.com/acme/orders"}
    response = await client.post("/v1/hooks/claude-code", json={"session_id": "s1", **body}, headers=headers)
    assert response.status_code == 200, response.text
    return str(response.json().get("hookSpecificOutput", {}).get("additionalContext", ""))


@pytest.mark.parametrize(
    ("settings", "on_prompt", "on_file"),
    [({}, True, False), ({"context_on": "none"}, False, False), ({"context_on": "both"}, True, True)],
    indirect=["settings"],
    ids=["usual", "nothing", "both"],
)
async def test_a_prompt_and_a_file_are_answered_as_the_settings_say(
    client: httpx.AsyncClient, cast: Cast, on_prompt: bool, on_file: bool
):
    of_prompt = await read_context(client, cast.alice.key, **PROMPT)
    of_file = await read_context(client, cast.alice.key, **{**FILE, "session_id": "s2"})

    assert ("src/pool.py waits for a lock" in of_prompt) == on_prompt
    assert ("src/pool.py waits for a lock" in of_file) == on_file


async def test_what_an_agent_does_not_show_its_model_is_not_noted_as_shown(client: httpx.AsyncClient, cast: Cast, db: Db):
    headers = {"X-Api-Key": cast.alice.key, "X-Cmserver-Project": "github.com/acme/orders"}
    prompt = {"hook_event_name": "beforeSubmitPrompt", "conversation_id": "c1", "prompt": PROMPT["prompt"]}

    response = await client.post("/v1/hooks/cursor", json=prompt, headers=headers)

    assert (response.status_code, response.json()) == (200, {})
    assert await rows(db, "SELECT id FROM context_injections") == []
    assert len(await rows(db, "SELECT id FROM agent_events")) == 1


@pytest.mark.parametrize("settings", [{"context_on": "both"}], indirect=True, ids=["both"])
async def test_a_sub_agent_is_told_nothing(client: httpx.AsyncClient, cast: Cast):
    assert await read_context(client, cast.alice.key, **FILE, agent_id="a1") == ""


async def test_a_key_that_may_not_read_is_told_nothing_and_records_all_the_same(client: httpx.AsyncClient, cast: Cast, db: Db):
    _, key = await mint(db, cast.alice.team_id, "hook", scopes=["events:write", "sessions:write"])

    assert await read_context(client, key, **PROMPT) == ""
    assert await read_context(client, key, hook_event_name="SessionStart", source="startup") == ""
    assert len(await rows(db, "SELECT id FROM agent_events")) == 2


async def test_what_an_editor_puts_around_a_prompt_is_no_part_of_it(client: httpx.AsyncClient, cast: Cast, db: Db):
    tag = "<ide_opened_file>The user opened the file /w/x/src/checkout.py, which is about the checkout.</ide_opened_file>\n"

    bare = await read_context(client, cast.alice.key, **PROMPT)
    tagged = await read_context(client, cast.alice.key, **{**PROMPT, "prompt": tag + PROMPT["prompt"], "session_id": "s2"})
    only_tag = await read_context(client, cast.alice.key, **{**PROMPT, "prompt": tag, "session_id": "s3"})
    interrupted = await read_context(client, cast.alice.key, **{**PROMPT, "prompt": "[Request interrupted by user]"})

    assert bare
    assert (tagged, only_tag, interrupted) == (bare, "", "")
    kept = await search_prompts(client, cast.alice.key)
    assert kept == [PROMPT["prompt"], PROMPT["prompt"]]


async def search_prompts(client: httpx.AsyncClient, key: str) -> list[str]:
    body = {"query": "src/pool.py checkout interrupted", "kinds": ["prompt"], "project": "github.com/acme/orders"}
    response = await client.post("/v1/search", json=body, headers={"X-Api-Key": key})
    assert response.status_code == 200, response.text
    return [hit["text"] for hit in response.json()["prompts"]]
