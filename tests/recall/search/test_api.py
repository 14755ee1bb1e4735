"""POST /v1/search and /v1/context: what they show, and what they leave behind."""

from __future__ import annotations

from typing import Any

import httpx

from cmserver.base.db import Db
from cmserver.base.ids import epoch_ms
from cmserver.observations.plain import FIRST_LINE, LAST_LINE
from tests.conftest import Cast, bound_to
from tests.doors.claude_mem.worker import prompt, session
from tests.make import Make
from tests.recall.search.tools import NOON, post, post_search, search_numbers


async def test_one_word_of_a_whole_question_is_enough(client: httpx.AsyncClient, cast: Cast, make: Make):
    await make.observation(project=cast.alice.project, title="Added retry to the orders client")
    await make.observation(project=cast.alice.project, title="Renamed a table")

    assert await search_numbers(client, cast.alice, "Why do we retry requests when the upstream says 503?") == [1]


async def test_more_matching_words_and_rarer_ones_come_first(client: httpx.AsyncClient, cast: Cast, make: Make):
    for title in ("orders page", "orders list", "orders retry", "orders retry backoff", "invoices"):
        await make.observation(project=cast.alice.project, title=title)

    assert (await search_numbers(client, cast.alice, "orders retry backoff"))[:2] == [4, 3]


async def test_titles_narratives_facts_concepts_files_and_plain_content_are_all_searched(
    client: httpx.AsyncClient, cast: Cast, make: Make
):
    project = cast.alice.project
    await make.observation(project=project, title="wombat one")
    await make.observation(project=project, title="two", subtitle="wombat")
    await make.observation(project=project, title="three", narrative="wombat")
    await make.observation(project=project, title="four", facts=["a wombat"])
    await make.observation(project=project, title="five", concepts=["wombat"])
    await make.observation(project=project, title="six", files_read=["wombat"])
    await make.observation(project=project, title="seven", files_modified=["zoo/wombat.py"])
    await make.observation(project=project, kind="manual", title=None, content="remember the wombats")
    await make.observation(project=project, kind="summary", title="nine", summary={"request": "x"}, content="it was about a wombat")
    await make.observation(project=project)

    assert sorted(await search_numbers(client, cast.alice, "wombats")) == [1, 2, 3, 4, 5, 6, 7, 8, 9]


async def test_several_languages_are_searched_at_once(client: httpx.AsyncClient, cast: Cast, make: Make, db: Db):
    other = await bound_to(db, cast.alice, "handbuch")
    async with db.system() as conn:
        await conn.execute("UPDATE projects SET search_language = 'german' WHERE id = %s", [other.project.id])
    english = await make.observation(project=cast.alice.project, title="The orders were repeated")
    german = await make.observation(project=other.project, title="Alle Bestellungen")

    both = [cast.alice.project.canonical_id, "handbuch"]
    assert await search_numbers(client, cast.alice, "ordering", projects=both) == [english.number]
    assert await search_numbers(client, cast.alice, "Bestellung", projects=both) == [german.number]


async def test_an_index_is_a_line_of_each_and_says_what_the_whole_costs(client: httpx.AsyncClient, cast: Cast, make: Make):
    session_id = await session(client, cast.alice, "s-1")
    await make.observation(
        project=cast.alice.project,
        title="The wombat is fed",
        type="bugfix",
        narrative="At nine.",
        read_tokens=77,
        server_session_id=session_id,
        created_at=NOON,
    )
    await prompt(client, cast.alice, session_id, "feed the wombat\nnow " + "x" * 500)

    answer = await post_search(client, cast.alice, "wombat fed", format="index", kinds=["observation", "prompt"])

    (line,) = answer["observations"]
    assert 0 < line.pop("score") <= 1
    assert line == {
        "number": 1,
        "type": "bugfix",
        "title": "The wombat is fed",
        "projectId": str(cast.alice.project.id),
        "serverSessionId": str(session_id),
        "createdAtEpoch": epoch_ms(NOON),
        "readTokens": 77,
        "matchType": "lexical",
        "alike": [],
        "later": [],
        "changed": None,
    }
    (prompt_line,) = answer["prompts"]
    assert prompt_line["text"].startswith("feed the wombat now")
    assert len(prompt_line["text"]) <= 160
    assert (answer["total"], answer["totalIsEstimate"], answer["byMeaning"], answer["nextCursor"]) == (2, False, False, None)


