"""The live stream of the real program: many readers, one who is stuck, and its end."""

from __future__ import annotations

import asyncio
import signal
import socket
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from tests.process.conftest import Run
from tests.process.program import Program, measured, wait_for
from tests.process.readers import allow_connections, reading, request, seconds_until_heard
from tests.timeouts import scaled

pytestmark = pytest.mark.slow

READERS = 500
PER_KEY = 50
HEARD_SECONDS = 5
"""What is promised is one second; on a quiet machine five are enough also beside the other tests."""


def address(program: Program) -> tuple[str, int]:
    parts = urlsplit(program.url)
    assert parts.hostname
    assert parts.port
    return parts.hostname, parts.port


def mint(client: httpx.Client) -> str:
    made = client.post("/v1/keys", json={"label": "reader", "scopes": ["observations:read"]}).raise_for_status()
    return made.json()["apiKey"]


@contextmanager
def stuck_reader(program: Program, key: str) -> Generator[socket.socket]:
    """Asks for the stream and never reads of it."""
    with socket.socket() as opened:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        opened.connect(address(program))
        opened.sendall(request(key))
        yield opened


@pytest.mark.speed
async def test_five_hundred_readers_hear_within_a_second_and_a_stuck_one_is_dropped(run: Run):
    allow_connections(READERS)
    settings = {"CMSERVER_PROVIDER": "offline"}
    program = run("server", settings=settings)
    program.wait_until_ready()
    with program.http() as client:
        keys = [mint(client) for _ in range(READERS // PER_KEY)]
        own = mint(client)
    async with httpx.AsyncClient(base_url=program.url, headers={"Authorization": f"Bearer {program.key}"}) as alice:

        async def start_session(name: str = "s1") -> str:
            body = {"projectId": "orders", "contentSessionId": name}
            return (await alice.post("/v1/sessions/start", json=body)).raise_for_status().json()["session"]["id"]

        await start_session("s0")
        with stuck_reader(program, own) as stuck:
            async with reading(*address(program), keys * PER_KEY) as readers:
                took = await seconds_until_heard(readers, start_session, scaled(HEARD_SECONDS))

                measured(f"{len(took)} readers: the first after {min(took):.3f} s, the last after {max(took):.3f} s")
                assert len(took) == READERS

                # The stuck one's window fills, and then he takes in nothing for longer than he may.
                assert is_connected(program, stuck)
                for place in range(40):
                    await start_session(f"filling {place}")
                took = await seconds_until_heard(readers, lambda: start_session("the last"), scaled(HEARD_SECONDS))
                assert len(took) == READERS
                await asyncio.to_thread(wait_for, "the stuck reader to be dropped", lambda: not is_connected(program, stuck))
        assert program.stop() == 0


def is_connected(program: Program, client: socket.socket) -> bool:
    """Whether the server still has its end of the connection."""
    _, port = address(program)
    ours, theirs = f":{client.getsockname()[1]:04X}", f":{port:04X}"
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any(row[1].endswith(theirs) and row[2].endswith(ours) for row in rows)


def test_asked_to_stop_it_does_not_wait_for_open_streams(run: Run):
    program = run("server")
    program.wait_until_ready()
    with program.http() as client, client.stream("GET", "/v1/stream") as stream:
        texts = stream.iter_text()
        assert next(texts).startswith("retry: ")

        asked_to_stop = time.monotonic()
        program.send(signal.SIGTERM)
        assert [text for text in texts if "event:" in text] == []
        code = program.process.wait(scaled(60))
        took = time.monotonic() - asked_to_stop

    assert code == 0
    assert "timeout graceful shutdown exceeded" not in program.errors
    measured(f"with an open stream it was gone in {took:.2f} s")
