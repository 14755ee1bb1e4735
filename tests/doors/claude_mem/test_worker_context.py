"""What claude-mem's hooks put into an agent's context: our index, and our lines beside a prompt."""

from __future__ import annotations

import httpx
import pytest

from cmserver.base.db import Db
from tests.conftest import Cast, bound_to
from tests.make import Make
from tests.rows import rows
from tests.table import try_rows

INJECT = "/api/context/inject"


async def test_a_session_is_told_our_index_as_plain_text(guest: httpx.AsyncClient, cast: Cast, make: Make):
    seen = await make.observation(project=cast.alice.project, title="Retries are idempotent")

    response = await guest.get(f"{INJECT}?projects=orders&platformSource=claude")

    assert response.status_code == 200
    assert response.headers["content-type"] == "text/plain; charset=utf-8"
    assert f"#{seen.number}" in response.text
    assert "Retries are idempotent" in response.text


async def test_people_who_want_colours_are_shown_the_same(guest: httpx.AsyncClient, cast: Cast, make: Make):
    await make.observation(project=cast.alice.project, title="Retries are idempotent")

    plain = await guest.get(f"{INJECT}?projects=orders&platformSource=claude")
    colored = await guest.get(f"{INJECT}?projects=orders&platformSource=claude&colors=true")

    assert plain.text == colored.text
    assert "\x1b" not in colored.text


async def test_of_several_projects_the_last_one_comes_first(guest: httpx.AsyncClient, db: Db, cast: Cast, make: Make):
    billing = await bound_to(db, cast.alice, "billing")
    await make.observation(project=cast.alice.project, title="About orders")
    await make.observation(project=billing.project, title="About billing")

    text = (await guest.get(f"{INJECT}?projects=billing,unheard-of,orders,orders")).text

    assert text.count("About orders") == text.count("About billing") == 1
    assert text.index("About orders") < text.index("About billing")


@pytest.mark.parametrize("many", [1, 3])
async def test_it_is_never_longer_than_an_agent_reads(guest: httpx.AsyncClient, db: Db, cast: Cast, make: Make, many: int):
    names = ["orders", "billing", "stock"][:many]
    for name in names:
        project = (await bound_to(db, cast.alice, name)).project
        for number in range(120):
            await make.observation(project=project, title=f"{number} {name} " + "x" * 150)

    text = (await guest.get(f"{INJECT}?projects={','.join(names)}")).text

    assert 1_000 < len(text) <= 9_500
    assert all(f" {name} " in text for name in names)


@try_rows("query", ["", "?projects=", "?project=", "?projects=,%20,", "?platformSource=claude"])
async def test_the_project_must_be_said(guest: httpx.AsyncClient, query: str):
    response = await guest.get(INJECT + query)

    assert response.status_code == 400
    assert response.json()["error"] == "ValidationError"


async def test_asking_about_a_project_makes_none(guest: httpx.AsyncClient, db: Db):
    before = await rows(db, "SELECT count(*) FROM projects")
    response = await guest.get(f"{INJECT}?project=unheard-of")

    assert response.status_code == 200
    assert "nothing" in response.text
    assert await rows(db, "SELECT count(*) FROM projects") == before


async def test_a_key_for_one_project_is_told_of_that_one_only(
    client: httpx.AsyncClient, guest: httpx.AsyncClient, db: Db, cast: Cast, make: Make
):
    bound = await bound_to(db, cast.alice, "ledger", scopes=["observations:read"])
    await make.observation(project=cast.alice.project, title="About orders")
    await make.observation(project=bound.project, title="About the ledger")

    response = await client.get(f"{INJECT}?projects=orders,ledger", headers=bound.headers)

    assert "About the ledger" in response.text
    assert "About orders" not in response.text


async def test_a_stranger_is_told_nothing(client: httpx.AsyncClient, cast: Cast, make: Make):
    project = cast.alice.project
    await make.observation(project=project, title="About orders")

    own = await client.get(f"{INJECT}?projects={project.id}", headers=cast.alice.headers)
    response = await client.get(f"{INJECT}?projects={project.id}", headers=cast.charlie.headers)

    assert "About orders" in own.text
    assert response.status_code < 500
    assert "About orders" not in response.text


@pytest.mark.parametrize(
    "body",
    [
        {"q": "too short", "project": "orders"},
        {"project": "orders"},
        {"q": "Why are orders retried three times?"},
        {"q": "Why are orders retried three times?", "project": "unheard-of"},
        {"q": "Wie backe ich einen Apfelkuchen mit Zimt?", "project": "orders", "limit": 5, "platformSource": "claude"},
    ],
    ids=["short", "no question", "no project", "another project", "unrelated"],
)
async def test_where_nothing_belongs_to_a_prompt_nothing_is_said(
    guest: httpx.AsyncClient, cast: Cast, make: Make, body: dict[str, object]
):
    await make.observation(project=cast.alice.project, title="Orders are retried three times")

    response = await guest.post("/api/context/semantic", json=body)

    assert response.status_code == 200
    assert response.json() == {"context": "", "count": 0}


@pytest.mark.parametrize("limit", [0, 21, -1])
async def test_more_than_twenty_are_not_asked_for(guest: httpx.AsyncClient, limit: int):
    response = await guest.post("/api/context/semantic", json={"q": "x" * 20, "project": "orders", "limit": limit})

    assert response.status_code == 400
