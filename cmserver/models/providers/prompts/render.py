"""Renders a prompt for a model: the stable instructions (instructions.py), and this call's data, fenced."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import msgspec

from cmserver.models.providers.model import PriorObservation, Prompt
from cmserver.models.providers.prompts.fence import escape_tags, fence_line, fence_text, shorten_escaped
from cmserver.models.providers.prompts.instructions import Form, instructions
from cmserver.models.providers.prompts.text import share_room
from cmserver.models.providers.prompts.tool_uses import EVENT_CHARS, describe_event
from cmserver.reading.model import EventReading

CHARS_PER_TOKEN = 4
_STABLE_TOKENS = 750
USER_CHARS = 24_000
"""Limit of the variable part without the events: session, requests, record, summary, last message, fences."""
OVERVIEW_CHARS = 30_000
"""Limit of the texts of an overview; the caller keeps it."""
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
_ANSWERED_MESSAGE = 1_200
_SAID = 12_000
_EARLIER_SUMMARY = 3_000
_FRAME = 100
"""More than the tags around an event take."""
_MAX_AGENT_CHARS = 40
_UNSAFE_IN_AGENT = re.compile(r"[^A-Za-z0-9 _.:-]")
"""Characters that are dropped from a sub-agent's name, because it stands in quotation marks."""


class RenderedPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """The text of a request. `system` is the same for all calls with the same preferences, so it can be cached."""

    system: str
    user: str


def render(prompt: Prompt, form: Form) -> RenderedPrompt:
    """Render for a model with a schema (`json`) or without; `user` has at most `event_tokens` * 4 + USER_CHARS characters."""
    match prompt.kind:
        case "observations":
            parts = [*_session(prompt), *_observed(prompt)]
        case "summary":
            parts = [*_session(prompt), *_summarised(prompt)]
        case "merge":
            parts = [*_merged(prompt)]
        case "guard" | "derive":
            parts = [*_numbered(prompt)]
        case "overview":
            parts = [*_collected(prompt)]
        case "entities":
            parts = [*_said(prompt)]
    user = "\n".join(parts)
    return RenderedPrompt(system=instructions(prompt.kind, form, prompt.preferences), user=user)


