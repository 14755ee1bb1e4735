"""Claude Code's hooks, from payload to event and back to its output: recorded ones exactly, others by their rules."""

from __future__ import annotations

import pytest

from cmserver.base.errors import Invalid
from cmserver.doors.hooks.claude_code import ADAPTER
from cmserver.doors.hooks.model import HookEvent
from tests.doors.hooks.expect import (
    BOTH,
    DELIVERY,
    ROOT,
    Expected,
    Kept,
    answered,
    check,
    names,
)
from tests.table import try_rows

COMMON = {"session_id": "fb927459", "cwd": ROOT, "prompt_id": "p1"}
AGENT: dict[str, object] = {"agent_id": "acc07184075037b79", "agent_type": "general-purpose"}
_NOISE = Expected(kept=None)


def _before(file: str | None = None) -> Expected:
    return Expected(kept=None, moment="file" if file else "other", file=file, context=True)


def _used(tool_use_id: str, type_: str = "tool_use") -> Expected:
    return Expected(kept=Kept(type=type_, id=f"tool:{tool_use_id}", generate=True))


def _batched(session_id: str, prompt_id: str, tool_use_id: str, words: str, description: str, agent: dict[str, object]) -> Kept:
    """A call of a batch, as an event of its own."""
    use: dict[str, object] = {
        "session_id": session_id,
        "transcript_path": f"/home/alice/.claude/projects/-home-alice-src-orders/{session_id}.jsonl",
        "cwd": ROOT,
        "prompt_id": prompt_id,
        "permission_mode": "default",
        **agent,
        "hook_event_name": "PostToolBatch",
        "tool_name": "Bash",
        "tool_input": {"command": f"echo {words}", "description": description},
        "tool_use_id": tool_use_id,
        "tool_response": words,
    }
    return Kept(type="tool_use", id=f"tool:{tool_use_id}", generate=True, metadata=agent, payload=use)


RECORDED = {
    "MessageDisplay": _NOISE,
    "PostCompact": Expected(kept=Kept(type="post_compact")),
    "PostToolBatch": Expected(
        kept=_batched(
            "fb927459-ad56-45c4-b02a-57879f789c4e",
            "e7437e41-8d6d-40c1-9ce8-09a00b2f9f88",
            "toolu_e53f63ceb6234eae85709e8e",
            "hello-from-bash",
            "Echo",
            {},
        )
    ),
    "PostToolBatch-subagent": Expected(
        is_subagent=True,
        kept=_batched(
            "1c263dc7-b1be-4279-a814-a03ce888b236",
            "3225025a-3c64-4a29-a840-618c088d88d1",
            "toolu_db20e480ff3e427fbaaa2263",
            "in-sub",
            "x",
            AGENT,
        ),
    ),
    "PostToolUse-Agent": _used("toolu_15776c3b412240a89244f631"),
    "PostToolUse-Bash": _used("toolu_e53f63ceb6234eae85709e8e"),
    "PostToolUse-Bash-subagent": Expected(
        is_subagent=True,
        kept=Kept(type="tool_use", id="tool:toolu_db20e480ff3e427fbaaa2263", generate=True, metadata=AGENT),
    ),
    "PostToolUse-Edit": _used("toolu_07ac04c773764602a8500d2b"),
    "PostToolUse-Read": _used("toolu_a713844b65854181beab106e"),
    "PostToolUse-Write": _used("toolu_312748186f9542d7968d6e72"),
    "PostToolUse-mcp__cm__search": _used("toolu_f97c28e50dda4fc096b5b972"),
    "PostToolUseFailure-Bash": _used("toolu_3be94b678164408eab9b1134", "tool_use_failure"),
    "PostToolUseFailure-Read": _used("toolu_5b16f992e15c464f86549118", "tool_use_failure"),
    "PreCompact": Expected(kept=Kept(type="pre_compact")),
    "PreToolUse-Agent": _before(),
    "PreToolUse-Bash": _before(),
    "PreToolUse-Bash-subagent": Expected(kept=None, is_subagent=True, context=True),
    "PreToolUse-Edit": _before(),
    "PreToolUse-Read": _before(f"{ROOT}/big.txt"),
    "PreToolUse-Write": _before(),
    "SessionEnd": Expected(kept=Kept(type="session_end"), moment="end"),
    "SessionStart": Expected(
        kept=Kept(type="session_start"), moment="start", metadata={"cwd": ROOT, "source": "startup"}, context=True
    ),
    "SessionStart-compact": Expected(
        kept=Kept(type="session_start"),
        moment="start",
        source="compact",
        metadata={"cwd": ROOT, "source": "compact", "model": "claude-opus-5-5"},
        context=True,
    ),
    "SessionStart-fork": Expected(
        kept=Kept(type="session_start"), moment="start", source="fork", metadata={"cwd": ROOT, "source": "fork"}, context=True
    ),
    "SessionStart-resume": Expected(
        kept=Kept(type="session_start"), moment="start", source="resume", metadata={"cwd": ROOT, "source": "resume"}, context=True
    ),
    "Stop": Expected(kept=Kept(type="assistant_message", generate=True), moment="turn_end", message=False),
    "StopFailure": Expected(kept=Kept(type="turn_failed")),
    "SubagentStart": Expected(kept=Kept(type="subagent_start", metadata=AGENT), is_subagent=True),
    "SubagentStop": Expected(kept=Kept(type="subagent_stop", metadata=AGENT), is_subagent=True, message=False),
    "UserPromptSubmit": Expected(
        kept=Kept(type="user_prompt", generate=True), moment="prompt", prompt="MARKER-ONE please echo and write", context=True
    ),
}


