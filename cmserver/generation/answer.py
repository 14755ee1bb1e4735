"""From a provider's answer to what will be stored: normalised observations, each with the jobs of the events it names."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from uuid import UUID

import msgspec

from cmserver.generation.prompt import tag
from cmserver.observations.model import ITEM_MOST, ITEMS_MOST, TEXT_MOST, TITLE_MOST, TYPES, compose
from cmserver.providers.model import Answer, DraftObservation, DraftSummary, FailureKind, ProviderError

SUMMARY_FIELDS = ("request", "investigated", "learned", "completed", "next_steps", "notes")


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
        answer = _decoded(text)
    except (ValueError, RecursionError) as error:
        raise ProviderError(FailureKind.UNUSABLE_ANSWER, f"The answer could not be read: {error}.") from error
    by_tag = {tag(place): job_id for place, job_id in enumerate(job_ids)}
    observations: list[Worded] = []
    for draft in answer.observations:
        named = {by_tag[one] for one in draft.events if one in by_tag}
        clean = _normalised(draft)
        if clean is not None:
            # An observation that names no event of the batch belongs to the batch as a whole.
            observations.append(Worded(draft=clean, job_ids=[one for one in job_ids if one in named] or list(job_ids)))
    said = {skip.event: _line(skip.reason) or "not said why" for skip in answer.skipped}
    reasons = {job_id: said[tag_] for tag_, job_id in by_tag.items() if tag_ in said}
    if "summary" in said:
        reasons = dict.fromkeys(job_ids, said["summary"])
    return Parsed(observations=observations, summary=_summary(answer.summary), reasons=reasons)


def content_of(draft: DraftObservation) -> str:
    """The observation as one text: title, subtitle, narrative, facts."""
    return compose(draft.title, draft.subtitle, draft.narrative, draft.facts)


def summary_content(summary: DraftSummary) -> str:
    """The six fields as one text with their names."""
    fields = [(name.replace("_", " ").capitalize(), getattr(summary, name)) for name in SUMMARY_FIELDS]
    return "\n\n".join(f"{label}: {text}" for label, text in fields if text)


def fingerprint(value: object) -> str:
    """Of a normalised observation or summary: the same content, the same key, whoever computed it."""
    return hashlib.sha256(msgspec.json.encode(value, order="sorted")).hexdigest()


def _decoded(text: str) -> Answer:
    """ValueError when it is no answer. Lone surrogates, which PostgreSQL does not take, become question marks."""
    try:
        return msgspec.json.decode(text, type=Answer)
    except (msgspec.ValidationError, RecursionError):
        raise
    except (msgspec.DecodeError, UnicodeError):
        whole = json.dumps(json.loads(text), ensure_ascii=False)
        return msgspec.json.decode(whole.encode("utf-8", "replace"), type=Answer)


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
    return (text or "").replace("\x00", "\ufffd").strip()[:TEXT_MOST].rstrip() or None


def _line(text: str | None) -> str | None:
    one = " ".join((_text(text) or "").split())
    return one[: TITLE_MOST - 1] + "…" if len(one) > TITLE_MOST else one or None


def _list(texts: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(clean for text in texts if (clean := _text((text or "")[:ITEM_MOST]))))[:ITEMS_MOST]
