"""A walk through every route with somebody else's key: it names what is Alice's, in every way one can name it, and looks at what is
answered and what has changed.

What goes in where is found in the OpenAPI document, and for the tools of MCP in what they take, so that a new one is walked without
anybody adding it here. Only what its parameters mean must be said, in WHAT.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import count
from typing import Any, Literal, LiteralString, cast
from urllib.parse import quote
from uuid import UUID

import httpx
import msgspec
from psycopg import sql
from psycopg.rows import scalar_row
from psycopg.types.json import Jsonb

from cmserver.app import ROUTES
from cmserver.base.db import Db
from cmserver.base.http.operation import Operation
from cmserver.base.ids import new_id
from cmserver.doors.mcp.call import Tool
from cmserver.doors.mcp.tools import TOOLS
from cmserver.ops.openapi.document import build_document
from cmserver.ops.openapi.page import make_example, resolve_reference
from cmserver.ops.openapi.schemas import PREFIX, Schema, strip_null
from tests.conftest import Person, mint
from tests.make import Make
from tests.personal.people import be_a_person
from tests.timeouts import ENOUGH_SECONDS

Kind = Literal[
    "project",
    "team",
    "session",
    "event",
    "job",
    "observation",
    "turn",
    "service_project",
    "steward_run",
    "relation",
    "suggestion",
    "entity",
    "entity_relation",
    "key",
    "user",
    "personal",
    "pin",
    "replay",
]

WHAT: dict[str, Kind] = {
    "project": "project",
    "projectId": "project",
    "projects": "project",
    "project_id": "project",
    "team": "team",
    "teamId": "team",
    "session": "session",
    "sessionId": "session",
    "serverSessionId": "session",
    "event": "event",
    "eventId": "event",
    "job": "job",
    "jobId": "job",
    "jobIds": "job",
    "observation": "observation",
    "observationId": "observation",
    "key": "key",
    "user": "user",
    "userId": "user",
    "actor": "user",
    "actorId": "user",
    "resourceId": "observation",
    "/sessions/{id}": "session",
    "/events/{id}": "event",
    "/jobs/{id}": "job",
    "/runs/{id}": "steward_run",
    "/observations/{id}": "observation",
    "/memories/{id}": "observation",
    "/observation/{id}": "observation",
    "/session/{id}": "observation",
    "/summary/{id}": "observation",
    "id": "observation",
    "ids": "observation",
    "/turns/{id}": "turn",
    "/episodes/{id}": "turn",
    "/summaries/{id}": "observation",
    "sources": "observation",
    "from": "observation",
    "to": "observation",
    "/rules/{id}": "observation",
    "/relations/{id}": "relation",
    "/suggestions/{id}": "suggestion",
    "/entities/{id}": "entity",
    "/entity-relations/{id}": "entity_relation",
    "/projects/{id}": "service_project",
    "intoId": "entity",
    "fromId": "entity",
    "toId": "entity",
    "anchor": "observation",
    "target_id": "observation",
    "source_ids": "observation",
    "from_memory_id": "observation",
    "to_memory_id": "observation",
    "/keys/{id}": "key",
    "/personal-observations/{id}": "personal",
    "/pins/{id}": "pin",
    "/replays/{id}": "replay",
}
"""What a parameter or a field of that name names; `{id}` goes by the path before it."""

NAMES_NOTHING: dict[str, str] = {
    "member": "the name of a member, looked up in the caller's team only",
    "cloneId": "the hook client's own id of a clone, looked up in the caller's project only",
    "invitation": "the id of an invitation, which only its own team can withdraw; tests/doors/web tries it",
    "externalSessionId": "the agent's own id, looked up in the caller's project only",
    "externalId": "the client's own id, looked up in the caller's team only",
    "contentSessionId": "the agent's own id, looked up in the caller's project only",
    "memorySessionId": "the agent's own id; nothing is looked up by it",
    "sourceEventId": "the agent's own id, part of a key that begins with the team",
    "lastEventId": "a place in the stream; what is read from there on is the caller's",
    "agentId": "the agent's own id; nothing is looked up by it",
    "tool_use_id": "the agent's own id, part of a key that begins with the team",
    "toolUseId": "the agent's own id, part of a key that begins with the team",
    "sessionDbId": "a number of the client's own; everybody here has a session of that number",
    "userPrompt": "words",
    "userMessage": "words",
    "canonicalId": "what a project of one's own shall be called",
    "aliases": "what a project of one's own shall be called",
    "eventType": "a word",
    "jobType": "a word",
    "job_type": "a word",
    "policy_key": "the name of a policy that every team has",
    "skipEventTypes": "words",
    "resourceType": "a word",
    "eventsPerMonth": "a number",
    "observationsDays": "a number",
    "eventsDays": "a number",
    "jobLogDays": "a number",
    "withoutKey": "yes or no",
}
"""Fields that sound as if they named something of somebody's, and why they do not."""

