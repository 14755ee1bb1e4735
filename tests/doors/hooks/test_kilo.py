"""What our plugin sends from Kilo, recorded with version 7.7.7, and the answers."""

from __future__ import annotations

from cmserver.doors.hooks.kilo import ADAPTER
from tests.doors.hooks.expect import ROOT, Expected, Kept, check, names
from tests.table import try_rows

AGENT: dict[str, object] = {"agent_id": "ses_7a8b9c0d1e2f"}

BECOMES = {
    "PostToolUse-bash": Expected(kept=Kept(type="tool_use", id="tool:toolu_1_1", generate=True)),
    "PostToolUse-bash-failed": Expected(kept=Kept(type="tool_use", id="tool:toolu_5_0", generate=True)),
    "PostToolUse-mcp-ours": Expected(kept=None),
    "PostToolUse-task": Expected(kept=Kept(type="tool_use", id="tool:toolu_1_0", generate=True)),
    "PostToolUseFailure": Expected(kept=Kept(type="tool_use_failure", id="tool:toolu_2_0", generate=True)),
    "SessionEnd": Expected(kept=Kept(type="session_end"), moment="end", message=False),
    "SessionStart": Expected(
        kept=Kept(type="session_start"), moment="start", metadata={"cwd": ROOT, "source": "startup"}, context=True
    ),
    "Stop": Expected(kept=Kept(type="assistant_message", generate=True), moment="turn_end", message=False),
    "Stop-subagent": Expected(kept=Kept(type="subagent_stop", metadata=AGENT), is_subagent=True, message=False),
    "UserPromptSubmit": Expected(
        kept=Kept(type="user_prompt", generate=True, added={"prompt": "Why are refunds slow?"}),
        moment="prompt",
        prompt="Why are refunds slow?",
    ),
    "UserPromptSubmit-subagent": Expected(kept=Kept(type="machine_prompt", metadata=AGENT), is_subagent=True),
}


@try_rows("name", names("kilo"))
def test_a_payload_becomes_exactly_this(name: str):
    check(ADAPTER, "kilo", name, BECOMES[name])


def test_every_hook_that_was_recorded_is_there():
    assert names("kilo") == sorted(BECOMES)
