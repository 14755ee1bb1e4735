"""Signing in and out, and what an attacker tries: forged forms, stolen cookies, guessed passwords, equal names."""

from __future__ import annotations

import asyncio
import re
import threading
from collections import Counter

import httpx
import msgspec
import pytest

from cmserver.access.people import manage, repository
from cmserver.access.people.accounts import Accounts
from cmserver.access.people.attempts import ACCOUNT, ADDRESS, ONE, SignInAttempts
from cmserver.access.people.model import MAX_SESSIONS, Client
from cmserver.access.people.passwords import MAX_WAITING, MAX_WAITING_OF_ONE, Passwords
from cmserver.app import create_app
from cmserver.base.db import Db
from cmserver.base.errors import Forbidden, RateLimited
from cmserver.base.http.frame import AsgiFrame
from cmserver.base.notifications import NotificationListener
from cmserver.base.settings import Settings
from cmserver.doors.web.security import BROWSER_COOKIE, COOKIE
from cmserver.generation.job_notifier import JobNotifier
from tests.conftest import Cast, mint
from tests.doors.web.visitor import ORIGIN, Visitor, join, make_user, sign_in, signed_out, visit_as, visit_with_key
from tests.table import try_rows
from tests.timeouts import ENOUGH_SECONDS

PASSWORD = "correct horse battery"


@pytest.fixture
def visitor(app: AsgiFrame) -> Visitor:
    """A browser in which nobody is signed in."""
    return signed_out(app)


def cookie(visitor: Visitor) -> str:
    return next((each.value or "" for each in visitor.client.cookies.jar if each.name == COOKIE), "")


async def enter(visitor: Visitor, name: str, password: str, *, headers: dict[str, str] | None = None) -> httpx.Response:
    data = {"name": name, "password": password}
    return await visitor.client.post("/ui/sign-in", data=data, headers=headers or {"Origin": ORIGIN})


# ---- the ways in


async def test_the_address_of_the_server_leads_to_the_sign_in(visitor: Visitor):
    page = await visitor.get("/")

    assert page.url.path == "/ui/sign-in"
    assert visitor.title(page) == "Sign in"


async def test_a_person_signs_in_by_name_in_any_case_and_lands_where_they_wanted(
    app: AsgiFrame, db: Db, cast: Cast, visitor: Visitor
):
    alice = await make_user(app, db, "Alice", password=PASSWORD)
    await join(db, alice, cast.alice.team_id)

    form = {"name": "alice", "password": PASSWORD, "next": "/ui/team?x=1"}
    answer = await visitor.client.post("/ui/sign-in", data=form, headers={"Origin": ORIGIN})

    assert (answer.status_code, answer.headers["location"]) == (303, "/ui/team?x=1")
    assert visitor.title(await visitor.get("/ui/team")) == "Team blue"


async def test_a_trusted_proxy_signs_people_in(
    settings: Settings, app: AsgiFrame, db: Db, hub: NotificationListener, notifier: JobNotifier, cast: Cast
):
    """httpx says that it comes from 127.0.0.1."""

    async def open_as(proxies: str, *names: str, signed_in: str = "") -> str:
        changed = msgspec.structs.replace(settings, trusted_proxies=proxies, trusted_proxy_user_header="Remote-User")
        browser = signed_out(create_app(changed, db, hub, notifier, secret=b"s" * 32))
        if signed_in:
            token = await app.dependencies.get(Accounts).start_session(Client(address="127.0.0.1"), user_id=users[signed_in].id)
            browser.client.cookies.set(COOKIE, token, domain="cmserver.local", path="/ui")
        headers = [("Remote-User", name) for name in names]
        page = await browser.client.get("/ui/profile", headers=headers, follow_redirects=True)
        return browser.title(page)

    users = {name: await make_user(app, db, name) for name in ("Alice", "Bob")}
    for user in users.values():
        await join(db, user, cast.alice.team_id)

    assert await open_as("127.0.0.0/8", "alice") == "Profile of Alice"
    assert await open_as("127.0.0.0/8", "alice", signed_in="Bob") == "Profile of Alice"
    assert await open_as("127.0.0.0/8", "nobody") == "Sign in"
    assert await open_as("127.0.0.0/8", "nobody", signed_in="Bob") == "Sign in"
    assert await open_as("127.0.0.0/8", "alice", "Bob") == "Sign in"
    assert await open_as("127.0.0.0/8", "") == "Sign in"
    assert await open_as("10.0.0.0/8", "alice") == "Sign in"
    assert await open_as("", "alice") == "Sign in"
    assert await open_as("127.0.0.0/8", signed_in="Bob") == "Profile of Bob"


