"""The table of what is decided of an event at the door."""

from __future__ import annotations

import msgspec
import pytest

from cmserver.ingest.door import DOOR_RULES, LATEST_SECONDS, Arrival, Policy, Timing, find_rule
from cmserver.ingest.model import SubagentWords
from cmserver.tooluse.read import read_tool_use

BURST = Policy(mode="burst", debounce_seconds=2)
EDIT = read_tool_use("Edit", {"file_path": "a.py"})
USE = Arrival(event_type="tool_use", tool=EDIT, tool_name="Edit", by_hook=True, has_session=True, policy=BURST, gather_seconds=600)
PROMPT = Arrival(event_type="user_prompt", prompt="Fix it.", by_hook=True, has_session=True, policy=BURST, gather_seconds=600)
REPLY = msgspec.structs.replace(PROMPT, event_type="assistant_message", prompt=None)


def but(arrival: Arrival, **changes: object) -> Arrival:
    return msgspec.structs.replace(arrival, **changes)


def calling(arrival: Arrival, tool: str, tool_input: object) -> Arrival:
    return but(arrival, tool=read_tool_use(tool, tool_input), tool_name=tool)


def under(arrival: Arrival, **policy: object) -> Arrival:
    return but(arrival, policy=msgspec.structs.replace(BURST, **policy))


EXAMPLES: dict[str, list[Arrival]] = {
    "repetition": [but(USE, is_repetition=True), but(PROMPT, is_repetition=True)],
    "own_memory": [
        calling(USE, "mcp__cmserver__observation_search", {}),
        calling(USE, "Bash", {"command": "cmserver context limit | head"}),
        but(calling(USE, "search", {}), mcp_server="cmserver"),
        but(calling(USE, "Bash", {"command": "cmserver context limit"}), by_claude_mem=True),
    ],
    "answered": [but(REPLY, is_answered=True)],
    "tool_excluded": [but(calling(USE, "Skill", {}), by_claude_mem=True)],
    "session_memory_meta": [but(calling(USE, "Read", {"file_path": "/x/session-memory/1.md"}), by_claude_mem=True)],
    "subagent_context": [but(REPLY, by_claude_mem=True, is_subagent=True)],
    "private": [but(USE, is_private=True)],
    "project_excluded": [but(USE, is_excluded=True)],
    "stored": [USE, PROMPT, REPLY, calling(USE, "Skill", {}), calling(USE, "Bash", {"command": "cmserver context limit; make"})],
    "not_asked": [but(USE, asks_for_job=False)],
    "says_nothing": [but(PROMPT, event_type="session_start"), but(PROMPT, event_type="machine_prompt"), but(USE, tool=None)],
    "event_type_skipped": [under(USE, skip_event_types=frozenset({"tool_use"}))],
    "tool_skipped": [under(USE, skip_tools=frozenset({"Edit"})), under(but(USE, tool=None, by_hook=False), skip_tools={"Edit"})],
    "job": [
        *(USE, PROMPT, REPLY, but(PROMPT, event_type="deployed", by_hook=False)),
        *(under(but(USE, tool_name=name), skip_tools={"Edit"}) for name in ("edit", "EditMore", None)),
    ],
    "waited_for": [but(USE, is_waited_for=True), but(under(USE, mode="at_end"), is_waited_for=True)],
    "per_event": [under(USE, mode="per_event")],
    "at_end": [under(USE, mode="at_end"), under(USE, mode="at_end", allows_gathering=False)],
    "own_debounce": [
        under(USE, allows_gathering=False),
        under(calling(USE, "Bash", {"command": "git commit"}), allows_gathering=False),
    ],
    "words_for_model": [but(PROMPT, gathers_turns=False), but(REPLY, gathers_turns=False)],
    "commit": [calling(USE, "Bash", {"command": "git add . && git commit -m x"})],
    "gathered": [USE, PROMPT, calling(USE, "Write", {"file_path": "a.py", "content": "git commit"})],
    "last_words": [REPLY],
    "burst": [
        but(REPLY, by_hook=False),
        but(USE, gathers_turns=False),
        but(USE, by_hook=False),
        but(under(USE, mode="at_end"), has_session=False),
    ],
    "no_session": [but(PROMPT, has_session=False)],
    "program_prompt": [but(PROMPT, prompt=None)],
    "prompt": [PROMPT],
    "reply": [REPLY],
    "subagent": [but(USE, subagent=SubagentWords(agent_id="a1", prompt="Look."))],
    "no_words": [USE, but(PROMPT, event_type="session_start")],
}


def test_each_rule_decides_of_its_examples():
    wrong = [
        (rule.name, found, arrival)
        for question, rules in DOOR_RULES.items()
        for rule in rules
        for arrival in EXAMPLES[rule.name]
        if (found := find_rule(question, arrival).name) != rule.name
    ]
    assert wrong == []


def test_each_question_is_answered_for_every_event_and_each_rule_has_a_name_of_its_own():
    assert [rule.name for rules in DOOR_RULES.values() for rule in rules] == list(EXAMPLES)
    last = {question: rules[-1].name for question, rules in DOOR_RULES.items()}
    assert last == {"row": "stored", "job": "job", "due": "burst", "turn": "no_words"}
    assert all(find_rule(question, Arrival(event_type="strange")) for question in DOOR_RULES)


@pytest.mark.parametrize(
    ("arrival", "timing"),
    [
        (USE, Timing(600, gathers=True)),
        (under(USE, debounce_seconds=900), Timing(900, gathers=True)),
        (under(USE, debounce_seconds=5, allows_gathering=False), Timing(5)),
        (under(USE, debounce_seconds=0, allows_gathering=False), Timing(0)),
        (EXAMPLES["commit"][0], Timing(60, gathers=True)),
        (but(EXAMPLES["commit"][0], gather_seconds=30), Timing(30, gathers=True)),
        (REPLY, Timing(2, gathers=True)),
        (but(PROMPT, gathers_turns=False), Timing(600)),
        (under(USE, mode="per_event"), Timing(0, 1)),
        (under(USE, mode="at_end"), Timing(LATEST_SECONDS, None, waits=True)),
        (but(USE, is_waited_for=True), Timing(0)),
        (but(under(USE, mode="per_event"), is_waited_for=True), Timing(0, 1)),
    ],
)
def test_a_lane_is_due_when_the_rule_says(arrival: Arrival, timing: Timing):
    assert find_rule("due", arrival).timing(arrival) == timing
