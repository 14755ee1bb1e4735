"""The server's state, queue and providers on the wire."""

from __future__ import annotations

from typing import Literal
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType

from cmserver.access.model import Principal
from cmserver.base.columns import format_time
from cmserver.base.ids import epoch_ms
from cmserver.base.lookalikes import sanitize_line
from cmserver.base.structs import reshape
from cmserver.base.text import join_names
from cmserver.embeddings.wire import EmbeddingsOut
from cmserver.models.calls.model import AnswerCounts, Pause
from cmserver.models.providers.failures import find_help
from cmserver.observations.plain import one_line
from cmserver.ops.spending.wire import BudgetOut
from cmserver.steward.model import Mode

_ERROR_CHARS = 200
"""Of an error's message on one line."""


class PauseOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A provider's pause. The provider's own message is shown to keys with the scope `*` only: it may quote any request."""

    provider: str
    reason: str
    message: str
    paused_at_epoch: int
    until_epoch: int


def pause_out(pause: Pause, principal: Principal) -> PauseOut:
    """Return the pause as the principal may see it."""
    message = pause.message if principal.may("*") else f"{pause.provider} {describe_failure(pause.reason)}."
    return reshape(pause, PauseOut, message=message, until_epoch=epoch_ms(pause.until_at))


def describe_failure(reason: str) -> str:
    """Return the predicate of a known reason, else "is paused": an operator may have written any text with psql."""
    entry = find_help(reason)
    return entry.predicate if entry else "is paused"


class QueueOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The queue of the key's team, or of its project when it is bound to one.

    `waiting` is how many are due; `delayed` is how many wait for their time; `held` is how many wait for the end of a pause, a
    back-off or a budget. `recovered` is how often a job came back from a worker that was lost. `warning` is a sentence when the
    oldest waiting job has waited for five minutes, or when more than 2,000 are queued, else
    null.
    """

    waiting: int
    active: int
    delayed: int
    held: int
    completed: int
    failed: int
    cancelled: int
    recovered: int
    oldest_waiting_seconds: float | None
    warning: str | None


class PostgresOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The database. `initialized` is whether it has this program's schema."""

    version: str
    embedded: bool
    vectors: bool
    initialized: bool
    schema_version: int


