"""What happened by itself is listed for a week, with its evidence, and can be taken back."""

from __future__ import annotations

from typing import Any

import httpx

from cmserver.base.db import Db
from cmserver.base.http.frame import AsgiFrame
from cmserver.observations import repository as observations
from tests.conftest import Cast
from tests.doors.web.visitor import visit_as
from tests.make import Make
from tests.steward.test_runs import plant_pair
from tests.steward.tools import Keeper


async def list_acts(client: httpx.AsyncClient, cast: Cast, **query: str) -> list[Any]:
    return (await client.get("/v1/acts", params=query, headers=cast.alice.headers)).json()["acts"]


async def store(client: httpx.AsyncClient, cast: Cast, **fields: object) -> int:
    body = {"projectId": cast.alice.project.canonical_id, "onDuplicate": "merge", **fields}
    answer = await client.post("/v1/observations", json=body, headers=cast.alice.headers)
    assert answer.is_success, answer.text
    return answer.json()["observation"]["number"]


async def test_each_kind_of_act_is_listed_with_its_evidence_and_undone_on_the_page_of_today(
    app: AsgiFrame, client: httpx.AsyncClient, cast: Cast, db: Db, make: Make
):
    merged = await store(client, cast, title="Refunds wait in the table refund_queue", type="bugfix")
    await store(client, cast, title="Refunds wait in the table refund_queue", type="discovery")
    dropped = await store(client, cast, title="Deploys on Fridays need two people")
    await client.patch(f"/v1/observations/{dropped}", json={"state": "dropped"}, headers=cast.alice.headers)
    await store(client, cast, title="Deploys on Fridays need two people")
    end = await make.observation(project=cast.alice.project, title="The retry is untested")
    await client.patch(f"/v1/observations/{end.number}", json={"state": "open"}, headers=cast.alice.headers)
    closer = await make.observation(project=cast.alice.project, title="Tested the retry")
    async with db.tenant(cast.alice.team_id) as conn:
        await observations.close(conn, cast.alice.team_id, cast.alice.project.id, [end.number], closer.number, "done")
    alice = await visit_as(app, db, cast.alice.team_id)

    acts = await list_acts(client, cast)

    found = {(act["kind"], act["number"], tuple(act["byNumbers"]), act["canUndo"]) for act in acts}
    assert found == {
        ("merged", merged, (merged + 1,), True),
        ("repeated", dropped, (), True),
        ("done", end.number, (closer.number,), True),
    }
    assert await list_acts(client, cast, project=cast.alice.project.canonical_id) == acts
    page = (await alice.get("/ui")).text
    assert all(text in page for text in ("said the same", "the same text was written down again", "shows it"))
    for path in (f"{merged}/undo", f"{dropped}/undo", f"{end.number}/reopen"):
        assert f'action="/ui/observations/{path}"' in page
        assert (await alice.post(f"/ui/observations/{path}")).status_code == 200
    assert await list_acts(client, cast) == []
    row = (await client.get(f"/v1/observations/{end.number}", headers=cast.alice.headers)).json()["observation"]
    assert (row["state"], row["closedBy"]) == ("open", None)


async def test_what_people_do_is_none_and_after_a_week_nothing_is_listed(client: httpx.AsyncClient, cast: Cast, db: Db):
    one = await store(client, cast, title="Invoices are archived at night")
    other = await store(client, cast, title="The archive of invoices is read-only")
    await client.post(f"/v1/observations/{one}/merge", json={"sources": [other]}, headers=cast.alice.headers)
    assert await list_acts(client, cast) == []

    await store(client, cast, title="Invoices wait", type="bugfix")
    await store(client, cast, title="Invoices wait", type="discovery")
    assert len(await list_acts(client, cast)) == 1
    async with db.system() as conn:
        await conn.execute("UPDATE observation_versions SET created_at = created_at - interval '8 days'")
    assert await list_acts(client, cast) == []


async def test_a_run_of_the_steward_is_one_act_and_only_its_team_sees_it(
    app: AsgiFrame, keeper: Keeper, client: httpx.AsyncClient, cast: Cast
):
    planted = await plant_pair(keeper)
    await keeper.switch("write")
    (run,) = await keeper.work("auto_merge")

    acts = (await client.get("/v1/acts", headers=cast.alice.headers)).json()["acts"]
    others = (await client.get("/v1/acts", headers=cast.charlie.headers)).json()["acts"]

    assert [(act["kind"], act["runId"], act["byNumbers"]) for act in acts] == [("steward", str(run.id), [planted.notes[0].number])]
    assert others == []
    assert [act["why"] for act in acts] == ["took in another that says the same"]
    owner = await visit_as(app, keeper.db, cast.alice.team_id)
    assert f'<a href="/ui/steward/runs/{run.id}">Undo…</a>' in (await owner.get("/ui")).text
