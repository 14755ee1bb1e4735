"""Runs schemathesis against the server by its OpenAPI document: no status 500, every answer within its schema, no key ignored."""

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
from cmserver.ops.openapi.document import build_document, encode_document
from tests.process.conftest import Run, folder, run
from tests.process.program import ROOT, Program
from tests.timeouts import scaled

pytestmark = pytest.mark.slow

__all__ = ["folder", "run"]  # fixtures

MAX_SECONDS = 1200
LEAST_EXAMPLES = 2_000
SEED = 20260819
CONFIG = Path(__file__).with_name("schemathesis.toml")


class FuzzResult(msgspec.Struct, frozen=True, kw_only=True):
    """The exit code and the printed report of schemathesis."""

    code: int
    output: str

    @property
    def examples(self) -> int:
        """How many requests it generated."""
        match = re.search(r"^ *([\d,]+) generated", self.output, re.MULTILINE)
        return int(match[1].replace(",", "")) if match else 0


def fuzz(url: str, key: str, folder: Path, *options: str) -> FuzzResult:
    """Run schemathesis against the server at `url` with all its checks, valid and invalid data, and links.

    It writes its files into `folder`.
    """
    completed = subprocess.run(
        [
            *(sys.executable, "-m", "schemathesis.cli", "--no-color", f"--config-file={CONFIG}", "run", f"{url}/openapi.json"),
            *(f"--seed={SEED}", *options),
        ],
        env={**os.environ, "CMSERVER_FUZZ_KEY": key, "PYTHONPATH": str(ROOT)},
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=scaled(MAX_SECONDS),
        check=False,
    )
    return FuzzResult(code=completed.returncode, output=completed.stdout + completed.stderr)


@pytest.fixture
def program(run: Run, database: str) -> Program:
    """The server with its workers, on a database of its own."""
    started = run("fuzzed", settings={"CMSERVER_DATABASE_URL": database, "CMSERVER_GENERATION_DEBOUNCE_SECONDS": "0"})
    started.wait_until_ready()
    return started


def test_no_request_that_the_document_describes_or_forbids_breaks_the_server(program: Program, tmp_path: Path):
    result = fuzz(program.url, program.key, tmp_path)

    assert result.code == 0, result.output[-20_000:]
    assert result.examples >= LEAST_EXAMPLES, result.output[-2_000:]
    assert program.logged("request.failed") == []
    with program.http() as client:
        assert client.get("/v1/jobs").status_code == 200, "the key survived"
    assert httpx.get(f"{program.url}/readyz", timeout=scaled(20), trust_env=False).status_code == 200


class Thing(msgspec.Struct):
    """A thing."""

    id: str


async def get_thing(_request: Request) -> Response:
    """Look at a thing."""
    raise NotImplementedError


class Careless(BaseHTTPRequestHandler):
    """Checks no key, answers what its document does not describe, and fails with status 500 for a long id."""

    def do_GET(self) -> None:
        operation = Operation("GET", "/v1/things/{id}", get_thing, "admin", Thing)
        if self.path == "/openapi.json":
            self._answer(200, encode_document(build_document([operation])))
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
    """The URL of a server that makes every mistake the checks look for."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Careless) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_the_mistakes_of_a_careless_server_are_reported_with_a_request_to_repeat(careless: str, tmp_path: Path):
    result = fuzz(careless, "cms_x_y", tmp_path, "--max-examples=20")

    assert result.code == 1
    for mistake in ("Server error", "Response violates schema", "accepts requests without authentication"):
        assert mistake.lower() in result.output.lower(), result.output
    assert re.search(rf"curl -X GET .*{re.escape(careless)}/v1/things/", result.output), result.output
