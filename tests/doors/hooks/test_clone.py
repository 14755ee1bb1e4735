"""From the hook's script in a real clone to the mark of a line."""

from __future__ import annotations

import asyncio
import shutil
from datetime import UTC, datetime
from pathlib import Path

from cmserver.base.http.frame import AsgiFrame
from cmserver.base.settings import Settings
from tests.base.http.tools import serving
from tests.client.hook.agent import Agent
from tests.conftest import Cast
from tests.make import Make
from tests.repositories import Repository


async def test_a_line_whose_file_a_colleague_removed_is_marked_at_the_next_prompt_and_start(
    app: AsgiFrame, settings: Settings, cast: Cast, make: Make, tmp_path: Path
):
    repository = Repository(tmp_path / "orders")
    repository.git("remote", "add", "origin", "https://github.com/acme/orders")
    repository.write("src/pay.py", "a = 1\n")
    repository.commit()
    title = "Pay() in src/pay.py takes the lock first now"
    await make.observation(project=cast.alice.project, title=title, created_at=datetime(2025, 12, 1, tzinfo=UTC))

    async with serving(app, settings) as port:
        agent = Agent(tmp_path, Path(shutil.which("sh") or "/bin/sh"), f"http://127.0.0.1:{port}")
        (agent.folder / "authorization").write_text(f"Authorization: Bearer {cast.alice.key}\n")

        async def hook(event: str, session: str, **more: str) -> str:
            payload = {"session_id": session, "cwd": str(repository.folder), "hook_event_name": event, **more}
            answer = await asyncio.to_thread(agent.hook, event, payload, cwd=repository.folder)
            return str(answer.get("hookSpecificOutput"))

        async def prompt() -> str:
            return await hook("UserPromptSubmit", "s1", prompt="Does Pay() in src/pay.py take the lock first?")

        before = [await hook("SessionStart", "s1", source="startup"), await prompt(), await prompt()]
        repository.git("rm", "-q", "src/pay.py")
        commit = repository.commit(author="Bob")
        after = [await prompt(), await prompt(), await hook("SessionStart", "s2", source="startup")]
        await asyncio.to_thread(agent.until_idle)

    assert [title in text for text in (*before, *after)] == [True, True, False, True, False, True]
    mark = f" (src/pay.py was removed in {commit[:7]}, by Bob)"
    assert [mark in text for text in (*before, *after)] == [False, False, False, True, False, True]