class BoundaryOut(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the server, in the form that clients of claude-mem read. `status` is whether it works; `details` are numbers of
    that part, by name.
    """

    status: Literal["active", "disabled"]
    reason: str
    details: dict[str, int]


class BoundariesOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The queue is the database; workers are counted by their leases."""

    queue_manager: BoundaryOut
    generation_worker_manager: BoundaryOut


LaneKind = Literal["event", "summary", "reindex", "entities", "steward", "embedding"]


class LaneOut(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs of one kind, in the form that clients of claude-mem read: `kind` is what the jobs are about. Those of `embedding`
    are texts that wait for their vector; its failed ones could not be embedded when it was last tried.
    """

    kind: LaneKind
    name: str
    waiting: int
    active: int
    completed: int
    failed: int
    delayed: int
    stalled: int
    unavailable: bool = False


class ProviderOut(msgspec.Struct, frozen=True, kw_only=True):
    """The providers of observations. `chain` are the names of all, in the order in which they are tried; `name` is the one that is
    asked first; `model` is the model of that one, or null.
    """

    name: str
    model: str | None = None
    chain: list[str]
    pauses: list[PauseOut]


class OwnTeamOut(msgspec.Struct, frozen=True, kw_only=True):
    """The key's team."""

    id: UUID
    name: str


class StewardOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """What the steward may do, and its jobs; `deadLetter` is how many were given up in 24 hours."""

    mode: Mode
    paused: bool
    queued: int
    running: int
    dead_letter: int


class LastErrorOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The last call in 24 hours that failed, or whose answer could not be used. `provider` is whom it was made to; `model` is the
    name of the model; `reason` is the kind of failure; `message` is the provider's, and may quote a request; `atEpoch` is when it
    was; `answeredBy` is the provider that gave a usable answer since then, or null while none did.
    """

    provider: str
    model: str
    reason: str
    message: str
    at_epoch: int
    answered_by: str | None

    @property
    def sentence(self) -> str:
        """Whose error it is, and what it says, on one line."""
        said = sanitize_line(one_line(self.message, _ERROR_CHARS)) or describe_failure(self.reason)
        return f"{self.provider} ({sanitize_line(self.model)}): {said.removesuffix('.')}"


class AnswersOut(AnswerCounts, rename="camel", frozen=True, kw_only=True):
    """How the models do. `usable` is how many of their answers in the last 24 hours could be used; `unusable` is how many were
    refused, empty or unreadable, so that rules read the events in place of the model; `unanswered` is how many calls brought no
    answer: out of time, out of reach, without credit.

    `tokensToday` are all tokens of today (UTC); `costUsdToday` is what they cost, as decimal text; `unpricedCallsToday` is how many
    calls of today have no known price; `budgets` are those that count these calls, none for the whole server; `lastError` is the
    last error of the 24 hours, or null; `notInUse` are the providers of these calls that are asked no more, as the settings name
    others now.
    """

    tokens_today: int
    cost_usd_today: str
    unpriced_calls_today: int
    budgets: list[BudgetOut]
    last_error: LastErrorOut | None
    not_in_use: list[str]

    @property
    def is_warning(self) -> bool:
        """Whether somebody should look at it: not where the last error is of a provider that is asked no more."""
        error = self.last_error
        if error is not None and error.provider in self.not_in_use:
            return False
        return self.is_poor or self.is_silent or (error is not None and error.answered_by is None)

    @property
    def since(self) -> str:
        """Whether the last error is over, as the end of the sentence about it."""
        error = self.last_error
        if error is None:
            return ""
        if error.provider in self.not_in_use:
            return f"{error.provider} is not in use now"
        if error.answered_by is None:
            return "no answer since"
        return "answered since" if error.answered_by == error.provider else f"{error.answered_by} has answered since"

    @property
    def former(self) -> str:
        """Of whom the counts are, too: `also of ollama, not in use now`; empty where all are in use."""
        return f"also of {join_names([*map(sanitize_line, self.not_in_use)], 4)}, not in use now" if self.not_in_use else ""

    def describe(self) -> str:
        """The counts, for a line of a command's output."""
        none = f", {self.unanswered} calls without an answer" if self.unanswered else ""
        former = f" ({self.former})" if self.former else ""
        return f"{self.usable} usable, {self.unusable} unusable{none}{former}"

    def describe_error(self) -> str | None:
        """When the last error was, whose, and whether it is over."""
        error = self.last_error
        return error and f"{format_time(error.at_epoch)}, {error.sentence}; {self.since}"

    def describe_cost(self) -> str:
        """What today cost, and what is spent of each budget."""
        unpriced = self.unpriced_calls_today
        unknown = f", {unpriced} call{'' if unpriced == 1 else 's'} of unknown price" if unpriced else ""
        today = f"${self.cost_usd_today}, {self.tokens_today:,} tokens{unknown}"
        return "; ".join([today, *(sanitize_line(budget.describe()) for budget in self.budgets)])

    def fields(self) -> list[tuple[str, str | None]]:
        """All of it, for `render_fields`."""
        return [
            ("answers in 24 hours", self.describe()),
            ("last error", self.describe_error()),
            ("cost today", self.describe_cost()),
        ]


class WaitingRulesOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Rules that a model or an agent's tool wrote. `waiting` is how many wait for a person's yes; `oldestDays` is for how long the
    oldest has waited, 0 without one; `expired` is how many got no answer in time, in the last seven days.
    """

    waiting: int
    oldest_days: float
    expired: int


class InfoOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The server; `team` and `provider` only with a key, `queue` and the fields after it only with the scope jobs:read.
    `answers` are left out while rules alone word the memory.

    `authMode` is how requests say who they are: with a key. `activeSessions` are the open sessions of the team, or of the key's
    project; `memoryBytes` is the memory of the server's process.
    """

    name: Literal["cmserver"] = "cmserver"
    runtime: Literal["cmserver"] = "cmserver"
    version: str
    auth_mode: Literal["api-key"] = "api-key"
    schema_version: int
    postgres: PostgresOut
    boundaries: BoundariesOut
    workers: int
    queue_lanes: list[LaneOut]
    provider: ProviderOut | UnsetType = UNSET
    team: OwnTeamOut | UnsetType = UNSET
    queue: QueueOut | UnsetType = UNSET
    answers: AnswersOut | UnsetType = UNSET
    rules: WaitingRulesOut | UnsetType = UNSET
    active_sessions: int | UnsetType = UNSET
    memory_bytes: int | UnsetType = UNSET
    embeddings: EmbeddingsOut | UnsetType = UNSET
    steward: StewardOut | UnsetType = UNSET


class KnownProviderOut(msgspec.Struct, frozen=True, kw_only=True):
    """A provider. `state` is whether it is asked; `pause` is its pause, or null; `model` is the one that is asked, or null where
    only the provider itself knows it.
    """

    name: str
    model: str | None
    state: Literal["ready", "paused"]
    pause: PauseOut | None


class ProvidersOut(msgspec.Struct, frozen=True, kw_only=True):
    """In the order in which they are tried; then paused providers that are no longer configured."""

    providers: list[KnownProviderOut]


class ResumedProviderOut(msgspec.Struct, frozen=True, kw_only=True):
    """`resumed` is whether the provider was paused until now."""

    resumed: bool
    name: str
