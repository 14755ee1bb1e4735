"""The memory-service's routes: statuses, shapes and pages as its clients know them; two teams never meet."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import httpx

from cmserver.base.db import Db
from tests.conftest import Cast, Person, bound_to


async def ask(client: httpx.AsyncClient, person: Person, method: str, path: str, body: object = None, **query: object) -> Any:
    """The status and the JSON of an answer."""
    answer = await client.request(
        method, path, json=body, params={name: str(value) for name, value in query.items()} or None, headers=person.headers
    )
    return answer.status_code, answer.json()


async def new_session(client: httpx.AsyncClient, person: Person, external_id: str = "chat-1", **fields: object) -> dict[str, Any]:
    status, session = await ask(client, person, "POST", "/sessions", {"externalId": external_id, **fields})
    assert status == 201, session
    return session


async def test_a_session_is_found_by_its_external_id_which_is_unique_in_its_team(client: httpx.AsyncClient, cast: Cast):
    session = await new_session(client, cast.alice, name="Kitchen")
    of_project = await new_session(client, cast.alice, "chat-2", projectId=str(cast.alice.project.id))
    theirs = await new_session(client, cast.charlie)

    assert (session["projectId"], session["externalId"], session["name"]) == (None, "chat-1", "Kitchen")
    assert of_project["projectId"] == str(cast.alice.project.id)
    again = {"externalId": "chat-2"}
    assert (await ask(client, cast.alice, "POST", "/sessions", again))[0] == 409
    assert await ask(client, cast.alice, "GET", "/sessions/by-external/chat-1") == (200, session)
    renamed = await ask(client, cast.alice, "PATCH", "/sessions/by-external/chat-1", {"name": "Garden"})
    assert (renamed[0], renamed[1]["name"]) == (200, "Garden")
    listed = (await ask(client, cast.alice, "GET", "/sessions"))[1]
    assert [it["id"] for it in listed] == [of_project["id"], session["id"]]
    assert [it["id"] for it in (await ask(client, cast.alice, "GET", "/sessions", limit=1, offset=1))[1]] == [session["id"]]
    assert theirs["id"] not in {it["id"] for it in listed}


async def test_episodes_are_kept_paged_searched_and_deleted(client: httpx.AsyncClient, cast: Cast):
    session, other = await new_session(client, cast.alice), await new_session(client, cast.alice, "chat-2")
    texts = [
        ("What is a wombat?", "A marsupial."),
        ("And a quokka?", "Also one."),
        ("Password?", "It is <private>hunter2</private>."),
    ]
    made: list[dict[str, Any]] = []
    for user, assistant in texts:
        body = {"sessionId": session["id"], "userMessage": user, "aiResponse": assistant}
        status, episode = await ask(client, cast.alice, "POST", "/episodes", body)
        assert status == 201, episode
        made.append(episode)
    await ask(client, cast.alice, "POST", "/episodes", {"sessionId": other["id"], "userMessage": "wombat", "aiResponse": "here"})

    newest_first = made[::-1]
    of_session = f"/sessions/{session['id']}/episodes"
    assert "hunter2" not in made[2]["aiResponse"]
    assert await ask(client, cast.alice, "GET", of_session) == (200, newest_first)
    assert (await ask(client, cast.alice, "GET", of_session, limit=1, offset=1))[1] == [newest_first[1]]
    assert await ask(client, cast.alice, "GET", f"/episodes/{made[0]['id']}") == (200, made[0])
    found = await ask(client, cast.alice, "GET", "/episodes/search", q="marsupial")
    assert found == (200, [made[0]])
    within = (await ask(client, cast.alice, "GET", "/episodes/search", q="wombat", sessionId=session["id"]))[1]
    assert [it["id"] for it in within] == [made[0]["id"]]
    elsewhere = await ask(client, cast.alice, "GET", "/episodes/search", q="wombat", projectId=cast.alice.project.id)
    assert elsewhere == (200, [])
    assert (await ask(client, cast.charlie, "GET", "/episodes/search", q="wombat"))[1] == []
    assert (await ask(client, cast.charlie, "GET", f"/episodes/{made[0]['id']}"))[0] == 404
    assert (await ask(client, cast.charlie, "DELETE", f"/episodes/{made[0]['id']}"))[0] == 404
    assert (await ask(client, cast.alice, "DELETE", f"/episodes/{made[0]['id']}"))[0] == 200
    assert (await ask(client, cast.alice, "GET", f"/episodes/{made[0]['id']}"))[0] == 404
    turn = await client.get(f"/v1/turns/{made[1]['number']}", headers=cast.alice.headers)
    assert (turn.json()["turn"]["prompt"], turn.json()["turn"]["reply"]) == ("And a quokka?", "Also one.")


async def test_projects_and_summaries(client: httpx.AsyncClient, cast: Cast):
    status, project = await ask(client, cast.alice, "POST", "/projects", {"name": "Kitchen"})
    session = await new_session(client, cast.alice, projectId=project["id"])

    assert status == 201
    assert (await ask(client, cast.alice, "POST", "/projects", {"name": "Kitchen"}))[0] == 409
    renamed = await ask(client, cast.alice, "PATCH", f"/projects/{project['id']}", {"name": "Cellar", "isolated": True})
    assert (renamed[0], renamed[1]["name"], renamed[1]["isolated"]) == (200, "Cellar", True)
    of_session = await ask(client, cast.alice, "POST", "/summaries", {"content": "We cooked.", "sessionId": session["id"]})
    of_project = await ask(client, cast.alice, "POST", "/summaries", {"content": "A kitchen.", "projectId": project["id"]})
    assert (of_session[0], of_project[0], of_project[1]["sessionId"]) == (201, 201, None)
    listed = (await ask(client, cast.alice, "GET", f"/projects/{project['id']}/summaries"))[1]
    assert [it["content"] for it in listed] == ["A kitchen.", "We cooked."]
    assert (await ask(client, cast.alice, "GET", f"/sessions/{session['id']}/summaries"))[1] == [of_session[1]]
    summary = f"/summaries/{of_session[1]['id']}"
    changed = await ask(client, cast.alice, "PATCH", summary, {"content": "We baked."})
    assert (changed[0], changed[1]["content"]) == (200, "We baked.")
    assert (await ask(client, cast.charlie, "PATCH", summary, {"content": "Mine."}))[0] == 404
    assert (await ask(client, cast.alice, "DELETE", summary))[0] == 200
    assert (await ask(client, cast.alice, "GET", f"/sessions/{session['id']}/summaries"))[1] == []
    assert (await ask(client, cast.alice, "DELETE", f"/projects/{project['id']}"))[0] == 200
    assert (await ask(client, cast.alice, "GET", f"/projects/{project['id']}"))[0] == 404


async def test_wrong_input_is_refused_with_its_path_and_changes_nothing(client: httpx.AsyncClient, db: Db, cast: Cast):
    bound = await bound_to(db, cast.alice, "github.com/acme/other")
    session = await new_session(client, cast.alice)
    nobody = str(uuid4())
    episode = {"sessionId": session["id"], "userMessage": "a", "aiResponse": "b"}
    cases: list[tuple[Person, str, str, object, int]] = [
        (cast.alice, "POST", "/sessions", {}, 400),
        (cast.alice, "POST", "/sessions", {"externalId": ""}, 400),
        (cast.alice, "POST", "/sessions", {"externalId": "x", "projectId": nobody}, 404),
        (cast.alice, "POST", "/sessions", {"externalId": "x", "projectId": "no such name"}, 404),
        (cast.alice, "GET", "/sessions/by-external/unknown", None, 404),
        (cast.alice, "GET", "/sessions?limit=0", None, 400),
        (cast.alice, "GET", f"/sessions/{nobody}/episodes", None, 404),
        (cast.alice, "GET", "/sessions/no-id/summaries", None, 404),
        (cast.alice, "POST", "/episodes", {**episode, "aiResponse": ""}, 400),
        (cast.alice, "POST", "/episodes", {**episode, "sessionId": nobody}, 404),
        (cast.charlie, "POST", "/episodes", episode, 404),
        (bound, "POST", "/episodes", episode, 404),
        (cast.alice, "GET", "/episodes/search", None, 400),
        (cast.alice, "GET", "/episodes/no-id", None, 404),
        (cast.alice, "POST", "/projects", {"name": " "}, 400),
        (cast.alice, "GET", f"/projects/{nobody}", None, 404),
        (cast.alice, "POST", "/summaries", {"content": "x"}, 400),
        (cast.alice, "POST", "/summaries", {"sessionId": session["id"]}, 400),
        (cast.alice, "POST", "/summaries", {"content": "x", "projectId": nobody}, 404),
        (cast.charlie, "POST", "/summaries", {"content": "x", "sessionId": session["id"]}, 404),
        (cast.alice, "PATCH", f"/summaries/{nobody}", {"content": "x"}, 404),
        (cast.alice, "DELETE", f"/summaries/{nobody}", None, 404),
    ]

    failed = [
        (method, path, status, wanted)
        for person, method, path, body, wanted in cases
        if (status := (await ask(client, person, method, path, body))[0]) != wanted
    ]

    assert failed == []
    assert (await ask(client, cast.alice, "GET", f"/sessions/{session['id']}/episodes"))[1] == []
