"""The pages of a team: people and invitations, keys, and the audit log with its export."""

from __future__ import annotations

import csv
import io
import re
import shlex

import httpx

from cmserver.base.db import Db
from cmserver.base.http.frame import AsgiFrame
from cmserver.base.ids import new_id
from tests.conftest import Cast
from tests.doors.web.clicks import parse
from tests.doors.web.visitor import visit_as


async def test_an_invitation_shows_its_link_once_and_is_withdrawn(app: AsgiFrame, db: Db, cast: Cast):
    owner = await visit_as(app, db, cast.alice.team_id)

    made = await owner.post("/ui/team/invitations", once=new_id(), role="viewer", note="Bob from support")
    listed = await owner.get("/ui/team")
    withdraw = re.findall(r'action="(/ui/team/invitations/[^"]+/withdraw)"', listed.text)
    withdrawn = await owner.post(withdraw[0])

    assert made.status_code == 201
    assert re.search(r"/ui/join/\S+", made.text)
    assert "Bob from support" in listed.text
    assert "/ui/join/" not in listed.text
    assert "Bob from support" not in withdrawn.text


async def test_a_link_of_this_machine_alone_is_warned_of(app: AsgiFrame, db: Db, cast: Cast):
    owner = await visit_as(app, db, cast.alice.team_id, is_operator=True)
    headers = {"Host": "127.0.0.1:37777", "Origin": "http://127.0.0.1:37777"}
    invitation = {"token": await owner.token(), "once": str(new_id()), "role": "viewer"}
    reset = f"/ui/server/accounts/{owner.user.name if owner.user else ''}/reset"

    for path, fields in (("/ui/team/invitations", invitation), (reset, {"token": invitation["token"]})):
        here = await owner.client.post(path, data=fields, headers=headers)
        assert here.status_code == 201
        assert "The link names 127.0.0.1, which other machines cannot open." in here.text
        assert re.search(r"<code>cmserver users (invite|reset NAME) --url ADDRESS</code>", here.text)
        assert "send it" not in here.text
    elsewhere = await owner.post("/ui/team/invitations", once=new_id(), role="viewer")
    assert "other machines cannot open" not in elsewhere.text
    assert "copy it, and send it" in elsewhere.text


async def test_only_a_rotated_key_speaks_of_rotation(app: AsgiFrame, db: Db, client: httpx.AsyncClient, cast: Cast):
    async def make_key(name: str) -> str:
        made = await client.post("/v1/keys", headers=cast.alice.headers, json={"name": name, "scopes": ["observations:read"]})
        return made.json()["id"]

    plain, old = await make_key("plain"), await make_key("old")
    rotated = await client.post(f"/v1/keys/{old}/rotate", headers=cast.alice.headers)
    owner = await visit_as(app, db, cast.alice.team_id)

    page = (await owner.get("/ui/team/keys")).text

    new = rotated.json()["id"]
    assert {key for key in (plain, old, new) if f"only-{key}" in page} == {old, new}
    assert page.count("or one that it was rotated to or from") == 2


async def test_an_owner_says_how_long_what_is_kept_and_what_is_merged(
    app: AsgiFrame, db: Db, cast: Cast, client: httpx.AsyncClient
):
    owner, member = await visit_as(app, db, cast.alice.team_id), await visit_as(app, db, cast.alice.team_id, "member")

    await owner.post("/ui/team/retention", events_days=30, auto_merge_above=0.92, merge_strategy="append")
    refused = await owner.post("/ui/team/retention", auto_merge_above=92)
    forbidden = await member.post("/ui/team/retention", events_days=1)

    team = (await client.get(f"/v1/teams/{cast.alice.team_id}", headers=cast.alice.headers)).json()["team"]
    assert team["retention"] == {"eventsDays": 30, "autoMergeAbove": 0.92, "mergeStrategy": "append"}
    assert 'value="0.92"' in (await owner.get("/ui/team")).text
    assert (refused.status_code, forbidden.status_code) == (400, 403)


async def test_a_key_is_revoked_only_by_who_may(app: AsgiFrame, db: Db, client: httpx.AsyncClient, cast: Cast):
    made = await client.post("/v1/keys", headers=cast.alice.headers, json={"name": "ci", "scopes": ["observations:read"]})
    assert made.status_code == 201
    owner, member = await visit_as(app, db, cast.alice.team_id), await visit_as(app, db, cast.alice.team_id, "member")

    assert "Revoke the key" in (await owner.get("/ui/team/keys")).text
    assert "Revoke the key" not in (await member.get("/ui/team/keys")).text


