"""Every page and form is tried as everybody: signed out, as viewer, member and owner, as an operator, and from another team."""

from __future__ import annotations

import re

import httpx
import pytest

from cmserver.access.model import Role
from cmserver.base.db import Db
from cmserver.base.http.frame import AsgiFrame
from cmserver.base.ids import new_id
from cmserver.doors.web.page import Page
from tests.conftest import Cast
from tests.doors.web.visitor import Visitor, signed_out, visit_as
from tests.house.web_page import ROLES, outcome_of, outcome_signed_out, page_routes
from tests.make import Make

MARK = "heliotrope"
"""Stands in everything of Alice's team."""
PAGES = [page for page in page_routes() if page.path != "/ui/live"]
"""Without the live stream, which does not end; who may open it is decided as for all others."""
READS = [page for page in PAGES if page.method == "GET"]
PARAMETER = re.compile(r"\{(\w+)(?::path)?\}")


class Places:
    """What the parameters of addresses name: Alice's things where there is one of that name, else nothing that exists."""

    def __init__(self, **things: str) -> None:
        self._things = things

    def fill(self, path: str) -> str:
        return PARAMETER.sub(lambda match: self._things.get(match[1], str(new_id())), path)


@pytest.fixture
async def places(client: httpx.AsyncClient, cast: Cast, make: Make) -> Places:
    """Alice's team with one of each thing."""
    body = {"projectId": str(cast.alice.project.id), "externalSessionId": MARK, "platformSource": "claude-code"}
    session = (await client.post("/v1/sessions/start", json=body, headers=cast.alice.headers)).json()["session"]["id"]
    await client.patch(f"/v1/sessions/{session}", json={"title": MARK}, headers=cast.alice.headers)
    await client.patch(f"/v1/projects/{cast.alice.project.id}", json={"name": MARK}, headers=cast.alice.headers)
    observation = await make.observation(project=cast.alice.project, title=MARK)
    await client.post("/v1/users/invitations", json={"note": MARK}, headers=cast.alice.headers)
    await client.post("/v1/keys", json={"name": MARK, "scopes": ["observations:read"]}, headers=cast.alice.headers)
    return Places(
        project=str(cast.alice.project.id), session=session, observation=str(observation.number), number=str(observation.number)
    )


async def open_page(visitor: Visitor, page: Page, path: str) -> httpx.Response:
    """The page, or what comes of its form when nothing is filled in."""
    if page.method == "GET":
        return await visitor.client.get(path)
    found = re.search(r'name="token" value="([0-9a-f]*)"', (await visitor.get("/ui/sign-in")).text)
    assert found is not None
    return await visitor.client.post(path, data={"token": found[1]}, headers={"Origin": "http://cmserver"})


def check(page: Page, path: str, answer: httpx.Response, outcome: str) -> str | None:
    """The complaint, if the answer is not what the reference says."""
    status = answer.status_code
    if status >= 500:
        return f"{page.method} {path} failed: {status}"
    if outcome == "sign in":
        is_right = status == 401 or (status == 303 and answer.headers["location"].startswith("/ui/sign-in"))
    elif outcome == "no":
        is_right = status == 403
    else:
        is_right = status not in (401, 403)
    return None if is_right else f"{page.method} {path}: {status}, the reference says {outcome}"


async def test_who_is_signed_out_gets_nothing_but_the_sign_in(app: AsgiFrame, places: Places):
    complaints: list[str | None] = []
    for page in PAGES:
        path = places.fill(page.path)
        complaints.append(check(page, path, await open_page(signed_out(app), page, path), outcome_signed_out(page)))

    assert [complaint for complaint in complaints if complaint] == []


@pytest.mark.parametrize("role", [*ROLES, "operator"])
async def test_everybody_may_do_what_the_reference_says(app: AsgiFrame, db: Db, cast: Cast, places: Places, role: str):
    complaints: list[str | None] = []
    is_operator = role == "operator"
    person_role: Role = "viewer" if is_operator else ROLES[[*map(str, ROLES)].index(role)]
    for page in PAGES:
        visitor = await visit_as(app, db, cast.alice.team_id, person_role, is_operator=is_operator)
        path = places.fill(page.path)
        answer = await open_page(visitor, page, path)
        expected = outcome_of(page, person_role, is_operator=is_operator)
        if is_operator and not page.is_for_operators:
            expected = "yes"  # the scope * of an operator is everything in their teams
        complaints.append(check(page, path, answer, expected))

    assert [complaint for complaint in complaints if complaint] == []


async def test_another_team_sees_nothing_of_it_on_any_page(app: AsgiFrame, db: Db, cast: Cast, places: Places):
    charlie = await visit_as(app, db, cast.charlie.team_id)
    alice = await visit_as(app, db, cast.alice.team_id)
    seen = 0

    for page in READS:
        path = places.fill(page.path)
        answer = await charlie.get(path)
        assert MARK not in answer.text, path
        if PARAMETER.search(page.path) and page.scope:
            assert answer.status_code == 404, path
        seen += MARK in (await alice.get(path)).text

    assert seen >= 3, "the pages do not show the mark to Alice either, so the test proves nothing"
