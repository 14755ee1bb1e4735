"""How long lists and look-ups take in a database with a million events, beside the same requests in one with a thousand."""

from __future__ import annotations

import time

import httpx

from tests.bench.crowd import Crowd, crowded
from tests.bench.measure import Aim, Figure, percentile, spread
from tests.bench.scale import Scale
from tests.bench.world import World, role

HOW = (
    "`cmserver run --role api` on a database with 1,000,000 events and as many jobs, 20,000 sessions, 200,000 observations "
    "and the logs that belong to them, all of one team and project; the yardstick is the same on a database with a thousandth "
    "of it. Each request is sent 200 times in all, one after the other over one connection; the figure is its p99. `later` is "
    "the eleventh page of 200, reached by its cursor."
)
_AIM = Aim(of="median", at_least=False, bound=25)


def run(world: World, scale: Scale) -> list[Figure]:
    """Each round asks both databases for each of them, in turn."""
    large, small = crowded(world, scale.crowd), crowded(world, max(1000, scale.crowd // 1000))
    with role(world, large.place, "api") as large_port, role(world, small.place, "api") as small_port:
        clients = [_client(crowd, port) for crowd, port in ((large, large_port), (small, small_port))]
        paths = [_paths(crowd, client) for crowd, client in zip((large, small), clients, strict=True)]
        figures = [
            _figure(name, [(client, of[name]) for client, of in zip(clients, paths, strict=True)], scale) for name in paths[0]
        ]
        for client in clients:
            client.close()
    return figures


def _client(crowd: Crowd, port: int) -> httpx.Client:
    return httpx.Client(base_url=f"http://127.0.0.1:{port}", headers={"Authorization": f"Bearer {crowd.place.key}"}, timeout=60)


def _paths(crowd: Crowd, client: httpx.Client) -> dict[str, str]:
    project = crowd.place.project_id
    return {
        "GET /v1/jobs": "/v1/jobs",
        "GET /v1/jobs, later": _later(client, "/v1/jobs?limit=200"),
        "GET /v1/jobs?offset=5000": "/v1/jobs?offset=5000",
        "GET /v1/jobs?status=failed": "/v1/jobs?status=failed",
        "GET /v1/jobs?status=queued": "/v1/jobs?status=queued",
        "GET /v1/jobs?source_type=session_summary": "/v1/jobs?source_type=session_summary",
        "GET /v1/jobs?source_type=observation_reindex (none)": "/v1/jobs?source_type=observation_reindex",
        "GET /v1/projects/{project}/jobs?status=failed": f"/v1/projects/{project}/jobs?status=failed",
        "GET /v1/teams/{team}/jobs": f"/v1/teams/{crowd.place.team_id}/jobs",
        "GET /v1/jobs/{id}": f"/v1/jobs/{crowd.job_id}",
        "GET /v1/jobs/{id}/events": f"/v1/jobs/{crowd.job_id}/events",
        "GET /v1/events/{id}": f"/v1/events/{crowd.event_id}",
        "GET /v1/events/{id}/observations": f"/v1/events/{crowd.event_id}/observations",
        "GET /v1/observations": "/v1/observations",
        "GET /v1/observations, later": _later(client, "/v1/observations?limit=200"),
        "GET /v1/observations?project=": f"/v1/observations?project={project}",
        "GET /v1/observations?session=": f"/v1/observations?session={crowd.session_id}",
        "GET /v1/observations?kind=summary": "/v1/observations?kind=summary",
        "GET /v1/observations?type=bugfix": "/v1/observations?type=bugfix",
        "GET /v1/observations/{number}": f"/v1/observations/{crowd.number}",
        "GET /v1/sessions": "/v1/sessions",
        "GET /v1/sessions?active=true (the bench's own)": "/v1/sessions?active=true",
        "GET /v1/projects": "/v1/projects",
        "GET /v1/keys": "/v1/keys",
        "GET /v1/audit": "/v1/audit",
        "GET /v1/audit?project=": f"/v1/audit?project={project}",
        "GET /v1/audit?action=key.created": "/v1/audit?action=key.created",
        "GET /v1/usage": "/v1/usage",
        "GET /v1/context": f"/v1/context?project={project}",
    }


def _later(client: httpx.Client, path: str) -> str:
    """The page after the tenth."""
    cursor = ""
    for _ in range(10):
        cursor = client.get(f"{path}&cursor={cursor}" if cursor else path).raise_for_status().json()["nextCursor"] or ""
        if not cursor:
            break
    return f"{path}&cursor={cursor}" if cursor else path


def _figure(name: str, asked: list[tuple[httpx.Client, str]], scale: Scale) -> Figure:
    pairs: list[tuple[float, float]] = []
    all_ms: list[float] = []
    for client, path in asked:
        client.get(path).raise_for_status()  # what it needs of the database is in memory now, as it is for what is asked often
    for _ in range(scale.rounds):
        large, small = [_milliseconds(client, path, scale.asked) for client, path in asked]
        pairs.append((percentile(large, 99), percentile(small, 99)))
        all_ms += large
    return Figure(name=name, unit="ms", yardstick="the same among a thousand", pairs=pairs, aim=_AIM, note=spread(all_ms))


def _milliseconds(client: httpx.Client, path: str, times: int) -> list[float]:
    taken: list[float] = []
    for _ in range(times):
        began = time.perf_counter()
        response = client.get(path)
        taken.append((time.perf_counter() - began) * 1000)
        response.raise_for_status()
    return taken
