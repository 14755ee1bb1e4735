"""Has a model word what people merge, where the project says so. The model is called outside of any transaction."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from uuid import UUID

import msgspec

from cmserver.access import repository as access
from cmserver.access.model import Principal
from cmserver.answers.parse import parse
from cmserver.base.db import Db
from cmserver.base.errors import Invalid
from cmserver.base.logs import get_logger
from cmserver.base.settings import Settings
from cmserver.base.sql import Conn
from cmserver.consolidation.combine import MergeWording, find_mergeable, text_of
from cmserver.consolidation.merge import MergeableText, MergeTooLong, merge_texts
from cmserver.consolidation.model import ModelRefusal
from cmserver.consolidation.review import find_suggestion
from cmserver.consolidation.wording_check import find_refusal, list_exact_units
from cmserver.models.calls.recorded_call import RecordedCaller
from cmserver.models.providers.model import FailureKind, Prompt, ProviderError
from cmserver.observations.history.model import MergeStrategy
from cmserver.observations.model import Observation
from cmserver.observations.normalise import normalise_answer

log = get_logger(__name__)

MAX_CHARS = 10_000
"""Longer texts are merged by rules: no prompt shortens a text of which the answer must keep every sentence."""


class _Request(msgspec.Struct, frozen=True, kw_only=True):
    """The texts of a merge, the target's first, and what a provider is asked about them."""

    project_id: UUID
    texts: dict[UUID, MergeableText]
    prompt: Prompt


class MergeWriter:
    """Asks the configured provider for the words of a merge."""

    def __init__(self, db: Db, settings: Settings) -> None:
        self._db = db
        self._caller = RecordedCaller(db, settings)

    async def word_merge(
        self, principal: Principal, target_name: str, source_names: Sequence[int | str], strategy: MergeStrategy
    ) -> MergeWording | None:
        """A model's words, or why there are none; None where no model is asked. Raises what `merge_observations` raises."""

        async def find_texts(conn: Conn) -> _Request | None:
            target, sources = await find_mergeable(conn, principal, target_name, source_names)
            return await self._build_request(conn, target, sources)

        return await self._word(principal, find_texts, strategy)

    async def word_suggestion(
        self, principal: Principal, suggestion_id: UUID, strategy: MergeStrategy = "smart_merge", into: int | None = None
    ) -> MergeWording | None:
        """As `word_merge`, for the merge that accepts a suggestion."""

        async def find_texts(conn: Conn) -> _Request | None:
            suggestion = await find_suggestion(conn, principal, suggestion_id)
            if suggestion.status != "open":
                return None
            target_number, source_number = suggestion.merge_order(into)
            target, sources = await find_mergeable(conn, principal, str(target_number), [source_number])
            return await self._build_request(conn, target, sources)

        return await self._word(principal, find_texts, strategy)

    async def _word(
        self, principal: Principal, find_texts: Callable[[Conn], Awaitable[_Request | None]], strategy: MergeStrategy
    ) -> MergeWording | None:
        first_provider = self._caller.first_provider
        if strategy != "smart_merge" or first_provider == "offline":
            return None
        async with self._db.tenant(principal.team_id) as conn:
            request = await find_texts(conn)
        if request is None:
            return None
        if sum(len(text) for text in request.prompt.stored) > MAX_CHARS:
            return MergeWording(texts=request.texts, refusal="too_long")
        words, refusal = await self._ask(principal, first_provider, request)
        return MergeWording(texts=request.texts, words=words, refusal=refusal)

    async def _build_request(self, conn: Conn, target: Observation, sources: Sequence[Observation]) -> _Request | None:
        """None when nothing is to be merged, or the project wants no model."""
        project = await access.project(conn, target.team_id, target.project_id)
        if project is None or not project.merge_with_model or not sources:
            return None
        texts = {row.id: text_of(row) for row in (target, *sources)}
        rows = sorted(texts.values(), key=lambda row: row.updated_at)
        stored = ["\n\n".join(filter(None, [row.composed, row.own_content])) for row in rows]
        prompt = Prompt(kind="merge", project=project.canonical_id, stored=stored, keep=list_exact_units(rows))
        return _Request(project_id=project.id, texts=texts, prompt=prompt)

    async def _ask(self, principal: Principal, name: str, request: _Request) -> tuple[MergeableText | None, ModelRefusal | None]:
        """The checked words of the first provider that is not paused, or why there are none. Never raises for a provider."""
        rows = list(request.texts.values())
        try:
            merged = merge_texts(rows[0], rows[1:])
        except MergeTooLong:
            return None, "too_long"
        try:
            provider = await self._caller.load_provider()
            if provider is None:
                return None, "provider_paused"
            name = provider.name
            completion = await self._caller.call(principal.team_id, request.project_id, provider, request.prompt)
            if completion is None:
                return None, "budget_spent"
            words = _read_answer(merged, completion.text)
        except Invalid as error:
            log.warning("merge.wording_failed", provider=name, error=str(error))
            return None, "provider_failed"
        except ProviderError as error:
            log.warning("merge.wording_failed", provider=name, kind=error.kind.value, error=str(error))
            return None, "unusable_answer" if error.kind is FailureKind.UNUSABLE_ANSWER else "provider_failed"
        refusal = find_refusal(rows, words)
        return (None, refusal) if refusal else (words, None)


def _read_answer(merged: MergeableText, answer: str) -> MergeableText:
    """The merge by rules with the answer's title, narrative and facts; ProviderError when the answer is none."""
    drafts = normalise_answer(parse(answer, 0), {}).observations
    if len(drafts) != 1:
        raise ProviderError(FailureKind.UNUSABLE_ANSWER, f"The answer holds {len(drafts)} notes, not one.")
    draft = drafts[0]
    worded = msgspec.structs.replace(merged, title=draft.title or merged.title, narrative=draft.narrative, facts=tuple(draft.facts))
    return msgspec.structs.replace(worded, content=worded.composed)
