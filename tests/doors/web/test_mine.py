"""The page of what is the visitor's alone: list, search, acts with an undo in place, and the ways to it from other pages."""

from __future__ import annotations

import re

import httpx
import pytest

from cmserver.base.db import Db
from cmserver.base.http.frame import AsgiFrame
from tests.conftest import Cast
from tests.doors.web.clicks import parse
from tests.doors.web.visitor import Visitor, visit_as, visit_with_key
from tests.make import Make
from tests.rows import rows
from tests.table import try_rows


@pytest.fixture
async def ann(app: AsgiFrame, db: Db, cast: Cast) -> Visitor:
    return await visit_as(app, db, cast.alice.team_id, "member", name="ann")


@pytest.fixture
async def ben(app: AsgiFrame, db: Db, cast: Cast) -> Visitor:
    return await visit_as(app, db, cast.alice.team_id, name="ben")


def listed(page: httpx.Response) -> list[str]:
    """The lines of what is the visitor's own."""
    return re.findall(r'<a href="/ui/mine/m\d+">(m\d+ [^<]*)</a>', page.text)


async def undo_from_notice(visitor: Visitor, page: httpx.Response) -> httpx.Response:
    """Press the button that the notice has."""
    forms = [form.attributes.get("action", "") for form in parse(page.text).find_all("form")]
    (action,) = [action for action in forms if re.fullmatch(r"/ui/mine/m\d+/undo", action)]
    return await visitor.post(action, back="/ui/mine")


async def test_each_sees_their_own_and_nobody_elses(ann: Visitor, ben: Visitor):
    first = await ann.post("/ui/mine", text="Answer me in German.", kind="rule")
    again = await ann.post("/ui/mine", text="Answer me in German.", kind="rule")
    await ann.post("/ui/mine", text="Kaffee ist alle <script>.", kind="note")

    assert "Stored as m1." in first.text
    assert "m1 says that already." in again.text
    assert listed(await ann.get("/ui/mine")) == ["m2 Kaffee ist alle &lt;script&gt;.", "m1 Answer me in German."]
    assert listed(await ben.get("/ui/mine")) == []
    assert (await ben.get("/ui/mine/m1")).status_code == 404
    for act in ("edit", "forget", "undo", "give"):
        sent = await ben.post(f"/ui/mine/m1/{act}", content="x", type="note", project="orders")
        assert sent.status_code == 404, act


@try_rows(
    ("query", "expected"), [("q=German+answers", ["m1"]), ("q=coffee", []), ("q=&state=dropped", ["m2"]), ("state=moved", [])]
)
async def test_the_list_is_searched_and_shows_what_was_forgotten(
    app: AsgiFrame, db: Db, cast: Cast, query: str, expected: list[str]
):
    ann = await visit_as(app, db, cast.alice.team_id, name=f"ann of {query}")
    for text in ("Answer me in German.", "Never call me before noon."):
        await ann.post("/ui/mine", text=text)
    await ann.post("/ui/mine/m2/forget")

    assert [line.split()[0] for line in listed(await ann.get(f"/ui/mine?{query}"))] == expected


async def test_an_edit_and_a_forgetting_are_undone_from_their_notice(ann: Visitor):
    await ann.post("/ui/mine", text="Answer me in German.", kind="rule")

    edited = await ann.post("/ui/mine/m1/edit", content="Answer me in French.", type="note")
    changed = listed(await ann.get("/ui/mine"))
    await undo_from_notice(ann, edited)
    restored = listed(await ann.get("/ui/mine"))
    forgotten = await ann.post("/ui/mine/m1/forget", back="/ui/mine")
    without = listed(await ann.get("/ui/mine"))
    back = await undo_from_notice(ann, forgotten)

    assert changed == ["m1 Answer me in French."]
    assert restored == listed(back) == ["m1 Answer me in German."]
    assert without == []
    assert str(back.url).endswith("/ui/mine")


