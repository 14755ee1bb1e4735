"""Every row of a verb, walked through its route and commands: who may, who may not, what is another team's, what is wrong."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, get_args, get_origin
from typing import cast as as_type
from urllib.parse import quote
from uuid import UUID

import httpx
import msgspec
import pytest
from psycopg.types.json import Jsonb

from cmserver import __version__
from cmserver.access.model import SCOPES
from cmserver.access.verb import Command, Verb
from cmserver.app import ROUTES
from cmserver.base.db import Db
from cmserver.base.http.frame import AsgiFrame
from cmserver.base.ids import new_id
from cmserver.cli.exit_codes import ExitCode
from cmserver.cli.verbs import plain_type
from cmserver.client.server_api import Api, ApiAnswer
from tests.access.tools import everything
from tests.cli.conftest import Cms, Said
from tests.conftest import Cast, bound_to, mint
from tests.doors.web.visitor import visit_as
from tests.make import Make
from tests.personal.people import be_a_person
from tests.rows import rows
from tests.steward.tools import insert_job

VERBS = [route for route in ROUTES if isinstance(route, Verb)]
PROJECT = "github.com/acme/orders"

GIVEN: dict[str, Mapping[str, object]] = {
    "GET /v1/keys": {"active": True},
    "POST /v1/keys": {"name": "laptop", "project": PROJECT, "scopes": ["jobs:read"], "actor_id": "bob", "events_per_month": 5},
    "GET /v1/keys/{id}": {"id": "<key>"},
    "GET /v1/keys/current": {},
    "POST /v1/keys/{id}/rotate": {"id": "<key>", "overlap_seconds": 5},
    "DELETE /v1/keys/{id}": {"id": "<key>", "only": True},
    "GET /v1/projects": {"archived": True},
    "POST /v1/projects": {"canonical_id": "<new name>", "name": "Bills", "search_language": "french"},
    "GET /v1/projects/{project:path}": {"project": "<project>"},
    "PATCH /v1/projects/{project:path}": {
        "project": "<project>",
        "name": "Bills",
        "search_language": "german",
        "isolated": False,
        "archived": False,
    },
    "GET /v1/others-work": {"project": PROJECT},
    "GET /v1/teams": {},
    "POST /v1/teams": {"name": "<new name>", "metadata": {"floor": 3}},
    "GET /v1/teams/{team}": {"team": "<team>"},
    "PATCH /v1/teams/{team}": {
        "team": "<team>",
        "name": "blue",
        "approves_rules": False,
        "untold_share": 20,
        "words": "owners",
        "archived": False,
        "requests_per_minute": 600,
    },
    "GET /v1/teams/{team}/members": {"team": "<team>"},
    "PUT /v1/teams/{team}/members/{user:path}": {"team": "<team>", "user": "dora@example.com", "role": "viewer"},
    "DELETE /v1/teams/{team}/members/{user:path}": {"team": "<team>", "user": "<user>"},
    "GET /v1/users": {},
    "GET /v1/users/accounts": {},
    "GET /v1/users/invitations": {},
    "POST /v1/users/invitations": {"role": "viewer", "note": "for Eve", "operator": True},
    "DELETE /v1/users/invitations/{invitation}": {"invitation": "<invitation>"},
    "PATCH /v1/users/{user:path}": {"user": "<user>", "role": "viewer", "operator": False},
    "DELETE /v1/users/{user:path}": {"user": "<user>"},
    "DELETE /v1/users/{user:path}/private": {"user": "<user>"},
    "POST /v1/users/{user:path}/reset": {"user": "<user>"},
    "GET /v1/audit": {"project": PROJECT, "action": "key.created", "key": str(new_id())},
    "GET /v1/budgets": {"project": PROJECT},
    "PUT /v1/budgets": {"period": "day", "project_id": "billing", "max_tokens": 5, "max_usd": "1.50"},
    "DELETE /v1/budgets": {"period": "day", "project": PROJECT},
    "POST /v1/history": {"project_id": PROJECT, "commits": [], "documents": [], "gone_documents": []},
    "GET /v1/history": {"project": PROJECT},
    "DELETE /v1/history": {"project": PROJECT},
    "POST /v1/import": {"source": "claude-mem", "context": [], "lines": [], "dry_run": True, "is_last": True},
    "POST /v1/why": {
        "project_id": PROJECT,
        "file": "src/pay.py",
        "other_paths": ["src/old.py"],
        "text": "lock(ledger)",
        "occurrences": 1,
        "commit": "4c1e2f3",
        "written_at_epoch": 1_700_000_000_000,
    },
    "POST /v1/handoff": {"project_id": PROJECT, "branch": "main"},
    "GET /v1/jobs": {"project": PROJECT, "status": "failed", "source_type": "agent_event", "job_type": "observe"},
    "GET /v1/teams/{team}/jobs": {"team": "<team>", "include": "payload"},
    "GET /v1/projects/{project:path}/jobs": {"project": PROJECT, "since": "2026-11-22"},
    "GET /v1/jobs/{id}": {"id": "<job>", "include": "payload"},
    "GET /v1/jobs/{id}/events": {"id": "<job>"},
    "GET /v1/jobs/{id}/calls": {"id": "<job>"},
    "GET /v1/lanes": {"project": PROJECT, "state": "held"},
    "GET /v1/workers": {},
    "POST /v1/jobs/retry": {"project_id": PROJECT, "status": "failed", "dry_run": True},
    "POST /v1/jobs/cancel": {"project_id": PROJECT, "status": "queued"},
    "POST /v1/jobs/{id}/retry": {"id": "<job>"},
    "POST /v1/jobs/{id}/cancel": {"id": "<queued job>"},
    "POST /v1/reindex": {"project_id": PROJECT},
    "GET /v1/steward": {},
    "PUT /v1/steward/mode": {"mode": "write", "paused": False, "executors": ["auto_merge"]},
    "POST /v1/steward/run": {"project": PROJECT, "executors": ["auto_merge"]},
    "GET /v1/acts": {"project": PROJECT},
    "GET /v1/steward/runs": {"project": PROJECT, "status": "succeeded", "job_type": "policy_tune"},
    "GET /v1/steward/runs/{id}": {"id": "<run>"},
    "POST /v1/steward/runs/{id}/undo": {"id": "<run>"},
    "GET /v1/steward/policies": {"key": "derive.novelty"},
    "POST /v1/steward/policies/{key}/rollback": {"key": "<threshold>"},
    "GET /v1/analytics": {"project": PROJECT, "days": 3},
    "GET /v1/entities": {"project": PROJECT, "type": "technology", "search": "redis"},
    "GET /v1/entities/{id}": {"id": "<entity>", "depth": 2},
    "GET /v1/entities/{id}/mentions": {"id": "<entity>"},
    "POST /v1/entities": {"project_id": PROJECT, "name": "Ana", "type": "person", "notes": "designs the map"},
    "PATCH /v1/entities/{id}": {"id": "<entity>", "notes": "a cache"},
    "DELETE /v1/entities/{id}": {"id": "<entity>"},
    "POST /v1/entities/{id}/merge": {"id": "<entity>", "into_id": "<entity>"},
    "POST /v1/entities/{id}/separate": {"id": "<merged entity>"},
    "POST /v1/entities/{id}/relations": {"id": "<entity>", "to_id": "<entity>", "label": "uses"},
    "DELETE /v1/entity-relations/{id}": {"id": "<entity relation>"},
    "GET /v1/projects/{project:path}/overview": {"project": PROJECT},
    "POST /v1/projects/{project:path}/overview": {"project": "<remembered project>"},
    "POST /v1/observations": {"project_id": PROJECT, "title": "Money is in cents"},
    "GET /v1/observations/{id}/history": {"id": "<observation>"},
    "POST /v1/observations/{id}/merge": {"id": "<observation>", "sources": [1]},
    "POST /v1/observations/{id}/undo": {"id": "<corrected observation>"},
    "GET /v1/observations/{id}/related": {"id": "<observation>", "type": "CAUSES", "depth": 2},
    "POST /v1/relations": {"from_": "<observation>", "to": "<observation>", "relationship": "CAUSES"},
    "DELETE /v1/relations/{id}": {"id": "<relation>"},
    "GET /v1/suggestions": {"project": PROJECT, "status": "open", "contradictions": False},
    "PATCH /v1/suggestions/{id}": {"id": "<suggestion>", "status": "dismissed"},
    "GET /v1/observations": {"project": PROJECT, "type": "decision", "kind": "manual", "scope": "project", "state": "open"},
    "GET /v1/rules": {"project": PROJECT, "state": "pending"},
    "POST /v1/rules/{id}/approve": {"id": "<waiting rule>"},
    "POST /v1/rules/{id}/reject": {"id": "<waiting rule>"},
    "POST /v1/rules/{id}/undo": {"id": "<refused rule>"},
    "POST /v1/observations/{id}/promote": {"id": "<expiring observation>"},
    "POST /v1/observations/{id}/expire": {"id": "<observation>"},
    "DELETE /v1/observations/{id}": {"id": "<observation>"},
    "POST /v1/observations/{id}/personal": {"id": "<observation>"},
    "GET /v1/pins": {"project": PROJECT},
    "POST /v1/pins": {
        "question": "<new name>",
        "must": ["8443"],
        "must_not": ["8080"],
        "lines": 3,
        "on_break": "refuse",
        "project_id": PROJECT,
    },
    "PUT /v1/pins": {"pins": [{"question": "Which port?", "must": ["8443"]}], "project_id": PROJECT},
    "PATCH /v1/pins/{id}": {
        "id": "<pin>",
        "question": "Which port?",
        "must": ["8443"],
        "must_not": ["8080"],
        "lines": 3,
        "on_break": "refuse",
    },
    "DELETE /v1/pins/{id}": {"id": "<pin>"},
    "POST /v1/pins/check": {"project_id": PROJECT},
    "POST /v1/replays/estimate": {"project_id": "<replayable project>", "provider": "offline"},
    "POST /v1/replays": {"project_id": "<replayable project>", "provider": "offline"},
    "GET /v1/replays": {},
    "GET /v1/replays/{id}": {"id": "<replay>"},
    "GET /v1/replays/{id}/lines": {"id": "<replay>", "difference": "lost"},
    "POST /v1/replays/{id}/stop": {"id": "<running replay>"},
    "POST /v1/replays/{id}/resume": {"id": "<stopped replay>"},
    "POST /v1/replays/{id}/take-over": {"id": "<replay>"},
    "POST /v1/replays/{id}/undo": {"id": "<taken over replay>"},
    "DELETE /v1/replays/{id}": {"id": "<replay>"},
    "GET /v1/personal-observations": {"state": "holds", "type": "rule"},
    "GET /v1/personal-observations/{id}": {"id": "<personal>"},
    "PATCH /v1/personal-observations/{id}": {"id": "<personal>", "content": "<new name>", "type": "rule"},
    "DELETE /v1/personal-observations/{id}": {"id": "<personal>"},
    "POST /v1/personal-observations/{id}/undo": {"id": "<changed personal>"},
    "POST /v1/personal-observations/{id}/move": {"id": "<personal>", "project_id": PROJECT},
    "GET /v1/events/{id}/observations": {"id": "<event>"},
    "GET /v1/sessions": {"project": PROJECT, "active": True, "platform": "claude"},
    "GET /v1/sessions/{id}": {"id": "<session>"},
    "PATCH /v1/sessions/{id}": {"id": "<session>", "title": "Retries"},
    "GET /v1/turns": {"project": PROJECT, "session": "<session>"},
    "GET /v1/turns/{id}": {"id": "<turn>"},
    "PATCH /v1/turns/{id}": {"id": "<turn>", "own_line": "asked for retries"},
    "GET /v1/events": {"project": PROJECT, "session": "<session>", "type": "tool_use", "include": "payload"},
    "GET /v1/events/{id}": {"id": "<event>"},
    "GET /v1/embeddings": {},
    "POST /v1/embeddings/retry": {},
    "GET /v1/projects/{project:path}/activity": {"project": "<project>"},
    "DELETE /v1/projects/{project:path}/memory": {"project": "<project>"},
    "DELETE /v1/projects/{project:path}": {"project": "<project>"},
    "DELETE /v1/sessions/{id}": {"id": "<session>", "dry_run": True},
    "POST /v1/projects/{project:path}/join": {"project": "<project>", "into": "<project>"},
    "POST /v1/projects/{project:path}/separate": {"project": "<joined project>"},
    "GET /v1/personal-memory": {},
    "GET /v1/proof": {"project": PROJECT, "days": 3},
    "DELETE /v1/proof/sessions/{id}": {"id": "<session>"},
    "POST /v1/sessions/{id}/private": {"id": "<session>", "private": False},
    "POST /v1/sessions/{id}/move": {"id": "<session>", "into": "<project>"},
    "GET /v1/sessions/{id}/context": {"id": "<session>"},
    "GET /v1/observations/{id}/readers": {"id": "<observation>"},
    "POST /v1/context": {"project_id": PROJECT, "query": "money", "limit": 5},
    "POST /v1/sessions/start": {"project_id": PROJECT, "external_session_id": "s1", "metadata": {"prompt": "Why is it slow?"}},
    "POST /v1/sessions/{id}/end": {"id": "<session>"},
    "GET /v1/doctor": {},
    "GET /v1/server": {},
    "GET /v1/providers": {},
    "GET /v1/model": {},
    "POST /v1/model/trial": {"provider": "offline"},
    "PUT /v1/model": {"provider": "openai", "model": "qwen3", "base_url": "http://127.0.0.1:9/v1", "key": "sk-0123456789"},
    "POST /v1/providers/{provider}/resume": {"provider": "offline"},
}
"""What each verb is given, by its fields; in angle brackets is a thing of Alice's that is made for it."""

