"""Acts on an observation, from its page or a row, and the notice that undoes them; what a person reads counts for no agent."""

from __future__ import annotations

import re
from typing import Any

import httpx
import pytest

from cmserver.base.db import Db
from cmserver.base.http.frame import AsgiFrame
from cmserver.observations.accesses.jobs import count_accesses
from cmserver.observations.model import Scope
from tests.conftest import Cast
from tests.doors.web.clicks import Clicker, parse
from tests.doors.web.visitor import Visitor, visit_as
from tests.make import Make


@pytest.fixture
async def alice(app: AsgiFrame, db: Db, cast: Cast) -> Visitor:
    return await visit_as(app, db, cast.alice.team_id, "member")


async def open_end(client: httpx.AsyncClient, cast: Cast, title: str) -> None:
    """An open end of Alice's project."""
    body = {"projectId": str(cast.alice.project.id), "title": title, "narrative": f"{title}, says the log.", "type": "change"}
    made = (await client.post("/v1/observations", json=body, headers=cast.alice.headers)).json()
    path = f"/v1/observations/{made['observation']['id']}"
    answer = await client.patch(path, json={"state": "open"}, headers=cast.alice.headers)
    assert answer.status_code == 200, answer.text


async def told(client: httpx.AsyncClient, cast: Cast) -> str:
    """What the next session is told."""
    answer = await client.get("/v1/context", params={"project": str(cast.alice.project.id)}, headers=cast.alice.headers)
    return answer.text


@pytest.mark.parametrize(
    ("act", "said", "after"),
    [
        ("done", "#1 is done.", {"state": "done"}),
        ("drop", "#1 no longer holds: sessions are told it no more.", {"state": "dropped"}),
        ("top", "#1 is a rule: agents of its project are told it first.", {"type": "decision", "importance": 0.9, "state": None}),
        ("expire", "#1 is forgotten", None),
    ],
)
async def test_an_act_is_done_and_undone_from_its_notice(
    client: httpx.AsyncClient, cast: Cast, alice: Visitor, act: str, said: str, after: dict[str, object] | None
):
    await open_end(client, cast, "The export is untested")
    before = (await client.get("/v1/observations/1", headers=cast.alice.headers)).json()["observation"]

    page = await alice.post(f"/ui/observations/1/{act}", back="/ui/observations?state=open")
    read = await client.get("/v1/observations/1", headers=cast.alice.headers)
    (undo,) = [form for form in parse(page.text).find_all("form") if form.attributes.get("action") == "/ui/observations/1/undo"]
    undone = await alice.post(undo.attributes["action"], back="/ui/observations?state=open")
    again = (await client.get("/v1/observations/1", headers=cast.alice.headers)).json()["observation"]

    assert said in page.text
    assert str(page.url).endswith("/ui/observations?state=open")
    assert str(undone.url).endswith("/ui/observations?state=open")
    if after is None:
        assert read.status_code == 410
    else:
        assert {name: read.json()["observation"].get(name) for name in after} == after
    assert {name: again.get(name) for name in ("state", "type", "importance")} == {
        name: before.get(name) for name in ("state", "type", "importance")
    }


async def test_a_row_has_the_acts_that_make_sense_and_its_buttons_belong_to_one_form(
    client: httpx.AsyncClient, cast: Cast, make: Make, alice: Visitor
):
    await open_end(client, cast, "Open")
    await make.observation(project=cast.alice.project, title="Rule", type="decision", importance=0.9)

    page = await alice.get("/ui/observations")

    rows = [row for row in parse(page.text).find_all("tr") if "data-row" in row.attributes]
    acts = [[button.text for button in row.find_all("button")] for row in rows]
    assert acts == [["No longer holds", "Forget"], ["Done", "No longer holds", "Make it a rule", "Forget", "Take as mine"]]
    assert {button.attributes["form"] for row in rows for button in row.find_all("button")} == {"acts"}


async def test_a_viewer_has_no_acts_and_may_do_none(app: AsgiFrame, db: Db, client: httpx.AsyncClient, cast: Cast):
    await open_end(client, cast, "Open")
    viewer = await visit_as(app, db, cast.alice.team_id, "viewer")

    page = await viewer.get("/ui/observations")
    refused = await viewer.post("/ui/observations/1/done")

    assert 'form="acts"' not in page.text
    assert refused.status_code == 403


