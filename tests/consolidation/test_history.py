"""What is changed by hand can be read and undone, and what is superseded or expired is shown nowhere."""

from __future__ import annotations

from typing import Any, LiteralString
from uuid import UUID

import pytest
from httpx import AsyncClient

from cmserver.base.db import Db
from tests.conftest import Cast, Person, bound_to
from tests.make import Make

Json = dict[str, Any]


async def write(client: AsyncClient, person: Person, **fields: object) -> Json:
    body = {"projectId": person.project.canonical_id, **fields}
    response = await client.post("/v1/observations", json=body, headers=person.headers)
    assert response.status_code == 201, response.text
    return response.json()["observation"]


async def act(client: AsyncClient, person: Person, path: str, status: int = 200, **body: object) -> Json:
    response = await client.post(f"/v1/observations/{path}", json=body, headers=person.headers)
    assert response.status_code == status, response.text
    return response.json()


async def correct(client: AsyncClient, person: Person, number: int, **fields: object) -> Json:
    response = await client.patch(f"/v1/observations/{number}", json=fields, headers=person.headers)
    assert response.status_code == 200, response.text
    return response.json()["observation"]


async def history(client: AsyncClient, person: Person, number: int) -> Json:
    response = await client.get(f"/v1/observations/{number}/history", headers=person.headers)
    assert response.status_code == 200, response.text
    return response.json()


async def ask(db: Db, statement: str, *params: object) -> Any:
    async with db.system() as conn:
        return await (await conn.execute(statement, params or [])).fetchall()  # pyright: ignore[reportArgumentType, reportCallIssue]


async def test_a_correction_of_every_text_makes_a_version_and_composes_the_content_again(client: AsyncClient, cast: Cast):
    await write(client, cast.alice, title="Retry", narrative="Three times.", facts=["It doubles"])

    first = await correct(client, cast.alice, 1, narrative="Five times.", facts=["It doubles", "At most 5 s"], importance=0.7)
    second = await correct(client, cast.alice, 1, title=None, subtitle="Of orders")

    assert (first["version"], second["version"], second["importance"]) == (2, 3, pytest.approx(0.7))
    assert second["content"] == "Of orders\n\nFive times.\n\n- It doubles\n\n- At most 5 s"
    told = await history(client, cast.alice, 1)
    assert [(one["version"], one["action"], one["before"]["title"], one["before"]["narrative"]) for one in told["versions"]] == [
        (3, "corrected", "Retry", "Five times."),
        (2, "corrected", "Retry", "Three times."),
    ]
    assert told["versions"][0]["performedBy"] == cast.alice.principal.actor_id


async def test_a_content_of_its_own_is_corrected_by_itself_and_its_narrative_follows(client: AsyncClient, cast: Cast):
    await write(client, cast.alice, title="Zoo", content="The zebra lives in staging.")

    changed = await correct(client, cast.alice, 1, content="The zebra lives in production.")

    assert (changed["content"], changed["narrative"]) == ("The zebra lives in production.",) * 2


async def test_undo_goes_back_change_by_change_and_then_has_nothing_left(client: AsyncClient, cast: Cast, db: Db):
    await write(client, cast.alice, title="A", narrative="first")
    await correct(client, cast.alice, 1, narrative="second", state="done")
    await correct(client, cast.alice, 1, title="B")

    once = (await act(client, cast.alice, "1/undo"))["observation"]
    twice = (await act(client, cast.alice, "1/undo"))["observation"]
    await act(client, cast.alice, "1/undo", status=409)

    assert (once["title"], once["narrative"], once["state"]) == ("A", "second", "done")
    assert (twice["title"], twice["narrative"], twice["state"], twice["closedAtEpoch"]) == ("A", "first", None, None)
    assert twice["version"] == 5
    told = await history(client, cast.alice, 1)
    assert [(one["before"], one["undoneAtEpoch"] is None) for one in told["versions"]] == [(None, False), (None, False)]
    assert await ask(db, "SELECT count(*) FROM observation_versions WHERE before::text LIKE '%%second%%'") == [(0,)]