IGNORES_UNKNOWN = {
    "POST /v1/sessions/start",
    "POST /v1/context",
    "POST /v1/keys",
    "GET /v1/jobs",
    "GET /v1/teams/{team}/jobs",
    "GET /v1/projects/{project:path}/jobs",
    "GET /v1/jobs/{id}",
    "GET /v1/jobs/{id}/calls",
}
"""Where unknown fields are named in the answer, for clients of claude-mem."""
WRONG: dict[str, object] = {
    "must": ["x"] * 21,
    "must_not": ["x"] * 21,
    "max_usd": "much",
    "provider": "nobody",
    "model": "",
    "base_url": "ftp://127.0.0.1",
    "cursor": "x",
    "key": "",
    "executors": "x",
    "session": "\x00",
    "session_id": "",
    "search": "",
    "agent_type": "",
    "agent_id": "",
    "content_session_id": "",
    "external_session_id": "",
    "query": "",
    "into_id": "",
    "into": "",
    "to_id": "",
    "since": "x",
    "job_type": "",
    "job_ids": "x",
    "observation": "",
    "scopes": [],
    "canonical_id": "",
    "search_language": "klingon",
    "actor_id": "",
    "action": "\x00",
    "actor": "\x00",
    "resource_type": "\x00",
    "resource_id": "\x00",
    "file": "",
    "commit": "x",
    "written_at_epoch": "x",
    "type": "\x00",
    "relationship": "x",
}
"""What a text must not be that may be of any length; all else is made wrong by its type."""
NAMES_A_PROJECT = {"project", "project_id"}
NOT_REFUSED = {
    "POST /v1/users/{user:path}/reset": "an account is the server's, and its operator asks",
    "GET /v1/audit": "the log outlives a project: of one that is not there it has no entries",
}
"""Verbs that name something and do not refuse who is of another team, and why."""


