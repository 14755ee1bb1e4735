"""A server with a team full of what breaks pages, and one with nothing, for the browser tests."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, LiteralString
from uuid import UUID

import httpx
import msgspec

from cmserver.access import repository as access
from cmserver.access.people import repository
from cmserver.access.people.accounts import Accounts
from cmserver.access.people.model import Client
from cmserver.access.people.passwords import Passwords
from cmserver.base.db import Db
from cmserver.base.http.frame import AsgiFrame
from cmserver.base.ids import new_id
from cmserver.base.settings import Settings
from cmserver.generation.job_notifier import JobNotifier
from cmserver.graph.overviews.make import make_due_overviews
from cmserver.graph.overviews.writer import OverviewWriter
from cmserver.graph.read_observations import read_new_observations
from cmserver.models.providers.model import DraftSummary
from cmserver.observations.wire import ObservationIn
from cmserver.personal.keep import write_personal
from cmserver.sessions import repository as sessions
from tests.conftest import Person, make_person, make_team
from tests.doors.web.seed_steward import seed_steward
from tests.doors.web.seed_work import seed_work
from tests.make import Make

PASSWORD = "correct horse battery"
HOSTILE = [
    "<script>alert(1)</script><img src=x onerror=alert(2)>",
    "x" * 5000,
    "\u202egnirts lanoitceridib a\u202c \u0645\u0631\u062d\u0628\u0627 \u05e9\u05dc\u05d5\u05dd",
    "zero\u200bwidth \U0001f469\u200d\U0001f4bb \U0001f9ea {{ 7 * 7 }} {% raw %}",
    '\'; DROP TABLE users; -- "quoted" & <b>bold</b>',
]
"""Texts that break pages which do not escape, wrap or mark them."""
PLAIN = [
    "Orders are charged twice when the payment service is slow",
    "Chose an idempotency key per order, because the provider retries by itself",
    "The nightly export times out after 30 s on the large tenant",
    "Renamed the queue of orders to orders-v2",
    "Tests of payments pass again; the mock had the wrong currency",
]
"""Texts of an ordinary day."""
LONG_NAME = "alice " + "very" * 12


LONG_ROWS = 10_000
_LONG: LiteralString = """
CREATE TEMP TABLE made ON COMMIT DROP AS
SELECT n, gen_random_uuid() AS id, now() - n * interval '1 minute' AS at FROM generate_series(1, %(rows)s) n;
INSERT INTO server_sessions (id, project_id, team_id, external_session_id, title, started_at, created_at)
SELECT id, %(project)s, %(team)s, 'long-' || n, 'Looked at order ' || n || ', charged twice', at, at FROM made;
INSERT INTO observations (id, number, project_id, team_id, server_session_id, origin, type, kind, title, content, created_at)
SELECT gen_random_uuid(), n, %(project)s, %(team)s, id, 'model', 'change', (ARRAY['summary', 'observation'])[1 + n %% 2],
       'Order ' || n || ' is charged once: the key of idempotency stands in the header now', 'Order ' || n, at FROM made;
INSERT INTO observation_generation_jobs (id, project_id, team_id, lane, source_type, source_id, server_session_id, job_type, status,
                                         idempotency_key, attempts, failed_at, last_error, created_at, updated_at)
SELECT gen_random_uuid(), %(project)s, %(team)s, id, 'session_summary', id, id, 'observation_generate_session_summary', 'failed',
       'long:' || n, 3, at, '{"reason": "refused", "message": "The model did not want to."}', at, at FROM made;
INSERT INTO entities (id, team_id, project_id, type, name, folded_name, found_by, mention_count)
SELECT gen_random_uuid(), %(team)s, %(project)s, 'file', 'src/orders/order_' || n, 'src/orders/order_' || n, 'rules', n
  FROM made;
INSERT INTO audit_log (team_id, project_id, actor_id, action, resource_type, resource_id, details, created_at)
SELECT %(team)s, %(project)s, 'ci', 'observations.served', 'project', %(project)s::text, jsonb_build_object('numbers', ARRAY[n]), at
  FROM made;
"""
"""10,000 rows of what is listed, a minute apart."""


class Seed(msgspec.Struct, kw_only=True):
    """The cookies of people, and what they find."""

    full: str
    """The token of an owner, and operator of the server, of the team with everything."""
    headers: dict[str, str]
    """Of the team's agents, with their key."""
    empty: str
    """The token of an owner and operator of the team with nothing."""
    long: str
    """The token of an owner of the team with 10,000 rows in every list."""
    things: dict[str, str]


