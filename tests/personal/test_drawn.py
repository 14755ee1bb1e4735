"""What is drawn from prompts: how agents shall speak with somebody is theirs, what is of the code is the project's."""

from __future__ import annotations

from typing import Any

import pytest
from httpx import AsyncClient

from cmserver.base.db import Db
from cmserver.generation.job_notifier import JobNotifier
from cmserver.models.providers.model import Answer, Completion, DraftObservation, Prompt, Rules
from cmserver.personal.keep import keep_personal
from cmserver.personal.model import SourceTurn
from tests.conftest import Cast, Person
from tests.generation.tools import Outbox, Scripted, completion
from tests.personal.people import make_two
from tests.personal.test_personal import LIST, act, remember, texts
from tests.rows import rows
from tests.table import try_rows

Json = dict[str, Any]
PROJECT = "github.com/acme/orders"


@pytest.fixture
async def two(db: Db, cast: Cast) -> tuple[Person, Person]:
    """Ann and Ben of Alice's team."""
    return await make_two(db, cast.alice.team_id)


async def say(client: AsyncClient, who: Person, prompt: str, session: str = "s") -> Json:
    body = {"projectId": PROJECT, "eventType": "user_prompt", "payload": {"prompt": prompt}, "contentSessionId": session}
    return await act(client, who, "POST", "/v1/events", body, 201)


async def work(db: Db, notifier: JobNotifier, who: Person, *providers: Scripted | Rules) -> None:
    hand = await Outbox(db, notifier, who.principal, who.project).hand(*(providers or [Rules()]))
    while await hand.work():
        pass


async def of_team(client: AsyncClient, who: Person) -> list[str]:
    found = (await act(client, who, "GET", f"/v1/observations?project={PROJECT}"))["observations"]
    return [f"{row['actorId']}: {row['quote'] or row['title']}" for row in reversed(found)]


async def test_each_of_two_has_their_own_taste(client: AsyncClient, two: tuple[Person, Person], db: Db, notifier: JobNotifier):
    ann, ben = two
    await say(client, ann, "Always answer me in German.", "a")
    await say(client, ben, "From now on answer me in English, no longer in German.", "b")
    await work(db, notifier, ann)

    assert await texts(client, ann) == ["Always answer me in German."]
    assert await texts(client, ben) == ["From now on answer me in English, no longer in German."]
    assert await of_team(client, ann) == []
    row = (await act(client, ann, "GET", f"{LIST}/m1"))["personal"]
    assert (row["type"], row["turnNumber"], row["actorId"]) == ("rule", 1, "ann")


@try_rows(
    ("prompt", "personal", "team"),
    [
        (
            "Always keep your answers short and use tabs in Go files.",
            [],
            ["ann: Always keep your answers short and use tabs in Go files."],
        ),
        (
            "Always answer me in German. Never push to main.",
            ["Always answer me in German."],
            ["ann: Never push to main."],
        ),
        ("Explain to me in English what this does.", [], []),
    ],
)
async def test_what_is_of_the_project_never_vanishes_from_the_team(
    client: AsyncClient, db: Db, cast: Cast, notifier: JobNotifier, prompt: str, personal: list[str], team: list[str]
):
    await rows(db, "DELETE FROM observations")
    await rows(db, "DELETE FROM personal_observations")
    await rows(db, "DELETE FROM users")
    ann, _ = await make_two(db, cast.alice.team_id)
    await say(client, ann, prompt, prompt[:20])
    await work(db, notifier, ann)

    assert await texts(client, ann) == personal
    assert await of_team(client, ann) == team


async def test_beside_a_model_it_is_theirs_too(client: AsyncClient, two: tuple[Person, Person], db: Db, notifier: JobNotifier):
    ann, _ = two

    def worded(prompt: Prompt) -> Completion:
        drafts = [
            DraftObservation(type="decision", title="Answers in German", quote="Answer me in German.", events=[prompt.tags[0]]),
            DraftObservation(type="decision", title="The user speaks German", events=[prompt.tags[0]]),
            DraftObservation(type="decision", title="Main is protected", quote="Never push to main.", events=[prompt.tags[1]]),
        ]
        return completion(Answer(observations=drafts))

    await say(client, ann, "Answer me in German.")
    await say(client, ann, "Never push to main.")
    await work(db, notifier, ann, Scripted(worded))

    assert await texts(client, ann) == ["Answer me in German."]
    assert await of_team(client, ann) == ["ann: Never push to main."]


async def test_a_part_of_a_sentence_that_names_more_stays_the_teams(
    client: AsyncClient, two: tuple[Person, Person], db: Db, notifier: JobNotifier
):
    ann, _ = two

    def worded(prompt: Prompt) -> Completion:
        quote = "Always answer me in German"
        return completion(
            Answer(observations=[DraftObservation(type="decision", title="German", quote=quote, events=[prompt.tags[0]])])
        )

    await say(client, ann, "Always be brief. Always answer me in German and in the FAQ.")
    await work(db, notifier, ann, Scripted(worded))

    assert await texts(client, ann) == ["Always be brief."]
    assert await of_team(client, ann) == ["ann: Always answer me in German"]