Given = dict[str, object]


def name(verb: Verb) -> str:
    return f"{verb.method} {verb.path}"


class Doors:
    """Asks as somebody: by the route, and by the verb's commands."""

    def __init__(self, client: httpx.AsyncClient, cms: Cms) -> None:
        self._client, self._cms = client, cms

    def request(self, verb: Verb, given: Mapping[str, object]) -> tuple[str, Given]:
        """The path, and the fields of the query or the body."""
        path = re.sub(r"\{(\w+)(?::path)?\}", lambda found: quote(str(given[found[1]])), verb.path)
        return path, {_on_wire(verb, field): value for field, value in given.items() if f"{{{field}" not in verb.path}

    async def ask(self, verb: Verb, given: Mapping[str, object], key: str, **unknown: object) -> httpx.Response:
        path, sent = self.request(verb, given)
        sent, headers = {**sent, **unknown}, {"Authorization": f"Bearer {key}"}
        if verb.method in {"GET", "DELETE"}:
            params = {field: str(value).lower() if isinstance(value, bool) else str(value) for field, value in sent.items()}
            return await self._client.request(verb.method, path, params=params, headers=headers)
        return await self._client.request(verb.method, path, json=sent, headers=headers)

    async def type(self, verb: Verb, command: Command, given: Mapping[str, object], key: str) -> Said:
        named = re.findall(r"\{(\w+)", verb.path)
        known = {option.field for option in command.options}
        words = [str(given[field]) for field in named if field not in known | {"team"}]
        for option in command.options:
            value = given.get(option.field)
            if not option.name.startswith("-"):
                words.append(str(value))
            elif value is option.on:
                words.append(option.name)
            elif value is not None and not isinstance(value, bool):
                for one in as_type("list[object]", value) if isinstance(value, list) else [value]:
                    words += [option.name, str(one)]
        yes = ["--yes"] if command.confirm else []
        return await self._cms(*command.name.split(), *words, *yes, key=key)