async def test_who_a_proxy_names_is_signed_in_for_that_request_alone(
    settings: Settings, app: AsgiFrame, db: Db, hub: NotificationListener, notifier: JobNotifier, cast: Cast
):
    """No cookie works without the proxy's word afterwards, and however many requests there are, they are one session."""
    alice = await visit_as(app, db, cast.alice.team_id, name="Alice")
    changed = msgspec.structs.replace(settings, trusted_proxies="127.0.0.0/8", trusted_proxy_user_header="Remote-User")
    proxied = create_app(changed, db, hub, notifier, secret=b"s" * 32)
    named = {"Remote-User": "alice"}

    browser = signed_out(proxied)
    for _ in range(5):
        assert alice.title(await browser.client.get("/ui/profile", headers=named)) == "Profile of Alice"
        assert alice.title(await signed_out(proxied).client.get("/ui/profile", headers=named)) == "Profile of Alice"
    token = re.search(r'name="token" value="([0-9a-f]+)"', (await browser.client.get("/ui", headers=named)).text)
    assert token is not None
    form = {"token": token[1], "text": "Sent through the proxy", "project": cast.alice.project.canonical_id}
    sent = await browser.client.post("/ui/notes", data=form, headers=named)

    assert sent.status_code == 303
    assert cookie(browser) == ""
    assert (await browser.client.get("/ui/profile")).headers["location"].startswith("/ui/sign-in")
    async with db.system() as conn:
        cursor = await conn.execute("SELECT count(*) FROM web_sessions")
        assert (await cursor.fetchone()) == (2,)
    assert alice.title(await alice.get("/ui/profile")) == "Profile of Alice"


async def test_a_person_has_few_sessions_and_those_that_were_used_once_go_first(app: AsgiFrame, db: Db, cast: Cast):
    alice = await visit_as(app, db, cast.alice.team_id)
    assert alice.user is not None
    async with db.system() as conn:
        await conn.execute("UPDATE web_sessions SET created_at = now() - interval '2 d', last_seen_at = now() - interval '1 d'")

    for _ in range(MAX_SESSIONS + 5):
        await app.dependencies.get(Accounts).start_session(Client(address="127.0.0.1"), user_id=alice.user.id)

    async with db.system() as conn:
        cursor = await conn.execute("SELECT count(*) FROM web_sessions")
        assert (await cursor.fetchone()) == (MAX_SESSIONS,)
    assert alice.title(await alice.get("/ui/profile")).startswith("Profile of")


async def test_a_cookie_of_before_ends_where_a_proxy_names_somebody(
    settings: Settings, app: AsgiFrame, db: Db, hub: NotificationListener, notifier: JobNotifier, cast: Cast
):
    changed = msgspec.structs.replace(settings, trusted_proxies="127.0.0.0/8", trusted_proxy_user_header="Remote-User")
    proxied = create_app(changed, db, hub, notifier, secret=b"s" * 32)
    for name in ("Alice", "nobody"):
        alice = await visit_as(proxied, db, cast.alice.team_id, name=f"Alice {name}")
        stolen = cookie(alice)
        page = await alice.client.get("/ui/profile", headers={"Remote-User": name})
        alice.client.cookies.set(COOKIE, stolen, domain="cmserver.local", path="/ui")

        assert COOKIE in page.headers["set-cookie"]
        assert (await alice.client.get("/ui/profile")).headers["location"].startswith("/ui/sign-in")


