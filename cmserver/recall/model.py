"""What sessions are shown of the memory: requests, budgets, the resulting context, and the receipts for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal
from uuid import UUID

import msgspec

from cmserver.observations.model import estimate_tokens

SessionStart = Literal["startup", "resume", "clear", "compact", "fork"]
"""How a session starts."""

ContextReason = Literal[SessionStart, "prompt", "file", "asked"]
"""Why context is requested: how the session starts, a prompt, a file that is opened, or a person's or program's request."""

OmissionReason = Literal["budget", "limit", "shown", "duplicate", "done", "dropped"]
"""Why an observation has no line: no room is left, the limit is reached, the session has it already, another line says the same,
it is done, or it no longer holds."""

MAX_CHANGED_FILES = 200
"""How many of a branch's changed files are taken into account."""
_MIN_TOKENS = 200


class NearObservation(msgspec.Struct, frozen=True, kw_only=True):
    """An observation that may be near to a prompt: its cosine, None if unknown.

    `shared` has a bit for each of the prompt's words that it has, the first the lowest.
    """

    id: UUID
    number: int
    created_at: datetime
    turn_number: int | None
    cosine: float | None
    shared: int
    title: str
    narrative: str
    facts: list[str]


class FileMention(msgspec.Struct, frozen=True, kw_only=True):
    """An observation that names a file, and the files it names."""

    id: UUID
    files_modified: list[str]
    files_read: list[str]
    created_at: datetime


class ContextRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Why context is requested, and for which session. `changed_files` are those of the branch that is worked on.

    `reader` is the program on the agent's machine by which it reads more, where there is one. For a preview no receipt is written.
    """

    reason: ContextReason
    session_id: UUID | None = None
    platform: str | None = None
    changed_files: list[str] = []
    reader: str | None = None
    is_preview: bool = False
    without_yours: bool = False
    """For all but one of several projects that are told of at once: what is the person's alone stands there once."""
    told_to: str | None = None
    """Whose key the agent has, where that is not the caller's: nothing is told that is the caller's alone."""
    clone_id: UUID | None = None
    """The clone in which the session works: what became of its files is marked, while `head` is what it told of last."""
    head: str = ""
    at: datetime | None = None
    """The moment of which it is asked; None is now. Of another time nothing is told that is a person's alone."""
    folders: Sequence[str] = ()
    """Where the agent works, and names that this place had before: what is near a project without memory is looked for by them."""


class NearProject(msgspec.Struct, frozen=True, kw_only=True):
    """A project with memory that may be the same under an earlier name."""

    canonical_id: str
    observations: int


class ContextBudget(msgspec.Struct, frozen=True, kw_only=True):
    """How much a session is shown at its start. `tokens` are estimated at 4 characters each."""

    tokens: int = 2_000
    observations: int = 50
    summaries: int = 10

    def share(self, project_count: int) -> ContextBudget:
        """The budget of one of several projects that a session is shown at once."""
        if project_count < 2:
            return self
        tokens, observations = self.tokens // project_count, self.observations // project_count
        return msgspec.structs.replace(self, tokens=max(_MIN_TOKENS, tokens), observations=max(1, observations))


class IndexRow(msgspec.Struct, frozen=True, kw_only=True):
    """What a line shows of an observation. `title` is the beginning of its text where it has none.

    `files` are the first ones that it changed or read, and only there when the session has files under change.
    """

    number: int
    project_id: UUID
    server_session_id: UUID | None
    scope: str
    kind: str
    type: str
    importance: float = 0.5
    state: str | None = None
    is_stale: bool = False
    actor_id: str | None = None
    """Whose key it came by, where that is not the reader's."""
    is_unwatched: bool = False
    """Whether nothing says when it is over: a sentence of somebody's, or a command that failed and checks nothing."""
    may_replace: int | None = None
    """The number of what users had said before, which it may take the place of."""
    title: str
    files: list[str]
    read_tokens: int
    discovery_tokens: int
    created_at: datetime
    turn_number: int | None = None
    """The turn that rules made it of, whose line says the same in its own words."""
    changed_in: int | None = None
    """The newest later turn in which a file that an open end names was changed."""
    later: int | None = None
    """A later turn that took up the matter of a rule or an open end."""
    history: str = ""
    """What a line calls it that came from the repository, `commit 4c1e2f3 by Ann` or `document`."""
    code_mark: str = ""
    """What became of its files since, with a space before it."""
    then: str = ""
    """What the user said next, after the plan was accepted that the row holds."""


