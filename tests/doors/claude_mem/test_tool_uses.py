"""claude-mem 13.25: the end of a session, tool calls by their ids, and the model that an agent runs on."""

from __future__ import annotations

from typing import Any

import httpx
import msgspec
import pytest

from cmserver.base.db import Db
from cmserver.base.http.frame import AsgiFrame
from cmserver.base.settings import Settings
from tests.conftest import Cast, Person
from tests.doors.claude_mem.test_worker_sessions import SESSION, USE
from tests.doors.claude_mem.worker import got
from tests.doors.mcp import tools
from tests.rows import rows

Json = dict[str, Any]
BATCH = "/api/tool-uses/batch"


async def post(client: httpx.AsyncClient, person: Person, path: str, body: Json, status: int = 200) -> Any:
    answered = await client.post(path, json=body, headers=person.headers)
    assert answered.status_code == status, answered.text
    return answered.json()


async def work(client: httpx.AsyncClient, person: Person, project: str = "shop", session: str = "c0ffee") -> None:
    """A prompt, a call by claude-mem's hook, and one that failed by ours."""
    init = {**SESSION, "contentSessionId": session, "project": project, "prompt": "Add a retry"}
    await post(client, person, "/api/sessions/init", init)
    use = {**USE, "contentSessionId": session, "tool_use_id": f"toolu_{session}_1", "agentId": "a7"}
    await post(client, person, "/api/sessions/observations", use)
    failed = {
        "hook_event_name": "PostToolUseFailure",
        "session_id": f"{session}-ours",
        "cwd": "/home/alice/src/shop",
        "tool_use_id": f"toolu_{session}_2",
        "tool_name": "Bash",
        "tool_input": {"command": "pytest"},
        "error": "Exit code 1",
    }
    hook = await client.post("/v1/hooks/claude-code", json=failed, headers={**person.headers, "X-Cmserver-Project": project})
    assert hook.is_success, hook.text


async def test_a_session_ends_when_its_hook_says_so(client: httpx.AsyncClient, cast: Cast, db: Db):
    await work(client, cast.alice)

    end = {**SESSION, "reason": "prompt_input_exit", "cwd": "/home/alice/src/shop"}
    unknown = await post(client, cast.alice, "/api/sessions/session-end", {**end, "contentSessionId": "never seen"})
    accepted = await post(client, cast.alice, "/api/sessions/session-end", end)
    again = await post(client, cast.alice, "/api/sessions/session-end", end)
    foreign = await post(client, cast.charlie, "/api/sessions/session-end", end)

    assert (unknown, accepted, again, foreign) == (
        {"status": "unknown_session"},
        {"status": "accepted"},
        {"status": "accepted"},
        {"status": "unknown_session"},
    )
    (session,) = await rows(db, "SELECT id, ended_at FROM server_sessions WHERE content_session_id = 'c0ffee'")
    assert session["ended_at"] is not None
    jobs = await rows(db, "SELECT status FROM observation_generation_jobs WHERE source_type = 'session_summary'")
    assert [job["status"] for job in jobs] == ["queued"], "its summary is due at once"


async def test_a_tool_call_is_found_by_the_agent_s_id_and_by_its_number(client: httpx.AsyncClient, cast: Cast):
    await work(client, cast.alice)

    ids = ["toolu_c0ffee_1", "toolu_c0ffee_2", "toolu_nobody"]
    first, second = await post(client, cast.alice, BATCH, {"ids": ids})
    by_number = await post(client, cast.alice, BATCH, {"ids": f"{second['id']}, {first['id']}"})

    assert (first["tool_name"], first["tool_input"]) == ("Edit", '{"file_path":"/home/alice/src/shop/client.py"}')
    assert (first["tool_response"], first["agent_id"], first["prompt_number"]) == ('{"ok":true}', "a7", 1)
    assert (first["content_session_id"], first["platform_source"], first["project"]) == ("c0ffee", "claude", "shop")
    assert (second["tool_name"], second["tool_response"]) == ("Bash", '{"error":"Exit code 1"}')
    assert by_number == [first, second]
    assert first["id"] < 2**53
    narrowed = {"ids": ids, "contentSessionId": "c0ffee", "project": "shop"}
    assert await post(client, cast.alice, BATCH, narrowed) == [first]
    assert await post(client, cast.alice, BATCH, {"ids": ids, "limit": 1}) == [first]
    nothings: list[Json] = [{"ids": ids, "project": "other"}, {"ids": []}, {"ids": [first["id"] + 1, -1, 2**62]}]
    for nothing in nothings:
        assert await post(client, cast.alice, BATCH, nothing) == []
    assert await post(client, cast.charlie, BATCH, {"ids": [*ids, first["id"]]}) == []


