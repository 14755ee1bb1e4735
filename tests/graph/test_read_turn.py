"""What turns are about that clients of the memory-service write: found by a model, where there is one."""

from __future__ import annotations

from typing import Any

import httpx
import msgspec
import pytest

from cmserver.base.db import Db
from cmserver.base.settings import Settings
from cmserver.generation.job_notifier import JobNotifier
from cmserver.graph.model import EntityName
from cmserver.graph.read_observations import read_new_observations
from cmserver.graph.read_turn import read_answer
from cmserver.models.providers.model import Completion, FailureKind, Prompt, ProviderError
from cmserver.models.providers.prompts.render import render
from tests.conftest import Cast, Person
from tests.generation.tools import Hand, Outbox, Scripted
from tests.rows import rows
from tests.table import try_rows

Json = dict[str, Any]


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return msgspec.structs.replace(settings, entities="model")


ANSWER = 'Sure:\n{"entities": [{"name": "Ana", "type": "person", "notes": "draws maps"}, {"name": "dog", "type": "animal"}]}'


@try_rows(
    ("answer", "names"),
    [
        (ANSWER, [EntityName("person", "Ana", "draws maps")]),
        ('{"entities": [{"name": "Oslo", "type": "Place", "notes": null}]}', [EntityName("place", "Oslo")]),
        ('{"entities": [{"name": "hello", "type": "person"}, {"type": "person"}, 7, null]}', []),
        (
            '{"entities": [{"name": "key AKIAIOSFODNN7EXAMPLE", "type": "concept"}]}',
            [EntityName("concept", "key [redacted:aws_access_key]")],
        ),
        (ANSWER[: ANSWER.index('{"name": "dog"') + 12], [EntityName("person", "Ana", "draws maps")]),
        (
            '{"entities": [{"type": "concept", "name": "GET /users/{id}", "notes": "reads {one}", "tags": {"a": 1}}]}',
            [EntityName("concept", "GET /users/{id}", "reads {one}")],
        ),
        (
            '{"type": "person", "name": "Ana"} {"type": "person", "name": "Bo"}',
            [EntityName("person", "Ana"), EntityName("person", "Bo")],
        ),
        *(
            (wrapped % '{"type": "person", "name": "Ana"}', [EntityName("person", "Ana")])
            for wrapped in (
                '{"result": {"entities": [%s]}}',
                '{"data": [%s]}',
                '{"entities": %s}',
                '{"people": [%s]}',
                "[[%s]]",
                '{"name": "answer", "type": "object", "entities": [%s]}',
            )
        ),
        ("[]", []),
        ('There are none: {"entities": []}', []),
        ('{"a":' * 100_000 + '{"type": "person", "name": "Ana"}', None),
        ('{"entities": "Ana"}', None),
        ('{"entities": [', None),
        ("The user talks about Ana, who draws maps [1].", None),
        ("nothing worth naming", None),
        ("", None),
    ],
)
def test_an_answer_is_read_out_of_prose(answer: str, names: list[EntityName] | None):
    assert read_answer(answer) == names


async def say(client: httpx.AsyncClient, person: Person, user: str, assistant: str) -> Json:
    """Write an episode of a session without a project."""
    session = await client.post("/sessions", json={"externalId": "chat"}, headers=person.headers)
    found = await client.get("/sessions/by-external/chat", headers=person.headers)
    assert session.status_code in {201, 409}, session.text
    body = {"sessionId": found.json()["id"], "userMessage": user, "aiResponse": assistant}
    episode = await client.post("/episodes", json=body, headers=person.headers)
    assert episode.status_code == 201, episode.text
    return episode.json()


async def hand_with_model(db: Db, notifier: JobNotifier, person: Person, provider: Scripted) -> Hand:
    hand = await Outbox(db, notifier, person.principal, person.project).hand(provider)
    runner: Any = hand.runner
    runner._settings = msgspec.structs.replace(runner._settings, entities="model")
    return hand


async def entities_of(client: httpx.AsyncClient, person: Person) -> dict[tuple[str, str], Json]:
    rows = (await client.get("/v1/entities", headers=person.headers)).json()["entities"]
    return {(row["type"], row["name"]): row for row in rows}


@pytest.mark.parametrize(("by_people", "kept"), [(None, "draws maps"), ("has a cat", "has a cat")])
async def test_a_model_is_shown_what_is_known_and_notes_what_people_did_not(
    client: httpx.AsyncClient, db: Db, notifier: JobNotifier, cast: Cast, by_people: str | None, kept: str
):
    known = {"name": "Ana", "type": "person", "notes": by_people}
    assert (await client.post("/entities", json=known, headers=cast.alice.headers)).status_code == 201
    answers = [ANSWER, '{"entities": [{"name": "ANA", "type": "person", "notes": ""}]}']
    provider = Scripted(lambda _prompt: Completion(text=answers.pop(0), model="script-1"))
    hand = await hand_with_model(db, notifier, cast.alice, provider)

    for user in ("Who draws maps?", "And <private>hunter2</private>?"):
        await say(client, cast.alice, user, "Ana does.")
        await hand.work()

    ana = (await entities_of(client, cast.alice))["person", "Ana"]
    assert (ana["notes"], ana["mentionCount"], ana["foundBy"]) == (kept, 2, "people")
    first, second = provider.prompts
    assert (first.kind, first.answer_tokens, first.temperature) == ("entities", 500, 0.1)
    assert first.keep == ["Ana (person)"]
    assert "Who draws maps?" in render(first, "json").user
    assert "hunter2" not in str(second.stored)


