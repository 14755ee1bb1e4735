"""The pages of the steward: what it may do, its runs with what they wrote, undo, and thresholds."""

from __future__ import annotations

import httpx
import msgspec
import pytest

from cmserver.base.db import Db
from cmserver.base.http.frame import AsgiFrame
from cmserver.base.settings import Settings
from cmserver.steward import repository
from cmserver.steward.model import PolicyChange
from cmserver.steward.policies import repository as policies
from tests.conftest import Cast, bound_to
from tests.doors.web.clicks import parse
from tests.doors.web.visitor import Visitor, visit_as, visit_with_key
from tests.steward.corpus import all_cases
from tests.steward.tools import Keeper, Planted, plant


@pytest.fixture
def keeper(db: Db, settings: Settings, cast: Cast) -> Keeper:
    return Keeper(db, msgspec.structs.replace(settings, provider="offline"), cast.alice.principal)


@pytest.fixture
async def owner(app: AsgiFrame, db: Db, cast: Cast) -> Visitor:
    return await visit_as(app, db, cast.alice.team_id, "owner")


async def plant_case(keeper: Keeper, name: str) -> Planted:
    return await plant(keeper.db, keeper.principal, next(case for case in all_cases() if case.name == name))


def form_paths(page: httpx.Response) -> list[str]:
    (main,) = parse(page.text).find_all("main")
    return [form.attributes["action"] for form in main.find_all("form") if form.attributes.get("method") == "post"]


def hrefs(page: httpx.Response) -> list[str]:
    return [link.attributes.get("href", "") for link in parse(page.text).find_all("a")]


async def send(visitor: Visitor, path: str, **fields: str | list[str]) -> httpx.Response:
    """A form with several values of one name."""
    data = {"token": await visitor.token(), **fields}
    return await visitor.client.post(path, data=data, headers={"Origin": "http://cmserver"}, follow_redirects=True)


async def test_an_owner_switches_it_and_narrows_a_project(owner: Visitor, keeper: Keeper, cast: Cast):
    empty = await owner.get("/ui/steward")
    refused = await owner.post("/ui/steward/run")
    dry = await send(owner, "/ui/steward/mode", mode="dry_run", executors=["recheck", "auto_merge"])
    paused = await send(owner, "/ui/steward/mode", mode="write", paused="true", executors=["recheck"])
    wrong = await send(owner, "/ui/steward/mode", mode="always")
    narrowed = await send(owner, "/ui/steward/projects", project=str(cast.alice.project.id))

    assert "It is off: nothing is planned." in empty.text
    assert (refused.status_code, "The steward is off" in refused.text) == (409, True)
    assert "In a dry run it decides and writes nothing." in dry.text
    assert 'value="auto_merge" checked' in dry.text
    assert ">paused</span>" in paused.text
    assert 'value="auto_merge" checked' not in paused.text.partition('id="narrow"')[0]
    assert wrong.status_code == 400
    assert "Projects with less than the team" in narrowed.text
    async with keeper.db.tenant(keeper.team_id) as conn:
        team = await repository.mode(conn, keeper.team_id)
        (project,) = await repository.project_executors(conn, keeper.team_id)
    assert (team.mode, team.is_paused, team.executors, project.executors) == ("write", True, ["recheck"], [])


async def test_a_run_shows_what_it_wrote_and_is_undone(owner: Visitor, keeper: Keeper):
    planted = await plant_case(keeper, "exact-0")
    await keeper.switch("write", executors=["auto_merge"])
    await owner.post("/ui/steward/run")
    await keeper.drain()
    (run,) = await keeper.runs()
    path = f"/ui/steward/runs/{run.id}"

    listed = await owner.get("/ui/steward/runs?job_type=auto_merge&status=succeeded")
    shown = await owner.get(path)
    overview = await owner.get("/ui/steward")
    undone = await owner.post(f"{path}/undo")
    again = await owner.post(f"{path}/undo")

    assert path in listed.text
    assert "merge: the texts are the same, 100 % sure" in listed.text
    assert "No run matches the filter." in (await owner.get("/ui/steward/runs?status=failed")).text
    assert '<a href="/ui/observations/2">#2</a> merged into <a href="/ui/observations/1">#1</a>.' in shown.text
    assert f"/ui/jobs/{run.job_id}" in hrefs(shown)
    job = await owner.get(f"/ui/jobs/{run.job_id}")
    assert "write applied" in job.text
    assert path in hrefs(job)
    assert "<strong>100 %</strong> <span>of 1 run in 24 hours went well" in overview.text
    assert "1 effect was taken back." in undone.text
    assert form_paths(undone) == []
    assert (again.status_code, "undone already" in again.text) == (409, True)
    assert len(await keeper.observations(planted.project)) == 2


