"""The pages of replays: begun, run, taken over, undone and removed."""

from __future__ import annotations

import httpx
import msgspec
import pytest

from cmserver.base.db import Db
from cmserver.base.http.frame import AsgiFrame
from cmserver.base.settings import Settings
from tests.conftest import Cast
from tests.doors.web.visitor import visit_as
from tests.generation.tools import Outbox
from tests.replays.test_replays import plant
from tests.replays.tools import Corpus, Replays


async def test_a_replay_is_begun_looked_at_taken_over_and_undone(
    app: AsgiFrame,
    client: httpx.AsyncClient,
    db: Db,
    cast: Cast,
    outbox: Outbox,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
):
    await Corpus(client, cast, outbox).play(2, 3)
    plant(monkeypatch, lambda draft: msgspec.structs.replace(draft, title=f"Refunds: {draft.title}"))
    owner = await visit_as(app, db, cast.alice.team_id, "owner")
    nothing = await owner.get("/ui/pins/replays")

    wrong = await owner.post("/ui/pins/replays", since="2026-03-01T09:00:00")
    begun = await owner.post("/ui/pins/replays", since="")
    await Replays(client, cast, db, settings).work()
    shown = await owner.get("/ui/pins/replays/1")
    lost = await owner.get("/ui/pins/replays/1?difference=lost")
    taken = await owner.post("/ui/pins/replays/1/take-over")
    undone = await owner.post("/ui/pins/replays/1/undo")
    listed = await owner.get("/ui/pins/replays")
    removed = await owner.post("/ui/pins/replays/1/remove")

    assert "Nothing was run again yet." in nothing.text
    assert "That time has no zone" in wrong.text
    assert "Replay 1 has begun." in begun.text
    assert "Refunds: " in shown.text
    assert "No differences." in lost.text
    assert "written, 0 left alone." in taken.text
    assert "as before, 0 left alone." in undone.text
    assert 'href="/ui/pins/replays/1"' in listed.text
    assert "Replay 1 is removed." in removed.text
