"""Makes a session's summary, six fields, from its requests, its record and the agent's last words."""

from __future__ import annotations

from collections.abc import Sequence

from cmserver.base.text import join_names, shorten
from cmserver.providers.model import Answer, DraftSummary, PriorObservation, Skip
from cmserver.reading.conclusions import is_vague, read_conclusions
from cmserver.reading.text import capitalize, count_noun
from cmserver.rules.failures import open_failures
from cmserver.rules.model import SessionRecord

_DONE = {"change", "bugfix", "feature", "refactor"}
_MAX_MESSAGE = 4_000
_MAX_TITLES = 8
NOTHING = "nothing was changed, found or decided"


def summarise(session: SessionRecord) -> Answer:
    """A summary, however small; a skip for a session of which nothing is recorded."""
    recorded = session.recorded
    if not recorded:
        return Answer(skipped=[Skip(reason=NOTHING)])
    learned = [line for line in recorded if line.type not in _DONE and line.state is None and not _reports_failure(line)]
    return Answer(
        summary=DraftSummary(
            request=_request(session.requests),
            investigated=_investigated(recorded),
            learned=_titles(learned),
            completed=_titles([line for line in recorded if line.type in _DONE]),
            next_steps=_next_steps(session),
            notes=_notes(session),
        )
    )


def _reports_failure(line: PriorObservation) -> bool:
    return any(not result.passed for result in line.commands)


def _request(requests: Sequence[str]) -> str | None:
    texts = list(dict.fromkeys(shorten(request, 300) for request in requests if request.strip()))
    if len(texts) < 2:
        return texts[0] if texts else None
    total = f" ({len(texts)} requests in all)" if len(texts) > 2 else ""
    return f"{texts[0].rstrip('.')}. Last: {texts[-1].rstrip('.')}{total}."


def _investigated(recorded: Sequence[PriorObservation]) -> str | None:
    files = list(dict.fromkeys(path for line in recorded for path in line.files_read))
    results = (result for line in recorded for result in line.commands if result.kind in {"check", "other"})
    commands = list(dict.fromkeys(f"`{result.command}`" for result in results))
    parts = [f"read {join_names(files, 6)}"] if files else []
    parts += [f"ran {join_names(commands, 4)}"] if commands else []
    return f"{capitalize('; '.join(parts))}." if parts else None


def _titles(lines: Sequence[PriorObservation]) -> str | None:
    """A line of number and title for each, oldest first; the newest are the ones kept when there are many."""
    titles = {line.title: f"#{line.number} {line.title}" for line in lines if line.title}
    earlier = len(titles) - _MAX_TITLES
    shown = [*([f"{earlier} earlier"] if earlier > 0 else []), *list(titles.values())[-_MAX_TITLES:]]
    return "\n".join(f"- {text}" for text in shown) if len(shown) > 1 else "".join(shown) or None


def _next_steps(session: SessionRecord) -> str | None:
    """What is open by number; of a session that was not finished its last message, whole."""
    open_failure_numbers = {line.number for line in open_failures(session.recorded)}
    titles = _titles([line for line in session.recorded if line.state == "open" or line.number in open_failure_numbers])
    message = (session.last_message or "").strip()
    is_unfinished = any(conclusion.is_open for conclusion in read_conclusions(message))
    return "\n".join(filter(None, [titles, message[:_MAX_MESSAGE] if is_unfinished else ""])) or None


def _notes(session: SessionRecord) -> str | None:
    files = list(dict.fromkeys(path for line in session.recorded for path in line.files_modified))
    changed = f"{count_noun(len(files), 'file')} changed: {join_names(files, 6)}." if files else ""
    message = shorten(session.last_message or "", 300)
    last_words = "" if is_vague(message) else message
    return " ".join(filter(None, [changed, f"Last words: {last_words}" if last_words else ""])) or None
