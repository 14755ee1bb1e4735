"""The desk of somebody who works with Claude Code and has a cmserver of his own."""

from __future__ import annotations

import signal
import socket
import subprocess
from collections.abc import Callable, Generator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import msgspec
import pytest

from cmserver.client import connections
from cmserver.embedded.postgres import EmbeddedPostgres
from tests.models.providers.fake.server import fake_in_a_thread
from tests.process import program
from tests.process.program import Program, wait_for, wait_until_settled
from tests.real_agents.coder import Coder, Model, Session


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """An event in the database."""

    event_type: str
    source_event_id: str
    session: str
    agent: str | None
    tool: str | None
    occurred_at: datetime
    received_at: datetime


_STORED = """
    SELECT e.event_type, e.source_event_id, s.content_session_id AS session, e.metadata->>'agent_id' AS agent,
           e.payload->>'tool_name' AS tool, e.occurred_at, e.received_at
      FROM agent_events e JOIN server_sessions s ON s.id = e.server_session_id ORDER BY e.id
"""


class Desk:
    """A coder, and the cmserver that his Claude Code is attached to. Started anew, the server has its old address and data."""

    def __init__(self, folder: Path, coder: Coder, settings: Mapping[str, str]) -> None:
        self.folder, self.coder = folder, coder
        self._settings = {"CMSERVER_GENERATION_DEBOUNCE_SECONDS": "0", "CMSERVER_PORT": str(_free_port()), **settings}
        self._programs: list[Program] = []
        self.start()
        self.address = self.server.url

    @property
    def server(self) -> Program:
        return self._programs[-1]

    def start(self) -> datetime:
        """When the server was not there yet."""
        began = datetime.now(UTC)
        self._programs.append(Program(self.folder, f"server-{len(self._programs)}", settings=self._settings))
        self.server.wait_until_ready()
        return began

    def kill(self) -> None:
        self.server.stop(signal.SIGKILL)

    def end(self) -> None:
        for one in reversed(self._programs):
            one.end()

    def cmserver(self, *words: str) -> str:
        """What `cmserver <words>` prints to the coder."""
        done = program.command(self.folder, *words, settings={**self._settings, **self.coder.env()})
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    @property
    def database(self) -> str:
        return EmbeddedPostgres(self.server.data_dir).url

    def stored(self, session: Session | None = None) -> list[Stored]:
        """The events of the session, or all of them, as they arrived."""
        found = msgspec.convert(program.rows(self.database, _STORED), list[Stored])
        return [one for one in found if session is None or one.session == session.id]

    def deliver(self) -> None:
        """Until nothing waits in the client's folder."""
        wait_for("the spool to be sent", lambda: connections.read_spool(self.client).waiting == 0)

    def settle(self) -> None:
        """Until everything that happened has become observations."""
        self.deliver()
        wait_until_settled(self.database)

    @property
    def key(self) -> str:
        """The hooks' key: it lies in the client's folder and nowhere else."""
        return self.authorization.read_text().strip().rpartition(" ")[2]

    @property
    def authorization(self) -> Path:
        return self.client / "authorization"

    @property
    def client(self) -> Path:
        return self.coder.home / ".config" / "cmserver" / "clients" / "claude-code"


Sit = Callable[..., Desk]


@pytest.fixture
def sit(claude_program: Path, folder: Path) -> Generator[Sit]:
    """Makes a desk; Claude Code is attached unless the test does that itself."""
    model = Model()
    desks: list[Desk] = []
    with fake_in_a_thread(model) as api:

        def made(*, attached: bool = True, **settings: str) -> Desk:
            named = {f"CMSERVER_{name.upper()}": value for name, value in settings.items()}
            desk = Desk(folder, Coder(folder, claude_program, api, model), named)
            desks.append(desk)
            if attached:
                desk.cmserver("connect", "claude-code", "--yes")
            return desk

        try:
            yield made
        finally:
            for desk in desks:
                desk.end()


def command_lines() -> str:
    """Of all processes of this machine, as any of its users sees them."""
    return subprocess.run(["ps", "-A", "-ww", "-o", "args="], check=True, capture_output=True, text=True).stdout


def files_with(folder: Path, words: str) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file() and words.encode() in path.read_bytes()}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return cast("int", probe.getsockname()[1])