async def test_a_merge_keeps_every_fact_and_supersedes_its_sources(client: AsyncClient, cast: Cast, db: Db):
    await write(
        client, cast.alice, title="Retry", narrative="Three times.", facts=["It doubles"], concepts=["retry"], importance=0.3
    )
    await write(
        client,
        cast.alice,
        title="Retries",
        narrative="Three times. Then it gives up.",
        facts=["It doubles", "Jitter"],
        importance=0.9,
    )

    merged = await act(client, cast.alice, "1/merge", sources=[2])

    target = merged["observation"]
    assert (merged["merged"], merged["skipped"], target["version"], target["importance"]) == ([2], [], 2, pytest.approx(0.9))
    assert sorted(target["facts"]) == ["It doubles", "Jitter", "Retry"]
    assert target["narrative"].count("Three times.") == 1
    assert "Then it gives up." in target["narrative"]
    (source,) = await ask(db, "SELECT id, superseded_by FROM observations WHERE number = 2")
    assert target["mergedFrom"] == [str(source[0])]
    assert str(source[1]) == target["id"]
    gone = await client.get("/v1/observations/2", headers=cast.alice.headers)
    assert (gone.status_code, gone.json()["error"], gone.json()["supersededBy"]) == (410, "Gone", 1)
    related = (await client.get("/v1/observations/1/related", headers=cast.alice.headers)).json()
    assert [(one["relationship"], one["fromNumber"], one["toNumber"], one["strength"]) for one in related["relations"]] == [
        ("SUPERSEDES", 1, 2, 1.0)
    ]
    assert related["observations"] == []


async def test_undoing_a_merge_brings_its_sources_back_and_never_suggests_them_again(client: AsyncClient, cast: Cast, db: Db):
    for text in ("one", "two", "three"):
        await write(client, cast.alice, title=text, narrative=f"It is {text}.")
    await act(client, cast.alice, "1/merge", sources=[2, "#3"])

    undone = await act(client, cast.alice, "1/undo")

    assert undone["restored"] == [2, 3]
    assert (undone["observation"]["narrative"], undone["observation"]["mergedFrom"]) == ("It is one.", [])
    for number in (2, 3):
        assert (await client.get(f"/v1/observations/{number}", headers=cast.alice.headers)).status_code == 200
    assert await ask(db, "SELECT status, count(*) FROM consolidation_suggestions GROUP BY status") == [("dismissed", 2)]
    assert await ask(db, "SELECT count(*) FROM observation_relationships") == [(0,)]


async def test_sources_that_cannot_be_merged_are_named_and_change_nothing(client: AsyncClient, cast: Cast, make: Make, db: Db):
    for text in ("one", "two", "three"):
        await write(client, cast.alice, title=text)
    await act(client, cast.alice, "2/merge", sources=[3])
    await write(client, cast.alice, title="four", ttlSeconds=5)
    await ask_nothing(db, "UPDATE observations SET expires_at = now() WHERE number = 4")
    other = await bound_to(db, cast.alice, "elsewhere")
    away = await make.observation(project=other.project)
    summary = await make.observation(project=cast.alice.project, kind="summary")

    names = [1, 3, 4, away.number, 999, summary.number, "no-such"]
    answer = await act(client, cast.alice, "1/merge", sources=names)

    assert answer["merged"] == []
    assert [(one["name"], one["reason"]) for one in answer["skipped"]] == [
        (1, "itself"),
        (3, "superseded"),
        (4, "expired"),
        (away.number, "other_project"),
        (999, "missing"),
        (summary.number, "summary"),
        ("no-such", "missing"),
    ]
    assert answer["observation"]["version"] == 1


async def ask_nothing(db: Db, statement: LiteralString) -> None:
    async with db.system() as conn:
        await conn.execute(statement)


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"sources": []}, "$.sources"),
        ({}, "$.sources"),
        ({"sources": [2], "strategy": "best"}, "$.strategy"),
        ({"sources": list(range(2, 53))}, "$.sources"),
        ({"sources": [0]}, "$.sources[0]"),
    ],
)
async def test_a_merge_that_makes_no_sense_is_refused_with_the_field(client: AsyncClient, cast: Cast, body: Json, path: str):
    await write(client, cast.alice, title="one")

    refused = await act(client, cast.alice, "1/merge", status=400, **body)

    assert refused["issues"][0]["path"] == path