def _on_wire(verb: Verb, field: str) -> str:
    return next((one.encode_name for one in msgspec.structs.fields(verb.given) if one.name == field), field)


MakeGiven = Callable[[Verb], Awaitable[Given]]


@pytest.fixture
def makers(client: httpx.AsyncClient, app: AsgiFrame, db: Db, cast: Cast, make: Make) -> dict[str, Callable[[], Awaitable[str]]]:
    """What makes the things of Alice's that are in angle brackets, and returns what a verb calls them."""
    alice = cast.alice

    async def post(path: str, pointer: str, **body: object) -> str:
        """The id at `pointer` in the answer."""
        found = (await client.post(f"/v1{path}", json=body, headers=alice.headers)).json()
        for step in pointer.split("/"):
            found = found[step]
        return str(found)

    async def key() -> str:
        return str((await mint(db, alice.team_id, "bob", scopes=["jobs:read"]))[0].key_id)

    async def team() -> str:
        return str(alice.team_id)

    async def new_name() -> str:
        return new_id().hex

    async def project() -> str:
        return await post("/projects", "project/id", canonicalId=new_id().hex)

    async def joined_project() -> str:
        joined = await project()
        await post(f"/projects/{joined}/join", "project/id", into=await project())
        return joined

    async def job(status: str) -> str:
        async with db.system() as conn:
            return str(await insert_job(conn, alice.team_id, alice.project.id, status=status))

    async def run() -> str:
        return str(await _plant_run(db, cast))

    async def threshold() -> str:
        await _plant_run(db, cast)
        return "derive.novelty"

    async def user() -> str:
        name = f"Bob {new_id().hex[-8:]}"
        await visit_as(app, db, alice.team_id, "member", name=name)
        return name

    async def entity() -> str:
        return await post("/entities", "entity/id", projectId=PROJECT, type="technology", name=f"redis_{new_id().hex}")

    async def merged_entity() -> str:
        merged = await entity()
        await post(f"/entities/{merged}/merge", "entity/id", intoId=await entity())
        return merged

    async def entity_relation() -> str:
        return await post(f"/entities/{await entity()}/relations", "relation/id", toId=await entity(), label="uses")

    async def observation(**more: object) -> str:
        return await post("/observations", "observation/number", projectId=PROJECT, title=new_id().hex, **more)

    async def corrected_observation() -> str:
        number = await observation()
        await client.patch(f"/v1/observations/{number}", json={"title": "Money is in euros"}, headers=alice.headers)
        return number

    async def personal() -> str:
        return await post("/observations", "personal/name", scope="user", narrative=new_id().hex)

    async def changed_personal() -> str:
        changed = await personal()
        await client.patch(f"/v1/personal-observations/{changed}", json={"type": "rule"}, headers=alice.headers)
        return changed

    async def turn() -> str:
        return str((await make.turn(project=alice.project)).number)

    async def relation() -> str:
        ends = {"from": await observation(), "to": await observation()}
        return await post("/relations", "relation/id", **ends, relationship="CAUSES")

    async def suggestion() -> str:
        left, right = [(await make.observation(project=alice.project)).id for _ in range(2)]
        return str(await make.suggestion(project=alice.project, left=left, right=right))

    async def waiting_rule(state: str = "pending") -> str:
        made = await make.observation(project=alice.project, type="decision", title=new_id().hex)
        await rows(
            db,
            "INSERT INTO rule_approvals (observation_id, team_id, project_id, state, answered_at)"
            " VALUES (%s, %s, %s, %s, CASE WHEN %s <> 'pending' THEN now() END)",
            *(made.id, made.team_id, made.project_id, state, state),
        )
        return str(made.number)

    async def replay(state: str) -> str:
        number = await rows(
            db,
            "INSERT INTO replays (id, team_id, project_id, number, provider, program, state, session_count, event_count)"
            " SELECT %s, %s, %s, count(*) + 1, 'offline', %s, %s, 1, 1 FROM replays RETURNING number",
            *(new_id(), alice.team_id, alice.project.id, __version__, state),
        )
        return str(number[0]["number"])

    async def replayable_project() -> str:
        session = await post("/sessions/start", "session/id", projectId=PROJECT, externalSessionId=new_id().hex)
        await post("/events", "event/id", projectId=PROJECT, eventType="tool_use", payload={}, serverSessionId=session)
        for change in ("processing', locked_at = now(), locked_by = 'w', worker_id = 0, claim = '0", "failed"):
            done = f"UPDATE observation_generation_jobs SET status = '{change}' WHERE server_session_id = %s RETURNING id"
            assert await rows(db, done, session)
        return PROJECT

    async def remembered_project() -> str:
        await observation()
        return PROJECT

    return {
        "<key>": key,
        "<invitation>": lambda: post("/users/invitations", "invitation/id"),
        "<team>": team,
        "<new name>": new_name,
        "<project>": project,
        "<joined project>": joined_project,
        "<job>": lambda: job("failed"),
        "<queued job>": lambda: job("queued"),
        "<run>": run,
        "<threshold>": threshold,
        "<user>": user,
        "<entity>": entity,
        "<observation>": observation,
        "<expiring observation>": lambda: observation(ttlSeconds=99),
        "<event>": lambda: post("/events", "event/id", projectId=PROJECT, eventType="tool_use", payload={}),
        "<session>": lambda: post("/sessions/start", "session/id", projectId=PROJECT, externalSessionId=new_id().hex),
        "<turn>": turn,
        "<personal>": personal,
        "<pin>": lambda: post("/pins", "pin/number", question=new_id().hex, must=["8443"], projectId=PROJECT),
        "<changed personal>": changed_personal,
        "<corrected observation>": corrected_observation,
        "<replay>": lambda: replay("done"),
        "<running replay>": lambda: replay("running"),
        "<stopped replay>": lambda: replay("stopped"),
        "<taken over replay>": lambda: replay("taken_over"),
        "<replayable project>": replayable_project,
        "<waiting rule>": waiting_rule,
        "<refused rule>": lambda: waiting_rule("rejected"),
        "<relation>": relation,
        "<suggestion>": suggestion,
        "<remembered project>": remembered_project,
        "<merged entity>": merged_entity,
        "<entity relation>": entity_relation,
    }


