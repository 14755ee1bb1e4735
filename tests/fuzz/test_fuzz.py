"""schemathesis against the running server, by its own document: no fault, no answer outside its schema, no key ignored."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import httpx
import msgspec
import pytest
from starlette.requests import Request
from starlette.responses import Response

from cmserver.base.http.operation import Operation
from cmserver.ops.openapi.document import document, encoded
from tests.process.conftest import Run, folder, run
from tests.process.program import QUICK_LEASE, ROOT, Program

pytestmark = pytest.mark.slow

__all__ = ["folder", "run"]  # fixtures

PATIENCE_SECONDS = 300
LEAST_EXAMPLES = 2_000
SEED = 20260819
CONFIG = Path(__file__).with_name("schemathesis.toml")


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What schemathesis said at its end."""

    code: int
    output: str

    @property
    def examples(self) -> int:
        found = re.search(r"^ *([\d,]+) generated", self.output, re.MULTILINE)
        return int(found[1].replace(",", "")) if found else 0


def fuzz(url: str, key: str, folder: Path, *words: str) -> Told:
    """Everything that schemathesis can think of against the server there: all its checks, right and wrong data, and links.

    It keeps its notes in the folder.
    """
    done = subprocess.run(
        [
            *(sys.executable, "-m", "schemathesis.cli", "--no-color", f"--config-file={CONFIG}", "run", f"{url}/openapi.json"),
            *(f"--seed={SEED}", *words),
        ],
        env={**os.environ, "CMSERVER_FUZZ_KEY": key, "PYTHONPATH": str(ROOT)},
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    return Told(code=done.returncode, output=done.stdout + done.stderr)


@pytest.fixture
def program(run: Run, database: str) -> Program:
    """The server with its workers, on a database that need not outlive the test."""
    started = run("fuzzed", settings={**QUICK_LEASE, "CMSERVER_DATABASE_URL": database})
    started.wait_until_ready()
    return started


def test_no_request_that_the_document_describes_or_forbids_breaks_the_server(program: Program, tmp_path: Path):
    told = fuzz(program.url, program.key, tmp_path)

    assert told.code == 0, told.output[-20_000:]
    assert told.examples >= LEAST_EXAMPLES, told.output[-2_000:]
    assert program.logged("request.failed") == []
    with program.http() as client:
        assert client.get("/v1/jobs").status_code == 200, "the key survived"
    assert httpx.get(f"{program.url}/readyz", trust_env=False).status_code == 200


class Thing(msgspec.Struct):
    """A thing."""

    id: str


async def get_thing(_request: Request) -> Response:
    """Look at a thing."""
    raise NotImplementedError


class Careless(BaseHTTPRequestHandler):
    """Looks at no key, answers what it does not say, and breaks at a long id."""

    def do_GET(self) -> None:
        one = Operation("GET", "/v1/things/{id}", get_thing, scope="admin", answers={200: Thing})
        if self.path == "/openapi.json":
            self._answer(200, encoded(document([one])))
        else:
            self._answer(500 if len(self.path) > 40 else 200, b'{"identity": 1}')

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
        pass


@pytest.fixture
def careless() -> Iterator[str]:
    """The address of a server that makes every mistake we look for."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Careless) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_server_that_is_careless_is_told_so_with_the_request_to_try(careless: str, tmp_path: Path):
    told = fuzz(careless, "cms_x_y", tmp_path, "--max-examples=20")

    assert told.code == 1
    for mistake in ("Server error", "Response violates schema", "accepts requests without authentication"):
        assert mistake.lower() in told.output.lower(), told.output
    assert re.search(rf"curl -X GET .*{re.escape(careless)}/v1/things/", told.output), told.output