async def test_into_what_is_gone_or_is_not_there_or_is_a_summary_nothing_is_merged(client: AsyncClient, cast: Cast, make: Make):
    for text in ("one", "two"):
        await write(client, cast.alice, title=text)
    await act(client, cast.alice, "1/merge", sources=[2])
    summary = await make.observation(project=cast.alice.project, kind="summary")

    assert (await act(client, cast.alice, "2/merge", status=410, sources=[1]))["supersededBy"] == 1
    await act(client, cast.alice, "99/merge", status=404, sources=[1])
    await act(client, cast.alice, f"{summary.number}/merge", status=400, sources=[1])


async def test_a_text_that_was_merged_goes_with_the_one_that_has_it_now(client: AsyncClient, cast: Cast, db: Db):
    await write(client, cast.alice, title="one", narrative="It is xylophone.")
    await write(client, cast.alice, title="two", narrative="It is marimba.")
    await act(client, cast.alice, "1/merge", sources=[2])

    refused = await client.delete("/v1/observations/2", headers=cast.alice.headers)
    deleted = await client.delete("/v1/observations/1", headers=cast.alice.headers)

    assert (refused.status_code, deleted.status_code) == (410, 200)
    for table in ("observations", "observation_versions", "observation_relationships", "consolidation_suggestions"):
        assert await ask(db, f"SELECT count(*) FROM {table}") == [(0,)], table


async def test_what_was_undone_and_then_deleted_is_nowhere(client: AsyncClient, cast: Cast, db: Db):
    await write(client, cast.alice, title="one", narrative="It is xylophone.")
    await write(client, cast.alice, title="two", narrative="It is marimba.")
    await act(client, cast.alice, "1/merge", sources=[2])
    await correct(client, cast.alice, 1, title="both")
    await act(client, cast.alice, "1/undo")
    await act(client, cast.alice, "1/undo")

    assert (await client.delete("/v1/observations/2", headers=cast.alice.headers)).status_code == 200

    for table in ("observations", "observation_versions", "audit_log"):
        assert await ask(db, f"SELECT count(*) FROM {table} t WHERE t::text LIKE '%%marimba%%'") == [(0,)], table


async def test_a_merge_whose_source_was_purged_is_not_undone(client: AsyncClient, cast: Cast, db: Db):
    await write(client, cast.alice, title="one")
    await write(client, cast.alice, title="two")
    await act(client, cast.alice, "1/merge", sources=[2])
    await ask_nothing(db, "DELETE FROM observations WHERE number = 2")

    await act(client, cast.alice, "1/undo", status=409)

    assert (await history(client, cast.alice, 1))["versions"][0]["undoneAtEpoch"] is None


async def test_undoing_the_end_of_a_life_keeps_it_for_good(client: AsyncClient, cast: Cast, db: Db):
    await write(client, cast.alice, title="one", ttlSeconds=60)
    await ask_nothing(db, "UPDATE observations SET expires_at = now()")
    assert (await client.get("/v1/observations/1", headers=cast.alice.headers)).status_code == 410

    undone = await act(client, cast.alice, "1/undo")

    assert (undone["restored"], undone["observation"]["ttlSeconds"], undone["observation"]["expiresAtEpoch"]) == ([1], None, None)
    assert (await history(client, cast.alice, 1))["versions"][0]["action"] == "promoted"
    again = (await act(client, cast.alice, "1/undo"))["observation"]
    assert again["expiresAtEpoch"] is None, "what has ended is not hidden by undoing"


