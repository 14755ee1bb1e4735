"""Codex's hooks: payloads as its schemas say, exactly; and answers that none of its schemas refuses."""

from __future__ import annotations

from typing import cast

from cmserver.doors.hooks.codex import ADAPTER
from cmserver.doors.hooks.model import HookReply
from cmserver.recall.model import SessionStart
from tests.doors.hooks.expect import (
    BOTH,
    DELIVERY,
    ROOT,
    Expected,
    Kept,
    answered,
    check,
    names,
    sample,
)
from tests.table import try_rows

MODEL = "gpt-6-codex"
AGENT: dict[str, object] = {"agent_id": "019a5f10-02aa-7c3e-8d11-b0c9e7f65a21", "agent_type": "explorer"}


def _started(source: SessionStart) -> Expected:
    metadata: dict[str, object] = {"cwd": ROOT, "source": source, "model": MODEL}
    return Expected(kept=Kept(type="session_start"), moment="start", source=source, metadata=metadata, context=True)


def _used(tool_use_id: str) -> Expected:
    return Expected(kept=Kept(type="tool_use", id=f"tool:{tool_use_id}", generate=True))


BY_SCHEMA = {
    "Interrupt": Expected(kept=Kept(type="interrupt")),
    "PermissionRequest": Expected(kept=None),
    "PostCompact": Expected(kept=Kept(type="post_compact")),
    "PostToolUse-Bash": _used("call_Zk4"),
    "PostToolUse-Bash-failed": _used("call_Zk1"),
    "PostToolUse-Bash-subagent": Expected(
        kept=Kept(type="tool_use", id="tool:call_Zk2", generate=True, metadata=AGENT), is_subagent=True
    ),
    "PostToolUse-apply_patch": _used("call_Zk3"),
    "PostToolUse-mcp": _used("call_Zk5"),
    "PostToolUse-mcp-ours": Expected(kept=None),
    "PreCompact": Expected(kept=Kept(type="pre_compact")),
    "PreToolUse-Bash": Expected(kept=None),
    "SessionEnd": Expected(kept=Kept(type="session_end"), moment="end", message=False),
    "SessionStart": _started("startup"),
    "SessionStart-clear": _started("clear"),
    "SessionStart-compact": _started("compact"),
    "SessionStart-resume": _started("resume"),
    "Stop": Expected(kept=Kept(type="assistant_message", generate=True), moment="turn_end", message=False),
    "StopFailure": Expected(kept=Kept(type="turn_failed")),
    "SubagentStart": Expected(kept=Kept(type="subagent_start", metadata=AGENT), is_subagent=True),
    "SubagentStop": Expected(kept=Kept(type="subagent_stop", metadata=AGENT), is_subagent=True, message=False),
    "UserPromptSubmit": Expected(
        kept=Kept(type="user_prompt", generate=True),
        moment="prompt",
        prompt="Why is an order of exactly the limit refused?",
        context=True,
    ),
    # Codex takes context there; the door gives none, because it is no moment of the session's.
    "UserPromptSubmit-subagent": Expected(kept=Kept(type="machine_prompt", metadata=AGENT), is_subagent=True, context=True),
}

_UNIVERSAL = {"continue", "stopReason", "suppressOutput", "systemMessage"}
TOP_KEYS = {
    "SessionStart": {*_UNIVERSAL, "hookSpecificOutput"},
    "UserPromptSubmit": {*_UNIVERSAL, "decision", "reason", "hookSpecificOutput"},
    "PreToolUse": {*_UNIVERSAL, "decision", "reason", "hookSpecificOutput"},
    "PermissionRequest": {*_UNIVERSAL, "hookSpecificOutput"},
    "PostToolUse": {*_UNIVERSAL, "decision", "reason", "hookSpecificOutput"},
    "PreCompact": _UNIVERSAL,
    "PostCompact": _UNIVERSAL,
    "SubagentStart": {*_UNIVERSAL, "hookSpecificOutput"},
    "SubagentStop": {*_UNIVERSAL, "decision", "reason"},
    "Stop": {*_UNIVERSAL, "decision", "reason"},
    "StopFailure": {*_UNIVERSAL, "hookSpecificOutput"},
    "Interrupt": {"systemMessage"},
    "SessionEnd": set[str](),
}
"""What each hook's answer may have; with any other key Codex drops the whole answer."""
SPECIFIC_KEYS = {"SessionStart": {"hookEventName", "additionalContext"}, "UserPromptSubmit": {"hookEventName", "additionalContext"}}


@try_rows("name", names("codex"))
def test_a_payload_becomes_exactly_this(name: str):
    check(ADAPTER, "codex", name, BY_SCHEMA[name])


def test_every_hook_of_the_schemas_is_there():
    assert names("codex") == sorted(BY_SCHEMA)
    assert {name.partition("-")[0] for name in BY_SCHEMA} == set(TOP_KEYS)


@try_rows("reply", [BOTH, HookReply(context="c"), HookReply(message="m")], ids=["both", "context", "message"])
@try_rows("name", names("codex"))
def test_no_answer_has_a_key_that_its_schema_does_not_know(name: str, reply: HookReply):
    body = sample("codex", name)
    hook = cast("str", body["hook_event_name"])

    output = answered(ADAPTER, ADAPTER.parse(body, DELIVERY), reply)

    assert set(output) <= TOP_KEYS[hook]
    specific = cast("dict[str, object]", output.get("hookSpecificOutput", {}))
    assert set(specific) <= SPECIFIC_KEYS.get(hook, set())
    assert all(isinstance(value, str) for value in specific.values())
    assert specific.get("hookEventName", hook) == hook


def test_a_wrong_key_is_told_in_the_one_field_that_all_schemas_have():
    assert answered(ADAPTER, None, HookReply(message="wrong")) == {"systemMessage": "wrong"}


def test_a_command_as_a_list_of_words_that_reads_our_memory_is_not_kept():
    body = sample("codex", "PostToolUse-Bash")

    ours = {**body, "tool_name": "shell", "tool_input": {"command": ["bash", "-lc", "cmserver context limit | head"]}}
    words = {**body, "tool_name": "exec_command", "tool_input": {"cmd": ["cmserver", "context", "limit"]}}
    other = {**body, "tool_name": "shell", "tool_input": {"command": ["bash", "-lc", "cmserver context limit; make"]}}

    assert [len(ADAPTER.parse(fields, DELIVERY).events) for fields in (ours, words, other)] == [0, 0, 1]
