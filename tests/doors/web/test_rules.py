"""The page Rules: what waits for a yes, its age, and the answers, which are taken back."""

from __future__ import annotations

import pytest

from cmserver.base.db import Db
from cmserver.base.http.frame import AsgiFrame
from tests.conftest import Cast
from tests.doors.web.visitor import Visitor, visit_as
from tests.make import Make
from tests.rows import rows


@pytest.fixture
async def alice(app: AsgiFrame, db: Db, cast: Cast) -> Visitor:
    return await visit_as(app, db, cast.alice.team_id, "member")


@pytest.fixture
async def waiting(cast: Cast, make: Make, db: Db) -> int:
    """The number of a rule that waits for five days."""
    rule = await make.observation(project=cast.alice.project, type="decision", title="Pay with a <key>", content="Pay with a <key>")
    await rows(
        db,
        "INSERT INTO rule_approvals (observation_id, team_id, project_id, asked_at) VALUES (%s, %s, %s, now() - interval '5 days')",
        *(rule.id, rule.team_id, rule.project_id),
    )
    await rows(db, "UPDATE observations SET expires_at = now(), ttl_seconds = 1 WHERE id = %s", rule.id)
    return rule.number


async def test_a_rule_waits_with_its_age_and_is_answered_and_the_answer_taken_back(alice: Visitor, waiting: int):
    path = f"/ui/review/rules/{waiting}"

    page = await alice.get("/ui/review/rules")
    approved = await alice.post(f"{path}/approve")
    there = await alice.get(f"/ui/observations/{waiting}")
    undone = await alice.post(f"{path}/undo", state="approved")
    rejected = await alice.post(f"{path}/reject")
    refused = await alice.get("/ui/review/rules?state=rejected")

    assert "Pay with a &lt;key&gt;" in page.text
    assert "asked" in page.text
    assert f"{path}/approve" in page.text
    assert (f"#{waiting} counts from now on." in approved.text, there.status_code) == (True, 200)
    assert f"#{waiting} waits for an answer again." in undone.text
    assert (f"#{waiting} does not count." in rejected.text, "Pay with a" in rejected.text) == (True, False)
    assert "Pay with a &lt;key&gt;" in refused.text


async def test_today_says_that_one_waits_and_who_sees_nothing_of_the_team_is_shown_nothing(
    alice: Visitor, app: AsgiFrame, db: Db, cast: Cast, waiting: int
):
    today = await alice.get("/ui")
    await rows(db, "UPDATE rule_approvals SET state = 'expired', answered_at = now()")
    later = await alice.get("/ui")
    stranger = await visit_as(app, db, cast.charlie.team_id, "owner")

    assert "1 rule waits for a yes, for 5 days" in today.text
    assert "1 rule got no answer in time" in later.text
    assert "Pay with" not in (await stranger.get("/ui/review/rules?state=expired")).text
    assert (await stranger.post(f"/ui/review/rules/{waiting}/approve")).status_code == 404


async def test_who_may_not_write_answers_nothing(app: AsgiFrame, db: Db, cast: Cast, waiting: int):
    viewer = await visit_as(app, db, cast.alice.team_id, "viewer")

    page = await viewer.get("/ui/review/rules")
    answered = await viewer.post(f"/ui/review/rules/{waiting}/approve")

    assert ("Pay with a" in page.text, "/approve" in page.text, answered.status_code) == (True, False, 403)


async def test_an_owner_says_on_the_page_that_rules_wait(app: AsgiFrame, db: Db, cast: Cast):
    owner = await visit_as(app, db, cast.alice.team_id, "owner")

    on = await owner.post("/ui/team/rules", approves_rules="true")
    (asks,) = await rows(db, "SELECT approves_rules FROM teams WHERE id = %s", cast.alice.team_id)
    off = await owner.post("/ui/team/rules")

    assert "They count after a person" in on.text
    assert asks["approves_rules"] is True
    assert "counts at once" in off.text
