"""The pages of projects: activity, names, preferences, the context preview, and the way to stop recording."""

from __future__ import annotations

from html import unescape
from urllib.parse import quote

import httpx
import pytest

from cmserver.base.db import Db
from cmserver.base.http.frame import AsgiFrame
from tests.conftest import Cast
from tests.doors.claude_mem.worker import session
from tests.doors.web.clicks import parse
from tests.doors.web.visitor import Visitor, visit_as, visit_with_key
from tests.make import Make
from tests.table import try_rows

ORDERS = "/ui/projects/github.com%2Facme%2Forders"


@pytest.fixture
async def owner(app: AsgiFrame, db: Db, cast: Cast) -> Visitor:
    return await visit_as(app, db, cast.alice.team_id, "owner")


def forms(page: httpx.Response) -> list[str]:
    (main,) = parse(page.text).find_all("main")
    return [form.attributes["action"] for form in main.find_all("form") if form.attributes.get("method") == "post"]


async def test_a_team_without_projects_is_told_how_to_get_one(app: AsgiFrame, db: Db, cast: Cast, owner: Visitor):
    async with db.system() as conn:
        await conn.execute("DELETE FROM projects WHERE team_id = %s", [cast.alice.team_id])

    page = await owner.get("/ui/projects")

    assert "cmserver connect claude-code" in page.text


async def test_projects_are_listed_and_made(owner: Visitor):
    listed = await owner.get("/ui/projects")
    made = await owner.post("/ui/projects", canonical_id="https://github.com/acme/queue.git", name="The queue")
    again = await owner.post("/ui/projects", canonical_id="github.com/acme/queue")

    assert f'href="{ORDERS}"' in listed.text
    assert owner.title(made) == "The queue"
    assert "It was there already." in again.text


@try_rows(
    ("canonical_ids", "shown"),
    [
        (["github.com/acme/shop"], ["shop"]),
        (["github.com/acme/shop", "github.com/beta/shop"], ["shop (acme)", "shop (beta)"]),
        (["github.com/acme/shop", "gitlab.com/acme/shop"], ["shop (github.com/acme)", "shop (gitlab.com/acme)"]),
        (["/home/dev/old/shop", "/home/dev/new/shop", "shop"], ["shop (old)", "shop (new)", "shop"]),
        (["github.com/a/shop", "github.com/b/a/shop"], ["shop (github.com/a)", "shop (b/a)"]),
    ],
)
async def test_projects_of_one_short_name_are_told_apart(
    client: httpx.AsyncClient, db: Db, cast: Cast, owner: Visitor, canonical_ids: list[str], shown: list[str]
):
    async with db.system() as conn:
        await conn.execute("DELETE FROM projects WHERE name = 'shop'")
    for canonical_id in canonical_ids:
        await client.post("/v1/projects", json={"canonicalId": canonical_id}, headers=cast.alice.headers)

    listed = parse((await owner.get("/ui/projects")).text)
    options = parse((await owner.get("/ui/observations")).text)
    one = await owner.get(f"/ui/projects/{quote(canonical_ids[0], safe='')}/preview")

    assert [a.text for a in listed.find_all("a") if a.text.startswith("shop")] == shown[::-1]
    assert [option.text for option in options.find_all("option") if option.text.startswith("shop")] == shown[::-1]
    assert f">{shown[0]}</a>" in one.text


async def test_a_project_that_was_joined_to_one_of_its_name_takes_nothing_from_that(
    client: httpx.AsyncClient, cast: Cast, owner: Visitor
):
    for canonical_id in ("github.com/acme/shop", "/home/dev/shop"):
        await client.post("/v1/projects", json={"canonicalId": canonical_id}, headers=cast.alice.headers)
    await owner.post("/ui/projects/%2Fhome%2Fdev%2Fshop/join", into="github.com/acme/shop")

    listed = parse((await owner.get("/ui/projects")).text)

    assert [a.text for a in listed.find_all("a") if a.text.startswith("shop")] == ["shop"]


async def test_many_projects_come_in_pages(client: httpx.AsyncClient, cast: Cast, owner: Visitor):
    for number in range(51):
        await client.post("/v1/projects", json={"canonicalId": f"project-{number}"}, headers=cast.alice.headers)

    page = await owner.get("/ui/projects")

    assert "Next page" in page.text


