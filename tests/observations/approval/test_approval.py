"""Rules of models and of agents' tools, in a team that lets them count only after a person's yes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest

from cmserver.base.db import Db
from cmserver.base.http.frame import AsgiFrame
from cmserver.graph.read_observations import read_new_observations
from cmserver.models.providers.model import Answer, DraftObservation, Prompt, Rules
from cmserver.observations.answering.answer import expire_rules
from cmserver.retention.sweep import sweep
from tests.conftest import Cast, Person, mint
from tests.doors.mcp.tools import called, connected
from tests.generation.test_turns import Agent
from tests.generation.tools import Outbox, Scripted, completion
from tests.ops.transfers import export
from tests.personal.people import make_account, make_key
from tests.rows import rows
from tests.table import try_rows

ORDERS = "github.com/acme/orders"
RULE = "Never retry a payment without a wombat key"
WAITS = "It counts only after a person's yes"


class Desk:
    """Ann, whose agent writes rules by its tools and by a model."""

    def __init__(self, client: httpx.AsyncClient, app: AsgiFrame, db: Db, ann: Person) -> None:
        self.client, self.app, self.db, self.ann = client, app, db, ann

    async def act(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        status: int = 200,
        key: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        sent = {"Authorization": f"Bearer {key or self.ann.key}", **(headers or {})}
        answered = await self.client.request(method, path, json=body, headers=sent)
        assert answered.status_code == status, answered.text
        return answered.json()

    async def ask(self, *, approves: bool = True) -> None:
        await self.act("PATCH", f"/v1/teams/{self.ann.team_id}", {"approvesRules": approves})

    async def call(self, tool: str, **arguments: object) -> str:
        """What the agent's tool answers."""
        async with connected(self.app, self.ann) as client:
            return (await called(client, tool, **arguments))[0]

    async def add(self, title: str = RULE, type_: str = "decision") -> str:
        return await self.call("observation_add", title=title, type=type_, projectId=ORDERS)

    async def rules(self, state: str = "pending") -> list[Any]:
        return (await self.act("GET", f"/v1/rules?state={state}"))["rules"]

    async def answer(self, number: int | str, answer: str, **more: Any) -> Any:
        return await self.act("POST", f"/v1/rules/{number}/{answer}", **more)

    async def shown(self) -> dict[str, bool]:
        """Whether the rule is told, by where."""
        query = {"query": "wombat key", "projectId": ORDERS}
        texts = {
            "index": (await self.act("GET", f"/v1/context?project={ORDERS}"))["context"],
            "list": str(await self.act("GET", f"/v1/observations?project={ORDERS}")),
            "search": str(await self.act("POST", "/v1/search", query)),
            "recall": str(await self.act("POST", "/v1/context", query)),
            "timeline": str(await self.act("POST", "/v1/timeline", query)),
            "memories": str(await self.act("POST", "/api/v1/memories/recall", {"query": "wombat key", "project_id": ORDERS})),
            "claude-mem": str(await self.act("GET", f"/api/observations?project={ORDERS}")),
        }
        return {name: "wombat" in text.replace("'query': 'wombat key'", "") for name, text in texts.items()}


@pytest.fixture
async def desk(client: httpx.AsyncClient, app: AsgiFrame, cast: Cast, db: Db) -> Desk:
    return Desk(client, app, db, await make_key(db, await make_account(db, cast.alice.team_id, "ann")))


async def test_a_rule_of_an_agent_s_tool_is_told_to_nobody_before_a_person_says_yes(desk: Desk):
    await desk.ask()

    said = await desk.add()
    (waiting,) = await desk.rules()
    before = await desk.shown()
    number = waiting["number"]
    read = await desk.act("GET", f"/v1/observations/{number}", status=410)
    approved = await desk.answer(number, "approve")
    after = await desk.shown()

    assert WAITS in said
    assert (waiting["title"], waiting["origin"], waiting["actorId"], waiting["state"]) == (RULE, "mcp", "ann", "pending")
    assert set(before.values()) == {False}
    assert "wombat" not in str(read)
    assert approved["rule"]["state"] == "approved"
    assert set(after.values()) == {True}, after
    audited = await rows(desk.db, "SELECT action, actor_id FROM audit_log WHERE action LIKE 'rule.%%' ORDER BY id")
    assert audited == [{"action": "rule.approved", "actor_id": "ann"}]


async def test_it_is_told_to_nobody_as_of_a_time_before_the_yes(desk: Desk):
    await desk.ask()
    await desk.add()
    (moment,) = await rows(desk.db, "SELECT clock_timestamp() AS at")
    (waiting,) = await desk.rules()
    await desk.answer(waiting["number"], "approve")

    at = moment["at"].isoformat().replace("+00:00", "Z")
    then = await desk.act("GET", f"/v1/observations?project={ORDERS}&knownAt={at}")

    assert then["observations"] == []


