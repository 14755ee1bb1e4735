"""What is a person's alone: written, read, changed and moved by its person, and by nobody else."""

from __future__ import annotations

from typing import Any

import pytest
from httpx import AsyncClient

from cmserver.base.db import Db
from tests.conftest import Cast, Person, mint
from tests.personal.people import make_account, make_key, make_two
from tests.rows import rows
from tests.table import try_rows

Json = dict[str, Any]
LIST = "/v1/personal-observations"


async def act(client: AsyncClient, who: Person, method: str, path: str, body: Json | None = None, status: int = 200) -> Json:
    answered = await client.request(method, path, json=body, headers=who.headers)
    assert answered.status_code == status, answered.text
    return answered.json()


async def remember(client: AsyncClient, who: Person, text: str, status: int = 201, **fields: object) -> Json:
    body = {"scope": "user", "type": "decision", "narrative": text, **fields}
    return (await act(client, who, "POST", "/v1/observations", body, status))["personal"]


async def texts(client: AsyncClient, who: Person, query: str = "") -> list[str]:
    return [row["content"] for row in (await act(client, who, "GET", LIST + query))["personal"]]


@pytest.fixture
async def two(db: Db, cast: Cast) -> tuple[Person, Person]:
    """Ann and Ben of Alice's team."""
    return await make_two(db, cast.alice.team_id)


async def test_each_has_a_list_and_numbers_of_their_own(client: AsyncClient, two: tuple[Person, Person]):
    ann, ben = two

    first = await remember(client, ann, "Answer me in German.")
    second = await remember(client, ann, "Kaffee ist alle.", type="discovery")
    other = await remember(client, ben, "Answer me in English, no longer in German.")
    again = await remember(client, ann, "Answer me in German.", status=200)

    assert [row["name"] for row in (first, second, other, again)] == ["m1", "m2", "m1", "m1"]
    assert (first["type"], second["type"], first["turnNumber"], first["canUndo"]) == ("rule", "note", None, False)
    assert await texts(client, ann) == ["Kaffee ist alle.", "Answer me in German."]
    assert await texts(client, ann, "?type=rule") == ["Answer me in German."]
    assert await texts(client, ben) == ["Answer me in English, no longer in German."]
    for name in ("m2", "#m2", second["id"]):
        await act(client, ben, "GET", f"{LIST}/{name.replace('#', '%23')}", status=404)
        assert (await act(client, ann, "GET", f"{LIST}/{name.replace('#', '%23')}"))["personal"] == second


async def test_what_is_changed_can_be_undone_and_what_is_forgotten_twice_is_gone(
    client: AsyncClient, two: tuple[Person, Person], db: Db
):
    ann, ben = two
    await remember(client, ann, "Short answers.")

    for method, path in (("PATCH", ""), ("DELETE", ""), ("POST", "/undo"), ("POST", "/move")):
        await act(client, ben, method, f"{LIST}/m1{path}", {} if method != "DELETE" else None, status=404)
    edited = (await act(client, ann, "PATCH", f"{LIST}/m1", {"content": "Long answers.", "type": "note"}))["personal"]
    undone = (await act(client, ann, "POST", f"{LIST}/m1/undo", {}))["personal"]
    dropped = await act(client, ann, "DELETE", f"{LIST}/m1")
    while_dropped = await texts(client, ann), await texts(client, ann, "?state=dropped")
    back = (await act(client, ann, "POST", f"{LIST}/m1/undo", {}))["personal"]
    await act(client, ann, "POST", f"{LIST}/m1/undo", {}, status=409)
    await act(client, ann, "DELETE", f"{LIST}/m1")
    deleted = await act(client, ann, "DELETE", f"{LIST}/m1")

    assert (edited["content"], edited["type"], edited["canUndo"]) == ("Long answers.", "note", True)
    assert (undone["content"], undone["type"]) == ("Short answers.", "rule")
    assert while_dropped == ([], ["Short answers."])
    assert (back["state"], dropped["deleted"], deleted["deleted"]) == ("holds", False, True)
    assert await rows(db, "SELECT number FROM personal_observations") == []
    assert (await remember(client, ann, "Short answers."))["name"] == "m2"


