"""The page Review: pairs side by side, decided either way, and every decision undone."""

from __future__ import annotations

from uuid import UUID

import httpx
import pytest

from cmserver.base.db import Db
from cmserver.base.http.frame import AsgiFrame
from tests.conftest import Cast
from tests.doors.web.clicks import parse
from tests.doors.web.visitor import Visitor, visit_as
from tests.make import Make


@pytest.fixture
async def alice(app: AsgiFrame, db: Db, cast: Cast) -> Visitor:
    return await visit_as(app, db, cast.alice.team_id, "member")


@pytest.fixture
async def pair(cast: Cast, make: Make) -> UUID:
    """A suggestion to merge 1 and 2."""
    one = await make.observation(project=cast.alice.project, title="The orders client retries three times")
    two = await make.observation(project=cast.alice.project, title="The orders client retries five times")
    return await make.suggestion(project=cast.alice.project, left=one.id, right=two.id)


def forms(page: httpx.Response) -> list[str]:
    (main,) = parse(page.text).find_all("main")
    return [form.attributes["action"] for form in main.find_all("form") if form.attributes.get("method") == "post"]


async def test_an_empty_inbox_says_how_to_merge_by_hand(alice: Visitor):
    page = await alice.get("/ui/review")

    assert page.status_code == 200
    assert "cmserver merge 12 15" in page.text


async def test_a_pair_stands_side_by_side_with_its_difference_marked(alice: Visitor, pair: UUID):
    page = await alice.get("/ui/review")

    assert "<del>three</del>" in page.text
    assert "<ins>five</ins>" in page.text
    assert "90 % alike by words" in page.text


@pytest.mark.parametrize(("into", "gone"), [(1, 2), (2, 1)])
async def test_a_pair_is_merged_either_way_and_undone(alice: Visitor, pair: UUID, into: int, gone: int):
    merged = await alice.post(f"/ui/review/{pair}/merge", into=into)
    there, away = await alice.get(f"/ui/observations/{into}"), await alice.get(f"/ui/observations/{gone}")
    undone = await alice.post(f"/ui/review/{pair}/undo")

    assert f"#{gone} is merged into #{into}." in merged.text
    assert f"/ui/review/{pair}/undo" in merged.text
    assert (there.status_code, away.status_code) == (200, 410)
    assert "<del>three</del>" in undone.text
    assert (await alice.get(f"/ui/observations/{gone}")).status_code == 200


async def test_keeping_both_relates_them_and_is_undone(alice: Visitor, pair: UUID):
    kept = await alice.post(f"/ui/review/{pair}/keep")
    related = await alice.get("/ui/observations/2")
    undone = await alice.post(f"/ui/review/{pair}/undo")

    assert "are related to each other" in kept.text
    assert "is related to" in related.text
    assert "retries three times" in related.text
    assert "wait for a decision again" in undone.text
    assert "It is related to nothing." in (await alice.get("/ui/observations/2")).text


async def test_what_is_dismissed_leaves_the_inbox_and_stands_among_the_dismissed(alice: Visitor, pair: UUID):
    dismissed = await alice.post(f"/ui/review/{pair}/dismiss")
    listed = await alice.get("/ui/review?status=dismissed")

    assert "Nothing to review" in dismissed.text
    assert "<del>three</del>" in listed.text
    assert f"/ui/review/{pair}/undo" in forms(listed)


async def test_contradictions_stand_apart(db: Db, alice: Visitor, pair: UUID):
    async with db.system() as conn:
        await conn.execute("UPDATE consolidation_suggestions SET reason = 'contradicts' WHERE id = %s", [pair])

    same, contradictions = await alice.get("/ui/review"), await alice.get("/ui/review?about=contradictions")
    kept = await alice.post(f"/ui/review/{pair}/keep", about="contradictions")

    assert "<del>" not in same.text
    assert "waiting" in same.text
    assert "contradict each other" in contradictions.text
    assert alice.title(kept) == "Contradictions"
    assert "contradicts" in (await alice.get("/ui/observations/2")).text


@pytest.mark.parametrize(("holds", "other"), [(1, 2), (2, 1)])
async def test_one_of_a_contradiction_holds_and_that_is_undone(
    client: httpx.AsyncClient, cast: Cast, db: Db, alice: Visitor, pair: UUID, holds: int, other: int
):
    async with db.system() as conn:
        await conn.execute("UPDATE consolidation_suggestions SET reason = 'contradicts' WHERE id = %s", [pair])
    await client.patch(f"/v1/observations/{other}", json={"state": "open"}, headers=cast.alice.headers)

    async def states() -> list[str | None]:
        read = [await client.get(f"/v1/observations/{number}", headers=cast.alice.headers) for number in (holds, other)]
        return [answer.json()["observation"]["state"] for answer in read]

    page = await alice.get("/ui/review?about=contradictions")
    decided = await alice.post(f"/ui/review/{pair}/holds", about="contradictions", into=holds)
    after = await states()
    undone = await alice.post(f"/ui/review/{pair}/undo", about="contradictions")

    assert f"#{holds} holds</button>" in page.text
    assert "alike" not in page.text
    assert "Merge into" not in page.text
    assert f"#{holds} holds: #{other} no longer does." in decided.text
    assert after == [None, "dropped"]
    assert f"#{holds} holds</button>" in undone.text
    assert await states() == [None, "open"]
    assert "It is related to nothing." in (await alice.get(f"/ui/observations/{holds}")).text


