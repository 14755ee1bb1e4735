"""Who of a team reads the words of others: whose words are whose, who says it, and what stands in their place."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from psycopg.types.json import Jsonb

from cmserver.base.db import Db
from cmserver.models.providers.model import Rules
from cmserver.observations import repository as observations
from tests.access.tools import Api
from tests.conftest import Cast, Person
from tests.generation.tools import Outbox, Scripted
from tests.personal.people import make_account, make_key
from tests.rows import rows

WORD = "zanzibar"
PROJECT = {"projectId": "github.com/acme/orders"}


@pytest.fixture
async def ann(db: Db, cast: Cast) -> Person:
    return await make_key(db, await make_account(db, cast.alice.team_id, "ann"))


@pytest.fixture
async def ben(db: Db, cast: Cast) -> Person:
    return await make_key(db, await make_account(db, cast.alice.team_id, "ben", is_owner=False))


async def say(client: httpx.AsyncClient, who: Person, session: str = "one") -> None:
    """A session of the person's, with an edit, a check and a commit, in the project that all have."""
    edit = {"file_path": f"/src/{WORD}.py", "old_string": "a = 1", "new_string": "a = 2"}
    commit = {"stdout": f"[main abc1234] Mend {WORD}\n 1 file changed, 1 insertion(+), 1 deletion(-)"}
    for name, said in (
        ("SessionStart", {"source": "startup", "cwd": "/src"}),
        ("UserPromptSubmit", {"prompt": f"Mend the {WORD}", "cwd": "/src"}),
        ("PostToolUse", {"tool_name": "Edit", "tool_input": edit, "tool_response": {}, "tool_use_id": f"1 {session}"}),
        (
            "PostToolUse",
            {
                "tool_name": "Bash",
                "tool_input": {"command": f"pytest -k {WORD}"},
                "tool_response": {"stdout": "===== 3 passed in 0.1s ====="},
                "tool_use_id": f"2 {session}",
            },
        ),
        (
            "PostToolUse",
            {
                "tool_name": "Bash",
                "tool_input": {"command": f"git commit -am 'Mend {WORD}'"},
                "tool_response": commit,
                "tool_use_id": f"3 {session}",
            },
        ),
        ("Stop", {"last_assistant_message": f"The {WORD} is mended."}),
    ):
        body = {"hook_event_name": name, "session_id": session, "cwd": "/src", **said}
        headers = {**who.headers, "X-Cmserver-Project": who.project.canonical_id}
        answered = await client.post("/v1/hooks/claude-code", json=body, headers=headers)
        assert answered.status_code == 200, answered.text


async def start(client: httpx.AsyncClient, who: Person) -> str:
    """What a new session of theirs is told."""
    body = {"hook_event_name": "SessionStart", "session_id": f"new of {who.principal.actor_id}", "source": "startup", "cwd": "/src"}
    headers = {**who.headers, "X-Cmserver-Project": who.project.canonical_id}
    return (await client.post("/v1/hooks/claude-code", json=body, headers=headers)).text


async def let_read(client: httpx.AsyncClient, who: Person, words: str) -> httpx.Response:
    return await client.patch(f"/v1/teams/{who.team_id}", json={"words": words}, headers=who.headers)


async def test_an_owner_says_who_reads_the_words_of_others(client: httpx.AsyncClient, db: Db, ann: Person, ben: Person, cast: Cast):
    member = await make_key(db, await make_account(db, cast.alice.team_id, "mel", is_owner=False))
    async with db.system() as conn:
        scopes = Jsonb(["observations:read", "observations:write"])
        await conn.execute("UPDATE api_keys SET scopes = %s WHERE actor_id = 'mel'", [scopes])

    changed = await let_read(client, ann, "owners")
    wrong = await let_read(client, ann, "strangers")
    refused = await let_read(client, member, "members")

    assert changed.json()["team"]["words"] == "owners"
    assert wrong.status_code == 400
    assert [issue["path"] for issue in wrong.json()["issues"]] == ["$.words"]
    assert refused.status_code == 403
    (entry,) = await rows(db, "SELECT details FROM audit_log WHERE action = 'team.updated'")
    assert entry["details"]["fields"] == ["words"]
    assert (await Api(client, ben.key).get("/teams")).json()["teams"][0]["words"] == "owners"


async def test_in_their_place_stands_what_was_done(client: httpx.AsyncClient, db: Db, ann: Person, ben: Person, outbox: Outbox):
    await say(client, ann)
    await (await outbox.hand(Rules())).work()
    told_before = await start(client, ben)

    await let_read(client, ann, "nobody")
    told = await start(client, ben)
    work = (await client.get("/v1/others-work", headers=ben.headers)).json()["work"]
    own = (await client.get("/v1/others-work", headers=ann.headers)).json()["work"]

    assert WORD in told_before
    assert WORD not in told
    assert "ann: 1 file edited, checks passed, commit abc1234" in told
    assert [(one["actorId"], one["files"], one["checks"], one["commits"]) for one in work] == [("ann", 1, "passed", ["abc1234"])]
    assert own == []