async def test_nobody_merges_undoes_or_reads_the_history_of_what_another_project_shares(
    client: AsyncClient, cast: Cast, db: Db, make: Make
):
    bound = await bound_to(db, cast.alice, "elsewhere")
    shared = await make.observation(project=cast.alice.project, scope="team")
    own = await make.observation(project=bound.project)

    await act(client, bound, f"{shared.number}/merge", status=403, sources=[own.number])
    await act(client, bound, f"{shared.number}/undo", status=403)
    read = await client.get(f"/v1/observations/{shared.number}/history", headers=bound.headers)
    hidden = await act(client, bound, f"{own.number}/merge", sources=[shared.number])

    assert read.status_code == 404
    assert hidden["skipped"] == [{"name": shared.number, "reason": "missing"}]


async def test_a_batch_says_what_became_of_those_that_are_gone(client: AsyncClient, cast: Cast):
    for text in ("one", "two"):
        await write(client, cast.alice, title=text)
    await act(client, cast.alice, "1/merge", sources=[2])

    answer = (await client.post("/v1/observations/batch", json={"ids": [1, 2, 77]}, headers=cast.alice.headers)).json()

    assert ([one["number"] for one in answer["observations"]], answer["missing"]) == ([1], [2, 77])
    assert [(one["number"], one["supersededBy"], one["expiredAtEpoch"]) for one in answer["gone"]] == [(2, 1, None)]


async def test_relations_are_followed_both_ways_to_a_depth_without_circles(client: AsyncClient, cast: Cast):
    numbers = [(await write(client, cast.alice, title=f"note {place}"))["number"] for place in range(5)]
    for left, right, kind in [(1, 2, "CAUSES"), (3, 2, "FIXES"), (3, 4, "FIXES"), (4, 1, "CAUSES"), (4, 5, "CAUSES")]:
        made = await client.post(
            "/v1/relations", json={"from": left, "to": right, "relationship": kind, "strength": 0.8}, headers=cast.alice.headers
        )
        assert made.status_code == 201, made.text

    async def related(**query: object) -> tuple[set[int], int]:
        answer = await client.get("/v1/observations/1/related", params=query, headers=cast.alice.headers)  # pyright: ignore[reportArgumentType]
        assert answer.status_code == 200, answer.text
        return {one["number"] for one in answer.json()["observations"]}, len(answer.json()["relations"])

    assert numbers == [1, 2, 3, 4, 5]
    assert await related() == ({2, 4}, 2)
    assert await related(depth=2) == ({2, 3, 4, 5}, 5)
    assert await related(depth=3, type="CAUSES") == ({2, 4, 5}, 3)
    assert await related(type="FIXES") == (set(), 0)


async def test_a_relation_again_keeps_its_id_and_can_be_deleted(client: AsyncClient, cast: Cast):
    for text in ("one", "two"):
        await write(client, cast.alice, title=text)
    body: Json = {"from": 1, "to": 2, "relationship": "CAUSES", "context": "seen in staging"}

    first = (await client.post("/v1/relations", json=body, headers=cast.alice.headers)).json()["relation"]
    again = (await client.post("/v1/relations", json=body | {"strength": 1}, headers=cast.alice.headers)).json()["relation"]
    deleted = await client.delete(f"/v1/relations/{first['id']}", headers=cast.alice.headers)
    missing = await client.delete(f"/v1/relations/{first['id']}", headers=cast.alice.headers)

    assert (first["strength"], again["strength"], again["id"]) == (0.5, 1.0, first["id"])
    assert (deleted.status_code, missing.status_code) == (200, 404)


@pytest.mark.parametrize(
    ("fields", "status", "path"),
    [
        ({"to": 1}, 400, "$.to"),
        ({"to": 99}, 404, "$.to"),
        ({"relationship": "SUPERSEDES"}, 400, "$.relationship"),
        ({"relationship": "is like"}, 400, "$.relationship"),
        ({"strength": 1.5}, 400, "$.strength"),
    ],
)
async def test_a_relation_that_makes_no_sense_is_refused(client: AsyncClient, cast: Cast, fields: Json, status: int, path: str):
    for text in ("one", "two"):
        await write(client, cast.alice, title=text)

    body = {"from": 1, "to": 2, "relationship": "CAUSES"} | fields
    refused = await client.post("/v1/relations", json=body, headers=cast.alice.headers)

    assert (refused.status_code, refused.json()["issues"][0]["path"]) == (status, path)


