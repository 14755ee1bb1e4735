"""`cmserver retention`: counts or takes, and what `cmserver verify` says of it."""

from __future__ import annotations

import json
from functools import partial

import pytest

from cmserver.base.db import Db
from cmserver.cli import retention
from cmserver.retention.model import KINDS
from cmserver.retention.sweep import sweep
from tests.cli.conftest import Cms
from tests.conftest import Cast
from tests.make import Make
from tests.retention.rows import OldRows


async def test_a_dry_run_counts_and_the_command_takes(cms: Cms, cast: Cast, db: Db, make: Make):
    old = OldRows(db, make)
    await old.receipt(cast.alice.project, days_ago=100)
    await old.receipt(cast.alice.project, days_ago=10)

    counted = await cms("retention", "--dry-run", "--json")
    left = await old.count("context_injections")
    done = await cms("retention", "--json")
    again = await cms("retention")

    assert json.loads(counted.out) == {
        "dryRun": True,
        "isComplete": True,
        "backupRuns": False,
        "counts": {**dict.fromkeys(KINDS, 0), "receipts": 1},
        "lostPins": [],
    }
    assert left == 2
    assert json.loads(done.out)["counts"]["receipts"] == 1
    assert await old.count("context_injections") == 1
    assert again.code == 0, again.err
    assert [line.split()[:2] for line in again.out.splitlines()][1:] == [[kind, "0"] for kind in KINDS]


async def test_verify_says_what_retention_took_and_holds(cms: Cms, cast: Cast, db: Db, make: Make):
    old = OldRows(db, make)
    await old.event(cast.alice.project, days_ago=900, status="completed", purged_days_ago=400)
    await old.event(cast.alice.project, days_ago=1, status="completed")
    await old.observation(cast.alice.project, expired_days_ago=8)
    before = await cms("verify")

    await cms("retention")
    after = await cms("verify")

    assert (before.code, after.code) == (0, 0)
    taken = [line.split() for line in after.out.splitlines()]
    assert ["blue", "event_rows", "1"] in taken
    assert ["blue", "expired_observations", "1"] in taken
    assert "event_rows" not in before.out


async def test_it_says_that_a_budget_stopped_it(cms: Cms, cast: Cast, db: Db, make: Make, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(retention, "sweep", partial(sweep, max_rows=2))
    old = OldRows(db, make)
    for _ in range(3):
        await old.receipt(cast.alice.project, days_ago=100)

    said = await cms("retention")

    assert said.code == 0
    assert "There is more" in said.err
    assert await old.count("context_injections") == 1