async def test_what_is_moved_is_the_teams_and_back(client: AsyncClient, two: tuple[Person, Person]):
    ann, ben = two
    await remember(client, ann, "Deploy with make.")

    moved = (await act(client, ann, "POST", f"{LIST}/m1/move", {"projectId": "orders"}))["personal"]
    number = moved["observationNumber"]
    seen = (await act(client, ben, "GET", f"/v1/observations/{number}"))["observation"]
    await act(client, ann, "PATCH", f"{LIST}/m1", {"content": "x"}, status=409)
    back = (await act(client, ann, "POST", f"{LIST}/m1/undo", {}))["personal"]
    await act(client, ben, "GET", f"/v1/observations/{number}", status=410)

    assert (moved["state"], back["state"], back["observationNumber"]) == ("moved", "holds", None)
    assert (seen["content"], seen["type"], seen["importance"]) == ("Deploy with make.", "decision", 0.9)


async def test_what_is_taken_from_the_team_is_shown_to_it_no_longer(client: AsyncClient, two: tuple[Person, Person]):
    ann, ben = two
    body = {"projectId": "orders", "narrative": "I like tea.", "type": "decision", "importance": 0.9}
    number = (await act(client, ben, "POST", "/v1/observations", body, 201))["observation"]["number"]

    taken = (await act(client, ann, "POST", f"/v1/observations/{number}/personal", {}, 201))["personal"]
    await act(client, ben, "GET", f"/v1/observations/{number}", status=410)
    await act(client, ben, "POST", f"/v1/observations/{number}/personal", {}, status=410)
    undone = (await act(client, ann, "POST", f"{LIST}/m1/undo", {}))["personal"]

    assert (taken["content"], taken["type"], taken["state"]) == ("I like tea.", "rule", "holds")
    assert undone["state"] == "dropped"
    assert (await act(client, ben, "GET", f"/v1/observations/{number}"))["observation"]["content"] == "I like tea."


async def test_a_move_and_a_take_can_be_undone_behind_what_came_later(client: AsyncClient, two: tuple[Person, Person]):
    ann, ben = two
    undo = f"{LIST}/m1/undo"
    await remember(client, ann, "Deploy with make.")
    number = (await act(client, ann, "POST", f"{LIST}/m1/move", {"projectId": "orders"}))["personal"]["observationNumber"]
    await remember(client, ann, "Deploy with make.", status=200)

    moved_again = (await act(client, ann, "POST", undo, {}))["personal"]
    held_again = (await act(client, ann, "POST", undo, {}))["personal"]
    await act(client, ben, "GET", f"/v1/observations/{number}", status=410)
    body = {"projectId": "orders", "narrative": "I like tea.", "type": "decision"}
    tea = (await act(client, ben, "POST", "/v1/observations", body, 201))["observation"]["number"]
    await act(client, ann, "POST", f"/v1/observations/{tea}/personal", {}, 201)
    for content in ("I like coffee.", "I like water."):
        await act(client, ann, "PATCH", f"{LIST}/m2", {"content": content})
    states = [(await act(client, ann, "POST", f"{LIST}/m2/undo", {}))["personal"] for _ in range(2)]

    assert (moved_again["state"], moved_again["canUndo"], held_again["state"]) == ("moved", True, "holds")
    assert [(row["state"], row["content"]) for row in states] == [("holds", "I like coffee."), ("dropped", "I like coffee.")]
    assert (await act(client, ben, "GET", f"/v1/observations/{tea}"))["observation"]["content"] == "I like tea."


