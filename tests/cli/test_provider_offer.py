"""The question which provider is to word the memory: when it is asked, what it says, and what is kept."""

from __future__ import annotations

import errno
import os
import pty
import sys
import tomllib
from collections.abc import Generator, Mapping
from pathlib import Path
from threading import Timer

import click
import pytest

from cmserver.base.configuration import LoadedSettings, load
from cmserver.base.settings import Settings
from cmserver.cli import connect, provider_offer, service, state
from cmserver.cli.provider_offer import (
    SESSION_CALLS,
    SESSION_INPUT_TOKENS,
    SESSION_OUTPUT_TOKENS,
    compute_day_cost,
    offer_provider,
    offer_to_local_server,
    render_offer,
)
from cmserver.models.providers.available import AvailableProvider
from cmserver.models.providers.registry import DEFAULT_MODELS
from cmserver.ops.wire import ProviderOut
from tests.cli.conftest import Run
from tests.models.providers.fake.server import fake_in_a_thread, json_reply

DOCS = Path(__file__).parents[2] / "docs"
URL = "http://127.0.0.1:4000"


class Terminal:
    """A terminal on which these keys are pressed, one after the other."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.is_there = True
        self.asked = 0
        self.container_sign: str | None = None
        self.clock = 0.0
        self.timeouts: list[float] = []

    def find_container_sign(self, _: Mapping[str, str]) -> str | None:
        return self.container_sign

    def read(self, timeout_seconds: float) -> str | None:
        """Each key takes ten seconds."""
        self.asked += 1
        self.timeouts.append(timeout_seconds)
        self.clock += 10
        if timeout_seconds <= 0:
            return None
        return self.keys.pop(0) if self.keys else None


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Terminal:
    """On a machine with the claude program, where nothing is configured."""
    terminal = Terminal()
    monkeypatch.setattr(provider_offer, "read_key", terminal.read)
    monkeypatch.setattr(provider_offer, "is_terminal", lambda: terminal.is_there)
    monkeypatch.setattr(provider_offer, "container_sign", terminal.find_container_sign)
    monkeypatch.setattr(provider_offer.time, "monotonic", lambda: terminal.clock)
    for name in [f"{provider.upper()}_API_KEY" for provider in ("anthropic", "openai", "gemini", "openrouter")]:
        monkeypatch.delenv(name, raising=False)
    for name in ("CMSERVER_CONFIG", "CMSERVER_PROVIDER", "CMSERVER_MODEL", "CMSERVER_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "claude"
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("CMSERVER_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:1")
    return terminal


@pytest.fixture
def ollama() -> Generator[str]:
    with fake_in_a_thread(lambda _: json_reply({"models": [{"name": "qwen3:8b"}]})) as fake:
        yield fake.url


def offer(**environ: str) -> str | None:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environ.items():
            patch.setenv(name, value)
        return offer_provider(loaded())


def loaded() -> LoadedSettings:
    return load(os.environ)


def kept(tmp_path: Path) -> dict[str, object]:
    file = tmp_path / "data" / "config.toml"
    return tomllib.loads(file.read_text()) if file.exists() else {}


# -- the answer


def test_one_keypress_chooses_a_provider_and_is_asked_once(terminal: Terminal, tmp_path: Path):
    terminal.keys = ["x", "0", "2", "\x1b[A", "1"]

    assert offer() == "claude-cli"
    assert offer() is None

    assert terminal.asked == 5
    assert kept(tmp_path) == {"provider": "claude-cli"}
    assert loaded().settings.provider == "claude-cli"
    assert loaded().settings.generation_debounce_seconds == 30


@pytest.mark.parametrize("key", ["\n", "\r"])
def test_none_is_kept_as_well(terminal: Terminal, tmp_path: Path, key: str):
    terminal.keys = [key]

    assert offer() == "offline"
    assert offer() is None

    assert kept(tmp_path) == {"provider": "offline"}


def test_no_answer_keeps_nothing(terminal: Terminal, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert offer() is None

    assert terminal.asked == 1
    assert kept(tmp_path) == {}
    assert "asks again" in capsys.readouterr().out


def test_a_terminal_that_goes_away_keeps_nothing(terminal: Terminal, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    def echo(*_: object, **__: object) -> None:
        if terminal.asked:
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(click, "echo", echo)

    assert offer() is None

    assert kept(tmp_path) == {}


def test_ignored_keys_do_not_prolong_the_question(terminal: Terminal, tmp_path: Path):
    terminal.keys = ["x"] * 20

    assert offer() is None

    assert terminal.timeouts == [60, 50, 40, 30, 20, 10, 0]
    assert kept(tmp_path) == {}


def test_an_ollama_is_kept_with_its_model_and_its_address(terminal: Terminal, tmp_path: Path, ollama: str):
    terminal.keys = ["2"]

    assert offer(OLLAMA_HOST=ollama) == "ollama"

    assert kept(tmp_path) == {
        "provider": "ollama",
        "model": "qwen3:8b",
        "base_url": f"{ollama}/v1",
    }


def test_a_key_is_not_copied(terminal: Terminal, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    terminal.keys = ["2"]

    assert offer(ANTHROPIC_API_KEY="sk-ant-0123456789") == "anthropic"

    assert kept(tmp_path) == {"provider": "anthropic"}
    shown = capsys.readouterr().out
    assert "each start of the server needs ANTHROPIC_API_KEY" in shown
    assert "sk-ant" not in shown


def test_the_answer_goes_into_the_file_that_is_named(terminal: Terminal, tmp_path: Path):
    file = tmp_path / "named.toml"
    file.write_text("port = 4000\n")
    terminal.keys = ["1"]

    assert offer(CMSERVER_CONFIG=str(file)) == "claude-cli"

    assert tomllib.loads(file.read_text()) == {"provider": "claude-cli", "port": 4000}
    assert kept(tmp_path) == {}


def test_a_file_that_cannot_be_changed_keeps_the_rules(terminal: Terminal, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = tmp_path / "named.toml"
    file.write_text("'provider' = ''\n")
    terminal.keys = ["1"]

    assert offer(CMSERVER_CONFIG=str(file)) is None

    assert 'Add to it yourself: provider = "claude-cli"' in capsys.readouterr().err


# -- when it is asked


def test_without_a_terminal_nothing_is_asked(terminal: Terminal, tmp_path: Path):
    terminal.is_there = False

    assert offer() is None

    assert (terminal.asked, kept(tmp_path)) == (0, {})


def test_in_a_container_nothing_is_asked(terminal: Terminal, tmp_path: Path):
    terminal.container_sign = "/.dockerenv"

    assert offer() is None

    assert (terminal.asked, kept(tmp_path)) == (0, {})


def test_a_file_of_another_user_is_not_asked_about(terminal: Terminal, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "config.toml").write_text("port = 4000\n")
    monkeypatch.setattr(os, "access", refuse_reading)

    assert offer() is None

    assert terminal.asked == 0


def refuse_reading(_: Path, mode: int) -> bool:
    return mode != os.R_OK


@pytest.mark.parametrize("name", ["CMSERVER_PROVIDER", "CMSERVER_MODEL", "CMSERVER_BASE_URL"])
def test_whoever_has_set_a_provider_is_not_asked(terminal: Terminal, name: str):
    value = {"CMSERVER_PROVIDER": "offline", "CMSERVER_MODEL": "haiku", "CMSERVER_BASE_URL": "http://127.0.0.1:8000"}[name]

    assert offer(**{name: value}) is None

    assert terminal.asked == 0


def test_where_nothing_is_found_nothing_is_asked(terminal: Terminal, tmp_path: Path):
    (tmp_path / "bin" / "claude").unlink()

    assert offer() is None

    assert terminal.asked == 0


# -- the key that is pressed


@pytest.fixture
def pseudo_terminal(monkeypatch: pytest.MonkeyPatch) -> Generator[int]:
    """The other side of a terminal that is standard input; the test closes it."""
    outside, inside = pty.openpty()
    with os.fdopen(inside) as stream:
        monkeypatch.setattr(sys, "stdin", stream)
        yield outside


def test_a_terminal_that_is_closed_is_no_answer(pseudo_terminal: int):
    os.close(pseudo_terminal)

    assert provider_offer.read_key(5) is None


def test_a_terminal_that_is_closed_at_the_question_is_no_answer(pseudo_terminal: int):
    timer = Timer(0.2, os.close, [pseudo_terminal])
    timer.start()

    assert provider_offer.read_key(30) is None

    timer.join()


# -- the text


def test_the_offer_says_what_a_day_costs_and_what_leaves_the_machine():
    providers = [AvailableProvider(name=name, model=model) for name, model in {**DEFAULT_MODELS, "ollama": "qwen3:8b"}.items()]
    lines = render_offer([provider for provider in providers if provider.name != "offline"])

    text = "\n".join(lines)
    assert "[1] anthropic (claude-haiku-5-5): about $0.13 a day" in text
    assert "go to Anthropic." in text
    assert "go to Google." in text
    assert "(qwen3:8b): free" in text
    assert text.count("Nothing leaves this machine.") == 2
    assert "340 calls, 920,000 tokens read and 70,000 written" in text
    assert max(map(len, lines)) <= 130


def test_its_figures_are_those_of_the_page_on_costs():
    page = (DOCS / "howto" / "what-it-costs.md").read_text()

    assert f"| as they come, 3 to a call | {SESSION_CALLS} | {SESSION_INPUT_TOKENS:,} | {SESSION_OUTPUT_TOKENS:,} |" in page
    day = compute_day_cost("claude-haiku-5-5")
    assert day is not None
    assert f"{day / 5:.3f}" in page
    assert compute_day_cost("unheard-of") is None


# -- by connect


def serve(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, provider: str = "offline", *, url: str = URL) -> None:
    """A server of this data folder."""
    (tmp_path / "data").mkdir(exist_ok=True)
    state.announce(tmp_path / "data", url, "all", background=True)
    postgres = service.Postgres(version="18", embedded=True, vectors=True)
    info = service.Info(version="1", postgres=postgres, workers=1, provider=ProviderOut(name=provider, chain=[provider], pauses=[]))

    def read_info(_settings: Settings, _url: str) -> tuple[service.Info, None]:
        return info, None

    monkeypatch.setattr(provider_offer, "read_info", read_info)


@pytest.mark.parametrize("url", [URL, "http://localhost:4000"])
def test_connecting_to_this_installation_asks_and_says_how_it_takes_effect(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], url: str
):
    serve(monkeypatch, tmp_path)
    terminal.keys = ["1"]

    offer_to_local_server(loaded(), url)

    assert kept(tmp_path) == {"provider": "claude-cli"}
    assert "`cmserver restart`" in capsys.readouterr().out


@pytest.mark.parametrize("url", ["https://memory.example.com", "http://127.0.0.1:4001", "http://192.168.1.2:4000"])
def test_another_servers_provider_is_its_own_matter(terminal: Terminal, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, url: str):
    serve(monkeypatch, tmp_path)

    offer_to_local_server(loaded(), url)

    assert terminal.asked == 0


def test_a_server_whose_own_environment_names_a_provider_is_left_alone(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    serve(monkeypatch, tmp_path, "anthropic")

    offer_to_local_server(loaded(), URL)

    assert terminal.asked == 0


async def test_connect_offers_it_unless_it_is_told_not_to_ask(run: Run, monkeypatch: pytest.MonkeyPatch):
    urls: list[str] = []

    def note(_: LoadedSettings, url: str) -> None:
        urls.append(url)

    monkeypatch.setattr(connect, "offer_to_local_server", note)

    await run("connect", "codex", "--yes")
    await run("connect", "codex", "--dry-run")
    assert urls == []

    said = await run("connect", "codex")
    assert (said.code, len(urls)) == (0, 1)
