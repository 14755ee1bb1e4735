"""The figures: how much of what matters is remembered, how much else, and whether it is found and shown when it is needed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from tests.evaluation.usefulness.corpus import Fact, session_hooks
from tests.evaluation.usefulness.playback import ProjectMemory, PromptContext, SessionMemory
from tests.evaluation.usefulness.recognize import RememberedItem, find_wrong, keeps, read_numbers

MAX_LINES = 5
"""So many lines are looked at of a session's index, and of a prompt's context."""
_CHARS_PER_TOKEN = 4


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """So many of so many."""

    count: int = 0
    of: int = 0

    @property
    def ratio(self) -> float:
        """0 to 1; 0 of none is 0."""
        return self.count / self.of if self.of else 0.0

    def __add__(self, other: Share) -> Share:
        return Share(count=self.count + other.count, of=self.of + other.of)


class UsefulnessFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one project, or the sums of several."""

    sessions: int = 0
    facts_kept: Share = Share()
    facts_kept_by_kind: dict[str, Share] = {}
    observations_with_a_fact: Share = Share()
    observations_per_tool_use: Share = Share()
    plain_observations_per_tool_use: Share = Share()
    """Without decisions, and without what is or was open."""
    wrong: int = 0
    """False statements that an observation or a summary makes."""
    tokens: Share = Share()
    """Of observations and summaries, and of the hooks' payloads that they were made of."""
    index_lines: Share = Share()
    """Per index: of the next session, after each."""
    index_tokens: Share = Share()
    questions_answered: Share = Share()
    """Those with a source among the first hits."""
    prompts_with_their_fact: Share = Share()
    unrelated_prompts_left_alone: Share = Share()

    def __add__(self, other: UsefulnessFigures) -> UsefulnessFigures:
        sums = {name: getattr(self, name) + getattr(other, name) for name in self.__struct_fields__ if name != "facts_kept_by_kind"}
        mine, theirs = self.facts_kept_by_kind, other.facts_kept_by_kind
        by_kind = {kind: mine.get(kind, Share()) + theirs.get(kind, Share()) for kind in sorted({*mine, *theirs})}
        return UsefulnessFigures(**sums, facts_kept_by_kind=by_kind)


class SessionDetails(msgspec.Struct, frozen=True, kw_only=True):
    """What was remembered of a session, and what went wrong with it, in lines."""

    session: str
    observations: list[str]
    """`*` before one that has a fact."""
    lost_facts: list[str]
    wrong: list[str]
    failed_questions: list[str]
    failed_prompts: list[str]


class _Keepers:
    """Which items keep which facts."""

    def __init__(self, memory: ProjectMemory) -> None:
        self._items = memory.items
        self._by_fact: dict[tuple[str, str], set[int]] = {
            (of_session.session.name, fact.id): {item.number for item in [*memory.items, *memory.lines] if keeps(item, fact)}
            for of_session in memory.sessions
            for fact in of_session.session.facts
        }
        self._turns: dict[tuple[str, str], set[int]] = {
            (of_session.session.name, fact.id): {turn.number for turn in memory.turns if keeps(turn, fact)}
            for of_session in memory.sessions
            for fact in of_session.session.facts
        }
        self._summaries = {item.number for item in memory.items if item.is_summary}
        self.useful = set[int]().union(*self._by_fact.values())

    def numbers(self, of_session: SessionMemory, fact_id: str) -> set[int]:
        """Observations, lines of turns and summaries."""
        return self._by_fact[of_session.session.name, fact_id]

    def turns(self, of_session: SessionMemory, fact_id: str) -> set[int]:
        return self._turns[of_session.session.name, fact_id]

    def has_observation(self, of_session: SessionMemory, fact: Fact) -> bool:
        """A summary is not enough: the next one takes its place."""
        return bool(self.numbers(of_session, fact.id) - self._summaries)


def measure(memories: Iterable[ProjectMemory]) -> UsefulnessFigures:
    """The sums of several projects."""
    return sum(map(_measure_project, memories), start=UsefulnessFigures())


def describe(memory: ProjectMemory) -> list[SessionDetails]:
    """The details of each session."""
    keepers = _Keepers(memory)
    return [
        SessionDetails(
            session=f"{memory.project.name}/{of_session.session.name}",
            observations=[_describe_item(item, keepers.useful) for item in of_session.items if not item.is_summary],
            lost_facts=[
                f"{fact.kind}: {fact.text}" for fact in of_session.session.facts if not keepers.has_observation(of_session, fact)
            ],
            wrong=list(_wrong_statements(of_session)),
            failed_questions=[
                f"{question.question.ask} ({', '.join(question.question.facts)}; found {_name_numbers(question.numbers)})"
                for question in of_session.hits
                if not _is_answered(of_session, question.question.facts, question.numbers, keepers)
            ],
            failed_prompts=list(_failed_prompts(of_session, keepers)),
        )
        for of_session in memory.sessions
    ]