@pytest.fixture
async def make_given(client: httpx.AsyncClient, db: Db, cast: Cast, makers: dict[str, Callable[[], Awaitable[str]]]) -> MakeGiven:
    """Makes what a verb is given, with new things of Alice's. Her key and Charlie's are each a person's."""
    for person in (cast.alice, cast.charlie):
        await be_a_person(db, person)
    for period, project in (("day", "billing"), ("day", PROJECT)):
        await bound_to(db, cast.alice, project)
        body = {"period": period, "projectId": project, "maxTokens": 9}
        assert (await client.put("/v1/budgets", json=body, headers=cast.alice.headers)).status_code == 201

    async def make(verb: Verb) -> Given:
        await rows(db, "UPDATE teams SET archived_at = NULL RETURNING id")  # a command archives Alice's
        made = {field: await makers[str(value)]() for field, value in GIVEN[name(verb)].items() if str(value) in makers}
        given = {**GIVEN[name(verb)], **made}
        body = {"period": "day", "projectId": PROJECT, "maxTokens": 9}  # one test removes it
        await client.put("/v1/budgets", json=body, headers=cast.alice.headers)
        return given

    return make


async def _plant_run(db: Db, cast: Cast) -> UUID:
    """A run of Alice's steward that has changed a threshold."""
    run_id, change_id, team_id = new_id(), new_id(), cast.alice.team_id
    effects = [{"kind": "policy_changed", "policyKey": "derive.novelty", "policyChangeId": str(change_id)}]
    async with db.system() as conn:
        job_id = await insert_job(conn, team_id, cast.alice.project.id, "policy_tune")
        await conn.execute(
            "INSERT INTO steward_runs (id, team_id, project_id, job_id, job_type, attempt, status, completed_at, output_snapshot)"
            " VALUES (%s, %s, %s, %s, 'policy_tune', 1, 'succeeded', now(), %s)",
            (run_id, team_id, cast.alice.project.id, job_id, Jsonb({"effects": effects})),
        )
        await conn.execute(
            "INSERT INTO steward_policy_history"
            " (id, team_id, run_id, policy_key, prior_value, new_value, reason, sample_size, evidence, changed_by, created_at)"
            " VALUES (%s, %s, %s, 'derive.novelty', 0.5, 0.6, 'tuned', 9, '{}', 'steward', clock_timestamp())",
            (change_id, team_id, run_id),
        )
    return run_id


