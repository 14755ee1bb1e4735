"""The six fields of a session's summary, from its requests, its record and the agent's last words."""

from __future__ import annotations

import re

from cmserver.providers.model import Answer, DraftSummary, Prompt, Recorded, Skip
from cmserver.providers.rules import drafts
from cmserver.providers.rules.commands import Command, Sort, read
from cmserver.providers.rules.text import capital, counted, listed, shorten

_DONE = {"change", "bugfix", "feature", "refactor"}
_NEXT = re.compile(
    r"\b(?:next|to-?dos?|remain(?:s|ing)|still (?:needs?|to|open|missing)|left to do|follow-?up|not yet)\b", re.IGNORECASE
)
_COMMAND = re.compile(r"(?:Command|Passes|Failed before): `([^`]+)`")
_MAX_TITLES = 8


def summarise(prompt: Prompt) -> Answer:
    """A summary, or a skip when nothing happened at all."""
    if not (prompt.requests or prompt.recorded or prompt.last_message):
        return Answer(skipped=[Skip(event="summary", reason="nothing happened in this session")])
    record = prompt.recorded
    settled = drafts.settled_failures(record)
    return Answer(
        summary=DraftSummary(
            request=_request(prompt.requests),
            investigated=_investigated(record),
            learned=_titles([line for line in record if line.type not in _DONE and line.number not in settled]),
            completed=_titles([line for line in record if line.type in _DONE]),
            next_steps=_next_steps(prompt),
            notes=_notes(prompt),
        )
    )


def _request(requests: list[str]) -> str | None:
    asked = list(dict.fromkeys(shorten(request, 300) for request in requests if request.strip()))
    if len(asked) < 2:
        return asked[0] if asked else None
    between = f" ({counted(len(asked), 'request')} in all)" if len(asked) > 2 else ""
    return f"{asked[0].rstrip('.')}. Last: {asked[-1].rstrip('.')}{between}."


def _investigated(record: list[Recorded]) -> str | None:
    files = list(dict.fromkeys(path for line in record for path in line.files_read))
    facts = (fact for line in record for fact in line.facts)
    commands = list(dict.fromkeys(_name(read(match[1])) for fact in facts if (match := _COMMAND.match(fact))))
    parts = [f"read {listed(files, 6)}"] if files else []
    if commands:
        parts.append(f"ran {listed(commands, 4)}")
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
    return f"- {earlier} earlier\n{told}" if earlier > 0 else told


def _next_steps(prompt: Prompt) -> str | None:
    text = prompt.last_message or ""
    sentences = [part.strip().lstrip("#*- ") for part in re.split(r"(?<=[.!?])\s+|\n+", text[:8000])]
    told = [sentence for sentence in sentences if _NEXT.search(sentence)]
    if told:
        return shorten(" ".join(told), 300)
    failing = list(drafts.open_failures(prompt.recorded).values())
    return f"Still open: {'; '.join(line.title for line in failing[-3:])}" if failing else None


def _notes(prompt: Prompt) -> str | None:
    files = list(dict.fromkeys(path for line in prompt.recorded for path in line.files_modified))
    changed = f"{counted(len(files), 'file')} changed: {listed(files, 6)}." if files else ""
    words = shorten(prompt.last_message or "", 300)
    return " ".join(filter(None, [changed, f"Last words: {words}" if words else ""])) or None