async def test_what_was_said_earlier_than_it_was_held_is_of_no_time_before_the_yes(desk: Desk):
    await desk.ask()
    await desk.add()
    moments = await rows(
        desk.db,
        "UPDATE observations SET created_at = created_at - interval '1 hour'"
        " RETURNING to_json(created_at + interval '30 minutes') #>> '{}' AS at",
    )
    at = moments[0]["at"]
    (waiting,) = await desk.rules()
    number = waiting["number"]

    async def told(time: str = at) -> dict[str, bool]:
        body = {"query": "wombat key", "projectId": ORDERS, "asOf": time}
        query = {"project": ORDERS, "asOf": time}
        texts = {
            "list": str(await desk.act("GET", f"/v1/observations?{urlencode(query)}")),
            "index": (await desk.act("GET", f"/v1/context?{urlencode(query)}"))["context"],
            "search": str(await desk.act("POST", "/v1/search", body)),
            "psql": str(await rows(desk.db, f"SELECT title FROM observations_as_of('{time}')")),
        }
        return {name: "wombat" in text.replace("'query': 'wombat key'", "") for name, text in texts.items()}

    nowhere = dict.fromkeys(("list", "index", "search", "psql"), False)
    assert await told() == nowhere
    await desk.answer(number, "approve")
    assert await told() == nowhere
    ((now,), held) = (
        [row["at"] for row in await rows(desk.db, "SELECT to_json(clock_timestamp()) #>> '{}' AS at")],
        await rows(desk.db, "SELECT valid_from = answered_at AS is_from_the_yes FROM observations_as_of(now()), rule_approvals"),
    )
    assert (await told(now), held) == (dict.fromkeys(nowhere, True), [{"is_from_the_yes": True}])
    await desk.answer(number, "undo")
    await desk.answer(number, "reject")
    assert (await told(), await told(now)) == (nowhere, nowhere)


async def test_a_team_that_did_not_ask_takes_it_at_once(desk: Desk):
    assert "Stored:" in await desk.add()
    assert await desk.rules() == []
    assert (await desk.shown())["list"]


async def test_what_waits_has_no_vector_that_finds_it_and_names_nothing(desk: Desk):
    await desk.ask()
    await desk.add("We decided that `wombat_queue` stays in Redis")
    await read_new_observations(desk.db)
    waiting = await rows(desk.db, "SELECT name FROM entities")
    (rule,) = await desk.rules()
    await desk.answer(rule["number"], "approve")
    await read_new_observations(desk.db)

    assert waiting == []
    assert "wombat_queue" in str(await rows(desk.db, "SELECT name FROM entities"))


@try_rows(
    ("title", "type_"),
    [("A trap of the wombat cache", "discovery"), ("The wombat cache failed", "bugfix")],
)
async def test_what_is_no_rule_is_stored_at_once(
    client: httpx.AsyncClient, app: AsgiFrame, cast: Cast, db: Db, title: str, type_: str
):
    desk = Desk(client, app, db, await make_key(db, await make_account(db, cast.alice.team_id, f"ann {type_}")))
    await desk.ask()

    assert "Stored:" in await desk.add(title, type_)
    assert await desk.rules() == []


async def test_a_person_s_own_rule_counts_at_once_and_a_program_s_does_not(desk: Desk, cast: Cast):
    await desk.ask()
    body = {"projectId": ORDERS, "type": "decision", "importance": 0.9}

    by_ann = await desk.act("POST", "/v1/observations", {**body, "title": "By ann"}, status=201)
    by_program = await desk.act("POST", "/v1/observations", {**body, "title": "By nobody"}, status=201, key=cast.alice.key)

    assert (by_ann["action"], by_program["action"]) == ("created", "held")
    assert [rule["title"] for rule in await desk.rules()] == ["By nobody"]


async def test_what_a_model_words_as_laid_down_waits_and_a_user_s_own_words_do_not(
    desk: Desk, client: httpx.AsyncClient, cast: Cast, outbox: Outbox
):
    def by_model(prompt: Prompt) -> Any:
        drafts = [
            DraftObservation(
                type="decision", title="Pay with a wombat key", narrative="It was laid down.", events=[prompt.tags[0]]
            ),
            DraftObservation(type="discovery", title="The cache is cold", events=[prompt.tags[0]]),
        ]
        return completion(Answer(observations=drafts))

    await desk.ask()
    agent = Agent(client, cast, outbox)
    await agent.prompt("from now on, always pay with a key")
    await agent.send("Stop", last_assistant_message="I will.")
    await (await outbox.hand(Scripted(by_model))).work(max_events=500)
    by_models = await desk.rules()
    agent.session = "s2"
    await agent.prompt("never use floats for money, we agreed on integer cents")
    await agent.stop("I will not.")

    assert [(rule["title"], rule["origin"]) for rule in by_models] == [("Pay with a wombat key", "model")]
    titles = [row["title"] for row in (await desk.act("GET", f"/v1/observations?project={ORDERS}"))["observations"]]
    assert "The cache is cold" in titles
    assert any("floats" in title for title in titles)
    assert len(await desk.rules()) == 1


