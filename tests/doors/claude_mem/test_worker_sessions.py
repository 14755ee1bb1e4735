"""What claude-mem's hooks tell: prompts, uses of tools and the ends of turns, with the bodies that they send."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from cmserver.app import create_app
from cmserver.base.db import Db
from cmserver.base.notifications import NotificationListener
from cmserver.base.settings import Settings
from cmserver.doors.claude_mem.rows import platform
from cmserver.doors.claude_mem.session_events import session_number
from cmserver.generation.job_notifier import JobNotifier
from cmserver.ingest import session_lifecycle
from cmserver.ingest.model import Checkpoints
from tests.conftest import Cast, bound_to
from tests.doors.claude_mem.conftest import visitor
from tests.rows import rows
from tests.table import try_rows

Json = dict[str, Any]
SESSION = {"contentSessionId": "c0ffee", "platformSource": "claude"}
USE = {
    **SESSION,
    "tool_name": "Edit",
    "tool_input": {"file_path": "/home/alice/src/shop/client.py"},
    "tool_response": {"ok": True},
    "cwd": "/home/alice/src/shop",
}


async def post(client: httpx.AsyncClient, what: str, **fields: object) -> Json:
    response = await client.post(f"/api/sessions/{what}", json={**SESSION, **fields})
    assert response.status_code == 200, response.text
    return response.json()


async def init(client: httpx.AsyncClient, **fields: object) -> Json:
    return await post(client, "init", **{"project": "shop", "prompt": "Add a retry to the client", **fields})


async def use(client: httpx.AsyncClient, **fields: object) -> Json:
    return await post(client, "observations", **{**USE, **fields})


async def stored(db: Db) -> list[tuple[str, str]]:
    """Each event's type and project, in the order of arrival."""
    found = await rows(
        db,
        "SELECT event_type, canonical_id FROM agent_events e JOIN projects p ON p.id = e.project_id ORDER BY e.received_at, e.id",
    )
    return [(row["event_type"], row["canonical_id"]) for row in found]


async def texts(db: Db) -> list[str]:
    return [row["text"] for row in await rows(db, "SELECT prompt AS text FROM turns ORDER BY created_at")]


# ---- prompts


async def test_a_prompt_begins_a_session_and_is_numbered(guest: httpx.AsyncClient, db: Db):
    first = await init(guest)
    second = await init(guest, prompt="Now test it")

    number = first["sessionDbId"]
    assert first == {
        "sessionDbId": number,
        "promptNumber": 1,
        "skipped": False,
        "contextInjected": False,
        "status": "initialized",
    }
    assert second == {**first, "promptNumber": 2, "contextInjected": True}
    assert await texts(db) == ["Add a retry to the client", "Now test it"]
    assert await stored(db) == [("user_prompt", "shop")] * 2


async def test_the_number_of_a_session_is_one_that_javascript_can_hold(guest: httpx.AsyncClient, db: Db):
    answer = await init(guest)

    (session,) = await rows(db, "SELECT id FROM server_sessions")
    assert type(answer["sessionDbId"]) is int
    assert 0 < answer["sessionDbId"] == session_number(session["id"]) < 2**53


async def test_a_prompt_that_is_private_is_stored_without_its_text_and_so_is_what_is_done_for_it(guest: httpx.AsyncClient, db: Db):
    answer = await init(guest, prompt="<private>the launch code is 0000</private> ")
    skipped = await use(guest)
    ended = await post(guest, "summarize", last_assistant_message="I launched it.")

    assert (answer["skipped"], answer["reason"], answer["promptNumber"]) == (True, "private", 1)
    assert type(answer["sessionDbId"]) is int
    assert skipped == ended == {"status": "skipped", "reason": "private"}
    assert [text.strip() for text in await texts(db)] == ["[redacted:private]"]
    assert await stored(db) == [("user_prompt", "shop")]
    assert "launch" not in str(await rows(db, "SELECT * FROM agent_events"))


async def test_after_the_next_prompt_everything_is_recorded_again(guest: httpx.AsyncClient, db: Db):
    await init(guest, prompt="<private>secret</private>")
    await init(guest, prompt="<private>half</private> of it")

    assert (await use(guest))["status"] == "queued"
    assert (await texts(db))[1].endswith(" of it")