BODIES: dict[str, dict[str, object]] = {
    "POST /v1/hooks/{client}": {"hook_event_name": "PostToolUse", "session_id": "an-agents", "tool_name": "Edit"},
    "PATCH /v1/observations/{id}": {"title": "changed"},
    "PATCH /v1/personal-observations/{id}": {"content": "changed"},
    "PATCH /v1/entities/{id}": {"notes": "changed"},
    "PATCH /v1/projects/{project}": {"name": "changed"},
    "PATCH /v1/teams/{team}": {"metadata": {"changed": True}},
    "PUT /v1/budgets": {"maxTokens": 5},
    "POST /v1/pins": {"question": "Which port?", "must": ["8443"]},
    "PUT /v1/pins": {"pins": [{"question": "Which port?", "must": ["8443"]}]},
    "PATCH /v1/pins/{id}": {"lines": 7},
    "PUT /v1/model": {"provider": "openai", "model": "tiny", "baseUrl": "http://127.0.0.1:9/v1"},
    "POST /v1/model/trial": {"provider": "openai", "model": "tiny", "baseUrl": "http://127.0.0.1:9/v1"},
    "POST /v1/timeline": {"anchor": 1, "query": None},
    "POST /v1/why": {"text": "limit = 30"},
    "POST /v1/relations": {"relationship": "CAUSES"},
    "PATCH /v1/suggestions/{id}": {"status": "dismissed"},
    "POST /mcp observation_timeline": {"anchor": 1, "query": None},
    "POST /mcp observation_why": {"text": "limit = 30"},
    "POST /mcp observation_add": {"title": "added"},
    "POST /mcp observation_correct": {"title": "changed"},
}
"""What must be in a body besides what its schema requires."""
QUERIES: dict[str, dict[str, str]] = {
    "DELETE /v1/budgets": {"period": "day"},
    "GET /api/search": {"query": "fixed"},
    "GET /episodes/search": {"q": "fixed"},
    "GET /api/timeline": {"query": "fixed"},
    "GET /api/timeline/by-query": {"query": "fixed"},
    "GET /api/observations/by-file": {"path": "src/book.py"},
}
"""What must be in a query and names nothing of anybody's."""

FOR_WHOLE_TEAMS = {"GET /v1/server", "GET /v1/model", "GET /v1/users", "GET /v1/users/accounts", "GET /v1/users/invitations"}
"""What a key that is bound to a project is refused."""

UNREAD: dict[str, str] = {
    "GET /v1/stream": "it does not end; tests/ops/test_stream.py listens to it",
    "GET /stream": "it does not end; tests/doors/claude_mem/test_worker_stream.py listens to it",
    "GET /api/stats": "it tells how long the server runs",
    "GET /v1/server": "it counts the whole server, for its operator, who has the scope * and no project",
    "GET /v1/model": "as above",
    "GET /v1/users/accounts": "an account is the server's, and its operator asks",
    "GET /v1/analytics": "it counts what the caller was shown, by this walk too",
    "GET /v1/keys/current": "it tells when the caller's key was last used",
    "GET /v1/usage": "it counts the caller's own requests, this one too",
    "GET /v1/audit": "it tells of the caller's own requests",
    "GET /v1/keys": "it tells when the caller's own key was last used",
    "GET /readyz": "it tells of the workers",
    "GET /health": "it tells how long the server runs",
    "GET /api/health": "it tells how long the server runs",
    "GET /v1/doctor": "it tells how long the oldest job waits",
    "GET /v1/info": "it tells how old the oldest job is, and of the workers",
}
"""What does not stay the same while nobody does anything, and why. That it shows nothing of Alice's is looked at all the same."""

ENDLESS = {"/v1/stream", "/stream"}
"""Paths whose answer does not end."""
OF_ONE_NAME = {"/sessions/by-external/{externalId}"}
"""Paths of one thing by a name of the client's own, which are no lists; tests/doors/memory_service/test_service.py."""
NO_KEY_OPENS = {"/metrics"}
"""Paths with a token of their own; tests/ops/test_metrics.py."""

CHANGES_BY_ITSELF = {"last_used_at"}
"""Columns that are written for the one whose row it is, some time after he asked."""
NOT_HERS = {"audit_log", "rate_limits", "usage_counters", "observation_counters"}
"""Tables that are written whoever asks: for the team as a whole, or some time after."""

ONE_AT_A_TIME = {"POST /v1/reindex", "POST /v1/search", "POST /mcp observation_search"}
"""Where a request may name one thing only."""
FIXED = {
    "client": "claude-code",
    "provider": "offline",
    "externalId": "nobodys",
    "sessionDbId": "7",
    "type": "concept",
    "invitation": "01a20d2b-cbf6-7e8f-8d44-5da866c85134",
}
"""Parameters of paths that name nothing of anybody's, and what goes in. Everybody has a session 7 of his own."""
_PROJECT: dict[str, Kind] = {"X-Cmserver-Project": "project"}
HEADERS: dict[str, dict[str, Kind]] = {
    "POST /v1/hooks/{client}": _PROJECT,
    "POST /mcp observation_search": _PROJECT,
    "POST /mcp observation_context": _PROJECT,
    "POST /mcp observation_add": _PROJECT,
    "POST /mcp observation_record_event": _PROJECT,
}
"""Headers that name something, which the document does not tell. To a tool they say it where its arguments do not."""

