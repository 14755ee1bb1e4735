"""`bin/bench prove`: whether the next session is told the right thing and not the stale one. Sixty kept tasks, no model.

Each task is a short history of hooks (`proof.json`): a right thing, a stale thing or a decoy, and the start, the prompt or the read
of the session that comes next. They were written before the code that tells was looked at; half of them are held back: nothing is
changed because of what one of those says. What is measured is whether a thing is among the lines that an agent is given, in
projects as small as these histories: not whether it is found among years of work, as `bin/bench recall` and `usefulness` do.
"""

from __future__ import annotations

import re
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, cast

import click
import msgspec

from cmserver.base import logs
from cmserver.observations.model import estimate_tokens
from tests.bench.against import Server, start_server
from tests.bench.load import ROOT
from tests.bench.world import world

_FILE = Path(__file__).parent / "proof.json"
_CWD = "/home/dev/work"
_DAY_SECONDS = 86_400
_POINTER = re.compile(r"\((?:later: |changed in |passes since )#\d|\bfailed\b")
"""What a line says whose matter was taken up again, or of a command that did not work."""
_JOBS_SECONDS = 300.0

Json = dict[str, object]


class ProofTask(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A history, and what the session after it is to be told.

    An event is `prompt TEXT`, `say TEXT`, `read PATH`, `edit PATH OLD NEW` or `run COMMAND OUTPUT EXIT-CODE`; `then` is `start`,
    `prompt TEXT` or `read PATH`. `right` must be told, `stale` must not, unless the line points to what came later.
    """

    id: str
    kind: str
    held: bool
    right: str
    stale: str
    then: list[str]
    sessions: list[list[list[str | int]]]


class ToldTask(msgspec.Struct, frozen=True, kw_only=True):
    """What a session was told after a task's history."""

    task: ProofTask
    text: str

    @property
    def has_right(self) -> bool:
        return self.task.right.casefold() in self.text.casefold()

    @property
    def has_stale(self) -> bool:
        """Whether a line says the stale thing as if it held: neither with the right one, nor that it is over or failed."""
        return any(
            self.task.stale.casefold() in line and self.task.right.casefold() not in line and not _POINTER.search(line)
            for line in self.text.casefold().splitlines()
        )


def load() -> list[ProofTask]:
    return msgspec.json.decode(_FILE.read_bytes(), type=list[ProofTask])


def session_payloads(session_id: str, events: Sequence[Sequence[str | int]]) -> Iterator[Json]:
    """What the agent's hooks send of a session, from its start to its end."""
    common: Json = {"session_id": session_id, "cwd": _CWD}
    yield {"hook_event_name": "SessionStart", "source": "startup", **common}
    turn = 0
    for place, (kind, *words) in enumerate(events):
        turn += kind == "prompt"
        payload = {**common, "prompt_id": f"{session_id}-{turn}", "tool_use_id": f"toolu_{session_id}_{place}"}
        yield payload | _event_fields(str(kind), words)
    yield {"hook_event_name": "SessionEnd", "reason": "other", **common}


def _event_fields(kind: str, words: Sequence[str | int]) -> Json:
    match kind, *words:
        case "prompt", text:
            return {"hook_event_name": "UserPromptSubmit", "prompt": text}
        case "say", text:
            return {"hook_event_name": "Stop", "stop_hook_active": False, "last_assistant_message": text}
        case "read", path:
            file = {"filePath": f"{_CWD}/{path}", "content": "", "numLines": 1, "startLine": 1, "totalLines": 1}
            return _tool("Read", {"file_path": f"{_CWD}/{path}"}, {"type": "text", "file": file})
        case "edit", path, old, new:
            if not old:
                given: Json = {"file_path": f"{_CWD}/{path}", "content": new}
                return _tool("Write", given, {"type": "create", "filePath": given["file_path"], "content": new})
            given = {"file_path": f"{_CWD}/{path}", "old_string": old, "new_string": new}
            return _tool("Edit", given, {"filePath": given["file_path"], "oldString": old, "newString": new})
        case "run", command, output, 0:
            return _tool("Bash", {"command": command}, {"stdout": output, "stderr": "", "interrupted": False, "isImage": False})
        case "run", command, output, code:
            failed = {"hook_event_name": "PostToolUseFailure", "tool_name": "Bash", "tool_input": {"command": command}}
            return {**failed, "error": f"Exit code {code}\n{output}", "is_interrupt": False}
        case _:
            raise ValueError(f"no such event: {kind} {words}")


def _tool(name: str, given: Json, response: Json) -> Json:
    return {"hook_event_name": "PostToolUse", "tool_name": name, "tool_input": given, "tool_response": response}


def play(server: Server, tasks: Sequence[ProofTask]) -> list[ToldTask]:
    """Every history, each in a project of its own, a session a day; then what the next session of each is told."""
    now = time.time()
    for task in tasks:
        for place, events in enumerate(task.sessions):
            began = now - _DAY_SECONDS * (len(task.sessions) - place)
            for step, payload in enumerate(session_payloads(f"{task.id}-{place}", events)):
                _send(server, task, payload, began + 20 * step)
    _wait(server)
    return [ToldTask(task=task, text=_ask(server, task)) for task in tasks]


def _ask(server: Server, task: ProofTask) -> str:
    """All that the next session is told until the moment that the task is about."""
    common: Json = {"session_id": f"{task.id}-next", "cwd": _CWD}
    payloads: list[Json] = [{"hook_event_name": "SessionStart", "source": "startup", **common}]
    match task.then:
        case ["prompt", text]:
            payloads.append({"hook_event_name": "UserPromptSubmit", "prompt": text, **common})
        case ["read", path]:
            given = {"file_path": f"{_CWD}/{path}"}
            payloads.append({"hook_event_name": "PreToolUse", "tool_name": "Read", "tool_input": given, **common})
        case _:
            pass
    return "\n".join(_send(server, task, payload, time.time()) for payload in payloads)


def _send(server: Server, task: ProofTask, payload: Json, at: float) -> str:
    """What the agent's model is told."""
    headers = {"X-Cmserver-Project": f"github.com/acme/{task.id}", "X-Cmserver-Sent-At": str(int(at * 1000))}
    answer = server.client.post("/v1/hooks/claude-code", json=payload, headers=headers).raise_for_status()
    output = cast("dict[str, dict[str, str]]", answer.json())
    return output.get("hookSpecificOutput", {}).get("additionalContext", "")


def _wait(server: Server) -> None:
    """Until nothing is to be generated or embedded any more."""
    server.wait_until_drained()
    end = time.monotonic() + _JOBS_SECONDS
    while _Info.read(server).state == "filling":
        if time.monotonic() > end:
            raise RuntimeError(f"What was said has no vectors after {_JOBS_SECONDS:g} s.")
        time.sleep(0.2)


class _Info(msgspec.Struct, frozen=True, kw_only=True):
    """GET /v1/info: how far the vectors are."""

    class Embeddings(msgspec.Struct, frozen=True, kw_only=True):
        state: str = "off"

    embeddings: Embeddings | None = None

    @classmethod
    def read(cls, server: Server) -> Embeddings:
        info = msgspec.json.decode(server.client.get("/v1/info").raise_for_status().content, type=cls)
        return info.embeddings or cls.Embeddings()


def render(told: Sequence[ToldTask], *, details: bool) -> str:
    """The figures of both halves, and by kind; with `details` what went wrong in the half that may be looked at."""
    lines = [f"{'':24}{'right thing told':>18}{'stale thing told':>18}{'tokens a task':>16}"]
    halves: dict[Literal["open", "held back"], list[ToldTask]] = {
        "open": [one for one in told if not one.task.held],
        "held back": [one for one in told if one.task.held],
    }
    for name, half in halves.items():
        lines.append(_line(name, half))
    lines += [_line(kind, [one for one in told if one.task.kind == kind]) for kind in Counter(one.task.kind for one in told)]
    if details:
        for one in halves["open"]:
            if not one.has_right or one.has_stale:
                what = "stale told" if one.has_right else "right missed"
                lines.append(f"{one.task.id}: {what}\n{one.text}")
    return "\n".join(lines)


def _line(name: str, told: Sequence[ToldTask]) -> str:
    right, stale = sum(one.has_right for one in told), sum(one.has_stale for one in told)
    tokens = sum(estimate_tokens(one.text) for one in told) / len(told)
    return f"{name:24}{f'{right} of {len(told)}':>18}{f'{stale} of {len(told)}':>18}{tokens:16.0f}"


@click.command()
@click.option("--details", is_flag=True, help="Show what was told in tasks that went wrong; never of the half that is held back.")
@click.option(
    "--least", type=click.IntRange(0, 30), default=28, show_default=True, help="Exit 1 when a half has fewer right things."
)
def main(*, details: bool, least: int) -> None:
    """Play sixty kept tasks through the hooks of a real server, without a model: is the right thing told, is a stale one?"""
    logs.configure("console", "error")
    with world() as here, start_server(here, ROOT, context_on="both", session_idle_hours=0, log_level="error") as server:
        told = play(server, load())
    click.echo(render(told, details=details))
    if min(sum(one.has_right for one in told if one.task.held is held) for held in (False, True)) < least:
        sys.exit(1)
