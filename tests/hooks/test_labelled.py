"""What clients send, labelled by somebody who has not seen the code: one table for each of their habits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from cmserver.hooks import gemini
from cmserver.reading.outcomes import read_outcome
from cmserver.tooluse.commands import read_command_line
from cmserver.tooluse.model import WorkingFolder

_FOLDER = Path(__file__).parent / "labelled"


def read_cases(name: str) -> list[dict[str, Any]]:
    return msgspec.json.decode((_FOLDER / f"{name}.json").read_bytes(), type=list[dict[str, Any]])


def test_gemini_prompts_are_kept_as_they_were_typed():
    def read(case: dict[str, Any]) -> str | None:
        payload = {"hook_event_name": "BeforeAgent", "session_id": "s1", "prompt": case["sent"]}
        return gemini.ADAPTER.parse(payload, None).prompt

    assert [(case["kind"], read(case)) for case in read_cases("gemini-prompts") if read(case) != case["typed"]] == []


def test_gemini_shell_answers_are_read_for_what_they_are():
    wrong: list[object] = []
    for case in read_cases("gemini-shell"):
        answer = {"llmContent": case["output"], "returnDisplay": ""}
        outcome = read_outcome(read_command_line(case["command"]), answer, None, WorkingFolder(), is_failed=False)
        if outcome.failed != case["failed"] or (case["says"] or "") not in outcome.error or "untrusted_context" in outcome.output:
            wrong.append((case["command"], outcome))
    assert wrong == []