@pytest.fixture
def doors(client: httpx.AsyncClient, cms: Cms) -> Doors:
    return Doors(client, cms)


async def stored(db: Db) -> list[dict[str, Any]]:
    """What verbs may change."""
    others = """
        SELECT to_jsonb(m) AS it FROM team_members m UNION ALL SELECT to_jsonb(i) FROM invitations i
        UNION ALL SELECT to_jsonb(b) FROM budgets b UNION ALL SELECT to_jsonb(k) FROM pins k
        UNION ALL SELECT to_jsonb(y) FROM replays y
        UNION ALL SELECT to_jsonb(u) FROM users u
        UNION ALL SELECT to_jsonb(e) FROM entities e UNION ALL SELECT to_jsonb(r) FROM entity_relations r
        UNION ALL SELECT to_jsonb(v) FROM project_overviews v UNION ALL SELECT to_jsonb(o) FROM observations o
        UNION ALL SELECT to_jsonb(h) FROM observation_versions h UNION ALL SELECT to_jsonb(n) FROM observation_relationships n
        UNION ALL SELECT to_jsonb(s) FROM consolidation_suggestions s UNION ALL SELECT to_jsonb(p) FROM personal_observations p
        UNION ALL SELECT to_jsonb(w) FROM server_sessions w UNION ALL SELECT to_jsonb(t) FROM turns t ORDER BY 1
    """
    return [*await everything(db), *await rows(db, others)]


