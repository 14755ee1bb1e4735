"""Copilot CLI's hooks, recorded with version 1.0.102, and the answers."""

from __future__ import annotations

from cmserver.doors.hooks.copilot import ADAPTER
from cmserver.doors.hooks.model import HookEvent, HookReply, Moment
from tests.doors.hooks.expect import BOTH, DELIVERY, ROOT, answered, gets_job, names, sample
from tests.table import try_rows

SESSION = "3f0c7a52-6c1e-4c58-9d0a-5a7be1d2c4f6"

BECOMES: dict[str, tuple[str, bool, Moment] | None] = {
    "PostToolUse-Agent": ("tool_use", True, "other"),
    "PostToolUse-Bash": ("tool_use", True, "other"),
    "PostToolUse-Bash-failed": ("tool_use", True, "other"),
    "PostToolUse-Bash-subagent": ("tool_use", True, "other"),
    "PostToolUse-Edit": ("tool_use", True, "other"),
    "PostToolUse-Read": ("tool_use", True, "other"),
    "PostToolUse-Write": ("tool_use", True, "other"),
    "PostToolUse-mcp-ours": None,
    "PostToolUseFailure": ("tool_use_failure", True, "other"),
    "PreToolUse": None,
    "SessionEnd": ("session_end", False, "end"),
    "SessionStart": ("session_start", False, "start"),
    "SessionStart-resume": ("session_start", False, "start"),
    "Stop": ("assistant_message", True, "turn_end"),
    "Stop-subagent": None,
    "SubagentStop": ("subagent_stop", False, "other"),
    "UserPromptSubmit": ("user_prompt", True, "prompt"),
    "UserPromptSubmit-subagent": ("machine_prompt", False, "other"),
}


@try_rows("name", names("copilot"))
def test_a_payload_becomes_this_event_of_the_session_in_which_the_user_works(name: str):
    call = ADAPTER.parse(sample("copilot", name), DELIVERY)

    event = BECOMES[name]
    is_subagent = "ubagent" in name
    assert (call.session_id, call.cwd, call.is_subagent) == (SESSION, ROOT, is_subagent)
    found = [(kept.event_type, gets_job(kept), call.moment) for kept in call.events]
    assert found == ([event] if event else [])
    assert all(kept.identity == "moment" and ("agent_id" in kept.metadata) is is_subagent for kept in call.events)


def test_every_hook_that_was_recorded_is_there():
    assert names("copilot") == sorted(BECOMES)


def _event(name: str) -> HookEvent:
    (event,) = ADAPTER.parse(sample("copilot", name), DELIVERY).events
    return event


def _fields(name: str) -> dict[str, object]:
    payload = _event(name).payload
    assert isinstance(payload, dict)
    return payload  # pyright: ignore[reportUnknownVariableType] - JSON


def test_what_a_tool_answered_is_where_others_look_for_it():
    failed = {"output": "cat: missing.py: No such file or directory\n", "exit_code": 3}

    assert _fields("PostToolUse-Bash")["tool_response"] == {"output": "paid\n", "exit_code": 0}
    assert _fields("PostToolUse-Bash-failed")["tool_response"] == failed
    assert _fields("PostToolUse-Read")["tool_response"] == "LIMIT = 5\n"
    assert "tool_result" not in _fields("PostToolUse-Bash")


def test_how_a_session_starts_and_what_was_typed_are_read():
    starts = [ADAPTER.parse(sample("copilot", name), DELIVERY).source for name in ("SessionStart", "SessionStart-resume")]

    assert starts == ["startup", "resume"]
    assert ADAPTER.parse(sample("copilot", "UserPromptSubmit"), DELIVERY).prompt == "Why are refunds slow?"


@try_rows(
    "fields",
    [{"tool_result": "text"}, {"tool_result": {"text_result_for_llm": ["text"]}}, {}],
)
def test_a_result_in_another_form_stays_as_it_came(fields: dict[str, object]):
    payload = {"hook_event_name": "PostToolUse", "session_id": "s1", "tool_name": "Bash", **fields}

    (event,) = ADAPTER.parse(payload, None).events
    assert event.payload == payload


@try_rows("name", names("copilot"))
def test_context_is_answered_at_the_top_where_it_is_taken_at_all(name: str):
    call = ADAPTER.parse(sample("copilot", name), DELIVERY)

    takes = name.startswith(("SessionStart", "UserPromptSubmit"))
    assert answered(ADAPTER, call, HookReply()) == {}
    assert answered(ADAPTER, call, BOTH) == ({"additionalContext": BOTH.context} if takes else {})
