"""What our plugin for OpenCode sends, and the answers."""

from __future__ import annotations

from cmserver.doors.hooks.opencode import ADAPTER
from cmserver.tooluse.model import ToolKind
from cmserver.tooluse.read import read_tool_use
from tests.doors.hooks.expect import ROOT, Expected, Kept, check, names
from tests.table import try_rows

AGENT: dict[str, object] = {"agent_id": "ses_7a8b9c0d1e2f"}


def _start(source: str) -> dict[str, object]:
    return {"cwd": ROOT, "source": source}


BECOMES = {
    "PostCompact": Expected(kept=Kept(type="post_compact")),
    "PostToolUse-bash": Expected(kept=Kept(type="tool_use", id="tool:toolu_1", generate=True)),
    "PostToolUse-edit-subagent": Expected(
        kept=Kept(type="tool_use", id="tool:toolu_2", generate=True, metadata=AGENT), is_subagent=True
    ),
    "PostToolUse-mcp-ours": Expected(kept=None),
    "PostToolUseFailure": Expected(kept=Kept(type="tool_use_failure", id="tool:toolu_4", generate=True)),
    "SessionEnd": Expected(kept=Kept(type="session_end"), moment="end", message=False),
    "SessionStart": Expected(kept=Kept(type="session_start"), moment="start", metadata=_start("startup"), context=True),
    "SessionStart-resume": Expected(
        kept=Kept(type="session_start"), moment="start", source="resume", metadata=_start("resume"), context=True
    ),
    "Stop": Expected(kept=Kept(type="assistant_message", generate=True), moment="turn_end", message=False),
    "Stop-subagent": Expected(kept=Kept(type="subagent_stop", metadata=AGENT), is_subagent=True, message=False),
    "UserPromptSubmit": Expected(
        kept=Kept(type="user_prompt", generate=True),
        moment="prompt",
        prompt="Why is an order of exactly the limit refused?",
    ),
    "UserPromptSubmit-subagent": Expected(kept=Kept(type="machine_prompt", metadata=AGENT), is_subagent=True),
}


@try_rows("name", names("opencode"))
def test_a_payload_becomes_exactly_this(name: str):
    check(ADAPTER, "opencode", name, BECOMES[name])


def test_every_hook_that_the_plugin_has_is_there():
    assert names("opencode") == sorted(BECOMES)


@try_rows(
    ("tool", "kind"),
    [
        ("bash", ToolKind.SHELL),
        ("edit", ToolKind.EDIT),
        ("write", ToolKind.WRITE),
        ("read", ToolKind.READ),
        ("grep", ToolKind.SEARCH),
        ("webfetch", ToolKind.WEB),
        ("task", ToolKind.AGENT),
        ("todowrite", ToolKind.PLAN),
    ],
)
def test_its_tools_are_known(tool: str, kind: ToolKind):
    assert read_tool_use(tool, {"filePath": "/x/y.py"}).kind is kind


@try_rows(
    ("prompt", "typed"),
    [
        ('"always use 5 tries"', "always use 5 tries"),
        ("always use 5 tries", "always use 5 tries"),
        ('"say \\"hi\\" now"', 'say "hi" now'),
        ('"\\"hi there\\""', '"hi there"'),
        ('"it is in C:\\tools\\"', "it is in C:\\tools\\"),
        ('"sum up this"\nline 1\nline "2"', 'sum up this\nline 1\nline "2"'),
        ('"one\n\ntwo words"', "one\n\ntwo words"),
        ('"status"', '"status"'),
        ('"Guest" is now "Visitor"', '"Guest" is now "Visitor"'),
        ('"a b" and c', '"a b" and c'),
        ('say "hi there"', 'say "hi there"'),
        ("'a b'", "'a b'"),
        ('"never closed', '"never closed'),
        ('"', '"'),
        ("", ""),
    ],
)
def test_the_quotes_of_opencode_run_are_no_part_of_the_prompt(prompt: str, typed: str):
    payload = {"hook_event_name": "UserPromptSubmit", "session_id": "s1", "prompt": prompt}

    call = ADAPTER.parse(payload, None)

    assert call.prompt == typed
    assert call.events[0].payload == {**payload, "prompt": typed}