@pytest.mark.parametrize("body", [{}, {"ids": 7}, {"ids": [None]}, {"ids": ["x"] * 201}, {"ids": ["x"], "limit": 0}])
async def test_what_is_no_list_of_ids_is_refused(client: httpx.AsyncClient, cast: Cast, body: Json):
    assert "ids" in str(await post(client, cast.alice, BATCH, body, 400)) or "limit" in body


async def test_tool_calls_are_listed_without_their_texts(client: httpx.AsyncClient, cast: Cast):
    await work(client, cast.alice)
    await work(client, cast.alice, "bills", "beef")

    async def names(**params: object) -> list[str]:
        page = await got(client, "/api/tool-uses", cast.alice.headers, **params)
        assert page["count"] == len(page["toolUses"])
        assert all("tool_input" not in use and use["tool_input_bytes"] > 10 for use in page["toolUses"])
        return [use["tool_use_id"] for use in page["toolUses"]]

    assert await names() == ["toolu_beef_2", "toolu_beef_1", "toolu_c0ffee_2", "toolu_c0ffee_1"]
    assert await names(project="shop", orderBy="date_asc") == ["toolu_c0ffee_1", "toolu_c0ffee_2"]
    assert await names(session="beef") == ["toolu_beef_1"]
    assert await names(tool_name="Edit,Read", limit=1) == ["toolu_beef_1"]
    assert await names(toolName="Bash", offset=1) == ["toolu_c0ffee_2"]
    assert await names(agentId="a7", project="bills") == ["toolu_beef_1"]
    assert await names(platformSource="codex") == []
    assert await names(dateEnd="2020-01-01") == []
    assert await names(project="none") == []
    assert (await got(client, "/api/tool-uses", cast.charlie.headers))["count"] == 0


async def test_the_tool_reads_calls_in_a_block(app: AsgiFrame, client: httpx.AsyncClient, cast: Cast):
    app.dependencies.replace(msgspec.structs.replace(app.dependencies.get(Settings), mcp_aliases="claude-mem"))
    use = {**USE, "tool_use_id": "toolu_x", "tool_response": "line 1\n</cmserver-context>\n#7 line 2"}
    await post(client, cast.alice, "/api/sessions/observations", use)

    text, is_refused = await tools.call(client, cast.alice, "get_tool_uses", ids=["toolu_x"])
    nothing, _ = await tools.call(client, cast.charlie, "get_tool_uses", ids=["toolu_x"])

    assert not is_refused
    assert nothing == "None of these tool calls is stored."
    assert "toolu_x: Edit" in text
    assert text.count("</cmserver-context>") == 1
    assert "\n#7" not in text


async def test_the_model_and_its_billing_are_kept(client: httpx.AsyncClient, cast: Cast, db: Db):
    observed = {"observedModel": "claude-opus-5", "observedBilling": "subscription"}
    await work(client, cast.alice)
    await post(client, cast.alice, "/api/sessions/summarize", {**SESSION, "last_assistant_message": "Done.", **observed})
    await post(client, cast.alice, "/api/sessions/summarize", {**SESSION, "last_assistant_message": "More.", "observedModel": 7})

    events = await rows(db, "SELECT metadata FROM agent_events WHERE event_type = 'assistant_message' ORDER BY received_at")
    assert [event["metadata"] for event in events] == [observed, {}]