def estimate_tokens(prompt: Prompt) -> int:
    """An upper estimate of the prompt's tokens, much faster than rendering it."""
    events = sum(min(_event_chars(event), EVENT_CHARS) for event in prompt.events)
    others = len(msgspec.json.encode(msgspec.structs.replace(prompt, events=[])))
    most = OVERVIEW_CHARS if prompt.kind == "overview" else USER_CHARS
    return _STABLE_TOKENS + min(events // CHARS_PER_TOKEN, prompt.event_tokens) + min(others, most) // CHARS_PER_TOKEN


def _event_chars(event: EventReading) -> int:
    use = event.tool_use
    shown = (use.tool, use.input, use.output, use.error) if use else event.payload
    return _FRAME + len(msgspec.json.encode(shown))


def _session(prompt: Prompt) -> Iterator[str]:
    yield f"<session>\n<project>{fence_line(prompt.project, _PROJECT)}</project>"
    if prompt.root:
        yield f"<root>{fence_line(prompt.root, _ROOT)}</root>"
    yield "</session>"
    yield from _requests(prompt.requests)
    lines = list(_recorded(prompt.recorded, with_facts=prompt.kind == "summary"))
    if lines:
        yield "\n".join(["<recorded>", *reversed(lines), "</recorded>"])
    lines = list(_recorded(prompt.open_ends, with_facts=False)) if prompt.kind == "observations" else []
    if lines:
        yield "\n".join(["<open>", *reversed(lines), "</open>"])


def _requests(requests: Sequence[str]) -> Iterator[str]:
    """The first request and the newest ones."""
    if not requests:
        return
    yield "<requests>"
    left_out = max(0, len(requests) - 1 - _NEWEST_REQUESTS)
    for place, text in enumerate(requests):
        if place == 1 and left_out:
            yield f"[… {left_out} left out …]"
        if place == len(requests) - 1:
            yield f"<request>\n{fence_text(text, _LAST_REQUEST)}\n</request>"
        elif place == 0 or place > left_out:
            yield f"<request>\n{fence_text(text, _BETWEEN_REQUEST if place else _FIRST_REQUEST)}\n</request>"
    yield "</requests>"


def _recorded(recorded: Sequence[PriorObservation], *, with_facts: bool) -> Iterator[str]:
    """A line per observation, the newest first, within the limit."""
    left = _RECORDED_FOR_SUMMARY if with_facts else _RECORDED
    for observation in reversed(recorded):
        line = fence_line(f"#{observation.number} {observation.type}: {observation.title}", _LINE)
        if with_facts and observation.facts:
            line = f"{line} ({fence_line('; '.join(observation.facts), _FACTS_LINE)})"
        left -= len(line) + 1
        if left < 0:
            return
        yield line


def _observed(prompt: Prompt) -> Iterator[str]:
    bodies = [shorten_escaped(escape_tags(describe_event(event)), EVENT_CHARS) for event in prompt.events]
    times, tags = _event_times(prompt.events), prompt.tags
    frames = sum(len(_event(tag, event, time, "")) + 1 for tag, event, time in zip(tags, prompt.events, times, strict=True))
    room = share_room([len(body) for body in bodies], prompt.event_tokens * CHARS_PER_TOKEN - frames)
    if prompt.last_message:  # its end: a question, options
        answered = prompt.last_message[-_ANSWERED_MESSAGE:]
        yield f"<last_message>\n{fence_text(answered, _ANSWERED_MESSAGE)}\n</last_message>"
    for tag, event, time, body, max_chars in zip(tags, prompt.events, times, bodies, room, strict=True):
        yield _event(tag, event, time, shorten_escaped(body, max_chars))
    yield f"Answer for {tags[0]} to {tags[-1]}, each of them." if len(tags) > 1 else f"Answer for {''.join(tags)}."


def _event_times(events: Sequence[EventReading]) -> list[str]:
    """UTC to the minute, with the date only where it changes; empty for an event whose time is unknown (0)."""
    times: list[str] = []
    date = ""
    for event in events:
        if not event.occurred_at_epoch:
            times.append("")
            continue
        at = datetime.fromtimestamp(event.occurred_at_epoch / 1000, UTC)
        times.append(f"{at:%H:%M}" if f"{at:%Y-%m-%d}" == date else f"{at:%Y-%m-%d %H:%M}")
        date = f"{at:%Y-%m-%d}"
    return times


def _event(tag: str, event: EventReading, time: str, body: str) -> str:
    """The element `<event id at agent>` of an event, without empty attributes. `body` is fenced already."""
    agent = _UNSAFE_IN_AGENT.sub("", event.agent_type or "")[:_MAX_AGENT_CHARS]
    attributes = {"id": tag, "at": time, "agent": agent}
    written = "".join(f' {name}="{value}"' for name, value in attributes.items() if value)
    return f"<event{written}>\n{body}\n</event>"


def _summarised(prompt: Prompt) -> Iterator[str]:
    if prompt.earlier_summary:
        yield f"<earlier_summary>\n{fence_text(prompt.earlier_summary, _EARLIER_SUMMARY)}\n</earlier_summary>"
    if prompt.last_message:
        yield f"<last_message>\n{fence_text(prompt.last_message, _LAST_MESSAGE)}\n</last_message>"
    yield f"The session had {prompt.events_in_session} events so far. Sum it up."


def _merged(prompt: Prompt) -> Iterator[str]:
    """The notes, and below them the sentences that must not change; nothing is shortened, the caller limits their length."""
    for text in prompt.stored:
        yield f"<stored>\n{fence_text(text, USER_CHARS)}\n</stored>"
    for text in prompt.keep:
        yield f"<keep>{fence_text(text, USER_CHARS)}</keep>"
    yield f"Make one note of these {len(prompt.stored)}."


def _collected(prompt: Prompt) -> Iterator[str]:
    """The texts, which the caller limits."""
    yield f"<project>{fence_line(prompt.project, _PROJECT)}</project>"
    for text in prompt.stored:
        yield f"<stored>\n{fence_text(text, USER_CHARS)}\n</stored>"
    yield "Write the page."


def _said(prompt: Prompt) -> Iterator[str]:
    """Both sides of a turn, each with half of the room, below what is known by name."""
    if prompt.keep:
        yield f"<known>{fence_line(', '.join(prompt.keep), _RECORDED)}</known>"
    for text in prompt.stored:
        yield f"<said>\n{fence_text(text, _SAID // max(1, len(prompt.stored)))}\n</said>"
    yield "Which entities does it name?"


def _numbered(prompt: Prompt) -> Iterator[str]:
    """The notes by their places, each with an equal share of the room."""
    room = USER_CHARS // max(1, len(prompt.stored))
    for place, text in enumerate(prompt.stored, 1):
        yield f'<stored n="{place}">\n{fence_text(text, room)}\n</stored>'
    yield "Do the two say the same?" if prompt.kind == "guard" else f"What do these {len(prompt.stored)} say in common?"
