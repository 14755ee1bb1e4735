"""Hosts die, are cut off and come back: what was acknowledged is there, once, and every job ends."""

from __future__ import annotations

import signal
import time
from collections.abc import Collection, Generator, Sequence
from contextlib import contextmanager
from random import Random
from statistics import median

import httpx
import pytest

from tests.cluster import record
from tests.cluster.conftest import Site
from tests.cluster.load import TIMEOUT_SECONDS, Load
from tests.cluster.patroni import SECONDS, TTL_SECONDS
from tests.process.program import QUICK_LEASE, measured, number, rows, wait_for, wait_until_settled
from tests.timeouts import scaled

pytestmark = pytest.mark.slow

FEW = 20
ALIVE = "SELECT count(*) FROM worker_overview WHERE silent_for < make_interval(secs => 2)"
LEASE = float(QUICK_LEASE["CMSERVER_LEASE_SECONDS"])
FAILOVER = TTL_SECONDS + 15.0
"""In so many seconds events are taken again: Patroni gives the role away, and the new primary is found."""
CONNECTIONS = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
LIMIT = "ALTER DATABASE cmserver CONNECTION LIMIT {}"
_EVENTS = "SELECT source_event_id FROM agent_events e JOIN projects p ON p.id = e.project_id WHERE p.name = %(project)s"
_DOUBLED = """
    SELECT count(*) FROM (
        SELECT FROM observation_sources s JOIN projects p ON p.id = s.project_id
         WHERE p.name = %(project)s AND s.agent_event_id IS NOT NULL GROUP BY s.agent_event_id HAVING count(*) > 1) doubled
"""
_OBSERVED = """
    SELECT (SELECT count(*) FROM observation_generation_jobs WHERE outcome = 'observed')
           - (SELECT count(DISTINCT generation_job_id) FROM observation_sources)
"""


@contextmanager
def load(site: Site, project: str, chance: Random, failures: Collection[str] = (), own_urls: Sequence[str] = ()) -> Generator[Load]:
    """Events of the project come in all the while, and some more before the end. What is done to the site is done at any moment.

    Where there are `own_urls`, each of these has a client of its own.
    """
    sent = Load(project, own_urls or site.urls, site.key, chance, failures, stays=bool(own_urls))
    try:
        assert sent.wait_for_more(FEW), sent.answers
        time.sleep(chance.uniform(0, 3))
        yield sent
        assert sent.wait_for_more(FEW), sent.answers
    finally:
        measured(
            f"{project}: {len(sent.acknowledged)} acknowledged, at most {sent.longest_gap():.1f} s without; "
            f"slowest answer {sent.slowest_answer:.1f} s; {dict(sent.answers)}"
        )
        sent.stop()
    site.cluster.wait_until_whole()


@contextmanager
def asynchronous(site: Site) -> Generator[None]:
    """No standby is waited for meanwhile."""
    site.cluster.set_synchronous(False)
    try:
        yield
    finally:
        site.cluster.set_synchronous(True)


def check(site: Site, sent: Load, case: str, seed: int, seconds: float, loses: bool = False) -> set[str]:
    """What was acknowledged is there, once, nobody waited longer than so many seconds, and all programs are well; what is lost."""
    wait_until_settled(site.cluster.url())
    names = [str(row["source_event_id"]) for row in rows(site.cluster.url(), _EVENTS, project=sent.project)]
    lost = set(sent.acknowledged) - set(names)
    doubled = len(names) - len(set(names)) + number(site.cluster.url(), _DOUBLED, project=sent.project)
    outcome = record.Outcome(
        case=case,
        seed=seed,
        acknowledged=len(sent.acknowledged),
        lost=len(lost),
        doubled=doubled,
        median_wait=round(median(sent.waits), 4),
        longest_wait=round(max(sent.waits), 1),
        slowest_answer=round(sent.slowest_answer, 1),
        **record.machine(),
    )
    measured(f"{outcome}")
    record.keep(outcome)
    site.run("verify")
    assert (doubled, loses or lost) == (0, loses or set())
    assert number(site.cluster.url(), "SELECT count(*) FROM observation_generation_jobs WHERE status <> 'completed'") == 0
    assert number(site.cluster.url(), _OBSERVED) == 0
    assert max(sent.waits) <= scaled(seconds)
    wait_for("both API hosts", lambda: all(httpx.get(f"{url}/readyz", trust_env=False).is_success for url in site.urls))
    wait_for("the workers' heartbeats", lambda: number(site.cluster.url(), ALIVE) == len(site.worker_hosts))
    failed = [(program.label, entry) for program in site.started for entry in program.logged("request.failed")]
    assert failed == []
    return lost


