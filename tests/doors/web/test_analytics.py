"""The page of analytics: stored, shown, opened; by day, project and agent."""

from __future__ import annotations

import httpx

from cmserver.base.db import Db
from cmserver.base.http.frame import AsgiFrame
from cmserver.doors.web.templates import axis_label, axis_top
from cmserver.observations.accesses.jobs import count_accesses
from tests.conftest import Cast, bound_to
from tests.doors.web.visitor import signed_out, visit_as
from tests.make import Make
from tests.table import try_rows


async def show_context(client: httpx.AsyncClient, cast: Cast) -> None:
    """An agent of Alice's starts a session and is shown the index."""
    body = {"projectId": str(cast.alice.project.id), "externalSessionId": "s1", "platformSource": "claude-code"}
    session = (await client.post("/v1/sessions/start", json=body, headers=cast.alice.headers)).json()["session"]
    path = f"/v1/context?project={cast.alice.project.id}&session={session['id']}"
    answer = await client.get(path, headers=cast.alice.headers)
    assert answer.status_code == 200, answer.text


async def test_the_funnel_counts_stored_shown_and_opened(app: AsgiFrame, db: Db, client: httpx.AsyncClient, cast: Cast, make: Make):
    first = await make.observation(project=cast.alice.project, title="Orders are <b>idempotent</b>")
    await make.observation(project=cast.alice.project, title="Payments are retried")
    await make.observation(project=cast.charlie.project, title="Charlie's secret")
    await show_context(client, cast)
    await client.get(f"/v1/observations/{first.number}", headers=cast.alice.headers)
    await count_accesses(db)
    viewer = await visit_as(app, db, cast.alice.team_id, "viewer")

    page = await viewer.get("/ui/analytics?days=7")
    report = (await client.get("/v1/analytics?days=7", headers=cast.alice.headers)).json()

    assert page.status_code == 200
    assert (report["stored"], report["shown"], report["opened"]) == (2, 2, 1)
    assert "<strong>2</strong> <span>new observations stored</span>" in page.text
    assert "<strong>1</strong> <span>of these opened since</span>" in page.text
    assert "Orders are &lt;b&gt;idempotent&lt;/b&gt;" in page.text
    assert "claude-code" in page.text
    assert "secret" not in page.text


async def test_one_project_is_counted_alone(app: AsgiFrame, db: Db, cast: Cast, make: Make):
    billing = (await bound_to(db, cast.alice, "billing")).project
    await make.observation(project=billing)
    await make.observation(project=cast.alice.project)
    viewer = await visit_as(app, db, cast.alice.team_id, "viewer")

    page = await viewer.get(f"/ui/analytics?days=90&project={billing.id}")

    assert "<strong>1</strong> <span>new observations stored</span>" in page.text


async def test_the_projects_add_up_to_what_was_stored_also_of_what_was_merged_since(
    db: Db, client: httpx.AsyncClient, cast: Cast, make: Make
):
    one = await make.observation(project=cast.alice.project)
    two = await make.observation(project=cast.alice.project)
    async with db.system() as conn:
        await conn.execute("UPDATE observations SET superseded_at = now(), superseded_by = %s WHERE id = %s", [one.id, two.id])

    report = (await client.get("/v1/analytics?days=7", headers=cast.alice.headers)).json()

    assert (report["stored"], [row["stored"] for row in report["byProject"]]) == (2, [2])


async def test_without_anything_the_page_says_the_next_command(app: AsgiFrame, db: Db, cast: Cast):
    viewer = await visit_as(app, db, cast.alice.team_id, "viewer")

    page = await viewer.get("/ui/analytics")

    assert "Nothing was stored or shown in these days." in page.text
    assert "cmserver connect claude-code" in page.text


async def test_wrong_days_and_other_teams_projects_are_refused(app: AsgiFrame, db: Db, cast: Cast):
    viewer = await visit_as(app, db, cast.alice.team_id, "viewer")

    assert (await viewer.get("/ui/analytics?days=0")).status_code == 400
    assert (await viewer.get(f"/ui/analytics?project={cast.charlie.project.id}")).status_code == 404
    assert (await signed_out(app).client.get("/ui/analytics")).status_code == 303


@try_rows(
    ("values", "top"), [([], 2), ([0], 2), ([1], 2), ([3, 1], 4), ([7], 8), ([10], 10), ([11], 20), ([0.3], 0.4), ([950], 1000)]
)
def test_an_axis_ends_at_a_round_number_above_the_values(values: list[float], top: float):
    assert abs(axis_top(values) - top) < 1e-9


@try_rows(
    ("value", "unit", "text"),
    [
        (0.2, "money", "$0.20"),
        (20_000, "number", "20k"),
        (1_200, "number", "1,200"),
        (4e6, "number", "4M"),
        (2e6, "bytes", "2.0 MB"),
    ],
)
def test_an_axis_writes_its_unit(value: float, unit: str, text: str):
    assert axis_label(value, unit) == text