async def test_what_was_told_is_not_told_again_to_who_may_no_longer_read_it(
    client: httpx.AsyncClient, db: Db, ann: Person, ben: Person, outbox: Outbox
):
    await say(client, ann)
    await (await outbox.hand(Rules())).work()
    await start(client, ben)
    receipts = await rows(
        db, "SELECT floor(extract(epoch FROM created_at) * 1000)::bigint AS at FROM context_injections ORDER BY 1"
    )

    async def told(who: Person) -> str:
        asked = {"project": who.project.canonical_id, "knownAt": receipts[-1]["at"], "format": "text"}
        return (await client.get("/v1/context", params=asked, headers=who.headers)).text

    told_before = await told(ben)
    await let_read(client, ann, "nobody")

    assert WORD in told_before
    assert WORD not in await told(ben)
    assert WORD in await told(ann)


async def test_where_every_member_reads_there_is_no_such_line(client: httpx.AsyncClient, ann: Person, ben: Person, outbox: Outbox):
    await say(client, ann)
    await (await outbox.hand(Rules())).work()

    told = await start(client, ben)
    work = (await client.get("/v1/others-work", headers=ben.headers)).json()["work"]

    assert "Work of others" not in told
    assert work == []


async def _found(client: httpx.AsyncClient, who: Person) -> list[Any]:
    return (await client.get("/v1/observations", params={"limit": 100}, headers=who.headers)).json()["observations"]


async def test_what_comes_with_a_key_that_is_nobodys_is_the_teams(client: httpx.AsyncClient, cast: Cast, ann: Person, ben: Person):
    for who in (cast.alice, ann, ben):  # Alice's key is nobody's
        made = await client.post("/v1/observations", json={"title": f"by {who.principal.actor_id}", **PROJECT}, headers=who.headers)
        assert made.status_code == 201, made.text

    await let_read(client, ann, "nobody")

    assert {row["title"] for row in await _found(client, ben)} == {"by alice", "by ben"}
    assert {row["title"] for row in await _found(client, cast.alice)} == {"by alice"}


async def test_what_somebody_gives_the_team_every_member_reads(client: httpx.AsyncClient, ann: Person, ben: Person):
    own = (await client.post("/v1/observations", json={"scope": "user", "narrative": "Tabs in Go."}, headers=ann.headers)).json()
    await let_read(client, ann, "nobody")

    moved = await client.post(
        f"/v1/personal-observations/{own['personal']['name']}/move",
        json=PROJECT,
        headers=ann.headers,
    )

    assert moved.status_code == 200, moved.text
    assert [row["narrative"] for row in await _found(client, ben)] == ["Tabs in Go."]


async def test_what_was_merged_of_two_people_is_read_by_who_reads_all_until_the_merge_is_undone(
    client: httpx.AsyncClient, db: Db, ann: Person, ben: Person
):
    made = [
        (
            await client.post(
                "/v1/observations", json={"title": f"the {WORD} of {who.principal.actor_id}", **PROJECT}, headers=who.headers
            )
        ).json()
        for who in (ann, ben)
    ]
    target, source = [one["observation"]["number"] for one in made]
    merged = await client.post(f"/v1/observations/{target}/merge", json={"sources": [source]}, headers=ann.headers)
    assert merged.status_code == 200, merged.text

    await let_read(client, ann, "nobody")
    to_both = [await _found(client, who) for who in (ann, ben)]
    await let_read(client, ann, "owners")
    to_owner = await _found(client, ann)
    undone = await client.post(f"/v1/observations/{target}/undo", json={}, headers=ann.headers)
    assert undone.status_code == 200, undone.text
    await let_read(client, ann, "nobody")

    assert to_both == [[], []]
    assert [row["number"] for row in to_owner] == [target]
    assert [[row["number"] for row in await _found(client, who)] for who in (ann, ben)] == [[target], [source]]


async def test_a_project_is_deleted_with_what_its_deleter_may_not_read(
    client: httpx.AsyncClient, db: Db, ann: Person, ben: Person, outbox: Outbox
):
    await say(client, ann)
    await (await outbox.hand(Rules())).work()
    await let_read(client, ann, "nobody")

    gone = await client.delete(f"/v1/projects/{ben.project.id}/memory", headers=ben.headers)

    assert gone.status_code == 200, gone.text
    assert await rows(db, "SELECT id FROM observations") == []
    assert await rows(db, "SELECT id FROM server_sessions") == []