@pytest.mark.parametrize("target", ["https://evil.example/", "//evil.example", "/\\evil.example", "/api", "/uix", "/ui/\nx"])
async def test_the_page_after_signing_in_is_one_of_ours(app: AsgiFrame, db: Db, visitor: Visitor, target: str):
    await make_user(app, db, "alice", password=PASSWORD)

    form = {"name": "alice", "password": PASSWORD, "next": target}
    answer = await visitor.client.post("/ui/sign-in", data=form, headers={"Origin": ORIGIN})

    assert answer.headers["location"] == "/ui"


async def test_the_cookie_is_out_of_reach_of_scripts_and_other_sites(app: AsgiFrame, db: Db):
    await make_user(app, db, "alice", password=PASSWORD)

    plain = (await enter(signed_out(app), "alice", PASSWORD)).headers["set-cookie"]
    behind_proxy = {"Origin": ORIGIN, "X-Forwarded-Proto": "https"}
    secure = (await enter(signed_out(app), "alice", PASSWORD, headers=behind_proxy)).headers["set-cookie"]

    assert "HttpOnly" in plain
    assert "SameSite=lax" in plain
    assert "Path=/ui" in plain
    assert "Secure" not in plain
    assert "Secure" in secure


async def test_a_key_signs_in_and_may_do_what_the_key_may(cast: Cast, db: Db, visitor: Visitor):
    _, key = await mint(db, cast.alice.team_id, "reader", scopes=["observations:read"])

    page = await visitor.client.post("/ui/sign-in/key", data={"key": key}, headers={"Origin": ORIGIN}, follow_redirects=True)

    assert visitor.title(page) == "Today"
    assert key not in page.text
    assert key not in str(visitor.client.cookies)
    assert (await visitor.get("/ui/team/keys")).status_code == 403


async def test_a_revoked_key_is_signed_out(app: AsgiFrame, db: Db, cast: Cast, client: httpx.AsyncClient):
    principal, _ = await mint(db, cast.alice.team_id, "reader", scopes=["observations:read"])
    reader = await visit_with_key(app, principal)
    assert (await reader.get("/ui")).url.path == "/ui"

    await client.delete(f"/v1/keys/{principal.key_id}", headers=cast.alice.headers)

    assert (await reader.get("/ui")).url.path == "/ui/sign-in"


async def test_a_wrong_key_is_refused_on_the_page(visitor: Visitor):
    page = await visitor.client.post("/ui/sign-in/key", data={"key": "cms_nothing"}, headers={"Origin": ORIGIN})

    assert page.status_code == 403
    assert visitor.title(page) == "Sign in"


async def test_an_invitation_makes_an_account_once(app: AsgiFrame, db: Db, cast: Cast, visitor: Visitor):
    async with db.system() as conn:
        new = await manage.invite(conn, cast.alice.principal, "member")
    path = f"/ui/join/{new.token}"

    page = await visitor.client.post(path, data={"name": "Ann", "password": PASSWORD}, headers={"Origin": ORIGIN})
    again = await signed_out(app).client.post(path, data={"name": "Eve", "password": PASSWORD}, headers={"Origin": ORIGIN})

    assert page.status_code == 303
    assert again.status_code == 404
    assert (await visitor.get("/ui")).url.path == "/ui"
    async with db.system() as conn:
        assert [(person.name, person.role) for person in await repository.members(conn, cast.alice.team_id)] == [("Ann", "member")]


async def test_an_invitation_joins_whoever_is_signed_in(app: AsgiFrame, db: Db, cast: Cast):
    ann = await visit_as(app, db, cast.alice.team_id, name="Ann")
    async with db.system() as conn:
        new = await manage.invite(conn, cast.charlie.principal, "viewer")

    page = await ann.post(f"/ui/join/{new.token}/accept", token=await ann.token(f"/ui/join/{new.token}"))

    assert "You belong to red now." in page.text
    assert len(re.findall(r"/ui/switch/", page.text)) == 1