async def test_a_form_leads_back_to_no_other_server(cast: Cast, make: Make, alice: Visitor):
    await make.observation(project=cast.alice.project)

    answer = await alice.post("/ui/observations/1/drop", follow=False, back="https://example.com/ui/")

    assert answer.headers["location"] == "/ui/observations/1"


async def test_a_rule_is_told_first_and_a_note_is_none(client: httpx.AsyncClient, cast: Cast, alice: Visitor):
    project = cast.alice.project.id
    await alice.post("/ui/notes", project=project, text="Always squash before a merge", kind="rule", scope="project")
    await alice.post("/ui/notes", project=project, text="The staging host sleeps at night", kind="note", scope="team")

    index = await told(client, cast)
    note = (await client.get("/v1/observations/2", headers=cast.alice.headers)).json()["observation"]

    assert re.search(r"Laid down by users[^#]*#1 decision Always squash", index)
    assert "#2 decision" not in index
    assert (note["type"], note["scope"]) == ("discovery", "team")


async def test_of_a_rule_for_all_projects_nobody_says_that_it_is_told_first(
    client: httpx.AsyncClient, cast: Cast, make: Make, alice: Visitor
):
    await make.observation(project=cast.alice.project, title="Branches are short", scope="team")

    made = await alice.post("/ui/observations/1/top", back="/ui/observations")
    kept = await alice.post("/ui/notes", project=cast.alice.project.id, text="Always squash", kind="rule", scope="team")
    index = await told(client, cast)

    assert "#1 is a rule for all projects: agents may be told it, among what happened, but not first." in made.text
    assert "Kept as #2. In all projects agents may be told this rule, among what happened" in kept.text
    assert "Laid down by users" not in index
    assert "#1 decision Branches are short" in index


async def test_what_a_person_reads_on_a_page_is_no_reading_of_an_agent(
    db: Db, client: httpx.AsyncClient, cast: Cast, make: Make, alice: Visitor
):
    await make.observation(project=cast.alice.project)
    for _ in range(3):
        await alice.get("/ui/observations/1")
    await client.get("/v1/observations/1", headers=cast.alice.headers)

    await count_accesses(db)
    page = await alice.get("/ui/observations/1")

    assert "Agents and programs read its whole text 1 time" in page.text


async def test_today_says_what_was_decided_opened_and_closed_and_undoes_it(
    app: AsgiFrame, db: Db, client: httpx.AsyncClient, cast: Cast, make: Make, alice: Visitor
):
    await make.observation(project=cast.alice.project, title="Chose Postgres", type="decision")
    await open_end(client, cast, "The export is untested")
    await open_end(client, cast, "Write the worker")
    stranger = await visit_as(app, db, cast.charlie.team_id)

    await alice.post("/ui/observations/3/done", back="/ui")
    page = await alice.get("/ui")
    lists = {
        section.find_all("h2")[0].text: [item.find_all("a")[0].text for item in section.find_all("li")]
        for section in parse(page.text).find_all("section")
        if section.attributes.get("class") == "day"
    }
    await alice.post("/ui/observations/3/undo", back="/ui")
    undone = await alice.get("/ui")

    assert lists == {"Decided": ["#1 Chose Postgres"], "Opened": ["#2 The export is untested"], "Closed": ["#3 Write the worker"]}
    assert "Closed</a></h2>" not in undone.text
    assert "Chose Postgres" not in (await stranger.get("/ui")).text


async def test_a_first_run_says_what_to_do_next(app: AsgiFrame, db: Db, cast: Cast):
    async with db.system() as conn:
        await conn.execute("DELETE FROM projects WHERE team_id = %s", [cast.alice.team_id])
    owner = await visit_as(app, db, cast.alice.team_id, is_operator=True)

    page = await owner.get("/ui")

    assert "What to do next" in page.text
    assert "connect claude-code" in page.text
    assert "There is no backup of this server" in page.text


