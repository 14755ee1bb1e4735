"""Who reads the words of others: said and set on the team's page, said to who is invited, and what stands in their place."""

from __future__ import annotations

import re

from cmserver.base.db import Db
from cmserver.base.http.frame import AsgiFrame
from cmserver.base.ids import new_id
from tests.conftest import Cast
from tests.doors.web.visitor import visit_as
from tests.rows import rows


async def test_an_owner_says_who_reads_the_words_of_others_and_a_member_only_sees_it(app: AsgiFrame, db: Db, cast: Cast):
    owner, member = await visit_as(app, db, cast.alice.team_id), await visit_as(app, db, cast.alice.team_id, "member")

    wrong = await owner.post("/ui/team/words", words="strangers")
    done = await owner.post("/ui/team/words", words="nobody")
    refused = await member.post("/ui/team/words", token=await member.token("/ui/profile"), words="members")
    seen = await member.get("/ui/team")

    assert wrong.status_code == 400
    assert "From now on each reads what they and their agents said" in done.text
    assert refused.status_code == 403
    assert "Of what people and their agents say in this team, each reads what they and their agents said" in seen.text
    (team,) = await rows(db, "SELECT words FROM teams WHERE id = %s", cast.alice.team_id)
    assert team["words"] == "nobody"
    (noted,) = await rows(db, "SELECT details FROM audit_log WHERE action = 'team.updated'")
    assert noted["details"]["fields"] == ["words"]


async def test_whoever_invites_and_whoever_is_invited_learn_who_reads_what(app: AsgiFrame, db: Db, cast: Cast):
    owner = await visit_as(app, db, cast.alice.team_id)
    await owner.post("/ui/team/words", words="owners")

    made = await owner.post("/ui/team/invitations", once=new_id(), role="member")
    link = re.search(r"/ui/join/[\w-]+", made.text)
    assert link is not None
    joining = await owner.get(link[0])

    assert "owners read all, and everybody else what they and their agents said" in made.text
    assert "owners read all, and everybody else what they and their agents said" in joining.text
