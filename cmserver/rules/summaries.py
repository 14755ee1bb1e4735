"""Makes a session's summary from its requests, its record and the agent's last words: what was asked for, changed, and is open."""

from __future__ import annotations

from collections.abc import Sequence

from cmserver.base.text import join_names, shorten
from cmserver.providers.model import Answer, DraftSummary, PriorObservation, Skip
from cmserver.reading.open_ends import read_open_ends
from cmserver.reading.text import count_noun
from cmserver.rules.failures import open_failures
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
            next_steps=_next_steps(session),
        )
    )


def _changed(recorded: Sequence[PriorObservation]) -> str | None:
    """The files; without any, what was recorded."""
    files = list(dict.fromkeys(path for line in recorded for path in line.files_modified))
    if files:
        return f"{count_noun(len(files), 'file')} changed: {join_names(files, 6)}."
    return _list([f"#{line.number} {line.title}" for line in recorded if line.title and line.state is None])


def _next_steps(session: SessionRecord) -> str | None:
    """What is open, by number or in the agent's last words."""
    failures = {line.number for line in open_failures(session.recorded)}
    lines = [line for line in session.recorded if line.state == "open" or line.number in failures]
    titles = {line.title: f"#{line.number} {line.title}" for line in lines if line.title}
    titles |= {end.title: end.title for end in read_open_ends(session.last_message or "") if end.title not in titles}
    return _list(list(titles.values()))


def _list(texts: Sequence[str]) -> str | None:
    """A line for each, oldest first; the newest are the ones kept when there are many."""
    earlier = len(texts) - _MAX_TITLES
    shown = [*([f"{earlier} earlier"] if earlier > 0 else []), *texts[-_MAX_TITLES:]]
    return "\n".join(f"- {text}" for text in shown) if len(shown) > 1 else "".join(shown) or None