async def test_a_prompt_that_an_agent_s_tool_reports_is_the_tool_s_word(desk: Desk, outbox: Outbox):
    await desk.ask()
    event = {"eventType": "user_prompt", "payload": {"prompt": f"From now on: {RULE.lower()}."}, "projectId": ORDERS}

    await desk.call("observation_record_event", **event)
    await (await outbox.hand(Rules())).work(max_events=500)
    by_tool = await desk.rules()
    before = await desk.shown()
    await desk.act("POST", "/v1/events", {**event, "payload": {"prompt": "From now on, never use floats for money."}}, status=201)
    await (await outbox.hand(Rules())).work(max_events=500)

    assert [(rule["origin"], rule["state"]) for rule in by_tool] == [("rules", "pending")]
    assert (before["index"], before["list"]) == (False, False)
    assert len(await desk.rules()) == 1
    titles = [row["title"] for row in (await desk.act("GET", f"/v1/observations?project={ORDERS}"))["observations"]]
    assert any("floats" in title for title in titles)


async def test_no_and_no_answer_tell_nobody_and_can_be_taken_back(desk: Desk):
    await desk.ask()
    await desk.add()
    await desk.add("Never use a wombat twice")
    first, second = [rule["number"] for rule in reversed(await desk.rules())]
    await desk.answer(first, "reject")
    await rows(desk.db, "UPDATE rule_approvals SET asked_at = asked_at - interval '15 days' WHERE state = 'pending'")
    expired = [await expire_rules(desk.db), await expire_rules(desk.db)]
    states = {state: [rule["number"] for rule in await desk.rules(state)] for state in ("pending", "rejected", "expired")}
    silent = await desk.shown()
    again = [(await desk.answer(number, "undo"))["rule"]["state"] for number in (first, second)]
    expired.append(await expire_rules(desk.db))
    approved = await desk.answer(second, "approve")

    assert expired == [1, 0, 0], "what waits anew does not expire at once"
    assert states == {"pending": [], "rejected": [first], "expired": [second]}
    assert set(silent.values()) == {False}
    assert again == ["pending", "pending"]
    assert approved["rule"]["state"] == "approved"
    (row,) = await rows(desk.db, "SELECT actor_id, details FROM audit_log WHERE action = 'rule.expired'")
    assert (row["actor_id"], row["details"]) == ("system", {"number": second})


async def test_a_yes_can_be_taken_back_and_comes_before_a_no(desk: Desk):
    await desk.ask()
    await desk.add()
    (rule,) = await desk.rules()
    await desk.answer(rule["number"], "approve")
    twice = await desk.answer(rule["number"], "approve")

    await desk.answer(rule["number"], "reject", status=409)
    await desk.answer(rule["number"], "undo")

    assert twice["rule"]["state"] == "approved"
    assert set((await desk.shown()).values()) == {False}


async def test_what_waits_is_kept_by_retention_and_what_was_refused_goes(desk: Desk):
    await desk.ask()
    await desk.add()
    await desk.add("Never use a wombat twice")
    number = (await desk.rules())[0]["number"]
    await desk.answer(number, "reject")
    await rows(desk.db, "UPDATE observations SET expires_at = now() - interval '8 days'")

    await sweep(desk.db)

    left = await rows(desk.db, "SELECT state FROM rule_approvals")
    assert left == [{"state": "pending"}]


async def test_only_people_see_and_answer_what_waits(desk: Desk, cast: Cast):
    await desk.ask()
    await desk.add()
    (rule,) = await desk.rules()
    number = rule["number"]

    for key, status in ((cast.alice.key, 403), (cast.charlie.key, 403)):
        await desk.act("GET", "/v1/rules", status=status, key=key)
        await desk.answer(number, "approve", status=status, key=key)
    await desk.answer(number + 1, "approve", status=404)
    await desk.answer("x", "approve", status=404)
    assert (await desk.rules())[0]["state"] == "pending"


async def test_nothing_brings_it_back_but_an_answer(desk: Desk):
    await desk.ask()
    await desk.add()
    (rule,) = await desk.rules()
    path = f"/v1/observations/{rule['number']}"

    for method, way in (("POST", "/promote"), ("POST", "/undo"), ("POST", "/expire"), ("GET", "/history"), ("PATCH", "")):
        body = {"title": "Mine"} if method == "PATCH" else None
        refused = await desk.act(method, path + way, body, status=410)
        assert "wombat" not in str(refused), way
    assert set((await desk.shown()).values()) == {False}


