"""A project has a language, by which its texts and what is asked of them are taken to their stems."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from cmserver.base.db import Db
from cmserver.recall.file_context import find_file_matches
from cmserver.recall.search import lexical
from cmserver.sessions import repository as sessions
from tests.conftest import Cast, Person
from tests.doors.claude_mem.worker import prompt, session
from tests.make import Make

ORDERS = "/v1/projects/github.com%2Facme%2Forders"


async def changed(client: httpx.AsyncClient, person: Person, language: str) -> dict[str, Any]:
    response = await client.patch(ORDERS, json={"searchLanguage": language}, headers=person.headers)
    assert response.status_code == 200, response.text
    return response.json()["project"]


async def search_titles(client: httpx.AsyncClient, person: Person, query: str) -> list[str]:
    body = {"query": query, "projectId": str(person.project.id)}
    response = await client.post("/v1/search", json=body, headers=person.headers)
    assert response.status_code == 200, response.text
    return [observation["title"] for observation in response.json()["observations"]]


async def languages(db: Db) -> list[str]:
    """Of all texts, by their project's name: observations first, then prompts."""
    async with db.system() as conn:
        observed = await conn.execute(
            "SELECT p.name || ' ' || o.search_language FROM observations o JOIN projects p ON p.id = o.project_id ORDER BY 1"
        )
        prompts = await conn.execute(
            "SELECT p.name || ' ' || s.search_language FROM turns s JOIN projects p ON p.id = s.project_id ORDER BY 1"
        )
        return [str(row[0]) for row in [*await observed.fetchall(), *await prompts.fetchall()]]


@pytest.mark.parametrize(("language", "titles"), [("german", ["Häuser gestrichen"]), ("english", []), ("simple", [])])
async def test_words_are_found_by_the_stems_of_the_project_s_language(
    client: httpx.AsyncClient, cast: Cast, make: Make, language: str, titles: list[str]
):
    await changed(client, cast.alice, language)
    await make.observation(project=cast.alice.project, title="Häuser gestrichen")

    assert await search_titles(client, cast.alice, "Haus") == titles
    assert await search_titles(client, cast.alice, "Häuser") == ["Häuser gestrichen"]


async def test_simple_finds_words_as_they_are_written(client: httpx.AsyncClient, cast: Cast, make: Make):
    await changed(client, cast.alice, "simple")
    await make.observation(project=cast.alice.project, title="The retries were removed")

    assert await search_titles(client, cast.alice, "retry") == []
    assert await search_titles(client, cast.alice, "retries") == ["The retries were removed"]


async def test_what_is_there_is_found_by_the_new_language_at_once_and_is_not_changed_otherwise(
    client: httpx.AsyncClient, db: Db, cast: Cast, make: Make
):
    before = await make.observation(project=cast.alice.project, title="Häuser gestrichen")
    await prompt(client, cast.alice, await session(client, cast.alice, "s-1"), "Streich die Häuser")
    await make.observation(project=cast.charlie.project, title="Häuser")
    assert await search_titles(client, cast.alice, "Haus") == []

    project = await changed(client, cast.alice, "german")

    assert project["searchLanguage"] == "german"
    assert await search_titles(client, cast.alice, "Haus") == ["Häuser gestrichen"]
    assert await languages(db) == ["orders english", "orders german", "orders german"]
    observation = (await client.get("/v1/observations/1", headers=cast.alice.headers)).json()["observation"]
    assert observation["id"] == str(before.id)
    assert observation["updatedAtEpoch"] == observation["createdAtEpoch"]


async def test_what_comes_later_is_stored_in_the_project_s_language(client: httpx.AsyncClient, db: Db, cast: Cast, make: Make):
    await changed(client, cast.alice, "german")
    await client.post("/v1/projects", json={"canonicalId": "other", "searchLanguage": "french"}, headers=cast.alice.headers)
    await make.observation(project=cast.alice.project)
    await prompt(client, cast.alice, await session(client, cast.alice, "s-1"), "Streich die Häuser")
    await client.post("/v1/observations", json={"title": "Les maisons", "projectId": "other"}, headers=cast.alice.headers)

    assert await languages(db) == ["orders german", "other french", "orders german"]


