"""Makes a session's summary from its requests and its record: what was asked for and changed. What is open has rows of its own."""

from __future__ import annotations

from collections.abc import Sequence

from cmserver.base.text import join_names, shorten
from cmserver.models.providers.model import Answer, DraftSummary, PriorObservation, Skip
from cmserver.reading.text import count_noun
from cmserver.rules.model import SessionRecord

_MAX_TITLES = 8
NOTHING = "nothing was changed, found or decided"


def summarise(session: SessionRecord) -> Answer:
    """A summary, however small; a skip for a session of which nothing is recorded."""
    if not session.recorded:
        return Answer(skipped=[Skip(reason=NOTHING)])
    return Answer(
        summary=DraftSummary(
            request=next((shorten(request, 300) for request in session.requests if request.strip()), None),
            completed=_changed(session.recorded),
        )
    )


def _changed(recorded: Sequence[PriorObservation]) -> str | None:
    """The files; without any, what was recorded."""
    files = list(dict.fromkeys(path for line in recorded for path in line.files_modified))
    if files:
        return f"{count_noun(len(files), 'file')} changed: {join_names(files, 6)}."
    return _list([f"#{line.number} {line.title}" for line in recorded if line.title and line.state is None])


def _list(texts: Sequence[str]) -> str | None:
    """A line for each, oldest first; the newest are the ones kept when there are many."""
    earlier = len(texts) - _MAX_TITLES
    shown = [*([f"{earlier} earlier"] if earlier > 0 else []), *texts[-_MAX_TITLES:]]
    return "\n".join(f"- {text}" for text in shown) if len(shown) > 1 else "".join(shown) or None