async def test_a_call_that_is_refused_fails_its_job_alone_and_a_deleted_turn_is_not_asked_about(
    client: httpx.AsyncClient, db: Db, notifier: JobNotifier, cast: Cast
):
    def refuse(_prompt: Prompt) -> Completion:
        raise ProviderError(FailureKind.REFUSED, "No.")

    provider = Scripted(refuse)
    hand = await hand_with_model(db, notifier, cast.alice, provider)
    gone = await say(client, cast.alice, "Ana", "Oslo")
    await client.delete(f"/episodes/{gone['id']}", headers=cast.alice.headers)
    await hand.work()
    asked_about_deleted = len(provider.prompts)
    stays = await say(client, cast.alice, "Ana in `map_room`", "Oslo")
    await hand.work()
    await read_new_observations(db)

    jobs = (await client.get("/v1/jobs", headers=cast.alice.headers)).json()["jobs"]
    session = (await client.get(f"/v1/sessions/{stays['sessionId']}", headers=cast.alice.headers)).json()["session"]
    assert asked_about_deleted == 0
    assert sorted((job["sourceType"], job["status"]) for job in jobs) == [("turn", "completed"), ("turn", "failed")]
    assert session["generationStatus"] != "failed"
    assert (await entities_of(client, cast.alice)).keys() == {("symbol", "map_room")}, "rules find it all the same"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("The user asks who draws maps.", "unusable answer: "),
        ('{"entities": []}', "the answer names none"),
        (ANSWER, "its entities were found"),
    ],
)
async def test_a_job_says_whether_its_answer_could_be_used(
    client: httpx.AsyncClient, db: Db, notifier: JobNotifier, cast: Cast, answer: str, reason: str
):
    provider = Scripted(lambda _prompt: Completion(text=answer, model="script-1"))
    hand = await hand_with_model(db, notifier, cast.alice, provider)
    await say(client, cast.alice, "Who draws maps?", "Ana does.")
    await hand.work()

    (job,) = await rows(db, "SELECT outcome, outcome_reason FROM observation_generation_jobs")
    assert job["outcome"] == "skipped"
    assert str(job["outcome_reason"]).startswith(reason)
    is_usable = not reason.startswith("unusable")
    info = (await client.get("/v1/info", headers=cast.alice.headers)).json()
    assert (info["answers"]["usable"], info["answers"]["unusable"]) == (int(is_usable), int(not is_usable))


async def test_what_a_model_names_follows_a_session_that_is_moved_meanwhile(
    client: httpx.AsyncClient, db: Db, notifier: JobNotifier, cast: Cast
):
    project = str(cast.alice.project.id)

    async def move(_prompt: Prompt) -> Completion:
        moved = await client.patch("/sessions/by-external/chat", json={"projectId": project}, headers=cast.alice.headers)
        assert moved.status_code == 200, moved.text
        return Completion(text=ANSWER, model="script-1")

    hand = await hand_with_model(db, notifier, cast.alice, Scripted(move))
    await say(client, cast.alice, "Who draws maps?", "She does.")
    await hand.work()

    ana = (await entities_of(client, cast.alice))["person", "Ana"]
    assert (ana["projectId"], ana["mentionCount"]) == (project, 1)


async def test_what_a_turn_names_goes_with_it_and_with_its_session(client: httpx.AsyncClient, db: Db, cast: Cast):
    episode = await say(client, cast.alice, "Is `first_name` used?", "Yes")
    await say(client, cast.alice, "Is `second_name` used?", "Yes")
    await read_new_observations(db)

    moved = await client.patch(
        "/sessions/by-external/chat", json={"projectId": str(cast.alice.project.id)}, headers=cast.alice.headers
    )
    assert moved.status_code == 200, moved.text
    after_move = {name: row["projectId"] for (_, name), row in (await entities_of(client, cast.alice)).items()}
    await client.delete(f"/episodes/{episode['id']}", headers=cast.alice.headers)
    after_turn = {name for _, name in await entities_of(client, cast.alice)}
    await client.delete("/sessions/by-external/chat", headers=cast.alice.headers)

    assert after_move == dict.fromkeys(("first_name", "second_name"), str(cast.alice.project.id))
    assert after_turn == {"second_name"}
    assert await entities_of(client, cast.alice) == {}
