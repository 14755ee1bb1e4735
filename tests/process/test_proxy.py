"""Two API hosts behind a proxy, configured as the page says: one dies, and events, streams and MCP go on at the other."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.bench.agents import LEGACY, Connection, Mcp
from tests.bench.world import free_port
from tests.faults.proxy import Proxy
from tests.house.examples import blocks
from tests.house.house import ROOT
from tests.process.conftest import Run
from tests.process.program import Program, wait_for
from tests.process.streams import Stream
from tests.timeouts import scaled

pytestmark = pytest.mark.slow

PAGE = ROOT / "docs" / "howto" / "run-on-several-hosts.md"
EVENTS = 40


@contextmanager
def haproxy(folder: Path, hosts: Sequence[Program]) -> Generator[str]:
    """HAProxy before the hosts, by the page's configuration without TLS; its URL."""
    port = free_port()
    text = page_text("haproxy", hosts).replace("bind :443 ssl crt /etc/haproxy/memory.pem", f"bind 127.0.0.1:{port}")
    file = folder / "haproxy.cfg"
    file.write_text(text + "\n", "utf-8")
    with serving(folder, port, [find("haproxy"), "-db", "-f", str(file)]) as url:
        yield url


@contextmanager
def nginx(folder: Path, hosts: Sequence[Program], leaves: str = "5s") -> Generator[str]:
    """nginx before the hosts, by the page's configuration without TLS, but how long it leaves one that failed; its URL."""
    port = free_port()
    text = page_text("nginx", hosts).replace("listen 443 ssl;", f"listen 127.0.0.1:{port};")
    text = text.replace("fail_timeout=5s", f"fail_timeout={leaves}")
    lines = [line for line in text.splitlines() if "ssl_certificate" not in line]
    temporary = "".join(f"{kind}_temp_path {folder}/{kind}; " for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    file = folder / "nginx.conf"
    file.write_text(
        f"worker_processes 2; daemon off; pid {folder}/nginx.pid; events {{ }}\nhttp {{ access_log off; {temporary}\n"
        + "\n".join([*lines, "}"]),
        "utf-8",
    )
    with serving(folder, port, [find("nginx"), "-e", "stderr", "-c", str(file)]) as url:
        yield url


def find(name: str) -> str:
    """The proxy of this system; bin/test --all installs Debian's."""
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin")
    if found is None:
        pytest.skip(f"needs {name}: as root on Debian, apt-get install {name}")
    return found


def page_text(language: str, hosts: Sequence[Program]) -> str:
    """The page's configuration of a proxy, with the addresses of these hosts."""
    (text,) = [block.text for block in blocks(PAGE.read_text("utf-8")) if block.language == language and "/readyz" in block.text]
    for name, host in zip(("a1", "a2"), hosts, strict=True):
        text = text.replace(f"{name}:37877", urlsplit(host.url).netloc)
    assert "37877" not in text
    return text


@contextmanager
def serving(folder: Path, port: int, words: Sequence[str]) -> Generator[str]:
    """The proxy, running; its URL."""
    with (folder / "proxy.log").open("wb") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log)
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


def start_hosts(run: Run, folder: Path, databases: Sequence[str]) -> list[Program]:
    """Two hosts of the API, each with its way to the database."""
    hosts: list[Program] = []
    for name, url in zip(("first", "second"), databases, strict=True):
        own = {"CMSERVER_DATABASE_URL": url, "CMSERVER_DATA_DIR": str(folder / name), "CMSERVER_API_PROCESSES": "1"}
        hosts.append(run(name, "--role", "api", settings=own))
        hosts[-1].wait_until_ready()
    return hosts


@pytest.mark.parametrize("proxy", [haproxy, nginx])
async def test_a_host_behind_the_proxy_dies_and_clients_go_on_at_the_other(
    run: Run, database: str, folder: Path, proxy: Callable[[Path, Sequence[Program]], AbstractContextManager[str]]
):
    find(proxy.__name__)
    hosts = start_hosts(run, folder, [database, database])
    key, door = hosts[0].key, Mcp(hosts[0].key, LEGACY)
    with proxy(folder, hosts) as url:
        streams = [Stream([url], key, "session.updated") for _ in range(2)]
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
        wait_for("the proxy to say that there is no host", lambda: _status(url) in {502, 503})


async def test_nginx_leaves_a_host_without_its_database_once_somebody_asks(run: Run, database: str, folder: Path):
    find("nginx")
    options = conninfo_to_dict(database)
    line = Proxy(Path(str(options["host"])) / f".s.PGSQL.{options.get('port', 5432)}", 0)
    try:
        hosts = start_hosts(run, folder, [database, make_conninfo(database, host="127.0.0.1", port=line.port)])
        with nginx(folder, hosts, leaves="1h") as url:
            line.refuse(True)
            line.cut()
            wait_for("the host to be without its database", lambda: _status(hosts[1].url) == 503)
            assert [_status(url) for _ in hosts] == [200, 200]
            assert [record(url, hosts[0].key, f"s{place}") for place in range(4)] == [True] * 4
    finally:
        line.close()
