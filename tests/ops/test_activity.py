"""What goes on in a project: days, kinds and files."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import httpx

from tests.conftest import Cast
from tests.make import Make


async def test_days_kinds_and_files_are_counted(client: httpx.AsyncClient, cast: Cast, make: Make):
    yesterday = datetime.now(UTC) - timedelta(days=1)
    await make.observation(project=cast.alice.project, type="decision", files_modified=["a.py", "b.py"], created_at=yesterday)
    await make.observation(project=cast.alice.project, files_read=["a.py"], files_modified=["a.py"])
    await make.observation(project=cast.charlie.project, files_read=["secret.py"])

    answer = await client.get(f"/v1/projects/{cast.alice.project.id}/activity", headers=cast.alice.headers)

    activity = answer.json()
    assert len(activity["days"]) == 30
    assert [day["observations"] for day in activity["days"][-2:]] == [1, 1]
    assert {(kind["type"], kind["count"]) for kind in activity["kinds"]} == {("decision", 1), ("change", 1)}
    assert [(file["path"], file["count"]) for file in activity["files"]] == [("a.py", 2), ("b.py", 1)]


async def test_an_empty_project_has_thirty_days_of_nothing(client: httpx.AsyncClient, cast: Cast):
    answer = await client.get("/v1/projects/github.com%2Facme%2Forders/activity", headers=cast.alice.headers)

    assert answer.status_code == 200, answer.text
    activity = answer.json()
    assert sum(day["observations"] for day in activity["days"]) == 0
    assert (activity["kinds"], activity["files"]) == ([], [])