async def test_a_search_begins_on_every_page(cast: Cast, make: Make, alice: Visitor):
    await make.observation(project=cast.alice.project, title="The wombat sleeps", narrative="It sleeps.")
    clicker = Clicker(alice)
    await clicker.begin()

    (form,) = [form for form in clicker.document.find_all("form") if form.attributes.get("class") == "search"]
    page = await alice.get(f"{form.attributes['action']}?q=wombat")

    assert "The wombat sleeps" in page.text


@pytest.mark.parametrize(("scope", "kind"), [("project", "note"), ("project", "rule"), ("team", "note"), ("team", "rule")])
async def test_of_what_no_longer_holds_no_session_is_told(
    client: httpx.AsyncClient, cast: Cast, make: Make, alice: Visitor, scope: Scope, kind: str
):
    label, importance = ("decision", 0.9) if kind == "rule" else ("discovery", 0.5)
    files = ["src/export.py"]
    made: Any = {"project": cast.alice.project, "scope": scope, "type": label, "importance": importance, "files_modified": files}
    await make.observation(title="The export keeps each column", **made)
    await make.observation(project=cast.alice.project, title="Chose Postgres")
    query = {"project": str(cast.alice.project.id), "changedFiles": files[0]}

    before = await client.get("/v1/context", params=query, headers=cast.alice.headers)
    notice = await alice.post("/ui/observations/1/drop", back="/ui/observations")
    after = await client.get("/v1/context", params=query, headers=cast.alice.headers)

    assert "The export keeps each column" in before.text
    assert "#1 no longer holds: sessions are told it no more." in notice.text
    assert "The export keeps each column" not in after.text


async def test_what_no_longer_holds_names_what_says_nearly_the_same_and_does(cast: Cast, make: Make, alice: Visitor):
    said = "Each call of the payment provider is repeated three times before the order fails"
    await make.observation(project=cast.alice.project, title=said, type="decision")
    alone = await alice.post("/ui/observations/1/drop", back="/ui/observations")
    await alice.post("/ui/observations/1/hold")
    await make.observation(project=cast.alice.project, title=f"{said}, as agreed", type="decision")

    notice = await alice.post("/ui/observations/1/drop", back="/ui/observations")
    page = await alice.get("/ui/observations/1")
    both = await alice.post("/ui/observations/2/drop", back="/ui/observations")

    named = '<a href="/ui/observations/2">#2</a> says nearly the same and still holds.'
    assert "nearly the same" not in alone.text
    assert named in notice.text
    assert named in page.text
    assert "nearly the same" not in both.text


async def test_the_history_has_who_forgot_it_and_who_brought_it_back(
    client: httpx.AsyncClient, cast: Cast, make: Make, alice: Visitor
):
    await make.observation(project=cast.alice.project, title="Forgotten once")
    await alice.post("/ui/observations/1/expire")
    page = await alice.post("/ui/observations/1/undo")
    history = (await client.get("/v1/observations/1/history", headers=cast.alice.headers)).json()

    forgotten, brought_back = page.text.index("<strong>Forgotten</strong>"), page.text.index("brought back by")
    assert brought_back < forgotten
    assert [row["performedBy"] for row in history["forgotten"]] == [history["versions"][0]["performedBy"]]


async def test_what_was_remembered_is_taken_back_from_its_notice(client: httpx.AsyncClient, cast: Cast, alice: Visitor):
    page = await alice.post("/ui/notes", project=cast.alice.project.id, text="Ask before a force push", kind="note")
    own = await alice.post("/ui/notes", text="My editor is vi", scope="user")
    refused = await alice.post("/ui/notes", text="Nowhere", scope="team")
    for shown, path in ((page, "/ui/observations/1/expire"), (own, "/ui/mine/m1/forget")):
        notices = [div for div in parse(shown.text).find_all("div") if div.attributes.get("class") == "notice row"]
        assert [form.attributes["action"] for div in notices for form in div.find_all("form")] == [path]
        await alice.post(path)

    assert "Choose the project." in refused.text
    assert (await client.get("/v1/observations/1", headers=cast.alice.headers)).status_code == 410
    assert "says that already" not in (await alice.get("/ui")).text