@pytest.mark.parametrize(("language", "found"), [("german", ["m1"]), ("english", [])])
async def test_what_is_ones_own_is_searched_in_the_language_of_the_teams_projects(
    client: AsyncClient, two: tuple[Person, Person], language: str, found: list[str]
):
    """By hand it is of no project; what was drawn has that of its turn's."""
    ann, _ = two
    await act(client, ann, "PATCH", "/v1/projects/orders", {"searchLanguage": language})
    await remember(client, ann, "Zeige mir die Häuser.")

    listed = (await act(client, ann, "GET", f"{LIST}?query=Haus"))["personal"]

    assert [row["name"] for row in listed] == found


async def test_the_list_is_searched_by_state_and_type(client: AsyncClient, two: tuple[Person, Person]):
    ann, ben = two
    await remember(client, ann, "Answer me in German.")
    await remember(client, ann, "German beer is cold.", type="discovery")
    await remember(client, ann, "German coffee is not.", type="discovery")
    await act(client, ann, "DELETE", f"{LIST}/m3")

    found = [await texts(client, ann, f"?query=German{more}") for more in ("", "&type=rule", "&state=dropped")]

    assert found == [["German beer is cold.", "Answer me in German."], ["Answer me in German."], ["German coffee is not."]]
    assert await texts(client, ben, "?query=German") == []


@try_rows(
    ("method", "path", "at"),
    [
        ("GET", LIST, "$"),
        ("GET", f"{LIST}/m1", "$.id"),
        ("PATCH", f"{LIST}/m1", "$.id"),
        ("DELETE", f"{LIST}/m1", "$.id"),
        ("POST", f"{LIST}/m1/undo", "$.id"),
        ("POST", f"{LIST}/m1/move", "$.id"),
        ("POST", "/v1/observations/1/personal", "$.id"),
        ("POST", "/v1/observations", "$.scope"),
    ],
)
async def test_a_key_that_is_nobodys_has_nothing_personal(client: AsyncClient, cast: Cast, method: str, path: str, at: str):
    body = {"scope": "user", "narrative": "x"} if path == "/v1/observations" else {}
    answered = await client.request(method, path, json=body if method in {"POST", "PATCH"} else None, headers=cast.alice.headers)

    assert answered.status_code == 403
    assert (answered.json()["error"], answered.json()["issues"][0]["path"]) == ("NO_PERSON", at)


@try_rows(
    ("field", "value"),
    [
        ("projectId", "orders"),
        ("concepts", ["x"]),
        ("filesModified", ["a.py"]),
        ("importance", 0.9),
        ("ttlSeconds", 60),
        ("onDuplicate", "merge"),
        ("metadata", {"a": 1}),
    ],
)
async def test_fields_without_a_meaning_are_refused(client: AsyncClient, db: Db, cast: Cast, field: str, value: object):
    ann = await make_key(db, await make_account(db, cast.alice.team_id, f"ann of {field}"))
    body = {"scope": "user", "narrative": "x", field: value}

    answered = await client.post("/v1/observations", json=body, headers=ann.headers)

    assert (answered.status_code, answered.json()["issues"][0]["path"]) == (400, f"$.{field}")


async def test_a_batch_writes_nothing_personal_and_secrets_are_redacted(client: AsyncClient, two: tuple[Person, Person]):
    ann, _ = two
    batch = await client.post("/v1/observations/batch", json=[{"scope": "user", "narrative": "x"}], headers=ann.headers)
    kept = await remember(client, ann, "My key is AKIAIOSFODNN7EXAMPLE, <private>psst</private> remember.")

    assert (batch.status_code, batch.json()["issues"][0]["path"]) == (400, "$[0].scope")
    assert "AKIAIOSFODNN7EXAMPLE" not in kept["content"]
    assert "psst" not in kept["content"]


async def test_nothing_personal_leaves_a_trace_in_the_audit_log(client: AsyncClient, two: tuple[Person, Person], db: Db):
    ann, _ = two
    before = await rows(db, "SELECT count(*) AS entries FROM audit_log")

    await remember(client, ann, "Answer me in German.")
    await texts(client, ann)
    await act(client, ann, "DELETE", f"{LIST}/m1")

    assert await rows(db, "SELECT count(*) AS entries FROM audit_log") == before