async def test_a_session_whose_prompt_never_came_is_not_private(guest: httpx.AsyncClient):
    assert (await use(guest))["status"] == "queued"


async def test_the_same_prompt_a_moment_later_is_a_duplicate(guest: httpx.AsyncClient, db: Db):
    first = await init(guest)
    second = await init(guest)

    assert second == {
        "sessionDbId": first["sessionDbId"],
        "promptNumber": 1,
        "skipped": True,
        "reason": "duplicate",
        "contextInjected": True,
    }
    assert await texts(db) == ["Add a retry to the client"]


async def test_the_same_prompt_twice_at_once_is_one(guest: httpx.AsyncClient, db: Db):
    await asyncio.gather(*(init(guest) for _ in range(4)))

    assert await texts(db) == ["Add a retry to the client"]


async def test_the_same_prompt_some_time_later_is_another_one(guest: httpx.AsyncClient, db: Db):
    await init(guest, prompt="go on")
    await rows(db, "UPDATE turns SET created_at = created_at - interval '11 seconds'")

    answer = await init(guest, prompt="go on")

    assert (answer["skipped"], answer["promptNumber"]) == (False, 2)
    assert await texts(db) == ["go on", "go on"]


@pytest.mark.parametrize(
    ("prompt", "is_protocol", "count"),
    [
        ("<task-notification>done</task-notification>", True, 0),
        ("\n<task-notification id='1'>\ndone\n</task-notification>\n", True, 0),
        ("<task-notification>done</task-notification> and now?", False, 1),
        ("<task-notification>a</task-notification><task-notification>b</task-notification>", False, 0),
        ("<task-notification>never closed", False, 1),
        ("<task-notifications>a</task-notifications>", False, 1),
    ],
)
async def test_what_the_agent_tells_itself_is_no_prompt(
    guest: httpx.AsyncClient, db: Db, prompt: str, is_protocol: bool, count: int
):
    answer = await init(guest, prompt=prompt)

    assert (answer == {"skipped": True, "reason": "internal_protocol"}) is is_protocol
    assert len(await texts(db)) == count


@pytest.mark.parametrize("prompt", [None, ""])
async def test_a_prompt_without_text_is_a_picture(guest: httpx.AsyncClient, db: Db, prompt: str | None):
    await init(guest, prompt=prompt)

    assert await texts(db) == ["[media prompt]"]


async def test_a_prompt_of_megabytes_is_cut_between_two_characters(guest: httpx.AsyncClient, db: Db):
    answer = await init(guest, prompt="a" + "ü" * 2_000_000)

    (text,) = await texts(db)
    assert answer["skipped"] is False
    assert 10_000 < len(text) < 20_000
    assert text.startswith("aüü")
    assert text.endswith("ü")
    assert "�" not in text


# ---- uses of tools


async def test_a_use_of_a_tool_is_an_event_from_which_something_is_generated(guest: httpx.AsyncClient, db: Db):
    await init(guest)
    answer = await use(guest, agentId="a1", agentType="Explore")

    (event,) = await rows(db, "SELECT * FROM agent_events WHERE event_type = 'tool_use'")
    (job,) = await rows(db, "SELECT id FROM observation_generation_jobs WHERE agent_event_id = %s", event["id"])
    assert answer == {
        "status": "queued",
        "observationCount": 1,
        "sessionId": "c0ffee",
        "serverSessionId": str(event["server_session_id"]),
        "eventId": str(event["id"]),
        "generationJobId": str(job["id"]),
        "transport": "enqueued",
    }
    assert event["payload"] == {name: USE[name] for name in ("tool_name", "tool_input", "tool_response", "cwd")}
    assert event["metadata"] == {"agent_id": "a1", "agent_type": "Explore"}
    assert (event["platform_source"], event["source_adapter"], event["origin"]) == ("claude", "hook", "hook")