class RuleText(msgspec.Struct, frozen=True, kw_only=True):
    """What a user laid down, with the vector of the whole where there is one."""

    id: UUID
    project_id: UUID
    number: int
    created_at: datetime
    title: str
    model_id: int = 0
    vector: list[float] | None = None


class ObservationDetails(msgspec.Struct, frozen=True, kw_only=True):
    """What a full line shows besides."""

    number: int
    subtitle: str | None
    facts: list[str]


class SummaryText(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a summary; `content` is the beginning of its text."""

    summary: dict[str, str | None] | None
    content: str


class ScoredRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row, its relevance score and the score's parts. `file` is the one under change that it is about."""

    row: IndexRow
    score: float
    parts: Mapping[str, float]
    file: str | None = None


class IndexLine(msgspec.Struct, frozen=True, kw_only=True):
    """A row as it stands in an index: one line, or a few when it is shown in full; or without a `text`, omitted for a reason."""

    scored: ScoredRow
    text: str = ""
    is_full: bool = False
    omission: OmissionReason | None = None
    like: int | None = None
    """The number of the line that says the same, where that is the reason."""

    @property
    def number(self) -> int:
        return self.scored.row.number

    @property
    def tokens(self) -> int:
        """What its line takes; 0 without one."""
        return estimate_tokens(f"{self.text}\n") if self.text else 0


class Index(msgspec.Struct, frozen=True, kw_only=True):
    """What an index shows, newest first; the most relevant of what it omits; and how many are omitted, by reason."""

    lines: list[IndexLine] = []
    omitted: list[IndexLine] = []
    omitted_counts: Mapping[str, int] = {}
    budget_tokens: int = 0


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """The text that a session is shown. `tokens` is an estimate of what reading it costs a model."""

    text: str
    numbers: list[int] = []
    """Of what a prompt or a file is told; an index has its lines."""
    tokens: int
    index: Index | None = None
    is_receipt: bool = False
    """Whether it is what was told, as its receipt has it, and not made of the rows."""
    knows_nothing: bool = False
    """Whether the project has no memory yet, which is all that it says."""


class NewReceipt(msgspec.Struct, frozen=True, kw_only=True):
    """A receipt to be written: what was shown, to which session, why, and at what cost.

    `left_out` are the most relevant of those that had no room, at most 100 of `left_out_count`. `details` hold numbers and words of
    ours, never the text of an observation or a prompt. `made_of` are what lines of the text without a number were made of.
    """

    reason: ContextReason
    server_session_id: UUID | None = None
    platform_source: str | None = None
    numbers: list[int] = []
    summary_numbers: list[int] = []
    left_out: list[int] = []
    left_out_count: int = 0
    tokens: int = 0
    budget_tokens: int = 0
    chars: int = 0
    details: dict[str, object] = {}
    text: str = ""
    made_of: list[int] = []


class KeptText(msgspec.Struct, frozen=True, kw_only=True):
    """What a receipt knows of what was told: its numbers, and the text; None for a receipt of the time before texts were kept."""

    numbers: list[int]
    text: str | None
    tokens: int
    created_at: datetime


class ToldNumber(msgspec.Struct, frozen=True, kw_only=True):
    """What was told by its number alone."""

    number: int


class ShownReceipt(msgspec.Struct, frozen=True, kw_only=True):
    """That a session was shown a certain observation, why and when."""

    server_session_id: UUID | None
    project_id: UUID
    reason: str
    platform_source: str | None
    created_at: datetime


class ToldMark(msgspec.Struct, frozen=True, kw_only=True):
    """What the mark of a line said when it was told; None where it had none."""

    number: int
    mark: str | None


class Receipt(NewReceipt, frozen=True, kw_only=True):
    """A receipt as it is stored."""

    id: UUID
    team_id: UUID
    project_id: UUID
    created_at: datetime


class KnownFolder(msgspec.Struct, frozen=True, kw_only=True):
    """The `root` of a project's repository, and where somebody worked on it (`cwd`); either may be ""."""

    project_id: UUID
    root: str
    cwd: str


class FilePaths(msgspec.Struct, frozen=True, kw_only=True):
    """Paths as they may be stored; each with the project that it is meant in, None for any."""

    paths: list[str]
    project_ids: list[UUID | None]
