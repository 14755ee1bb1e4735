"""Cursor's hooks: payloads as its reference says, and the answers."""

from __future__ import annotations

from cmserver.doors.hooks.cursor import ADAPTER
from cmserver.doors.hooks.model import HookEvent, HookReply, Moment
from cmserver.tooluse.model import ToolKind
from cmserver.tooluse.read import read_tool_use
from tests.doors.hooks.expect import BOTH, DELIVERY, ROOT, answered, gets_job, names, sample
from tests.table import try_rows

CONVERSATION = "8c1f4a3e-6f0b-4c57-9a43-2d3d9e1f7a10"
DELIVERED = f"delivery:{DELIVERY}"
REPLY = "The comparison left the limit itself out; it is fixed and tested."

BECOMES: dict[str, tuple[str, str, bool, Moment] | None] = {
    "afterAgentResponse": ("assistant_message", DELIVERED, True, "turn_end"),
    "afterFileEdit": None,
    "afterShellExecution": None,
    "beforeSubmitPrompt": ("user_prompt", DELIVERED, True, "prompt"),
    "postToolUse-Shell": ("tool_use", "tool:call_1", True, "other"),
    "postToolUse-Write": ("tool_use", "tool:call_2", True, "other"),
    "postToolUse-mcp-ours": None,
    "postToolUseFailure": ("tool_use_failure", "tool:call_4", True, "other"),
    "preCompact": ("pre_compact", DELIVERED, False, "other"),
    "preToolUse": None,
    "sessionEnd": ("session_end", DELIVERED, False, "end"),
    "sessionStart": ("session_start", DELIVERED, False, "start"),
    "stop": ("stop", DELIVERED, False, "other"),
    "subagentStop": ("subagent_stop", DELIVERED, False, "other"),
}


@try_rows("name", names("cursor"))
def test_a_payload_becomes_this_event_of_its_conversation(name: str):
    call = ADAPTER.parse(sample("cursor", name), DELIVERY)

    event = BECOMES[name]
    assert (call.session_id, call.cwd, call.is_subagent) == (CONVERSATION, ROOT, False)
    found = [(kept.event_type, kept.source_event_id, gets_job(kept), call.moment) for kept in call.events]
    assert found == ([event] if event else [])


def test_a_prompt_and_a_reply_are_known_by_their_generation():
    known = {name: (event.identity, event.turn_id) for name in names("cursor") for event in _events(name)}

    generation = ("turn", "d2a7b1c4-0f3e-4b8a-8f55-90c1e2d3f4a5")
    assert {name for name, identity in known.items() if identity == generation} == {"beforeSubmitPrompt", "afterAgentResponse"}
    assert {known[name] for name in ("stop", "preCompact", "sessionStart")} == {("moment", None)}


def test_every_hook_that_is_known_is_there():
    assert names("cursor") == sorted(BECOMES)


def _events(name: str) -> list[HookEvent]:
    return ADAPTER.parse(sample("cursor", name), DELIVERY).events


def _event(name: str) -> HookEvent:
    (event,) = _events(name)
    return event


def _fields(name: str) -> dict[str, object]:
    payload = _event(name).payload
    assert isinstance(payload, dict)
    return payload  # pyright: ignore[reportUnknownVariableType] - JSON


def test_what_a_tool_answered_is_read_where_it_is_json():
    assert _fields("postToolUse-Shell")["tool_response"] == {"exitCode": 0, "stdout": "3 passed"}
    assert _fields("postToolUse-Write")["tool_response"] == "written"
    assert "tool_output" not in _fields("postToolUse-Shell")


def test_the_address_of_the_user_is_not_kept():
    assert "user_email" in sample("cursor", "postToolUse-Shell")
    assert "user_email" not in _fields("postToolUse-Shell")


def test_failures_replies_and_prompts_are_where_others_look_for_them():
    prompt = ADAPTER.parse(sample("cursor", "beforeSubmitPrompt"), DELIVERY)

    assert _fields("postToolUseFailure")["error"] == "Command timed out after 30s"
    assert _fields("afterAgentResponse")["last_assistant_message"] == REPLY
    assert prompt.prompt == "Why is an order of exactly the limit refused?"


@try_rows(
    ("tool", "kind"),
    [
        ("Shell", ToolKind.SHELL),
        ("Write", ToolKind.WRITE),
        ("StrReplace", ToolKind.EDIT),
        ("Read", ToolKind.READ),
        ("Grep", ToolKind.SEARCH),
    ],
)
def test_its_tools_are_known(tool: str, kind: ToolKind):
    assert read_tool_use(tool, {"file_path": "/x/y.py"}).kind is kind


def test_a_session_without_a_conversation_is_known_by_its_own_id():
    payload = {"hook_event_name": "sessionEnd", "session_id": "s1", "cwd": "/x"}

    assert (ADAPTER.parse(payload, None).session_id, ADAPTER.parse(payload, None).cwd) == ("s1", "/x")


@try_rows("name", names("cursor"))
def test_only_the_start_of_a_session_is_answered_with_context(name: str):
    call = ADAPTER.parse(sample("cursor", name), DELIVERY)

    assert answered(ADAPTER, call, HookReply()) == {}
    assert answered(ADAPTER, call, BOTH) == ({"additional_context": BOTH.context} if name == "sessionStart" else {})