async def _start_same(client: httpx.AsyncClient, who: Person) -> str:
    """A new session of theirs, which has the same id at its agent as that of others; its id."""
    body = {**PROJECT, "contentSessionId": "same", "externalSessionId": who.principal.actor_id}
    return (await client.post("/v1/sessions/start", json=body, headers=who.headers)).json()["session"]["id"]


async def test_what_is_moved_or_deleted_by_the_agents_id_is_the_session_that_is_read(
    client: httpx.AsyncClient, db: Db, ann: Person, ben: Person
):
    await make_key(db, ben.principal, "github.com/acme/other")
    own, hidden = await _start_same(client, ben), await _start_same(client, ann)
    await let_read(client, ann, "nobody")

    moved = await client.post("/v1/sessions/same/move", json={"into": "github.com/acme/other"}, headers=ben.headers)
    deleted = await client.delete("/v1/sessions/same", headers=ben.headers)

    assert moved.status_code == 200, moved.text
    assert moved.json()["session"]["id"] == own
    assert deleted.status_code == 200, deleted.text
    left = await rows(db, "SELECT s.id, p.canonical_id FROM server_sessions s JOIN projects p ON p.id = s.project_id")
    assert [(str(row["id"]), row["canonical_id"]) for row in left] == [(hidden, "github.com/acme/orders")]


async def _talk(client: httpx.AsyncClient, who: Person, prompt: str, reply: str) -> None:
    """A session of theirs with one turn."""
    for name, said in (
        ("SessionStart", {"source": "startup"}),
        ("UserPromptSubmit", {"prompt": prompt}),
        ("Stop", {"last_assistant_message": reply}),
    ):
        body = {"hook_event_name": name, "session_id": f"{prompt} {who.principal.actor_id}", "cwd": "/src", **said}
        headers = {**who.headers, "X-Cmserver-Project": who.project.canonical_id}
        answered = await client.post("/v1/hooks/claude-code", json=body, headers=headers)
        assert answered.status_code == 200, answered.text


_LEFT_OPEN = f"All done!\n\nNot done: the refund path of {WORD} does not yet increase `order.attempt` 7."


@pytest.mark.parametrize(("words", "is_told"), [("members", True), ("owners", False), ("nobody", False)])
async def test_a_model_is_told_of_open_ends_that_the_sessions_person_may_read(
    client: httpx.AsyncClient, ann: Person, ben: Person, outbox: Outbox, *, words: str, is_told: bool
):
    await _talk(client, ann, f"Raise the limit of {WORD}, please.", _LEFT_OPEN)
    await (await outbox.hand(Rules())).work()
    await let_read(client, ann, words)
    told: dict[str, bool] = {}
    for who in (ann, ben):
        model = Scripted()
        await _talk(client, who, "Raise the limit too, please, of everything.", "Done. `order.status` never checks anything.")
        await (await outbox.hand(model)).work()
        told[who.principal.actor_id or ""] = any(WORD in (end.title or "") for prompt in model.prompts for end in prompt.open_ends)

    assert told == {"ann": True, "ben": is_told}


@pytest.mark.parametrize(("words", "state"), [("members", "done"), ("nobody", "open")])
async def test_nobody_closes_an_open_end_that_they_may_not_read(
    client: httpx.AsyncClient, db: Db, ann: Person, ben: Person, outbox: Outbox, *, words: str, state: str
):
    await _talk(client, ann, f"Raise the limit of {WORD}, please.", _LEFT_OPEN)
    await (await outbox.hand(Rules())).work()
    (end,) = await rows(db, "SELECT number FROM observations WHERE state = 'open'")
    await let_read(client, ann, words)

    await _talk(client, ben, f"#{end['number']} is done, we shipped it.", "Noted.")
    await (await outbox.hand(Rules())).work()

    assert await rows(db, f"SELECT state FROM observations WHERE number = {end['number']}") == [{"state": state}]


async def test_what_closes_an_open_end_is_of_who_may_read_it(
    client: httpx.AsyncClient, db: Db, ann: Person, ben: Person, outbox: Outbox
):
    await _talk(client, ann, f"Raise the limit of {WORD}, please.", _LEFT_OPEN)
    await (await outbox.hand(Rules())).work()
    (end,) = await rows(db, "SELECT number FROM observations WHERE state = 'open'")
    await let_read(client, ann, "nobody")
    states: list[str] = []
    for who in (ben, ann):
        made = (
            await client.post("/v1/observations", json={"title": f"by {who.principal.actor_id}", **PROJECT}, headers=who.headers)
        ).json()
        async with db.system() as conn:
            await observations.close(conn, who.team_id, who.project.id, [end["number"]], made["observation"]["number"], "done")
        (row,) = await rows(db, f"SELECT state FROM observations WHERE number = {end['number']}")
        states.append(row["state"])

    assert states == ["open", "done"]