async def test_one_shows_what_goes_on_as_a_chart_and_as_a_table(cast: Cast, make: Make, owner: Visitor):
    empty = await owner.get(ORDERS)
    await make.observation(project=cast.alice.project, type="decision", files_modified=["src/orders.py"])
    page = await owner.get(ORDERS)

    assert f'href="/ui?project={cast.alice.project.id}#note">Remember something</a>' in page.text
    assert "No observation was made." in empty.text
    assert "<rect" in page.text
    assert '<td class="number">1</td>' in page.text
    assert "decision" in page.text
    assert "src/orders.py" in page.text
    assert len(page.content) < 100_000


@pytest.mark.parametrize("name", ["orders", "git@github.com:acme/orders.git"])
async def test_any_of_its_names_leads_there(owner: Visitor, name: str):
    page = await owner.get(f"/ui/projects/{name.replace('/', '%2F')}")

    assert owner.title(page) == "orders"


async def test_the_preview_is_what_the_api_would_tell_with_the_reason_and_cost_of_each_line(
    client: httpx.AsyncClient, cast: Cast, make: Make, owner: Visitor
):
    shown = await make.observation(project=cast.alice.project, title="Retries three times <b>", type="decision")
    await make.observation(project=cast.alice.project, title="Retries three times <b>")
    params = {"project": str(cast.alice.project.id), "source": "startup", "explain": "true"}

    page = await owner.get(f"{ORDERS}/preview")
    told = (await client.get("/v1/context", params=params, headers=cast.alice.headers)).json()

    (block,) = parse(page.text).find_all("pre")
    text = "".join(child if isinstance(child, str) else child.text for child in block.children)
    assert " ".join(told["context"].split()) == " ".join(unescape(text).split())
    (line,) = told["explained"]["lines"]
    assert 0 < line["lineTokens"] < told["tokens"]
    assert f'class="number">{line["usefulness"]:.2f}</td>' in page.text
    assert f'class="number">{line["lineTokens"]}</td>' in page.text
    link = f'<a href="/ui/observations/{shown.number}">#{shown.number} Retries three times &lt;b&gt;</a>'
    assert f"{link} has nearly the same title" in page.text
    assert told["explained"]["leftOut"][0]["like"] == shown.number


def told_on(page: httpx.Response) -> str:
    (block,) = parse(page.text).find_all("pre")
    return " ".join(unescape("".join(child if isinstance(child, str) else child.text for child in block.children)).split())


async def test_the_preview_is_told_as_to_the_agent_of_who_began_the_newest_session(
    client: httpx.AsyncClient, app: AsgiFrame, db: Db, cast: Cast, make: Make, owner: Visitor
):
    for person, named in ((cast.bob, "s-1"), (cast.alice, "s-2")):
        in_session = await session(client, person, named, project=cast.alice.project.canonical_id)
        note = await make.observation(project=cast.alice.project, title=f"Open as {named}", server_session_id=in_session)
        async with db.system() as conn:
            await conn.execute("UPDATE observations SET actor_id = %s WHERE id = %s", [person.principal.actor_id, note.id])
    params = {"project": str(cast.alice.project.id), "source": "startup"}
    with_key = (await client.get("/v1/context", params=params, headers=cast.alice.headers)).json()
    bob = await visit_with_key(app, cast.bob.principal)

    page, of_bob = await owner.get(f"{ORDERS}/preview"), await bob.get(f"{ORDERS}/preview")

    shown, shown_to_bob = told_on(page), told_on(of_bob)
    assert shown == " ".join(with_key["context"].split())
    assert f"Open as s-1 (by {cast.bob.principal.actor_id})" in shown
    assert f"(by {cast.alice.principal.actor_id})" not in shown
    assert f"(by {cast.alice.principal.actor_id})" in shown_to_bob
    assert f"the agent of {cast.alice.principal.actor_id} is told" in page.text
    assert "your own agent is told" in of_bob.text
    assert f">{with_key['tokens']}<" in page.text