async def test_what_is_said_in_two_sessions_goes_with_the_last(
    client: AsyncClient, two: tuple[Person, Person], db: Db, notifier: JobNotifier
):
    ann, _ = two
    sessions: list[str] = []
    for session in ("a", "b"):
        sessions.append((await say(client, ann, "Always answer me in German.", session))["event"]["serverSessionId"])
        await work(db, notifier, ann)

    await act(client, ann, "DELETE", f"/v1/sessions/{sessions[0]}")
    after_first = await texts(client, ann)
    await act(client, ann, "DELETE", f"/v1/sessions/{sessions[1]}")

    assert after_first == ["Always answer me in German."]
    assert await texts(client, ann) == []


async def test_what_was_told_by_hand_does_not_go_with_the_turn_that_the_same_was_taken_from(
    client: AsyncClient, two: tuple[Person, Person], cast: Cast, db: Db, notifier: JobNotifier
):
    ann, _ = two
    recorded = await say(client, cast.alice, "Never push to main.")
    await work(db, notifier, ann)
    (drawn,) = (await act(client, ann, "GET", f"/v1/observations?project={PROJECT}"))["observations"]
    await remember(client, ann, drawn["content"])

    await act(client, ann, "POST", f"/v1/observations/{drawn['number']}/personal", {})
    await act(client, ann, "DELETE", f"/v1/sessions/{recorded['event']['serverSessionId']}")

    assert await texts(client, ann) == [drawn["content"]]


async def test_the_same_words_of_nobodys_key_in_one_batch_stay_the_teams(
    client: AsyncClient, two: tuple[Person, Person], cast: Cast, db: Db, notifier: JobNotifier
):
    ann, ben = two
    for who in (ann, cast.alice, ben):
        await say(client, who, "Always answer me in German.")
    await work(db, notifier, ann)

    assert await texts(client, ann) == await texts(client, ben) == ["Always answer me in German."]
    assert await of_team(client, ann) == ["alice: Always answer me in German."]


async def test_who_retries_the_job_of_a_revoked_key_does_not_get_its_persons_words(
    client: AsyncClient, two: tuple[Person, Person], db: Db, notifier: JobNotifier
):
    ann, ben = two
    job = (await say(client, ann, "Always answer me in German."))["generationJob"]["id"]
    await act(client, ben, "DELETE", f"/v1/keys/{ann.principal.key_id}")
    await work(db, notifier, ben)
    await act(client, ben, "POST", f"/v1/jobs/{job}/retry", {})
    await work(db, notifier, ben)

    assert await texts(client, ben) == []
    assert await rows(db, "SELECT content FROM personal_observations") == []
    assert await of_team(client, ben) == ["ben: Always answer me in German."]


async def test_what_was_forgotten_is_not_drawn_again_by_its_turn_but_by_new_words(
    client: AsyncClient, two: tuple[Person, Person], db: Db, notifier: JobNotifier
):
    ann, _ = two
    await say(client, ann, "Always answer me in German.")
    await work(db, notifier, ann)
    await act(client, ann, "DELETE", f"{LIST}/m1")
    (turn,) = await rows(db, "SELECT id AS turn_id, project_id, created_at AS said_at FROM turns")
    async with db.system() as conn:
        user_id = ann.principal.user_id or ann.team_id
        again = "Always answer me in German."
        await keep_personal(conn, ann.team_id, user_id, "ann", "rule", again, drawn_from=SourceTurn(**turn))
    forgotten = await texts(client, ann)
    await say(client, ann, "Always answer me in German.", "later")
    await work(db, notifier, ann)

    assert forgotten == []
    assert await texts(client, ann) == ["Always answer me in German."]


async def test_what_was_drawn_goes_with_its_session_and_what_was_told_by_hand_stays(
    client: AsyncClient, two: tuple[Person, Person], db: Db, notifier: JobNotifier
):
    ann, _ = two
    recorded = await say(client, ann, "Always answer me in German. Never use emojis in your answers. Always be brief.")
    await work(db, notifier, ann)
    assert len(await texts(client, ann)) == 3
    await remember(client, ann, "Always be brief.", status=200)
    edited = await act(client, ann, "PATCH", f"{LIST}/m1", {"content": "Always answer me in French."})

    await act(client, ann, "DELETE", f"/v1/sessions/{recorded['event']['serverSessionId']}")

    assert edited["personal"]["canUndo"] is False
    assert sorted(await texts(client, ann)) == ["Always answer me in French.", "Always be brief."]
    assert await rows(db, "SELECT id FROM personal_observations p WHERE to_jsonb(p)::text ~ 'German|emoji'") == []