async def test_tokens_are_those_of_the_text_of_the_answer(client: httpx.AsyncClient, cast: Cast, make: Make):
    for n in range(5):
        await make.observation(project=cast.alice.project, title=f"The wombat t{n}x is fed", narrative="It eats hay. " * 20)

    for form in ("index", "full"):
        answer = await post_search(client, cast.alice, "wombat", format=form)
        text = await client.post(
            "/v1/search",
            json={"query": "wombat", "minScore": 0, "format": form, "projectId": cast.alice.project.canonical_id},
            headers={**cast.alice.headers, "Accept": "text/plain"},
        )
        assert text.headers["content-type"].startswith("text/plain")
        inside = text.text.splitlines(keepends=True)[1:-1]
        assert answer["tokens"] == -(-len("".join(inside)) // 4), form
        assert all(f"t{n}x" in text.text for n in range(5))


async def test_a_line_ends_with_its_score_and_of_several_projects_with_the_name_of_its_own(
    client: httpx.AsyncClient, cast: Cast, make: Make
):
    await make.observation(project=cast.alice.project, title="The wombat is fed")
    score = (await post_search(client, cast.alice, "wombat"))["observations"][0]["score"]
    as_text = {**cast.alice.headers, "Accept": "text/plain"}

    everywhere = await client.post("/v1/search", json={"query": "wombat"}, headers=as_text)
    here = await client.post("/v1/search", json={"query": "wombat", "project": cast.alice.project.canonical_id}, headers=as_text)

    assert everywhere.text.splitlines()[1].endswith(f" {score:.2f} {cast.alice.project.canonical_id}")
    assert here.text.splitlines()[1].endswith(f" {score:.2f}")


async def test_a_prompt_is_given_whole_where_whole_texts_are_asked_for(client: httpx.AsyncClient, cast: Cast):
    text = "wombat " + "and so on " * 300
    await prompt(client, cast.alice, await session(client, cast.alice, "s-1"), text)

    (answer,) = (await post_search(client, cast.alice, "wombat", kinds=["prompt"], format="full"))["prompts"]

    assert answer["text"].split() == text.split()


async def test_a_prompt_is_measured_by_the_other_prompts_and_not_by_the_observations(
    client: httpx.AsyncClient, cast: Cast, make: Make
):
    in_session = await session(client, cast.alice, "s-1")
    for text in ("feed the wombat", "feed the quokka and the numbat", "mend the fence"):
        await prompt(client, cast.alice, in_session, text)

    alone = (await post_search(client, cast.alice, "wombat quokka", kinds=["prompt"]))["prompts"]
    for n in range(30):
        await make.observation(project=cast.alice.project, title=f"The keeper was here {n}")
    beside = (await post_search(client, cast.alice, "wombat quokka", kinds=["prompt"]))["prompts"]

    assert len(alone) == 2
    assert [hit["score"] for hit in beside] == [hit["score"] for hit in alone]


async def test_nothing_is_said_in_words_too(client: httpx.AsyncClient, cast: Cast):
    body = {"query": "wombat", "projectId": cast.alice.project.canonical_id}

    answer = await client.post("/v1/search", json=body, headers={**cast.alice.headers, "Accept": "text/plain"})

    assert (answer.status_code, answer.text) == (200, "Nothing fits.\n")


async def test_keys_of_other_clients_are_ignored(client: httpx.AsyncClient, cast: Cast, make: Make):
    await make.observation(project=cast.alice.project)

    assert await search_numbers(client, cast.alice, "retry", platformSource="claude-code", whatever=1) == [1]


async def test_a_context_for_a_question_is_a_block_with_blank_lines_between(client: httpx.AsyncClient, cast: Cast, make: Make):
    await make.observation(project=cast.alice.project, title="retry", narrative="Three times.")
    await make.observation(project=cast.alice.project, title="retry backoff")
    await make.observation(project=cast.alice.project, title="unrelated")

    answer = (await post(client, cast.alice, "/v1/context", query="retry backoff")).json()

    assert [observation["number"] for observation in answer["observations"]] == [2, 1]
    lines = answer["context"].splitlines()
    assert [lines[0], lines[-1]] == [FIRST_LINE, LAST_LINE]
    assert [line for line in lines[1:-1] if not line.startswith("#")] == ["retry backoff", "", "Three times."]


async def test_a_context_is_of_one_project(client: httpx.AsyncClient, cast: Cast):
    response = await client.post("/v1/context", json={"query": "retry"}, headers=cast.alice.headers)

    assert response.status_code == 400
    assert response.json()["issues"] == [{"path": "$.projectId", "message": "required"}]


async def test_searching_leaves_the_numbers_in_the_audit_log_and_never_the_words(
    client: httpx.AsyncClient, cast: Cast, make: Make, db: Db
):
    await make.observation(project=cast.alice.project, title="retry")
    in_session = await session(client, cast.alice, "s-1")
    await prompt(client, cast.alice, in_session, "please retry")
    await post_search(client, cast.alice, "retry confidential", kinds=["observation", "prompt"])
    await post_search(client, cast.alice, "retry confidential", format="index")
    await post(client, cast.alice, "/v1/context", query="retry")
    await post_search(client, cast.alice, "confidential")

    async with db.system() as conn:
        cursor = await conn.execute(
            "SELECT action, details FROM audit_log WHERE action IN ('observations.served', 'prompts.served') ORDER BY id"
        )
        noted: list[tuple[str, dict[str, Any]]] = await cursor.fetchall()  # pyright: ignore[reportAssignmentType]
    assert [details for action, details in noted if action == "observations.served"] == [
        {"via": "search.full", "numbers": [1]},
        {"via": "search", "numbers": [1]},
        {"via": "context.search", "numbers": [1]},
    ]
    assert [details["count"] for action, details in noted if action == "prompts.served"] == [1, 1]
    assert "confidential" not in str(noted)