async def test_what_is_forgotten_twice_is_deleted_for_ever(ann: Visitor, db: Db):
    await ann.post("/ui/mine", text="Answer me in German.")
    await ann.post("/ui/mine/m1/forget")
    asked = await ann.get("/ui/mine/m1")
    deleted = await ann.post("/ui/mine/m1/forget", back="/ui/mine/m1")

    assert "Delete for ever" in asked.text
    assert "m1 is deleted for ever." in deleted.text
    assert await rows(db, "SELECT number FROM personal_observations") == []


async def test_what_is_given_to_the_team_is_a_projects_until_it_is_undone(ann: Visitor, ben: Visitor, cast: Cast):
    await ann.post("/ui/mine", text="Deploy with make.")

    nowhere = await ann.post("/ui/mine/m1/give")
    given = await ann.post("/ui/mine/m1/give", project=cast.alice.project.id)
    seen = await ben.get("/ui/observations/1")
    moved = await ann.get("/ui/mine?state=moved")
    back = await undo_from_notice(ann, given)

    assert (nowhere.status_code, 'id="project-problem"' in nowhere.text) == (400, True)
    assert "m1 is the team" in given.text
    assert "Deploy with make." in seen.text
    assert listed(moved) == ["m1 Deploy with make."]
    assert listed(back) == ["m1 Deploy with make."]
    assert (await ben.get("/ui/observations/1")).status_code == 410


async def test_an_observation_is_taken_from_its_row_and_page_and_given_back(
    ann: Visitor, ben: Visitor, cast: Cast, client: httpx.AsyncClient, make: Make
):
    made = {"projectId": str(cast.alice.project.id), "narrative": "I like tea.", "type": "decision", "importance": 0.9}
    await client.post("/v1/observations", json=made, headers=cast.alice.headers)
    await make.observation(project=cast.alice.project, kind="summary", title="What was done")
    row = await ann.get("/ui/observations")

    taken = await ann.post("/ui/observations/1/take", back="/ui/observations/1")
    gone = await ben.get("/ui/observations/1")
    restored = await undo_from_notice(ann, taken)
    again = await ann.post("/ui/observations/1/take", back="/ui/observations?kind=manual")

    assert 'formaction="/ui/observations/1/take"' in row.text
    assert 'formaction="/ui/observations/2/take"' not in row.text
    assert str(taken.url).endswith("/ui/mine/m1")
    assert "It is yours alone, as m1" in taken.text
    assert gone.status_code == 410
    assert "as it was before" in restored.text
    assert str(again.url).endswith("/ui/observations?kind=manual")
    assert (await ann.post("/ui/observations/2/take")).status_code == 409


async def test_a_search_and_a_number_lead_to_ones_own(ann: Visitor, ben: Visitor):
    await ann.post("/ui/mine", text="Answer me in German.")

    found = await ann.get("/ui/observations?q=answer+in+German")
    named = await ann.get("/ui/observations/m1")

    assert listed(found) == ["m1 Answer me in German."]
    assert str(named.url).endswith("/ui/mine/m1")
    assert listed(await ben.get("/ui/observations?q=answer+in+German")) == []


async def test_a_note_of_today_can_be_for_me_alone(ann: Visitor, ben: Visitor, cast: Cast):
    said = await ann.post("/ui/notes", project=cast.alice.project.id, text="Answer me in German.", scope="user")

    assert "Stored as m1, for you alone." in said.text
    assert listed(await ann.get("/ui/mine")) == ["m1 Answer me in German."]
    assert "Answer me in German." not in (await ben.get("/ui/observations")).text


async def test_who_is_signed_in_with_a_key_of_nobodys_is_told_why_there_is_nothing(app: AsgiFrame, cast: Cast):
    visitor = await visit_with_key(app, cast.alice.principal)

    page = await visitor.get("/ui/mine")

    assert "a key that belongs to no person" in page.text
    assert "<textarea" not in page.text
    assert (await visitor.post("/ui/mine", text="x")).status_code == 403
    assert "for me alone" not in (await visitor.get("/ui")).text


async def test_a_viewer_reads_their_own_and_changes_nothing(app: AsgiFrame, db: Db, cast: Cast):
    viewer = await visit_as(app, db, cast.alice.team_id, "viewer")

    assert (await viewer.get("/ui/mine")).status_code == 200
    assert (await viewer.post("/ui/mine", text="x")).status_code == 403
