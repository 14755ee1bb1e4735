from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import msgspec
import pytest
from click.testing import CliRunner, Result

from cmserver.base import credentials
from cmserver.base.credentials import Credentials
from cmserver.base.errors import CmserverError
from cmserver.base.settings import Settings
from cmserver.cli import first_key, service, state
from cmserver.cli.main import cli
from cmserver.cli.state import ServerState
from cmserver.client.client_folder import ClientFolder, Connection
from tests.timeouts import ENOUGH_SECONDS

NOBODY_LISTENS = "http://127.0.0.1:1"


@pytest.fixture
def stranger() -> Generator[subprocess.Popen[bytes]]:
    """Some other program of this user."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        yield process
        process.kill()


def cmserver(data_dir: Path, *words: str) -> Result:
    environ = {"CMSERVER_DATA_DIR": str(data_dir), "CMSERVER_CONFIG": "", "CMSERVER_CLIENT_DIR": str(data_dir / "clients")}
    return CliRunner().invoke(cli, list(words), env=environ)


def write(data_dir: Path, found: ServerState) -> None:
    (data_dir / state.FILE_NAME).write_bytes(msgspec.json.encode(found))


def of_this_process(data_dir: Path, *, background: bool = True) -> ServerState:
    state.announce(data_dir, NOBODY_LISTENS, "all", background=background)
    found = state.running(data_dir)
    assert found is not None
    return found


def test_an_announced_server_is_running_until_it_withdraws(tmp_path: Path):
    assert state.running(tmp_path) is None

    found = of_this_process(tmp_path)

    assert (found.pid, found.url, found.role, found.background) == (os.getpid(), NOBODY_LISTENS, "all", True)
    assert stat.S_IMODE((tmp_path / state.FILE_NAME).stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == [state.FILE_NAME]
    state.withdraw(tmp_path)
    assert state.running(tmp_path) is None
    assert list(tmp_path.iterdir()) == []


def test_a_server_does_not_withdraw_the_file_of_another_one(tmp_path: Path, stranger: subprocess.Popen[bytes]):
    write(tmp_path, msgspec.structs.replace(of_this_process(tmp_path), pid=stranger.pid))

    state.withdraw(tmp_path)

    assert (tmp_path / state.FILE_NAME).exists()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"pid": "x"}', "\xff", '{"pid": -1, "started": ""}'])
def test_a_damaged_file_is_no_server(tmp_path: Path, content: str):
    (tmp_path / state.FILE_NAME).write_text(content, encoding="latin-1")

    assert state.running(tmp_path) is None


def test_a_process_that_only_has_the_same_pid_is_no_server_and_is_never_ended(tmp_path: Path, stranger: subprocess.Popen[bytes]):
    found = msgspec.structs.replace(of_this_process(tmp_path), pid=stranger.pid)
    write(tmp_path, found)

    assert state.running(tmp_path) is None
    assert cmserver(tmp_path, "stop").output == "cmserver is not running.\n"
    state.terminate(found)

    assert not state.alive(found)
    stranger.communicate(b"\n", timeout=ENOUGH_SECONDS)
    assert stranger.returncode == 0, "it ended because it was told to, not by a signal"


def test_exactly_the_process_that_is_meant_is_ended(tmp_path: Path, stranger: subprocess.Popen[bytes]):
    child = """
