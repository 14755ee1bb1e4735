"""Normalised observations and summaries as texts, and as keys by which a repeated write is known."""

from __future__ import annotations

import hashlib

import msgspec

from cmserver.generation.answers.model import SUMMARY_FIELDS
from cmserver.observations.model import compose
from cmserver.providers.model import DraftObservation, DraftSummary


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
