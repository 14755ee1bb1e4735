"""The door for coding agents, over HTTP: what their hooks send is stored, and what they are answered."""

from __future__ import annotations

import json

import httpx
import psycopg
import pytest

from cmserver.base.db import Db
from cmserver.generation.job_notifier import JobNotifier
from tests.conftest import Cast, mint
from tests.doors.hooks.expect import sample
from tests.generation.tools import Outbox, Scripted
from tests.ingest.test_api import four_bytes_each
from tests.rows import rows

HOOK = "/v1/hooks/claude-code"
COMMON = {"session_id": "fb927459", "cwd": "/home/alice/src/orders", "prompt_id": "p1"}


def payload(name: str, **fields: object) -> dict[str, object]:
    return {**COMMON, "hook_event_name": name, **fields}


async def test_a_session_s_hooks_lead_to_observations_and_one_summary(
    client: httpx.AsyncClient, cast: Cast, db: Db, notifier: JobNotifier
):
    async def send(body: dict[str, object]) -> dict[str, object]:
        response = await client.post(HOOK, json=body, headers=cast.alice.headers)
        assert response.status_code == 200
        return response.json()

    started = await send(payload("SessionStart", source="startup"))
    assert "nothing has been recorded" in str(started["hookSpecificOutput"])
    for body in (
        payload("UserPromptSubmit", prompt="please write a note"),
        payload("PostToolUse", tool_name="Write", tool_input={"file_path": "/home/alice/src/orders/note.txt"}, tool_use_id="t1"),
        payload("PostToolUse", tool_name="Write", tool_input={"file_path": "/home/alice/src/orders/note.txt"}, tool_use_id="t1"),
        payload("Stop", last_assistant_message="All done."),
        payload("SessionEnd", reason="other"),
        payload("SessionEnd", reason="other"),
    ):
        assert await send(body) == {}

    provider = Scripted()
    outbox = Outbox(db, notifier, cast.alice.principal, cast.alice.project)
    await (await outbox.hand(provider)).work()

    assert [prompt.kind for prompt in provider.prompts] == ["observations", "summary"]
    assert provider.prompts[0].root == "/home/alice/src/orders"
    assert provider.prompts[0].requests == ["please write a note"]
    assert [event.event_type for event in provider.prompts[0].events] == ["user_prompt", "tool_use", "assistant_message"]
    assert provider.prompts[1].last_message == "All done."
    assert await outbox.value("SELECT count(*) FROM observations WHERE kind = 'summary'") == 1
    assert await outbox.value("SELECT min(prompt_number) FROM observations") == 1
    project = await outbox.value("SELECT canonical_id FROM projects p JOIN observations o ON o.project_id = p.id LIMIT 1")
    assert project == "/home/alice/src/orders"

    assert await send(payload("SessionStart", source="resume")) == {}  # it knows all that it did itself
    cleared = await send(payload("SessionStart", source="clear", session_id="another"))
    assert "saw e1" in str(cleared["hookSpecificOutput"])


async def test_what_comes_late_is_stored_and_told_nothing(client: httpx.AsyncClient, cast: Cast, db: Db):
    start = payload("SessionStart", source="startup")

    late = await client.post(HOOK, json=start, headers={**cast.alice.headers, "X-Cmserver-Late": "1"})

    assert late.json() == {}
    assert await rows(db, "SELECT event_type FROM agent_events") == [{"event_type": "session_start"}]
    assert await rows(db, "SELECT external_session_id FROM server_sessions") == [{"external_session_id": COMMON["session_id"]}]
    assert await rows(db, "SELECT reason FROM context_injections") == []


async def test_the_git_remote_names_the_project_and_the_key_s_own_project_comes_first(
    client: httpx.AsyncClient, cast: Cast, db: Db
):
    _, bound = await mint(
        db, cast.alice.team_id, "hook", scopes=["events:write", "sessions:write"], project_id=cast.alice.project.id
    )
    remote = {"X-Cmserver-Git-Remote": "git@github.com:acme/shop.git", "X-Cmserver-Delivery": "d1"}

    await client.post(HOOK, json=payload("Stop"), headers={**cast.alice.headers, **remote})
    await client.post(HOOK, json=payload("Stop"), headers={"X-Api-Key": bound, **remote, "X-Cmserver-Delivery": "d2"})

    async with db.system() as conn:
        cursor = await conn.execute(
            "SELECT p.canonical_id FROM agent_events e JOIN projects p ON p.id = e.project_id ORDER BY e.received_at"
        )
        assert [row[0] for row in await cursor.fetchall()] == ["github.com/acme/shop", "github.com/acme/orders"]


async def test_a_wrong_key_is_told_where_the_user_sees_it(client: httpx.AsyncClient, cast: Cast):
    response = await client.post(HOOK, json=payload("Stop"), headers={"X-Api-Key": "cms_nothing"})

    assert response.status_code == 403
    assert response.json()["systemMessage"].startswith("cmserver: This API key is wrong")


