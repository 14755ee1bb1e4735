"""What is found on a machine: programs are not started, and only the loopback is asked."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

from cmserver.base.configuration import load
from cmserver.models.providers.available import AvailableProvider, find_available, find_ollama_address
from cmserver.models.providers.table import PROVIDERS
from tests.models.providers.fake.server import FakeProvider, Reply, fake_provider, json_reply
from tests.table import try_rows

NO_OLLAMA = {"OLLAMA_HOST": "127.0.0.1:1"}
MODELS: dict[str, object] = {
    "models": [
        {"name": "qwen3:8b", "size": 5_200_000_000, "details": {"family": "qwen3"}},
        {"name": "gpt-oss:120b-cloud", "remote_host": "https://ollama.com:443", "details": {"family": "gptoss"}},
        {"name": "kimi-k2:cloud"},
        {"name": "nomic-embed-text:latest", "details": {"family": "nomic-bert"}},
        {"name": "all-minilm:latest", "details": {"family": "bert"}},
        {"name": "bad\x1b[2J,name"},
        *({"name": f"llama{number}:latest", "details": {"family": "llama"}} for number in range(9)),
    ]
}


def find(environ: Mapping[str, str]) -> list[AvailableProvider]:
    environ = {"HOME": "/nowhere", "PATH": "/nowhere", **NO_OLLAMA, **environ}
    return find_available(load(environ).settings, environ)


async def find_at(fake: FakeProvider) -> list[AvailableProvider]:
    return await asyncio.to_thread(find, {"OLLAMA_HOST": fake.url})


def test_nothing_is_found_where_there_is_nothing():
    assert find({}) == []


def test_the_claude_program_is_found_and_not_started(tmp_path: Path):
    program = tmp_path / "claude"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\n")
    program.chmod(0o755)

    assert find({"PATH": str(tmp_path)}) == [AvailableProvider(name="claude-cli", model="haiku")]
    assert find({"CLAUDE_CODE_PATH": str(program)}) == [AvailableProvider(name="claude-cli", model="haiku")]
    assert find({"PATH": str(tmp_path), "CMSERVER_HOST": "0.0.0.0"}) == []  # others may send to it
    assert not (tmp_path / "started").exists()


def test_keys_are_found_in_variables_and_their_files(tmp_path: Path):
    (tmp_path / "key").write_text("sk-0123456789abcdef")

    found = find({"ANTHROPIC_API_KEY": "sk-ant-0123", "OPENROUTER_API_KEY_FILE": str(tmp_path / "key")})

    assert [provider.name for provider in found] == ["anthropic", "openrouter"]
    assert all(provider.model for provider in found)


async def test_an_ollama_is_listed_with_its_newest_models_that_write_here():
    async with fake_provider(lambda _: json_reply(MODELS)) as fake:
        found = await find_at(fake)

    assert [provider.model for provider in found] == ["qwen3:8b", "llama0:latest", "llama1:latest"]
    assert {(provider.name, provider.base_url) for provider in found} == {("ollama", f"{fake.url}/v1")}
    assert [(request.method, request.path) for request in fake.asked] == [("GET", "/api/tags")]


@try_rows(
    "reply",
    [Reply(body=b"Hello"), Reply(body=b"\xff"), Reply(body=b"[]"), Reply(body=b'{"models": [{}]}'), json_reply({}, status=500)],
)
async def test_what_does_not_answer_as_ollama_is_none(reply: Reply):
    async with fake_provider(lambda _: reply) as fake:
        assert await find_at(fake) == []


async def test_an_ollama_that_is_stuck_is_not_waited_for():
    async with fake_provider(lambda _: Reply(body=b"{}", stall_after=1)) as fake:
        assert await find_at(fake) == []


@try_rows(
    ("host", "address"),
    [
        ("", "http://127.0.0.1:11434"),
        ("localhost", "http://localhost:11434"),
        (":8000", "http://127.0.0.1:8000"),
        ("0.0.0.0", "http://127.0.0.1:11434"),
        ("0.0.0.0:8000", "http://127.0.0.1:8000"),
        ("[::1]:8000", "http://[::1]:8000"),
        ("http://127.0.0.1", "http://127.0.0.1:80"),
        ("https://localhost", "https://localhost:443"),
        ("gpu.example.org:11434", None),
        ("http://192.168.1.2", None),
        ("unix:///run/ollama", None),
        ("127.0.0.1:port", None),
        ("[::1", None),
    ],
)
def test_only_this_machines_ollama_has_an_address(host: str, address: str | None):
    assert find_ollama_address({"OLLAMA_HOST": host}) == address


def test_the_usual_address_is_that_of_the_provider():
    assert f"{find_ollama_address({})}/v1" == PROVIDERS["ollama"].base_url
