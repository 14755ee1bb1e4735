"""The pages below a path of another server, whose proxy takes the path away and names it in X-Forwarded-Prefix."""

from __future__ import annotations

import re
from itertools import chain

import httpx
import msgspec
import pytest

from cmserver.app import create_app
from cmserver.base.db import Db
from cmserver.base.http.frame import AsgiFrame
from cmserver.base.notifications import NotificationListener
from cmserver.base.settings import Settings
from cmserver.doors.web.navigation import GROUPS, TABS
from cmserver.generation.job_notifier import JobNotifier
from tests.conftest import Cast
from tests.doors.web.visitor import ORIGIN, Visitor, join, make_user, signed_out
from tests.make import Make
from tests.table import try_rows

PREFIX = "/tools/memory"
PASSWORD = "correct horse battery"
ADDRESS = re.compile(r' (?!value=)[a-z-]+="(/[^"]*)"')


class Proxy(httpx.AsyncBaseTransport):
    """Passes on what is below its path, as nginx, Caddy and Traefik do."""

    def __init__(self, app: AsgiFrame) -> None:
        self._inner = httpx.ASGITransport(app)  # pyright: ignore[reportArgumentType] - httpx types ASGI more narrowly

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if not request.url.path.startswith(PREFIX):
            return httpx.Response(404, text="another server's page")
        path = request.url.raw_path.removeprefix(PREFIX.encode()) or b"/"
        headers = {**request.headers, "X-Forwarded-Prefix": PREFIX, "X-Forwarded-Proto": "https", "X-Forwarded-For": "192.0.2.1"}
        passed_on = httpx.Request(request.method, request.url.copy_with(raw_path=path), headers=headers, stream=request.stream)
        return await self._inner.handle_async_request(passed_on)


@pytest.fixture
async def below(settings: Settings, db: Db, hub: NotificationListener, notifier: JobNotifier, cast: Cast, make: Make) -> Visitor:
    """The browser of an owner and operator, who has signed in at the address below the path."""
    await make.observation(project=cast.alice.project, title="The pool waits")
    app = create_app(msgspec.structs.replace(settings, trusted_proxies="127.0.0.0/8"), db, hub, notifier, secret=b"s" * 32)
    user = await make_user(app, db, "Alice", password=PASSWORD, is_operator=True)
    await join(db, user, cast.alice.team_id)
    client = httpx.AsyncClient(transport=Proxy(app), base_url=ORIGIN.replace("http:", "https:"))
    form = {"name": "alice", "password": PASSWORD, "next": "/ui/team"}
    entered = await client.post(f"{PREFIX}/ui/sign-in", data=form, headers={"Sec-Fetch-Site": "same-origin"})
    assert (entered.status_code, entered.headers["location"]) == (303, f"{PREFIX}/ui/team")
    assert all(f"Path={PREFIX}/ui" in line for line in entered.headers.get_list("set-cookie"))
    return Visitor(client=client, user=user)


@try_rows(
    "path",
    [*dict.fromkeys(item.path for item in [*chain(*GROUPS.values()), *TABS]), "/ui/profile", "/ui/nothing", "/ui/observations/1"],
)
async def test_each_address_of_a_page_is_below_the_path(below: Visitor, path: str):
    page = await below.client.get(f"{PREFIX}{path}")

    addresses = ADDRESS.findall(page.text)
    assert page.status_code == (404 if path == "/ui/nothing" else 200)
    assert len(addresses) > 10
    assert [address for address in addresses if not address.startswith(f"{PREFIX}/")] == []


async def test_files_forms_and_redirects_work_there(below: Visitor):
    page = await below.client.get(PREFIX, follow_redirects=True)
    style = next(address for address in ADDRESS.findall(page.text) if "style.css" in address)
    token = re.search(r'name="token" value="([0-9a-f]+)"', page.text)
    assert token is not None
    form = {"token": token[1], "text": "Noted below a path", "project": "github.com/acme/orders"}
    noted = await below.client.post(
        f"{PREFIX}/ui/notes", data=form, headers={"Sec-Fetch-Site": "same-origin"}, follow_redirects=True
    )

    assert page.url.path == f"{PREFIX}/ui"
    assert (await below.client.get(style)).headers["content-type"].startswith("text/css")
    assert (noted.status_code, noted.url.path) == (200, f"{PREFIX}/ui/observations/2")
    assert 'class="notice row"' in noted.text


async def test_links_that_are_handed_on_begin_with_the_address_of_the_visitor(below: Visitor):
    team = await below.client.get(f"{PREFIX}/ui/team")
    token, once = (re.search(rf'name="{name}" value="([^"]+)"', team.text) for name in ("token", "once"))
    assert token is not None
    assert once is not None
    form = {"token": token[1], "once": once[1], "role": "member"}
    made = await below.client.post(f"{PREFIX}/ui/team/invitations", data=form, headers={"Sec-Fetch-Site": "same-origin"})

    assert f"https://cmserver{PREFIX}/ui/join/" in made.text
    assert f"connect claude-code --server https://cmserver{PREFIX}" in (await below.client.get(f"{PREFIX}/ui/sessions")).text
    assert f"https://cmserver{PREFIX}/v1/" in (await below.client.get(f"{PREFIX}/docs")).text


async def test_the_document_of_the_api_names_the_path(below: Visitor):
    told = (await below.client.get(f"{PREFIX}/openapi.json")).json()

    assert told["servers"] == [{"url": PREFIX}]
    assert "/v1/search" in told["paths"]


@try_rows(
    "proxies, prefixes, expected",
    [
        ("127.0.0.0/8", ["/memory"], "/memory/ui"),
        ("127.0.0.0/8", ["/tools/memory/"], "/tools/memory/ui"),
        ("127.0.0.0/8", ["/"], "/ui"),
        ("127.0.0.0/8", ["//evil.example"], "/ui"),
        ("127.0.0.0/8", ["/.."], "/ui"),
        ("127.0.0.0/8", ['/"><script>'], "/ui"),
        ("127.0.0.0/8", ["https://evil.example"], "/ui"),
        ("127.0.0.0/8", ["/a", "/b"], "/ui"),
        ("127.0.0.0/8", ["/a, /b"], "/ui"),
        ("10.0.0.0/8", ["/memory"], "/ui"),
        ("", ["/memory"], "/ui"),
    ],
)
async def test_only_a_trusted_proxy_and_only_a_path_counts(
    settings: Settings,
    db: Db,
    hub: NotificationListener,
    notifier: JobNotifier,
    proxies: str,
    prefixes: list[str],
    expected: str,
):
    app = create_app(msgspec.structs.replace(settings, trusted_proxies=proxies), db, hub, notifier, secret=b"s" * 32)

    answer = await signed_out(app).client.get("/", headers=[("X-Forwarded-Prefix", prefix) for prefix in prefixes])

    assert answer.headers["location"] == expected
