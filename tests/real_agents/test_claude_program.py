"""The provider claude-cli with the real `claude` program, against an API that plays a script.

The machine it runs on is full of what a session of Claude Code takes up: hooks, instructions, skills, commands, agents, a plugin,
MCP servers. Each of them leaves a trace when it is taken up, and the first test sees to it that they do.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import cast

import msgspec
import pytest

from cmserver.models.providers import claude_cli
from cmserver.models.providers.model import Completion, FailureKind, Prompt, ProviderError, ProviderSettings
from cmserver.models.providers.prompts.render import render
from cmserver.models.providers.registry import load
from tests.models.providers.fake.server import Asked, FakeProvider, Reply, fake_provider
from tests.reading.events import read_call
from tests.real_agents.messages_api import Script, failed, is_for_the_model, streamed, text, tool_use
from tests.timeouts import scaled

pytestmark = pytest.mark.slow

ANSWER: dict[str, object] = {"observations": [], "skipped": [{"event": "e1", "reason": "routine"}]}
USAGE = {"input_tokens": 100, "cache_creation_input_tokens": 7, "cache_read_input_tokens": 50, "output_tokens": 20}
HOOKS = ["SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop", "SessionEnd"]
WORDS = "words-of-another"
"""Stands in everything that could be taken up as instructions."""


def answered() -> Reply:
    return streamed(tool_use("StructuredOutput", ANSWER), usage=USAGE)


def prompt(*commands: str) -> Prompt:
    return Prompt(
        kind="observations",
        project="orders",
        events=[read_call("Bash", {"command": command}, at=n) for n, command in enumerate(commands, start=1)],
    )


class Machine:
    """A user's home, and a project around the folder for temporary files, each with all that a session takes up."""

    def __init__(self, folder: Path, program: Path) -> None:
        self.program = program
        self.home = folder / "home"
        self.project = folder / "project"
        self.temporary = self.project / "tmp"
        self.traces = folder / "traces"
        self.secret = folder / "secret.txt"
        self.temporary.mkdir(parents=True)
        self.traces.mkdir()
        self.secret.write_text(WORDS)
        self._fill(folder / "market")

    def _fill(self, market: Path) -> None:
        hooks = {event: [{"hooks": [{"type": "command", "command": f"touch {self.traces}/hook"}]}] for event in HOOKS}
        server = {"mcpServers": {"trace": {"command": "touch", "args": [f"{self.traces}/mcp"]}}}
        named = f"---\nname: other\ndescription: {WORDS}\n---\n{WORDS}"
        settings = self.home / ".claude"
        self._write(settings / "settings.json", {"hooks": hooks, "outputStyle": "other", "enableAllProjectMcpServers": True})
        self._write(settings / "CLAUDE.md", WORDS)
        self._write(settings / "output-styles" / "other.md", named)
        self._write(settings / "skills" / "other" / "SKILL.md", named)
        self._write(settings / "agents" / "other.md", named)
        self._write(settings / "commands" / "trace.md", f"{WORDS} !`touch {self.traces}/command`")
        self._write(self.home / ".claude.json", server)
        for folder in (self.project, self.temporary):
            self._write(folder / ".claude" / "settings.json", {"hooks": hooks})
            self._write(folder / "CLAUDE.md", WORDS)
            self._write(folder / ".mcp.json", server)
        owned = {"name": "market", "owner": {"name": "other"}, "plugins": [{"name": "other", "source": "./other"}]}
        self._write(market / ".claude-plugin" / "marketplace.json", owned)
        self._write(market / "other" / ".claude-plugin" / "plugin.json", {"name": "other"})
        self._write(market / "other" / "hooks" / "hooks.json", {"hooks": hooks})
        self._write(market / "other" / ".mcp.json", server)
        self._write(market / "other" / "skills" / "more" / "SKILL.md", named)
        for words in (["marketplace", "add", str(market)], ["install", "other@market"]):
            # without the login, which it would look up on the network
            env = self.env(CLAUDE_CODE_OAUTH_TOKEN="")
            subprocess.run([self.program, "plugin", *words], env=env, check=True, capture_output=True, timeout=scaled(60))

    @staticmethod
    def _write(path: Path, content: str | Mapping[str, object]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))

    def env(self, **more: str) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "CLAUDE_CODE_OAUTH_TOKEN": "sk-ant-oat01-" + "d" * 20,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            **more,
        }

    def traced(self) -> set[str]:
        return {path.name for path in self.traces.iterdir()}

    def runs(self) -> bool:
        listed = subprocess.run(["ps", "-A", "-o", "args="], check=True, capture_output=True, text=True)
        return any(str(self.program) in line for line in listed.stdout.splitlines())

    def files(self) -> set[str]:
        """Of its own the program keeps one file with its state, copies of that one, which of its own plugins it has, and a
        note of its process, which it does not always take away at its end."""
        own = (".claude.json", ".claude/backups", ".claude/plugins", ".claude/sessions")
        names = {str(path.relative_to(self.home)) for path in self.home.rglob("*") if path.is_file()}
        return {name for name in names if not name.startswith(own)} | {path.name for path in self.temporary.iterdir()}