async def test_a_taken_name_is_refused_and_the_invitation_stays(app: AsgiFrame, db: Db, cast: Cast, visitor: Visitor):
    await make_user(app, db, "Ann")
    async with db.system() as conn:
        new = await manage.invite(conn, cast.alice.principal, "member")

    form = {"name": "ANN", "password": PASSWORD}
    page = await visitor.client.post(f"/ui/join/{new.token}", data=form, headers={"Origin": ORIGIN})

    assert page.status_code == 409
    assert 'value="ANN"' in page.text
    assert (await visitor.get(f"/ui/join/{new.token}")).status_code == 200


async def test_a_short_password_is_refused_beside_its_field(db: Db, cast: Cast, visitor: Visitor):
    async with db.system() as conn:
        new = await manage.invite(conn, cast.alice.principal, "member")

    form = {"name": "Ann", "password": "short"}
    page = await visitor.client.post(f"/ui/join/{new.token}", data=form, headers={"Origin": ORIGIN})

    assert page.status_code == 400
    assert '<span class="problem" id="password-problem">At least 10 characters are needed</span>' in page.text
    assert "<p>At least 10 characters are needed (password).</p>" in page.text
    assert "short" not in page.text


async def test_a_link_for_a_new_password_works_once_and_ends_every_session(app: AsgiFrame, db: Db, cast: Cast, visitor: Visitor):
    alice = await visit_as(app, db, cast.alice.team_id, name="alice")
    async with db.system() as conn:
        _, token = await manage.reset(conn, cast.alice.principal, "alice")
    path = f"/ui/reset/{token}"

    answer = await visitor.client.post(path, data={"password": PASSWORD}, headers={"Origin": ORIGIN})

    assert answer.status_code == 303
    assert (await visitor.get("/ui")).url.path == "/ui"
    assert (await alice.get("/ui")).url.path == "/ui/sign-in"
    assert (await signed_out(app).get(path)).status_code == 404
    assert (await enter(signed_out(app), "alice", PASSWORD)).status_code == 303


# ---- sessions


async def test_a_session_that_an_attacker_planted_is_not_the_one_that_signs_in(
    app: AsgiFrame, db: Db, cast: Cast, visitor: Visitor
):
    await make_user(app, db, "alice", password=PASSWORD)
    attacker = await visit_as(app, db, cast.charlie.team_id)
    planted = cookie(attacker)
    visitor.client.cookies.set(COOKIE, planted, domain="cmserver.local", path="/ui")

    token = await visitor.token()
    form = {"name": "alice", "password": PASSWORD, "token": token}
    await visitor.client.post("/ui/sign-in", data=form, headers={"Origin": ORIGIN})

    assert cookie(visitor) not in ("", planted)
    assert (await attacker.get("/ui")).url.path == "/ui/sign-in"


async def test_a_stolen_cookie_is_worth_nothing_after_signing_out(app: AsgiFrame, db: Db, cast: Cast, visitor: Visitor):
    alice = await visit_as(app, db, cast.alice.team_id)
    stolen = cookie(alice)

    await alice.post("/ui/sign-out")

    visitor.client.cookies.set(COOKIE, stolen, domain="cmserver.local", path="/ui")
    assert (await visitor.get("/ui")).url.path == "/ui/sign-in"
    assert cookie(alice) == ""


async def test_a_changed_password_signs_out_everywhere_else(app: AsgiFrame, db: Db, cast: Cast):
    user = await make_user(app, db, "alice", password=PASSWORD)
    await join(db, user, cast.alice.team_id)
    here, there = await sign_in(app, user), await sign_in(app, user)
    before = cookie(here)

    page = await here.post("/ui/profile/password", current=PASSWORD, password="another long one")

    assert "Your password is changed." in page.text
    assert cookie(here) != before
    assert (await there.get("/ui")).url.path == "/ui/sign-in"


