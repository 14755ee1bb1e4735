"""How long each page of the web interface takes, and how heavy it is, in a database with a million events."""

from __future__ import annotations

import time
from typing import LiteralString

import httpx
import psycopg

from cmserver.doors.web.page import Page
from cmserver.doors.web.routes import PAGES
from tests.bench.crowd import Crowd, crowded
from tests.bench.measure import Aim, Figure, percentile, spread
from tests.bench.scale import Scale
from tests.bench.world import World, role

HOW = (
    "`cmserver run --role api` on the database of `lists` (1,000,000 events, as many jobs, 200,000 observations), with a receipt "
    "for each of its 20,000 sessions, a year of costs, 20,000 entities with some 420,000 mentions, and 50,000 runs of the steward. "
    "Each page that the program's routes name is opened by somebody who may see all, one after the other; the figure is the p50, "
    "its yardstick `GET /healthz`; a second line is the weight of the page."
)
_TIME = Aim(of="median", at_least=False, bound=50)
_WEIGHT = Aim(of="median", at_least=False, bound=100)
ENDLESS = {"/ui/live"}
"""Streams, which do not end."""
WITHOUT_ACCOUNT = {"/ui/join/{token}", "/ui/reset/{token}", "/ui/switch/{team}", "/ui/profile"}
"""Pages that a key cannot open: they are for people, or for links that work once."""
QUERIES = {"/ui/jobs/selected": "?act=retry&status=failed"}
"""What a page needs in its address."""

# A year of sessions that were shown something, and of provider calls by three models.
_SHOWN: LiteralString = """
INSERT INTO context_injections (id, team_id, project_id, server_session_id, reason, platform_source, numbers, summary_numbers,
                                left_out, left_out_count, tokens, budget_tokens, chars, created_at)
SELECT gen_random_uuid(), s.team_id, s.project_id, s.id, 'startup', 'claude-code',
       ARRAY(SELECT 1 + (s.n * 37 + i * 101) % (SELECT count(*) FROM observations) FROM generate_series(1, 20) i), '{}', '{}', 0,
       900, 2000, 4000, now() - interval '365 days' * (s.n::float8 / (SELECT count(*) FROM server_sessions))
  FROM (SELECT *, row_number() OVER (ORDER BY started_at DESC) AS n FROM server_sessions) s;
INSERT INTO generation_spending (team_id, day, project_id, provider, model, calls, failed_calls, unpriced_calls, input_tokens,
                                 output_tokens, cache_read_tokens, cache_write_tokens, cost_usd)
SELECT p.team_id, (now() AT TIME ZONE 'UTC')::date - day, p.id, 'anthropic', 'model-' || model, 100, 1, 0, 100000, 9000, 0, 0, 0.5
  FROM projects p, generate_series(0, 364) day, generate_series(1, 3) model
    ON CONFLICT DO NOTHING;
ANALYZE context_injections, generation_spending;
"""

# Each observation mentions its file and its symptom; the first entity is in every tenth. The steward looked at one in four of them.
_GRAPH: LiteralString = """
SET session_replication_role = replica;
INSERT INTO entities (id, team_id, project_id, type, name, folded_name, found_by, mention_count)
SELECT gen_random_uuid(), team_id, project_id, CASE WHEN n % 3 = 0 THEN 'symbol' ELSE 'file' END, 'entity ' || n, 'entity ' || n,
       'rules', 1 + 20000 / n
  FROM (SELECT DISTINCT team_id, project_id FROM observations) o, generate_series(1, 20000) n;
INSERT INTO entity_mentions (observation_id, named_id, entity_id, team_id, project_id, found_by, seen_at)
SELECT o.id, e.id, e.id, o.team_id, o.project_id, 'rules', o.created_at
  FROM observations o CROSS JOIN unnest(ARRAY[1 + o.number % 20000, 1 + o.number % 997, CASE WHEN o.number % 10 = 0 THEN 1 END]) n
  JOIN entities e ON e.folded_name = 'entity ' || n
    ON CONFLICT DO NOTHING;
INSERT INTO observation_generation_jobs (id, team_id, project_id, lane, source_type, source_id, job_type, payload, status, attempts,
                                         outcome, failed_at, completed_at, created_at)
SELECT gen_random_uuid(), team_id, project_id, project_id, 'steward', id, 'recheck', '{"trigger": "change", "sources": []}',
       CASE WHEN number % 400 = 0 THEN 'failed' ELSE 'completed' END, 1, CASE WHEN number % 400 <> 0 THEN 'skipped' END,
       CASE WHEN number % 400 = 0 THEN created_at END, CASE WHEN number % 400 <> 0 THEN created_at END, created_at
  FROM observations WHERE number % 4 = 0;
INSERT INTO steward_runs (id, team_id, project_id, job_id, job_type, attempt, output_snapshot, status, latency_ms, created_at,
                          completed_at)
SELECT gen_random_uuid(), team_id, project_id, id, job_type, 1, '{"decision": "keep", "reasons": ["current"], "proposals": []}',
       CASE status WHEN 'succeeded' THEN 'succeeded' ELSE 'failed' END, 20, created_at, created_at
  FROM steward_jobs;
INSERT INTO observation_generation_job_events (team_id, project_id, generation_job_id, event_type, status_after, details,
                                               created_at)
SELECT team_id, project_id, job_id, 'decision_made', 'processing', jsonb_build_object('run', id), created_at FROM steward_runs;
SET session_replication_role = DEFAULT;
VACUUM ANALYZE entities;
VACUUM ANALYZE entity_mentions;
VACUUM ANALYZE observation_generation_jobs;
VACUUM ANALYZE observation_generation_job_events;
VACUUM ANALYZE steward_runs;
"""
_IN_THE_MIDDLE: LiteralString = """
SELECT (SELECT id FROM entities WHERE name = 'entity 1'),
       (SELECT id FROM steward_runs ORDER BY created_at OFFSET (SELECT count(*) / 3 FROM steward_runs) LIMIT 1)
"""