async def seed_server(app: AsgiFrame, db: Db, api: httpx.AsyncClient, *, hostile: bool = True) -> Seed:
    """Fill the database through the API where it has a way; with texts that break pages, or with plain ones."""
    texts = HOSTILE if hostile else PLAIN
    full = await make_person(
        db, await make_team(db, f"Blue {HOSTILE[0]}" if hostile else "Blue"), "alice", "github.com/acme/orders"
    )
    empty_id = await make_team(db, "nothing yet")
    things = {"project": str(full.project.id)}

    async def ask(method: str, path: str, body: object = None) -> Any:
        answer = await api.request(method, path, json=body, headers=full.headers)
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text[:300]}"
        return answer.json() if answer.content else {}

    await ask("POST", "/v1/projects", {"canonicalId": "github.com/acme/a-project-with-quite-a-long-name", "name": texts[3][:100]})
    numbers: list[int] = []
    for place, text in enumerate(texts):
        session = await _session(ask, f"s{place}", text)
        things.setdefault("session", session)
        observation = await Make(db).observation(
            project=full.project, title=text[:400], narrative=text * 2, facts=[text[:200]], concepts=[text[:80]]
        )
        numbers.append(observation.number)
    things |= {"observation": str(numbers[0]), "second": str(numbers[1]), "third": str(numbers[2])}
    await _add_history(ask, db, full, texts, numbers, things)
    await ask("POST", "/v1/keys", {"name": texts[0][:100], "scopes": ["observations:read"], "actorId": "ci"})
    await ask("POST", "/v1/users/invitations", {"role": "viewer", "note": "w" * 100 if hostile else "Bob from support"})
    things["entity"] = await _add_entities(ask, db, texts)
    for place, on_break in enumerate(("report", "refuse")):
        pinned = {"question": texts[place][:400], "must": [texts[place][:60], texts[place + 1][:200]], "mustNot": [texts[3][:200]]}
        made = await ask("POST", "/v1/pins", {"projectId": "github.com/acme/orders", "onBreak": on_break, "lines": 3, **pinned})
        things["pin"] = str(made["pin"]["number"])
    things["replay"] = await _add_replay(db, things, texts)
    things |= await seed_work(db, app.dependencies.get(JobNotifier), full, texts)
    things |= await seed_steward(db, app.dependencies.get(Settings), full, texts)
    return Seed(
        headers=full.headers,
        full=await _owner(
            app, db, full, LONG_NAME if hostile else "alice", remembers=[*texts, "Answer me in German.", "Keep your answers short."]
        ),
        empty=await _owner(app, db, msgspec.structs.replace(full, principal=_in_team(full, empty_id)), "bob"),
        long=await _long_team(app, db),
        things=things,
    )


async def _long_team(app: AsgiFrame, db: Db) -> str:
    """Make the team with 10,000 rows in every list."""
    person = await make_person(db, await make_team(db, "long lists"), "carol", "github.com/acme/shop")
    values = {"rows": LONG_ROWS, "team": person.team_id, "project": person.project.id}
    async with db.system() as conn:
        for statement in _LONG.split(";\n"):
            if statement.strip():
                await conn.execute(statement, values)
    return await _owner(app, db, person, "carol")


async def _add_entities(ask: Any, db: Db, texts: list[str]) -> str:
    """What the observations name, beside entities by hand that are related; the id of one that is mentioned with many."""
    named = [f"`{name}_orders`" for name in ("retry", "charge", "export", "cancel", "reprice", "audit", "close")]
    for text in texts[:2]:
        about = {"title": f"Changed {', '.join(named)}", "narrative": text[:2000], "filesModified": ["src/payments/charge.py"]}
        await ask("POST", "/v1/observations", {"projectId": "github.com/acme/orders", **about})
    await read_new_observations(db)
    await make_due_overviews(db, OverviewWriter(db, Settings(data_dir=Path())))
    made: list[str] = []
    for text in texts[:2]:
        body = {"projectId": "github.com/acme/orders", "type": "concept", "name": text[:200], "notes": text[:2000]}
        made.append((await ask("POST", "/v1/entities", body))["entity"]["id"])
    found = (await ask("GET", "/v1/entities?project=github.com/acme/orders&search=charge_orders"))["entities"][0]["id"]
    for other in made:
        await ask("POST", f"/v1/entities/{found}/relations", {"toId": other, "label": texts[0][:100]})
    return found


async def _add_replay(db: Db, things: dict[str, str], texts: Sequence[str]) -> str:
    """A replay that would lose, add and reword."""
    told = [json.dumps({"type": "change", "content": text, "title": text[:100], "is_open": True}) for text in texts[:2]]
    async with db.system() as conn:
        await conn.execute(
            """
            WITH session AS (SELECT * FROM server_sessions WHERE id = %(session)s),
            replay AS (
                INSERT INTO replays (id, team_id, number, provider, program, state, reason, session_count, event_count)
                SELECT gen_random_uuid(), team_id, 1, 'offline', '1', 'done', %(text)s, 9, 99 FROM session RETURNING *
            )
            INSERT INTO replay_lines (id, team_id, replay_id, project_id, server_session_id, place, difference, what, before, after)
            SELECT gen_random_uuid(), s.team_id, r.id, s.project_id, s.id, n.place, n.difference, n.what, n.before, n.after
              FROM session s, replay r, (VALUES
                   (1, 'lost', 'observation', %(one)s::jsonb, NULL), (2, 'new', 'summary', NULL, %(two)s::jsonb),
                   (3, 'reworded', 'observation', %(one)s::jsonb, %(two)s::jsonb),
                   (4, 'reworded', 'turn', '{"files": []}', '{"files": ["src/orders.py"], "checks": ["pytest: passed"]}'))
                   AS n(place, difference, what, before, after)
            """,
            {"session": things["session"], "text": texts[0], "one": told[0], "two": told[1]},
        )
    return "1"


