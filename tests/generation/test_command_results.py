"""How the commands ended that an observation's events ran is data of the observation, whichever provider worded it."""

from __future__ import annotations

import httpx
import msgspec

from cmserver.generation import prompt
from tests.conftest import Cast
from tests.generation.tools import Outbox, Scripted
from tests.table import try_rows


async def test_a_result_is_stored_with_the_observation_and_known_to_the_next_batch(
    client: httpx.AsyncClient, cast: Cast, outbox: Outbox
):
    provider = Scripted()
    headers = {**cast.alice.headers, "X-Cmserver-Project": cast.alice.project.canonical_id}
    for number, command in enumerate(["pytest -q", "ls"]):
        use = {
            "hook_event_name": "PostToolUse",
            "session_id": "s1",
            "cwd": "/src",
            "tool_name": "Bash",
            "tool_use_id": f"t{number}",
            "tool_input": {"command": command},
            "tool_response": {"stdout": "FAILED tests/test_a.py::test_total - KeyError: 1\n1 failed in 0.1s"},
        }
        assert (await client.post("/v1/hooks/claude-code", json=use, headers=headers)).status_code == 200
        await (await outbox.hand(provider)).work()

    rows = await outbox.rows("SELECT metadata -> 'commands' AS commands FROM observations ORDER BY number")
    result = {
        "command": "pytest",
        "kind": "check",
        "passed": False,
        "failure": "test_total",
        "failing": ["tests/test_a.py"],
        "folder": "",
    }
    assert [row["commands"] for row in rows] == [[result], None]
    assert [msgspec.to_builtins(observation.commands) for observation in provider.prompts[1].recorded] == [[result]]


@try_rows("commands", ["pytest", [1], {"a": 1}, None, [{"command": "pytest"}]], ids=str)
def test_metadata_in_which_people_gave_the_name_another_meaning_is_no_result(commands: object):
    assert prompt.command_results({"commands": commands}) == []
