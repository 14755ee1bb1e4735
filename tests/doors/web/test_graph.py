"""The pages of the graph, and the overview on a project's page."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from cmserver.base.db import Db
from cmserver.base.http.frame import AsgiFrame
from cmserver.base.settings import Settings
from cmserver.graph.overviews.make import make_due_overviews
from cmserver.graph.overviews.writer import OverviewWriter
from cmserver.graph.read_observations import read_new_observations
from tests.conftest import Cast
from tests.doors.web.clicks import parse
from tests.doors.web.visitor import visit_as
from tests.graph.test_api import Api
from tests.make import Make

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture
async def api(client: httpx.AsyncClient, db: Db, cast: Cast, make: Make) -> Api:
    project = cast.alice.project
    await make.observation(project=project, title="`a_name` and `b_name`", files_modified=["src/queue/pool.py"])
    summary: dict[str, str | None] = {"request": "Fix the queue", "completed": "It is fair"}
    await make.observation(project=project, kind="summary", title="Fix the queue", summary=summary)
    await read_new_observations(db)
    await make_due_overviews(db, OverviewWriter(db, Settings(data_dir=Path())))
    return Api(client, cast.alice)


async def test_entities_are_listed_filtered_and_opened(app: AsgiFrame, db: Db, cast: Cast, api: Api):
    viewer = await visit_as(app, db, cast.alice.team_id, "viewer")

    everything = await viewer.get("/ui/graph")
    files = await viewer.get("/ui/graph?type=file&search=POOL")
    nothing = await viewer.get("/ui/graph?search=nothing")
    entity = await viewer.get(f"/ui/graph/{await api.id_of('a_name')}")

    assert "a_name" in everything.text
    assert "src/queue/pool.py" in files.text
    assert ">a_name<" not in files.text
    assert "Nothing of that name" in nothing.text
    assert entity.status_code == 200
    for shown in ("b_name", "<svg", "src/queue/pool.py", "#1 "):
        assert shown in entity.text
    assert "Make it another name" not in entity.text


async def test_the_drawing_leads_on_and_has_a_line_for_what_is_mentioned_together(app: AsgiFrame, db: Db, cast: Cast, api: Api):
    viewer = await visit_as(app, db, cast.alice.team_id, "viewer")
    stranger = await visit_as(app, db, cast.charlie.team_id, "viewer")
    names = ("a_name", "b_name", "src/queue/pool.py")
    paths = {f"/ui/graph/{await api.id_of(name)}" for name in names}

    for path in ("/ui/graph", f"/ui/graph/{await api.id_of('a_name')}"):
        (drawing,) = [svg for svg in parse((await viewer.get(path)).text).find_all("svg") if svg.attributes.get("class") == "graph"]
        assert {link.attributes["href"] for link in drawing.find_all("a")} == paths
        assert len(drawing.find_all("line")) == 3

    assert "<svg" not in (await stranger.get("/ui/graph")).text.partition("<main")[2]


async def test_a_member_adds_relates_merges_and_separates(app: AsgiFrame, db: Db, cast: Cast, api: Api):
    member = await visit_as(app, db, cast.alice.team_id, "member")
    a, b = await api.id_of("a_name"), await api.id_of("b_name")

    added = await member.post("/ui/graph", project=cast.alice.project.id, name=HOSTILE, type="concept", notes=HOSTILE)
    related = await member.post(f"/ui/graph/{a}/relations", type="symbol", name="B_NAME", label="calls")
    refused = await member.post(f"/ui/graph/{a}/relations", type="symbol", name="nobody", label="calls")
    merged = await member.post(f"/ui/graph/{b}/merge", type="symbol", name="a_name")
    separated = await member.post(f"/ui/graph/{b}/separate")

    assert added.status_code == 200
    assert HOSTILE not in added.text
    assert "&lt;script&gt;" in added.text
    assert ">calls</td>" in related.text
    assert refused.status_code == 404
    assert "another name of this one" in merged.text
    assert "of its own again" in separated.text


async def test_a_project_s_page_begins_with_its_overview(app: AsgiFrame, db: Db, cast: Cast, api: Api):
    member = await visit_as(app, db, cast.alice.team_id, "member")

    page = await member.get(f"/ui/projects/{cast.alice.project.id}")
    anew = await member.post(f"/ui/projects/{cast.alice.project.id}/overview")

    assert "Fix the queue: It is fair" in page.text
    assert '<a href="/ui/observations/2">#2</a>' in page.text
    assert "src/queue" in page.text
    assert "made anew" in anew.text
