"""`cmserver prove`: a share is set, both arms are shown, and a session is taken out."""

from __future__ import annotations

from cmserver.base.db import Db
from tests.cli.conftest import Cms
from tests.conftest import Cast, mint
from tests.ops.test_proof import make_session
from tests.rows import rows


async def test_a_share_is_set_and_both_arms_are_shown(cms: Cms, cast: Cast, db: Db):
    off = await cms("prove", key=cast.alice.key)
    set_to_20 = await cms("prove", "--share", "20", key=cast.alice.key)
    by_operator = await cms("prove", "--share", "30", "--operator", "--team", "blue")
    await make_session(db, cast.alice, "told", "Where is the VAT?", "And the customs?")
    session_id = await make_session(db, cast.alice, "untold", "Where is the VAT?", has_ended=False)
    shown = await cms("prove", "--days", "7", key=cast.alice.key)
    taken = await cms("prove", "take-out", str(session_id), key=cast.alice.key)

    assert "All new sessions are told." in off.out
    assert "20 %" in set_to_20.out
    assert by_operator.code == 0, by_operator.err
    assert "1 of 1 ended" in shown.out
    assert "0 of 1 ended" in shown.out
    assert "No difference yet in turns to the end: 1 told and 0 untold sessions have ended; 30 of each are needed, " in shown.out
    assert "30 of 100 new sessions are told nothing." in shown.out
    assert taken.code == 0, taken.err
    assert await rows(db, "SELECT arm FROM server_sessions WHERE id = %s", session_id) == [{"arm": None}]
    assert await rows(db, "SELECT untold_share FROM teams WHERE id = %s", cast.alice.team_id) == [{"untold_share": 30}]


async def test_only_who_may_change_the_team_sets_the_share(cms: Cms, cast: Cast, db: Db):
    _, member = await mint(db, cast.alice.team_id, "member", scopes=["observations:read", "sessions:write"])

    refused = await cms("prove", "--share", "20", key=member)
    both = await cms("prove", "--share", "20", "--days", "3", key=cast.alice.key)
    before_verb = await cms("prove", "--share", "50", "take-out", "s1", key=cast.alice.key)
    too_much = await cms("prove", "--share", "51", key=cast.alice.key)

    assert refused.code != 0
    assert (both.code, before_verb.code, too_much.code) == (2, 2, 2)
    assert "--share goes with no take-out." in before_verb.err
    assert await rows(db, "SELECT untold_share FROM teams WHERE untold_share > 0") == []