@try_rows(("act", "reason"), [("done", "it is done"), ("drop", "it no longer holds"), ("hold", None)])
async def test_the_preview_says_what_is_left_out_because_it_is_closed(
    client: httpx.AsyncClient, cast: Cast, make: Make, owner: Visitor, act: str, reason: str | None
):
    title = f"Nobody watches the {act} exports"
    note = await make.observation(project=cast.alice.project, title=title, type="decision")
    await owner.post(f"/ui/observations/{note.number}/{act}")

    page = parse((await owner.get(f"{ORDERS}/preview")).text)
    answer = await client.get("/v1/context?project=github.com/acme/orders&explain=true&format=json", headers=cast.alice.headers)

    left_out = {
        a.text.partition(" ")[2]: row.text
        for row in page.find_all("tr")
        for a in row.find_all("a")
        if "it is" in row.text or "it no" in row.text
    }
    told = {line["number"] for line in answer.json()["observations"]}
    assert (title in left_out) == (note.number not in told) == (reason is not None)
    assert reason is None or reason in left_out[title]


async def test_the_preview_of_an_empty_project_is_what_its_first_session_is_told(owner: Visitor):
    page = await owner.get(f"{ORDERS}/preview")
    resumed = await owner.get(f"{ORDERS}/preview?source=resume")

    assert "nothing has been recorded yet" in page.text
    assert "there is nothing new" in resumed.text


async def test_a_preview_leaves_no_receipt(db: Db, cast: Cast, make: Make, owner: Visitor):
    await make.observation(project=cast.alice.project)

    await owner.get(f"{ORDERS}/preview?files=src%2Forders.py")

    async with db.system() as conn:
        found = await conn.execute("SELECT count(*) FROM context_injections")
        assert await found.fetchone() == (0,)


async def test_preferences_are_saved_and_shown(client: httpx.AsyncClient, cast: Cast, owner: Visitor):
    page = await owner.post(
        f"{ORDERS}/settings",
        name="Orders",
        verbosity="minimal",
        mode="at_end",
        language="German",
        skip_rules="path:**/*.lock\r\ncommand:git status",
        consolidation="merge",
        merge_with_model="true",
        search_language="german",
    )
    project = (await client.get(f"/v1/projects/{cast.alice.project.id}", headers=cast.alice.headers)).json()["project"]

    assert "The preferences are saved." in page.text
    assert project["name"] == "Orders"
    assert project["generationPolicy"] == {
        "mode": "at_end",
        "verbosity": "minimal",
        "language": "German",
        "skipRules": ["path:**/*.lock", "command:git status"],
    }
    assert (project["consolidation"], project["mergeWithModel"], project["searchLanguage"]) == ("merge", True, "german")


async def test_a_wrong_preference_changes_nothing_and_keeps_what_was_typed(client: httpx.AsyncClient, cast: Cast, owner: Visitor):
    page = await owner.post(f"{ORDERS}/settings", name="Orders", skip_rules="path:../secret")
    project = (await client.get(f"/v1/projects/{cast.alice.project.id}", headers=cast.alice.headers)).json()["project"]

    assert page.status_code == 400
    assert "path:../secret" in page.text
    assert project["name"] == "orders"


async def test_what_is_left_empty_says_what_holds_then(cast: Cast, owner: Visitor):
    await owner.post("/ui/team/retention", observations_days=400)

    fields = {
        field.attributes["id"]: (field.attributes.get("value"), field.attributes.get("placeholder"))
        for field in parse((await owner.get(f"{ORDERS}/settings")).text).find_all("input")
        if "id" in field.attributes
    }

    assert fields["observations_days"] == ("", "400")
    assert fields["receipts_days"] == ("", "90")
    assert fields["default_ttl_seconds"] == ("", "86400")
    assert "observations for 400 days" in (await owner.get(ORDERS)).text


async def test_retention_is_saved_and_emptied(client: httpx.AsyncClient, cast: Cast, owner: Visitor):
    path = f"/v1/projects/{cast.alice.project.id}"

    await owner.post(f"{ORDERS}/retention", observations_days=365, min_importance=0.7, events_days=0, merge_strategy="append")
    saved = (await client.get(path, headers=cast.alice.headers)).json()["project"]["retention"]
    await owner.post(f"{ORDERS}/retention")
    emptied = (await client.get(path, headers=cast.alice.headers)).json()["project"]["retention"]
    refused = await owner.post(f"{ORDERS}/retention", observations_days=-1)

    assert saved == {"observationsDays": 365, "minImportance": 0.7, "eventsDays": 0, "mergeStrategy": "append"}
    assert emptied == {}
    assert refused.status_code == 400
    assert 'id="observations_days-problem"' in refused.text