def payload(name: str, **fields: object) -> dict[str, object]:
    return {**COMMON, "hook_event_name": name, **fields}


def events(body: dict[str, object], delivery: str | None = None) -> list[HookEvent]:
    return ADAPTER.parse(body, delivery).events


def used(tool_name: str, **fields: object) -> dict[str, object]:
    return payload("PostToolUse", tool_name=tool_name, tool_use_id="t1", **fields)


@try_rows("name", names("claude_code"))
def test_a_recorded_payload_becomes_exactly_this(name: str):
    check(ADAPTER, "claude_code", name, RECORDED[name])


def test_every_recorded_payload_is_there():
    assert names("claude_code") == sorted(RECORDED)
    assert len(RECORDED) == 30


def test_an_unknown_hook_is_kept_under_its_name():
    assert [event.event_type for event in events(payload("WorktreeCreate"))] == ["worktree_create"]
    assert [event.event_type for event in events(payload("New\x00 Kind\nof Hook"))] == ["new_kind_of_hook"]
    assert [event.event_type for event in events(payload("!!"))] == ["unknown"]


def test_an_unknown_source_is_an_ordinary_start():
    assert ADAPTER.parse(payload("SessionStart", source=["moon"]), None).source == "startup"


def test_what_could_not_be_understood_is_answered_with_the_message_alone():
    assert answered(ADAPTER, None, BOTH) == {"systemMessage": BOTH.message}


def test_prompts_and_replies_are_known_by_the_prompt_s_id_whatever_delivers_them():
    for delivery in (None, "d1"):
        said = [*events(payload("UserPromptSubmit", prompt="hi"), delivery), *events(payload("Stop"), delivery)]
        assert [(event.identity, event.turn_id) for event in said] == [("turn", "p1")] * 2
        (other,) = events(payload("PreCompact"), delivery)
        assert (other.identity, other.turn_id) == ("moment", None)


@pytest.mark.parametrize(
    "prompt",
    [
        "<task-notification>\n<task-id>b1</task-id>\n<summary>done</summary>\n</task-notification>",
        " <task-notification>one</task-notification>\n<task-notification>two</task-notification>\n",
        "<local-command-stdout></local-command-stdout>",
        '<teammate-message from="lead">go on</teammate-message>',
    ],
)
def test_what_the_program_says_in_the_user_s_place_is_no_prompt(prompt: str):
    call = ADAPTER.parse(payload("UserPromptSubmit", prompt=prompt), DELIVERY)

    assert (call.moment, call.prompt) == ("other", None)
    assert [event.event_type for event in call.events] == ["machine_prompt"]


@try_rows(
    "prompt",
    ["", "<task-notification>x</task-notification> and what is that?", "<task-notification>", "<b>bold</b>", "fix <tick></tick>"],
)
def test_anything_else_is_the_user_s(prompt: str):
    call = ADAPTER.parse(payload("UserPromptSubmit", prompt=prompt), DELIVERY)

    assert (call.moment, call.prompt) == ("prompt", prompt)
    assert [event.event_type for event in call.events] == ["user_prompt"]


def test_a_sub_agent_s_turn_is_none_of_the_session_s():
    stop = ADAPTER.parse(payload("Stop", **AGENT, last_assistant_message="found it"), DELIVERY)
    prompt = ADAPTER.parse(payload("UserPromptSubmit", **AGENT, prompt="look"), DELIVERY)

    assert [(call.moment, call.is_subagent, call.events[0].event_type) for call in (stop, prompt)] == [
        ("other", True, "subagent_stop"),
        ("other", True, "machine_prompt"),
    ]


