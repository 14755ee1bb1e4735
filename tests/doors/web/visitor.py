"""People of the test's cast who are signed in to the web interface, and what they see."""

from __future__ import annotations

import re
from html import unescape
from uuid import UUID

import httpx
import msgspec

from cmserver.access.model import Principal, Role
from cmserver.access.people import repository
from cmserver.access.people.accounts import Accounts
from cmserver.access.people.model import Client, User
from cmserver.access.people.passwords import Passwords
from cmserver.base.db import Db
from cmserver.base.http.frame import AsgiFrame
from cmserver.base.ids import new_id
from cmserver.doors.web.security import COOKIE

ORIGIN = "http://cmserver"


class Visitor(msgspec.Struct, kw_only=True):
    """A browser without JavaScript: keeps cookies, and sends forms with the token of the page."""

    client: httpx.AsyncClient
    user: User | None = None

    async def get(self, path: str) -> httpx.Response:
        return await self.client.get(path, follow_redirects=True)

    async def token(self, path: str = "/ui") -> str:
        """The token in the forms of the page."""
        found = re.search(r'name="token" value="([0-9a-f]*)"', (await self.get(path)).text)
        assert found is not None
        return found[1]

    async def post(self, path: str, *, token: str | None = None, follow: bool = True, **fields: object) -> httpx.Response:
        """Send a form as the page does."""
        data = {"token": await self.token() if token is None else token, **{name: str(value) for name, value in fields.items()}}
        return await self.client.post(path, data=data, headers={"Origin": ORIGIN}, follow_redirects=follow)

    def title(self, page: httpx.Response) -> str:
        found = re.search(r"<h1[^>]*>(.*?)</h1>", page.text, re.DOTALL)
        return unescape(found[1]).strip() if found else ""


async def make_user(app: AsgiFrame, db: Db, name: str, *, password: str | None = None, is_operator: bool = False) -> User:
    """An account."""
    password_hash = await Passwords().hash(password) if password else None
    async with db.system() as conn:
        return await repository.insert_user(conn, new_id(), name, password_hash=password_hash, is_operator=is_operator)


async def join(db: Db, user: User, team_id: UUID, role: Role = "owner") -> None:
    async with db.system() as conn:
        await repository.join(conn, team_id, user.name, user.id, role)


async def sign_in(app: AsgiFrame, user: User) -> Visitor:
    """A browser in which the person is signed in."""
    token = await app.dependencies.get(Accounts).start_session(Client(address="127.0.0.1"), user_id=user.id)
    return _browser(app, token, user)


async def visit_as(
    app: AsgiFrame, db: Db, team_id: UUID, role: Role = "owner", *, name: str = "", is_operator: bool = False
) -> Visitor:
    """A new person of the team, signed in."""
    user = await make_user(app, db, name or f"{role} {new_id().hex[-6:]}", is_operator=is_operator)
    await join(db, user, team_id, role)
    return await sign_in(app, user)


async def visit_with_key(app: AsgiFrame, principal: Principal) -> Visitor:
    """A browser in which somebody signed in with a key."""
    token = await app.dependencies.get(Accounts).sign_in_with_key(principal, Client(address="127.0.0.1"))
    return _browser(app, token, None)


def signed_out(app: AsgiFrame) -> Visitor:
    """A browser in which nobody is signed in."""
    return _browser(app, None, None)


def _browser(app: AsgiFrame, token: str | None, user: User | None) -> Visitor:
    transport = httpx.ASGITransport(app)  # pyright: ignore[reportArgumentType] - httpx types ASGI more narrowly
    client = httpx.AsyncClient(transport=transport, base_url=ORIGIN)
    if token:
        client.cookies.set(COOKIE, token, domain="cmserver.local", path="/ui")  # as http.cookiejar calls it
    return Visitor(client=client, user=user)