async def test_a_person_ends_another_session_of_theirs_but_of_nobody_else(app: AsgiFrame, db: Db, cast: Cast):
    alice, charlie = await visit_as(app, db, cast.alice.team_id), await visit_as(app, db, cast.charlie.team_id)
    assert alice.user is not None
    other = await sign_in(app, alice.user)
    ids = re.findall(r"/ui/profile/sessions/([0-9a-f-]{36})/end", (await alice.get("/ui/profile")).text)
    assert len(ids) == 1

    assert (await charlie.post(f"/ui/profile/sessions/{ids[0]}/end")).status_code == 404
    await alice.post(f"/ui/profile/sessions/{ids[0]}/end")

    assert (await other.get("/ui")).url.path == "/ui/sign-in"


async def test_a_removed_person_sees_nothing_and_their_keys_end(app: AsgiFrame, db: Db, cast: Cast, client: httpx.AsyncClient):
    owner, member = await visit_as(app, db, cast.alice.team_id), await visit_as(app, db, cast.alice.team_id, "member")
    assert member.user is not None
    made = await member.post(
        "/ui/team/keys", once="01a20d2b-cbf6-7e8f-8d44-5da866c85134", whose="mine", name="mine", scopes="observations:read"
    )
    key = re.search(r"cms_[0-9a-f]+_[0-9a-f]+", made.text)
    assert key is not None
    headers = {"X-Api-Key": key[0]}
    assert (await client.get("/v1/observations", headers=headers)).status_code == 200

    await owner.post(f"/ui/team/people/{member.user.id}/remove")

    assert (await client.get("/v1/observations", headers=headers)).status_code == 403
    assert (await member.client.get("/ui")).status_code == 401


# ---- forged forms


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://cmserver.evil.example"},
    ],
)
async def test_a_form_of_another_site_is_refused_even_with_the_right_token(
    app: AsgiFrame, db: Db, cast: Cast, headers: dict[str, str]
):
    alice = await visit_as(app, db, cast.alice.team_id)
    data = {"token": await alice.token(), "project": str(cast.alice.project.id), "text": "forged"}

    answer = await alice.client.post("/ui/notes", data=data, headers=headers)

    assert answer.status_code == 403
    assert "forged" not in (await alice.get("/ui")).text


async def test_a_sign_in_from_another_site_is_refused(app: AsgiFrame, db: Db, visitor: Visitor):
    await make_user(app, db, "alice", password=PASSWORD)

    assert (await enter(visitor, "alice", PASSWORD, headers={"Sec-Fetch-Site": "cross-site"})).status_code == 403


@pytest.mark.parametrize("token", ["", "0" * 64, "é"])
async def test_a_form_without_the_token_of_the_session_is_refused(app: AsgiFrame, db: Db, cast: Cast, token: str):
    alice = await visit_as(app, db, cast.alice.team_id)

    page = await alice.post("/ui/notes", token=token, project=cast.alice.project.id, text="x")

    assert page.status_code == 403


async def test_a_form_of_an_earlier_session_is_refused(app: AsgiFrame, db: Db, cast: Cast):
    alice = await visit_as(app, db, cast.alice.team_id)
    assert alice.user is not None
    old = await alice.token()
    again = await sign_in(app, alice.user)

    assert (await again.post("/ui/notes", token=old, project=cast.alice.project.id, text="x")).status_code == 403


async def test_a_form_that_is_sent_again_makes_no_second_key(app: AsgiFrame, db: Db, cast: Cast):
    alice = await visit_as(app, db, cast.alice.team_id)
    found = re.search(r'name="once" value="([0-9a-f-]+)"', (await alice.get("/ui/team/keys")).text)
    assert found is not None

    first = await alice.post("/ui/team/keys", once=found[1], whose="mine", name="laptop", scopes="observations:read")
    again = await alice.post("/ui/team/keys", once=found[1], whose="mine", name="laptop", scopes="observations:read")

    assert (first.status_code, again.status_code) == (201, 409)
    assert (await alice.get("/ui/team/keys")).text.count("laptop<br>") == 1


