"""The pages of pins: added, checked, edited, removed, and what Today says of them."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from cmserver.base.db import Db
from cmserver.base.http.frame import AsgiFrame
from tests.conftest import Cast
from tests.doors.web.visitor import visit_as
from tests.make import Make
from tests.pins.tools import PROJECT, pin, remember_things, send
from tests.rows import rows


@pytest.fixture
async def memory(cast: Cast, make: Make) -> None:
    await remember_things(cast, make)


@pytest.mark.usefixtures("memory")
async def test_a_pin_is_added_checked_edited_and_removed(app: AsgiFrame, db: Db, cast: Cast):
    member = await visit_as(app, db, cast.alice.team_id, "member")
    fields: dict[str, Any] = {"project": cast.alice.project.id, "lines": 3, "on_break": "refuse"}

    made = await member.post(
        "/ui/pins", question="which port does staging use", must="8443\r\n staging ", must_not="8080", **fields
    )
    wrong = await member.post("/ui/pins", question="<b>lunch</b>?", must="soup", must_not="", **fields)
    today = await member.get("/ui")
    broken = await member.get("/ui/pins?broken=true")
    checked = await member.post("/ui/pins/check")
    edited = await member.post("/ui/pins/2/edit", question="how long does the export take", must="an hour", must_not="", **fields)
    removed = await member.post("/ui/pins/1/remove")

    assert "Pin 1 holds." in made.text
    assert "In the first 3 hits must come <q>8443</q>, <q>staging</q>, and must not come <q>8080</q>." in made.text
    assert "Pin 2 does not hold." in wrong.text
    assert "&#39;soup&#39; does not come in the first 3 lines" in wrong.text
    assert '<a href="/ui/pins?broken=true">1 pin broken</a>' in today.text
    assert ("&lt;b&gt;lunch" in broken.text, "which port" in broken.text.partition('id="add"')[0]) == (True, False)
    assert "1 of 2 pins hold." in checked.text
    assert "Pin 2 holds." in edited.text
    assert "Pin 1 is removed." in removed.text
    assert [(it["number"], it["question"]) for it in await rows(db, "SELECT number, question FROM pins")] == [
        (2, "how long does the export take")
    ]
    assert "broken</a>" not in (await member.get("/ui")).text


@pytest.mark.usefixtures("memory")
async def test_what_is_wrong_is_said_on_the_form_and_kept(app: AsgiFrame, db: Db, cast: Cast):
    member = await visit_as(app, db, cast.alice.team_id, "member")
    good: dict[str, Any] = {"question": "which port", "must": "8443", "must_not": "", "lines": 3, "project": cast.alice.project.id}
    await member.post("/ui/pins", **good)

    wrong: list[tuple[dict[str, Any], str]] = [
        ({"must": ""}, "A pin needs words that must come"),
        ({"must": "a\n" + "x" * 201}, "At most 200 characters are allowed"),
        ({"must": "x", "must_not": "8443"}, "by pin 1"),
        ({"lines": 21}, "The number must be at most 20"),
        ({"question": " "}, "Text is expected"),
        ({"on_break": "shout"}, "on_break"),
    ]
    for changed, sentence in wrong:
        refused = await member.post("/ui/pins", **{**good, **changed})
        assert (refused.status_code, sentence in refused.text) == (400, True), (changed, refused.text)
        if "lines" not in changed:
            assert f'value="{changed.get("question", "which port")}"' in refused.text
    assert len(await rows(db, "SELECT id FROM pins")) == 1


@pytest.mark.usefixtures("memory")
async def test_who_may_read_alone_checks_and_changes_nothing(client: httpx.AsyncClient, app: AsgiFrame, db: Db, cast: Cast):
    await pin(client, cast, "which port does staging use", must=["8443"])
    body = {"projectId": PROJECT, "pins": [{"question": "how long does the export take", "must": ["an hour"]}]}
    await send(client, cast, "PUT", "/v1/pins", body)
    viewer = await visit_as(app, db, cast.alice.team_id, "viewer")
    stranger = await visit_as(app, db, cast.charlie.team_id, "owner")
    member = await visit_as(app, db, cast.alice.team_id, "member")

    assert "2 of 2 pins hold." in (await viewer.post("/ui/pins/check")).text
    assert 'id="add"' not in (await viewer.get("/ui/pins")).text
    assert (await viewer.post("/ui/pins/1/remove")).status_code == 403
    assert (await stranger.get("/ui/pins/1")).status_code == 404
    assert "Nothing is pinned." in (await stranger.get("/ui/pins")).text
    of_file = await member.get("/ui/pins/2")
    assert ("cmserver pins load" in of_file.text, 'id="edit"' in of_file.text) == (True, False)
    assert len(await rows(db, "SELECT id FROM pins")) == 2
