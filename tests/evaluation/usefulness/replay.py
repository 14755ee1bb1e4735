"""What rules keep of the labelled sessions, one batch a turn: without a server, the same on a busy machine."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import count
from uuid import UUID

import msgspec

from cmserver.base.structs import reshape
from cmserver.base.tolerant_json import field, record
from cmserver.doors.hooks import claude_code, codex, gemini
from cmserver.doors.hooks.model import HookEvent
from cmserver.ingest.door import JOB, Arrival, find_rule
from cmserver.models.providers.model import PriorObservation
from cmserver.reading.model import REPLY_TYPE, EventReading
from cmserver.reading.read import read_command_results, read_event
from cmserver.recall.turn_line import render_turn
from cmserver.rules.batch import observe
from cmserver.rules.model import SessionRecord
from cmserver.rules.summaries import summarise
from cmserver.sessions.turns.model import SessionTurn
from tests.evaluation.usefulness.corpus import CorpusProject, Half, LabelledSession, load_projects, session_hooks
from tests.evaluation.usefulness.recognize import RememberedItem, find_wrong, keeps

_ADAPTERS = {"claude-code": claude_code.ADAPTER, "codex": codex.ADAPTER, "gemini": gemini.ADAPTER}


class ReplayFigures(msgspec.Struct, frozen=True):
    """Facts that some observation or the line of a turn keeps, false statements, and observations that keep a fact."""

    kept_facts: int
    facts: int
    wrong: int
    useful: int
    observations: int


def replay(half: Half) -> ReplayFigures:
    figures = [_ProjectReplay(project).figures() for project in load_projects(half)]
    names = ReplayFigures.__struct_fields__
    return ReplayFigures(*(sum(getattr(one, name) for one in figures) for name in names))


class _ProjectReplay:
    """The sessions of a project one after the other."""

    def __init__(self, project: CorpusProject) -> None:
        self._project = project
        self._numbers = count(1)
        self._priors: dict[int, PriorObservation] = {}
        self._items: dict[int, RememberedItem] = {}
        self._wrong = 0
        self._turns: list[RememberedItem] = []

    def figures(self) -> ReplayFigures:
        for session in self._project.sessions:
            self._play(session)
        facts = [fact for session in self._project.sessions for fact in session.facts]
        keepers = [{item.number for item in self._items.values() if keeps(item, fact)} for fact in facts]
        useful = set[int]().union(*keepers)
        kept = sum(
            bool(numbers) or any(keeps(turn, fact) for turn in self._turns) for numbers, fact in zip(keepers, facts, strict=True)
        )
        return ReplayFigures(kept, len(facts), self._wrong, len(useful), len(self._items))

    def _play(self, session: LabelledSession) -> None:
        first = len(self._priors) + 1
        requests: list[str] = []
        batch: list[EventReading] = []
        last_message = message_before = None
        for hook in session_hooks(session):
            for event in _ADAPTERS[session.agent].parse(hook.payload, None).events:
                if find_rule("job", Arrival(event_type=event.event_type, by_hook=True, tool=event.tool)).name != JOB:
                    continue
                reading = _read(event, session)
                if reading.prompt:
                    requests.append(reading.prompt)
                    message_before = message_before if batch else last_message
                batch.append(reading)
                if event.event_type == REPLY_TYPE:
                    last_message = field(record(event.payload), "last_assistant_message")
            if hook.ends_turn:
                self._turns.append(_read_turn(batch, requests, last_message))
                self._work(batch, requests, first, message_before)
                batch = []
        self._work(batch, requests, first, message_before)
        recorded = self._recorded(first)
        summary = summarise(SessionRecord(requests=requests, recorded=recorded, last_message=last_message)).summary
        fields = None if summary is None else msgspec.convert(msgspec.to_builtins(summary), dict[str, str | None])
        remembered = [self._items[prior.number] for prior in recorded]
        remembered.append(RememberedItem(id="summary", number=0, observation_kind="summary", summary=fields))
        self._wrong += sum(bool(find_wrong(item, statement)) for statement in session.misleading for item in remembered)

    def _recorded(self, first: int) -> list[PriorObservation]:
        return [prior for number, prior in self._priors.items() if number >= first]

    def _work(self, batch: Sequence[EventReading], requests: Sequence[str], first: int, last_message: str | None) -> None:
        if not batch:
            return
        open_ends = [prior for prior in self._priors.values() if prior.state == "open"]
        session = SessionRecord(
            requests=[*requests], recorded=self._recorded(first), open_ends=open_ends, last_message=last_message
        )
        by_tag = {f"e{place}": event for place, event in enumerate(batch, start=1)}
        for draft in observe(batch, session).observations:
            number = next(self._numbers)
            commands = read_command_results(by_tag[tag] for tag in draft.events)
            self._priors[number] = reshape(draft, PriorObservation, number=number, title=draft.title or "", commands=commands)
            self._items[number] = reshape(
                draft, RememberedItem, id=str(number), number=number, observation_kind="observation", summary=None
            )
            state = "dropped" if draft.type == "decision" else "done"
            for closed in draft.closes:
                self._priors[closed] = msgspec.structs.replace(self._priors[closed], state=state)
                self._items[closed] = msgspec.structs.replace(self._items[closed], state=state)


def _read(event: HookEvent, session: LabelledSession) -> EventReading:
    return read_event(event.event_type, event.payload, session.cwd)


def _read_turn(batch: Sequence[EventReading], requests: Sequence[str], reply: str | None) -> RememberedItem:
    """The line of a turn."""
    turn = SessionTurn(
        id=UUID(int=0),
        number=0,
        event_id=None,
        project_id=UUID(int=0),
        server_session_id=UUID(int=0),
        prompt_number=len(requests),
        prompt=requests[-1] if requests else "",
        reply=reply,
        files=[path for event in batch for path in event.changed_files],
        checks=[],
        commits=[],
        actor_id=None,
        agent_id=None,
        created_at=datetime(2026, 3, 2, tzinfo=UTC),
        ended_at=None,
    )
    return RememberedItem(id="turn", number=0, type="turn", narrative=render_turn(turn, None))