async def test_a_link_of_another_site_does_not_switch_the_team(app: AsgiFrame, db: Db, cast: Cast):
    alice = await visit_as(app, db, cast.alice.team_id)
    assert alice.user is not None
    await join(db, alice.user, cast.charlie.team_id, "viewer")
    path = f"/ui/switch/{cast.charlie.team_id}"

    await alice.client.get(path, headers={"Sec-Fetch-Site": "cross-site"})
    forged = await alice.get("/ui/team")
    await alice.client.get(path, headers={"Sec-Fetch-Site": "same-origin"})
    own = await alice.get("/ui/team")

    assert (alice.title(forged), alice.title(own)) == ("Team blue", "Team red")


async def test_nobody_switches_to_a_team_of_others(app: AsgiFrame, db: Db, cast: Cast):
    alice = await visit_as(app, db, cast.alice.team_id)

    assert (await alice.get(f"/ui/switch/{cast.charlie.team_id}")).status_code == 404


# ---- guessing


@pytest.fixture
def guessing(app: AsgiFrame, monkeypatch: pytest.MonkeyPatch) -> Accounts:
    """Attempts at one moment, whose passwords are compared without the work of a hash."""

    def verify(_self: Passwords, _stored: str, password: str) -> bool:
        return password == PASSWORD

    accounts = app.dependencies.get(Accounts)
    monkeypatch.setattr(Passwords, "_verify", verify)
    monkeypatch.setattr(accounts, "_attempts", SignInAttempts(lambda: 1_000.0))
    return accounts


@pytest.mark.usefixtures("guessing")
async def test_failures_are_slowed_and_those_that_run_at_once_count(app: AsgiFrame, db: Db, visitor: Visitor):
    await make_user(app, db, "alice", password=PASSWORD)

    pages = await asyncio.gather(*(enter(visitor, "alice", f"wrong {place}") for place in range(20)))
    right = await enter(visitor, "alice", PASSWORD)

    assert Counter(page.status_code for page in pages) == {403: 5, 429: 15}
    assert right.status_code == 429
    assert int(right.headers["retry-after"]) >= 1


@pytest.mark.usefixtures("guessing")
async def test_failures_of_an_address_are_slowed_over_all_accounts(visitor: Visitor):
    statuses = [(await enter(visitor, f"nobody {place}", "wrong wrong")).status_code for place in range(ADDRESS.free + 1)]

    assert statuses == [403] * ADDRESS.free + [429]


async def test_strangers_do_not_keep_anybody_out(app: AsgiFrame, db: Db, guessing: Accounts):
    """Somebody fails from one address as often as they may; then from many."""
    accounts = guessing
    await make_user(app, db, "Alice", password=PASSWORD)
    known = accounts.new_browser_token("Alice")

    async def fail(address: str) -> None:
        with pytest.raises(Forbidden):
            await accounts.sign_in("alice", "wrong wrong", Client(address=address))

    for _ in range(ONE.free):
        await fail("198.51.100.1")
    with pytest.raises(RateLimited):
        await accounts.sign_in("alice", PASSWORD, Client(address="198.51.100.1"))
    assert await accounts.sign_in("alice", PASSWORD, Client(address="203.0.113.9"))
    for place in range(ACCOUNT.free - ONE.free):
        await fail(f"198.51.100.{place // 4 + 2}")
    with pytest.raises(RateLimited):
        await accounts.sign_in("alice", PASSWORD, Client(address="203.0.113.9"))
    assert await accounts.sign_in("ALICE", PASSWORD, Client(address="203.0.113.9"), browser_token=known)
    for stolen in (accounts.new_browser_token("Bob"), known[:-1] + "x", known.partition(".")[0], "ü.ü"):
        with pytest.raises(RateLimited):
            await accounts.sign_in("alice", PASSWORD, Client(address="203.0.113.9"), browser_token=stolen)