async def test_an_owner_changes_roles_and_removes_people_but_not_the_last_owner(app: AsgiFrame, db: Db, cast: Cast):
    owner, bob = await visit_as(app, db, cast.alice.team_id), await visit_as(app, db, cast.alice.team_id, "viewer")
    assert owner.user is not None
    assert bob.user is not None

    alone = await owner.get("/ui/team")
    await owner.post(f"/ui/team/people/{bob.user.id}/role", role="member")
    may_write = await bob.post("/ui/notes", project=cast.alice.project.id, text="Deploys happen on Tuesdays.")
    last = await owner.post(f"/ui/team/people/{owner.user.id}/role", role="viewer")
    await owner.post(f"/ui/team/people/{bob.user.id}/remove")

    assert f"/ui/team/people/{bob.user.id}/remove" in alone.text
    assert f"/ui/team/people/{owner.user.id}/remove" not in alone.text, "what would be refused is not offered"
    assert may_write.status_code == 200
    assert last.status_code == 409
    assert (await bob.client.get("/ui")).status_code == 401


async def test_the_audit_log_names_things_and_is_filtered(app: AsgiFrame, db: Db, client: httpx.AsyncClient, cast: Cast):
    owner = await visit_as(app, db, cast.alice.team_id, name="Ann")
    await owner.post("/ui/notes", project=cast.alice.project.id, text="Deploys happen on Tuesdays.")

    page = await owner.get("/ui/team/audit?action=observations.created")
    others = await owner.get("/ui/team/audit?action=observations.created&actor=nobody")

    assert "<td>orders</td>" in page.text or ">orders</a>" in page.text
    assert not re.search(f">{cast.alice.project.id}<", page.text)
    assert "Ann" in page.text
    assert "No entry fits the filter." in others.text


async def test_the_audit_log_leaves_out_what_was_read_unless_it_is_asked_for(app: AsgiFrame, db: Db, cast: Cast):
    owner = await visit_as(app, db, cast.alice.team_id, name="Ann")
    await owner.post("/ui/notes", project=cast.alice.project.id, text="Deploys happen on Tuesdays.")
    await owner.get("/ui/observations")

    usual, all_rows = await owner.get("/ui/team/audit"), await owner.get("/ui/team/audit?reads=true")
    by_action = await owner.get("/ui/team/audit?action=observations.served")
    export = await owner.get("/ui/team/audit.csv")

    assert "observations.created" in usual.text
    assert "observations.served" not in usual.text
    assert "observations.served" not in export.text
    for page in (all_rows, by_action):
        assert ">observations.served<" in page.text
        assert '<a href="/ui/observations/1">#1</a>' in page.text


async def test_a_command_that_names_the_team_is_safe_to_paste(app: AsgiFrame, db: Db, cast: Cast):
    async with db.system() as conn:
        await conn.execute("UPDATE teams SET name = %s WHERE id = %s", ["Blue; touch it's $(here)", cast.alice.team_id])
    owner = await visit_as(app, db, cast.alice.team_id)

    page = await owner.get("/ui/team")
    (command,) = [code.text for code in parse(page.text).find_all("code") if "teams limits" in code.text]

    assert shlex.split(command)[:4] == ["cmserver", "teams", "limits", "Blue; touch it's $(here)"]


async def test_a_key_is_shown_by_the_id_that_commands_take(app: AsgiFrame, db: Db, client: httpx.AsyncClient, cast: Cast):
    wanted = {"scopes": ["observations:read"]}
    ids = [(await client.post("/v1/keys", headers=cast.alice.headers, json=wanted)).json()["id"] for _ in range(2)]
    owner = await visit_as(app, db, cast.alice.team_id)

    page = await owner.get("/ui/team/keys")

    assert all(f">{key_id}</code>" in page.text for key_id in ids)


async def test_the_audit_log_is_exported_without_formulas(app: AsgiFrame, db: Db, cast: Cast):
    owner = await visit_as(app, db, cast.alice.team_id, name="=1+1")
    await owner.post("/ui/notes", project=cast.alice.project.id, text="Deploys happen on Tuesdays.")

    export = await owner.get("/ui/team/audit.csv?action=observations.created")
    head, *rows = csv.reader(io.StringIO(export.text))

    assert export.headers["content-disposition"] == 'attachment; filename="audit.csv"'
    assert head[:4] == ["when", "who", "action", "of"]
    assert [row[1:3] for row in rows] == [["'=1+1", "observations.created"]]