async def test_a_text_that_is_stored_meanwhile_gets_the_new_language(client: httpx.AsyncClient, db: Db, cast: Cast, make: Make):
    async with db.tenant(cast.alice.team_id) as conn:
        begun = await sessions.by_id(conn, cast.alice.team_id, await session(client, cast.alice, "s-1"))
        assert begun is not None
        await conn.execute(
            "INSERT INTO observations (id, number, project_id, team_id, origin, title, content)"
            " VALUES (gen_random_uuid(), 90, %s, %s, 'model', 'Häuser', 'Häuser')",
            [cast.alice.project.id, cast.alice.team_id],
        )
        change = asyncio.create_task(changed(client, cast.alice, "german"))
        await waits_for_a_lock(db)

    await change

    assert await languages(db) == ["orders german"]


async def waits_for_a_lock(db: Db) -> None:
    async with asyncio.timeout(10):
        while True:
            async with db.system() as conn:
                waiting = await conn.execute(
                    "SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid)"
                    " WHERE datname = current_database() AND NOT granted"
                )
                if await waiting.fetchone() != (0,):
                    return


async def test_a_language_that_search_does_not_know_is_refused_with_those_it_does(client: httpx.AsyncClient, cast: Cast):
    answered = await client.patch(ORDERS, json={"searchLanguage": "klingon"}, headers=cast.alice.headers)

    assert answered.status_code == 400
    assert "simple, arabic" in answered.json()["message"]
    assert answered.json()["issues"][0]["path"] == "$.searchLanguage"


async def test_every_language_that_may_be_chosen_is_one_that_postgresql_has(client: httpx.AsyncClient, cast: Cast, db: Db):
    refused = (await client.patch(ORDERS, json={"searchLanguage": "?"}, headers=cast.alice.headers)).json()["message"]
    offered = refused.partition("(")[2].partition(")")[0].split(", ")
    async with db.system() as conn:
        configurations = await conn.execute("SELECT cfgname FROM pg_ts_config WHERE cfgnamespace = 'pg_catalog'::regnamespace")
        assert set(offered) <= {row[0] for row in await configurations.fetchall()}

    for language in offered:
        assert (await changed(client, cast.alice, language))["searchLanguage"] == language


async def test_a_file_is_known_by_its_name_in_whatever_language(client: httpx.AsyncClient, cast: Cast, make: Make, db: Db):
    """Stemmed as English, `Makefile` is another word than it is in a project that stems nothing."""
    await changed(client, cast.alice, "simple")
    made = await make.observation(project=cast.alice.project, title="The build", files_modified=["Makefile"])

    async with db.tenant(cast.alice.team_id) as conn:
        about = await find_file_matches(conn, cast.alice.project.id, None, "/home/alice/orders/Makefile")

    assert [match.mention.id for match in about] == [made.id]


async def test_a_query_is_taken_to_the_stems_of_its_project_s_language(client: httpx.AsyncClient, db: Db, cast: Cast):
    for language, lexemes in (("german", ["haus", "gestrich"]), ("simple", ["häuser", "gestrichen"])):
        await changed(client, cast.alice, language)
        assert await read_lexemes(db, cast.alice, "Häuser gestrichen") == lexemes


@pytest.mark.parametrize(
    ("query", "lexemes"),
    [
        ("wie oft werden die Daten gesichert", ["oft", "daten", "gesichert"]),
        ("pourquoi la livraison du matin est en retard", ["pourquoi", "livraison", "matin", "retard"]),
        ("why does the server die in the night", ["server", "die", "night"]),
        ("die Box", ["die", "box"]),
        ("os no man will die", ["os", "man", "die"]),
        ("C++", ["c"]),
    ],
)
async def test_the_stop_words_of_the_query_s_own_language_are_left_out(db: Db, cast: Cast, query: str, lexemes: list[str]):
    """The project's language is English."""
    assert await read_lexemes(db, cast.alice, query) == lexemes


async def read_lexemes(db: Db, person: Person, query: str) -> list[str]:
    async with db.tenant(person.team_id) as conn:
        return (await lexical.read_words(conn, person.team_id, [person.project.id], query, 10))[0]