def test_a_planned_switchover(site: Site, chance: Random, seed: int):
    with load(site, "switchover", chance) as sent:
        site.cluster.switch_over()

    check(site, sent, "A planned switchover", seed, FAILOVER)


def test_a_primary_that_loses_power(site: Site, chance: Random, seed: int):
    with load(site, "power", chance) as sent:
        lost = site.cluster.primary
        lost.kill()
        assert site.cluster.primary is not lost
        assert sent.wait_for_more(FEW), sent.answers
        lost.start_patroni()

    check(site, sent, "The primary's host loses power", seed, FAILOVER)


def test_a_primary_that_is_cut_off(site: Site, chance: Random, seed: int):
    with load(site, "cut-primary", chance) as sent:
        lost = site.cluster.primary
        lost.host.cut()
        assert site.cluster.primary is not lost
        assert sent.wait_for_more(FEW), sent.answers
        lost.host.join()

    check(site, sent, "The primary's host is cut off from all others, and comes back", seed, FAILOVER)


def test_a_primary_that_is_cut_off_from_its_standbys(site: Site, chance: Random, seed: int):
    with load(site, "cut-standbys", chance) as sent:
        lost = site.cluster.primary
        lost.host.cut_from([node.host for node in site.cluster.nodes if node is not lost])
        wait_for("another primary", lambda: site.cluster.primary is not lost, SECONDS)
        assert sent.wait_for_more(FEW), sent.answers
        lost.host.join()

    check(site, sent, "The primary is cut off from its standbys, not from cmserver", seed, FAILOVER)


def test_a_standby_that_lags_does_not_become_the_primary(site: Site, chance: Random, seed: int):
    with load(site, "lagging", chance) as sent:
        sync, primary = site.cluster.standby, site.cluster.primary
        (lagging,) = [node for node in site.cluster.nodes if node not in (sync, primary)]
        receive = lagging.hold_replication()
        held_at = lagging.received()
        assert sent.wait_for_more(FEW), sent.answers
        primary.kill()
        assert lagging.received() == held_at < sync.received()
        new = site.cluster.primary
        receive(signal.SIGCONT)
        assert sent.wait_for_more(FEW), sent.answers
        primary.start_patroni()

    assert new is sync
    check(
        site, sent, "The primary's host loses power while the other standby lags, which does not become the primary", seed, FAILOVER
    )


def test_a_worker_that_is_cut_off_past_its_lease(site: Site, chance: Random, seed: int):
    host = chance.choice(site.worker_hosts)
    with load(site, "cut-worker", chance) as sent:
        host.cut()
        time.sleep(2 * LEASE)
        assert sent.wait_for_more(FEW), sent.answers
        host.join()

    check(site, sent, "A worker's host is cut off past its lease, and comes back", seed, 5)


def test_an_api_host_that_is_cut_off(site: Site, chance: Random, seed: int):
    host = chance.choice(site.api_hosts)
    with load(site, "cut-api", chance, {"ConnectTimeout", "ReadTimeout", "ConnectError"}) as sent:
        host.cut()
        time.sleep(chance.uniform(0, TIMEOUT_SECONDS))
        assert sent.wait_for_more(FEW), sent.answers
        host.join()

    assert sent.longest_gap() <= scaled(5), "the other host goes on"
    check(site, sent, "One of two API hosts is cut off, and comes back", seed, TIMEOUT_SECONDS + 5)


