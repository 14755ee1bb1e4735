"""The interface of providers: each turns a `Prompt` into a `Completion`."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from enum import Enum
from typing import Literal, Protocol
from uuid import UUID

import msgspec

from cmserver.base.text import storable
from cmserver.reading.model import CommandResult, EventReading

Verbosity = Literal["minimal", "normal", "verbose"]

MAX_ANSWER_BYTES = 8 << 20
"""The part of an answer that is read, ten times the length of 128,000 tokens."""
MAX_WAIT_SECONDS = 86_400.0
"""A provider is tried again at least once a day, whatever it asks for."""


def event_tag(place: int) -> str:
    """How an answer names the event at that place of the prompt, from 0."""
    return f"e{place + 1}"


class PriorObservation(msgspec.Struct, frozen=True, kw_only=True):
    """An observation that was recorded before: by the session, or of the project and still open."""

    number: int
    type: str
    title: str
    facts: list[str] = []
    files_read: list[str] = []
    files_modified: list[str] = []
    commands: list[CommandResult] = []
    quote: str | None = None
    anchors: list[str] = []
    state: Literal["open", "done", "dropped"] | None = None


class RecordingPreferences(msgspec.Struct, frozen=True, kw_only=True):
    """A project's preferences for its observations."""

    verbosity: Verbosity = "normal"
    language: str = "English"
    """The observations' language, by name or code: `German`, `de`."""
    skip_rules: list[str] = []
    """Descriptions of what not to record."""
    names_entities: bool = False
    """Whether each observation also names what it is about."""


PromptKind = Literal["observations", "summary", "merge", "guard", "derive", "overview", "entities"]


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """One provider call: the observations of a batch of events, the summary of a session, or a question about stored observations.

    Those are one text for several (`merge`), whether two say the same (`guard`), what several say in common (`derive`), a page
    about a project (`overview`), and what a turn is about (`entities`).
    """

    kind: PromptKind
    project: str
    """The project's name."""
    root: str | None = None
    """Files are named relative to it: the root of the repository, or the agent's working folder."""
    requests: list[str] = []
    """What the user asked for in this session, oldest first; the last one is the present request."""
    recorded: list[PriorObservation] = []
    """What this session has recorded so far, oldest first."""
    open_ends: list[PriorObservation] = []
    """What is open in the project, of other sessions too, oldest first."""
    last_message: str | None = None
    """The agent's last words: before the first prompt of the events, or of the session (summaries)."""
    earlier_summary: str | None = None
    """The session's latest summary, if any (summaries)."""
    events: list[EventReading] = []
    events_in_session: int = 0
    """Number of events, recorded or not (summaries)."""
    stored: list[str] = []
    """The texts of the observations that the question is about, oldest first; of an overview, those that the page is made of."""
    keep: list[str] = []
    """The facts and sentences that the answer must have word for word (merges); what is known by name already (entities)."""
    preferences: RecordingPreferences = RecordingPreferences()
    event_tokens: int = 16_000
    """Limit of the events' text, at 4 characters per token; the longest are shortened."""
    answer_tokens: int | None = None
    """Limit of the answer, where it is less than the provider's. Models that think before they answer get the provider's."""
    temperature: float | None = None
    """For models that take one."""

    @property
    def tags(self) -> list[str]:
        """How an answer names the events: e1, e2 ..."""
        return [event_tag(place) for place in range(len(self.events))]


ObservationType = Literal[
    "bugfix", "feature", "refactor", "change", "discovery", "decision", "security_alert", "security_note", "sensitive"
]


class ObservationKind(msgspec.Struct, frozen=True, kw_only=True):
    """What observations of a type are, and how they are treated."""

    meaning: str
    """As a model is told it that has to choose."""
    family: Literal["work", "decision", "security"] = "work"
    """Only observations of one family may say the same: what was done or found, what was decided, what is about security."""
    synonyms: tuple[str, ...] = ()
    """What else models call it, in small letters alone."""
    weight: float
    """What it counts for the context of a session that starts."""
    is_essential: bool = True
    """Whether it is kept with the verbosity minimal, of what rules find."""
    is_important: bool = False
    """Whether it counts as much as what is open."""
    badge: Literal["", "good", "info", "warn", "bad"] = ""
    """How pages mark it."""
    memory_type: str = "general"
    """Contextify's word for it, and with that word it comes from there, unless it is about security."""


KINDS: dict[ObservationType, ObservationKind] = {
    "bugfix": ObservationKind(
        meaning="was broken, works", weight=0.4, badge="good", memory_type="fix", synonyms=("bug", "fix", "hotfix")
    ),
    "feature": ObservationKind(meaning="can do more", weight=0.3, badge="good", memory_type="solution", synonyms=("feat",)),
    "refactor": ObservationKind(
        meaning="same behaviour, other shape", weight=0.2, is_essential=False, memory_type="code_pattern", synonyms=("refactoring",)
    ),
    "change": ObservationKind(meaning="any other alteration", weight=0.1, is_essential=False, memory_type="task"),
    "discovery": ObservationKind(
        meaning="learned, nothing altered",
        weight=0.4,
        is_essential=False,
        synonyms=("learning", "finding", "investigation", "insight"),
    ),
    "decision": ObservationKind(
        meaning="a choice and its reason", family="decision", weight=0.5, is_important=True, badge="info", memory_type="decision"
    ),
    "security_alert": ObservationKind(
        meaning="needs action soon", family="security", weight=0.5, is_important=True, badge="bad", memory_type="problem"
    ),
    "security_note": ObservationKind(
        meaning="worth knowing for security", family="security", weight=0.4, badge="warn", synonyms=("security",)
    ),
    "sensitive": ObservationKind(
        meaning="confidential: say that it is there, never its value", family="security", weight=0.2, badge="bad"
    ),
}
"""The types of observations; the database has them, too, in a CHECK."""


