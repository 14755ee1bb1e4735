"""Runs of checks, labelled by somebody who has not seen the code: what is open at the end, and what proves that tests passed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from cmserver.reading.outcomes import read_outcome
from cmserver.reading.read import read_event
from cmserver.tooluse.commands import read_command_line
from cmserver.tooluse.model import Purpose, WorkingFolder
from tests.rules.offline import observe

_FOLDER = Path(__file__).parent / "labelled"


def read_cases(name: str) -> list[dict[str, Any]]:
    return msgspec.json.decode((_FOLDER / f"{name}.json").read_bytes(), type=list[dict[str, Any]])


async def count_open(steps: list[dict[str, Any]]) -> int:
    readings = [
        read_event(
            "tool_use_failure" if step["failed"] else "tool_use",
            {
                "tool_name": "Bash",
                "tool_input": {"command": step["command"]},
                "tool_use_id": f"use-{place}",
                "cwd": step["cwd"],
                **(
                    {"error": f"Exit code 1\n{step['output']}"}
                    if step["failed"]
                    else {"tool_response": {"stdout": step["output"], "stderr": ""}}
                ),
            },
            "/w/mono",
        )
        for place, step in enumerate(steps)
    ]
    return sum(draft.state == "open" for draft in (await observe(*readings)).observations)


async def test_a_failure_is_open_until_the_same_check_passes():
    cases = read_cases("two-packages")

    wrong = [(case["name"], case["why"]) for case in cases if await count_open(case["steps"]) != len(case["open"])]

    assert len(wrong) <= 1, wrong


def test_most_runs_that_tested_nothing_prove_nothing():
    cases = read_cases("proves-nothing")

    def proves(case: dict[str, Any]) -> bool:
        command, response = read_command_line(case["command"]), {"output": case["output"], "exit_code": case["exit_code"]}
        outcome = read_outcome(command, response, None, WorkingFolder(), is_failed=bool(case["exit_code"]))
        return command.main.purpose is Purpose.TEST and bool(outcome.proof) and not outcome.failed

    wrong = [(case["command"], case["why"]) for case in cases if proves(case) != case["proves"]]

    assert len(wrong) <= 1, wrong
