"""How many modules an event passes on its way from a hook's request to its row."""

from __future__ import annotations

import asyncio
import sys
from types import FrameType

import httpx

from cmserver.base.http.frame import AsgiFrame
from cmserver.base.notifications import NotificationListener
from tests.conftest import Cast

MAX_MODULES = 36
"""To the answer, one of them `cmserver.base.structs` and two the notification of workers, after the row."""


async def test_a_hooks_event_enters_few_modules_on_its_way_to_the_row(app: AsgiFrame, client: httpx.AsyncClient, cast: Cast):
    app.dependencies.get(NotificationListener).listening.set()  # as a server does, which then remembers keys and projects
    request = asyncio.current_task()
    headers = {**cast.alice.headers, "X-Cmserver-Project": cast.alice.project.canonical_id}
    entered: set[str] = set()

    def note(frame: FrameType, event: str, _argument: object) -> None:
        name = str(frame.f_globals.get("__name__"))
        if event == "call" and name.startswith("cmserver.") and asyncio.current_task() is request:
            entered.add(name)

    async def send(number: int) -> int:
        use = {"tool_name": "Edit", "tool_use_id": f"t{number}", "tool_input": {"file_path": "/src/a.py", "new_string": "x"}}
        hook = {"session_id": "s1", "hook_event_name": "PostToolUse", "cwd": "/src", **use}
        return (await client.post("/v1/hooks/claude-code", json=hook, headers=headers)).status_code

    assert [await send(1), await send(2)] == [200, 200]  # which find the key, the project and the session
    sys.setprofile(note)
    try:
        status = await send(3)
    finally:
        sys.setprofile(None)

    assert status == 200
    assert "cmserver.ingest.repository" in entered
    assert len(entered) <= MAX_MODULES, sorted(entered)
