"""Hosts die, are cut off and come back: what was acknowledged is there, once, and every job ends."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager

import pytest

from tests.cluster.conftest import Site
from tests.cluster.load import Load
from tests.process.program import QUICK_LEASE, measured, number, rows, wait_for, wait_until_settled

pytestmark = pytest.mark.slow

FEW = 20
ALIVE = "SELECT count(*) FROM worker_overview WHERE silent_for < make_interval(secs => 2)"
LEASE = float(QUICK_LEASE["CMSERVER_LEASE_SECONDS"])


@contextmanager
def load(site: Site, project: str) -> Generator[Load]:
    """Events of the project come in all the while, and some more before the end."""
    sent = Load(project, site.urls, site.key)
    try:
        assert sent.wait_for_more(FEW), sent.answers
        yield sent
        assert sent.wait_for_more(FEW), sent.answers
    finally:
        sent.stop()
    site.cluster.wait_until_whole()
    measured(f"{project}: {len(sent.acknowledged)} acknowledged, at most {sent.longest_gap():.1f} s without; {sent.answers}")


def stored(site: Site, project: str) -> list[str]:
    events = "SELECT source_event_id FROM agent_events e JOIN projects p ON p.id = e.project_id WHERE p.name = %(project)s"
    return [str(row["source_event_id"]) for row in rows(site.cluster.url(), events, project=project)]


def check(site: Site, sent: Load) -> None:
    wait_until_settled(site.cluster.url())
    names = stored(site, sent.project)
    assert sent.wrong_answers() == []
    assert set(sent.acknowledged) - set(names) == set()
    assert len(names) == len(set(names))
    check_jobs(site)


def check_jobs(site: Site) -> None:
    checked = site.verify()
    assert number(site.cluster.url(), "SELECT count(*) FROM observation_generation_jobs WHERE status <> 'completed'") == 0
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_a_planned_switchover(site: Site):
    with load(site, "switchover") as sent:
        site.cluster.switch_over()

    check(site, sent)


def test_a_primary_that_loses_power(site: Site):
    with load(site, "power") as sent:
        lost = site.cluster.primary
        lost.kill()
        assert site.cluster.primary is not lost
        assert sent.wait_for_more(FEW), sent.answers
        lost.start_patroni()

    check(site, sent)


def test_a_primary_that_is_cut_off(site: Site):
    with load(site, "cut-primary") as sent:
        lost = site.cluster.primary
        lost.host.cut()
        assert site.cluster.primary is not lost
        assert sent.wait_for_more(FEW), sent.answers
        lost.host.join()

    check(site, sent)


def test_a_standby_that_lags_does_not_become_the_primary(site: Site):
    with load(site, "lagging") as sent:
        sync, primary = site.cluster.standby, site.cluster.primary
        (lagging,) = [node for node in site.cluster.nodes if node not in (sync, primary)]
        lagging.execute("SELECT pg_wal_replay_pause()")
        assert sent.wait_for_more(FEW), sent.answers
        primary.kill()
        new = site.cluster.primary
        assert sent.wait_for_more(FEW), sent.answers
        primary.start_patroni()

    assert new is sync
    check(site, sent)


def test_a_worker_that_is_cut_off_past_its_lease(site: Site):
    host = site.worker_hosts[0]
    with load(site, "cut-worker") as sent:
        host.cut()
        time.sleep(2 * LEASE)
        assert sent.wait_for_more(FEW), sent.answers
        host.join()

    check(site, sent)
    wait_for("the worker's heartbeat", lambda: number(site.cluster.url(), ALIVE) == len(site.worker_hosts))


def test_an_api_host_that_is_cut_off(site: Site):
    host = site.api_hosts[1]
    with load(site, "cut-api") as sent:
        host.cut()
        assert sent.wait_for_more(FEW), sent.answers
        host.join()
        site.programs[host.name].wait_until_ready()

    check(site, sent)


def test_a_rolling_restart(site: Site):
    with load(site, "restart") as sent:
        for host in [*site.api_hosts, *site.worker_hosts]:
            assert site.programs[host.name].stop() == 0
            started = site.start(host)
            started.wait_until_ready() if host in site.api_hosts else started.wait_until_working()

    check(site, sent)


def test_what_an_asynchronous_standby_loses_is_counted(site: Site):
    site.cluster.set_synchronous(False)
    try:
        with load(site, "asynchronous") as sent:
            lost = site.cluster.primary
            kept = set(sent.acknowledged)
            go_on = [node.hold_replication() for node in site.cluster.nodes if node is not lost]
            assert sent.wait_for_more(FEW), sent.answers
            lost.kill()
            for receive in go_on:
                receive()
            assert site.cluster.primary is not lost
            assert sent.wait_for_more(FEW), sent.answers
            lost.start_patroni()
    finally:
        site.cluster.set_synchronous(True)

    wait_until_settled(site.cluster.url())
    names = stored(site, "asynchronous")
    gone = set(sent.acknowledged) - set(names)
    measured(f"of {len(sent.acknowledged)} acknowledged events {len(gone)} are gone")
    assert gone, "what no standby has is gone: else this shows nothing"
    assert gone & kept == set()
    assert len(names) == len(set(names))
    check_jobs(site)