async def test_a_browser_that_is_known_guesses_no_more_than_others(app: AsgiFrame, db: Db, guessing: Accounts):
    await make_user(app, db, "alice", password=PASSWORD)
    accounts = guessing
    known = accounts.new_browser_token("alice")
    for _ in range(ONE.free):
        with pytest.raises(Forbidden):
            await accounts.sign_in("alice", "wrong wrong", Client(address="198.51.100.1"), browser_token=known)

    with pytest.raises(RateLimited):
        await accounts.sign_in("alice", PASSWORD, Client(address="198.51.100.1"), browser_token=known)


async def test_a_browser_is_known_after_the_right_password(app: AsgiFrame, db: Db, visitor: Visitor):
    await make_user(app, db, "alice", password=PASSWORD)

    wrong, right = await enter(visitor, "alice", "wrong wrong"), await enter(visitor, "alice", PASSWORD)

    assert BROWSER_COOKIE not in wrong.headers.get("set-cookie", "")
    (cookie_text,) = [text for text in right.headers.get_list("set-cookie") if text.startswith(BROWSER_COOKIE)]
    assert {"HttpOnly", "SameSite=lax", "Path=/ui/sign-in"} <= {part.strip() for part in cookie_text.split(";")}


async def test_only_a_few_passwords_wait_to_be_checked_and_strangers_leave_room(monkeypatch: pytest.MonkeyPatch):
    """Nothing that one address sends makes another wait behind all of it."""
    passwords, released, begun = Passwords(), threading.Event(), threading.Semaphore(0)

    def verify(stored: str, password: str) -> bool:
        begun.release()
        released.wait(ENOUGH_SECONDS)
        return True

    monkeypatch.setattr(passwords, "_verify", verify)
    flood = [asyncio.create_task(passwords.verify("hash", "x", holder="one address")) for _ in range(40)]
    others = [asyncio.create_task(passwords.verify("hash", "x", holder=f"address {place}")) for place in range(40)]
    known = asyncio.create_task(passwords.verify("hash", "x", holder="known browser"))
    await asyncio.sleep(0)
    released.set()
    results = await asyncio.gather(*flood, *others, known, return_exceptions=True)

    assert results[:40].count(True) == MAX_WAITING_OF_ONE
    assert results[40:80].count(True) == MAX_WAITING - MAX_WAITING_OF_ONE
    assert results[80] is True
    assert all(result is True or isinstance(result, RateLimited) for result in results)


@try_rows("field, length", [("name", 101), ("password", 1_001), ("next", 5_000)])
async def test_what_a_sign_in_sends_has_limits(visitor: Visitor, field: str, length: int):
    form = {"name": "alice", "password": PASSWORD, field: "x" * length}

    assert (await visitor.client.post("/ui/sign-in", data=form, headers={"Origin": ORIGIN})).status_code == 400


async def test_a_wrong_name_and_a_wrong_password_are_told_alike(app: AsgiFrame, db: Db, visitor: Visitor):
    await make_user(app, db, "alice", password=PASSWORD)

    wrong_name, wrong_password = await enter(visitor, "alicia", PASSWORD), await enter(visitor, "alice", "wrong wrong")

    def alert(page: httpx.Response) -> list[str]:
        return re.findall(r'role="alert">\s*<p>(.*?)</p>', page.text)

    assert alert(wrong_name) == alert(wrong_password) != []


# ---- equal names, and what one may see


async def test_two_teams_alice_are_two_people(app: AsgiFrame, db: Db, cast: Cast, client: httpx.AsyncClient):
    """The team red knows an `alice` by the name on a key, the team blue one by her account."""
    await mint(db, cast.charlie.team_id, "alice", scopes=["admin"])
    await client.put(f"/v1/teams/{cast.charlie.team_id}/members/alice", json={"role": "owner"}, headers=cast.charlie.headers)
    alice = await visit_as(app, db, cast.alice.team_id, "viewer", name="alice")

    assert (await alice.get(f"/ui/switch/{cast.charlie.team_id}")).status_code == 404
    assert alice.title(await alice.get("/ui/team")) == "Team blue"
    assert not re.search(r"\bred\b", (await alice.get("/ui/profile")).text)