async def _add_history(ask: Any, db: Db, person: Person, texts: list[str], numbers: list[int], things: dict[str, str]) -> None:
    """Give the observations a past: a correction, a merge, relations, suggestions, and one that has expired."""
    first = numbers[0]
    await ask("PATCH", f"/v1/observations/{first}", {"narrative": texts[0] + " " + texts[4], "importance": 0.9})
    await ask("POST", "/v1/relations", {"from": first, "to": numbers[1], "relationship": "CAUSES", "context": texts[3]})
    make = Make(db)
    alike = [text for once in PLAIN[:3] for text in (once, f"{once}, as the log of Tuesday shows")]
    paired = alike if texts is PLAIN else [*texts[2:], *texts[:3]]
    pairs = [await make.observation(project=person.project, title=text[:150], narrative=text) for text in paired]
    for one, two in zip(pairs[::2], pairs[1::2], strict=True):
        suggestion = await make.suggestion(project=person.project, left=one.id, right=two.id)
        things["suggestion"] = str(suggestion)
    async with db.system() as conn:
        await conn.execute("UPDATE consolidation_suggestions SET reason = 'contradicts' WHERE id = %s", [things["suggestion"]])
    await ask("POST", f"/v1/observations/{first}/merge", {"sources": [numbers[2]]})
    await ask("POST", f"/v1/observations/{numbers[4]}/expire")
    things |= {"merged": str(numbers[2]), "expired": str(numbers[4])}
    things["told"] = await _session(ask, "told", texts[0])
    for place, state in enumerate((None, "open", "done")):
        about = {
            "title": texts[place][:200],
            "narrative": f"{texts[place][:500]} ({state})",
            "type": "decision" if state is None else "change",
        }
        made = await ask("POST", "/v1/observations", {"projectId": "github.com/acme/orders", **about})
        if state:
            await ask("PATCH", f"/v1/observations/{made['observation']['id']}", {"state": state})
    things["event"] = str((await ask("GET", f"/v1/events?limit=1&session={things['told']}"))["events"][0]["id"])
    async with db.tenant(person.team_id) as conn:
        worked_on = (await sessions.projects_of(conn, person.team_id, [UUID(things["told"])]))[UUID(things["told"])]
        project = await access.project(conn, person.team_id, worked_on)
    assert project is not None
    things["project"] = str(project.id)
    made: Any = {"project": project, "from_event": UUID(things["event"]), "server_session_id": UUID(things["told"])}
    await make.observation(title="Fixed the double charge", type="bugfix", files_modified=["src/payments/charge.py"], **made)
    summary = {"request": texts[0], "learned": texts[1], "next_steps": texts[2]}
    await make.observation(title=None, kind="summary", content=DraftSummary(**summary).text, summary=summary, **made)
    await _session(ask, "told", texts[1])


async def _session(ask: Any, name: str, prompt: str) -> str:
    """A session with a prompt and a tool use; returns its id."""
    hook = {"session_id": name, "cwd": "/home/dev/orders", "transcript_path": "/tmp/t"}
    await ask("POST", "/v1/hooks/claude-code", {**hook, "hook_event_name": "SessionStart", "source": "startup"})
    await ask("POST", "/v1/hooks/claude-code", {**hook, "hook_event_name": "UserPromptSubmit", "prompt": prompt})
    tool = {"tool_name": "Bash", "tool_input": {"command": prompt[:1000]}, "tool_response": {"stdout": prompt}}
    await ask("POST", "/v1/hooks/claude-code", {**hook, "hook_event_name": "PostToolUse", "tool_use_id": name, **tool})
    sessions = (await ask("GET", "/v1/sessions?limit=1"))["sessions"]
    return str(sessions[0]["id"])


def _in_team(person: Person, team_id: Any) -> Any:
    return msgspec.structs.replace(person.principal, team_id=team_id)


async def _owner(app: AsgiFrame, db: Db, person: Person, name: str, *, remembers: Sequence[str] = ()) -> str:
    """The token of a new owner of the person's team, who also runs the server, and what is remembered for them alone."""
    accounts = app.dependencies.get(Accounts)
    password_hash = await Passwords().hash(PASSWORD)
    async with db.system() as conn:
        user = await repository.insert_user(conn, new_id(), name, password_hash=password_hash, is_operator=True)
        await repository.insert_member(conn, person.team_id, user.name, "owner", account_id=user.id)
    own = msgspec.structs.replace(person.principal, kind="person", key_id=None, user_id=user.id, actor_id=user.name)
    for text in remembers:
        await write_personal(db, own, ObservationIn(scope="user", content=text, type="decision"), size_bytes=len(text))
    return await accounts.start_session(Client(address="10.0.0.7", browser="Mozilla/5.0 " + "x" * 200), user_id=user.id)
