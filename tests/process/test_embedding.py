"""Embedding in the real program: what a killed worker had in hand is done by the next one."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import psycopg
import pytest

from tests.process.conftest import Run
from tests.process.program import QUICK_LEASE, Program, number, rows, wait_for

pytestmark = pytest.mark.slow

COUNT = 40


class Ollama(ThreadingHTTPServer):
    """Speaks as Ollama does; answers when the gate is open."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.gate = threading.Event()
        self.asked = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Ollama)
        sent = json.loads(self.rfile.read(int(self.headers["content-length"])))
        answer: dict[str, object] = {}
        if self.path == "/api/embed":
            self.server.asked += 1
            self.server.gate.wait(60)
            answer["embeddings"] = [[1.0, float(len(text)), 0.5] for text in sent["input"]]
        body = json.dumps(answer).encode()
        try:
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        except OSError:
            pass  # whoever asked was killed

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@pytest.fixture
def ollama() -> Generator[Ollama]:
    server = Ollama()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.gate.set()
    server.shutdown()
    server.server_close()


def remember(api: Program, first: int, count: int) -> None:
    with api.http() as client:
        client.post("/v1/projects", json={"canonicalId": "orders"}).raise_for_status()
        for place in range(first, first + count):
            body = {"projectId": "orders", "title": f"Memory {place}", "narrative": "word " * place}
            client.post("/v1/observations", json=body).raise_for_status()


def test_a_worker_that_is_killed_while_it_embeds_leaves_nothing_unembedded(run: Run, database: str, ollama: Ollama):
    with psycopg.connect(database) as conn:
        if conn.execute("SELECT 1 FROM pg_extension WHERE extname = 'vector'").fetchone() is None:
            pytest.skip("this PostgreSQL has no pgvector")
    settings = {
        "CMSERVER_DATABASE_URL": database,
        **QUICK_LEASE,
        "CMSERVER_EMBEDDER": "ollama",
        "CMSERVER_EMBEDDER_BASE_URL": ollama.url,
        "CMSERVER_PROVIDER_TIMEOUT_SECONDS": "3",
    }
    api = run("api", "--role", "api", settings=settings)
    api.wait_until_ready()
    remember(api, 1, 5)
    first = run("first", "--role", "worker", settings=settings)
    first.wait_until_working()
    wait_for("the embedder to be asked", lambda: ollama.asked)
    remember(api, 6, COUNT - 5)

    first.send(signal.SIGKILL)
    first.process.wait()
    with api.http() as client:
        waiting = client.get("/v1/info").json()["embeddings"]["waiting"]
    ollama.gate.set()
    second = run("second", "--role", "worker", settings=settings)
    second.wait_until_working()

    wait_for(
        "all to be embedded",
        lambda: number(database, "SELECT count(*) FROM observation_embeddings WHERE embedding IS NOT NULL") == COUNT,
    )
    assert waiting == COUNT, "storing went on, and all of it could be seen to wait"
    assert rows(database, "SELECT provider, dimensions, state FROM embedding_models") == [
        {"provider": "ollama", "dimensions": 3, "state": "current"}
    ]
    assert number(database, "SELECT count(*) FROM observation_embeddings") == COUNT
    assert second.stop() == 0
