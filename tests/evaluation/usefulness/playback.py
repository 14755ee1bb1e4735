"""Plays labelled sessions to a server and asks what it remembers of them: over HTTP only, with what every version answers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import msgspec

from tests.bench.against import Server, start_server
from tests.bench.world import World
from tests.evaluation.usefulness.corpus import (
    CorpusProject,
    HookCall,
    LabelledSession,
    LaterPrompt,
    Question,
    build_prompt_payload,
    build_start_payload,
    session_hooks,
    start_times,
)
from tests.evaluation.usefulness.recognize import RememberedItem, read_turn_lines

TOP = 5
"""So many hits of a search are looked at."""
SPEED = 10.0
"""How much faster than in life the sessions are played."""
DEBOUNCE_SECONDS = 2.0 / SPEED
"""The offline provider's usual debounce at that speed."""
_MAX_PAUSE_SECONDS = 2 * DEBOUNCE_SECONDS
"""After such a pause a burst is over; a longer one changes nothing."""
_TURN_SECONDS = 10.0
"""The user reads an answer for so long, at the most, while its turn is generated."""
_MAX_DRAIN_SECONDS = 180.0
_POLL_SECONDS = 0.25
_END = "</cmserver-context>"
_ON_PROMPT = "this may belong to the prompt"


class QuestionHits(msgspec.Struct, frozen=True, kw_only=True):
    """A question, and the numbers of its first hits."""

    question: Question
    numbers: list[int]


class PromptContext(msgspec.Struct, frozen=True, kw_only=True):
    """The first prompt of a later session, the index that it began with, and the context that the prompt was answered with."""

    prompt: LaterPrompt
    index: str
    text: str


class SessionMemory(msgspec.Struct, frozen=True, kw_only=True):
    """What was remembered of one session."""

    session: LabelledSession
    items: list[RememberedItem]
    """Its observations and summaries, as they were when it had ended."""
    next_index: str
    """What the next session of the project starts with."""
    hits: list[QuestionHits]
    contexts: list[PromptContext]


class ProjectMemory(msgspec.Struct, frozen=True, kw_only=True):
    """What was remembered of a project, after all of its sessions."""

    project: CorpusProject
    items: list[RememberedItem]
    turns: list[RememberedItem]
    """What was said, whole."""
    sessions: list[SessionMemory]
    lines: Sequence[RememberedItem] = ()
    """The lines of turns that the indexes told."""


def play(world: World, tree: Path, projects: Sequence[CorpusProject]) -> list[ProjectMemory]:
    """Play all projects beside each other to a server of that tree. RuntimeError when a job fails or does not end."""
    settings = {"generation_debounce_seconds": DEBOUNCE_SECONDS, "session_idle_hours": 0, "log_level": "error"}
    with start_server(world, tree, **settings) as server, ThreadPoolExecutor(len(projects)) as pool:
        players = [_ProjectPlayer(server, project) for project in projects]
        return list(pool.map(_ProjectPlayer.play, players))