async def test_a_use_goes_to_the_project_that_the_prompt_named(guest: httpx.AsyncClient, db: Db):
    await init(guest, project="shop/feature-x")
    await use(guest, cwd="/somewhere/else/entirely")
    await post(guest, "summarize", last_assistant_message="Done.")

    assert await stored(db) == [
        ("user_prompt", "shop/feature-x"),
        ("tool_use", "shop/feature-x"),
        ("assistant_message", "shop/feature-x"),
    ]
    assert len(await rows(db, "SELECT 1 FROM server_sessions")) == 1


async def test_the_name_that_their_hooks_give_finds_our_project(guest: httpx.AsyncClient, db: Db):
    """They name it like its folder, where ours is called by its remote."""
    await init(guest, project="orders")
    await use(guest, contentSessionId="other", cwd="/home/alice/src/orders")

    assert await stored(db) == [("user_prompt", "github.com/acme/orders"), ("tool_use", "github.com/acme/orders")]


async def test_without_a_prompt_the_folder_is_the_project(guest: httpx.AsyncClient, db: Db):
    await use(guest)
    await use(guest, contentSessionId="other", cwd="/home/alice/src/shop/")

    assert await stored(db) == [("tool_use", "/home/alice/src/shop")] * 2


async def test_without_a_prompt_a_folder_finds_the_project_of_its_name(guest: httpx.AsyncClient, db: Db):
    await init(guest, project="kiosk")
    await use(guest, contentSessionId="unheard-of", cwd="C:\\Users\\alice\\kiosk")

    assert await stored(db) == [("user_prompt", "kiosk"), ("tool_use", "kiosk")]


async def test_of_a_session_nobody_knows_anything_about_nothing_is_lost(guest: httpx.AsyncClient, db: Db):
    await use(guest, cwd=None)

    assert await stored(db) == [("tool_use", "unknown")]


async def test_a_project_may_be_named_by_its_id(guest: httpx.AsyncClient, db: Db, cast: Cast):
    await init(guest, project=str(cast.alice.project.id))

    assert await stored(db) == [("user_prompt", cast.alice.project.canonical_id)]


async def test_a_folder_may_be_called_like_an_id(guest: httpx.AsyncClient, db: Db):
    named = "019aa000-0000-7000-8000-000000000000"

    await init(guest, project=named)
    await use(guest)

    assert await stored(db) == [("user_prompt", "unknown"), ("tool_use", "unknown")]


@pytest.mark.parametrize("name", ["tool_use_id", "toolUseId"])
async def test_the_same_use_told_twice_is_one_event(guest: httpx.AsyncClient, db: Db, name: str):
    first = await use(guest, **{name: "toolu_1"})
    second = await use(guest, **{name: "toolu_1"})

    assert first == second
    assert len(await stored(db)) == 1


async def test_two_uses_that_look_alike_are_two_when_they_have_no_id(guest: httpx.AsyncClient, db: Db):
    """An agent may well read the same file twice, at once."""
    first = await use(guest)
    second = await use(guest)

    assert first["eventId"] != second["eventId"]
    assert len(await stored(db)) == 2


@pytest.mark.parametrize("tool", ["ListMcpResourcesTool", "SlashCommand", "Skill", "TodoWrite", "AskUserQuestion"])
async def test_tools_that_do_nothing_to_the_project_are_left_out(guest: httpx.AsyncClient, db: Db, tool: str):
    assert await use(guest, tool_name=tool) == {"status": "skipped", "reason": "tool_excluded"}
    assert await stored(db) == []


@pytest.mark.parametrize(
    "tool", ["mcp__cmserver__observation_search", "mcp__plugin_cmserver_cmserver__x", "mcp__plugin_claude-mem_mcp-search__search"]
)
async def test_what_the_memory_has_given_is_not_remembered_again(guest: httpx.AsyncClient, tool: str):
    assert await use(guest, tool_name=tool) == {"status": "skipped", "reason": "tool_excluded"}


@pytest.mark.parametrize(("command", "is_kept"), [("cmserver context orders | head", False), ("cmserver run", True)])
async def test_nor_is_what_a_command_has_read_there(guest: httpx.AsyncClient, db: Db, command: str, is_kept: bool):
    await use(guest, tool_name="Bash", tool_input={"command": command})

    assert len(await stored(db)) == int(is_kept)