MARK = "zanzibar"
_SOUNDS = {"id", "project", "team", "session", "event", "job", "observation", "memory", "key", "user", "actor", "alias", "resource"}
_numbers = count(1)


class Way(msgspec.Struct, frozen=True):
    """One way to name a thing of Alice's."""

    hers: str

    def nobodys(self) -> str:
        """A name of the same form that nobody has given; another one each time, since a request may give it to a new project."""
        if re.fullmatch(r"[0-9a-f-]{36}", self.hers):
            return str(new_id())
        if re.fullmatch(r"#?\d+", self.hers):
            return re.sub(r"\d+", str(900_000_000 + next(_numbers)), self.hers)
        return self.hers.replace(MARK, f"nobody{next(_numbers)}") if MARK in self.hers else f"nobody{next(_numbers)}"

    @property
    def is_made_up(self) -> bool:
        """Whether it is a name that people choose, and not an id or a number."""
        return not re.fullmatch(r"#?\d+|[0-9a-f-]{36}", self.hers, re.IGNORECASE)


class Things(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody has, one of each kind."""

    key: str
    project_id: UUID
    own: Mapping[Kind, str]
    ways: Mapping[Kind, Sequence[Way]]


class Slot(msgspec.Struct, frozen=True):
    """Where in a request something is named: in the path, the query, or at these steps in the body."""

    place: str
    name: str
    kind: Kind
    steps: tuple[str | int, ...] = ()


class Stop(msgspec.Struct, frozen=True):
    """One operation, or one tool of MCP, and all that can be named in it. The body of a tool is what it takes as arguments."""

    method: str
    path: str
    slots: list[Slot]
    example: object
    tool: Tool | None = None

    @property
    def name(self) -> str:
        return f"{self.method} {self.path} {self.tool.name}" if self.tool else f"{self.method} {self.path}"

    @property
    def reads(self) -> bool:
        """Whether it changes nothing."""
        return not self.tool.writes if self.tool else self.method == "GET"


class Answered(msgspec.Struct, frozen=True):
    status: int
    body: str

    def without(self, *texts: str) -> Answered:
        """Leaving out what each answer has of its own: the request's id, the time of day, and what was sent."""
        body = re.sub(r'"requestId":"[^"]*"|as of [-0-9 :]+ UTC', "", self.body)
        for text in filter(None, texts):
            body = body.replace(json.dumps(text, ensure_ascii=False)[1:-1], "…")
        return Answered(self.status, body)


# ---- where one can go


def stops(operations: Sequence[Operation] = ROUTES) -> list[Stop]:
    """All operations. AssertionError, in sentences, when WHAT does not say what something names."""
    told = build_document(operations)
    found: list[Stop] = []
    unknown: list[str] = []
    for path, acts in told.paths.items():
        for method, act in acts.items():
            named: list[Named] = [(one.in_, _what_of(one.name, path), one.schema, ()) for one in act.parameters]
            body: object = None
            if act.request_body:
                schema = act.request_body.content["application/json"].schema
                body = make_example(told.components.schemas, "", schema)
                named += [("body", name, inner, steps) for name, inner, steps in _fields(told.components.schemas, schema)]
            found.append(Stop(method.upper(), path, _slots(f"{method.upper()} {path}", path, named, unknown), body))
            if path == "/mcp":
                found += [_stop(tool, unknown) for tool in TOOLS]
    assert not unknown, "\n".join(unknown)
    return found


Named = tuple[str, str, Schema, tuple[str | int, ...]]
"""Where something stands, what it is called, its schema, and the steps to it."""


def _stop(tool: Tool, unknown: list[str]) -> Stop:
    (schema,), schemas = msgspec.json.schema_components(
        [tool.handler.struct], schema_hook=_anything, ref_template=f"{PREFIX}{{name}}"
    )
    named: list[Named] = [("body", name, inner, steps) for name, inner, steps in _fields(schemas, schema)]
    stop = Stop("POST", "/mcp", [], make_example(schemas, "", schema), tool)
    return msgspec.structs.replace(stop, slots=_slots(stop.name, stop.path, named, unknown))


def _anything(_type: object) -> Schema:
    return {"description": "any JSON"}


def _slots(act: str, path: str, named: Sequence[Named], unknown: list[str]) -> list[Slot]:
    """What can be named there; `unknown` gets a sentence for each name that WHAT does not know."""
    slots = [Slot("header", name, kind) for name, kind in HEADERS.get(act, {}).items()]
    for place, name, schema, steps in named:
        kind = WHAT.get(name)
        if kind:
            slots.append(Slot(place, name.rpartition("{")[2].removesuffix("}"), kind, steps))
        elif (place == "path" and name not in FIXED) or (_sounds_like_a_name(name, schema) and name not in NAMES_NOTHING):
            unknown.append(
                f"{act} has {name!r} in its {place}: say in WHAT of tests/house/walk.py what that names, "
                f"or in NAMES_NOTHING why it names nothing of anybody's."
            )
    return slots


def _what_of(name: str, path: str) -> str:
    """`id` alone says nothing: what stands before it does."""
    found = re.search(r"/[\w-]+/\{id\}", path)
    return found[0] if name == "id" and found else name


def _fields(
    schemas: Mapping[str, Schema], given: Schema, steps: tuple[str | int, ...] = ()
) -> Iterator[tuple[str, Schema, tuple[str | int, ...]]]:
    """Every field below the schema, with the way to it; of a list, those of its first item."""
    schema = strip_null(resolve_reference(schemas, strip_null(given)))
    for variant in cast("list[Schema]", schema.get("anyOf", [])):
        yield from _fields(schemas, variant, steps)
    if schema.get("type") == "array":
        yield from _fields(schemas, cast("Schema", schema.get("items", {})), (*steps, 0))
    for name, inner in cast("dict[str, Schema]", schema.get("properties", {})).items():
        is_list = strip_null(inner).get("type") == "array"
        yield name, strip_null(inner), (*steps, name, 0) if is_list else (*steps, name)
        yield from _fields(schemas, inner, (*steps, name))


def _sounds_like_a_name(name: str, schema: Schema) -> bool:
    words = {word.lower().removesuffix("s") for word in re.findall(r"[A-Z]?[a-z]+", name)}
    return schema.get("format") == "uuid" or bool(words & _SOUNDS)


# ---- who has what


async def furnish(client: httpx.AsyncClient, db: Db, make: Make, who: Person, word: str) -> Things:
    """Give somebody a project with something of every kind in it. `word` is in every text of his."""
    headers = who.headers
    canonical = f"github.com/acme/{word}"
    # First of all, for a server knows whose a key is since it was used first.
    personal = await remember_personally(client, db, who, f"Call me {word}.")
    project = (await _made(client, "/v1/projects", headers, {"canonicalId": canonical, "name": f"{word} book"}))["project"]
    project_id = UUID(project["id"])
    session = (
        await _made(
            client,
            "/v1/sessions/start",
            headers,
            {"projectId": canonical, "externalSessionId": f"{word}-session", "metadata": {"prompt": word}},
        )
    )["session"]["id"]
    recorded = await _made(
        client,
        "/v1/events",
        headers,
        {"projectId": canonical, "eventType": "tool_use", "serverSessionId": session, "payload": {"says": word}},
    )
    theirs = msgspec.structs.replace(who.project, id=project_id)
    observation = await make.observation(
        project=theirs,
        title=f"{word} was fixed",
        files_read=["src/book.py"],
        from_event=UUID(recorded["event"]["id"]),
        server_session_id=UUID(session),
    )
    twin = await make.observation(project=theirs, title=f"{word} was fixed again", server_session_id=UUID(session))
    related = {"from": observation.number, "to": twin.number, "relationship": "CAUSES", "context": word}
    relation = (await _made(client, "/v1/relations", headers, related))["relation"]["id"]
    new_entity = {"projectId": canonical, "type": "concept", "notes": word}
    entity, other_entity = [
        (await _made(client, "/v1/entities", headers, {**new_entity, "name": f"{word} {noun}"}))["entity"]["id"]
        for noun in ("book", "shelf")
    ]
    said = {"toId": other_entity, "label": word, "evidence": [observation.number]}
    entity_relation = (await _made(client, f"/v1/entities/{entity}/relations", headers, said))["relation"]["id"]
    new_pin = {"question": f"Where is the {word}?", "must": [word], "projectId": canonical}
    pin = (await _made(client, "/v1/pins", headers, new_pin))["pin"]
    suggestion, steward_job, steward_run, replay = new_id(), new_id(), new_id(), new_id()
    await make.run(project=theirs, model=f"{word}-1", input_tokens=90, cost_usd="0.5")
    budget = await client.put("/v1/budgets", json={"period": "month", "maxTokens": 100, "projectId": canonical}, headers=headers)
    assert budget.status_code == 201, budget.text
    minted, key = await mint(db, who.team_id, f"{word}-user", scopes=["*"], project_id=project_id)
    key_id = str(minted.key_id)
    await be_a_person(db, Person(principal=minted, key=key, project=theirs))  # another one of the team
    async with db.system() as conn:
        # A number that the strangers' own pins do not have.
        await conn.execute("UPDATE pins SET number = number + 500 WHERE id = %s", [pin["id"]])
        await conn.execute(
            "INSERT INTO replays (id, team_id, project_id, number, provider, program, state, session_count, event_count)"
            " VALUES (%s, %s, %s, 700 + (SELECT count(*) FROM replays), 'offline', '1', 'done', 1, 1)",
            [replay, who.team_id, project_id],
        )
        await conn.execute(
            "INSERT INTO replay_lines (id, team_id, replay_id, project_id, server_session_id, observation_id, place, difference,"
            " what, version, before, after) VALUES (%s, %s, %s, %s, %s, %s, 1, 'reworded', 'observation', 0, %s, %s)",
            [new_id(), who.team_id, replay, project_id, session, observation.id, *[Jsonb({"type": "change", "content": word})] * 2],
        )
        await conn.execute(
            "INSERT INTO project_aliases (team_id, alias, project_id) VALUES (%s, %s, %s)", [who.team_id, f"old-{word}", project_id]
        )
        await conn.execute(
            "INSERT INTO team_members (team_id, user_id, role) VALUES (%s, %s, 'member')", [who.team_id, f"{word}-user"]
        )
        await conn.execute(
            "INSERT INTO consolidation_suggestions (id, team_id, project_id, left_id, right_id, similarity, measured_by, reason)"
            " VALUES (%s, %s, %s, least(%s, %s), greatest(%s, %s), 0.9, 'words', 'same')",
            [suggestion, who.team_id, project_id, *[observation.id, twin.id] * 2],
        )
        await conn.execute(
            "INSERT INTO observation_generation_jobs (id, team_id, project_id, lane, source_type, source_id, job_type, payload,"
            " status, outcome, completed_at) VALUES (%s, %s, %s, %s, 'steward', %s, 'recheck', %s, 'completed', 'skipped', now())",
            [steward_job, who.team_id, project_id, project_id, project_id, Jsonb({"trigger": word, "sources": [], "input": {}})],
        )
        await conn.execute(
            "INSERT INTO steward_runs (id, team_id, project_id, job_id, job_type, attempt, status, completed_at)"
            " VALUES (%s, %s, %s, %s, 'recheck', 1, 'succeeded', now())",
            [steward_run, who.team_id, project_id, steward_job],
        )
        cursor = conn.cursor(row_factory=scalar_row)
        team = await (await cursor.execute("SELECT name FROM teams WHERE id = %s", [who.team_id])).fetchone()
    numbered = f"/sessions/{FIXED['sessionDbId']}/init"
    begun = await client.post(numbered, json={"project": canonical, "userPrompt": word}, headers={"X-Api-Key": key})
    assert begun.status_code == 200, begun.text
    async with db.system() as conn:
        cursor = await conn.execute("SELECT id, number FROM turns WHERE project_id = %s ORDER BY number LIMIT 1", [project_id])
        turn_id, turn_number = await cursor.fetchone() or (None, None)
    own: dict[Kind, str] = {
        "project": canonical,
        "team": str(who.team_id),
        "session": session,
        "event": recorded["event"]["id"],
        "job": str(steward_job),
        "observation": str(observation.id),
        "turn": str(turn_id),
        "service_project": str(project_id),
        "steward_run": str(steward_run),
        "relation": relation,
        "suggestion": str(suggestion),
        "entity": entity,
        "entity_relation": entity_relation,
        "key": key_id,
        "user": f"{word}-user",
        "personal": str(personal["id"]),
        "pin": pin["id"],
        "replay": str(replay),
    }
    ways: dict[Kind, list[Way]] = {kind: [Way(one)] for kind, one in own.items()}
    ways["project"] = [
        Way(one)
        for one in (
            str(project_id),
            canonical,
            f"https://{canonical}.git",
            f"git@github.com:acme/{word}.git",
            f"old-{word}",
            f"{word} book",
        )
    ]
    ways["team"].append(Way(str(team)))
    ways["turn"].append(Way(str(turn_number)))
    ways["personal"].append(Way(personal["name"]))
    ways["pin"].append(Way(str(pin["number"] + 500)))
    ways["observation"] += [Way(str(observation.number)), Way(f"#{observation.number}")]
    return Things(key=key, project_id=project_id, own=own, ways=ways)


async def remember_personally(client: httpx.AsyncClient, db: Db, who: Person, text: str) -> Any:
    """Something of somebody's own, with a number that nobody else's has; their key is made a person's where it is nobody's."""
    async with db.system() as conn:
        cursor = await conn.execute("SELECT user_id FROM api_keys WHERE id = %s", [who.principal.key_id])
        (user_id,) = await cursor.fetchone() or (None,)
    user_id = user_id or await be_a_person(db, who)
    async with db.system() as conn:
        await conn.execute(
            "INSERT INTO personal_counters (team_id, user_id, last_number) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING",
            [who.team_id, user_id, 7_000 * next(_numbers)],
        )
    return (await _made(client, "/v1/observations", who.headers, {"scope": "user", "narrative": text}))["personal"]


async def furnish_privately(client: httpx.AsyncClient, db: Db, who: Person, project: str) -> tuple[UUID, dict[Kind, list[Way]]]:
    """Give somebody a private session with MARK in all of it; returns their private place, and what lies in it."""
    headers = {**who.headers, "X-Cmserver-Private": "1"}
    observation, entity = await _say(client, headers, project)
    async with db.system() as conn:
        cursor = await conn.execute("SELECT id FROM teams WHERE private_to = %s", [who.principal.user_id])
        (place,) = await cursor.fetchone() or (None,)
    return UUID(str(place)), await _ways_of(db, UUID(str(place)), who.principal.actor_id, observation, entity)


async def furnish_with_words(client: httpx.AsyncClient, db: Db, who: Person, project: str) -> dict[Kind, list[Way]]:
    """Give somebody a session of the team with MARK in all of it; returns what lies in it."""
    observation, entity = await _say(client, who.headers, project)
    return await _ways_of(db, who.team_id, who.principal.actor_id, observation, entity)


async def _say(client: httpx.AsyncClient, headers: dict[str, str], project: str) -> tuple[Any, Any]:
    """A session with MARK in all of it, an observation by hand, and an entity."""
    for name, said in (
        ("SessionStart", {"source": "startup"}),
        ("UserPromptSubmit", {"prompt": f"Never forget the {MARK}, from now on always call it {MARK}"}),
        ("PostToolUse", {"tool_name": "Bash", "tool_input": {"command": MARK}, "tool_use_id": MARK}),
        ("Stop", {"last_assistant_message": f"The {MARK} is remembered now."}),
    ):
        body = {"hook_event_name": name, "session_id": f"{MARK}-private", **said}
        answered = await client.post("/v1/hooks/claude-code", json=body, headers={**headers, "X-Cmserver-Project": project})
        assert answered.status_code == 200, answered.text
    observation = (await _made(client, "/v1/observations", headers, {"projectId": project, "title": f"{MARK} by hand"}))[
        "observation"
    ]
    entity = await _made(client, "/v1/entities", headers, {"projectId": project, "type": "concept", "name": MARK, "notes": MARK})
    return observation, entity


async def _ways_of(db: Db, team_id: UUID, actor: str, observation: Any, entity: Any) -> dict[Kind, list[Way]]:
    """How to name what the actor said in the team."""
    async with db.system() as conn:
        ids: dict[Kind, list[str]] = {
            "observation": [observation["id"], str(observation["number"])],
            "entity": [entity["entity"]["id"]],
        }
        queries: dict[Kind, LiteralString] = {
            "session": "SELECT id::text FROM server_sessions WHERE team_id = %(team)s AND actor_id = %(actor)s",
            "event": "SELECT id::text FROM agent_events WHERE team_id = %(team)s AND server_session_id IN"
            " (SELECT id FROM server_sessions WHERE actor_id = %(actor)s)",
            "job": "SELECT id::text FROM observation_generation_jobs WHERE team_id = %(team)s AND actor_id = %(actor)s",
            "turn": "SELECT unnest(ARRAY[id::text, number::text]) FROM turns WHERE team_id = %(team)s AND actor_id = %(actor)s",
        }
        for kind, query in queries.items():
            cursor = await conn.execute(query, {"team": team_id, "actor": actor})
            ids[kind] = [str(row[0]) for row in await cursor.fetchall()]
    ids["session"].append(f"{MARK}-private")
    return {kind: [Way(one) for one in found] for kind, found in ids.items()}


async def _made(client: httpx.AsyncClient, path: str, headers: dict[str, str], body: object) -> Any:
    answered = await client.post(path, json=body, headers=headers)
    assert answered.status_code in {200, 201}, answered.text
    return answered.json()


async def set_apart(db: Db, team_id: UUID) -> None:
    """From now on the team's observations have numbers that no other team's have, and its limits are far away."""
    async with db.system() as conn:
        await conn.execute(
            "INSERT INTO observation_counters (team_id, last_number) VALUES (%s, 5000) "
            "ON CONFLICT (team_id) DO UPDATE SET last_number = greatest(observation_counters.last_number, 5000)",
            [team_id],
        )
        await conn.execute("UPDATE api_keys SET requests_per_minute = NULL")


# ---- going there


class Walker:
    """Somebody with a key, and with things of his own to fill in where a request needs more than one."""

    def __init__(self, client: httpx.AsyncClient, key: str | None, own: Mapping[Kind, str], *, is_private: bool = False) -> None:
        self._client = client
        self._key = key
        self._is_private = is_private
        self.own = own

    async def send(self, stop: Stop, slot: Slot | None = None, value: str | None = None) -> Answered:
        """The operation with the value in the slot, and his own things in the others that are needed."""
        return await self.send_values(stop, {} if slot is None or value is None else {slot: value})

    async def send_values(self, stop: Stop, values: Mapping[Slot, str]) -> Answered:
        """The operation with these values in their slots, and his own things in the others that are needed."""
        path, query, headers = stop.path, dict(QUERIES.get(stop.name, {})), dict[str, str]()
        body: Any = json.loads(json.dumps(stop.example))
        if stop.name in BODIES:
            body |= BODIES[stop.name]
        for one in stop.slots:
            given = values.get(one, self.own[one.kind])
            if one.place == "path":
                path = path.replace(f"{{{one.name}}}", quote(given, safe=""))
            elif one in values:
                if one.place == "query":
                    query[one.name] = given
                elif one.place == "header":
                    headers[one.name] = given
                else:
                    if isinstance(one.steps[0], str) != isinstance(body, dict):  # the other form of a body that has two
                        body = {} if isinstance(one.steps[0], str) else [{}]
                    _put(body, one.steps, _as_sent(given))
            elif one.place == "body" and _holds(body, one.steps):
                is_said = stop.tool is not None and any(slot.place == "header" and slot.kind == one.kind for slot in values)
                if is_said or (stop.name in ONE_AT_A_TIME and values):
                    body.pop(one.steps[0])
                else:
                    _put(body, one.steps, given)
        for name, value in FIXED.items():
            path = path.replace(f"{{{name}}}", value)
        if self._key is not None:
            headers["Authorization"] = f"Bearer {self._key}"
        if self._is_private:
            headers["X-Cmserver-Private"] = "1"
        if stop.tool:
            headers |= {"Host": "localhost", "Accept": "application/json"}
            params = {"name": stop.tool.name, "arguments": body}
            body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        request = self._client.request(stop.method, path, params=query or None, json=body, headers=headers)
        answered = await asyncio.wait_for(request, ENOUGH_SECONDS)
        return _of_tool(answered) if stop.tool else Answered(answered.status_code, answered.text)


def _of_tool(answered: httpx.Response) -> Answered:
    """With a status as REST would have said it."""
    if answered.status_code in {401, 429}:
        return Answered(answered.status_code, answered.text)
    assert answered.status_code == 200, answered.text
    result = answered.json().get("result")
    if result is None:
        return Answered(400, answered.text)
    text = result["content"][0]["text"]
    missing = re.match("There is no|[A-Z][a-z]+ not found", text)
    return Answered((404 if missing else 400) if result["isError"] else 200, text)


def _as_sent(given: str) -> object:
    return int(given) if given.isdigit() else given


def _holds(body: Any, steps: Sequence[str | int]) -> bool:
    for step in steps:
        if (isinstance(step, int) and len(body) > step) or step in body:
            body = body[step]
        else:
            return False
    return True


def _put(body: Any, steps: Sequence[str | int], value: object) -> None:
    *way, last = steps
    for step, following in zip(way, steps[1:], strict=True):
        if isinstance(step, str):
            body.setdefault(step, [None] if following == 0 else {})
        body = body[step]
    body[last] = value


async def rows_of(db: Db, team_id: UUID, *, but_project: UUID | None = None) -> dict[str, str]:
    """A sum over all rows of the team in each table; without those of one of its projects, where a table knows projects."""
    sums: dict[str, str] = {}
    async with db.system() as conn, conn.cursor(row_factory=scalar_row) as cursor:
        for table, column, has_project in await _tables(db):
            if table in NOT_HERS or (but_project and not has_project and table != "teams"):
                continue
            condition = sql.SQL("{} = {}").format(sql.Identifier(column), team_id)
            if but_project and has_project:
                condition += sql.SQL(" AND project_id IS DISTINCT FROM {}").format(but_project)
            columns = sql.SQL("SELECT to_jsonb(t) - {}::text[] AS r FROM {} t").format(
                sorted(CHANGES_BY_ITSELF), sql.Identifier(table)
            )
            total = sql.SQL("SELECT md5(string_agg(r::text, '\n' ORDER BY r::text)) FROM ({} WHERE {}) x").format(
                columns, condition
            )
            await cursor.execute(total)
            sums[table] = str(await cursor.fetchone())
    return sums


async def _tables(db: Db) -> list[tuple[str, str, bool]]:
    """Every table with a team: its name, the column of the team, and whether it knows projects."""
    async with db.system() as conn:
        cursor = await conn.execute(
            """
            SELECT c.relname, a.attname,
                   EXISTS (SELECT FROM pg_attribute p WHERE p.attrelid = c.oid AND p.attname = 'project_id')
              FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
             WHERE c.relkind IN ('r', 'p') AND c.relnamespace = 'public'::regnamespace AND NOT a.attisdropped
               AND (a.attname = 'team_id' OR (c.relname = 'teams' AND a.attname = 'id'))
             ORDER BY c.relname
            """
        )
        return [(str(row[0]), str(row[1]), bool(row[2])) for row in await cursor.fetchall()]


async def complaints(
    walker: Walker, theirs: Things, every: Sequence[Stop], db: Db, team_id: UUID, *, but_project: UUID | None = None
) -> list[str]:
    """What is wrong, in sentences, when the walker names everything that is theirs, everywhere.

    `but_project` is his when he has a key of the same team for another project: then the team's name is no secret, and what is his
    may change.
    """
    before = await rows_of(db, team_id, but_project=but_project)
    said: list[str] = []
    later: list[tuple[Stop, Slot, Way]] = []
    for stop in every:
        for slot in stop.slots:
            for way in theirs.ways[slot.kind]:
                name = way.nobodys()
                nobodys = await walker.send(stop, slot, name)
                if nobodys.status < 300 and way.is_made_up and slot.kind in {"project", "user"} and not stop.reads:
                    later.append((stop, slot, way))  # it makes something of that name for him, and the next request would find that
                    continue
                hers = await walker.send(stop, slot, way.hers)
                what = f"{stop.name} with {slot.name}={way.hers}"
                if but_project and slot.kind in {"team", "user"}:
                    continue
                said += [f"{what} shows {one}" for one in shown(hers.without(way.hers), theirs)]
                if not (hers.status == nobodys.status < 300 and not stop.reads):  # what one makes has ids of its own
                    said += _compared(what, hers.without(way.hers), nobodys.without(name))
        after = await rows_of(db, team_id, but_project=but_project)
        said += [f"{stop.name} changed {table}" for table, total in after.items() if total != before.get(table)]
        before = after
    for stop, slot, way in later:
        hers = await walker.send(stop, slot, way.hers)
        said += [
            f"{stop.name} with {slot.name}={way.hers} shows {one}"
            for one in shown(hers.without(way.hers, theirs.own["project"]), theirs)
        ]
    after = await rows_of(db, team_id, but_project=but_project)
    return [*said, *(f"a request that makes a project changed {table}" for table, total in after.items() if total != before[table])]


def _compared(what: str, hers: Answered, nobodys: Answered) -> Iterator[str]:
    if nobodys.status in {400, 405, 500} and hers.status == nobodys.status and not _refuses_form(nobodys):
        yield f"{what} is no request that the route takes; add to BODIES of tests/house/walk.py: {nobodys.status} {nobodys.body}"
    elif _without_suggestion(hers) != _without_suggestion(nobodys):
        yield f"{what} answers {hers.status} {hers.body[:300]}, but for what does not exist {nobodys.status} {nobodys.body[:300]}"


def _without_suggestion(answered: Answered) -> Answered:
    """Without project names: the walk makes projects of his, and what it invents is near to those. `shown` looks for hers."""
    return Answered(answered.status, re.sub(r' Did you mean [^"?]*\?', "", answered.body))


def _refuses_form(answered: Answered) -> bool:
    """Whether it is only that a thing cannot be named in this way there: by a number or by a name where only ids are taken."""
    return answered.status == 400 and bool(
        re.search(r"Expected `(uuid|str|int)|Invalid UUID|encoded date|uuid|one of|numbers of observations", answered.body)
    )


def shown(answered: Answered, theirs: Things) -> list[str]:
    """What of theirs stands in the answer."""
    secrets = [MARK, *(one for kind, one in theirs.own.items() if kind not in {"team", "user"}), str(theirs.project_id)]
    return [one for one in secrets if one in answered.body]


async def ask(walker: Walker, stop: Stop, slot: Slot | None, theirs: Things) -> Answered:
    """The operation with what is theirs in the slot, by its id; without a slot, with his own. What was sent is left out."""
    value = theirs.ways[slot.kind][0].hers if slot else ""
    return (await walker.send(stop, slot, value)).without(value)


async def seen_in_lists(walker: Walker, every: Sequence[Stop]) -> dict[str, Answered]:
    """The answer of everything that can be read without naming anything."""
    seen: dict[str, Answered] = {}
    for stop in every:
        if (
            stop.reads
            and stop.path not in ENDLESS | NO_KEY_OPENS | OF_ONE_NAME
            and not any(slot.place == "path" for slot in stop.slots)
        ):
            answered = await walker.send(stop)
            for slot in stop.slots:
                if answered.status == 400 and slot.kind == "project":
                    answered = await walker.send(stop, slot, walker.own["project"])
            seen[stop.name] = answered.without()
    return seen


@asynccontextmanager
async def removed_policy(db: Db, table: str) -> AsyncGenerator[None]:
    """The table without row-level security, for the moment."""
    async with db.system() as conn:
        await conn.execute(sql.SQL("ALTER TABLE {} DISABLE ROW LEVEL SECURITY").format(sql.Identifier(table)))
    try:
        yield
    finally:
        async with db.system() as conn:
            await conn.execute(sql.SQL("ALTER TABLE {} ENABLE ROW LEVEL SECURITY").format(sql.Identifier(table)))
