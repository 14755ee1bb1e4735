"""Asks the configured model a question about stored observations, and fails closed: without a readable answer there is none."""

from __future__ import annotations

from typing import Annotated, Generic, TypeVar
from uuid import UUID

import msgspec
from msgspec import Meta

from cmserver.base.db import Db
from cmserver.base.errors import Invalid
from cmserver.base.settings import Settings
from cmserver.models.calls import repository as calls
from cmserver.models.calls.recorded_call import RecordedCaller
from cmserver.models.providers.model import Completion, FailureKind, Prompt, ProviderError
from cmserver.models.providers.prompts.render import render
from cmserver.observations.model import estimate_tokens
from cmserver.steward.model import ModelCall
from cmserver.steward.runs import repository as runs

T = TypeVar("T", bound=msgspec.Struct)

ANSWER_SECONDS = 30.0
"""A model that takes longer is asked another day."""
DAILY_TOKENS = 3_200
"""Of a project in a day (UTC), besides the budgets: under 100,000 a month, which costs cents."""
_GUARD_SHARE = 2 / 3
"""Of a day's tokens, for comparing pairs: the rest is left for a derivation."""

Share = Annotated[float, Meta(ge=0, le=1)]


class GuardAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Whether two notes say the same. Every field must be there."""

    same: bool
    conflict: bool
    confidence: Share
    reason: str


class DerivedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What several notes say in common; `sources` are their places."""

    common: bool
    title: str
    narrative: str
    facts: list[str]
    sources: list[int]
    confidence: Share


class ModelAnswer(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """The model's answer, or why there is none; `call` is None where none was made."""

    answer: T | None = None
    refusal: str | None = None
    call: ModelCall | None = None


class ModelAsker:
    """Asks within the breaker, the tokens of a day, and the budgets of the team."""

    def __init__(self, db: Db, settings: Settings) -> None:
        self._db = db
        self._caller = RecordedCaller(db, settings)

    @property
    def has_model(self) -> bool:
        return self._caller.first_provider != "offline"

    async def ask(self, team_id: UUID, project_id: UUID, prompt: Prompt, answer_type: type[T]) -> ModelAnswer[T]:
        """Never raises for a provider."""
        if refusal := await self._find_refusal(team_id, project_id, prompt):
            return ModelAnswer[T](refusal=refusal)
        name, model = self._caller.first_provider, ""
        try:
            provider = await self._caller.load_provider()
            if provider is None:
                return ModelAnswer[T](refusal="model_paused")
            name, model = provider.name, provider.model
            completion = await self._caller.call(team_id, project_id, provider, prompt, seconds=ANSWER_SECONDS)
        except Invalid as error:
            return ModelAnswer[T](refusal="model_failed", call=_call(name, model, None, "model_failed", str(error)))
        except ProviderError as error:
            reason = "model_unreadable" if error.kind is FailureKind.UNUSABLE_ANSWER else "model_failed"
            return ModelAnswer[T](refusal=reason, call=_call(name, model, error.completion, reason, str(error)))
        if completion is None:
            return ModelAnswer[T](refusal="budget_spent")
        answer = _read(completion.text, answer_type)
        reason = "model_unreadable" if answer is None else None
        return ModelAnswer[T](answer=answer, refusal=reason, call=_call(name, completion.model or model, completion, reason))

    async def _find_refusal(self, team_id: UUID, project_id: UUID, prompt: Prompt) -> str | None:
        """Why no model is asked at this moment. A call whose prompt does not fit into the day's tokens is not made."""
        if not self.has_model:
            return "no_model"
        async with self._db.tenant(team_id) as conn:
            breaker = await runs.breaker(conn, team_id)
            tokens = await calls.steward_tokens(conn, team_id, project_id, "day")
        if breaker.is_open:
            return "breaker_open"
        tokens += estimate_tokens("".join(msgspec.structs.astuple(render(prompt, "json"))))
        most = DAILY_TOKENS * _GUARD_SHARE if prompt.kind == "guard" else DAILY_TOKENS
        return "daily_tokens_spent" if most and tokens > most else None


def _call(provider: str, model: str, completion: Completion | None, error: str | None, message: str | None = None) -> ModelCall:
    usage = completion or Completion(text="", model=model)
    return ModelCall(
        provider=provider,
        model=model,
        prompt_tokens=usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens,
        completion_tokens=usage.output_tokens,
        error=error,
        message=message,
    )


def _read(text: str, answer_type: type[T]) -> T | None:
    """The one JSON object of the answer; None when it is not all there."""
    start, end = text.find("{"), text.rfind("}")
    try:
        return msgspec.json.decode(text[start : end + 1], type=answer_type)
    except (msgspec.DecodeError, UnicodeError):
        return None