async def test_a_key_that_somebody_else_rotates_is_nobodys(client: AsyncClient, two: tuple[Person, Person]):
    ann, ben = two
    await remember(client, ann, "Answer me in German.")

    by_itself = await act(client, ann, "POST", f"/v1/keys/{ann.principal.key_id}/rotate", {}, 201)
    own = Person(principal=ann.principal, key=by_itself["apiKey"], project=ann.project)
    by_another = await act(client, ben, "POST", f"/v1/keys/{by_itself['key']['id']}/rotate", {}, 201)
    stolen = Person(principal=ann.principal, key=by_another["apiKey"], project=ann.project)
    rotated_on = await act(client, stolen, "POST", f"/v1/keys/{by_another['key']['id']}/rotate", {}, 201)
    stolen_again = Person(principal=ann.principal, key=rotated_on["apiKey"], project=ann.project)

    assert await texts(client, own) == ["Answer me in German."]
    for key in (stolen, stolen_again):
        assert (await act(client, key, "GET", LIST, status=403))["error"] == "NO_PERSON"


async def test_a_key_that_an_owner_makes_for_somebody_is_nobodys(client: AsyncClient, two: tuple[Person, Person]):
    ann, ben = two
    made = await act(client, ben, "POST", "/v1/keys", {"scopes": ["memories:read"], "actorId": "ann"}, 201)
    key = Person(principal=ann.principal, key=made["apiKey"], project=ann.project)

    assert (await act(client, key, "GET", LIST, status=403))["error"] == "NO_PERSON"


async def test_what_was_told_by_hand_stays_when_its_session_goes_and_what_was_drawn_goes(
    client: AsyncClient, two: tuple[Person, Person], db: Db
):
    """Both from one turn: the second was told by hand, too."""
    ann, _ = two
    start = {"projectId": "orders", "externalSessionId": "s", "metadata": {"prompt": "Answer me in German. Be brief."}}
    session = (await act(client, ann, "POST", "/v1/sessions/start", start, 201))["session"]["id"]
    await rows(
        db,
        """
        INSERT INTO personal_counters (team_id, user_id, last_number) VALUES (%s, %s, 2)
        """,
        ann.team_id,
        ann.principal.user_id,
    )
    await rows(
        db,
        """
        INSERT INTO personal_observations (id, team_id, user_id, number, type, content, project_id, turn_id, actor_id)
        SELECT gen_random_uuid(), t.team_id, %s, n, 'rule', CASE n WHEN 1 THEN 'Answer me in German.' ELSE 'Be brief.' END,
               t.project_id, t.id, 'ann'
          FROM turns t, generate_series(1, 2) AS n WHERE t.server_session_id = %s
        """,
        ann.principal.user_id,
        session,
    )
    again = await remember(client, ann, "Be brief.", status=200)
    edited = (await act(client, ann, "GET", f"{LIST}/m1"))["personal"]

    await act(client, ann, "DELETE", "/v1/projects/orders/memory")

    assert (again["name"], again["turnNumber"]) == ("m2", None)
    assert edited["turnNumber"] is not None
    assert await texts(client, ann) == ["Be brief."]


async def test_another_team_of_the_same_person_has_its_own(client: AsyncClient, db: Db, cast: Cast):
    ann = await make_account(db, cast.alice.team_id, "ann")
    key = await make_key(db, ann)
    await remember(client, key, "Answer me in German.")
    principal, text = await mint(db, cast.charlie.team_id, "ann", scopes=["*"])
    async with db.system() as conn:
        await conn.execute("UPDATE api_keys SET user_id = %s WHERE id = %s", [ann.user_id, principal.key_id])

    assert await texts(client, Person(principal=principal, key=text, project=cast.charlie.project)) == []
