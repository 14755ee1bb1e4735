"""A prompt in words, for the providers that ask a model: what stays (instructions.py), and what this call is about, fenced."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from cmserver.providers.model import Prompt, PromptEvent, Recorded
from cmserver.providers.wording.cut import shares
from cmserver.providers.wording.fence import fitted, guarded, shown, shown_line
from cmserver.providers.wording.instructions import Form, instructions
from cmserver.providers.wording.tools import EVENT_CHARS, described

CHARS_PER_TOKEN = 4
_STABLE_TOKENS = 750
USER_CHARS = 24_000
"""What the moving part may hold besides the events' tokens: the session, its requests, record and summary, last words, fences."""
_PROJECT = 200
_ROOT = 400
_FIRST_REQUEST = 600
_BETWEEN_REQUEST = 400
_LAST_REQUEST = 1_600
_NEWEST_REQUESTS = 3
_LINE = 200
_RECORDED = 4_000
_FACTS_LINE = 400
_RECORDED_FOR_SUMMARY = 8_000
_LAST_MESSAGE = 4_000
_EARLIER_SUMMARY = 3_000
_TAG = 12
_AGENT = 40
_UNUSUAL = re.compile(r"[^A-Za-z0-9 _.:-]")
"""What is not shown of a sub-agent's name, which stands in quotation marks."""


class Wording(msgspec.Struct, frozen=True, kw_only=True):
    """What a model is sent. `system` is the same for all calls with the same wishes, so it may be cached; `user` is this call's."""

    system: str
    user: str


def render(prompt: Prompt, form: Form) -> Wording:
    """The request in words. `json` is for models that are held to a schema (schema.py), `xml` for all others.

    The moving part has at most `event_tokens` * 4 + USER_CHARS characters, whatever the prompt holds and however long the session.
    """
    user = "\n".join([*_session(prompt), *(_summarised(prompt) if prompt.kind == "summary" else _observed(prompt))])
    return Wording(system=instructions(prompt.kind, form, prompt.wishes), user=user)


def estimate_tokens(prompt: Prompt) -> int:
    """About how much a model is sent, rather more: what is not cut yet counts up to its bounds. Much quicker than to word it."""
    events = sum(min(len(msgspec.json.encode(event)), EVENT_CHARS) for event in prompt.events)
    others = len(msgspec.json.encode(msgspec.structs.replace(prompt, events=[])))
    return _STABLE_TOKENS + min(events // CHARS_PER_TOKEN, prompt.event_tokens) + min(others, USER_CHARS) // CHARS_PER_TOKEN


def _session(prompt: Prompt) -> Iterator[str]:
    yield f"<session>\n<project>{shown_line(prompt.project, _PROJECT)}</project>"
    if prompt.root:
        yield f"<root>{shown_line(prompt.root, _ROOT)}</root>"
    yield "</session>"
    yield from _requests(prompt.requests)
    lines = list(_recorded(prompt.recorded, with_facts=prompt.kind == "summary"))
    if lines:
        yield "\n".join(["<recorded>", *reversed(lines), "</recorded>"])


def _requests(requests: Sequence[str]) -> Iterator[str]:
    """The first, which says what it is all about, and the newest."""
    if not requests:
        return
    yield "<requests>"
    left_out = max(0, len(requests) - 1 - _NEWEST_REQUESTS)
    for place, text in enumerate(requests):
        if place == 1 and left_out:
            yield f"[… {left_out} left out …]"
        if place == len(requests) - 1:
            yield f"<request>\n{shown(text, _LAST_REQUEST)}\n</request>"
        elif place == 0 or place > left_out:
            yield f"<request>\n{shown(text, _BETWEEN_REQUEST if place else _FIRST_REQUEST)}\n</request>"
    yield "</requests>"


def _recorded(recorded: Sequence[Recorded], *, with_facts: bool) -> Iterator[str]:
    """A line each, the newest first, as many as there is room for."""
    left = _RECORDED_FOR_SUMMARY if with_facts else _RECORDED
    for one in reversed(recorded):
        line = shown_line(f"#{one.number} {one.type}: {one.title}", _LINE)
        if with_facts and one.facts:
            line = f"{line} ({shown_line('; '.join(one.facts), _FACTS_LINE)})"
        left -= len(line) + 1
        if left < 0:
            return
        yield line


def _observed(prompt: Prompt) -> Iterator[str]:
    bodies = [fitted(guarded(described(event, prompt.root)), EVENT_CHARS) for event in prompt.events]
    frames = sum(len(_event(event, "")) + 1 for event in prompt.events)
    room = shares([len(body) for body in bodies], prompt.event_tokens * CHARS_PER_TOKEN - frames)
    yield from (_event(event, fitted(body, most)) for event, body, most in zip(prompt.events, bodies, room, strict=True))
    tags = [shown_line(event.tag, _TAG) for event in prompt.events]
    yield f"Answer for {tags[0]} to {tags[-1]}, each of them." if len(tags) > 1 else f"Answer for {''.join(tags)}."


def _event(event: PromptEvent, body: str) -> str:
    agent = _UNUSUAL.sub("", event.agent or "")[:_AGENT]
    of_agent = f' agent="{agent}"' if agent else ""
    return f'<event id="{shown_line(event.tag, _TAG)}"{of_agent}>\n{body}\n</event>'


def _summarised(prompt: Prompt) -> Iterator[str]:
    if prompt.earlier_summary:
        yield f"<earlier_summary>\n{shown(prompt.earlier_summary, _EARLIER_SUMMARY)}\n</earlier_summary>"
    if prompt.last_message:
        yield f"<last_message>\n{shown(prompt.last_message, _LAST_MESSAGE)}\n</last_message>"
    yield f"The session had {prompt.events_in_session} events so far. Sum it up."
