"""The page of the model: who may open it, one that is tried, and one that is kept."""

from __future__ import annotations

import re
from typing import Any

from cmserver.base.db import Db
from cmserver.base.http.frame import AsgiFrame
from cmserver.base.server_start import ServerStart
from cmserver.base.settings import Settings
from tests.conftest import Cast
from tests.doors.web.visitor import visit_as

KEY = "sk-of-nobody-0123456789"


async def test_only_an_operator_opens_it(app: AsgiFrame, db: Db, cast: Cast):
    owner = await visit_as(app, db, cast.alice.team_id, "owner")
    operator = await visit_as(app, db, cast.alice.team_id, "viewer", is_operator=True)

    assert (await owner.get("/ui/model")).status_code == 403
    assert (await owner.post("/ui/model", provider="offline", act="save")).status_code == 403
    assert "Only try" in (await operator.get("/ui/model")).text


async def test_who_has_no_usual_model_says_so(app: AsgiFrame, db: Db, cast: Cast):
    operator = await visit_as(app, db, cast.alice.team_id, is_operator=True)

    shown = await operator.get("/ui/model")
    empty = await operator.post("/ui/model", provider="ollama", act="try")

    assert "where the table below names one" in shown.text
    assert "none, and one must be given: one that" in shown.text
    assert "Ollama needs a model: one that `ollama list` shows" in empty.text


async def test_a_model_is_tried_and_kept_only_where_that_was_asked_for(app: AsgiFrame, db: Db, cast: Cast, settings: Settings):
    operator = await visit_as(app, db, cast.alice.team_id, is_operator=True)
    file = settings.data_dir / "config.toml"

    tried = await operator.post("/ui/model", provider="offline", act="try")
    assert "Usable." in tried.text
    assert not file.exists()
    kept = await operator.post("/ui/model", provider="offline", act="save")

    assert "offline is kept in" in kept.text
    assert file.read_text() == 'provider = "offline"\n'


async def test_what_is_not_usable_is_not_kept_but_for_a_word(app: AsgiFrame, db: Db, cast: Cast, settings: Settings):
    operator = await visit_as(app, db, cast.alice.team_id, is_operator=True)
    file = settings.data_dir / "config.toml"
    fields: dict[str, Any] = {"provider": "ollama", "model": "tiny", "baseUrl": "http://127.0.0.1:9/v1", "act": "save"}

    refused = await operator.post("/ui/model", **fields)
    assert "Not usable." in refused.text
    assert "Nothing was kept." in refused.text
    assert "What helps: start the program that should listen there" in refused.text
    assert 'value="tiny"' in refused.text
    assert not file.exists()
    kept = await operator.post("/ui/model", **fields, untried="true")

    assert "ollama is kept in" in kept.text
    assert 'model = "tiny"' in file.read_text()


async def test_a_wrong_field_is_named_and_the_key_is_not_shown_again(app: AsgiFrame, db: Db, cast: Cast, settings: Settings):
    operator = await visit_as(app, db, cast.alice.team_id, is_operator=True)

    page = await operator.post("/ui/model", provider="openai", model="tiny", baseUrl="file:///etc/passwd", key=KEY, act="save")

    assert page.status_code == 400
    assert re.search(r'id="baseUrl-problem">Expected an address', page.text)
    assert KEY not in page.text
    assert not (settings.data_dir / "config.toml").exists()


async def test_where_nothing_can_be_kept_the_page_says_what_to_set(app: AsgiFrame, db: Db, cast: Cast):
    app.dependencies.replace(ServerStart(environ={"CMSERVER_PROVIDER": "offline"}, reload=lambda: None))
    operator = await visit_as(app, db, cast.alice.team_id, is_operator=True)

    shown = await operator.get("/ui/model")
    tried = await operator.post("/ui/model", provider="offline", act="try")

    assert "Try and keep" not in shown.text
    assert "environment CMSERVER_PROVIDER" in shown.text
    assert "CMSERVER_PROVIDER=offline" in tried.text


async def test_a_change_that_could_not_be_used_is_said_to_have_failed(app: AsgiFrame, db: Db, cast: Cast, settings: Settings):
    (settings.data_dir / "config.toml").write_text('provider = "os:system"\n')
    app.dependencies.replace(ServerStart(environ={}, reload=lambda: None, not_reloaded="TypeError: <b>one argument</b>"))
    operator = await visit_as(app, db, cast.alice.team_id, is_operator=True)

    shown = (await operator.get("/ui/model")).text

    assert "cannot be used: TypeError: &lt;b&gt;one argument&lt;/b&gt;" in shown
    assert "about to begin anew" not in shown