async def test_accepting_a_suggestion_merges_the_newer_into_the_older_and_again_is_no_error(
    client: AsyncClient, cast: Cast, make: Make
):
    one, two = [await write(client, cast.alice, title=text) for text in ("one", "two")]
    suggestion = str(await make.suggestion(project=cast.alice.project, left=two["id"], right=one["id"]))
    listed = (await client.get("/v1/suggestions", headers=cast.alice.headers)).json()["suggestions"]

    async def resolve(status: str) -> Any:
        return await client.patch(f"/v1/suggestions/{suggestion}", json={"status": status}, headers=cast.alice.headers)

    accepted, again, dismissed = await resolve("accepted"), await resolve("accepted"), await resolve("dismissed")

    assert [(one["id"], one["status"]) for one in listed] == [(suggestion, "open")]
    assert (accepted.status_code, again.status_code, dismissed.status_code) == (200, 200, 409)
    assert accepted.json()["observation"]["number"] == 1
    assert again.json()["observation"] is None
    assert (await client.get("/v1/suggestions", headers=cast.alice.headers)).json()["suggestions"] == []
    status = {"status": "accepted"}
    found = (await client.get("/v1/suggestions", params=status, headers=cast.alice.headers)).json()["suggestions"]
    assert [one["resolvedBy"] for one in found] == [cast.alice.principal.actor_id]


async def test_either_of_a_pair_may_be_the_one_that_stays(client: AsyncClient, cast: Cast, make: Make):
    one, two = [await write(client, cast.alice, title=text) for text in ("one", "two")]
    suggestion = await make.suggestion(project=cast.alice.project, left=one["id"], right=two["id"])

    async def accept(into: int) -> Any:
        body = {"status": "accepted", "into": into}
        return await client.patch(f"/v1/suggestions/{suggestion}", json=body, headers=cast.alice.headers)

    wrong, accepted = await accept(3), await accept(2)

    assert (wrong.status_code, wrong.json()["issues"][0]["path"]) == (400, "$.into")
    assert accepted.json()["observation"]["number"] == 2
    assert (await client.get("/v1/observations/1", headers=cast.alice.headers)).status_code == 410


async def test_what_was_dismissed_can_be_suggested_again_and_a_merged_pair_cannot(client: AsyncClient, cast: Cast, make: Make):
    one, two, three = [await write(client, cast.alice, title=text) for text in ("one", "two", "three")]
    dismissed = await make.suggestion(project=cast.alice.project, left=one["id"], right=two["id"])
    merged = await make.suggestion(project=cast.alice.project, left=one["id"], right=three["id"])

    async def resolve(suggestion: UUID, status: str) -> Any:
        return await client.patch(f"/v1/suggestions/{suggestion}", json={"status": status}, headers=cast.alice.headers)

    await resolve(dismissed, "dismissed")
    reopened, again = await resolve(dismissed, "open"), await resolve(dismissed, "open")
    await resolve(merged, "accepted")
    refused = await resolve(merged, "open")

    assert [answer.json()["suggestion"]["status"] for answer in (reopened, again)] == ["open", "open"]
    assert reopened.json()["suggestion"]["resolvedBy"] is None
    assert refused.status_code == 409


async def test_contradictions_are_listed_apart(client: AsyncClient, cast: Cast, db: Db, make: Make):
    one, two, three = [await write(client, cast.alice, title=text) for text in ("one", "two", "three")]
    alike = await make.suggestion(project=cast.alice.project, left=one["id"], right=two["id"])
    contrary = await make.suggestion(project=cast.alice.project, left=one["id"], right=three["id"])
    async with db.system() as conn:
        await conn.execute("UPDATE consolidation_suggestions SET reason = 'contradicts' WHERE id = %s", [contrary])

    async def listed(**params: str) -> list[str]:
        answer = await client.get("/v1/suggestions", params=params, headers=cast.alice.headers)
        return [suggestion["id"] for suggestion in answer.json()["suggestions"]]

    assert await listed(contradictions="true") == [str(contrary)]
    assert await listed(contradictions="false") == [str(alike)]
    assert sorted(await listed()) == sorted([str(alike), str(contrary)])