import sys
from pathlib import Path
from cmserver.cli import state
state.announce(Path(sys.argv[1]), "http://x", "all", background=True)
print(flush=True)
input()
"""
    with subprocess.Popen([sys.executable, "-c", child, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as meant:
        assert meant.stdout is not None
        meant.stdout.readline()

        ended = cmserver(tmp_path, "stop")

        assert ended.exit_code == 0
        assert f"process {meant.pid}) has stopped" in ended.output
        assert meant.wait(ENOUGH_SECONDS) < 0
    assert stranger.poll() is None


def test_a_server_in_the_foreground_is_named_and_left_alone(tmp_path: Path):
    found = of_this_process(tmp_path, background=False)

    refused = cmserver(tmp_path, "stop")

    assert isinstance(refused.exception, CmserverError)
    assert f"process {found.pid}" in str(refused.exception)
    assert "Stop it where it runs" in str(refused.exception)


def test_start_does_nothing_when_the_server_runs(tmp_path: Path):
    found = of_this_process(tmp_path)

    started = cmserver(tmp_path, "start")

    assert started.exit_code == 0
    assert started.output == f"cmserver runs already in the background at {NOBODY_LISTENS} (process {found.pid}).\n"


def test_a_first_start_on_a_terminal_prints_the_link_of_the_first_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    link = "http://127.0.0.1:1/ui/join/token"

    def post(_url: str, **_options: object) -> httpx.Response:
        times = {"expiresAtEpoch": 2, "expired": False, "createdAtEpoch": 1}
        invitation = {"id": str(UUID(int=1)), "role": "owner", "makesOperator": True, "note": "", "invitedBy": "x", **times}
        return httpx.Response(201, json={"invitation": invitation, "path": "/ui/join/token", "url": link})

    found = of_this_process(tmp_path)
    credentials.write(tmp_path, Credentials(url=NOBODY_LISTENS, key="cms_mine", team="default"))
    monkeypatch.setattr(service.httpx, "post", post)
    for shown in (True, False):
        for module in (service, first_key):
            monkeypatch.setattr(module, "shows_key", lambda shown=shown: shown)
        service.report_start(Settings(data_dir=tmp_path), found, None, tmp_path / "log")

        assert (f"open {link} within" in capsys.readouterr().out) == shown


def test_without_a_server_status_says_so_and_exits_with_1(tmp_path: Path):
    shown = cmserver(tmp_path, "status")
    told = cmserver(tmp_path, "status", "--json")

    assert (shown.exit_code, shown.output) == (1, "cmserver is not running on this machine.\n")
    assert told.exit_code == 1
    assert json.loads(told.output)["running"] is False


def test_status_says_to_which_other_server_agents_send_and_whether_it_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    there = ClientFolder(tmp_path / "clients", "claude-code")
    there.install({"URL": "https://memory.example"}, "cms_theirs")
    there.save(Connection(agent="claude-code", url="https://memory.example", settings=[]))
    answering(monkeypatch, {"/v1/info": httpx.Response(200, json={})})

    shown = cmserver(tmp_path, "status")
    answering(monkeypatch, {"/v1/info": httpx.Response(403)})
    refused = cmserver(tmp_path, "status")

    assert "agent     claude-code sends to https://memory.example (answers)\n" in shown.output
    assert "(refuses the key)" in refused.output


def test_a_server_that_does_not_answer_is_running_but_not_ready(tmp_path: Path):
    of_this_process(tmp_path)

    shown = cmserver(tmp_path, "status")

    assert shown.exit_code == 1
    assert "runs, but is not ready" in shown.output
    assert "does not answer" in shown.output


def answering(monkeypatch: pytest.MonkeyPatch, answers: dict[str, httpx.Response]) -> list[httpx.Request]:
    """In place of the network; what was asked."""
    asked: list[httpx.Request] = []

    def get(url: str, headers: dict[str, str] | None = None, **_options: object) -> httpx.Response:
        asked.append(httpx.Request("GET", url, headers=headers))
        return answers.get(httpx.URL(url).path, httpx.Response(404))

    monkeypatch.setattr(service.httpx, "get", get)
    return asked


def test_status_asks_with_the_key_of_this_machine_and_shows_a_paused_provider(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    of_this_process(tmp_path)
    credentials.write(tmp_path, Credentials(url=NOBODY_LISTENS, key="cms_mine", team="default"))
    pause = {
        "provider": "anthropic",
        "reason": "quota_exhausted",
        "message": "No credit.",
        "pausedAtEpoch": 0,
        "untilEpoch": 60_000,
    }
    info = {
        "version": "9.9",
        "postgres": {"version": "18.4", "embedded": True, "vectors": False},
        "provider": {"name": "anthropic", "chain": ["anthropic"], "pauses": [pause]},
        "workers": 0,
        "queue": {
            "waiting": 1,
            "active": 2,
            "delayed": 3,
            "held": 4,
            "completed": 5,
            "failed": 6,
            "cancelled": 7,
            "recovered": 8,
            "oldestWaitingSeconds": 3725.4,
            "warning": "The oldest waits for too long.",
        },
    }
    asked = answering(monkeypatch, {"/readyz": httpx.Response(200), "/v1/info": httpx.Response(200, json=info)})

    shown = cmserver(tmp_path, "status")

    assert shown.exit_code == 0
    assert asked[1].headers["authorization"] == "Bearer cms_mine"
    assert "version   9.9" in shown.output
    assert "PostgreSQL 18.4, embedded, without vectors" in shown.output
    assert "workers   0: events are stored and wait until one runs" in shown.output
    assert (
        "4 waiting (3 until their time, or the end of their turn), 2 active, 4 held, 6 failed; the oldest waits for 1 h 2 min"
        in shown.output
    )
    assert "8 came back from workers that were lost" in shown.output
    assert "The oldest waits for too long." in shown.output
    assert "anthropic is paused until" in shown.output
    assert ": No credit.\n" in shown.output
    assert "quota_exhausted" not in shown.output


def test_status_shows_the_chain_and_the_budgets_of_which_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    of_this_process(tmp_path)
    credentials.write(tmp_path, Credentials(url=NOBODY_LISTENS, key="cms_mine", team="default"))
    info: dict[str, Any] = {
        "version": "9.9",
        "postgres": {"version": "18.4", "embedded": True, "vectors": False},
        "workers": 1,
        "provider": {"name": "anthropic", "chain": ["anthropic", "openai", "offline"], "pauses": []},
        "rules": {"waiting": 2, "oldestDays": 3.6, "expired": 1},
    }
    error = {"provider": "anthropic", "model": "tiny", "reason": "quota_exhausted", "message": "No credit.", "atEpoch": 60_000}
    others = {"projectId": None, "maxTokens": 1, "maxUsd": None, "spentTokens": 1, "spentUsd": None}
    budgets = [
        {"project": None, "period": "month", "state": "exhausted", "resetsAtEpoch": 60_000, "share": 1.0},
        {"project": "orders", "period": "day", "state": "exhausted", "resetsAtEpoch": 60_000, "share": None},
        {"project": "bills", "period": "day", "state": "warned", "resetsAtEpoch": 60_000, "share": 0.9},
    ]
    info["answers"] = {
        "usable": 12,
        "unusable": 1,
        "unanswered": 2,
        "tokensToday": 1234,
        "costUsdToday": "0.12",
        "unpricedCallsToday": 1,
        "budgets": [others | budget for budget in budgets],
        "lastError": {**error, "answeredBy": "anthropic"},
        "notInUse": ["ollama"],
    }
    answering(monkeypatch, {"/readyz": httpx.Response(200), "/v1/info": httpx.Response(200, json=info)})

    shown = cmserver(tmp_path, "status").output
    told = json.loads(cmserver(tmp_path, "status", "--json").output)

    assert "answers   12 usable, 1 unusable, 2 calls without an answer (also of ollama, not in use now) in 24 hours\n" in shown
    assert "          last error 1970-01-01T" in shown
    assert ", anthropic (tiny): No credit; answered since\n" in shown
    assert "today     $0.12, 1,234 tokens, 1 call of unknown price; budget of the team by month: 1 of 1 tokens; " in shown
    assert "provider  anthropic, then openai, offline\n" in shown
    assert "rules     2 wait for a person's yes, the oldest for 4 days; 1 got no answer in time" in shown
    assert "budget    the team has spent its budget of this month: no model is asked until" in shown
    assert "the project orders has spent its budget of this day" in shown
    assert "budget    the project bills" not in shown
    assert [one["project"] for one in told["exhausted"]] == [None, "orders"]


@pytest.mark.parametrize(
    ("embeddings", "lines"),
    [
        ({"state": "off", "hint": "The database has no pgvector."}, ["embedder  none. The database has no pgvector."]),
        ({"state": "complete", "embedder": "local", "model": "l2"}, ["embedder  local (l2): nothing waits"]),
        (
            {
                "state": "filling",
                "embedder": "local",
                "model": "l2",
                "waiting": 7,
                "failing": 2,
                "pulled_percent": 40,
                "building": {
                    "embedder": "ollama",
                    "model": "nomic",
                    "dimensions": None,
                    "waiting": 9,
                    "failing": 0,
                    "pulled_percent": None,
                },
                "hint": "It is not installed.",
            },
            [
                "embedder  local (l2): 7 waiting, 2 of them failed",
                "          ollama (nomic) takes its place; 9 wait for it",
                "          It is not installed.",
            ],
        ),
    ],
    ids=["off", "complete", "filling"],
)
def test_status_says_how_embedding_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, embeddings: dict[str, object], lines: list[str]
):
    of_this_process(tmp_path)
    credentials.write(tmp_path, Credentials(url=NOBODY_LISTENS, key="cms_mine", team="default"))
    nothing: dict[str, object] = {
        "embedder": None,
        "model": None,
        "dimensions": None,
        "waiting": 0,
        "failing": 0,
        "pulled_percent": None,
        "building": None,
        "hint": None,
    }
    info = {
        "version": "9.9",
        "postgres": {"version": "18.4", "embedded": True, "vectors": True},
        "workers": 1,
        "embeddings": {**nothing, **embeddings},
        "steward": {"mode": "dry_run", "paused": True, "queued": 3, "running": 0, "deadLetter": 1},
    }
    answering(monkeypatch, {"/readyz": httpx.Response(200), "/v1/info": httpx.Response(200, json=info)})

    shown = cmserver(tmp_path, "status").output.splitlines()

    assert [line for line in shown if line in lines] == lines
    assert "steward   dry run, paused: 3 queued, 0 running, 1 given up in 24 hours" in shown


@pytest.mark.parametrize("answer", [httpx.Response(403), httpx.Response(200, text="<html>")], ids=["forbidden", "no JSON"])
def test_status_does_without_budgets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: httpx.Response):
    of_this_process(tmp_path)
    credentials.write(tmp_path, Credentials(url=NOBODY_LISTENS, key="cms_mine", team="default"))
    info = {"version": "9.9", "postgres": {"version": "18.4", "embedded": True, "vectors": False}, "workers": 1}
    answering(monkeypatch, {"/readyz": httpx.Response(200), "/v1/info": httpx.Response(200, json=info), "/v1/budgets": answer})

    shown = cmserver(tmp_path, "status")

    assert shown.exit_code == 0
    assert "workers   1" in shown.output
    assert "budget" not in shown.output


def test_a_key_that_may_not_read_jobs_is_shown_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    of_this_process(tmp_path)
    credentials.write(tmp_path, Credentials(url=NOBODY_LISTENS, key="cms_mine", team="default"))
    info = {"version": "9.9", "postgres": {"version": "18.4", "embedded": True, "vectors": False}, "workers": 1}
    answering(monkeypatch, {"/readyz": httpx.Response(200), "/v1/info": httpx.Response(200, json=info)})

    shown = cmserver(tmp_path, "status")

    assert shown.exit_code == 0
    assert "workers   1" in shown.output
    assert "queue" not in shown.output


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (httpx.Response(403, json={"error": "Forbidden", "message": "This key is over."}), "This key is over."),
        (httpx.Response(502, text="<html>"), "status 502"),
        (httpx.Response(200, json={"version": 1}), "of another version"),
    ],
)
def test_what_keeps_status_from_knowing_the_queue_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: httpx.Response, sentence: str
):
    of_this_process(tmp_path)
    credentials.write(tmp_path, Credentials(url=NOBODY_LISTENS, key="cms_mine", team="default"))
    answering(monkeypatch, {"/readyz": httpx.Response(200), "/v1/info": answer})

    shown = cmserver(tmp_path, "status")

    assert shown.exit_code == 0
    assert sentence in shown.output


def test_without_a_key_status_says_where_it_looked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    of_this_process(tmp_path)
    answering(monkeypatch, {"/readyz": httpx.Response(200)})

    shown = cmserver(tmp_path, "status")

    assert shown.exit_code == 0
    assert str(tmp_path / "credentials") in shown.output
