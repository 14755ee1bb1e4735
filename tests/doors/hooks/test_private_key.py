"""A folder that is private, and a key that is nobody's: what the hook's script makes of it."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

from cmserver.base.db import Db
from cmserver.base.http.frame import AsgiFrame
from cmserver.base.settings import Settings
from tests.base.http.tools import serving
from tests.client.hook.agent import Agent
from tests.conftest import Cast
from tests.rows import rows


async def test_a_private_session_that_no_key_can_keep_holds_up_no_other(
    app: AsgiFrame, settings: Settings, cast: Cast, db: Db, tmp_path: Path
):
    hidden, shown = tmp_path / "hidden", tmp_path / "shown"
    for folder in (hidden, shown):
        folder.mkdir()
    (hidden / ".cmserver.toml").write_text("private = true\n")

    async with serving(app, settings) as port:
        agent = Agent(tmp_path, Path(shutil.which("sh") or "/bin/sh"), f"http://127.0.0.1:{port}")
        (agent.folder / "authorization").write_text(f"Authorization: Bearer {cast.alice.key}\n")

        async def hook(folder: Path, event: str, **more: str) -> str:
            payload = {"session_id": folder.name, "cwd": str(folder), "hook_event_name": event, **more}
            return str(await asyncio.to_thread(agent.hook, event, payload, cwd=folder))

        told = await hook(hidden, "SessionStart", source="startup")
        silent = await hook(hidden, "UserPromptSubmit", prompt="The otter is hungry")
        agent.configure(URL="http://127.0.0.1:9")
        await hook(hidden, "UserPromptSubmit", prompt="The otter is hungry, and nobody listens")
        agent.configure()
        agent.end_pause()
        await hook(shown, "SessionStart", source="startup")
        await hook(shown, "UserPromptSubmit", prompt="The lamp is lit")
        await asyncio.to_thread(agent.until_drained)

    assert "belongs to no person" in told
    assert silent == "{}"
    assert (agent.left.refused, agent.left.waiting) == (1, 0)
    kept = await rows(db, "SELECT content_session_id AS id FROM server_sessions WHERE team_id = %s", cast.alice.team_id)
    assert [row["id"] for row in kept] == ["shown"]
