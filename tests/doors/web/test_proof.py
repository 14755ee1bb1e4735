"""The page Proof: both arms, the share, and a session that is taken out."""

from __future__ import annotations

from cmserver.base.db import Db
from cmserver.base.http.frame import AsgiFrame
from tests.conftest import Cast
from tests.doors.web.visitor import visit_as
from tests.ops.test_proof import make_session
from tests.rows import rows


async def test_an_owner_sets_the_share_and_the_page_shows_both_arms(app: AsgiFrame, db: Db, cast: Cast):
    owner = await visit_as(app, db, cast.alice.team_id, "owner")
    stranger = await visit_as(app, db, cast.charlie.team_id, "owner")

    empty = await owner.get("/ui/team/proof")
    saved = await owner.post("/ui/team/proof/share", untold_share="20")
    for _ in range(30):
        await make_session(db, cast.alice, "told", "one")
        await make_session(db, cast.alice, "untold", "one", "two", "three")
    page = await owner.get("/ui/team/proof?days=7")
    refused = await owner.post("/ui/team/proof/share", untold_share="51")

    assert "there is nothing to compare" in empty.text
    assert "20 of 100 new sessions are told nothing from now on." in saved.text
    assert "Told sessions have 2.00 fewer turns to the end (2.00 to 2.00)." in page.text
    assert refused.status_code == 400
    assert await rows(db, "SELECT untold_share FROM teams WHERE id = %s", cast.alice.team_id) == [{"untold_share": 20}]
    assert "20 of 100 new sessions" in (await owner.get("/ui/team")).text
    assert "No difference" not in (await stranger.get("/ui/team/proof")).text


async def test_a_member_takes_a_session_out_on_its_page_and_sets_no_share(app: AsgiFrame, db: Db, cast: Cast):
    member = await visit_as(app, db, cast.alice.team_id, "member")
    session_id = await make_session(db, cast.alice, "untold", "one")

    there = await member.get(f"/ui/sessions/{session_id}")
    taken = await member.post(f"/ui/team/proof/sessions/{session_id}/take-out")
    share = await member.post("/ui/team/proof/share", untold_share="20")

    assert "Do not compare" in there.text
    assert "told as ever from now on" in taken.text
    assert ("Do not compare" in taken.text, share.status_code) == (False, 403)
    assert await rows(db, "SELECT arm FROM server_sessions WHERE id = %s", session_id) == [{"arm": None}]