async def test_what_was_dismissed_stays_so_and_a_pair_that_is_gone_waits_for_nobody(
    client: AsyncClient, cast: Cast, db: Db, make: Make
):
    one, two, three = [await write(client, cast.alice, title=text) for text in ("one", "two", "three")]
    kept = await make.suggestion(project=cast.alice.project, left=one["id"], right=two["id"])
    lost = await make.suggestion(project=cast.alice.project, left=two["id"], right=three["id"])

    await client.patch(f"/v1/suggestions/{kept}", json={"status": "dismissed"}, headers=cast.alice.headers)
    await ask_nothing(db, "UPDATE observations SET ttl_seconds = 1, expires_at = now() WHERE number = 3")
    vain = await client.patch(f"/v1/suggestions/{lost}", json={"status": "accepted"}, headers=cast.alice.headers)

    assert (await client.get("/v1/suggestions", headers=cast.alice.headers)).json()["suggestions"] == []
    assert vain.status_code in {409, 410}


async def test_a_bound_key_deletes_no_relation_of_what_another_project_shares(client: AsyncClient, cast: Cast, db: Db, make: Make):
    bound = await bound_to(db, cast.alice, "elsewhere")
    one, two = [await make.observation(project=cast.alice.project, scope="team") for _ in range(2)]
    body = {"from": one.number, "to": two.number, "relationship": "CAUSES"}
    made = (await client.post("/v1/relations", json=body, headers=cast.alice.headers)).json()["relation"]["id"]

    refused = await client.delete(f"/v1/relations/{made}", headers=bound.headers)

    assert refused.status_code == 403


async def test_relations_to_what_a_key_may_not_see_are_not_shown_at_any_depth(client: AsyncClient, cast: Cast, db: Db, make: Make):
    bound = await bound_to(db, cast.alice, "elsewhere")
    start, near = [await make.observation(project=bound.project) for _ in range(2)]
    hidden = await make.observation(project=cast.alice.project)
    for left, right in ((start, near), (start, hidden), (near, hidden)):
        body = {"from": left.number, "to": right.number, "relationship": "CAUSES"}
        assert (await client.post("/v1/relations", json=body, headers=cast.alice.headers)).status_code == 201

    path = f"/v1/observations/{start.number}/related"
    answer = (await client.get(path, params={"depth": 3}, headers=bound.headers)).json()

    assert [(row["fromNumber"], row["toNumber"]) for row in answer["relations"]] == [(start.number, near.number)]
    assert (await client.get(path, params={"type": "\0"}, headers=bound.headers)).status_code == 400


async def test_a_bound_key_takes_nothing_into_the_team_by_a_merge_or_an_undo(client: AsyncClient, cast: Cast, db: Db, make: Make):
    bound = await bound_to(db, cast.alice, "elsewhere")
    private, shared = await make.observation(project=bound.project), await make.observation(project=bound.project, scope="team")
    await correct(client, cast.alice, shared.number, scope="project")

    undone = await client.post(f"/v1/observations/{shared.number}/undo", headers=bound.headers)
    await correct(client, cast.alice, shared.number, scope="team")
    body = {"sources": [private.number]}
    merged = await client.post(f"/v1/observations/{shared.number}/merge", json=body, headers=bound.headers)

    assert (undone.status_code, merged.status_code) == (403, 403)


async def test_undoing_a_correction_does_not_shorten_a_life(client: AsyncClient, cast: Cast, db: Db):
    await write(client, cast.alice, title="one", ttlSeconds=60)
    await correct(client, cast.alice, 1, title="two")
    await ask_nothing(db, "UPDATE observations SET expires_at = now() + interval '1 day'")

    undone = (await act(client, cast.alice, "1/undo"))["observation"]

    assert undone["title"] == "one"
    assert undone["expiresAtEpoch"] - undone["updatedAtEpoch"] > 86_000_000
