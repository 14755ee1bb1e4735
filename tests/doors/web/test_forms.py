"""What is sent with a form: how much of it is read, and that a refusal gives back what was typed."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import httpx
import pytest

from cmserver.access.people import repository as people
from cmserver.base.db import Db
from cmserver.base.http.frame import AsgiFrame
from cmserver.doors.web.page import Page
from cmserver.doors.web.templates import FOLDER
from cmserver.doors.web.visit import MAX_FORM_BYTES, SECRET_FIELDS
from tests.conftest import Cast
from tests.doors.web.visitor import ORIGIN, Visitor, sign_in, signed_out, visit_as
from tests.house.web_page import page_routes
from tests.make import Make
from tests.table import Failures

FORMS = [page for page in page_routes() if page.method == "POST"]
TEXT = "Half an hour of typing,\r\nin two lines <b>"
EDIT = "/ui/observations/1/edit"
FIELDS: dict[str, Any] = {"version": "1", "type": "change", "title": "Queue", "narrative": TEXT, "importance": "0.5"}


def address(page: Page) -> str:
    return re.sub(r"\{[^}]*\}", "x", page.path)


async def send(visitor: Visitor, path: str, content: bytes, headers: dict[str, str] | None = None) -> httpx.Response:
    form = {"Content-Type": "application/x-www-form-urlencoded", "Origin": ORIGIN}
    return await visitor.client.post(path, content=content, headers=form | (headers or {}))


def sees(page: httpx.Response) -> bool:
    return TEXT.replace("\r\n", "\n") in unescape(page.text).replace("\r\n", "\n")


async def narrative(db: Db, cast: Cast) -> str | None:
    async with db.tenant(cast.alice.team_id) as conn:
        row = await (await conn.execute("SELECT narrative FROM observations WHERE number = 1")).fetchone()
    assert row is not None
    return row[0]


@pytest.mark.parametrize("role", [None, "owner"])
async def test_no_form_is_read_beyond_its_limit(app: AsgiFrame, db: Db, cast: Cast, role: str | None):
    visitor = await visit_as(app, db, cast.alice.team_id, is_operator=True) if role else signed_out(app)
    failures = Failures()
    for page in FORMS:
        with failures.of(page.path):
            answer = await send(visitor, address(page), b"%ff" * (MAX_FORM_BYTES // 3 + 1))
            assert answer.status_code == 413
            assert "at most 262,144 bytes" in answer.text
    failures.report()


async def test_a_form_of_the_largest_size_is_read(app: AsgiFrame, db: Db, cast: Cast):
    visitor = await visit_as(app, db, cast.alice.team_id)
    start = b"token=%b&text=" % (await visitor.token()).encode()

    answer = await send(visitor, "/ui/notes", start + b"%41" * ((MAX_FORM_BYTES - len(start)) // 3))

    assert answer.status_code == 400
    assert "At most 20000 characters are allowed" in unescape(answer.text)


async def test_an_empty_body_is_a_form_without_fields(app: AsgiFrame, db: Db, cast: Cast):
    failures = Failures()
    for visitor in (signed_out(app), await visit_as(app, db, cast.alice.team_id)):
        for page in FORMS:
            with failures.of(page.path):
                answer = await send(visitor, address(page), b"")
                assert answer.status_code in (303, 400, 401, 403, 404)
    failures.report()


async def test_what_was_typed_before_the_sign_in_is_shown_after_it_and_nothing_is_done(
    app: AsgiFrame, db: Db, cast: Cast, make: Make
):
    await make.observation(project=cast.alice.project, title="Queue", narrative="Before")
    alice = await visit_as(app, db, cast.alice.team_id)

    refused = await signed_out(app).post(EDIT, token="", **FIELDS)
    sent: dict[str, Any] = {
        name: unescape(value) for name, value in re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', refused.text)
    }
    again = await alice.post(EDIT, token="", **sent)

    assert (refused.status_code, sees(refused)) == (401, True)
    assert sent == FIELDS
    assert f'<form method="post" action="{EDIT}"' in refused.text
    assert (again.status_code, sees(again)) == (403, True)
    assert await narrative(db, cast) == "Before"
    token = re.findall(r'name="token" value="([0-9a-f]+)"', again.text)[-1]
    assert (await alice.post(EDIT, token=token, follow=False, **sent)).status_code == 303
    assert await narrative(db, cast) == TEXT.replace("\r\n", "\n")


async def test_a_refusal_gives_back_what_was_typed(app: AsgiFrame, db: Db, cast: Cast, make: Make):
    await make.observation(project=cast.alice.project, title="Queue", narrative="Before")
    alice = await visit_as(app, db, cast.alice.team_id)
    assert alice.user is not None
    other = await sign_in(app, alice.user)
    note, token = {"text": TEXT, "project": "no such project"}, await alice.token()
    failures = Failures()

    async def expect(label: str, status: int, visitor: Visitor, path: str, *, token: str | None = None, **fields: Any) -> None:
        with failures.of(label):
            answer = await visitor.post(path, token=token, **fields)
            assert (answer.status_code, sees(answer)) == (status, True)

    await expect("the token of another session", 403, other, EDIT, token=token, **FIELDS)
    await expect("a project that is not there", 404, alice, "/ui/notes", **note)
    await expect("an observation that never was", 404, alice, "/ui/observations/99/edit", **FIELDS)
    await alice.post("/ui/observations/1/expire")
    await expect("an observation that has expired", 410, alice, EDIT, **FIELDS)
    await expect("a form of a page that has none for it", 404, alice, "/ui/observations/1/relations", to="2", context=TEXT)
    async with db.system() as conn:
        await people.update_member(conn, cast.alice.team_id, alice.user.name, "viewer", {})
    await expect("a role that was lowered", 403, alice, EDIT, **FIELDS)
    async with db.system() as conn:
        await conn.execute("DELETE FROM team_members WHERE account_id = %s", (alice.user.id,))
    await expect("a person that was removed", 401, alice, EDIT, **FIELDS)
    failures.report()


async def test_another_site_gets_nothing_read_and_nothing_back(app: AsgiFrame):
    answer = await signed_out(app).client.post(EDIT, data={"narrative": TEXT}, headers={"Sec-Fetch-Site": "cross-site"})

    assert (answer.status_code, sees(answer)) == (403, False)


async def test_no_password_is_shown_again(app: AsgiFrame):
    typed = {match[1] for file in (FOLDER / "templates").glob("*.html") for match in PASSWORD_FIELD.finditer(file.read_text())}
    answer = await signed_out(app).post(
        "/ui/profile/password", token="t" * 64, current="old secret words", password="new secret words"
    )

    assert typed
    assert typed <= SECRET_FIELDS
    assert answer.status_code == 401
    assert "secret words" not in answer.text


PASSWORD_FIELD = re.compile(r"ui\.field\('(\w+)'[^\n]*type='password'")
