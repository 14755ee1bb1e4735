"""The page that says why a line is as it is."""

from __future__ import annotations

from urllib.parse import urlencode

import httpx

from cmserver.base.db import Db
from cmserver.base.http.frame import AsgiFrame
from tests.conftest import Cast
from tests.doors.web.visitor import visit_as
from tests.generation.test_turns import Agent
from tests.generation.tools import Outbox

LINE = "if first < second && '<b>':"


async def test_it_leads_to_the_turn_that_wrote_a_line(
    app: AsgiFrame, db: Db, client: httpx.AsyncClient, cast: Cast, outbox: Outbox
):
    agent = Agent(client, cast, outbox)
    for words, old, new in (("Compare <b>them</b> first.", "pass", LINE), ("Say less.", "log()", "pass")):
        await agent.prompt(words)
        await agent.edit("src/a.py", old, new)
        await agent.stop("Done.")
    alice = await visit_as(app, db, cast.alice.team_id, "viewer")
    question = {"project": cast.alice.project.canonical_id, "file": "src/a.py", "text": LINE}

    found = await alice.get(f"/ui/observations/why?{urlencode(question)}")
    nothing = await alice.get(f"/ui/observations/why?{urlencode({**question, 'text': 'another = line'})}")
    asked = await alice.get("/ui/observations/why")
    empty = await alice.get(f"/ui/observations/why?{urlencode({**question, 'text': ''})}")

    assert [page.status_code for page in (found, nothing, asked, empty)] == [200, 200, 200, 400]
    assert "Compare &lt;b&gt;them&lt;/b&gt; first." in found.text
    assert "Say less." in found.text
    assert "No turn of an agent is known" in nothing.text
    assert "cmserver why src/orders.py:12" in asked.text


async def test_a_wrong_question_says_so_and_another_team_sees_nothing(
    app: AsgiFrame, db: Db, client: httpx.AsyncClient, cast: Cast, outbox: Outbox
):
    agent = Agent(client, cast, outbox)
    await agent.prompt("Compare them.")
    await agent.edit("src/a.py", "pass", LINE)
    await agent.stop("Done.")
    charlie = await visit_as(app, db, cast.charlie.team_id, "owner")
    question = {"project": str(cast.alice.project.id), "file": "src/a.py", "text": LINE}

    foreign = await charlie.get(f"/ui/observations/why?{urlencode(question)}")
    wrong = await charlie.get(f"/ui/observations/why?{urlencode({'file': 'a', 'commit': 'HEAD'})}")

    assert foreign.status_code == 404
    assert "Compare them." not in foreign.text
    assert wrong.status_code == 400
