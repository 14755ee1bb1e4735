"""claude-mem's plugin, unchanged, works with us in both of its modes on one port."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import httpx
import msgspec
import pytest

from cmserver.base.db import Db
from cmserver.base.http.frame import AsgiFrame
from cmserver.base.settings import Settings
from cmserver.generation.job_notifier import JobNotifier
from cmserver.ingest import session_lifecycle
from cmserver.ingest.model import Checkpoints
from tests.conftest import Cast, bound_to, mint
from tests.contract.plugin import VERSION, Mode, Plugin
from tests.generation.tools import Outbox, Scripted
from tests.rows import rows

TURNS = 4
MODES: list[Mode] = ["worker", "server"]


@pytest.fixture
def settings(settings: Settings, cast: Cast, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """With guests of Alice's team, and a summary after every seven events."""
    monkeypatch.setattr(session_lifecycle, "CHECKPOINTS", Checkpoints(events=7, minutes=30.0))
    return msgspec.structs.replace(settings, trust_loopback="blue")


@pytest.fixture
async def port(app: AsgiFrame, cast: Cast) -> AsyncGenerator[httpx.AsyncClient]:
    """The one port, as a program on this machine reaches it."""
    transport = httpx.ASGITransport(app)  # pyright: ignore[reportArgumentType] - httpx types ASGI more narrowly
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:37877") as opened:
        yield opened


async def plugin(port: httpx.AsyncClient, db: Db, cast: Cast, mode: Mode, session: str = "c0ffee", project: str = "shop") -> Plugin:
    """In server mode with a key of theirs, which may make the project that it names."""
    _, key = await mint(db, cast.alice.team_id, "claude-mem", scopes=["memories:read", "memories:write"])
    return Plugin(port, session, mode=mode, project=project, key=key if mode == "server" else None)


async def works(hooks: Plugin) -> str:
    """A session of some turns with two tools each; what it was told at its start."""
    told = await hooks.start()
    for turn in range(TURNS):
        await hooks.prompt(f"Prompt {turn}")
        await hooks.tool("Read", {"file_path": "/home/alice/src/shop/client.py"}, {"file": "..."})
        await hooks.read("src/shop/client.py")
        await hooks.tool("Edit", {"file_path": "/home/alice/src/shop/client.py", "new_string": f"{turn}"}, {"ok": True})
        await hooks.stop(f"Did {turn}.")
    return told


async def counted(db: Db) -> dict[str, int]:
    """The events, by type."""
    found = await rows(db, "SELECT event_type, count(*) AS n FROM agent_events GROUP BY event_type")
    return {one["event_type"]: one["n"] for one in found}


async def summaries(db: Db) -> int:
    return len(await rows(db, "SELECT 1 FROM observation_generation_jobs WHERE source_type = 'session_summary'"))


async def test_in_worker_mode_every_prompt_and_tool_is_there_and_turns_share_a_summary(port: httpx.AsyncClient, db: Db, cast: Cast):
    await works(await plugin(port, db, cast, "worker"))

    assert await counted(db) == {"user_prompt": TURNS, "tool_use": 2 * TURNS, "assistant_message": TURNS}
    assert [one["text"] for one in await rows(db, "SELECT prompt AS text FROM turns ORDER BY prompt_number")] == [
        f"Prompt {turn}" for turn in range(TURNS)
    ]
    assert await summaries(db) == 1
    (session,) = await rows(db, "SELECT ended_at, content_session_id, platform_source FROM server_sessions")
    assert session == {"ended_at": None, "content_session_id": "c0ffee", "platform_source": "claude"}
    assert len(await rows(db, "SELECT 1 FROM projects WHERE canonical_id = 'shop'")) == 1


async def test_in_server_mode_every_tool_is_there_and_turns_share_a_summary(port: httpx.AsyncClient, db: Db, cast: Cast):
    await works(await plugin(port, db, cast, "server"))

    assert (await counted(db))["tool_use"] == 2 * TURNS
    assert (await counted(db))["assistant_message"] == TURNS
    assert await summaries(db) == 1
    assert await rows(db, "SELECT ended_at, content_session_id FROM server_sessions") == [
        {"ended_at": None, "content_session_id": "c0ffee"}
    ]


@pytest.mark.parametrize("mode", MODES)
async def test_the_next_session_is_told_what_the_first_has_done(
    port: httpx.AsyncClient, db: Db, notifier: JobNotifier, cast: Cast, mode: Mode
):
    first = await works(await plugin(port, db, cast, mode))
    shop = await bound_to(db, cast.alice, "shop")
    worker = await Outbox(db, notifier, shop.principal, shop.project).hand(Scripted())
    await worker.work()

    second = await works(await plugin(port, db, cast, mode, session="decaf"))

    assert "saw " not in first
    assert "saw " in second


async def test_both_modes_share_one_port_and_one_project(port: httpx.AsyncClient, db: Db, cast: Cast):
    await works(await plugin(port, db, cast, "worker", session="one"))
    await works(await plugin(port, db, cast, "server", session="other"))

    assert len(await rows(db, "SELECT 1 FROM server_sessions")) == 2
    assert (await counted(db))["tool_use"] == 4 * TURNS
    assert await summaries(db) == 2
    assert await rows(db, "SELECT DISTINCT canonical_id FROM agent_events e JOIN projects p ON p.id = e.project_id") == [
        {"canonical_id": "shop"}
    ]


async def test_a_hook_that_falls_back_to_the_worker_goes_on_with_its_session(port: httpx.AsyncClient, db: Db, cast: Cast):
    """In server mode it does so when the server does not answer in time."""
    server = await plugin(port, db, cast, "server")
    worker = await plugin(port, db, cast, "worker", project="elsewhere")
    await server.prompt("Add a retry")

    await worker.tool("Edit", {"file_path": "client.py"}, {})
    await worker.stop("Done.")

    assert await rows(db, "SELECT DISTINCT canonical_id FROM agent_events e JOIN projects p ON p.id = e.project_id") == [
        {"canonical_id": "shop"}
    ]
    assert len(await rows(db, "SELECT 1 FROM server_sessions")) == 1


@pytest.mark.parametrize("mode", MODES)
async def test_private_words_reach_no_table(port: httpx.AsyncClient, db: Db, cast: Cast, mode: Mode):
    hooks = await plugin(port, db, cast, mode)

    await hooks.prompt("Say <private>swordfish</private> twice")
    await hooks.tool("Write", {"content": "<private>swordfish</private>"}, {})
    await hooks.stop("I said <private>swordfish</private>.")

    tables = ["agent_events", "turns", "server_sessions", "observation_generation_jobs", "audit_log"]
    assert not [table for table in tables if "swordfish" in str(await rows(db, f"SELECT * FROM {table}"))]


async def test_the_plugin_would_notice_a_version(app: AsgiFrame, db: Db, cast: Cast):
    """Else the preflight would show nothing."""

    def told(_request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json={"status": "ok", "version": f"{VERSION}.1"})

    async with httpx.AsyncClient(transport=httpx.MockTransport(told), base_url="http://127.0.0.1") as other:
        with pytest.raises(AssertionError, match="sends nothing"):
            await (await plugin(other, db, cast, "worker")).start()
