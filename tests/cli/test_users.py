"""`cmserver users`: from the first invitation to the last person, and who may not."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from cmserver.access.people.wire import AccountsOut, InvitationsOut, NewInvitationOut, OnePersonOut, PeopleOut
from cmserver.base import credentials
from cmserver.base.credentials import Credentials
from cmserver.base.db import Db
from cmserver.base.http.frame import AsgiFrame
from tests.cli.conftest import URL, Cms
from tests.conftest import Cast
from tests.doors.web.visitor import ORIGIN, Visitor, signed_out, visit_as

PASSWORD = "correct horse battery"


@pytest.fixture
def browser(app: AsgiFrame) -> Visitor:
    """A browser in which nobody is signed in."""
    return signed_out(app)


async def open_link(browser: Visitor, link: str, **fields: str) -> httpx.Response:
    """Send the form behind a link that a command printed."""
    return await browser.client.post(urlsplit(link).path, data=fields, headers={"Origin": ORIGIN})


async def test_an_invited_person_is_listed_changed_and_removed(app: AsgiFrame, cms: Cms, cast: Cast, browser: Visitor):
    alice = cast.alice.key
    assert "cmserver users invite" in (await cms("users", "list", key=alice)).out

    invited = await cms("users", "invite", "--role", "viewer", "--note", "Bob from support", key=alice)
    link = invited.out.strip()
    assert invited.err == ""
    open_ones = (await cms("users", "invitations", "--json", key=alice)).read(InvitationsOut).invitations
    joined = await open_link(browser, link, name="Bob", password=PASSWORD)
    again = await open_link(signed_out(app), link, name="Eve", password=PASSWORD)
    listed = await cms("users", "list", key=alice)
    changed = await cms("users", "role", "bob", "member", key=alice)
    removed = await cms("users", "remove", "bob", "--yes", key=alice)

    assert re.fullmatch(rf"{URL}/ui/join/\S+", link)
    assert [(row.role, row.note) for row in open_ones] == [("viewer", "Bob from support")]
    assert (joined.status_code, again.status_code) == (303, 404)
    assert (listed.column("name"), listed.column("role")) == (["Bob"], ["viewer"])
    assert "Bob is member." in changed.out
    assert "Bob is out of the team. Keys revoked: 0." in removed.out
    assert (await cms("users", "list", "--json", key=alice)).read(PeopleOut).users == []
    assert (await browser.client.get("/ui")).status_code == 401


async def test_a_link_of_this_machine_is_warned_of_beside_it(cms: Cms, cast: Cast):
    here = await cms("users", "invite", "--url", "http://127.0.0.1:37777", key=cast.alice.key)

    assert here.out.startswith("http://127.0.0.1:37777/ui/join/")
    assert len(here.out.splitlines()) == 1
    assert "The link names 127.0.0.1, which other machines cannot open." in here.err


async def test_a_withdrawn_invitation_makes_no_account(cms: Cms, cast: Cast, browser: Visitor):
    made = (await cms("users", "invite", "--json", key=cast.alice.key)).read(NewInvitationOut)

    withdrawn = await cms("users", "withdraw", str(made.invitation.id), key=cast.alice.key)
    again = await cms("users", "withdraw", str(made.invitation.id), key=cast.alice.key)

    assert str(made.invitation.id) in withdrawn.out
    assert again.code == 1
    assert (await open_link(browser, made.url, name="Eve", password=PASSWORD)).status_code == 404
    assert "no open invitation" in (await cms("users", "invitations", key=cast.alice.key)).out


async def test_the_last_owner_stays(app: AsgiFrame, db: Db, cms: Cms, cast: Cast):
    await visit_as(app, db, cast.alice.team_id, "owner", name="Ann")

    demoted = await cms("users", "role", "Ann", "viewer", key=cast.alice.key)
    removed = await cms("users", "remove", "Ann", "--yes", key=cast.alice.key)

    assert (demoted.code, removed.code) == (1, 1)
    assert (await cms("users", "list", key=cast.alice.key)).column("role") == ["owner"]


async def test_the_operator_makes_operators_and_links_for_new_passwords(
    app: AsgiFrame, db: Db, cms: Cms, cast: Cast, browser: Visitor, tmp_path: Path
):
    bob = await visit_as(app, db, cast.alice.team_id, "viewer", name="Bob")
    as_operator = ("--operator", "--team", "blue")

    made = await cms("users", "operator", "Bob", *as_operator, "--json")
    accounts = (await cms("users", "list", "--all", *as_operator, "--json")).read(AccountsOut).accounts
    unmade = await cms("users", "operator", "Bob", "--off", *as_operator)
    reset = await cms("users", "reset", "Bob", *as_operator)
    credentials.write(tmp_path, Credentials(url="https://memory.example/cms/", key="", team="blue"))
    elsewhere = await cms("users", "invite", *as_operator)
    entered = await open_link(browser, reset.out.strip(), password=PASSWORD)

    assert made.read(OnePersonOut).user.is_operator
    assert [(account.name, account.is_operator) for account in accounts] == [("Bob", True)]
    assert "Bob is no operator" in unmade.out
    assert reset.out.startswith("http://127.0.0.1:37877/ui/reset/")
    assert elsewhere.out.startswith("https://memory.example/cms/ui/join/")
    assert entered.status_code == 303
    assert (await browser.get("/ui")).url.path == "/ui"
    assert (await bob.get("/ui")).url.path == "/ui/sign-in"
