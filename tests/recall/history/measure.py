"""How well context on a prompt tells what matters from what does not, on the history in this folder.

`.venv/bin/pytest -s tests/recall/test_threshold.py` prints it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import msgspec

from cmserver.access.model import Principal, Project
from cmserver.base.ids import new_id
from cmserver.base.sql import Conn
from cmserver.embeddings.model import QueryVector
from cmserver.models.providers.model import DraftSummary
from cmserver.observations import repository as observations
from cmserver.observations.model import NewObservation, compose, estimate_tokens
from cmserver.recall.model import ContextRequest
from cmserver.recall.prompt_context import build_prompt_context

HERE = Path(__file__).parent

Half = Literal["development", "test", "second"]
"""`second` are the prompts that were written later: `test` had been looked at by then."""


class Noted(msgspec.Struct, frozen=True, kw_only=True):
    """An observation of the history, `minute` minutes after its session began."""

    number: int
    minute: int
    type: str
    title: str
    subtitle: str
    narrative: str
    facts: list[str]
    concepts: list[str]
    files_read: list[str]
    files_modified: list[str]

    @property
    def fields(self) -> dict[str, Any]:
        """What an observation has of it, by the names there."""
        return {name: value for name, value in msgspec.structs.asdict(self).items() if name not in {"number", "minute"}}


class Summed(msgspec.Struct, frozen=True, kw_only=True):
    """The summary at the end of a session."""

    number: int
    request: str
    investigated: str
    learned: str
    completed: str
    next_steps: str


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """A session of the history, oldest first."""

    id: str
    started_at: datetime
    branch: str
    observations: list[Noted]
    summary: Summed | None


class Remembered(msgspec.Struct, frozen=True, kw_only=True):
    """What one observation or summary of the history says, of which session and when."""

    session: Session
    created_at: datetime
    said: Noted | Summed


class History(msgspec.Struct, frozen=True, kw_only=True):
    project: str
    sessions: list[Session]


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """What a developer typed. `useful` are the numbers of what would have helped, the most useful first; none: unrelated."""

    id: str
    text: str
    useful: list[int]


class Later(msgspec.Struct, frozen=True, kw_only=True):
    """A session after the history, in which prompts are typed."""

    id: str
    half: Half
    started_at: datetime
    changed_files: list[str]
    prompts: list[Prompt]


class Prompts(msgspec.Struct, frozen=True, kw_only=True):
    sessions: list[Later]


def history() -> History:
    return msgspec.json.decode((HERE / "history.json").read_bytes(), type=History)


def remembered() -> list[Remembered]:
    """The history in the order of its numbers. A summary comes five minutes after the last observation of its session."""
    found: list[Remembered] = []
    for session in history().sessions:
        found += [
            Remembered(session=session, created_at=session.started_at + timedelta(minutes=noted.minute), said=noted)
            for noted in session.observations
        ]
        if session.summary:
            found.append(Remembered(session=session, created_at=found[-1].created_at + timedelta(minutes=5), said=session.summary))
    return found


def prompts() -> list[Later]:
    """Of the halves `development` and `test`."""
    return msgspec.json.decode((HERE / "prompts.json").read_bytes(), type=Prompts).sessions


def second_prompts() -> list[Later]:
    """Of `second`."""
    return msgspec.json.decode((HERE / "second_prompts.json").read_bytes(), type=Prompts).sessions


async def fill(conn: Conn, project: Project) -> None:
    """Put the history into a project of a team that has no observations yet, so that the numbers are those of the labels."""
    known = remembered()
    rows = [_observation(it.said) if isinstance(it.said, Noted) else _summary(it.said) for it in known]
    numbers = await observations.take_numbers(conn, project.team_id, len(rows))
    assert [*numbers] == [row.number for row in rows]
    await observations.insert(conn, project.team_id, project.id, rows)
    await conn.execute(
        "UPDATE observations o SET created_at = t.at FROM unnest(%s::uuid[], %s::timestamptz[]) t (id, at) WHERE o.id = t.id",
        [[row.id for row in rows], [it.created_at for it in known]],
    )


def _observation(noted: Noted) -> NewObservation:
    content = compose(noted.title, noted.subtitle, noted.narrative, noted.facts)
    return _new(number=noted.number, kind="observation", content=content, read_tokens=estimate_tokens(content), **noted.fields)


_NOTHING = NewObservation(
    id=new_id(),
    number=1,
    server_session_id=None,
    kind="observation",
    type="change",
    origin="model",
    title=None,
    subtitle=None,
    narrative=None,
    facts=None,
    concepts=None,
    files_read=None,
    files_modified=None,
    summary=None,
    prompt_number=None,
    content="",
    read_tokens=0,
    discovery_tokens=0,
    generation_key=None,
    metadata={},
    created_by_job_id=None,
)


def _new(**fields: Any) -> NewObservation:
    return msgspec.structs.replace(_NOTHING, id=new_id(), **fields)


def _summary(summed: Summed) -> NewObservation:
    draft = DraftSummary(
        request=summed.request,
        investigated=summed.investigated,
        learned=summed.learned,
        completed=summed.completed,
        next_steps=summed.next_steps,
    )
    content = draft.text
    return _new(
        number=summed.number,
        kind="summary",
        title=summed.request,
        summary=msgspec.to_builtins(draft),
        content=content,
        read_tokens=estimate_tokens(content),
    )


class Typed(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a prompt: the numbers of the observations that were shown."""

    half: Half
    prompt: Prompt
    shown: list[int]

    @property
    def is_useful(self) -> bool:
        return not set(self.shown).isdisjoint(self.prompt.useful)


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of some prompts. Shares are of 1."""

    unrelated: int
    related: int
    silent: float
    """Of the unrelated, those that were shown nothing."""
    helped: float
    """Of the related, those that were shown at least one useful line."""
    useful_lines: float
    """Of all lines that were shown, those that are useful."""


Embed = Callable[[str], Awaitable[QueryVector]]


async def typed(conn: Conn, principal: Principal, project: Project, embed: Embed | None = None) -> list[Typed]:
    """Type each prompt into a session of its own, in the project that holds the history; without `embed` by words alone."""
    done: list[Typed] = []
    for session in [*prompts(), *second_prompts()]:
        for prompt in session.prompts:
            vector = await embed(prompt.text) if embed else None
            context = await build_prompt_context(conn, principal, project, ContextRequest(reason="prompt"), prompt.text, vector)
            numbers = context.numbers if context else []
            done.append(Typed(half=session.half, prompt=prompt, shown=numbers))
    return done


def figures(done: Iterable[Typed], *halves: Half) -> Figures:
    """Of the prompts of these halves, or of all."""
    counted = [typed_prompt for typed_prompt in done if not halves or typed_prompt.half in halves]
    unrelated = [typed_prompt for typed_prompt in counted if not typed_prompt.prompt.useful]
    related = [typed_prompt for typed_prompt in counted if typed_prompt.prompt.useful]
    lines = sum(len(typed_prompt.shown) for typed_prompt in counted)
    useful = sum(number in typed_prompt.prompt.useful for typed_prompt in counted for number in typed_prompt.shown)
    return Figures(
        unrelated=len(unrelated),
        related=len(related),
        silent=sum(not typed_prompt.shown for typed_prompt in unrelated) / len(unrelated),
        helped=sum(typed_prompt.is_useful for typed_prompt in related) / len(related),
        useful_lines=useful / lines if lines else 0.0,
    )


def table(done: Iterable[Typed]) -> str:
    """The figures of each half and of all, as a table for people."""
    done = list(done)
    rows = {half: figures(done, half) for half in Half.__args__} | {"all": figures(done)}
    head = f"{'':12} {'unrelated':>9} {'silent':>7} {'related':>8} {'helped':>7} {'useful lines':>13}"
    body = [
        f"{name:12} {of.unrelated:9} {of.silent:7.0%} {of.related:8} {of.helped:7.0%} {of.useful_lines:13.0%}"
        for name, of in rows.items()
    ]
    return "\n".join([head, *body])
