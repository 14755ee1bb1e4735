"""The labelled sessions of this folder, and the hooks that an agent would send of them. The README explains both."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Literal, cast

import msgspec

from tests.evaluation.short_form import Agent, ShortEvent, build_tool_payload

Half = Literal["dev", "held_back", "stranger", "stranger_held_back"]
HALVES: tuple[Half, ...] = ("dev", "held_back")
STRANGERS: tuple[Half, ...] = ("stranger", "stranger_held_back")
"""Short sessions of replies, options, plans, changed rules, look-ups and late passes; figures of their own."""
FOLDER = Path(__file__).parent

Kind = Literal["cause", "finding", "decision", "fix", "limitation", "open", "next", "command", "change"]
_DAY_SECONDS = 86_400


class SessionEvent(ShortEvent, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A prompt, the agent's last message of a turn, or a tool use in its short form."""

    after: float = 5
    """Seconds since the event before."""
    prompt: str = ""
    reply: str = ""

    @property
    def is_tool_use(self) -> bool:
        return not self.prompt and not self.reply

    @property
    def text(self) -> str:
        """All that a hook says of it."""
        return "\n".join(_texts(msgspec.to_builtins(self)))


class Fact(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a colleague needs to know the next day. The words of each group, and one of the anchors, are how it is recognized."""

    id: str
    kind: Kind
    text: str
    words: list[list[str]]
    anchors: list[str] = []
    open: bool = False


class FalseStatement(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What would be wrong to say the next day."""

    text: str
    words: list[list[str]]
    wrong_when: Literal["open", "done", "always"]


class Question(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What somebody asks later, and the facts that answer it."""

    ask: str
    facts: list[str]


class LaterPrompt(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A prompt of a later session, and the fact to be shown with it; without one it is about something else."""

    prompt: str
    fact: str = ""


class LabelledSession(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One session of a project, and what is to be remembered of it."""

    project: str
    cwd: str
    agent: Agent
    language: Literal["en", "de", "fr", "pl", "ja"]
    events: list[SessionEvent]
    facts: list[Fact]
    misleading: list[FalseStatement] = []
    questions: list[Question] = []
    later_prompts: list[LaterPrompt] = []
    name: str = ""
    """The file's name without its suffix."""

    @property
    def id(self) -> str:
        """What the agent calls it."""
        return f"{self.project}-{self.name}"

    @property
    def tool_use_count(self) -> int:
        return sum(event.is_tool_use for event in self.events)

    def fact(self, fact_id: str) -> Fact:
        """StopIteration when there is none of that id."""
        return next(fact for fact in self.facts if fact.id == fact_id)


class CorpusProject(msgspec.Struct, frozen=True, kw_only=True):
    """The sessions of one project, in order."""

    half: Half
    name: str
    sessions: list[LabelledSession]


class HookCall(msgspec.Struct, frozen=True, kw_only=True):
    """A hook of a session: its payload, how many seconds it runs after the session's start, and whether it ends a turn."""

    payload: dict[str, object]
    at_seconds: float
    ends_turn: bool = False


@cache
def load_projects(half: Half) -> tuple[CorpusProject, ...]:
    """The half's projects, ordered by name."""
    folders = sorted(folder for folder in (FOLDER / half).glob("*") if folder.is_dir())
    return tuple(
        CorpusProject(half=half, name=folder.name, sessions=[load_session(file) for file in sorted(folder.glob("*.toml"))])
        for folder in folders
    )


def load_session(file: Path) -> LabelledSession:
    return msgspec.structs.replace(msgspec.toml.decode(file.read_bytes(), type=LabelledSession), name=file.stem)


def session_hooks(session: LabelledSession) -> Iterator[HookCall]:
    """What the agent's hooks send, from the start of the session to its end."""
    seconds, turn, prompt = 0.0, 0, ""
    yield HookCall(payload=build_start_payload(session.agent, session.id, session.cwd), at_seconds=0)
    for number, event in enumerate(session.events):
        seconds += event.after
        if event.prompt:
            turn, prompt = turn + 1, event.prompt.strip("\n")
            payload = build_prompt_payload(session.agent, session.id, session.cwd, prompt)
        elif event.reply:
            payload = _build_reply_payload(session, event.reply.strip("\n"), prompt)
        else:
            payload = build_tool_payload(session.agent, session.id, session.cwd, event)
            if session.agent != "gemini":  # whose tool uses have no ids
                payload["tool_use_id"] = f"toolu_{session.id}_{number}"
        yield HookCall(payload={**payload, **_turn_fields(session, turn)}, at_seconds=seconds, ends_turn=bool(event.reply))
    reason = "exit" if session.agent == "gemini" else "other"
    end: dict[str, object] = {"hook_event_name": "SessionEnd", "session_id": session.id, "cwd": session.cwd, "reason": reason}
    yield HookCall(payload=end, at_seconds=seconds + 5)


def build_start_payload(agent: Agent, session_id: str, cwd: str) -> dict[str, object]:
    model: dict[str, object] = {"model": "gpt-6-codex", "permission_mode": "default"} if agent == "codex" else {}
    return {"hook_event_name": "SessionStart", "session_id": session_id, "cwd": cwd, "source": "startup", **model}


def build_prompt_payload(agent: Agent, session_id: str, cwd: str, prompt: str) -> dict[str, object]:
    name = "BeforeAgent" if agent == "gemini" else "UserPromptSubmit"
    return {"hook_event_name": name, "session_id": session_id, "cwd": cwd, "prompt": prompt}


def start_times(sessions: Sequence[LabelledSession], now: float) -> list[float]:
    """When each session began, one a day, the last yesterday."""
    return [now - _DAY_SECONDS * (len(sessions) - place) for place in range(len(sessions))]


def _build_reply_payload(session: LabelledSession, reply: str, prompt: str) -> dict[str, object]:
    common: dict[str, object] = {"session_id": session.id, "cwd": session.cwd, "stop_hook_active": False}
    if session.agent == "gemini":
        return {"hook_event_name": "AfterAgent", **common, "prompt": prompt, "prompt_response": reply}
    return {"hook_event_name": "Stop", **common, "last_assistant_message": reply}


def _turn_fields(session: LabelledSession, turn: int) -> dict[str, object]:
    """How the agent names the turn."""
    name = f"{session.id}-turn-{turn}"
    fields: dict[Agent, dict[str, object]] = {"claude-code": {"prompt_id": name}, "codex": {"turn_id": name}, "gemini": {}}
    return fields[session.agent]


def _texts(value: object) -> Iterable[str]:
    """All texts in a value of JSON."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from _texts(list(cast("dict[str, object]", value).values()))
    elif isinstance(value, list):
        for item in cast("list[object]", value):
            yield from _texts(item)