@pytest.mark.parametrize("field", ["file_path", "notebook_path"])
async def test_an_agent_s_notes_about_its_sessions_are_left_out(guest: httpx.AsyncClient, field: str):
    answer = await use(guest, tool_input={field: "/home/alice/.claude/session-memory/notes.md"})

    assert answer == {"status": "skipped", "reason": "session_memory_meta"}


async def test_an_archived_project_is_left_alone(guest: httpx.AsyncClient, client: httpx.AsyncClient, db: Db, cast: Cast):
    await init(guest, project="attic")
    archived = await client.patch("/v1/projects/attic", json={"archived": True}, headers=cast.alice.headers)
    assert archived.status_code == 200, archived.text

    assert await init(guest, project="attic", prompt="Another") == {"skipped": True, "reason": "project_excluded"}
    assert await init(guest, contentSessionId="new", project="attic") == {"skipped": True, "reason": "project_excluded"}
    assert await use(guest) == {"status": "skipped", "reason": "project_excluded"}
    assert await post(guest, "summarize") == {"status": "skipped", "reason": "project_excluded"}
    assert await stored(db) == [("user_prompt", "attic")]


# ---- ends of turns


async def test_the_end_of_a_turn_keeps_the_last_message_and_costs_no_summary(guest: httpx.AsyncClient, db: Db):
    await init(guest)
    await use(guest)
    answer = await post(guest, "summarize", last_assistant_message="I added it. <private>sk</private>")

    (event,) = await rows(db, "SELECT payload FROM agent_events WHERE event_type = 'assistant_message'")
    assert (answer["status"], answer["generationJobId"]) == ("queued", None)
    assert event["payload"] == {"last_assistant_message": "I added it. [redacted:private]"}
    turn = {"prompt": "Add a retry to the client", "reply": "I added it. [redacted:private]", "actor_id": "guest on this machine"}
    assert await rows(db, "SELECT prompt, reply, actor_id FROM turns") == [turn]
    assert await rows(db, "SELECT 1 FROM observation_generation_jobs WHERE source_type = 'session_summary'") == []
    assert await rows(db, "SELECT 1 FROM server_sessions WHERE ended_at IS NULL")