async def test_a_member_does_not_touch_keys_on_which_their_name_stands(app: AsgiFrame, db: Db, cast: Cast):
    principal, _ = await mint(db, cast.alice.team_id, "carol", scopes=["observations:read"])
    carol = await visit_as(app, db, cast.alice.team_id, "member", name="carol")

    page = await carol.post(f"/ui/team/keys/{principal.key_id}/revoke")

    assert page.status_code == 403


async def test_a_member_makes_no_key_that_may_more(app: AsgiFrame, db: Db, cast: Cast):
    member = await visit_as(app, db, cast.alice.team_id, "member")

    page = await member.post("/ui/team/keys", once="01a20d2b-cbf6-7e8f-8d44-5da866c85134", whose="mine", scopes="admin")

    assert page.status_code == 403


async def test_refusals_of_a_person_are_audited(app: AsgiFrame, db: Db, cast: Cast, client: httpx.AsyncClient):
    viewer = await visit_as(app, db, cast.alice.team_id, "viewer")
    assert viewer.user is not None

    await viewer.get("/ui/team/audit")

    entries = (await client.get("/v1/audit?action=access.denied", headers=cast.alice.headers)).json()["entries"]
    assert [(entry["resourceType"], entry["userId"]) for entry in entries] == [("user", str(viewer.user.id))]


async def test_a_person_is_limited_as_a_key_is(app: AsgiFrame, db: Db, cast: Cast, client: httpx.AsyncClient):
    await client.patch(f"/v1/teams/{cast.alice.team_id}", json={"requestsPerMinute": 3}, headers=cast.alice.headers)
    viewer = await visit_as(app, db, cast.alice.team_id, "viewer")

    statuses = {(await viewer.get("/ui")).status_code for _ in range(6)}

    assert 429 in statuses


async def test_a_page_may_not_be_framed_and_runs_only_our_scripts(app: AsgiFrame, db: Db, cast: Cast, visitor: Visitor):
    alice = await visit_as(app, db, cast.alice.team_id)

    for page in [
        await alice.get("/ui"),
        await visitor.get("/ui/sign-in"),
        await alice.get("/ui/nothing"),
        await visitor.get("/ui/x"),
    ]:
        policy = page.headers["content-security-policy"]
        assert "frame-ancestors 'none'" in policy
        assert "default-src 'none'; script-src 'self'; style-src 'self'" in policy
        assert page.headers["x-frame-options"] == "DENY"
        assert page.headers["cache-control"] == "no-store"
        assert page.headers.get_list("referrer-policy") == ["same-origin"]


async def test_a_page_that_is_not_there_suggests_one(app: AsgiFrame, db: Db, cast: Cast):
    alice = await visit_as(app, db, cast.alice.team_id)

    page = await alice.get("/ui/teem")

    assert page.status_code == 404
    assert '<a href="/ui/team">Team</a>' in page.text


async def test_a_session_ends_after_its_idle_days(app: AsgiFrame, db: Db, cast: Cast):
    alice = await visit_as(app, db, cast.alice.team_id)
    async with db.system() as conn:
        await conn.execute("UPDATE web_sessions SET last_seen_at = now() - interval '14 days'")

    assert (await alice.get("/ui")).url.path == "/ui/sign-in"


async def test_the_database_holds_no_token_and_no_password(app: AsgiFrame, db: Db, cast: Cast):
    alice = await visit_as(app, db, cast.alice.team_id)
    await make_user(app, db, "bob", password=PASSWORD)

    async with db.system() as conn:
        cursor = await conn.execute("SELECT token_hash FROM web_sessions UNION ALL SELECT password_hash FROM users")
        stored = [str(row[0]) for row in await cursor.fetchall() if row[0]]

    assert len(stored) == 2
    assert cookie(alice) not in stored
    assert not any(PASSWORD in text for text in stored)
    assert app.dependencies.get(Accounts) is not None