async def test_another_name_is_added_and_removed(owner: Visitor):
    added = await owner.post(f"{ORDERS}/aliases", alias="git.acme.org/orders-old")
    by_name = await owner.get("/ui/projects/git.acme.org%2Forders-old")
    removed = await owner.post(f"{ORDERS}/remove-alias", alias="git.acme.org/orders-old")

    assert "git.acme.org/orders-old" in added.text
    assert owner.title(by_name) == "orders"
    assert "is no name of it any more" in removed.text
    assert "<dt>Other names</dt>" not in removed.text


async def test_two_projects_are_joined_and_separated(client: httpx.AsyncClient, cast: Cast, owner: Visitor):
    made = await client.post("/v1/projects", json={"canonicalId": "orders-two"}, headers=cast.alice.headers)
    other_id = made.json()["project"]["id"]

    joined = await owner.post("/ui/projects/orders-two/join", into=cast.alice.project.id)
    gone = await owner.get(f"/ui/projects/{other_id}")
    separated = await owner.post(f"/ui/projects/{other_id}/separate")

    assert owner.title(joined) == "orders"
    assert f"/ui/projects/{other_id}" in joined.text
    assert "It is joined to" in gone.text
    assert owner.title(separated) == "orders-two"


async def test_recording_is_stopped_and_begun_again(client: httpx.AsyncClient, cast: Cast, owner: Visitor):
    event: dict[str, object] = {"projectId": "github.com/acme/orders", "eventType": "note", "sourceType": "api", "payload": {}}

    stopped = await owner.post(f"{ORDERS}/stop")
    refused = await client.post("/v1/events", json=event, headers=cast.alice.headers)
    listed = await owner.get("/ui/projects?archived=true")
    resumed = await owner.post(f"/ui/projects/{cast.alice.project.id}/resume")
    taken = await client.post("/v1/events", json=event, headers=cast.alice.headers)

    assert "Nothing is recorded of it since" in stopped.text
    assert refused.status_code in (404, 409)
    assert str(cast.alice.project.id) in listed.text
    assert "It is recorded again." in resumed.text
    assert taken.status_code == 201


async def test_hostile_names_and_files_stay_text(client: httpx.AsyncClient, cast: Cast, make: Make, owner: Visitor):
    await make.observation(project=cast.alice.project, title="<script>alert(1)</script>", files_read=["<script>alert(2)</script>"])
    await client.patch(
        f"/v1/projects/{cast.alice.project.id}", json={"name": "<img src=x onerror=alert(3)>"}, headers=cast.alice.headers
    )

    for path in ("/ui/projects", ORDERS, f"{ORDERS}/preview", f"{ORDERS}/settings"):
        page = await owner.get(path)
        assert page.status_code == 200
        assert "<script>alert" not in page.text
        assert "<img src=x" not in page.text


@pytest.mark.parametrize("role", ["viewer", "member"])
async def test_who_may_not_change_a_project_sees_no_form(app: AsgiFrame, db: Db, cast: Cast, make: Make, role: str):
    await make.observation(project=cast.alice.project)
    visitor = await visit_as(app, db, cast.alice.team_id, "viewer" if role == "viewer" else "member")

    shown, preview = await visitor.get(ORDERS), await visitor.get(f"{ORDERS}/preview")
    settings = await visitor.get(f"{ORDERS}/settings")

    assert (shown.status_code, preview.status_code, settings.status_code) == (200, 200, 403)
    assert [form for form in forms(shown) if form != f"{ORDERS}/overview"] == []
    assert f"{ORDERS}/settings" not in shown.text


async def test_the_preferences_say_what_holds_where_they_say_nothing(app: AsgiFrame, db: Db, cast: Cast):
    owner = await visit_as(app, db, cast.alice.team_id)

    page = await owner.get(f"{ORDERS}/settings")

    assert "As the team or the server says: normal" in page.text
    assert "As the team or the server says: burst" in page.text