def test_a_rolling_restart(site: Site, chance: Random, seed: int):
    hosts = [*site.api_hosts, *site.worker_hosts]
    chance.shuffle(hosts)
    with load(site, "restart", chance, {"ConnectError"}) as sent:
        for host in hosts:
            assert site.programs[host.name].stop() == 0
            started = site.start(host)
            started.wait_until_ready() if host in site.api_hosts else started.wait_until_working()

    check(site, sent, "All of cmserver's processes are restarted, one after the other", seed, 5)


def test_a_herd_of_processes_comes_back_with_few_connections(site: Site, chance: Random, seed: int):
    ports = [8081, 8082]
    more = [site.start(host, port) for host in site.api_hosts for port in ports]
    urls = [*site.urls, *(f"http://{host.address}:{port}" for host in site.api_hosts for port in ports)]
    try:
        for program in more:
            program.wait_until_ready()
        site.cluster.primary.execute(LIMIT.format(number(site.cluster.url(), CONNECTIONS)))
        with load(site, "herd", chance, own_urls=urls) as sent:
            lost = site.cluster.primary
            lost.kill()
            assert site.cluster.primary is not lost
            assert sent.wait_for_more(FEW), sent.answers
            lost.start_patroni()
        wait_for("all to be ready", lambda: all(httpx.get(f"{url}/readyz", trust_env=False).is_success for url in urls))
        refusals = sum(program.errors.count("too many connections") for program in site.programs.values())
        measured(f"{refusals} connections were refused")
        assert refusals, "else there were enough"
    finally:
        site.cluster.primary.execute(LIMIT.format(-1))
        for program in more:
            program.end()

    count = len(urls) + len(site.worker_hosts)
    check(
        site,
        sent,
        f"The primary loses power, and {count} processes come back to no more connections than they had",
        seed,
        FAILOVER,
    )


def test_what_an_asynchronous_standby_loses_is_counted(site: Site, chance: Random, seed: int):
    with asynchronous(site), load(site, "asynchronous", chance) as sent:
        lost = site.cluster.primary
        kept = set(sent.acknowledged)
        go_on = [node.hold_replication() for node in site.cluster.nodes if node is not lost]
        assert sent.wait_for_more(FEW), sent.answers
        lost.kill()
        for receive in go_on:
            receive(signal.SIGKILL)
        assert site.cluster.primary is not lost
        assert sent.wait_for_more(FEW), sent.answers
        lost.start_patroni()

    case = f"The primary loses power, and its asynchronous standbys lack the last {FEW} events"
    gone = check(site, sent, case, seed, FAILOVER, loses=True)
    assert gone, "what no standby has is gone: else this shows nothing"
    assert gone & kept == set()


def test_an_asynchronous_switchover_loses_nothing(site: Site, chance: Random, seed: int):
    with asynchronous(site), load(site, "asynchronous-switchover", chance) as sent:
        site.cluster.switch_over()

    check(site, sent, "A planned switchover to an asynchronous standby", seed, FAILOVER)


def test_what_is_lost_when_an_asynchronous_primary_is_cut_off_from_its_standbys_is_counted(site: Site, chance: Random, seed: int):
    with asynchronous(site), load(site, "asynchronous-cut", chance) as sent:
        lost = site.cluster.primary
        kept = set(sent.acknowledged)
        assert sent.wait_for_more(FEW), sent.answers
        lost.host.cut_from([node.host for node in site.cluster.nodes if node is not lost])
        wait_for("another primary", lambda: site.cluster.primary is not lost, SECONDS)
        assert sent.wait_for_more(FEW), sent.answers
        lost.host.join()

    case = "The primary is cut off from its asynchronous standbys, not from cmserver"
    gone = check(site, sent, case, seed, FAILOVER, loses=True)
    assert gone, "until it gives its role up it acknowledges what no standby has: else this shows nothing"
    assert gone & kept == set()
