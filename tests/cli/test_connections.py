"""`cmserver connections`, and what `cmserver status` says of hooks."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from cmserver.client.connections import ConnectionList
from tests.cli.attaching import folder
from tests.cli.conftest import URL, Run

# -- connections and status


async def test_connections_says_who_is_attached_and_what_waits(run: Run, home: Path, monkeypatch: pytest.MonkeyPatch):
    assert "No agent is connected" in (await run("connections")).out
    await run("connect", "claude-code", "--yes")
    spool = folder(home).path / "spool"
    spool.mkdir()
    for end in ("head", "body", "mark"):
        (spool / f"1790000000000000-0000123-ab.{end}").write_text("wait")
    (folder(home).path / "state").mkdir()
    (folder(home).path / "state" / "dropped").write_text("2\n")

    (one,) = (await run("connections", "--json")).read(ConnectionList).connections
    status = await run("status")

    assert (one.agent, one.url, one.server, one.waiting, one.dropped) == ("claude-code", URL, "does not answer", 1, 2)
    assert one.settings == [str(home / ".claude" / "settings.json")]
    assert "hooks     claude-code: 1 call waiting (4 bytes, the oldest for " in status.out
    assert "2 calls dropped" in status.out


async def test_a_key_that_is_gone_is_told_and_made_anew(run: Run, home: Path):
    await run("connect", "claude-code", "--yes")
    (folder(home).path / "authorization").unlink()

    gone = await run("connections")
    await run("connect", "claude-code", "--yes")

    assert "lacks its key" in gone.out
    assert "`cmserver connect claude-code` makes a new one" in gone.err
    assert folder(home).key() is not None


async def test_connections_says_when_claude_mem_is_not_admitted(run: Run, monkeypatch: pytest.MonkeyPatch):
    await run("connect", "claude-mem", "--yes", "--server", "http://localhost:37877")

    def refuse(*_: object, **__: object) -> httpx.Response:
        return httpx.Response(401)

    monkeypatch.setattr(httpx, "get", refuse)

    said = await run("connections")

    assert "refuses guests" in said.out
    assert "CMSERVER_TRUST_LOOPBACK" in said.err


async def test_status_says_nothing_of_hooks_when_all_is_sent(run: Run, home: Path):
    await run("connect", "claude-code", "--yes")

    assert "hooks" not in (await run("status")).out
