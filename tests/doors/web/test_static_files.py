"""The files of the pages: what a browser is sent of them."""

from __future__ import annotations

import pytest

from cmserver.base.db import Db
from cmserver.base.http.frame import AsgiFrame
from tests.conftest import Cast
from tests.doors.web.visitor import visit_as


@pytest.mark.parametrize(("accepted", "sent"), [("gzip, br", "gzip"), ("identity", None)])
async def test_files_are_compressed_for_who_takes_it_and_pages_are_not(
    app: AsgiFrame, db: Db, cast: Cast, accepted: str, sent: str | None
):
    alice = await visit_as(app, db, cast.alice.team_id, "member")

    style = await alice.client.get("/ui/static/style.css", headers={"Accept-Encoding": accepted})
    page = await alice.client.get("/ui/observations", headers={"Accept-Encoding": accepted})

    assert (style.status_code, style.headers.get("content-encoding")) == (200, sent)
    assert style.headers["vary"] == "Accept-Encoding"
    assert ".top {" in style.text
    assert page.status_code == 200
    assert "content-encoding" not in page.headers