@pytest.fixture(scope="module")
def filled(claude_program: Path, tmp_path_factory: pytest.TempPathFactory) -> Machine:
    return Machine(tmp_path_factory.mktemp("machine"), claude_program)


@pytest.fixture
def machine(filled: Machine, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """The one this process seems to run on. Set as if it had been started from a session of Claude Code."""
    for trace in filled.traces.iterdir():
        trace.unlink()
    more = {"CLAUDECODE": "1", "CLAUDE_PROJECT_DIR": str(filled.project), "ANTHROPIC_API_KEY": "sk-ant-api03-not-this-one"}
    for name, value in filled.env(**more).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(tempfile, "tempdir", str(filled.temporary))
    return filled


@pytest.fixture
async def api(monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[FakeProvider]:
    async with fake_provider() as fake:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", fake.url)
        yield fake


async def ask(machine: Machine, asked: Prompt | None = None, **given: object) -> Completion:
    usual: dict[str, object] = {"name": "claude-cli", "claude_program": str(machine.program), "timeout_seconds": scaled(60)}
    return await load(msgspec.convert({**usual, **given}, ProviderSettings)).complete(asked or prompt("make test"))


async def failure(machine: Machine) -> ProviderError:
    with pytest.raises(ProviderError) as raised:
        await ask(machine)
    return raised.value


def tools(asked: Asked) -> list[str]:
    return [tool["name"] for tool in cast("list[dict[str, str]]", asked.json.get("tools", []))]


async def test_what_lies_about_leaves_traces_in_a_session_of_its_own(machine: Machine, api: FakeProvider):
    api.otherwise = Script(streamed(text("Hello.")))
    folder = machine.temporary / "session"
    folder.mkdir()

    for said in (b"Hello", b"/trace"):
        plain = await asyncio.create_subprocess_exec(
            *(machine.program, "-p", "--model", "haiku", "--allowed-tools", "Bash"),
            cwd=folder,
            env=machine.env(ANTHROPIC_BASE_URL=api.url),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        await plain.communicate(said)
    shutil.rmtree(folder)
    shutil.rmtree(machine.home / ".claude" / "projects")

    asked = [one for one in api.asked if is_for_the_model(one)]
    assert machine.traced() == {"hook", "mcp", "command"}
    assert any(WORDS in one.body.decode() for one in asked)
    assert any("Bash" in tools(one) for one in asked)


async def test_the_structured_answer_and_what_it_took_come_back(machine: Machine, api: FakeProvider):
    api.otherwise = Script(answered())

    completion = await ask(machine)

    assert json.loads(completion.text) == ANSWER
    assert completion.model == "claude-haiku-5-5"
    assert (completion.input_tokens, completion.cache_write_tokens, completion.cache_read_tokens) == (100, 7, 50)
    assert (completion.output_tokens, completion.cost_usd) == (20, None)


async def test_nothing_but_the_one_question_reaches_the_api(machine: Machine, api: FakeProvider):
    api.otherwise = Script(answered())
    wording = render(prompt("make test"), "json")

    await ask(machine, answer_max_tokens=4_000)

    (asked,) = api.asked
    body = asked.body.decode()
    system = cast("list[dict[str, str]]", asked.json["system"])
    assert is_for_the_model(asked)
    assert system[-1]["text"] == wording.system
    assert json.dumps(wording.user)[1:-1] in json.dumps(asked.json["messages"])
    assert tools(asked) == ["StructuredOutput"]
    assert WORDS not in body
    assert (asked.json["model"], asked.json["max_tokens"]) == ("claude-haiku-5-5", 4_000)
    assert asked.headers["authorization"].startswith("Bearer sk-ant-oat01-")  # the login, and not the key that is for cmserver
    assert "x-api-key" not in asked.headers


async def test_nothing_that_lies_about_is_taken_up_and_nothing_is_left_behind(machine: Machine, api: FakeProvider):
    api.otherwise = Script(answered())
    before = machine.files()

    await ask(machine)

    assert machine.traced() == set()
    assert machine.files() == before


async def test_a_model_that_calls_tools_moves_nothing(machine: Machine, api: FakeProvider):
    touch = {"command": f"touch {machine.traces}/tool"}
    write = {"file_path": f"{machine.traces}/tool", "content": "x"}
    api.otherwise = Script(
        streamed(
            tool_use("Bash", touch, "toolu_1"),
            tool_use("Write", write, "toolu_2"),
            tool_use("Read", {"file_path": str(machine.secret)}, "toolu_3"),
            tool_use("mcp__trace__touch", {}, "toolu_4"),
            tool_use("Task", {"description": "x", "prompt": "x", "subagent_type": "other"}, "toolu_5"),
        ),
        answered(),
    )

    completion = await ask(machine)

    assert json.loads(completion.text) == ANSWER
    assert machine.traced() == set()
    assert [tools(asked) for asked in api.asked] == [["StructuredOutput"]] * 2
    assert WORDS not in b"".join(asked.body for asked in api.asked).decode()


async def test_a_model_that_goes_on_calling_tools_is_stopped(machine: Machine, api: FakeProvider):
    api.otherwise = Script(streamed(tool_use("Bash", {"command": f"touch {machine.traces}/tool"})))

    error = await failure(machine)

    assert error.kind is FailureKind.UNUSABLE_ANSWER
    assert error.completion is not None
    assert machine.traced() == set()
    assert len(api.asked) <= 4


@pytest.mark.parametrize(
    "user", ["/compact", "/trace", "/help\nmore", "!touch traces", "# remember", "/mcp__trace__x", "\n /clear"]
)
async def test_text_that_would_be_a_command_is_data(
    machine: Machine, api: FakeProvider, user: str, monkeypatch: pytest.MonkeyPatch
):
    api.otherwise = Script(answered())

    def only(_prompt: Prompt, _form: str) -> object:
        return msgspec.structs.replace(render(prompt("x"), "json"), user=user)

    monkeypatch.setattr(claude_cli, "render", only)

    completion = await ask(machine)

    (asked,) = api.asked
    assert json.loads(completion.text) == ANSWER
    assert json.dumps(user.strip())[1:-1] in json.dumps(asked.json["messages"])
    assert machine.traced() == set()


@pytest.mark.parametrize("locks", ["both", "only the settings", "only the variables"])
async def test_a_file_that_is_mentioned_is_not_read(
    machine: Machine, api: FakeProvider, locks: str, monkeypatch: pytest.MonkeyPatch
):
    api.otherwise = Script(answered())
    if locks == "only the settings":
        monkeypatch.setattr(
            claude_cli, "_VARIABLES", {"CLAUDE_CODE_MAX_RETRIES": "0", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
        )
    if locks == "only the variables":
        monkeypatch.setattr(claude_cli, "_SETTINGS", "{}")

    await ask(machine, prompt(f"cat @{machine.secret} ", f"@{machine.project} @.mcp.json @agent-other @trace:x"))

    (asked,) = api.asked
    assert f"@{machine.secret}" in asked.body.decode()
    assert WORDS not in asked.body.decode()


LIMIT = {
    "anthropic_ratelimit_unified_status": "rejected",
    "anthropic_ratelimit_unified_reset": "4102444800",
    "anthropic_ratelimit_unified_representative_claim": "five_hour",
}
FAULTS: list[tuple[str, Reply, FailureKind]] = [
    ("plan used up", failed(429, "rate_limit_error", "Exceeded.", **LIMIT), FailureKind.QUOTA_EXHAUSTED),
    ("too many at once", failed(429, "rate_limit_error", "Slow down."), FailureKind.RATE_LIMITED),
    ("no credits", failed(400, "invalid_request_error", "Your credit balance is too low to go on."), FailureKind.QUOTA_EXHAUSTED),
    ("402", failed(402, "billing_error", "Pay."), FailureKind.QUOTA_EXHAUSTED),
    ("login expired", failed(401, "authentication_error", "OAuth token has expired."), FailureKind.AUTH_INVALID),
    ("no access", failed(403, "permission_error", "Not you."), FailureKind.AUTH_INVALID),
    ("no such model", failed(404, "not_found_error", "model: haiku"), FailureKind.SETUP_REQUIRED),
    (
        "too long",
        failed(400, "invalid_request_error", "prompt is too long: 250000 tokens > 200000 maximum"),
        FailureKind.CONTEXT_TOO_LONG,
    ),
    ("too large", failed(413, "request_too_large", "Too large."), FailureKind.CONTEXT_TOO_LONG),
    ("overloaded", failed(529, "overloaded_error", "Overloaded"), FailureKind.TRANSIENT),
    ("broken", failed(500, "api_error", "Internal server error"), FailureKind.TRANSIENT),
    ("cut stream", msgspec.structs.replace(answered(), stop_after=600), FailureKind.TRANSIENT),
    ("no stream", Reply(headers={"content-type": "text/html"}, body=b"<html>hi</html>"), FailureKind.TRANSIENT),
    ("refusal", streamed(text("No."), stop_reason="refusal"), FailureKind.REFUSED),
    ("cut at the limit", streamed(text("The"), stop_reason="max_tokens"), FailureKind.UNUSABLE_ANSWER),
    ("another form", streamed(tool_use("StructuredOutput", {"observations": 7})), FailureKind.UNUSABLE_ANSWER),
]


@pytest.mark.parametrize(("reply", "kind"), [pytest.param(reply, kind, id=name) for name, reply, kind in FAULTS])
async def test_what_the_api_refuses_keeps_its_meaning(machine: Machine, api: FakeProvider, reply: Reply, kind: FailureKind):
    api.otherwise = Script(reply)

    error = await failure(machine)

    assert error.kind is kind, str(error)


async def test_a_plan_that_is_used_up_says_until_when(machine: Machine, api: FakeProvider):
    api.otherwise = Script(failed(429, "rate_limit_error", "Exceeded.", **LIMIT))

    error = await failure(machine)

    assert "limit" in str(error)
    assert error.retry_after_seconds is not None
    assert error.retry_after_seconds > 0


async def test_without_a_login_it_says_so(machine: Machine, api: FakeProvider, monkeypatch: pytest.MonkeyPatch):
    api.otherwise = Script(answered())
    monkeypatch.delenv("CLAUDE_CODE_OAUTH_TOKEN")

    error = await failure(machine)

    assert error.kind is FailureKind.AUTH_INVALID
    assert "/login" in str(error)
    assert api.asked == []


async def test_a_cancelled_call_leaves_no_process_and_no_session(machine: Machine, api: FakeProvider):
    begun = asyncio.Event()

    def stall(_asked: Asked) -> Reply:
        begun.set()
        return msgspec.structs.replace(answered(), stall_after=200)

    api.otherwise = stall
    before = machine.files()
    call = asyncio.create_task(ask(machine))
    await begun.wait()

    call.cancel()
    await asyncio.gather(call, return_exceptions=True)

    assert not machine.runs()
    assert machine.files() == before