async def relate(db: Db, team_id: UUID, relationship: str, context: str, *, from_: int = 1) -> None:
    """What a person said of 1 and 2, from the one of them to the other."""
    async with db.system() as conn:
        await conn.execute("UPDATE consolidation_suggestions SET reason = 'contradicts'")
        await conn.execute(
            "INSERT INTO observation_relationships "
            "(id, team_id, from_id, from_project_id, to_id, to_project_id, relationship, context) "
            "SELECT gen_random_uuid(), o.team_id, o.id, o.project_id, other.id, other.project_id, %s, %s "
            "FROM observations o JOIN observations other USING (team_id) "
            "WHERE o.team_id = %s AND o.number = %s AND other.number = %s",
            [relationship, context, team_id, from_, 3 - from_],
        )


@pytest.mark.parametrize(
    ("relationship", "context", "words"),
    [
        ("CONTRADICTS", "holds by review, it was bogus", " contradicts"),
        ("RELATED_TO", "holds by review, it was open", "is related to"),
    ],
)
async def test_a_relation_that_is_not_of_the_review_undoes_nothing(
    cast: Cast, db: Db, alice: Visitor, pair: UUID, relationship: str, context: str, words: str
):
    await relate(db, cast.alice.team_id, relationship, context)
    await alice.post(f"/ui/review/{pair}/dismiss", about="contradictions")

    undone = await alice.post(f"/ui/review/{pair}/undo", about="contradictions")

    assert undone.status_code == 409
    assert "delete it, and undo again" in undone.text
    assert words in (await alice.get("/ui/observations/2")).text


@pytest.mark.parametrize(("decision", "from_"), [("holds", 1), ("keep", 2)])
async def test_a_relation_that_a_person_made_stays(cast: Cast, db: Db, alice: Visitor, pair: UUID, decision: str, from_: int):
    await relate(db, cast.alice.team_id, "CONTRADICTS", "as Alice saw", from_=from_)

    decided = await alice.post(f"/ui/review/{pair}/{decision}", about="contradictions", into=1)
    undone = await alice.post(f"/ui/review/{pair}/undo", about="contradictions")

    assert (decided.status_code, undone.status_code) == (200, 200)
    assert ("#2 still no longer holds" in undone.text) == (decision == "holds")  # nothing of the review says what it was before
    async with db.system() as conn:
        found = await (
            await conn.execute("SELECT context FROM observation_relationships WHERE context = 'as Alice saw'")
        ).fetchall()
    assert len(found) == 1


async def test_a_pair_that_was_merged_is_not_decided_otherwise(alice: Visitor, pair: UUID):
    await alice.post(f"/ui/review/{pair}/merge", into=1)

    page = await alice.post(f"/ui/review/{pair}/dismiss")

    assert page.status_code == 409
    assert "accepted already" in page.text


async def test_a_number_of_neither_is_refused(alice: Visitor, pair: UUID):
    page = await alice.post(f"/ui/review/{pair}/merge", into=7)

    assert page.status_code == 400
    assert "<del>three</del>" in page.text


async def test_hostile_and_long_texts_stay_texts(cast: Cast, make: Make, alice: Visitor):
    text = "<script>alert(1)</script> " + "y" * 5_000
    for number in range(12):
        one = await make.observation(project=cast.alice.project, title=f"a{number}", narrative=f"{number} {text}")
        two = await make.observation(project=cast.alice.project, title=f"b{number}", narrative=f"{number} other {text}")
        await make.suggestion(project=cast.alice.project, left=one.id, right=two.id)

    page = await alice.get("/ui/review")

    assert "<script>alert" not in page.text
    assert "Read the rest" in page.text
    assert "Next page" in page.text
    assert len(page.content) < 100_000


async def test_a_viewer_sees_pairs_without_forms_and_decides_nothing(app: AsgiFrame, db: Db, cast: Cast, pair: UUID):
    viewer = await visit_as(app, db, cast.alice.team_id, "viewer")

    page = await viewer.get("/ui/review")
    answers = [await viewer.post(f"/ui/review/{pair}/{act}") for act in ("merge", "keep", "dismiss", "undo")]

    assert "<del>three</del>" in page.text
    assert forms(page) == []
    assert [answer.status_code for answer in answers] == [403, 403, 403, 403]
