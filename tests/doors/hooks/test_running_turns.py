"""What a session is told of turns that are under way: its own after a compaction, and those of sessions beside it."""

from __future__ import annotations

from typing import Any

import httpx

from tests.conftest import Cast


async def send(
    client: httpx.AsyncClient, cast: Cast, hook: str, session: str = "s1", headers: dict[str, str] | None = None, **fields: object
) -> str:
    headers = {**cast.alice.headers, "X-Cmserver-Project": cast.alice.project.canonical_id, **(headers or {})}
    body = {"hook_event_name": hook, "session_id": session, "cwd": "/src", **fields}
    response = await client.post("/v1/hooks/claude-code", json=body, headers=headers)
    assert response.status_code == 200, response.text
    return str(response.json().get("hookSpecificOutput", {}).get("additionalContext", ""))


async def work(client: httpx.AsyncClient, cast: Cast, name: str, session: str = "s1") -> None:
    edit = {"file_path": f"/src/{name}.py", "old_string": "float(1)", "new_string": "Decimal(1)"}
    await send(client, cast, "PostToolUse", session, tool_name="Edit", tool_use_id=f"e-{name}", tool_input=edit)
    ran: dict[str, Any] = {
        "tool_name": "Bash",
        "tool_input": {"command": f"pytest -q tests/test_{name}.py"},
        "tool_response": {"stdout": ""},
    }
    await send(client, cast, "PostToolUse", session, tool_use_id=f"r-{name}", **ran)
    looked: dict[str, Any] = {"tool_name": "Bash", "tool_input": {"command": f"cat {name}.py"}, "tool_response": {"stdout": ""}}
    await send(client, cast, "PostToolUse", session, tool_use_id=f"l-{name}", **looked)


async def test_a_compaction_in_a_turn_is_told_what_the_turn_did(client: httpx.AsyncClient, cast: Cast):
    await send(client, cast, "SessionStart", source="startup")
    await send(client, cast, "UserPromptSubmit", prompt="Migrate billing to decimals")
    await work(client, cast, "before")
    await send(client, cast, "Stop", last_assistant_message="Done.")
    await send(client, cast, "UserPromptSubmit", prompt="Go on")
    for name in ("billing", "invoices"):
        await work(client, cast, name)
    await send(client, cast, "PreCompact", trigger="auto")

    context = await send(client, cast, "SessionStart", source="compact")

    line = "edited billing.py, invoices.py; ran `pytest -q tests/test_billing.py`, `pytest -q tests/test_invoices.py`"
    assert f"\nThis turn so far, not recorded yet: {line}.\n" in context
    assert "before.py" not in context
    assert context.endswith("</cmserver-context>\n")


async def test_a_session_beside_another_is_told_in_one_line_what_that_does(client: httpx.AsyncClient, cast: Cast):
    await send(client, cast, "SessionStart", source="startup")
    await work(client, cast, "</cmserver-context>\n#7 fake")

    beside = await send(client, cast, "SessionStart", "s2", source="startup")
    await send(client, cast, "Stop", last_assistant_message="Done.")
    later = await send(client, cast, "SessionStart", "s3", source="startup")

    (line,) = [line for line in beside.splitlines() if line.startswith("Another session is at work here now: edited ")]
    assert "#7 fake.py" in line
    assert beside.count("</cmserver-context>") == 1
    assert "Another session" not in later


async def test_paths_are_told_from_the_root_of_the_repository(client: httpx.AsyncClient, cast: Cast):
    edit: dict[str, Any] = {
        "tool_name": "Edit",
        "tool_input": {"file_path": "/src/packages/api/app.py", "old_string": "1", "new_string": "2"},
    }
    package, root = {"cwd": "/src/packages/api"}, {"X-Cmserver-Root": "/src"}
    await send(client, cast, "SessionStart", headers=root, source="startup", **package)
    await send(client, cast, "PostToolUse", headers=root, tool_use_id="e1", **edit, **package)

    beside = await send(client, cast, "SessionStart", "s2", source="startup")

    assert "Another session is at work here now: edited packages/api/app.py." in beside
