"""Agents' hooks go on while the database changes its primary and an API host is cut off: each event is stored once, in order."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import msgspec
import pytest

from cmserver.client import connections
from tests.cluster.conftest import Site
from tests.process.program import command, measured, rows
from tests.process.test_hooks_survive import STORED, Agent, Stored, check, client_of, curl_with_notes, start_sessions_until_sent

pytestmark = pytest.mark.slow

AGENTS = 3


def work_until(stopping: threading.Event, agent: Agent, calls_a_session: int) -> int:
    """Sessions one after the other; how many."""
    sessions = 0
    while not stopping.is_set():
        for call in agent.session(f"{agent.name}-{sessions}", calls_a_session):
            assert call.code == 0
        sessions += 1
    return sessions


def test_hooks_go_on_through_a_switchover_a_dead_primary_and_a_host_that_is_cut_off(site: Site, chance: Random, tmp_path: Path):
    api, home = site.api_hosts[0], tmp_path / "home"
    (home / ".claude").mkdir(parents=True)
    own = {"HOME": str(home), "XDG_CONFIG_HOME": str(home / ".config"), "CLAUDE_CONFIG_DIR": str(home / ".claude")}
    known = {"CMSERVER_URL": site.urls[0], "CMSERVER_KEY": site.key, "CMSERVER_DATA_DIR": str(site.folder / api.name)}
    connected = command(tmp_path, "connect", "claude-code", "--yes", settings={**own, **known})
    assert connected.returncode == 0, connected.stdout + connected.stderr
    path = curl_with_notes(home)
    agents = [Agent(home, f"agent-{number}", path) for number in range(AGENTS)]
    stopping = threading.Event()

    with ThreadPoolExecutor(AGENTS) as pool:
        working = [pool.submit(work_until, stopping, agent, chance.randint(5, 30)) for agent in agents]
        try:
            time.sleep(chance.uniform(1, 3))
            site.cluster.switch_over()
            site.cluster.wait_until_whole()
            lost = site.cluster.primary
            lost.kill()
            assert site.cluster.primary is not lost
            lost.start_patroni()
            site.cluster.wait_until_whole()
            api.cut()
            time.sleep(chance.uniform(3, 6))
            api.join()
            time.sleep(chance.uniform(1, 3))
        finally:
            stopping.set()
        sessions = sum(work.result() for work in working)
    waiting = connections.read_spool(client_of(home)).waiting
    last = Agent(home, "last", path)
    start_sessions_until_sent(last, client_of(home))

    state = connections.read_spool(client_of(home))
    measured(f"{sessions} sessions; {waiting} events waited at the end")
    assert (state.waiting, state.dropped, state.refused) == (0, 0, 0)
    ours = {session for agent in [*agents, last] for session in agent.reported}
    stored = [row for row in rows(site.cluster.url(), STORED) if row["session"] in ours]
    check(msgspec.convert(stored, list[Stored]), [*agents, last])