def _measure_project(memory: ProjectMemory) -> UsefulnessFigures:
    keepers = _Keepers(memory)
    return sum((_measure_session(of_session, keepers) for of_session in memory.sessions), start=UsefulnessFigures())


def _measure_session(of_session: SessionMemory, keepers: _Keepers) -> UsefulnessFigures:
    session = of_session.session
    observations = [item for item in of_session.items if not item.is_summary]
    plain = [item for item in observations if item.type != "decision" and item.state is None]
    kept = [fact for fact in session.facts if keepers.has_observation(of_session, fact)]
    related = [context for context in of_session.contexts if context.prompt.fact]
    unrelated = [context for context in of_session.contexts if not context.prompt.fact]
    tool_uses = session.tool_use_count
    return UsefulnessFigures(
        sessions=1,
        facts_kept=Share(count=len(kept), of=len(session.facts)),
        facts_kept_by_kind={
            kind: Share(count=sum(fact.kind == kind for fact in kept), of=sum(fact.kind == kind for fact in session.facts))
            for kind in {fact.kind for fact in session.facts}
        },
        observations_with_a_fact=Share(count=sum(item.number in keepers.useful for item in observations), of=len(observations)),
        observations_per_tool_use=Share(count=len(observations), of=tool_uses),
        plain_observations_per_tool_use=Share(count=len(plain), of=tool_uses),
        wrong=len(list(_wrong_statements(of_session))),
        tokens=Share(
            count=sum(len(item.text) for item in of_session.items) // _CHARS_PER_TOKEN,
            of=sum(len(msgspec.json.encode(call.payload)) for call in session_hooks(session)) // _CHARS_PER_TOKEN,
        ),
        index_lines=Share(count=len(read_numbers(of_session.next_index)), of=1),
        index_tokens=Share(count=len(of_session.next_index) // _CHARS_PER_TOKEN, of=1),
        questions_answered=Share(
            count=sum(_is_answered(of_session, hits.question.facts, hits.numbers, keepers) for hits in of_session.hits),
            of=len(of_session.hits),
        ),
        prompts_with_their_fact=Share(
            count=sum(_is_told(of_session, it, keepers) for it in related),
            of=len(related),
        ),
        unrelated_prompts_left_alone=Share(count=sum(not context.text for context in unrelated), of=len(unrelated)),
    )


def _is_answered(of_session: SessionMemory, fact_ids: Sequence[str], numbers: Sequence[int], keepers: _Keepers) -> bool:
    """Whether one of the numbers keeps one of the facts."""
    return any(keepers.numbers(of_session, fact_id) & set(numbers) for fact_id in fact_ids)


def _is_told(of_session: SessionMemory, context: PromptContext, keepers: _Keepers) -> bool:
    """Whether one of the first lines stands for an observation or a turn that keeps the prompt's fact."""
    fact_id, numbers = context.prompt.fact, _first_numbers(context)
    turns = keepers.turns(of_session, fact_id)
    return _is_answered(of_session, [fact_id], numbers, keepers) or not turns.isdisjoint(numbers)


def _wrong_statements(of_session: SessionMemory) -> Iterator[str]:
    for statement in of_session.session.misleading:
        for item in of_session.items:
            if wrong := find_wrong(item, statement):
                yield f"#{item.number} {_kind(item)}: {wrong} (wrong when {statement.wrong_when}: {statement.text})"


def _failed_prompts(of_session: SessionMemory, keepers: _Keepers) -> Iterator[str]:
    for context in of_session.contexts:
        numbers, fact_id = _first_numbers(context), context.prompt.fact
        if fact_id and not _is_told(of_session, context, keepers):
            yield f"{context.prompt.prompt} ({fact_id}; shown {_name_numbers(numbers)})"
        if not fact_id and context.text:
            yield f"{context.prompt.prompt} (unrelated; shown {_name_numbers(read_numbers(context.text))})"


def _first_numbers(context: PromptContext) -> list[int]:
    """Of the first lines that the agent is shown at the start of the session and on the prompt."""
    return [number for text in (context.index, context.text) for number in read_numbers(text)[:MAX_LINES]]


def _describe_item(item: RememberedItem, useful: set[int]) -> str:
    return f"{'*' if item.number in useful else ' '} #{item.number} {_kind(item)}: {item.title or item.narrative or ''}"


def _kind(item: RememberedItem) -> str:
    kind = "summary" if item.is_summary else item.type
    return f"{kind}, {item.state}" if item.state else kind


def _name_numbers(numbers: Sequence[int]) -> str:
    return " ".join(f"#{number}" for number in numbers) or "nothing"
