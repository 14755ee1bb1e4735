"""The steward over HTTP and on the command line's routes: who may do what, and that refusals are sentences."""

from __future__ import annotations

from typing import Any

from httpx import AsyncClient

from tests.conftest import Cast
from tests.rows import rows
from tests.steward.test_runs import plant_pair
from tests.steward.tools import Keeper


async def test_a_team_switches_it_on_runs_it_and_takes_a_run_back(client: AsyncClient, cast: Cast, keeper: Keeper):
    planted = await plant_pair(keeper)

    async def call(method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        answer = await client.request(method, f"/v1/steward{path}", json=body, headers=cast.alice.headers)
        return answer.status_code, answer.json()

    assert (await call("GET", ""))[1]["mode"] == "off"
    assert (await call("POST", "/run", {}))[0] == 409
    status, switched = await call("PUT", "/mode", {"mode": "write", "executors": ["auto_merge"]})
    assert (status, switched["mode"], switched["executors"], switched["changedBy"]) == (200, "write", ["auto_merge"], "alice")
    assert (await call("PUT", "/mode", {"executors": []}))[1]["executors"] == []
    assert (await call("PUT", "/mode", {"mode": "dry_run"}))[1]["executors"] == [], "none stays none"
    await call("PUT", "/mode", {"mode": "write", "executors": ["auto_merge"]})
    status, queued = await call("POST", "/run", {})
    assert (status, len(queued["queued"])) == (202, 1)
    await keeper.drain()

    (run,) = (await call("GET", "/runs?jobType=auto_merge&status=succeeded"))[1]["runs"]
    detail = (await call("GET", f"/runs/{run['id']}"))[1]
    assert detail["run"]["output"]["effects"][0]["kind"] == "merged"
    assert [event["eventType"] for event in detail["events"]][-1] == "completed"
    status, undone = await call("POST", f"/runs/{run['id']}/undo")
    assert (status, undone["undone"]) == (200, [{"kind": "merged", "number": 1, "restored": [2]}])
    assert (await call("POST", f"/runs/{run['id']}/undo"))[0] == 409
    metrics = (await call("GET", ""))[1]["metrics"]
    assert (metrics["runsLastHour"], metrics["successRate"], metrics["topFailures"]) == (1, 1.0, [])
    assert len(await keeper.observations(planted.project)) == 2
    acts = await rows(keeper.db, "SELECT action FROM audit_log WHERE action LIKE 'steward.%%' ORDER BY id")
    assert [row["action"] for row in acts] == ["steward.mode_changed"] * 4 + ["steward.run_requested", "steward.run_undone"]


async def test_refusals(client: AsyncClient, cast: Cast, keeper: Keeper):
    await plant_pair(keeper)
    await keeper.switch("dry_run")
    (run,) = await keeper.work("auto_merge")
    alice, stranger = cast.alice.headers, cast.charlie.headers
    calls: list[tuple[str, str, Any, dict[str, str], int]] = [
        ("GET", f"/runs/{run.id}", None, stranger, 404),
        ("POST", f"/runs/{run.id}/undo", None, stranger, 404),
        ("POST", f"/runs/{run.id}/undo", None, alice, 409),
        ("GET", "/runs/12", None, alice, 404),
        ("GET", f"/jobs/{run.job_id}/events", None, alice, 404),
        ("PUT", "/mode", {"mode": "on"}, alice, 400),
        ("PUT", "/mode", {"executors": ["reindex"]}, alice, 400),
        ("PUT", "/mode", {"mode": "write", "project": "github.com/acme/orders"}, alice, 400),
        ("POST", "/run", {"executors": []}, alice, 400),
        ("POST", "/policies/colour/rollback", None, alice, 404),
        ("POST", "/policies/derive.novelty/rollback", None, alice, 409),
    ]

    wrong = [
        (method, path, status, answer.status_code)
        for method, path, body, headers, status in calls
        for answer in [await client.request(method, f"/v1/steward{path}", json=body, headers=headers)]
        if answer.status_code != status
    ]

    assert wrong == []
    assert (await client.get("/v1/steward/runs", headers=stranger)).json()["runs"] == []


async def test_its_jobs_are_those_of_the_queue(client: AsyncClient, cast: Cast, keeper: Keeper):
    await keeper.switch("write")
    waiting, other = await keeper.enqueue("derive", {"mode": "write"}), await keeper.enqueue("recheck", {"mode": "write"})

    async def ids(query: str) -> list[str]:
        answer = await client.get(f"/v1/jobs?{query}", headers=cast.alice.headers)
        return [job["id"] for job in answer.json()["jobs"]]

    assert await ids("source_type=steward&status=queued") == [str(other), str(waiting)]
    assert await ids("source_type=steward&job_type=derive") == [str(waiting)]
    cancelled = await client.post(
        "/v1/jobs/cancel", json={"sourceType": "steward", "jobType": "recheck"}, headers=cast.alice.headers
    )
    assert cancelled.json()["changed"] == 1
    assert await ids("source_type=steward&status=cancelled") == [str(other)]