async def test_several_turns_with_enough_work_cost_one_summary(
    settings: Settings, db: Db, hub: NotificationListener, notifier: JobNotifier, cast: Cast, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(session_lifecycle, "CHECKPOINTS", Checkpoints(events=3, minutes=30.0))
    app = create_app(settings, db, hub, notifier, secret=b"x")

    async with visitor(app) as guest:
        jobs: list[object] = []
        for turn in range(5):
            await init(guest, prompt=f"Turn {turn}")
            await use(guest)
            jobs.append((await post(guest, "summarize", last_assistant_message=f"Did {turn}."))["generationJobId"])

    summaries = await rows(db, "SELECT id FROM observation_generation_jobs WHERE source_type = 'session_summary'")
    assert [str(row["id"]) for row in summaries] == [jobs[2]]
    assert jobs == [None, None, jobs[2], None, None]


async def test_a_sub_agent_s_turn_is_not_the_session_s(guest: httpx.AsyncClient, db: Db):
    answer = await post(guest, "summarize", agentId="a1", last_assistant_message="Found it.")

    assert answer == {"status": "skipped", "reason": "subagent_context"}
    assert await stored(db) == []


# ---- who speaks, and of what


@try_rows(
    ("said", "meant"),
    [
        (None, "claude"),
        ("", "claude"),
        ("  ", "claude"),
        ("Claude Code", "claude"),
        ("OpenAI Codex CLI", "codex"),
        ("cursor-agent", "cursor"),
        ("transcript", "codex"),
        ("Gemini CLI", "gemini-cli"),
        ("x" * 500, "x" * 100),
        ("a\x00b", "a�b"),
    ],
)
def test_an_agent_is_known_by_the_word_that_claude_mem_has_for_it(said: str | None, meant: str):
    assert platform(said) == meant


@pytest.mark.parametrize(
    ("body", "query", "headers"),
    [
        ({"platformSource": "Codex CLI"}, "", {}),
        ({"platform_source": "codex"}, "", {}),
        ({}, "?platformSource=codex", {}),
        ({}, "?platform_source=codex", {}),
        ({}, "", {"X-Platform-Source": "codex"}),
        ({}, "", {"X-Claude-Mem-Platform-Source": "codex"}),
    ],
)
async def test_it_is_told_in_any_of_six_places(
    guest: httpx.AsyncClient, db: Db, body: dict[str, str], query: str, headers: dict[str, str]
):
    sent = {"contentSessionId": "c0ffee", "project": "shop", "prompt": "hi", **body}
    response = await guest.post(f"/api/sessions/init{query}", json=sent, headers=headers)

    assert response.status_code == 200
    assert await rows(db, "SELECT platform_source FROM server_sessions") == [{"platform_source": "codex"}]


async def test_two_agents_may_call_their_sessions_the_same(guest: httpx.AsyncClient, db: Db):
    await init(guest)
    await init(guest, platformSource="codex", project="billing")
    await use(guest)
    await use(guest, platformSource="codex")

    assert await stored(db) == [
        ("user_prompt", "shop"),
        ("user_prompt", "billing"),
        ("tool_use", "shop"),
        ("tool_use", "billing"),
    ]


async def test_a_stranger_s_session_of_that_name_is_not_found(
    client: httpx.AsyncClient, guest: httpx.AsyncClient, db: Db, cast: Cast
):
    await client.post("/api/sessions/init", json={**SESSION, "project": "secret", "prompt": "x"}, headers=cast.charlie.headers)

    await use(guest)

    assert await stored(db) == [("user_prompt", "secret"), ("tool_use", "/home/alice/src/shop")]


async def test_a_key_for_one_project_writes_there_and_nowhere_else(
    client: httpx.AsyncClient, guest: httpx.AsyncClient, db: Db, cast: Cast
):
    bound = await bound_to(db, cast.alice, "ledger", scopes=["events:write", "sessions:write"])
    await init(guest, project="shop-app")

    for what, body in (("init", {"project": "shop-app", "prompt": "hi"}), ("observations", USE), ("summarize", {})):
        response = await client.post(f"/api/sessions/{what}", json={**SESSION, **body}, headers=bound.headers)
        assert response.status_code == 200, response.text

    assert await stored(db) == [
        ("user_prompt", "shop-app"),
        ("user_prompt", "ledger"),
        ("tool_use", "ledger"),
        ("assistant_message", "ledger"),
    ]


@try_rows(
    ("what", "body", "path"),
    [
        ("init", {"prompt": "hi"}, "$.contentSessionId"),
        ("init", {"contentSessionId": ""}, "$.contentSessionId"),
        ("init", {"contentSessionId": "x" * 501}, "$.contentSessionId"),
        ("init", {"contentSessionId": 7}, "$.contentSessionId"),
        ("observations", {"contentSessionId": "c"}, "$.tool_name"),
        ("observations", {"contentSessionId": "c", "tool_name": ""}, "$.tool_name"),
        ("summarize", {}, "$.contentSessionId"),
    ],
)
async def test_what_is_missing_is_said(guest: httpx.AsyncClient, what: str, body: Json, path: str):
    response = await guest.post(f"/api/sessions/{what}", json=body)

    assert response.status_code == 400
    assert response.json()["error"] == "ValidationError"
    assert [issue["path"] for issue in response.json()["issues"]] == [path]


async def test_characters_that_cannot_be_stored_are_no_reason_to_refuse(guest: httpx.AsyncClient, db: Db):
    raw = rb'{"contentSessionId":"a\u0000b","project":"sh\ud800op","prompt":"hi \u0000","tool_name":"Ed\u0000it","cwd":"\u0000"}'
    for what in ("init", "observations", "summarize"):
        response = await guest.post(f"/api/sessions/{what}", content=raw, headers={"Content-Type": "application/json"})
        assert response.status_code == 200, response.text

    assert await stored(db) == [(kind, "sh�op") for kind in ("user_prompt", "tool_use", "assistant_message")]
