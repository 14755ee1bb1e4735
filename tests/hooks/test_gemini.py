"""Gemini CLI's hooks: payloads as its reference says, exactly, and the answers."""

from __future__ import annotations

from cmserver.hooks.gemini import ADAPTER
from cmserver.recall.model import SessionStart
from tests.hooks.expect import (
    DELIVERY,
    ROOT,
    Expected,
    Kept,
    check,
    names,
    sample,
)
from tests.table import try_rows

_NOISE = Expected(kept=None)
_USED = Expected(kept=Kept(type="tool_use", generate=True), context=True)


def _started(source: SessionStart) -> Expected:
    metadata: dict[str, object] = {"cwd": ROOT, "source": source}
    return Expected(kept=Kept(type="session_start"), moment="start", source=source, metadata=metadata, context=True)


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