async def test_an_unknown_client_is_told_which_there_are(client: httpx.AsyncClient, cast: Cast):
    response = await client.post("/v1/hooks/emacs", json=payload("Stop"), headers=cast.alice.headers)

    assert response.status_code == 404
    assert "claude-code" in response.json()["message"]


@pytest.mark.parametrize("character", ["\x00", "\ud800"])
async def test_no_hook_is_refused_for_a_character_that_cannot_be_stored(
    client: httpx.AsyncClient, cast: Cast, db: Db, character: str
):
    names = ("session_id", "tool_use_id", "cwd", "prompt_id", "agent_id", "agent_type", "source", "model")
    fields = {name: f"{name}{character}" for name in names}

    for hook in ("SessionStart", "UserPromptSubmit", "PostToolUse", "SessionEnd", f"New{character}"):
        body = json.dumps({**fields, "hook_event_name": hook})
        assert (await client.post(HOOK, content=body, headers=cast.alice.headers)).status_code == 200

    async with db.system() as conn:
        cursor = await conn.execute(
            "SELECT DISTINCT s.external_session_id, p.canonical_id, s.metadata ->> 'model' FROM agent_events e"
            " JOIN server_sessions s ON s.id = e.server_session_id JOIN projects p ON p.id = e.project_id"
        )
        assert await cursor.fetchall() == [("session_id\ufffd", "cwd\ufffd", "model\ufffd")]
        cursor = await conn.execute("SELECT source_event_id FROM agent_events WHERE event_type = 'tool_use'")
        assert await cursor.fetchall() == [("tool:tool_use_id\ufffd",)]


async def test_the_longest_session_id_is_stored_and_a_longer_one_refused(client: httpx.AsyncClient, cast: Cast):
    longest = four_bytes_each(500)

    taken = await client.post(HOOK, json=payload("SessionStart", session_id=longest), headers=cast.alice.headers)
    refused = await client.post(HOOK, json=payload("SessionStart", session_id=longest + "a"), headers=cast.alice.headers)

    assert [taken.status_code, refused.status_code] == [200, 400]
    assert [issue["path"] for issue in refused.json()["issues"]] == ["$.session_id"]


async def test_a_hook_that_names_neither_project_nor_folder_is_told_so(client: httpx.AsyncClient, cast: Cast):
    response = await client.post(HOOK, json=payload("Stop", cwd=None), headers=cast.alice.headers)

    assert response.status_code == 400
    assert response.json()["issues"] == [{"path": "$.cwd", "message": "required"}]


async def test_a_tool_use_told_by_its_hook_and_by_its_batch_is_one_event(client: httpx.AsyncClient, cast: Cast, db: Db):
    for name in ("PostToolUse-Bash", "PostToolBatch", "PostToolBatch"):
        response = await client.post(HOOK, json=sample("claude_code", name), headers=cast.alice.headers)
        assert response.status_code == 200

    async with db.system() as conn:
        cursor = await conn.execute("SELECT event_type, source_event_id, payload ->> 'hook_event_name' FROM agent_events")
        assert await cursor.fetchall() == [("tool_use", "tool:toolu_e53f63ceb6234eae85709e8e", "PostToolUse")]


async def test_context_that_was_given_does_not_come_in_again(client: httpx.AsyncClient, cast: Cast, db: Db):
    context = "<cmserver-context>\n#12 the limit itself\n</cmserver-context>"
    for nth, body in enumerate(
        [
            payload("UserPromptSubmit", prompt=f"go on\n{context}\nplease"),
            payload(
                "PostToolUse", tool_name="Bash", tool_input={"command": "cat log"}, tool_response={"stdout": f"a\n{context}\nb"}
            ),
            payload("Stop", last_assistant_message=f"I was told: {context}"),
        ]
    ):
        headers = {**cast.alice.headers, "X-Cmserver-Delivery": f"d{nth}"}
        assert (await client.post(HOOK, json=body, headers=headers)).status_code == 200

    async with db.system() as conn:
        cursor = await conn.execute("SELECT count(*), bool_or(payload::text ~ 'limit') FROM agent_events")
        assert await cursor.fetchone() == (3, False)
        cursor = await conn.execute("SELECT count(*) FROM turns WHERE prompt ~ 'limit'")
        assert await cursor.fetchone() == (0,)


async def test_what_is_stored_is_not_sent_again_because_nothing_could_be_told(
    client: httpx.AsyncClient, cast: Cast, db: Db, monkeypatch: pytest.MonkeyPatch
):
    async def failing(*_: object) -> None:
        raise psycopg.errors.ForeignKeyViolation

    monkeypatch.setattr("cmserver.doors.hooks.take.build_context", failing)

    response = await client.post(HOOK, json=payload("SessionStart", source="startup"), headers=cast.alice.headers)

    assert (response.status_code, response.json()) == (200, {})
    async with db.system() as conn:
        cursor = await conn.execute("SELECT event_type FROM agent_events")
        assert await cursor.fetchall() == [("session_start",)]
