"""From a provider's answer to what will be stored: normalised observations, each with the jobs of the events it names."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from uuid import UUID

import msgspec

from cmserver.generation.prompt import tag
from cmserver.observations.model import TYPES
from cmserver.providers.model import Answer, DraftObservation, DraftSummary, FailureKind, ProviderError

SUMMARY_FIELDS = ("request", "investigated", "learned", "completed", "next_steps", "notes")
_TITLE_CHARS = 200


class Parsed(msgspec.Struct, frozen=True, kw_only=True):
    """An answer, understood. A job that no observation names was skipped; `reasons` says why where the provider did."""

    observations: list[Worded]
    summary: DraftSummary | None
    reasons: dict[UUID, str]


class Worded(msgspec.Struct, frozen=True, kw_only=True):
    """An observation, normalised, and the jobs whose events it was drawn from (in the prompt's order, at least one)."""

    draft: DraftObservation
    job_ids: list[UUID]


def parse(text: str, job_ids: Sequence[UUID]) -> Parsed:
    """Understand an answer; `job_ids` are the jobs behind the tags e1, e2 ... UNUSABLE_ANSWER when it cannot be read."""
    try:
        answer = msgspec.json.decode(text, type=Answer)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ProviderError(FailureKind.UNUSABLE_ANSWER, f"The answer could not be read: {error}.") from error
    by_tag = {tag(place): job_id for place, job_id in enumerate(job_ids)}
    observations: list[Worded] = []
    for draft in answer.observations:
        named = {by_tag[one] for one in draft.events if one in by_tag}
        clean = _normalised(draft)
        if clean is not None:
            # An observation that names no event of the batch belongs to the batch as a whole.
            observations.append(Worded(draft=clean, job_ids=[one for one in job_ids if one in named] or list(job_ids)))
    reasons = {by_tag[skip.event]: skip.reason for skip in answer.skipped if skip.event in by_tag}
    if "summary" in {skip.event for skip in answer.skipped}:
        reasons |= {one: next(skip.reason for skip in answer.skipped if skip.event == "summary") for one in job_ids}
    return Parsed(observations=observations, summary=_summary(answer.summary), reasons=reasons)


def content_of(draft: DraftObservation) -> str:
    """The observation as one text: title, subtitle, narrative, facts."""
    parts = [draft.title, draft.subtitle, draft.narrative, *(f"- {fact}" for fact in draft.facts)]
    return "\n\n".join(part for part in parts if part)


def summary_content(summary: DraftSummary) -> str:
    """The six fields as one text with their names."""
    fields = [(name.replace("_", " ").capitalize(), getattr(summary, name)) for name in SUMMARY_FIELDS]
    return "\n\n".join(f"{label}: {text}" for label, text in fields if text)


def fingerprint(value: object) -> str:
    """Of a normalised observation or summary: the same content, the same key, whoever computed it."""
    return hashlib.sha256(msgspec.json.encode(value, order="sorted")).hexdigest()


def _normalised(draft: DraftObservation) -> DraftObservation | None:
    type_ = draft.type if draft.type in TYPES else "change"
    clean = DraftObservation(
        type=type_,
        title=_line(draft.title),
        subtitle=_text(draft.subtitle),
        narrative=_text(draft.narrative),
        facts=_list(draft.facts),
        concepts=[concept for concept in _list(draft.concepts) if concept != type_],
        files_read=_list(draft.files_read),
        files_modified=_list(draft.files_modified),
    )
    said = (clean.title, clean.subtitle, clean.narrative, clean.facts, clean.concepts, clean.files_read, clean.files_modified)
    return clean if any(said) else None


def _summary(summary: DraftSummary | None) -> DraftSummary | None:
    if summary is None:
        return None
    fields = {name: _text(getattr(summary, name)) for name in SUMMARY_FIELDS}
    return DraftSummary(**fields) if any(fields.values()) else None


def _text(text: str | None) -> str | None:
    return (text or "").replace("\x00", "\ufffd").strip() or None


def _line(text: str | None) -> str | None:
    one = " ".join((_text(text) or "").split())
    return one[: _TITLE_CHARS - 1] + "…" if len(one) > _TITLE_CHARS else one or None


def _list(texts: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(clean for text in texts if (clean := _text(text))))