def test_every_verb_is_given_something():
    assert {name(verb) for verb in VERBS} == GIVEN.keys()


async def test_who_may_is_answered_by_every_door(doors: Doors, cast: Cast, make_given: MakeGiven, sent: list[tuple[object, ...]]):
    for verb in VERBS:
        given = await make_given(verb)
        answered = await doors.ask(verb, given, cast.alice.key)
        assert answered.status_code in verb.answers, (name(verb), answered.text)
        form = next(iter(verb.answers.values()))
        msgspec.json.decode(answered.content, type=form[0] if isinstance(form, tuple) else form)
        for command in verb.commands:
            given = await make_given(verb)
            sent.clear()
            said = await doors.type(verb, command, given, cast.alice.key)
            named = {field: given[field] for field in _fields(verb, command) & given.keys()}
            path, fields = doors.request(verb, {**named, **command.sets})
            assert (said.code, said.out != "", said.err) == (0, True, ""), (command.name, said)
            if _is_of_own_team(verb, command):
                assert sent.pop(0) == ("GET", "/v1/teams", {}), command.name
            assert sent == [(verb.method, path, fields)], command.name


def _is_of_own_team(verb: Verb, command: Command) -> bool:
    return "{team}" in verb.path and all(option.field != "team" for option in command.options)


def _fields(verb: Verb, command: Command) -> set[str]:
    return {*re.findall(r"\{(\w+)", verb.path), *(option.field for option in command.options)}


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, ...]]:
    """Method, path and fields of each request of a command, but for where a page begins and how long it is."""
    seen: list[tuple[object, ...]] = []
    send = Api.send

    async def note(api: Api, method: str, path: str, body: Any = None, *, query: Any = None) -> ApiAnswer:
        given: dict[str, Any] = {**(query or body or {}), "limit": None, "cursor": None}
        fields = msgspec.json.decode(msgspec.json.encode({field: value for field, value in given.items() if value is not None}))
        seen.append((method, path, fields))
        return await send(api, method, path, body, query=query)

    monkeypatch.setattr(Api, "send", note)
    return seen


