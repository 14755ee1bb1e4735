"""`cmserver replay` and `cmserver replays`: what is begun, waited for, shown, and asked about before a model is paid."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import httpx
import msgspec
import pytest

from cmserver.base.db import Db
from cmserver.base.settings import Settings
from cmserver.replays import run_replay
from tests.cli.conftest import Cms, Said
from tests.conftest import Cast
from tests.generation.tools import Outbox, Scripted
from tests.replays.test_replays import give, plant
from tests.replays.tools import Corpus, Replays


async def test_a_replay_shows_what_would_be_another(
    cms: Cms, client: httpx.AsyncClient, db: Db, cast: Cast, outbox: Outbox, settings: Settings, monkeypatch: pytest.MonkeyPatch
):
    await Corpus(client, cast, outbox).play(1, 2)
    replays = Replays(client, cast, db, settings)
    same = await _beside(replays, cms("replay", "--json", key=cast.alice.key))
    plant(monkeypatch, lambda draft: msgspec.structs.replace(draft, title=f"Anew: {draft.title}"))

    shown = await _beside(replays, cms("replay", key=cast.alice.key))
    begun = await cms("replay", "--no-wait", key=cast.alice.key)
    bad = await cms("replay", "--since", "2026-03-01T09:00:00", key=cast.alice.key)
    unsure = await cms("replay", "--provider", "anthropic", key=cast.alice.key)
    monkeypatch.setattr(run_replay, "load_provider", give(Scripted(name="anthropic")))
    asked = await cms("replay", "--provider", "anthropic", "--yes", "--no-wait", key=cast.alice.key)

    assert '"state": "done"' in same.out
    assert "0 lost, 0 new" in shown.out
    assert "+ [" in shown.out
    assert "Anew: " in shown.out
    assert (begun.code, "running" in begun.out) == (0, True)
    assert (bad.code != 0, "zone" in bad.err) == (True, True)
    assert (unsure.code != 0, "at most $" in unsure.err, "--yes" in unsure.err) == (True, True, True)
    assert (asked.code, "anthropic" in asked.out) == (0, True)
    taken = await cms("replays", "take-over", "2", key=cast.alice.key)
    assert "Took over replay 2" in taken.out
    assert "taken over" in (await cms("replays", "list", key=cast.alice.key)).out
    assert "Undid" in (await cms("replays", "undo", "2", key=cast.alice.key)).out
    assert "Stopped replay 3" in (await cms("replays", "stop", "3", key=cast.alice.key)).out
    assert "Replay 3 goes on" in (await cms("replays", "resume", "3", key=cast.alice.key)).out
    assert "reworded" in (await cms("replays", "lines", "2", "--difference", "reworded", key=cast.alice.key)).out
    assert "Removed replay 3" in (await cms("replays", "remove", "3", "--yes", key=cast.alice.key)).out


async def _beside(replays: Replays, command: Coroutine[Any, Any, Said]) -> Said:
    """The command, while a worker comes by."""
    running = asyncio.create_task(command)
    while not running.done():
        await replays.work()
        await asyncio.sleep(0.05)
    return await running
