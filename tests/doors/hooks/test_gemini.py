"""Gemini CLI's hooks: payloads as its reference says, exactly, and the answers."""

from __future__ import annotations

import httpx

from cmserver.base.db import Db
from cmserver.doors.hooks.gemini import ADAPTER
from cmserver.ingest.door import read_object
from cmserver.recall.model import SessionStart
from tests.conftest import Cast
from tests.doors.hooks.expect import (
    DELIVERY,
    ROOT,
    Expected,
    Kept,
    check,
    names,
    sample,
)
from tests.make import Make
from tests.rows import rows
from tests.table import try_rows

_NOISE = Expected(kept=None)
_USED = Expected(kept=Kept(type="tool_use", generate=True), context=True)


def _started(source: SessionStart) -> Expected:
    metadata: dict[str, object] = {"cwd": ROOT, "source": source}
    return Expected(kept=Kept(type="session_start"), moment="start", source=source, metadata=metadata)


def _failed(error: str) -> Expected:
    return Expected(kept=Kept(type="tool_use_failure", generate=True, added={"error": error}), context=True)


BY_SCHEMA = {
    "AfterAgent": Expected(
        kept=Kept(
            type="assistant_message",
            generate=True,
            added={"last_assistant_message": "The comparison left the limit itself out; it is fixed and tested."},
        ),
        moment="turn_end",
        message=False,
    ),
    "AfterModel": _NOISE,
    "AfterTool-mcp-ours": Expected(kept=None, context=True),
    "AfterTool-read_file": Expected(
        kept=Kept(type="tool_use", generate=True), moment="file", file=f"{ROOT}/src/orders/limits.py", context=True
    ),
    "AfterTool-read_file-failed": _failed("File not found."),
    "AfterTool-replace": _USED,
    "AfterTool-run_shell_command": _USED,
    "AfterTool-run_shell_command-error": _failed("spawn ruff ENOENT"),
    "AfterTool-run_shell_command-failed": _USED,
    "AfterTool-write_file": _USED,
    "BeforeAgent": Expected(
        kept=Kept(type="user_prompt", generate=True),
        moment="prompt",
        prompt="Why is an order of exactly the limit refused?",
        context=True,
    ),
    "BeforeModel": _NOISE,
    "BeforeTool-read_file": _NOISE,
    "BeforeToolSelection": _NOISE,
    "Notification": _NOISE,
    "PreCompress": Expected(kept=Kept(type="pre_compact")),
    "SessionEnd": Expected(kept=Kept(type="session_end"), moment="end"),
    "SessionStart": _started("startup"),
    "SessionStart-clear": _started("clear"),
    "SessionStart-resume": _started("resume"),
}


@try_rows("name", names("gemini"))
def test_a_payload_becomes_exactly_this(name: str):
    check(ADAPTER, "gemini", name, BY_SCHEMA[name])


def test_every_hook_of_the_reference_is_there():
    assert names("gemini") == sorted(BY_SCHEMA)


def test_a_tool_is_ours_by_its_server_and_by_either_form_of_its_name():
    body = sample("gemini", "AfterTool-write_file")
    named = [{**body, "tool_name": name} for name in ("mcp_cmserver_search", "mcp__cmserver__search", "mcp_github_search")]
    by_server = {**body, "tool_name": "observation_search", "mcp_context": {"server_name": "cmserver"}}

    assert [len(ADAPTER.parse(fields, DELIVERY).events) for fields in (*named, by_server)] == [0, 0, 1, 0]


def test_a_command_that_only_reads_our_memory_is_not_kept():
    body = {**sample("gemini", "AfterTool-run_shell_command"), "tool_input": {"command": "cmserver context limit"}}

    assert ADAPTER.parse(body, DELIVERY).events == []


INDEX = "<hook_context>&lt;cmserver-context&gt;\n#4 Retry & wait 9 times ~20\n&lt;/cmserver-context&gt;</hook_context>"


@try_rows(
    ("prompt", "typed"),
    [
        (f"{INDEX}\n\nfix the retry", "fix the retry"),
        (f"{INDEX}\n\nfix the retry\n\nand the log", "fix the retry\n\nand the log"),
        ("<hook_context>one\ntwo &lt;x&gt;</hook_context>\n\nfix it", "fix it"),
        ("<hook_context>branch: main</hook_context>\n\nfix it", "fix it"),
        ("<hook_context></hook_context>\n\nfix it", "fix it"),
        ("what is <hook_context>a</hook_context> here?", "what is <hook_context>a</hook_context> here?"),
        (f"{INDEX}\n\nwhat is <hook_context>a</hook_context>?", "what is <hook_context>a</hook_context>?"),
        ("<hook_context> is never closed, why?", "<hook_context> is never closed, why?"),
        ("<context>a</context>\nfix it", "<context>a</context>\nfix it"),
        ("&lt;hook_context&gt;a&lt;/hook_context&gt; b", "&lt;hook_context&gt;a&lt;/hook_context&gt; b"),
        (f"{INDEX}\n\n/deploy now", "/deploy now"),
        (f"{INDEX}\n\nimmer f\u00fcnf Versuche", "immer f\u00fcnf Versuche"),
        (INDEX, ""),
    ],
)
def test_what_hooks_gave_at_the_start_is_no_part_of_the_prompt(prompt: str, typed: str):
    before = ADAPTER.parse({**sample("gemini", "BeforeAgent"), "prompt": prompt}, DELIVERY)
    after = ADAPTER.parse({**sample("gemini", "AfterAgent"), "prompt": prompt}, DELIVERY)

    assert before.prompt == typed
    assert [read_object(event.payload)["prompt"] for call in (before, after) for event in call.events] == [typed, typed]


async def test_the_index_comes_with_the_first_prompt_after_each_start(client: httpx.AsyncClient, cast: Cast, db: Db, make: Make):
    await make.observation(project=cast.alice.project, title="Refunds wait in the table refund_queue")
    headers = {**cast.alice.headers, "X-Cmserver-Project": "github.com/acme/orders"}

    async def send(event: str, session: str = "g1", **fields: object) -> str:
        body = {"session_id": session, "hook_event_name": event, "cwd": "/w", **fields}
        response = await client.post("/v1/hooks/gemini", json=body, headers=headers)
        assert response.status_code == 200, response.text
        return str(response.json().get("hookSpecificOutput", {}).get("additionalContext", ""))

    calls = [
        await send("SessionStart", source="startup"),
        await send("BeforeAgent", prompt="tidy up"),
        await send("BeforeAgent", prompt="and now?"),
        await send("SessionStart", session="g2", source="startup"),
        await send("BeforeAgent", session="g2", prompt="/deploy"),
        await send("BeforeAgent", session="never started", prompt="tidy up"),
    ]
    await make.observation(project=cast.alice.project, title="Invoices are sent at night")
    resumed = [await send("SessionStart", source="resume"), await send("BeforeAgent", prompt="tidy up")]

    assert ["refund_queue" in answer for answer in calls] == [False, True, False, False, True, False]
    assert ["Invoices" in answer for answer in resumed] == [False, True]
    shown = await rows(db, "SELECT reason FROM context_injections ORDER BY created_at, id")
    assert [row["reason"] for row in shown] == ["startup", "startup", "resume"]
    assert await rows(db, "SELECT metadata FROM server_sessions WHERE metadata ? 'indexOwed'") == []