async def test_a_dry_run_shows_what_it_would_write(owner: Visitor, keeper: Keeper):
    await plant_case(keeper, "derivable-0")
    await keeper.switch("dry_run")
    runs = {run.job_type: run for run in await keeper.work()}

    page = await owner.get(f"/ui/steward/runs/{runs['derive'].id}")

    assert "Nothing. It would write:" in page.text
    assert ">dry run</span></h1>" in page.text
    assert "Recurring: " in page.text
    assert form_paths(page) == []


async def test_what_it_thinks_of_a_pair_stands_in_the_inbox(owner: Visitor, keeper: Keeper):
    await plant_case(keeper, "contradiction-0")
    await keeper.switch("write")
    (run,) = await keeper.work("auto_merge")

    page = await owner.get("/ui/review")

    assert f'last decision: <a href="/ui/steward/runs/{run.id}">left to a person: they differ' in page.text


async def test_its_jobs_are_those_of_the_queue(app: AsgiFrame, owner: Visitor, keeper: Keeper):
    await keeper.switch("write")
    lost = await keeper.enqueue("<script>alert(1)</script>", {"mode": "write"})
    await keeper.drain()
    waiting = await keeper.enqueue("derive", {"mode": "write"})

    overview = await owner.get("/ui/steward")
    listed = await owner.get("/ui/jobs?source_type=steward")
    pages = [await owner.get(f"/ui/jobs/{job_id}") for job_id in (lost, waiting)]
    of_member = await (await visit_as(app, keeper.db, keeper.team_id, "member")).get(f"/ui/jobs/{lost}")
    cancelled = await owner.post(f"/ui/jobs/{waiting}/cancel")
    retried = await owner.post(f"/ui/jobs/{lost}/retry")

    assert "/ui/jobs?source_type=steward&amp;status=failed" in overview.text
    assert {f"/ui/jobs/{lost}", f"/ui/jobs/{waiting}"} <= {*hrefs(listed)}
    assert [form_paths(page) for page in pages] == [[f"/ui/jobs/{lost}/retry"], [f"/ui/jobs/{waiting}/cancel"]]
    assert all("<script>alert" not in page.text for page in (listed, *pages))
    assert form_paths(of_member) == []
    assert "The job is cancelled." in cancelled.text
    assert "The job is queued again." in retried.text


async def test_thresholds_show_their_history_and_a_change_is_taken_back(owner: Visitor, keeper: Keeper, cast: Cast):
    key = "auto_merge.threshold"
    change = PolicyChange(
        id=cast.alice.project.id,
        policy_key=key,
        prior_value=0.92,
        new_value=0.93,
        reason="few_accepted",
        changed_by="<b>steward",
        sample_size=120,
        evidence={"accepted": 20},
    )
    async with keeper.db.tenant(keeper.team_id) as conn:
        await policies.add(conn, keeper.team_id, change)

    page = await owner.get("/ui/steward/policies")
    back = await owner.post(f"/ui/steward/policies/{key}/rollback")
    again = await owner.post(f"/ui/steward/policies/{key}/rollback")
    unknown = await owner.post("/ui/steward/policies/colour/rollback")

    assert "&lt;b&gt;steward" in page.text
    assert "accepted: 20" in page.text
    assert form_paths(page) == [f"/ui/steward/policies/{key}/rollback"]
    assert f"{key} is 0.92 again." in back.text
    assert form_paths(back) == []
    assert (again.status_code, unknown.status_code) == (409, 404)


async def test_who_may_not_switch_it_sees_no_form_and_another_team_sees_nothing(app: AsgiFrame, db: Db, keeper: Keeper, cast: Cast):
    await plant_case(keeper, "exact-0")
    await keeper.switch("write")
    (run,) = await keeper.work("auto_merge")
    viewer, member = [await visit_as(app, db, cast.alice.team_id, role) for role in ("viewer", "member")]
    charlie = await visit_as(app, db, cast.charlie.team_id, "owner")
    bound = await visit_with_key(app, (await bound_to(db, cast.alice, "another")).principal)
    pages = ["/ui/steward", "/ui/steward/runs", f"/ui/steward/runs/{run.id}", "/ui/steward/policies"]

    for visitor in (viewer, member):
        shown = [await visitor.get(path) for path in pages]
        assert [page.status_code for page in shown] == [200] * 4
        assert [form_paths(page) for page in shown] == [[]] * 4
        assert (await visitor.post(f"{pages[2]}/undo")).status_code == 403
    assert [(await charlie.get(path)).status_code for path in pages] == [200, 200, 404, 200]
    assert str(run.id) not in (await charlie.get(pages[1])).text
    assert (await charlie.post(f"{pages[2]}/undo")).status_code == 404
    assert "Save" not in (await bound.get(pages[0])).text
    assert (await bound.get(pages[2])).status_code == 404
    assert (await send(bound, "/ui/steward/mode", mode="off")).status_code == 403
    assert (await bound.post("/ui/steward/policies/derive.novelty/rollback")).status_code == 403
