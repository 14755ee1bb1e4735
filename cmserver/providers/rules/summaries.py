"""The six fields of a session's summary, from its requests, its record and the agent's last words."""

from __future__ import annotations

import re

from cmserver.providers.model import Answer, DraftSummary, Prompt, Recorded, Skip
from cmserver.providers.rules import drafts
from cmserver.providers.rules.commands import Command, Sort, read
from cmserver.providers.rules.phrases import record as known
from cmserver.providers.rules.phrases.manner import as_wished, counted, words
from cmserver.providers.rules.text import capital, listed, shorten

_DONE = {"change", "bugfix", "feature", "refactor"}
_NEXT = re.compile(
    r"\b(?:next|to-?dos?|remain(?:s|ing)|still (?:needs?|to|open|missing)|left to do|follow-?up|not yet)\b", re.IGNORECASE
)
_MAX_TITLES = 8


def summarise(prompt: Prompt) -> Answer:
    """A summary, however small; a skip only when nothing happened at all."""
    if not (prompt.requests or prompt.recorded or prompt.last_message or prompt.events_in_session):
        return Answer(skipped=[Skip(event="summary", reason="nothing happened in this session")])
    with as_wished(prompt.wishes):
        return Answer(summary=_summary(prompt))


def _summary(prompt: Prompt) -> DraftSummary:
    record = prompt.recorded
    settled = drafts.settled_failures(record)
    return DraftSummary(
        request=_request(prompt.requests),
        investigated=_investigated(record),
        learned=_titles([line for line in record if line.type not in _DONE and line.number not in settled]),
        completed=_titles([line for line in record if line.type in _DONE]),
        next_steps=_next_steps(prompt),
        notes=_notes(prompt),
    )


def _request(requests: list[str]) -> str | None:
    asked = list(dict.fromkeys(shorten(request, 300) for request in requests if request.strip()))
    if len(asked) < 2:
        return asked[0] if asked else None
    between = f" ({counted(words().requests, len(asked))})" if len(asked) > 2 else ""
    return words().last_request.format(first=asked[0].rstrip("."), last=asked[-1].rstrip("."), between=between)


def _investigated(record: list[Recorded]) -> str | None:
    files = list(dict.fromkeys(path for line in record for path in line.files_read))
    facts = (fact for line in record for fact in line.facts)
    commands = list(dict.fromkeys(_name(read(command)) for command in known.ran(facts)))
    parts = [words().read.format(files=listed(files, 6))] if files else []
    if commands:
        told = words().ran.format(command=listed(commands, 4))
        parts.append(told[:1].lower() + told[1:])
    return f"{capital('; '.join(parts))}." if parts else None


def _name(command: Command) -> str:
    return f"`{command.chief.label if command.chief.sort in {Sort.TEST, Sort.CHECK} else command.shown}`"


def _titles(lines: list[Recorded]) -> str | None:
    """Titles oldest first; the newest are the ones kept when there are many."""
    titles = list(dict.fromkeys(line.title for line in lines if line.title))
    earlier = len(titles) - _MAX_TITLES
    if len(titles) < 2:
        return titles[0] if titles else None
    told = "\n".join(f"- {title}" for title in titles[-_MAX_TITLES:])
    return f"- {words().earlier.format(count=earlier)}\n{told}" if earlier > 0 else told


def _next_steps(prompt: Prompt) -> str | None:
    text = prompt.last_message or ""
    sentences = [part.strip().lstrip("#*- ") for part in re.split(r"(?<=[.!?])\s+|\n+", text[:8000])]
    told = [sentence for sentence in sentences if _NEXT.search(sentence)]
    if told:
        return shorten(" ".join(told), 300)
    failing = list(drafts.open_failures(prompt.recorded).values())
    return f"{words().still_open}: {'; '.join(line.title for line in failing[-3:])}" if failing else None


def _notes(prompt: Prompt) -> str | None:
    files = list(dict.fromkeys(path for line in prompt.recorded for path in line.files_modified))
    changed = counted(words().files_changed, len(files), files=listed(files, 6)) if files else ""
    heard = shorten(prompt.last_message or "", 300)
    count = 0 if prompt.recorded else prompt.events_in_session
    unheard = words().nothing_recorded.format(events=counted(words().events, count)) if count else ""
    return " ".join(filter(None, [changed, unheard, f"{words().last_words}: {heard}" if heard else ""])) or None