async def test_a_tool_changes_no_rule_and_may_drop_one(desk: Desk):
    stored = await desk.act(
        "POST", "/v1/observations", {"projectId": ORDERS, "type": "decision", "title": RULE, "importance": 0.9}, status=201
    )
    number = stored["observation"]["number"]
    await desk.ask()

    changed = await desk.call("observation_correct", id=number, title="Always retry")
    repeated = await desk.add()
    dropped = await desk.call("observation_correct", id=number, state="dropped")
    again = await desk.add()

    assert "a person's yes" in changed
    assert "It was there already:" in repeated
    assert "Corrected:" in dropped
    assert WAITS in again
    assert [rule["title"] for rule in await desk.rules()] == [RULE]


async def test_nobody_is_asked_twice_for_the_same(desk: Desk):
    await desk.ask()
    await desk.add()
    (rule,) = await desk.rules()
    await desk.answer(rule["number"], "reject")

    said = await desk.add()

    assert f"#{rule['number']} " in said
    assert await desk.rules() == []


async def test_a_private_session_asks_nobody_and_what_is_given_back_waits(
    desk: Desk, client: httpx.AsyncClient, cast: Cast, outbox: Outbox
):
    def by_model(prompt: Prompt) -> Any:
        draft = DraftObservation(type="decision", title="Pay with a wombat key", narrative="Laid down.", events=[prompt.tags[0]])
        return completion(Answer(observations=[draft]))

    await desk.ask()
    agent = Agent(client, cast, outbox)
    agent.headers = {**desk.ann.headers, "X-Cmserver-Project": ORDERS}
    await agent.prompt("from now on, always pay with a key")
    await agent.send("Stop", last_assistant_message="I will.")
    await (await outbox.hand(Scripted(by_model))).work(max_events=500)
    (waiting,) = await desk.rules()
    (session,) = await rows(desk.db, "SELECT id FROM server_sessions")
    path = f"/v1/sessions/{session['id']}/private"

    await desk.act("POST", path, {"private": True})
    of_team = await desk.rules()
    inside = await desk.act("GET", f"/v1/observations?project={ORDERS}", headers={"X-Cmserver-Private": "1"})
    await desk.act("POST", path, {"private": False})
    back = await desk.rules()

    assert waiting["title"] == "Pay with a wombat key"
    assert of_team == []
    assert "wombat" in str(inside), "her own agent wrote it, and only she is told it"
    assert [rule["title"] for rule in back] == ["Pay with a wombat key"]
    assert set((await desk.shown()).values()) == {False}


async def test_an_export_has_nothing_that_nobody_said_yes_to(desk: Desk, database: str, tmp_path: Path):
    await desk.ask()
    await desk.add()
    await desk.add("Always name a queue after its animal")
    (rule,) = [rule for rule in await desk.rules() if rule["title"] == RULE]
    number = rule["number"]
    await rows(
        desk.db,
        """
        INSERT INTO observation_versions (id, team_id, project_id, observation_id, version, action, before, performed_by)
        SELECT id, team_id, project_id, id, 1, 'corrected', '{}', 'ann' FROM observations
        """,
    )
    names = ("observation", "version")

    async def exported() -> list[int]:
        lines = (await export(database, desk.ann.team_id, tmp_path / "memory.jsonl")).read_text().splitlines()
        return [sum(f'"record":"{name}"' in line for line in lines) for name in names]

    waiting = await exported()
    await desk.answer(number, "reject")
    rejected = await exported()
    await desk.answer(number, "undo")
    await desk.answer(number, "approve")

    assert (waiting, rejected, await exported()) == ([0, 0], [0, 0], [1, 1])


async def test_what_waits_is_told_in_the_status(desk: Desk):
    await desk.ask()
    await desk.add()
    fresh = await desk.act("GET", "/v1/info")
    await rows(desk.db, "UPDATE rule_approvals SET asked_at = asked_at - interval '4 days'")

    old = await desk.act("GET", "/v1/info")

    assert (fresh["rules"]["waiting"], fresh["rules"]["expired"]) == (1, 0)
    assert round(old["rules"]["oldestDays"]) == 4


async def test_a_key_of_one_project_answers_for_it_alone(desk: Desk, db: Db):
    await desk.ask()
    await desk.add()
    (rule,) = await desk.rules()
    other = (await desk.act("POST", "/v1/projects", {"canonicalId": "billing"}, status=201))["project"]["id"]
    bound, key = await mint(db, desk.ann.team_id, "ann", scopes=["observations:read", "observations:write"], project_id=other)
    await rows(db, "UPDATE api_keys SET user_id = %s WHERE id = %s", desk.ann.principal.user_id, bound.key_id)

    await desk.answer(rule["number"], "approve", status=404, key=key)

    assert (await desk.act("GET", "/v1/rules", key=key))["rules"] == []
