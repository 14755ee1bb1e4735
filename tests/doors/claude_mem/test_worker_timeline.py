"""GET /api/timeline: what was recorded around an observation or a moment."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import httpx
import pytest

from cmserver.base.db import Db
from tests.conftest import Cast, bound_to
from tests.doors.claude_mem.worker import cells_of, got, prompt, served, session, text_of
from tests.make import Make
from tests.table import try_rows

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


@pytest.fixture
async def five(cast: Cast, make: Make) -> None:
    """One an hour, the third a summary; and one of a stranger and of another project among them."""
    for number in range(1, 6):
        await make.observation(
            project=cast.alice.project,
            title=f"step {number}",
            kind="summary" if number == 3 else "observation",
            created_at=NOON + timedelta(hours=number),
        )
    await make.observation(project=cast.charlie.project, title="a stranger's", created_at=NOON + timedelta(hours=2))


async def around(client: httpx.AsyncClient, cast: Cast, path: str = "/api/timeline", /, **params: object) -> Sequence[str]:
    answer = text_of(await got(client, path, cast.alice.headers, **params))
    return [line[0] for line in cells_of(answer)]


@try_rows(
    ("params", "expected"),
    [
        ({"anchor": 2}, ["#1", "→ #2", "#S3", "#4", "#5"]),
        ({"anchor": "#2", "depth_before": 0, "depth_after": 1}, ["→ #2", "#S3"]),
        ({"anchor": "S3", "depth_before": 1, "depth_after": 1}, ["#2", "→ #S3", "#4"]),
        ({"anchor": "2026-11-20T15:30:00Z", "depth_before": 1, "depth_after": 1}, ["#S3", "#4"]),
        ({"anchor": "2026-11-20T15:30:00", "depth_before": 1, "depth_after": 1}, ["#S3", "#4"]),
        ({"anchor": "2026-11-20T15:00:00Z", "depth_before": 1, "depth_after": 1}, ["#2", "#S3"]),
        ({"query": "step 4", "depth_before": 1, "depth_after": 0}, ["#S3", "→ #4"]),
        ({"anchor": 2, "depth_before": 5000, "depth_after": 0}, ["#1", "→ #2"]),
        ({"anchor": 999}, []),
        ({"query": "nothing like it"}, []),
        ({"anchor": 2, "project": "nowhere"}, []),
    ],
    ids=str,
)
@pytest.mark.usefixtures("five")
async def test_it_is_told_what_came_before_and_after(
    client: httpx.AsyncClient, cast: Cast, params: dict[str, object], expected: list[str]
):
    assert await around(client, cast, **params) == expected


@pytest.mark.usefixtures("five")
async def test_a_query_has_a_path_of_its_own_and_reading_leaves_a_trace(client: httpx.AsyncClient, cast: Cast, db: Db):
    found = await around(client, cast, "/api/timeline/by-query", query="step 1", depth_after=1)

    assert found == ["→ #1", "#2"]
    assert [(row["via"], row["numbers"]) for row in await served(db)] == [("timeline", [1, 2])]


@pytest.mark.usefixtures("five")
async def test_it_stays_within_the_project_of_the_anchor(client: httpx.AsyncClient, cast: Cast, make: Make, db: Db):
    other = await bound_to(db, cast.alice, "github.com/acme/other")
    await make.observation(project=other.project, title="elsewhere", created_at=NOON + timedelta(hours=2, minutes=30))
    shared = await make.observation(project=cast.alice.project, title="shared", scope="team", created_at=NOON + timedelta(hours=3))

    assert await around(client, cast, anchor=2, depth_before=0, depth_after=2) == ["→ #2", "#S3", "#7"]
    assert await around(client, cast, anchor="2026-11-20T14:00:00Z", depth_before=0, depth_after=2) == ["#2", "#6"]
    answer = text_of(await got(client, "/api/timeline", other.headers, anchor=shared.number))
    assert [line[0] for line in cells_of(answer)] == ["#6", "→ #7"]
    hidden = text_of(await got(client, "/api/timeline", other.headers, anchor=2))
    assert cells_of(hidden) == []


@pytest.mark.usefixtures("five")
async def test_no_anchor_and_one_that_is_none_are_refused(client: httpx.AsyncClient, cast: Cast):
    for query in ("", "?anchor=tomorrow"):
        answered = await client.get(f"/api/timeline{query}", headers=cast.alice.headers)

        assert (answered.status_code, answered.json()["issues"][0]["path"]) == (400, "$.anchor")


@pytest.mark.usefixtures("five")
async def test_prompts_are_told_among_the_others(client: httpx.AsyncClient, cast: Cast, db: Db):
    said = f"Go on with | step 4{' and so on' * 100}"
    event_id = await prompt(client, cast.alice, await session(client, cast.alice, "s-1"), said)
    async with db.tenant(cast.alice.team_id) as conn:
        at = NOON + timedelta(hours=3, minutes=30)
        await conn.execute("UPDATE turns SET created_at = %s WHERE agent_event_id = %s", [at, event_id])

    answer = text_of(await got(client, "/api/timeline", cast.alice.headers, anchor=4, depth_before=2, depth_after=0))

    assert [line[0] for line in cells_of(answer)] == ["#S3", "prompt 1", "→ #4"]
    assert cells_of(answer)[1][2] == "prompt"
    assert cells_of(answer)[1][3].startswith("Go on with | step 4 and so on")
    assert cells_of(answer)[1][4] == "255", "what the whole of it takes, of which a part is told"