def test_a_session_that_is_an_agent_s_as_a_whole_has_turns():
    call = ADAPTER.parse(payload("Stop", agent_type="reviewer"), DELIVERY)

    assert (call.moment, call.is_subagent, call.events[0].metadata) == ("turn_end", False, {"agent_type": "reviewer"})


def test_the_end_of_a_compaction_is_no_sub_agent_s():
    """Its agent has no type and never started, and its last words are the summary that PostCompact has."""
    words = {"last_assistant_message": "<analysis>All of it.</analysis><summary>It was slow.</summary>"}
    call = ADAPTER.parse(payload("SubagentStop", agent_id="a1", agent_type="", **words), DELIVERY)

    assert (call.moment, call.is_subagent, call.events) == ("other", True, [])


@pytest.mark.parametrize("response", ["Exit code 3\noops", "<tool_use_error>File does not exist.</tool_use_error>"])
def test_a_call_of_a_batch_that_failed_is_a_failure(response: str):
    call = {"tool_name": "Bash", "tool_input": {"command": "x"}, "tool_use_id": "t9", "tool_response": response}

    (event,) = events(payload("PostToolBatch", tool_calls=[call]))

    body = dict(COMMON, hook_event_name="PostToolBatch", tool_name="Bash", tool_input={"command": "x"}, tool_use_id="t9")
    assert (event.event_type, event.source_event_id) == ("tool_use_failure", "tool:t9")
    assert event.payload == {**body, "error": response}


def test_calls_of_a_batch_without_an_id_are_told_apart_and_junk_is_passed_over():
    batch_events = events(payload("PostToolBatch", tool_calls=[{"tool_name": "A"}, "junk", {"tool_name": "B"}]), DELIVERY)

    assert [event.source_event_id for event in batch_events] == ["delivery:d1:0", "delivery:d1:2"]
    assert events(payload("PostToolBatch", tool_calls={"tool_name": "A"})) == []


@pytest.mark.parametrize(
    "tool",
    [
        "mcp__cmserver__observation_search",
        "mcp__plugin_cmserver_cmserver__observation_search",
        "mcp__plugin_claude-mem_mcp-search__timeline",
    ],
)
def test_our_own_tools_are_not_kept(tool: str):
    other = {"tool_name": "Read", "tool_use_id": "t2"}

    assert events(used(tool)) == []
    batch = payload("PostToolBatch", tool_calls=[{"tool_name": tool, "tool_use_id": "t1"}, other])
    assert [event.source_event_id for event in events(batch)] == ["tool:t2"]


@pytest.mark.parametrize("tool", ["mcp__cm__search", "mcp__my-cmserver__x", "cmserver", "mcp__github__cmserver_issue"])
def test_others_tools_are(tool: str):
    assert len(events(used(tool))) == 1


@try_rows(
    "command",
    [
        "~/.config/cmserver/clients/claude-code/hook recall 12 13",
        "\"$HOME/.config/cmserver/clients/claude-code/hook\" recall search 'the limit' | head -20",
        "cmserver context limit 2>/dev/null | jq .",
        "cd /home/alice && bin/cmserver context --project x",
        "CMSERVER_URL=http://h:1 cmserver sessions list",
        "curl -s -H @/home/alice/.config/cmserver/authorization http://h:1/v1/observations/12",
        'curl -s "$CMSERVER_URL/v1/observations?ids=12,13" 2>&1 | jq -r .title',
        'curl -s -X POST $CMSERVER_URL/v1/search -d \'{"query":"limit"}\'',
    ],
)
def test_a_command_that_only_reads_our_memory_is_not_kept(command: str):
    batch = payload("PostToolBatch", tool_calls=[{"tool_name": "Bash", "tool_input": {"command": command}}])

    assert events(used("Bash", tool_input={"command": command})) == []
    assert events(batch, DELIVERY) == []


@try_rows(
    "command",
    [
        "",
        "head -5 notes.txt",
        "cmserver run",
        "cmserver context limit && make test",
        "cmserver context limit > notes.txt",
        "cmserver context limit\nmake test",
        "cmserver context 'limit",
        "/home/alice/.config/cmserver/clients/claude-code/hook Stop",
        "curl http://localhost:8080/v1/search?q=shoes",
        "curl -X DELETE $CMSERVER_URL/v1/observations/12",
        "git log --grep cmserver",
        "grep -rn 'cmserver context' docs",
    ],
)
def test_in_doubt_a_command_is_kept(command: str):
    assert len(events(used("Bash", tool_input={"command": command}))) == 1


@try_rows("wrong", [[], "text", None, {"hook_event_name": "Stop"}, {"session_id": "s"}, payload("Stop", session_id=7)])
def test_what_is_no_hook_s_payload_is_refused(wrong: object):
    with pytest.raises(Invalid):
        ADAPTER.parse(wrong, None)