async def test_who_may_not_is_refused_by_every_door_and_changes_nothing(doors: Doors, cast: Cast, db: Db, make_given: MakeGiven):
    for verb in VERBS:
        if not verb.scope:
            continue
        given = await make_given(verb)
        others = ["admin"] if verb.scope == "*" else [one for one in SCOPES if one not in {verb.scope, "admin", "*"}]
        _, key = await mint(db, cast.alice.team_id, "mallory", scopes=others)
        await _is_refused(doors, verb, given, key, db, 403)


async def test_a_key_of_one_project_is_refused_what_is_the_whole_teams(doors: Doors, cast: Cast, db: Db, make_given: MakeGiven):
    bound = await bound_to(db, cast.alice, "billing")
    whole = [verb for verb in VERBS if verb.whole_team]

    assert len(whole) > 5
    for verb in whole:
        await _is_refused(doors, verb, await make_given(verb), bound.key, db, 403)


async def test_another_teams_things_are_found_by_no_door(doors: Doors, cast: Cast, db: Db, make_given: MakeGiven):
    for verb in VERBS:
        given = await make_given(verb)
        given |= {field: str(cast.alice.project.id) for field in given.keys() & NAMES_A_PROJECT}
        if given.keys() & {"id", "team", "user", "invitation", *NAMES_A_PROJECT} and name(verb) not in NOT_REFUSED:
            await _is_refused(doors, verb, given, cast.charlie.key, db, 404)


async def _is_refused(doors: Doors, verb: Verb, given: Given, key: str, db: Db, status: int) -> None:
    before = await stored(db)
    answered = await doors.ask(verb, given, key)
    assert answered.status_code == status, (name(verb), answered.text)
    for command in verb.commands:
        if status == 404 and _is_of_own_team(verb, command):
            continue
        said = await doors.type(verb, command, given, key)
        assert said.code == ExitCode.FAILURE, (command.name, said)
        assert answered.json()["message"] in said.err, (command.name, said.err)
    assert await stored(db) == before, name(verb)


async def test_what_is_wrong_is_refused_by_its_path_by_every_door_and_changes_nothing(
    doors: Doors, cast: Cast, db: Db, make_given: MakeGiven
):
    tried = 0
    for verb in VERBS:
        given = await make_given(verb)
        before = await stored(db)
        sent: Any = verb.query or verb.body
        if sent is None:
            continue
        if name(verb) not in IGNORES_UNKNOWN:
            unknown = await doors.ask(verb, given, cast.alice.key, wombat="1")
            assert (unknown.status_code, _paths(unknown)) == (400, ["$.wombat"]), (name(verb), unknown.text)
        for field in msgspec.structs.fields(sent):
            if field.name in NAMES_A_PROJECT:
                continue
            wrong = {**given, field.name: _wrong(field.name, field.type)}
            answered = await doors.ask(verb, wrong, cast.alice.key)
            assert (answered.status_code, _paths(answered)) == (400, [f"$.{field.encode_name}"]), (name(verb), answered.text)
            for command in verb.commands:
                if any(
                    option.field == field.name and not isinstance(wrong[field.name], (list, bool)) for option in command.options
                ):
                    said = await doors.type(verb, command, wrong, cast.alice.key)
                    assert said.code == ExitCode.USAGE or _paths(answered)[0] in said.err, (command.name, said)
                    tried += 1
        assert await stored(db) == before, name(verb)
    assert tried > 15


def _paths(answered: httpx.Response) -> list[str]:
    return [issue["path"] for issue in answered.json().get("issues", [])]


def _wrong(field: str, hint: object) -> object:
    if field == "stale":  # null is all that it may be
        return "x"
    type_, metas = plain_type(hint)
    if get_origin(type_) is Literal:
        return "wombat" if "wombat" not in get_args(type_) else ""
    if type_ is bool:
        return "wombat"
    if field in WRONG:
        return WRONG[field]
    if type_ is int or type_ is float:
        return next(int(meta.ge) for meta in metas if meta.ge is not None) - 1
    return "x" * next((meta.max_length + 1 for meta in metas if meta.max_length is not None), 1)
