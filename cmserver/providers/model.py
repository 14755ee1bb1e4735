"""What generation asks of a provider, and what comes back: a provider is one file that makes a `Completion` of a `Prompt`."""

from __future__ import annotations

from decimal import Decimal
from enum import Enum
from typing import Literal, Protocol
from uuid import UUID

import msgspec

from cmserver.base.text import storable

Verbosity = Literal["minimal", "normal", "verbose"]

ANSWER_MOST_BYTES = 8 << 20
"""How much of an answer is read, whatever a server sends; what 128,000 tokens come to is a tenth of it."""
LONGEST_WAIT_SECONDS = 31 * 86_400.0
"""How long a provider may ask to be left alone: until the next month has begun."""


class PromptEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a batch as the provider sees it. `tag` (`e1`, `e2` ...) is how the answer names it."""

    tag: str
    event_type: str
    occurred_at_epoch: int
    """Milliseconds since 1970."""
    tool_name: str | None = None
    tool_input: object = None
    tool_response: object = None
    error: str | None = None
    """What a failed tool use reported."""
    payload: object = None
    """The whole stored payload, for events that are not tool uses."""
    agent: str | None = None
    """Which kind of sub-agent it was; None is the session's own agent."""


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """One line of what this session has already recorded."""

    number: int
    type: str
    title: str
    facts: list[str] = []
    files_read: list[str] = []
    files_modified: list[str] = []


class Wishes(msgspec.Struct, frozen=True, kw_only=True):
    """How the people of a project want its observations."""

    verbosity: Verbosity = "normal"
    language: str = "English"
    """What observations are worded in; as people call it, or a code: `German`, `de`."""
    skip_rules: list[str] = []
    """What is not worth an observation, in sentences."""


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """One provider call: either the observations of a batch of events, or the summary of a session."""

    kind: Literal["observations", "summary"]
    project: str
    """The project's name, as people know it."""
    root: str | None = None
    """The working folder of the agent, when known: files are named relative to it."""
    requests: list[str] = []
    """What the user asked for in this session, oldest first; the last one is the present request."""
    recorded: list[Recorded] = []
    """What this session has recorded so far, oldest first."""
    last_message: str | None = None
    """The agent's last words (summaries)."""
    earlier_summary: str | None = None
    """The session's last one, where it was summed up before (summaries)."""
    events: list[PromptEvent] = []
    events_in_session: int = 0
    """How many there were, recorded or not (summaries)."""
    wishes: Wishes = Wishes()
    event_tokens: int = 16_000
    """How much of the events a model is shown, at 4 characters a token; what is beyond that is cut from the longest."""


class DraftObservation(msgspec.Struct, kw_only=True, omit_defaults=True):
    """An observation as a provider words it; `events` are the tags it was drawn from."""

    type: str = "change"
    title: str | None = None
    subtitle: str | None = None
    narrative: str | None = None
    facts: list[str] = []
    concepts: list[str] = []
    files_read: list[str] = []
    files_modified: list[str] = []
    events: list[str] = []


class DraftSummary(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The six fields of a session's summary; any of them may be missing."""

    request: str | None = None
    investigated: str | None = None
    learned: str | None = None
    completed: str | None = None
    next_steps: str | None = None
    notes: str | None = None


class Skip(msgspec.Struct, frozen=True, kw_only=True):
    """An event that is not worth an observation, and why."""

    event: str
    reason: str


class Answer(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A provider's answer, parsed."""

    observations: list[DraftObservation] = []
    summary: DraftSummary | None = None
    skipped: list[Skip] = []


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """What came back from one call: the answer as text (JSON of `Answer`, or the XML the prompt describes), and what it cost.

    Tokens are as the provider counts them; the three kinds of input do not overlap.
    """

    text: str
    model: str
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cost_usd: Decimal | None = None
    """Where the provider says it itself; else the price table does."""
    truncated: bool = False
    """It was cut at the most tokens an answer may have."""


class FailureKind(Enum):
    """What a failed call means for the queue."""

    TRANSIENT = "transient"
    RATE_LIMITED = "rate_limited"
    QUOTA_EXHAUSTED = "quota_exhausted"
    AUTH_INVALID = "auth_invalid"
    SETUP_REQUIRED = "setup_required"
    CONTEXT_TOO_LONG = "context_too_long"
    REFUSED = "refused"
    UNUSABLE_ANSWER = "unusable_answer"


class ProviderError(Exception):
    """A call that gave no answer that can be used. `str(error)` is a sentence for the operator, without secrets.

    `completion` is what came nevertheless, and was paid for: a refusal's words, for example. `out_of_reach` says that the provider
    cannot have looked at the request (no connection, overloaded, too many requests), so that no event can be the cause.
    `perhaps_paid` says that it may have answered, and nobody heard what that took. `doubtful` says that what pauses the provider
    may be about this one request alone.
    """

    def __init__(
        self,
        kind: FailureKind,
        message: str,
        retry_after_seconds: float | None = None,
        *,
        completion: Completion | None = None,
        out_of_reach: bool = False,
        perhaps_paid: bool = False,
        doubtful: bool = False,
    ) -> None:
        super().__init__(storable(message))
        self.kind = kind
        self.retry_after_seconds = None if retry_after_seconds is None else min(retry_after_seconds, LONGEST_WAIT_SECONDS)
        self.completion = completion
        self.out_of_reach = out_of_reach
        self.perhaps_paid = perhaps_paid
        self.doubtful = doubtful
        self.provider = ""
        self.run_id: UUID | None = None
        self.pauses = False
        """Who was asked, under what the call is on record, and whether it stops calls for a while: filled in by whoever asked."""


class Provider(Protocol):
    """A model (or rules) that turns a prompt into an answer. One file each; knows nothing of the database."""

    @property
    def name(self) -> str:
        """As in CMSERVER_PROVIDER; pauses and runs are recorded under it."""
        ...

    @property
    def model(self) -> str:
        """Which model is asked."""
        ...

    async def complete(self, prompt: Prompt) -> Completion:
        """Answer the prompt or raise ProviderError."""
        ...


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """What the operator's settings say for one provider; each provider's file has `make(given)`, which checks what it needs.

    `make` raises Invalid with a sentence that names the setting that is missing or wrong. It touches no network.
    """

    name: str
    """As in CMSERVER_PROVIDER: a file that serves several addresses goes by it."""
    model: str | None = None
    base_url: str | None = None
    api_key: str | None = None
    timeout_seconds: float = 120.0
    """For one call with everything in it; the worker gives up then."""
    answer_max_tokens: int = 8_192
    claude_program: str = "claude"

    def __repr__(self) -> str:
        return f"Given({self.name!r}, model={self.model!r})"  # never the key
