"""`cmserver mcp` as clients start it: a program on standard input and output."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from mcp import Client, MCPError
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp_types import TextContent

from cmserver.base.http.frame import AsgiFrame
from cmserver.cli.exit_codes import ExitCode
from cmserver.client.client_folder import ClientFolder, Connection
from tests.cli.conftest import URL
from tests.client.hook.recorder import Recorder, Reply
from tests.conftest import Cast
from tests.doors.mcp.tools import MODES, Mode, serving
from tests.make import Make
from tests.timeouts import ENOUGH_SECONDS


@pytest.fixture
def recorder() -> Generator[Recorder]:
    made = Recorder()
    made.reply = lambda _: Reply(body=b'{"jsonrpc":"2.0","id":1,"result":{}}', headers={"connection": "close"})
    made.start()
    yield made
    made.free.set()
    made.stop()


def environment(home: Path, url: str, key: str) -> dict[str, str]:
    file = home / "key"
    file.write_text(key)
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "CMSERVER_URL": url,
        "CMSERVER_KEY_FILE": str(file),
        "CMSERVER_DATA_DIR": str(home),
    }


@contextmanager
def program(home: Path, url: str, key: str = "cms_abc_verysecret", words: Sequence[str] = ()) -> Generator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        [sys.executable, "-m", "cmserver", "mcp", *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=home,
        env={**environment(home, url, key), "PYTHONPATH": str(Path(__file__).parents[2])},
    ) as started:
        try:
            yield started
        finally:
            started.kill()


def ask(process: subprocess.Popen[bytes], id_: int) -> dict[str, object]:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b'{"jsonrpc":"2.0","id":%d,"method":"ping"}\n' % id_)
    process.stdin.flush()
    return json.loads(process.stdout.readline())


@pytest.mark.slow
def test_the_program_speaks_on_while_its_server_is_away(tmp_path: Path, recorder: Recorder):
    (tmp_path / ".cmserver.toml").write_text('project = "Bestellungen für 注文"\n')
    with program(tmp_path, recorder.url) as process:
        assert ask(process, 1) == {"jsonrpc": "2.0", "id": 1, "result": {}}
        recorder.stop()
        assert "does not answer" in json.dumps(ask(process, 2))
        recorder.start()
        assert ask(process, 3) == {"jsonrpc": "2.0", "id": 3, "result": {}}

        (first, *_) = recorder.sent
        assert first.headers["authorization"] == "Bearer cms_abc_verysecret"
        assert first.headers["x-cmserver-project"].encode("latin-1").decode() == "Bestellungen für 注文"
        command_line = Path(f"/proc/{process.pid}/cmdline")
        assert not command_line.exists() or b"verysecret" not in command_line.read_bytes()
        out, err = process.communicate(timeout=ENOUGH_SECONDS)
        assert (process.returncode, out, err) == (0, b"", b"")


@pytest.mark.slow
@pytest.mark.parametrize("ending", [pytest.param("eof", marks=pytest.mark.smoke), "SIGTERM", "SIGINT"])
def test_the_program_ends_soon_and_quietly_while_a_request_is_on_its_way(tmp_path: Path, recorder: Recorder, ending: str):
    recorder.free.clear()
    with program(tmp_path, recorder.url) as process:
        assert process.stdin is not None
        process.stdin.write(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
        process.stdin.flush()
        assert recorder.came.acquire(timeout=ENOUGH_SECONDS)

        if ending == "eof":
            process.stdin.close()
        else:
            process.send_signal(signal.Signals[ending])
        code = process.wait(ENOUGH_SECONDS)

        assert code == (0 if ending == "eof" else -signal.Signals[ending])
        assert process.stdout is not None
        assert process.stderr is not None
        assert (process.stdout.read(), process.stderr.read()) == (b"", b"")


@pytest.mark.slow
def test_whoever_says_all_there_is_to_say_at_once_is_answered(tmp_path: Path, recorder: Recorder):
    with program(tmp_path, recorder.url) as process:
        out, err = process.communicate(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n', timeout=ENOUGH_SECONDS)

    assert json.loads(out) == {"jsonrpc": "2.0", "id": 1, "result": {}}
    assert (process.returncode, err) == (0, b"")


@pytest.mark.slow
def test_without_a_key_it_says_so_and_not_on_standard_output(tmp_path: Path):
    with program(tmp_path, URL, key="") as process:
        out, err = process.communicate(timeout=ENOUGH_SECONDS)

    assert (process.returncode, out) == (ExitCode.USAGE, b"")
    assert b"CMSERVER_KEY_FILE" in err


@pytest.mark.slow
def test_an_agent_that_is_connected_has_its_own_server_and_key(tmp_path: Path, recorder: Recorder):
    clients = ClientFolder(tmp_path / ".config" / "cmserver" / "clients", "codex")
    with program(tmp_path, URL, words=["--agent", "codex"]) as process:
        _, err = process.communicate(timeout=ENOUGH_SECONDS)
    assert (process.returncode, b"cmserver connect codex" in err) == (ExitCode.USAGE, True)

    clients.install({"URL": recorder.url}, "cms_abc_ofcodex")
    clients.save(Connection(agent="codex", url=recorder.url, settings=[]))
    with program(tmp_path, URL, words=["--agent", "codex"]) as process:
        ask(process, 1)

    assert recorder.sent[0].headers["authorization"] == "Bearer cms_abc_ofcodex"


# -- with a real client


@pytest.fixture
async def url(app: AsgiFrame) -> AsyncGenerator[str]:
    """Where the application is served."""
    async with serving(app) as address:
        yield address


def bridge(home: Path, url: str, key: str) -> StdioServerParameters:
    env = {**environment(home, url, key), "PYTHONPATH": str(Path(__file__).parents[2])}
    return StdioServerParameters(command=sys.executable, args=["-m", "cmserver", "mcp"], env=env, cwd=home)


@pytest.mark.slow
@pytest.mark.smoke
@pytest.mark.parametrize("mode", MODES)
async def test_a_real_client_finds_what_is_known_of_the_folders_project(
    url: str, cast: Cast, make: Make, tmp_path: Path, mode: Mode
):
    await make.observation(project=cast.alice.project, title="The wombat is fed at noon")
    (tmp_path / ".cmserver.toml").write_text(f'project = "{cast.alice.project.canonical_id}"\n')

    async with Client(stdio_client(bridge(tmp_path, url, cast.alice.key)), mode=mode) as client:
        tools = await client.list_tools()
        answer = await client.call_tool("observation_search", {"query": "wombat"})
        both = await asyncio.gather(*(client.call_tool("observation_get", {"ids": [1]}) for _ in range(20)))

    assert "observation_search" in {item.name for item in tools.tools}
    (text,) = answer.content
    assert isinstance(text, TextContent)
    assert "The wombat is fed at noon" in text.text
    assert not any(item.is_error for item in both)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
async def test_a_real_client_with_a_wrong_key_is_told_a_sentence(url: str, tmp_path: Path, mode: Mode):
    with pytest.RaisesGroup(pytest.RaisesExc(MCPError, match="key"), allow_unwrapped=True, flatten_subgroups=True):
        async with Client(stdio_client(bridge(tmp_path, url, "cms_0123456789abcdef_wrong")), mode=mode):
            pass