class DraftObservation(msgspec.Struct, kw_only=True, omit_defaults=True):
    """An observation in a provider's words; `events` are the tags of its sources.

    `quote` is the sentence of the user or the agent that says the point, word by word. `anchors` are the files, functions and
    commands by which it is found. `state` is "open" for what is still to be done, else None. `closes` are the numbers of open
    observations that are done with this one. `entities` are what it is about, as "technology: Redis".
    """

    type: str = "change"
    title: str | None = None
    subtitle: str | None = None
    narrative: str | None = None
    facts: list[str] = []
    concepts: list[str] = []
    files_read: list[str] = []
    files_modified: list[str] = []
    events: list[str] = []
    quote: str | None = None
    anchors: list[str] = []
    entities: list[str] = []
    state: Literal["open"] | None = None
    closes: list[int] = []


class DraftSummary(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The six fields of a session's summary; any of them may be missing."""

    request: str | None = None
    investigated: str | None = None
    learned: str | None = None
    completed: str | None = None
    next_steps: str | None = None
    notes: str | None = None

    @property
    def text(self) -> str:
        """The fields as one text with their names."""
        fields = [(name.replace("_", " ").capitalize(), getattr(self, name)) for name in SUMMARY_FIELDS]
        return "\n\n".join(f"{label}: {text}" for label, text in fields if text)


SUMMARY_FIELDS = DraftSummary.__struct_fields__


class Skip(msgspec.Struct, frozen=True, kw_only=True):
    """An event that is not worth an observation, and why."""

    event: str = ""
    """Empty for every event."""
    reason: str = ""


class Answer(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What a model's answer holds, or rules say: drafts, not yet bounded, cleaned or checked. Events are named by their tags."""

    observations: list[DraftObservation] = []
    summary: DraftSummary | None = None
    skipped: list[Skip] = []


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one call: the answer as text (JSON of `Answer`, or the XML the prompt describes), and its usage.

    Tokens are as the provider counts them; the three kinds of input do not overlap.
    """

    text: str
    model: str
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cost_usd: Decimal | None = None
    """If the provider reports it; else see prices.py."""
    truncated: bool = False
    """The answer reached the output-token limit."""


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


UNUSABLE_KINDS = {FailureKind.REFUSED, FailureKind.UNUSABLE_ANSWER}
"""The provider answered, but nothing that can be used."""


class ProviderError(Exception):
    """A call without a usable answer. `str(error)` is a sentence for the operator, without secrets.

    `completion` is what was answered and billed nevertheless, such as a refusal's text. `out_of_reach`: the provider cannot have
    read the request (no connection, overload, rate limit), so no event is the cause. `perhaps_paid`: the call may be billed, its
    usage is unknown. `doubtful`: the failure may concern only this request, not the provider. The caller sets `provider`, `run_id`
    and `pauses` (whether the failure pauses the provider).
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
        self.retry_after_seconds = retry_after_seconds
        self.completion = completion
        self.out_of_reach = out_of_reach
        self.perhaps_paid = perhaps_paid
        self.doubtful = doubtful
        self.provider = ""
        self.run_id: UUID | None = None
        self.pauses = False


class Provider(Protocol):
    """A model that answers prompts, without access to the database."""

    @property
    def name(self) -> str:
        """As in CMSERVER_PROVIDER; the key of its pauses and runs."""
        ...

    @property
    def model(self) -> str:
        """The model's name."""
        ...

    async def complete(self, prompt: Prompt) -> Completion:
        """Answer the prompt or raise ProviderError."""
        ...


class Rules(msgspec.Struct, frozen=True):
    """The place of the rules in a chain of providers. They answer without a call: nothing is sent, recorded or paid for."""

    name: str = "offline"
    model: str = "rules"


ProviderChain = Sequence[Provider | Rules]
"""In the order in which they are tried."""


class ProviderSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The operator's settings for one provider.

    Each provider's module has `make(settings)`, which raises Invalid for a missing or wrong setting and uses no network.
    """

    name: str
    """As in CMSERVER_PROVIDER; it selects the preset of a module with several."""
    model: str | None = None
    base_url: str | None = None
    api_key: str | None = None
    timeout_seconds: float = 120.0
    """For one whole call."""
    answer_max_tokens: int = 8_192
    claude_program: str = "claude"
    """Its path, or its name in PATH."""

    def __repr__(self) -> str:
        return f"ProviderSettings({self.name!r}, model={self.model!r})"  # never the key
