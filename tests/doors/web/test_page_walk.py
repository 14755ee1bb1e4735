"""Every page and form is tried as everybody: signed out, as viewer, member and owner, as an operator, and from another team."""

from __future__ import annotations

import re
from typing import Any

import httpx
import pytest

from cmserver.access.model import Role
from cmserver.base.db import Db
from cmserver.base.http.frame import AsgiFrame
from cmserver.base.ids import new_id
from cmserver.doors.web.page import Page
from tests.cli.test_verbs import stored
from tests.conftest import Cast
from tests.doors.web.visitor import Visitor, signed_out, visit_as
from tests.house.web_page import ROLES, outcome_of, outcome_signed_out, page_routes
from tests.make import Make

MARK = "heliotrope"
"""Stands in everything of Alice's team."""
PAGES = [page for page in page_routes() if page.path != "/ui/live"]
"""Without the live stream, which does not end; who may open it is decided as for all others."""
READS = [page for page in PAGES if page.method == "GET"]
PARAMETER = re.compile(r"(\w+)/\{\w+(?::path)?\}")


class Places(dict[str, str]):
    """What the parameters of addresses name, by the word before them: Alice's things, or nothing that exists where she has none."""

    def fill(self, path: str) -> str:
        return PARAMETER.sub(lambda match: f"{match[1]}/{self.get(match[1], new_id())}", path)

    def are_in(self, path: str) -> bool:
        return any(word in self for word in PARAMETER.findall(path))


@pytest.fixture
async def places(client: httpx.AsyncClient, cast: Cast, make: Make) -> Places:
    """Alice's team with one of each thing."""
    project = str(cast.alice.project.id)

    async def post(path: str, **body: object) -> Any:
        return (await client.post(f"/v1/{path}", json={"projectId": project, **body}, headers=cast.alice.headers)).json()

    session = (await post("sessions/start", externalSessionId=MARK, platformSource="claude-code"))["session"]["id"]
    await client.patch(f"/v1/sessions/{session}", json={"title": MARK}, headers=cast.alice.headers)
    await client.patch(f"/v1/projects/{project}", json={"name": MARK}, headers=cast.alice.headers)
    sent = await post("events", eventType="tool_use", payload={"tool_name": MARK}, serverSessionId=session)
    observation, other = [await make.observation(project=cast.alice.project, title=MARK) for _ in range(2)]
    await client.post("/v1/keys", json={"name": MARK, "scopes": ["observations:read"]}, headers=cast.alice.headers)
    invited = await client.post("/v1/users/invitations", json={"note": MARK}, headers=cast.alice.headers)
    return Places(
        projects=project,
        sessions=session,
        observations=str(observation.id),
        events=sent["event"]["id"],
        jobs=sent["generationJob"]["id"],
        graph=(await post("entities", name=MARK, type="technology"))["entity"]["id"],
        review=str(await make.suggestion(project=cast.alice.project, left=observation.id, right=other.id)),
        invitations=invited.json()["invitation"]["id"],
        people="alice",
    )


async def open_page(visitor: Visitor, page: Page, path: str, token: str) -> httpx.Response:
    """The page, or what comes of its form when nothing is filled in."""
    return await (visitor.client.get(path) if page.method == "GET" else visitor.post(path, token=token, follow=False))


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
    visitor = signed_out(app)
    token = await visitor.token("/ui/sign-in")
    for page in PAGES:
        path = places.fill(page.path)
        complaints.append(check(page, path, await open_page(visitor, page, path, token), outcome_signed_out(page)))

    assert [complaint for complaint in complaints if complaint] == []


@pytest.mark.parametrize("role", [*ROLES, "operator"])
async def test_everybody_may_do_what_the_reference_says(app: AsgiFrame, db: Db, cast: Cast, places: Places, role: str):
    complaints: list[str | None] = []
    is_operator = role == "operator"
    person_role: Role = "viewer" if is_operator else ROLES[[*map(str, ROLES)].index(role)]

    async def arrive() -> tuple[Visitor, str]:
        visitor = await visit_as(app, db, cast.alice.team_id, person_role, is_operator=is_operator)
        return visitor, await visitor.token("/ui/profile")

    visitor, token = await arrive()
    for page in PAGES:
        path = places.fill(page.path)
        answer = await open_page(visitor, page, path, token)
        if page.path in {"/ui/sign-out", "/ui/profile/leave"}:
            visitor, token = await arrive()
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

    assert seen >= 12, "the pages do not show the mark to Alice either, so the test proves nothing"


async def test_another_teams_forms_find_and_change_nothing(app: AsgiFrame, db: Db, cast: Cast, places: Places):
    charlie = await visit_as(app, db, cast.charlie.team_id)
    fields = {
        "version": 1,
        "title": "x",
        "sources": 1,
        "to": 1,
        "events": 1,
        "confirm": "delete 1 events",
        "alias": "x",
        "name": "x",
    }
    token, before, tried = await charlie.token(), await stored(db), 0

    for page in PAGES:
        if page.method != "POST" or not places.are_in(page.path):
            continue
        of_area = {"type": "technology" if "graph" in page.path else "change", "role": "viewer"}
        into = {} if "review" in page.path else {"into": cast.charlie.project.id}
        answer = await charlie.post(places.fill(page.path), token=token, follow=False, **fields, **of_area, **into)
        assert answer.status_code == 404, (page.path, answer.text)
        tried += 1

    assert await stored(db) == before
    assert tried > 30