def parameters(crowd: Crowd) -> dict[str, object]:
    """What stands for each parameter of a page's path; by its whole path where the name alone says too little."""
    return {
        "/ui/jobs/{id}": crowd.job_id,
        "/ui/events/{id}": crowd.event_id,
        "/ui/sessions/{id}": crowd.session_id,
        "id": crowd.number,
        "number": crowd.number,
        "observation": crowd.number,
        "project": crowd.place.project_id,
        "project:path": crowd.place.project_id,
        "session": crowd.session_id,
    }


def page_paths() -> list[str]:
    """Every page of the program's routes that somebody with a key can open, without streams and files."""
    paths = [page.path for page in PAGES if isinstance(page, Page) and page.method == "GET"]
    return [path for path in paths if path not in ENDLESS | WITHOUT_ACCOUNT and not path.endswith(".csv")]


def fill(path: str, values: dict[str, object]) -> str:
    """The path with its parameters; KeyError for one that `parameters` does not know."""
    whole = next((value for start, value in values.items() if path == start or path.startswith(f"{start}/")), None)
    while "{" in path:
        before, _, rest = path.partition("{")
        name, _, after = rest.partition("}")
        path = f"{before}{whole or values[name]}{after}"
    return path


def run(world: World, scale: Scale) -> list[Figure]:
    """Two figures for each page: its time and its weight."""
    crowd = crowded(world, scale.crowd)
    with psycopg.connect(crowd.place.superuser_url, autocommit=True) as conn:
        conn.execute(_SHOWN)
        for statement in _GRAPH.split(";\n"):  # VACUUM stands alone
            conn.execute(statement)
        middle = conn.execute(_IN_THE_MIDDLE).fetchone()
    assert middle is not None
    with (
        role(world, crowd.place, "api") as port,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60, follow_redirects=False) as client,
    ):
        _sign_in(client, crowd.place.key)
        values = {**parameters(crowd), "entity": middle[0], "run": middle[1]}
        return [
            figure for path in page_paths() for figure in _measure(client, fill(path, values) + QUERIES.get(path, ""), path, scale)
        ]


def _sign_in(client: httpx.Client, key: str) -> None:
    answer = client.post("/ui/sign-in/key", data={"key": key})
    assert answer.status_code == 303, answer.text


def _measure(client: httpx.Client, path: str, name: str, scale: Scale) -> list[Figure]:
    answer = client.get(path)
    assert answer.status_code == 200, f"{path}: {answer.status_code} {answer.text[:500]}"
    pairs: list[tuple[float, float]] = []
    taken: list[float] = []
    for _ in range(scale.rounds):
        page, health = (_milliseconds(client, asked, scale.asked) for asked in (path, "/healthz"))
        pairs.append((percentile(page, 50), percentile(health, 50)))
        taken += page
    weight = len(answer.content) / 1000
    return [
        Figure(name=f"GET {name}", unit="ms", yardstick="GET /healthz", pairs=pairs, aim=_TIME, note=spread(taken)),
        Figure(name=f"weight of {name}", unit="kB", yardstick="a kilobyte", pairs=[(weight, 1.0)], aim=_WEIGHT),
    ]


def _milliseconds(client: httpx.Client, path: str, times: int) -> list[float]:
    taken: list[float] = []
    for _ in range(times):
        began = time.perf_counter()
        client.get(path).raise_for_status()
        taken.append((time.perf_counter() - began) * 1000)
    return taken
