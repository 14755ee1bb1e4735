"""The pages of costs: sums, a chart with its figures, a file, and budgets."""

from __future__ import annotations

import csv
import io

from cmserver.base.db import Db
from cmserver.base.http.frame import AsgiFrame
from tests.conftest import Cast, bound_to
from tests.doors.web.visitor import signed_out, visit_as
from tests.make import Make
from tests.table import try_rows


async def test_today_is_told_in_money_and_tokens(app: AsgiFrame, db: Db, cast: Cast, make: Make):
    await make.run(project=cast.alice.project, input_tokens=1_000, output_tokens=200, cost_usd="1.25")
    await make.run(project=cast.alice.project, input_tokens=5_000, cost_usd="2", days_ago=3)
    await make.run(project=cast.charlie.project, input_tokens=77_777, cost_usd="9")
    viewer = await visit_as(app, db, cast.alice.team_id, "viewer")

    page = await viewer.get("/ui/costs?days=7")

    assert page.status_code == 200
    assert "<strong>$1.25</strong> <span>today, 1,200 tokens</span>" in page.text
    assert "<strong>$3.25</strong>" in page.text
    assert "anthropic: claude-haiku-5-5" in page.text
    assert page.text.count('<rect class="hit"') == 14, "each day of both charts has a place, also those without a call"
    assert "$2.00" in page.text
    assert "77,777" not in page.text


async def test_without_any_call_the_page_says_so(app: AsgiFrame, db: Db, cast: Cast):
    viewer = await visit_as(app, db, cast.alice.team_id, "viewer")

    page = await viewer.get("/ui/costs")

    assert "No provider was called in these days" in page.text
    assert "<svg class=" not in page.text


async def test_the_file_for_spreadsheets_computes_nothing(app: AsgiFrame, db: Db, cast: Cast, make: Make):
    await make.run(project=cast.alice.project, model='=HYPERLINK("x")', provider="other", input_tokens=10, cost_usd="0.5")
    viewer = await visit_as(app, db, cast.alice.team_id, "viewer")

    page = await viewer.get("/ui/costs/calls.csv?days=7")

    header, row = csv.reader(io.StringIO(page.text))
    assert page.headers["content-type"].startswith("text/csv")
    assert "attachment" in page.headers["content-disposition"]
    assert header[:4] == ["day", "project", "provider", "model"]
    assert row[1:4] == [cast.alice.project.canonical_id, "other", '\'=HYPERLINK("x")']


async def test_a_budget_is_set_changed_and_removed(app: AsgiFrame, db: Db, cast: Cast, make: Make):
    await make.run(project=cast.alice.project, input_tokens=1_000, cost_usd="9")
    owner = await visit_as(app, db, cast.alice.team_id)

    made = await owner.post("/ui/costs/budgets", period="month", max_usd="10.00")
    changed = await owner.post("/ui/costs/budgets", period="month", max_usd="9.00", max_tokens="100000")
    of_project = await owner.post("/ui/costs/budgets", period="day", project=cast.alice.project.id, max_tokens="500")
    costs = await owner.get("/ui/costs")
    removed = await owner.post("/ui/costs/budgets/remove", period="month")

    assert "The budget of the team is set" in made.text
    assert "$9.00 of $10.00, $1.00 left" in made.text
    assert "nearly spent" in made.text
    assert "The budget of the team is changed" in changed.text
    assert "$9.00 of $9.00, $0.00 left; 1,000 of 100,000 tokens, 99,000 left" in changed.text
    assert "1,000 of 500 tokens, 0 left" in of_project.text
    assert "is spent: events wait" in costs.text
    assert "The budget is removed" in removed.text
    assert "$9.00 of" not in removed.text


@try_rows(
    ("fields", "sentence"),
    [
        ({"period": "month"}, "Write an amount of dollars, a number of tokens, or both."),
        ({"period": "month", "max_usd": "twelve"}, "Expected an amount of US dollars"),
        ({"period": "month", "max_tokens": "-5"}, "max_tokens"),
        ({"period": "year", "max_usd": "5"}, "period"),
        ({"period": "month", "max_usd": "5", "project": "nobodys"}, "Project not found."),
    ],
)
async def test_a_refused_budget_changes_nothing(app: AsgiFrame, db: Db, cast: Cast, fields: dict[str, str], sentence: str):
    owner = await visit_as(app, db, cast.alice.team_id)

    page = await owner.post("/ui/costs/budgets", token=None, follow=True, **fields)

    assert page.status_code in (400, 404)
    assert sentence in page.text
    assert "There are no budgets: nothing is capped." in (await owner.get("/ui/costs/budgets")).text


async def test_only_owners_set_budgets(app: AsgiFrame, db: Db, cast: Cast):
    member = await visit_as(app, db, cast.alice.team_id, "member")
    viewer = await visit_as(app, db, cast.alice.team_id, "viewer")

    for visitor in (member, viewer):
        assert (await visitor.post("/ui/costs/budgets", period="month", max_usd="5")).status_code == 403
        assert (await visitor.post("/ui/costs/budgets/remove", period="month")).status_code == 403
        page = await visitor.get("/ui/costs/budgets")
        assert "Set or change a budget" not in page.text
        assert "cmserver budgets set" in page.text


async def test_another_team_sees_no_budget_and_nobody_without_a_session_anything(app: AsgiFrame, db: Db, cast: Cast):
    owner = await visit_as(app, db, cast.alice.team_id)
    await owner.post("/ui/costs/budgets", period="month", max_usd="12.34")
    charlie = await visit_as(app, db, cast.charlie.team_id)

    theirs = await charlie.get("/ui/costs/budgets")
    removed = await charlie.post("/ui/costs/budgets/remove", period="month")

    assert "12.34" not in theirs.text
    assert removed.status_code == 404
    assert (await signed_out(app).client.get("/ui/costs/calls.csv")).status_code == 303


async def test_many_projects_keep_the_page_small(app: AsgiFrame, db: Db, cast: Cast, make: Make):
    for number in range(60):
        project = (await bound_to(db, cast.alice, f"project-{number:03}")).project
        await make.run(project=project, input_tokens=number + 1)
    viewer = await visit_as(app, db, cast.alice.team_id, "viewer")

    page = await viewer.get("/ui/costs?days=90")

    assert "project-059" in page.text
    assert len(page.content) < 100_000
