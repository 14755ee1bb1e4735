"""What is pinned is checked after an import, a sweep of retention and a restore."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from cmserver.base.db import Db
from cmserver.base.ids import new_id
from cmserver.base.settings import Settings
from cmserver.ops.backup.archive import open_backup
from cmserver.ops.backup.back_up import back_up
from cmserver.ops.backup.restore import restore
from cmserver.ops.transfer import model
from cmserver.ops.transfer.jsonl import JsonlSource
from cmserver.recall.search import lexical
from cmserver.retention.sweep import sweep
from tests.conftest import Cast
from tests.make import Make
from tests.ops.transfers import encode, take, write
from tests.pins.tools import PROJECT, audited, pin, remember_things, send
from tests.rows import rows

PORT = "which port does staging use"


@pytest.fixture
async def memory(cast: Cast, make: Make) -> None:
    await remember_things(cast, make)


@pytest.mark.usefixtures("memory")
async def test_an_import_says_which_pins_it_broke_and_says_it_once(client: httpx.AsyncClient, cast: Cast, db: Db, tmp_path: Path):
    await pin(client, cast, PORT, must=["8443"])
    await pin(client, cast, PORT, mustNot=["9090"], lines=20, onBreak="refuse")
    project, at = new_id(), cast.alice.project.created_at
    lines: list[model.AnyLine] = [
        model.HeaderLine(format=model.FORMAT),
        model.ProjectLine(id=project, canonical_id=PROJECT, name="orders", created_at=at),
        model.ObservationLine(
            id=new_id(), project_id=project, number=900, type="change", importance=0.5, content="Staging uses port 9090",
            read_tokens=9, title="Staging uses port 9090", created_at=at, updated_at=at,
        ),
        model.PinLine(
            id=new_id(), project_id=project, number=1, question="which port", must=["9090"], lines=20, created_at=at, updated_at=at
        ),
    ]  # fmt: skip
    source = JsonlSource(write(tmp_path / "export.jsonl", [encode(lines)]))

    dry = await take(db, cast.alice.principal, source, tmp_path, dry_run=True)
    report = await take(db, cast.alice.principal, source, tmp_path)
    again = await take(db, cast.alice.principal, source, tmp_path)

    assert report.taken == {"observation": 1, "pin": 1}
    assert [line.partition(" of ")[0] for line in report.lost_pins] == ["Pin 2"]
    assert "'9090' comes" in report.lost_pins[0]
    assert (dry.lost_pins, again.lost_pins) == ([], [])
    assert await audited(db) == [{"action": "pins.lost", "actor_id": "alice", "cause": "import", "numbers": [2]}]
    listed = await send(client, cast, "GET", "/v1/pins")
    assert {it["number"]: it["holds"] for it in listed["pins"]} == {1: True, 2: False, 3: True}


@pytest.mark.usefixtures("memory")
async def test_a_sweep_says_which_pins_it_broke(client: httpx.AsyncClient, cast: Cast, db: Db):
    await pin(client, cast, PORT, must=["8443"])
    await pin(client, cast, "how long does the export take", must=["an hour"])
    await rows(db, "UPDATE teams SET retention = '{\"observationsDays\": 1}'")
    nothing = await sweep(db)
    aged = "created_at = now() - interval '9 days', updated_at = now() - interval '9 days'"
    await rows(db, f"UPDATE observations SET {aged} WHERE title LIKE 'Staging%%'")

    report = await sweep(db)

    assert nothing.lost_pins == []
    assert report.counts["aged_observations"] == 1
    assert [line.partition(" of ")[0] for line in report.lost_pins] == ["Pin 1"]
    assert await audited(db) == [{"action": "pins.lost", "actor_id": "system", "cause": "retention", "numbers": [1]}]


@pytest.mark.usefixtures("memory")
async def test_a_restore_says_which_pins_it_broke(
    client: httpx.AsyncClient, cast: Cast, settings: Settings, database: str, empty_database: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):  # fmt: skip
    await pin(client, cast, PORT, must=["8443"], onBreak="refuse")
    await back_up(database, settings, tmp_path / "one.backup")
    monkeypatch.setattr(lexical, "MAX_WORDS", 0)  # a rule by which no word is looked for

    with open_backup(tmp_path / "one.backup") as backup:
        report = await restore(backup, empty_database, tmp_path)

    assert report.counts["pins"] == 1
    assert [line.partition(" of ")[0] for line in report.lost_pins] == ["Pin 1"]
