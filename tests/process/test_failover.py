"""The primary dies under load and its synchronous standby takes over: nothing acknowledged is lost, and all goes on by itself."""

from __future__ import annotations

import time
from pathlib import Path

import httpx
import pytest

from tests.process.conftest import Run
from tests.process.postgres_nodes import Node
from tests.process.program import QUICK_LEASE, command, measured, number, rows, wait_for, wait_until_settled

pytestmark = pytest.mark.slow

BEFORE, AFTER = 40, 40


def urls(primary: Node, standby: Node) -> dict[str, str]:
    """Settings that name both nodes and take the one that can be written to."""
    end = f"@{primary.host},{standby.host}/cmserver?target_session_attrs=read-write&connect_timeout=3"
    return {
        "CMSERVER_DATABASE_URL": f"postgresql://cmserver{end}",
        "CMSERVER_DATABASE_TENANT_URL": f"postgresql://cmserver_request{end}",
    }


def write(place: int) -> dict[str, object]:
    tool = {"tool_name": "Write", "tool_input": {"file_path": f"/src/orders/f{place}.py", "content": f"limit = {place}\n"}}
    return {
        "projectId": "orders",
        "eventType": "tool_use",
        "contentSessionId": f"s{place % 4}",
        "sourceEventId": f"e{place}",
        "payload": tool,
    }


def send(client: httpx.Client, place: int, acknowledged: set[str]) -> bool:
    answer = client.post("/v1/events", json=write(place))
    assert answer.status_code in {201, 503}, answer.text
    if answer.status_code == 503:
        assert int(answer.headers["retry-after"]) >= 1
        return False
    acknowledged.add(f"e{place}")
    return True


def test_nothing_acknowledged_is_lost_when_the_standby_takes_over(run: Run, nodes: tuple[Node, Node], folder: Path):
    primary, standby = nodes
    settings = {**urls(primary, standby), **QUICK_LEASE, "CMSERVER_API_PROCESSES": "1"}
    api = run("api", "--role", "api", settings=settings)
    api.wait_until_ready()
    worker = run("worker", "--role", "worker", settings={**settings, "CMSERVER_DATA_DIR": str(folder / "worker")})
    worker.wait_until_working()
    acknowledged: set[str] = set()
    with api.http() as client:
        for place in range(BEFORE):
            send(client, place, acknowledged)
        primary.kill()
        killed = time.monotonic()
        wait_for("a refusal", lambda: not send(client, BEFORE, acknowledged))
        standby.promote()
        # Nobody follows the new primary: it must not wait for one.
        standby.execute("ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()")
        wait_for("an event to be taken", lambda: send(client, BEFORE, acknowledged))
        measured(f"events were taken again {time.monotonic() - killed:.1f} s after the primary was killed")
        for place in range(BEFORE + 1, BEFORE + AFTER):
            send(client, place, acknowledged)

    new_primary = f"postgresql://cmserver@{standby.host}/cmserver"
    wait_until_settled(new_primary)
    stored = [row["source_event_id"] for row in rows(new_primary, "SELECT source_event_id FROM agent_events")]
    checked = command(folder, "verify", settings=settings)

    assert acknowledged <= set(stored)
    assert len(stored) == len(set(stored))
    assert number(new_primary, "SELECT count(*) FROM observation_generation_jobs WHERE status <> 'completed'") == 0
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert (api.stop(), worker.stop()) == (0, 0)
