"""`cmserver doctor`: what is wrong on this machine, and how it exits."""

from __future__ import annotations

import http.server
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from cmserver.base.configuration import LoadedSettings
from cmserver.base.settings import Settings
from cmserver.cli import doctor
from cmserver.cli.doctor import examine
from cmserver.client.agents import AGENTS
from cmserver.client.client_folder import ClientFolder, Connection
from cmserver.client.connections import DISTRUSTED, AgentStatus
from cmserver.ops.doctor.machine import check_agents, check_port
from cmserver.ops.doctor.model import DoctorFinding, find
from cmserver.ops.doctor.wire import DiagnosisOut
from tests.cli.conftest import Cms
from tests.conftest import Cast
from tests.generation.tools import Outbox, Scripted
from tests.table import try_rows
from tests.timeouts import ENOUGH_SECONDS

WELL = AgentStatus(
    agent="claude-code",
    settings=[],
    plugin=None,
    url="http://127.0.0.1:37877",
    key_id=None,
    server="answers",
    folder="/x",
    waiting=0,
    waiting_bytes=0,
    oldest_epoch=None,
    dropped=0,
    refused=0,
    pausing=False,
    trouble=None,
    current=True,
)


def test_a_connected_agent_without_trouble_has_no_finding():
    assert check_agents([WELL]) == []


@try_rows(
    ("change", "code", "command"),
    [
        ({"settings": ["/nowhere/settings.json"]}, "hooks.entry", "cmserver connect claude-code"),
        ({"current": False}, "hooks.client", "cmserver connect claude-code"),
        ({"current": False, "plugin": "p"}, "hooks.client", "cmserver connect claude-code --plugin"),
        ({"server": "refuses the key"}, "hooks.key", "cmserver connect claude-code"),
        ({"server": DISTRUSTED}, "hooks.certificate", "export SSL_CERT_FILE=FILE"),
        ({"server": "lacks its key"}, "hooks.key", "cmserver connect claude-code"),
        ({"trouble": "tools"}, "hooks.tools", "apt-get install curl"),
        ({"waiting": 3, "oldest_epoch": round(time.time() * 1000) - 3_600_000}, "hooks.spool", "cmserver connections"),
        ({"dropped": 2}, "hooks.lost", "cmserver connections"),
    ],
)
def test_a_fault_of_an_agents_connection_is_found(change: dict[str, object], code: str, command: str):
    (finding,) = check_agents([msgspec.structs.replace(WELL, **change)])

    assert (finding.code, finding.command) == (code, command)


def test_a_service_that_was_left_behind_is_found_with_the_command_that_removes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = tmp_path / "cmserver.service"
    monkeypatch.setattr(doctor, "find_left_behind", lambda: [(file, "/opt/cmserver/bin/python", True)])
    settings = Settings(data_dir=tmp_path, port=1)
    monkeypatch.setenv("CMSERVER_CLIENT_DIR", str(tmp_path / "clients"))

    (finding,) = doctor._examine_machine(settings)  # pyright: ignore[reportPrivateUsage]

    assert (finding.code, finding.command) == ("service.left", "cmserver service remove --system")
    assert "/opt/cmserver/bin/python" in finding.message


def test_calls_that_wait_for_a_moment_are_no_fault():
    waiting = msgspec.structs.replace(WELL, waiting=3, oldest_epoch=round(time.time() * 1000) - 60_000)

    assert check_agents([waiting]) == []


class OtherProgram(http.server.BaseHTTPRequestHandler):
    """Answers whatever it is asked, and is not cmserver."""

    answer = b"hello"

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.answer)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name in http.server
        """Say nothing."""


class Ours(OtherProgram):
    """Answers as cmserver does."""

    answer = b'{"status":"ok","runtime":"cmserver"}'


@contextmanager
def listening(handler: type[OtherProgram]) -> Generator[int]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


def test_another_program_on_the_port_is_found():
    with listening(OtherProgram) as port:
        (finding,) = check_port("0.0.0.0", port)
    with listening(Ours) as port:
        ours = check_port("127.0.0.1", port)

    assert (finding.code, finding.command) == ("port.taken", f"cmserver start --port {finding.command.rsplit(' ', 1)[1]}")
    assert ours == []
    assert check_port("127.0.0.1", 1) == []


async def test_the_command_exits_by_severity_and_needs_neither_server_nor_key(cms: Cms, cast: Cast, outbox: Outbox, tmp_path: Path):
    environ = {"CMSERVER_CLIENT_DIR": str(tmp_path / "clients"), "CMSERVER_PORT": "1"}

    without_worker = await cms("doctor", "--json", **environ)
    await outbox.hand(Scripted(), lease_seconds=600)
    well = await cms("doctor", **environ)
    strange = await cms("doctor", **environ, CMSERVER_PROVIDR="offline")

    assert without_worker.code == 1
    assert [finding.code for finding in without_worker.read(DiagnosisOut).findings] == ["worker.none"]
    assert (well.code, well.out.startswith("Looked for ")) == (0, True), well.out
    assert strange.code == 6
    assert "[settings.unknown]\n    cmserver config" in strange.out


async def test_where_no_server_was_ever_started_no_database_is_made(cms: Cms, tmp_path: Path):
    environ: dict[str, str | None] = {
        "CMSERVER_CLIENT_DIR": str(tmp_path / "clients"),
        "CMSERVER_DATABASE_URL": None,
        "CMSERVER_DATA_DIR": str(tmp_path / "data"),
        "CMSERVER_PORT": "1",
    }

    said = await cms("doctor", **environ)

    assert said.code == 0, said.out
    assert not (tmp_path / "data").exists()


def test_servers_that_hang_are_waited_for_at_the_same_time(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for agent in AGENTS:
        folder = ClientFolder(tmp_path, agent)
        folder.install({}, "cms_key")
        folder.save(Connection(agent=agent, url="http://127.0.0.1:1", settings=[]))
    all_wait = threading.Barrier(len(AGENTS) + 1)

    def hang(*_: object) -> str:
        all_wait.wait(ENOUGH_SECONDS)
        return "does not answer"

    async def hang_in_database(*_: object) -> tuple[list[DoctorFinding], None]:
        all_wait.wait(ENOUGH_SECONDS)
        return [find("worker.none")], None

    monkeypatch.setenv("CMSERVER_CLIENT_DIR", str(tmp_path))
    monkeypatch.setattr("cmserver.client.connections._check_server", hang)
    monkeypatch.setattr("cmserver.cli.doctor.database_urls", nullcontext)
    monkeypatch.setattr("cmserver.cli.doctor._examine_database", hang_in_database)
    found = examine(
        LoadedSettings(settings=replace(settings, port=1), sources={}, warnings=[], translated={}, config_file=tmp_path)
    )

    assert [finding.code for finding in found.findings] == ["worker.none"]
