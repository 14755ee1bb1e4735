"""What clients send, labelled by somebody who has not seen the code: one table for each of their habits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from cmserver.doors.hooks import claude_code, gemini, opencode
from cmserver.doors.hooks.tool_ends import build_tool_end
from cmserver.ops.transfer.claude_code import ClaudeCodeSource
from cmserver.ops.transfer.model import TurnLine
from cmserver.reading.model import CommandRun
from cmserver.reading.outcomes import read_outcome
from cmserver.reading.read import read_event
from cmserver.tooluse.commands import read_command_line
from cmserver.tooluse.model import Purpose, WorkingFolder
from cmserver.tooluse.typed_prompt import typed_text
from tests.rules.offline import observe

_FOLDER = Path(__file__).parent / "labelled"


def read_cases(name: str) -> list[dict[str, Any]]:
    return msgspec.json.decode((_FOLDER / f"{name}.json").read_bytes(), type=list[dict[str, Any]])


def test_gemini_prompts_are_kept_as_they_were_typed():
    def read(case: dict[str, Any]) -> str | None:
        payload = {"hook_event_name": "BeforeAgent", "session_id": "s1", "prompt": case["sent"]}
        return gemini.ADAPTER.parse(payload, None).prompt

    assert [(case["kind"], read(case)) for case in read_cases("gemini-prompts") if read(case) != case["typed"]] == []


def test_opencode_prompts_are_kept_as_they_were_typed():
    def read(case: dict[str, Any]) -> str | None:
        payload = {"hook_event_name": "UserPromptSubmit", "session_id": "s1", "prompt": case["sent"]}
        return opencode.ADAPTER.parse(payload, None).prompt

    assert [(case["kind"], read(case)) for case in read_cases("quoted-prompts") if read(case) != case["typed"]] == []


def test_gemini_shell_answers_are_read_for_what_they_are():
    wrong: list[object] = []
    for case in read_cases("gemini-shell"):
        answer = {"llmContent": case["output"], "returnDisplay": ""}
        outcome = read_outcome(read_command_line(case["command"]), answer, None, WorkingFolder(), is_failed=False)
        if outcome.failed != case["failed"] or (case["says"] or "") not in outcome.error or "untrusted_context" in outcome.output:
            wrong.append((case["command"], outcome))
    assert wrong == []


def test_codex_commands_end_as_their_code_or_their_output_says():
    wrong: list[object] = []
    for case in read_cases("codex-status"):
        code, output = case["exit_code"], case["output"]
        response = output if code is None else {"output": output, "exit_code": code}
        outcome = read_outcome(read_command_line(case["command"]), response, None, WorkingFolder(), is_failed=False)
        wrong += [] if outcome.failed == case["failed"] else [(case["command"], case["why"], outcome)]
    assert wrong == []


def test_queued_prompts_of_a_transcript_are_turns(tmp_path: Path):
    wrong: list[object] = []
    for case in read_cases("queued-prompts"):
        folder = tmp_path / case["name"] / "projects" / "-w-shop"
        folder.mkdir(parents=True)
        lines = [msgspec.json.encode(line) for line in case["lines"]]
        (folder / f"{case['lines'][0]['sessionId']}.jsonl").write_bytes(b"\n".join(lines) + b"\n")
        records = [record[1] for record in ClaudeCodeSource(tmp_path / case["name"]).lines() if isinstance(record, tuple)]
        prompts = [line.text for line in records if isinstance(line, TurnLine)]
        wrong += [] if prompts == case["prompts"] else [(case["kind"], prompts)]
    assert wrong == []


async def test_task_notifications_end_what_ran_in_the_background():
    wrong: list[object] = []
    for case in read_cases("task-notifications"):
        payload: dict[str, object] = {
            "hook_event_name": "UserPromptSubmit",
            "session_id": "s1",
            "cwd": "/w",
            "prompt": case["prompt"],
        }
        call = claude_code.ADAPTER.parse(payload, None)
        typed = typed_text(call.prompt or "")
        tool_input = {"command": case["command"], "description": case["description"]}
        started: dict[str, object] = {"tool_name": case["tool"], "tool_input": tool_input}
        events = [event for end in call.tool_ends for event in build_tool_end(end, started, payload)]
        readings = [read_event(event.event_type, event.payload, "/w") for event in events]
        runs = [reading.act for reading in readings if isinstance(reading.act, CommandRun)]
        drafts = (await observe(*readings)).observations if readings else []
        match case["expect"]:
            case "failure":
                told = [draft.title or "" for draft in drafts if draft.state == "open"]
                is_right = [run.outcome.failed for run in runs] == [True] and len(told) == 1 and not typed
            case "success":
                is_look = read_command_line(case["command"]).main.purpose is Purpose.LOOK  # whose end says nothing
                is_right = [run.outcome.failed for run in runs] == ([] if is_look else [False]) and not drafts and not typed
            case "finding":
                is_right = len(drafts) == 1 and case["says"] in f"{drafts[0].title} {drafts[0].narrative}" and not typed
            case "nothing":
                is_right = not events and not typed
            case _:
                is_right = not events and case["says"] in typed
        wrong += [] if is_right else [(case["kind"], case["description"], typed, [draft.title for draft in drafts])]
    assert wrong == []
