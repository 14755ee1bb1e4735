"""Claude Code as its user runs it: a home, a project under git, and a model that plays a script and notes what it was sent."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import cast
from uuid import uuid4

import msgspec

from tests.models.providers.fake.server import Asked, FakeProvider, Reply
from tests.real_agents.messages_api import failed, is_for_the_model, streamed, text, tool_use
from tests.timeouts import scaled

REMOTE = "https://github.com/acme/orders.git"
PROJECT = "github.com/acme/orders"
SESSION_SECONDS = 90.0
_AGENT = "x-claude-code-agent-id"

Line = Reply | Callable[[], Reply]
"""What the model says next; or what happens then, and what it says after that."""


class Model:
    """Plays the lines it is given, those for sub-agents apart from the session's own; without any it says that it is done."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.for_agents: list[Line] = []
        self.heard = ""
        """All words of the newest request."""

    def __call__(self, asked: Asked) -> Reply:
        if not is_for_the_model(asked):
            return failed(404, "not_found_error", "Not found")
        self.heard = words(asked)
        lines = self.for_agents if _AGENT in asked.headers else self.lines
        line = lines.pop(0) if lines else streamed(text("All done."))
        return line if isinstance(line, Reply) else line()


class Hooked(msgspec.Struct, frozen=True, kw_only=True):
    """A hook's end, as the program reports it; of SessionEnd it reports none."""

    hook_event: str
    stdout: str
    stderr: str
    exit_code: int | None = None
    outcome: str

    @property
    def notice(self) -> str | None:
        """What the user is told."""
        said = cast("dict[str, str]", json.loads(self.stdout)) if self.stdout.startswith("{") else {}
        return said.get("systemMessage")


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What the model was shown of a tool's answer: its text, the tools that it was told of, and whether it was an error."""

    text: str
    tools: list[str]
    is_error: bool


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """One run of the program, over. `asked` is what its model was sent, in order."""

    id: str
    seconds: float
    asked: list[Asked]
    hooks: list[Hooked]

    @property
    def notices(self) -> list[str]:
        return [hook.notice for hook in self.hooks if hook.notice]

    @property
    def of_the_session(self) -> list[str]:
        """All words of each request that is not a sub-agent's."""
        return [words(one) for one in self.asked if _AGENT not in one.headers]

    @property
    def results(self) -> list[Result]:
        """Of all tools that the model used, in order, as the newest request has them."""
        messages = cast("list[dict[str, object]]", self.asked[-1].json["messages"])
        contents = [one["content"] for one in messages]
        blocks = [block for one in contents if isinstance(one, list) for block in cast("list[dict[str, object]]", one)]
        return [_result(block) for block in blocks if block["type"] == "tool_result"]

    @property
    def of_agents(self) -> list[str]:
        return [words(one) for one in self.asked if _AGENT in one.headers]


class Coder:
    """Somebody who has Claude Code on the path, and nothing else of the surroundings."""

    def __init__(self, folder: Path, program: Path, api: FakeProvider, model: Model) -> None:
        self.home = folder / "home"
        self.project = folder / "orders"
        self.settings = self.home / ".claude" / "settings.json"
        self.model = model
        self.variables: dict[str, str] = {}
        """What the user's shell sets for all programs."""
        self._program, self._api = program, api
        self.settings.parent.mkdir(parents=True)
        self.project.mkdir()
        for command in (["init", "--quiet", "--initial-branch=main"], ["remote", "add", "origin", REMOTE]):
            subprocess.run(["git", *command], cwd=self.project, env=self.env(), check=True, capture_output=True)

    def env(self, **more: str) -> dict[str, str]:
        return {
            "PATH": f"{self._program.parent}:{os.environ['PATH']}",
            "HOME": str(self.home),
            "XDG_CONFIG_HOME": str(self.home / ".config"),
            "LC_ALL": "C.UTF-8",
            "CLAUDE_CONFIG_DIR": str(self.settings.parent),
            "ANTHROPIC_API_KEY": "sk-ant-api03-" + "d" * 80,
            "ANTHROPIC_BASE_URL": self._api.url,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_TELEMETRY": "1",
            **self.variables,
            **more,
        }

    def session(
        self,
        prompt: str,
        *lines: Line,
        agents: tuple[Line, ...] = (),
        words: tuple[str, ...] = (),
        folder: Path | None = None,
    ) -> Session:
        """`claude -p <words>` with the prompt, to its end. `folder` is where, if not in the project."""
        self.model.lines, self.model.for_agents = list(lines), list(agents)
        first = len(self._api.asked)
        began = time.monotonic()
        done = subprocess.run(
            [
                *(self._program, "-p", "--output-format", "stream-json", "--verbose", "--include-hook-events"),
                *("--model", "haiku", "--allowedTools", "Write,Edit,Read,Bash,Agent", *words),
            ],
            cwd=folder or self.project,
            env=self.env(),
            input=prompt,
            capture_output=True,
            text=True,
            timeout=scaled(SESSION_SECONDS),
            check=False,
        )
        seconds = time.monotonic() - began
        assert done.returncode == 0, f"claude ended with {done.returncode}:\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
        said = [cast("dict[str, object]", json.loads(line)) for line in done.stdout.splitlines()]
        return Session(
            id=next(str(one["session_id"]) for one in said if "session_id" in one),
            seconds=seconds,
            asked=[one for one in self._api.asked[first:] if is_for_the_model(one)],
            hooks=[msgspec.convert(one, Hooked) for one in said if one.get("subtype") == "hook_response"],
        )

    def resume(self, before: Session, prompt: str, *lines: Line, words: tuple[str, ...] = ()) -> Session:
        return self.session(prompt, *lines, words=("--resume", before.id, *words))

    def claude(self, *words: str) -> str:
        """`claude <words>`, which ends by itself; what it printed."""
        done = subprocess.run(
            [self._program, *words],
            cwd=self.project,
            env=self.env(),
            capture_output=True,
            text=True,
            timeout=scaled(60),
            check=False,
        )
        assert done.returncode == 0, f"claude {' '.join(words)}:\n{done.stdout}{done.stderr}"
        return done.stdout

    # -- what the model may say

    def writes(self, name: str, content: str) -> Reply:
        return uses("Write", file_path=str(self.project / name), content=content)

    def edit(self, name: str, old: str, new: str) -> dict[str, object]:
        return call("Edit", file_path=str(self.project / name), old_string=old, new_string=new)


def uses(name: str, **given: object) -> Reply:
    return streamed(call(name, **given))


def call(name: str, **given: object) -> dict[str, object]:
    """A tool call under an id that no other has."""
    return tool_use(name, given, f"toolu_{uuid4().hex[:24]}")


def words(asked: Asked) -> str:
    """Every text in what the model was sent, one after the other, as it reads them."""
    return "\n".join(_texts({"system": asked.json.get("system"), "messages": asked.json["messages"]}))


def _result(block: Mapping[str, object]) -> Result:
    content = cast("str | list[dict[str, str]]", block["content"])
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return Result(
        text="".join(part["text"] for part in parts if part["type"] == "text"),
        tools=[part["tool_name"] for part in parts if part["type"] == "tool_reference"],
        is_error=block.get("is_error") is True,
    )


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for one in cast("Mapping[str, object]", value).values():
            yield from _texts(one)
    elif isinstance(value, list):
        for one in cast("list[object]", value):
            yield from _texts(one)
