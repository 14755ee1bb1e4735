"""Secrets are sent through every door, in every field that is kept; then each table and the log are searched for them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import httpx
import psycopg
import pytest
from psycopg import sql
from structlog.testing import capture_logs

from cmserver.base.db import Db
from cmserver.generation.job_notifier import JobNotifier
from cmserver.models.providers.model import Prompt
from cmserver.redaction.named_values import classify_name
from cmserver.redaction.redact import Identifiers
from tests.conftest import Cast
from tests.doors.mcp.test_aliases import rpc
from tests.generation.tools import Outbox, Scripted, completion, each_observed
from tests.redaction.shapes import LETTERS, LOWER_HEX, SHAPES, Shape, made
from tests.redaction.test_shapes import LEFT

Json = dict[str, Any]


class Planted:
    """Makes secrets, and remembers each with the place it was sent to."""

    def __init__(self) -> None:
        self.places: dict[str, str] = {}
        self._number = itertools.count(1)

    def token(self, place: str) -> str:
        forms = [
            "ghp_" + made(36),
            "glpat-" + made(20, LETTERS),
            "whsec_" + made(32),
            "xai-" + made(60),
            "shpat_" + made(32, LOWER_HEX),
        ]
        token = forms[next(self._number) % len(forms)]
        self.places[token] = place
        return token

    def shape(self, shape: Shape, place: str) -> object:
        self.places |= dict.fromkeys(shape.secrets, f"{place} ({shape.name})")
        return shape.payload

    def found_in(self, text: str) -> list[str]:
        """The places of those of which a half or more stands in the text, in either case."""
        low = text.lower()
        return [place for secret, place in self.places.items() if any(half.lower() in low for half in _halves(secret))]


def _halves(secret: str) -> Sequence[str]:
    half = max(6, len(secret) // 2)
    pieces = secret[:half], secret[-half:]
    return [*pieces, *(piece.encode().hex() for piece in pieces)]


@pytest.fixture
def planted() -> Planted:
    return Planted()


async def leaks(db: Db, planted: Planted) -> list[str]:
    """Every column of every row, as text: whatever table there is, and whatever type it has."""
    leaking: list[str] = []
    async with db.system() as conn:
        names = await conn.execute(
            "SELECT c.oid::regclass::text AS name FROM pg_class c"
            " WHERE c.relkind IN ('r', 'm') AND c.relnamespace = 'public'::regnamespace"
        )
        tables = [str(row["name"]) for row in await _dicts(names)]
        assert len(tables) > 25
        for table in tables:
            rows = await conn.execute(sql.SQL("SELECT t::text AS row FROM {} t").format(sql.Identifier(table)))  # pyright: ignore[reportArgumentType]
            for row in await _dicts(rows):
                leaking += [f"{table}: {place}" for place in planted.found_in(str(row["row"]))]
    return sorted(set(leaking))


async def _dicts(cursor: psycopg.AsyncCursor[Any]) -> list[Json]:
    columns = [column.name for column in cursor.description or ()]
    return [row if isinstance(row, dict) else dict(zip(columns, row, strict=True)) for row in await cursor.fetchall()]


def event(planted: Planted, door: str, **more: object) -> Json:
    return {
        "eventType": f"tool_use {planted.token(f'{door} eventType')}",
        "contentSessionId": f"session-{planted.token(f'{door} contentSessionId')}",
        "memorySessionId": planted.token(f"{door} memorySessionId"),
        "platformSource": planted.token(f"{door} platformSource"),
        "sourceEventId": planted.token(f"{door} sourceEventId"),
        "payload": {"tool_input": {"command": f"echo {planted.token(f'{door} payload')}"}, planted.token(f"{door} name"): 1},
        "metadata": {"git_branch": planted.token(f"{door} metadata"), "model": planted.token(f"{door} model")},
        **more,
    }


async def test_no_secret_that_comes_in_at_any_door_is_stored_or_logged(
    client: httpx.AsyncClient, cast: Cast, db: Db, notifier: JobNotifier, planted: Planted
):
    headers, project = cast.alice.headers, str(cast.alice.project.id)

    async def send(method: str, path: str, body: object, more: dict[str, str] | None = None) -> Json:
        answered = await client.request(method, path, json=body, headers={**headers, **(more or {})})
        assert answered.status_code < 300, (path, answered.text)
        assert planted.found_in(answered.text) == [], (path, answered.text)
        return answered.json() if answered.content else {}

    with capture_logs() as logs:
        await send("POST", "/v1/events", event(planted, "events", projectId=project), {"X-Request-Id": planted.token("request id")})
        await send("POST", "/v1/events/batch", [event(planted, f"batch {nth}", projectId=project) for nth in range(3)])
        await send(
            "POST",
            "/v1/sessions/start",
            {
                "projectId": project,
                "externalSessionId": planted.token("start externalSessionId"),
                "contentSessionId": planted.token("start contentSessionId"),
                "agentId": planted.token("start agentId"),
                "agentType": planted.token("start agentType"),
                "platformSource": planted.token("start platformSource"),
                "metadata": {"title": planted.token("start title"), "prompt": f"use {planted.token('start prompt')}"},
            },
        )
        for agent, names in {
            "claude-code": ("SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop", "SessionEnd"),
            "codex": ("SessionStart", "UserPromptSubmit", "PostToolUse", "Stop", "SessionEnd"),
            "gemini": ("SessionStart", "BeforeAgent", "BeforeTool", "AfterTool", "AfterAgent", "SessionEnd"),
        }.items():
            session = f"{planted.token(f'{agent} session_id')}"
            for name in names:
                await send(
                    "POST",
                    f"/v1/hooks/{agent}",
                    {
                        "session_id": session,
                        "hook_event_name": name,
                        "cwd": f"/home/alice/{planted.token(f'{agent} {name} cwd')}",
                        "transcript_path": f"/home/alice/{planted.token(f'{agent} {name} transcript')}.jsonl",
                        "source": "startup",
                        "model": planted.token(f"{agent} {name} model"),
                        "prompt_id": planted.token(f"{agent} {name} prompt_id"),
                        "prompt": f"log in with {planted.token(f'{agent} {name} prompt')}",
                        "prompt_response": planted.token(f"{agent} {name} response"),
                        "last_assistant_message": planted.token(f"{agent} {name} message"),
                        "tool_name": "Read" if agent != "gemini" else "read_file",
                        "tool_use_id": planted.token(f"{agent} {name} tool_use_id"),
                        "agent_id": "",
                        "agent_type": planted.token(f"{agent} {name} agent_type"),
                        "tool_input": {"file_path": f"/srv/{planted.token(f'{agent} {name} file')}.py"},
                        "tool_response": {"stdout": planted.token(f"{agent} {name} stdout")},
                        "reason": "other",
                    },
                    {
                        "X-Cmserver-Git-Remote": f"https://{planted.token(f'{agent} remote')}@github.com/acme/orders.git",
                        "X-Cmserver-Git-Branch": f"fix/{planted.token(f'{agent} branch')}",
                        "X-Cmserver-Delivery": planted.token(f"{agent} {name} delivery"),
                        "X-Cmserver-Changed-Files": planted.token(f"{agent} changed files"),
                    },
                )
        await send(
            "POST",
            "/v1/hooks/codex",
            {"session_id": "s", "hook_event_name": "Stop", "cwd": f"/home/{planted.token('codex root')}/orders"},
            {"X-Cmserver-Root": f"/home/{planted.token('root')}/orders"},
        )
        written = {
            "title": f"Title {planted.token('manual title')}",
            "subtitle": planted.token("manual subtitle"),
            "narrative": f"It is {planted.token('manual narrative')}",
            "facts": [planted.token("manual fact")],
            "concepts": [planted.token("manual concept")],
            "filesRead": [f"src/{planted.token('manual file')}.py"],
            "metadata": {"of": planted.token("manual metadata")},
        }
        added = await send("POST", "/v1/observations", {"projectId": project, **written})
        number = str(added["observation"]["id"])
        await send("PATCH", f"/v1/observations/{number}", {"title": f"New {planted.token('corrected title')}"})
        await send("POST", "/v1/memories", {"projectId": project, "content": f"It is {planted.token('memory')}"})
        await send(
            "POST", "/v1/projects", {"canonicalId": f"acme/{planted.token('project')}", "name": planted.token("project name")}
        )
        for tool, arguments in {
            "observation_add": {"projectId": project, "title": "A title", "content": f"It is {planted.token('mcp content')}"},
            "observation_record_event": event(planted, "mcp", projectId=project),
        }.items():
            answer = await rpc(client, cast.alice, "tools/call", {"name": tool, "arguments": arguments})
            assert answer.status_code == 200, answer.text
            assert 'isError":true' not in answer.text.replace(" ", ""), answer.text
        session_fields = {
            "contentSessionId": planted.token("worker contentSessionId"),
            "platformSource": planted.token("worker platform"),
        }
        await send(
            "POST",
            "/api/sessions/init",
            {
                **session_fields,
                "project": f"orders-{planted.token('worker project')}",
                "prompt": f"use {planted.token('worker prompt')}",
                "customTitle": planted.token("worker title"),
            },
        )
        await send(
            "POST",
            "/api/sessions/observations",
            {
                **session_fields,
                "tool_name": f"Bash {planted.token('worker tool')}",
                "tool_input": {"command": planted.token("worker input")},
                "tool_response": planted.token("worker response"),
                "tool_use_id": planted.token("worker tool_use_id"),
                "cwd": f"/srv/{planted.token('worker cwd')}",
                "agentId": planted.token("worker agentId"),
                "agentType": planted.token("worker agentType"),
            },
        )
        await send("POST", "/api/sessions/summarize", {**session_fields, "last_assistant_message": planted.token("worker message")})
        held = [shape for shape in SHAPES if shape.name not in LEFT]
        for start in range(0, len(held), 50):
            batch = [
                {
                    "projectId": project,
                    "eventType": "tool_use",
                    "sourceEventId": shape.name,
                    "payload": planted.shape(shape, "shape"),
                }
                for shape in held[start : start + 50]
            ]
            await send("POST", "/v1/events/batch", batch)

        def indiscreet(prompt: Prompt) -> Any:
            answer = each_observed(prompt)
            if answer.summary:
                answer.summary.learned = f"the key is {planted.token('summary')}"
            for observation in answer.observations:
                observation.narrative = f"the key is {planted.token('answer')}"
            return completion(answer)

        outbox = Outbox(db, notifier, cast.alice.principal, cast.alice.project)
        assert await (await outbox.hand(Scripted(indiscreet))).work() > 0

    assert await leaks(db, planted) == []
    assert planted.found_in(repr(logs)) == []
    assert len(planted.places) > 250


async def test_two_secrets_as_the_id_of_a_session_are_two_sessions_and_one_is_one(
    client: httpx.AsyncClient, cast: Cast, planted: Planted
):
    first, other = planted.token("one"), planted.token("other")

    async def session(named: str) -> str:
        body = {"projectId": str(cast.alice.project.id), "eventType": "tool_use", "contentSessionId": named, "payload": {"n": 1}}
        answered = await client.post("/v1/events", json={**body, "sourceEventId": f"of {named}"}, headers=cast.alice.headers)
        assert answered.status_code == 201
        return answered.json()["event"]["serverSessionId"]

    assert await session(first) == await session(first)
    assert await session(first) != await session(other)


async def test_an_event_whose_id_is_a_secret_is_stored_once(client: httpx.AsyncClient, cast: Cast, planted: Planted):
    body = {
        "projectId": str(cast.alice.project.id),
        "eventType": "tool_use",
        "sourceEventId": planted.token("id"),
        "payload": {"n": 1},
    }
    sent = [await client.post("/v1/events", json=body, headers=cast.alice.headers) for _ in range(2)]
    another = {**body, "sourceEventId": planted.token("another id")}

    assert len({answered.json()["event"]["id"] for answered in sent}) == 1
    answered = await client.post("/v1/events", json=another, headers=cast.alice.headers)
    assert answered.json()["event"]["id"] != sent[0].json()["event"]["id"]


async def test_a_session_started_under_a_secret_is_the_one_that_its_hooks_mean(
    client: httpx.AsyncClient, cast: Cast, planted: Planted, db: Db
):
    secret = planted.token("session")
    for name in ("SessionStart", "UserPromptSubmit", "Stop"):
        payload = {"session_id": secret, "hook_event_name": name, "cwd": "/srv/orders", "source": "startup", "prompt": "hello"}
        answered = await client.post("/v1/hooks/claude-code", json=payload, headers=cast.alice.headers)
        assert answered.status_code == 200

    async with db.system() as conn:
        (row,) = await _dicts(await conn.execute("SELECT count(*) AS sessions FROM server_sessions"))
    assert row["sessions"] == 1


@pytest.mark.parametrize("given", ["a" * 65, "one two", "id;drop", "é", "<private>x", "", "ghp_" + "a1B2c3D4e5" * 4])
async def test_a_request_id_that_is_more_than_an_id_is_made_anew(client: httpx.AsyncClient, cast: Cast, given: str):
    answered = await client.get("/v1/projects", headers={**cast.alice.headers, "X-Request-Id": given.encode("utf-8")})  # pyright: ignore[reportArgumentType]

    assert answered.headers["x-request-id"] != given
    assert len(answered.headers["x-request-id"]) == 36


def test_a_cleaned_identifier_is_clean_and_fits_where_labels_do(planted: Planted):
    identifiers = Identifiers(b"installation")
    secrets = [planted.token("any") for _ in range(10)] + ["<private>x</private>", "password=hunter" + "2Xy!"]
    for secret in secrets:
        cleaned = identifiers.clean(secret)

        assert cleaned != secret
        assert identifiers.clean(cleaned) == cleaned
        assert len(cleaned) <= 100
        assert classify_name(cleaned) is None
    assert identifiers.clean("toolu_01ABCdefGHIjklMNOpqrSTUv") == "toolu_01ABCdefGHIjklMNOpqrSTUv"
    assert identifiers.clean("fb927459-ad56-45c4-b02a-57879f789c4e") == "fb927459-ad56-45c4-b02a-57879f789c4e"
    assert Identifiers(b"another").clean(secrets[0]) != identifiers.clean(secrets[0])
