"""Hits as an agent reads them: a line each, or whole."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from uuid import UUID

from cmserver.observations.model import Observation
from cmserver.observations.plain import one_line, said, summed_up
from cmserver.recall.search.model import Hit
from cmserver.sessions.model import ListedPrompt

TITLE_CHARS = 160


def hit_text(hit: Hit, names: Mapping[UUID, str], *, full: bool) -> str:
    """What a model reads of it: a line with the score at its end, and where several are searched the project."""
    name = names.get(project_of(hit))
    end = f" {hit.score:.2f} {one_line(name, TITLE_CHARS)}\n" if name else f" {hit.score:.2f}\n"
    if hit.prompt:
        day = f"{hit.prompt.created_at.astimezone(UTC):%Y-%m-%d}"
        text = one_line(hit.prompt.text, len(hit.prompt.text) if full else TITLE_CHARS)
        return f"prompt {hit.prompt.prompt_number} {day} {text}{end}"
    assert hit.observation
    first, *rest = said(hit.observation) if full else [summed_up(hit.observation)]
    return "".join([first, end, *(f"{line}\n" for line in rest)])


def project_of(hit: Hit) -> UUID:
    return _told(hit).project_id


def at(hit: Hit) -> datetime:
    return _told(hit).created_at


def _told(hit: Hit) -> Observation | ListedPrompt:
    one = hit.observation or hit.prompt
    assert one
    return one
