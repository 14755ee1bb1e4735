"""Two API hosts behind HAProxy, configured as the page says: one dies, and events, streams and MCP go on at the other."""

from __future__ import annotations

import shutil
import signal
import subprocess
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from tests.bench.agents import LEGACY, Connection, Mcp
from tests.bench.world import free_port
from tests.house.examples import blocks
from tests.house.house import ROOT
from tests.process.conftest import Run
from tests.process.program import Program, wait_for
from tests.timeouts import scaled

pytestmark = pytest.mark.slow

PAGE = ROOT / "docs" / "howto" / "run-on-several-hosts.md"
EVENTS = 40


def haproxy() -> str | None:
    """That of this system; bin/test --all installs Debian's."""
    return shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin")


class Stream:
    """Reads the live stream in a thread: resumes wherever the proxy leads to, and keeps what it has heard."""

    def __init__(self, url: str, key: str) -> None:
        self.heard: list[str] = []
        """The sessions that started, each time that it was said."""
        self.connects = 0
        self._url, self._headers = url, {"Authorization": f"Bearer {key}"}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()

    def _read(self) -> None:
        while not self._stopping.wait(0.1):
            try:
                with httpx.stream(
                    "GET", f"{self._url}/v1/stream?types=session.updated", headers=self._headers, timeout=20, trust_env=False
                ) as answer:
                    self.connects += answer.is_success
                    for line in answer.iter_lines():
                        name, _, value = line.partition(": ")
                        if name == "id":
                            self._headers["Last-Event-ID"] = value
                        elif name == "data":
                            self.heard.append(value)
                        if self._stopping.is_set():
                            return
            except httpx.HTTPError:
                continue


@contextmanager
def proxy(folder: Path, hosts: list[Program]) -> Generator[str]:
    """HAProxy before the hosts, by the page's configuration without TLS; its URL."""
    (text,) = [block.text for block in blocks(PAGE.read_text("utf-8")) if block.language == "haproxy" and "/readyz" in block.text]
    port = free_port()
    bound = text.replace("bind :443 ssl crt /etc/haproxy/memory.pem", f"bind 127.0.0.1:{port}")
    for name, host in zip(("a1", "a2"), hosts, strict=True):
        bound = bound.replace(f"server {name} {name}:37877", f"server {name} {urlsplit(host.url).netloc}")
    assert "37877" not in bound
    assert f"127.0.0.1:{port}" in bound
    file = folder / "haproxy.cfg"
    file.write_text(bound + "\n", "utf-8")
    with (folder / "haproxy.log").open("wb") as log:
        process = subprocess.Popen([haproxy() or "haproxy", "-db", "-f", file], stdout=log, stderr=log)
        try:
            url = f"http://127.0.0.1:{port}"
            wait_for("the proxy", lambda: process.poll() is None and _status(url) == 200)
            yield url
        finally:
            process.terminate()
            process.wait()


def _status(url: str) -> int:
    try:
        return httpx.get(f"{url}/readyz", timeout=scaled(5), trust_env=False).status_code
    except httpx.HTTPError:
        return 0


def record(url: str, key: str, name: str) -> bool:
    """Whether an event of a session of its own was taken."""
    body = {"projectId": "orders", "eventType": "tool_use", "contentSessionId": name, "sourceEventId": name, "payload": {"n": name}}
    headers = {"Authorization": f"Bearer {key}"}
    answer = httpx.post(f"{url}/v1/events", json=body, headers=headers, timeout=scaled(20), trust_env=False)
    assert answer.status_code in {200, 201, 502, 503}, answer.text
    return answer.is_success


async def test_a_host_behind_the_proxy_dies_and_clients_go_on_at_the_other(run: Run, database: str, folder: Path):
    if haproxy() is None:
        pytest.skip("needs HAProxy: as root on Debian, apt-get install haproxy")
    settings = {"CMSERVER_DATABASE_URL": database, "CMSERVER_API_PROCESSES": "1"}
    hosts = [run("first", "--role", "api", settings=settings)]
    hosts[0].wait_until_ready()
    hosts.append(run("second", "--role", "api", settings={**settings, "CMSERVER_DATA_DIR": str(folder / "second")}))
    hosts[1].wait_until_ready()
    key, door = hosts[0].key, Mcp(hosts[0].key, LEGACY)
    with proxy(folder, hosts) as url:
        streams = [Stream(url, key), Stream(url, key)]
        wait_for("both streams", lambda: all(stream.connects for stream in streams))
        agent = Connection(urlsplit(url).port or 0)
        for request in door.opening():
            assert door.refusal(await agent.ask(request)) is None

        for place in range(EVENTS):
            if place == EVENTS // 2:
                hosts[0].send(signal.SIGKILL)
            wait_for("the event to be taken", lambda name=f"s{place}": record(url, key, name))
        search = door.call("observation_search", {"projectId": "orders", "query": "anything"})
        assert door.refusal(await agent.ask(search)) is None

        wait_for("all sessions, in each stream", lambda: all(len(stream.heard) >= EVENTS for stream in streams))
        for stream in streams:
            stream.stop()
        assert [len(stream.heard) for stream in streams] == [EVENTS, EVENTS], "each once"
        assert sorted(stream.connects for stream in streams) == [1, 2], "one of the two was at the host that died"
        assert _status(url) == 200
        agent.close()
        hosts[1].send(signal.SIGKILL)
        wait_for("the proxy to say that there is no host", lambda: _status(url) == 503)