class _ProjectPlayer:
    """Plays one project's sessions."""

    def __init__(self, server: Server, project: CorpusProject) -> None:
        self._server = server
        self._project = project
        self._name = f"github.com/acme/{project.name}"
        self._deliveries = count(1)

    def play(self) -> ProjectMemory:
        sessions = self._project.sessions
        indexes: list[str] = []
        items: list[list[RememberedItem]] = []
        for session, start in zip(sessions, start_times(sessions, time.time()), strict=True):
            indexes.append(self._play_session(session, start))
            items.append(self._read_items(session))
        last = sessions[-1]
        everything, turns = self._read_items(), self._read_turns()
        self._wait_until_embedded()
        hits = [[self._search(question) for question in session.questions] for session in sessions]
        start = build_start_payload(last.agent, f"{last.id}-next", last.cwd)
        indexes.append(self._send(last, HookCall(payload=start, at_seconds=0), time.time()))
        # After all else: what is typed is stored, too.
        contexts = [
            [self._prompt(session, prompt, place) for place, prompt in enumerate(session.later_prompts)] for session in sessions
        ]
        return ProjectMemory(
            project=self._project,
            items=everything,
            turns=turns,
            lines=read_turn_lines(indexes),
            sessions=[
                SessionMemory(session=session, items=items[at], next_index=indexes[at + 1], hits=hits[at], contexts=contexts[at])
                for at, session in enumerate(sessions)
            ],
        )

    def _play_session(self, session: LabelledSession, start: float) -> str:
        """The index that the session began with. Its jobs are done afterwards."""
        index, seconds = "", 0.0
        for place, call in enumerate(session_hooks(session)):
            time.sleep(min((call.at_seconds - seconds) / SPEED, _MAX_PAUSE_SECONDS))
            seconds = call.at_seconds
            context = self._send(session, call, start)
            index = index if place else context
            if call.ends_turn:
                self._wait(session, _TURN_SECONDS)
        if open_jobs := self._wait(session, _MAX_DRAIN_SECONDS):
            raise RuntimeError(f"{session.id}: {open_jobs} jobs were still open after {_MAX_DRAIN_SECONDS:g} s.")
        if failed := self._count_jobs("failed"):
            raise RuntimeError(f"{session.project}: {failed} jobs failed.")
        return index

    def _send(self, session: LabelledSession, call: HookCall, start: float) -> str:
        """The context in the hook's answer."""
        headers = {
            "X-Cmserver-Project": self._name,
            "X-Cmserver-Delivery": f"{self._project.name}-{next(self._deliveries)}",
            "X-Cmserver-Sent-At": str(int((start + call.at_seconds) * 1000)),
        }
        answer = self._server.client.post(f"/v1/hooks/{session.agent}", json=call.payload, headers=headers)
        output = msgspec.json.decode(answer.raise_for_status().content, type=_HookOutput)
        return output.hook_specific_output.additional_context if output.hook_specific_output else ""

    def _prompt(self, session: LabelledSession, prompt: LaterPrompt, place: int) -> PromptContext:
        """In a session of its own."""
        session_id = f"{session.id}-later-{place}"
        start = build_start_payload(session.agent, session_id, session.cwd)
        typed = build_prompt_payload(session.agent, session_id, session.cwd, prompt.prompt)
        index, text = (self._send(session, HookCall(payload=payload, at_seconds=0), time.time()) for payload in (start, typed))
        if not index:  # the agent is given it with the first prompt
            blocks = [f"{block}{_END}" for block in text.split(_END) if block.strip()]
            index, text = ("".join(block for block in blocks if (_ON_PROMPT in block) is told) for told in (False, True))
        return PromptContext(prompt=prompt, index=index, text=text)

    def _search(self, question: Question) -> QuestionHits:
        body = {"query": question.ask, "projectId": self._name, "limit": TOP}
        answer = self._server.client.post("/v1/search", json=body).raise_for_status()
        return QuestionHits(question=question, numbers=msgspec.json.decode(answer.content, type=_Hits).best)

    def _read_items(self, session: LabelledSession | None = None) -> list[RememberedItem]:
        """Oldest first."""
        params = {"project": self._name, "limit": "200"}
        if session is not None:
            params["session"] = self._find_session(session)
        items: list[RememberedItem] = []
        while True:
            answer = self._server.client.get("/v1/observations", params=params).raise_for_status()
            page = msgspec.json.decode(answer.content, type=_ItemsPage)
            items += page.observations
            if page.next_cursor is None:
                return items[::-1]
            params["cursor"] = page.next_cursor

    def _read_turns(self) -> list[RememberedItem]:
        """The newest 200."""
        answer = self._server.client.get("/v1/turns", params={"project": self._name, "limit": "200"}).raise_for_status()
        turns = msgspec.json.decode(answer.content, type=_TurnsPage).turns
        return [
            RememberedItem(
                id="", number=turn.number, type="turn", title=turn.prompt, narrative=turn.reply, files_modified=turn.files
            )
            for turn in turns
        ]

    def _find_session(self, session: LabelledSession) -> str:
        """The server's id of it."""
        answer = self._server.client.get("/v1/sessions", params={"project": self._name, "limit": "200"}).raise_for_status()
        sessions = msgspec.json.decode(answer.content, type=_SessionsPage).sessions
        return next(row.id for row in sessions if row.content_session_id == session.id)

    def _wait(self, session: LabelledSession, max_seconds: float) -> int:
        """Wait until the session has no open job; how many there are when that took too long."""
        end = time.monotonic() + max_seconds
        while open_jobs := sum(self._count_jobs(status, session) for status in ("queued", "processing")):
            if time.monotonic() > end:
                return open_jobs
            time.sleep(_POLL_SECONDS)
        return 0

    def _count_jobs(self, status: str, session: LabelledSession | None = None) -> int:
        params = {"project": self._name, "status": status, "limit": "1", **({"session": session.id} if session else {})}
        answer = self._server.client.get("/v1/jobs", params=params).raise_for_status()
        return msgspec.json.decode(answer.content, type=_JobsPage).total

    def _wait_until_embedded(self) -> None:
        """So that search finds by meaning, too, where the server can."""
        end = time.monotonic() + _MAX_DRAIN_SECONDS
        while time.monotonic() < end:
            info = msgspec.json.decode(self._server.client.get("/v1/info").raise_for_status().content, type=_Info)
            if info.embeddings is None or info.embeddings.state != "filling":
                return
            time.sleep(_POLL_SECONDS)
        raise RuntimeError(f"Observations were not embedded after {_MAX_DRAIN_SECONDS:g} s.")


# -- what is read of the answers


class _SpecificOutput(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    additional_context: str = ""


class _HookOutput(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    hook_specific_output: _SpecificOutput | None = None


class _Hit(msgspec.Struct, frozen=True, kw_only=True):
    number: int | None = None
    score: float = 0.0


class _Hits(msgspec.Struct, frozen=True, kw_only=True):
    observations: list[_Hit]
    prompts: list[_Hit] = []

    @property
    def best(self) -> list[int]:
        """Observations and turns, the best first; turns of older servers have no number."""
        hits = sorted([*self.observations, *self.prompts], key=lambda hit: -hit.score)[:TOP]
        return [hit.number for hit in hits if hit.number is not None]


class _ItemsPage(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    observations: list[RememberedItem]
    next_cursor: str | None = None


class _Turn(msgspec.Struct, frozen=True, kw_only=True):
    number: int
    prompt: str
    reply: str | None = None
    files: list[str] = []


class _TurnsPage(msgspec.Struct, frozen=True, kw_only=True):
    turns: list[_Turn]


class _Session(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    id: str
    content_session_id: str | None = None


class _SessionsPage(msgspec.Struct, frozen=True, kw_only=True):
    sessions: list[_Session]


class _JobsPage(msgspec.Struct, frozen=True, kw_only=True):
    total: int


class _Embeddings(msgspec.Struct, frozen=True, kw_only=True):
    state: str = "off"


class _Info(msgspec.Struct, frozen=True, kw_only=True):
    embeddings: _Embeddings | None = None
