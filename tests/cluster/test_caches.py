"""What is changed at one host is felt at the others: when NOTIFY crosses, also after a failover, and when it is lost."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, cast

import httpx
import pytest

from tests.cluster.conftest import Site
from tests.process.program import measured, number, rows, wait_for, wait_until_settled
from tests.timeouts import scaled

pytestmark = pytest.mark.slow

KEY_SECONDS, POLICY_SECONDS = 2.0, 30.0
"""How long a host goes by what it remembers, when it does not hear of a change; docs/howto/run-on-several-hosts.md says so."""
AT_ONCE = 1.0
SESSIONS = 6
_LISTENERS = "SELECT pid FROM pg_stat_activity WHERE application_name = '' AND client_addr = %(host)s::inet"
_HELD = """
    SELECT count(*) FROM observation_generation_jobs j JOIN generation_lanes l USING (lane) JOIN projects p ON p.id = j.project_id
     WHERE p.name = %(project)s AND l.held_for = 'budget'
"""
_DONE = """
    SELECT count(*) FROM observation_generation_jobs j JOIN projects p ON p.id = j.project_id
     WHERE p.name = %(project)s AND j.status = 'completed'
"""


class Client:
    """A key at a host."""

    def __init__(self, url: str, key: str) -> None:
        self._url, self._key = f"{url}/v1", key

    def ask(self, method: str, path: str, params: dict[str, str] | None = None, **body: object) -> httpx.Response:
        headers, content = {"Authorization": f"Bearer {self._key}"}, body or None
        return httpx.request(
            method, self._url + path, params=params, headers=headers, json=content, timeout=scaled(20), trust_env=False
        )

    def do(self, method: str, path: str, params: dict[str, str] | None = None, **body: object) -> dict[str, Any]:
        answer = self.ask(method, path, params, **body)
        assert answer.is_success, answer.text
        return cast("dict[str, Any]", answer.json())

    def status(self) -> int:
        return self.ask("GET", "/projects").status_code

    def record(self, project: str, session: str = "s") -> dict[str, Any]:
        tool = {"tool_name": "Write", "tool_input": {"file_path": f"/src/{session}.py", "content": "limit = 1\n"}}
        session = f"{project}-{session}"
        return self.do("POST", "/events", projectId=project, contentSessionId=session, eventType="tool_use", payload=tool)


class Team:
    """A new team of one name with its project: its first key at both hosts, and a second one at the second host."""

    def __init__(self, site: Site, name: str) -> None:
        here, there = site.urls
        key = Client(here, site.key).do("POST", "/teams", name=name)["apiKey"]
        self.here, self.there = Client(here, key), Client(there, key)
        second = self.here.do("POST", "/keys", name="second", scopes=["observations:read"])
        self.name, self.second_id, self.second = name, second["id"], Client(there, second["apiKey"])


def felt(change: str, look: Callable[[], bool], limit: float) -> float:
    """The seconds until what was changed is seen; no more than the limit."""
    began = time.monotonic()
    wait_for(change, look)
    seconds = time.monotonic() - began
    measured(f"{change}: felt after {seconds:.2f} s")
    assert seconds <= scaled(limit + 0.5), "with half a second for the looks themselves"
    return seconds


def change_key(team: Team, seconds: float) -> float:
    """Revoke the second key at the first host, once the second host has let it in; when it was felt there."""
    assert team.second.status() == 200
    team.here.do("DELETE", f"/keys/{team.second_id}")
    return felt("a revoked key", lambda: team.second.status() == 403, seconds)


def change_policy(team: Team, seconds: float) -> float:
    """Skip a project's events at the first host, once the second host has taken one; when it was felt there."""
    assert "generationJob" in team.there.record(team.name)
    team.here.do("PATCH", f"/projects/{team.name}", generationPolicy={"skipEventTypes": ["tool_use"]})
    return felt("a project's policy", lambda: "generationJob" not in team.there.record(team.name), seconds)


def change_limit(site: Site, team: Team, seconds: float) -> float:
    """Let the team ask only once a minute, and then as often as it likes; when the second was felt at the second host."""
    limits = ["teams", "limits", team.name, "--operator", "--team", team.name]
    assert team.there.status() == 200
    site.run(*limits, "--requests-per-minute", "1")
    felt("a team's limit", lambda: team.there.status() == 429, seconds)
    site.run(*limits, "--clear")
    return felt("no limit", lambda: team.there.status() == 200, seconds)


def wait_until_ready(site: Site) -> None:
    for url in site.urls:
        wait_for(f"{url} to be ready", lambda url=url: httpx.get(f"{url}/readyz", trust_env=False).is_success)


@contextmanager
def deaf(site: Site, place: int) -> Generator[None]:
    """The API host hears no notification: the processes of PostgreSQL that would send them to it stand still."""
    host = site.api_hosts[place].address
    pids = [cast("int", row["pid"]) for row in rows(site.cluster.url(), _LISTENERS, host=host)]
    assert len(pids) == 1, pids
    os.kill(pids[0], signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pids[0], signal.SIGCONT)


def test_changes_are_felt_at_the_other_host_at_once_also_after_a_switchover(site: Site):
    team = Team(site, "caches")
    change_policy(team, AT_ONCE)
    change_limit(site, team, AT_ONCE)
    change_key(team, AT_ONCE)

    site.cluster.switch_over()
    wait_until_ready(site)
    team = Team(site, "caches-moved")
    change_policy(team, AT_ONCE)
    change_limit(site, team, AT_ONCE)
    change_key(team, AT_ONCE)
    site.cluster.wait_until_whole()


def test_changes_that_a_host_does_not_hear_of_are_felt_when_it_forgets(site: Site):
    team = Team(site, "caches-deaf")
    with deaf(site, 1):
        assert change_key(team, KEY_SECONDS) > 0.1, "it has not heard of it"
    wait_until_ready(site)
    with deaf(site, 1):
        assert change_policy(team, POLICY_SECONDS) > KEY_SECONDS, "it has not heard of it"
    wait_until_ready(site)
    assert team.there.status() == 200
    rows(site.cluster.url(), "UPDATE teams SET requests_per_minute = 1 WHERE name = %(name)s RETURNING id", name=team.name)
    felt("a team's limit that nobody has announced", lambda: team.there.status() == 429, KEY_SECONDS)


def test_a_budget_holds_at_every_worker_at_once(site: Site):
    team = Team(site, "budgets")
    team.there.record("budgets")
    wait_until_settled(site.cluster.url())

    team.here.do("PUT", "/budgets", period="day", projectId="budgets", maxTokens=1)
    for session in range(SESSIONS):
        team.there.record("budgets", str(session))

    wait_for("lanes that are held", lambda: number(site.cluster.url(), _HELD, project="budgets") == SESSIONS)
    assert number(site.cluster.url(), _DONE, project="budgets") == 1
    team.there.do("DELETE", "/budgets", {"period": "day", "project": "budgets"})
    wait_for("all to be done", lambda: number(site.cluster.url(), _DONE, project="budgets") == 1 + SESSIONS)
