"""What later words had hidden before is shown again, and is never deleted for it."""

from __future__ import annotations

from typing import LiteralString

import msgspec
import pytest
from httpx import AsyncClient

from cmserver.base.db import Db
from cmserver.base.settings import Settings
from cmserver.observations import repository as observations
from cmserver.observations.history import repository as history
from cmserver.observations.history.model import SYSTEM, Change
from cmserver.ops.doctor.database import check_database
from cmserver.retention.sweep import sweep
from tests.conftest import Cast
from tests.make import Make

REVIVE: LiteralString = "SELECT revive_what_words_replaced()"


async def hide(db: Db, cast: Cast, make: Make, older: str, newer: str, *, days: int, performed_by: str = SYSTEM) -> list[int]:
    """A rule as an earlier version of the program hid it so many days ago; both numbers."""
    rows = [
        await make.observation(project=cast.alice.project, type="decision", title=title, importance=0.9) for title in (older, newer)
    ]
    hidden, target = rows
    async with db.system() as conn:
        merged = await observations.correct(
            conn,
            cast.alice.team_id,
            msgspec.structs.replace(target, merged_from=[hidden.id], metadata={"replaces": hidden.number}),
        )
        change = Change(
            action="merged", performed_by=performed_by, source_ids=[hidden.id], strategy="latest_wins", measured_by="words"
        )
        await history.add(conn, target, merged, change)
        await history.supersede(conn, cast.alice.team_id, [hidden.id], target.id)
        await conn.execute(
            "UPDATE observations SET superseded_at = now() - make_interval(days => %s) WHERE id = %s", [days, hidden.id]
        )
    return [row.number for row in rows]


@pytest.mark.parametrize("days", [6, 8])
async def test_what_later_words_hid_is_kept_by_retention_and_shown_again_beside_them(
    client: AsyncClient, cast: Cast, db: Db, make: Make, settings: Settings, days: int
):
    older, newer = await hide(db, cast, make, "Never print secrets", "Log with structlog instead of print", days=days)

    await sweep(db)
    async with db.system() as conn:
        assert await (await conn.execute(REVIVE)).fetchall() == [(1,)]
        assert await (await conn.execute(REVIVE)).fetchall() == [(0,)]
    await sweep(db)

    listed = await client.get("/v1/observations", params={"type": "decision"}, headers=cast.alice.headers)
    assert [(row["number"], row["metadata"].get("mayReplace")) for row in listed.json()["observations"]] == [
        (newer, older),
        (older, None),
    ]
    context = await client.get("/v1/context", params={"project": cast.alice.project.canonical_id}, headers=cast.alice.headers)
    assert "Never print secrets" in context.json()["context"]
    assert f"(may replace #{older})" in context.json()["context"]
    (finding,) = [row for row in await check_database(db, settings) if row.code == "words.revived"]
    assert "1 observation" in finding.message


async def test_what_people_merged_stays_merged_and_goes_after_its_week(cast: Cast, db: Db, make: Make, settings: Settings):
    await hide(db, cast, make, "Release with make ship", "Release with task ship", days=8, performed_by="alice")

    async with db.system() as conn:
        assert await (await conn.execute(REVIVE)).fetchall() == [(0,)]
    await sweep(db)

    async with db.system() as conn:
        assert await (await conn.execute("SELECT title FROM observations")).fetchall() == [("Release with task ship",)]
