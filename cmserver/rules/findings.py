"""Words what an event says by itself: a page that was read, a report, a reply of the user's, a deed elsewhere, a note.

Nothing here raises; what is not known is ignored, with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from cmserver.base.text import shorten
from cmserver.base.tolerant_json import array, field, record, texts
from cmserver.models.providers.model import DraftObservation
from cmserver.reading.laid_down import read_rules
from cmserver.reading.model import PROMPT_TYPES, EventReading, IgnoredEvent
from cmserver.reading.open_ends import read_open_ends
from cmserver.reading.text import ACCEPTED_PLAN, MAX_LAID_DOWN, MAX_TITLE, bounded, capitalize, first_sentence
from cmserver.rules.model import LaidDown, TodoList, TurnEnd
from cmserver.tooluse.model import ToolKind, ToolUse
from cmserver.tooluse.text import prose

Finding = DraftObservation | TurnEnd | TodoList | LaidDown | IgnoredEvent

_FEW_WORDS, _FEW_CHARS = 3, 24
_MAX_REPLY = 750
_MAX_NARRATIVE = 1_500
_MCP_LOOKS = re.compile(
    r"(?:^|_)(?:search|find|list|get|read|fetch|query|lookup|look|show|describe|resolve|browse|check|status|context|"
    r"timeline|observations?|snapshot|screenshot|navigate|logs?|help|view)(?:_|$)"
)
_MCP_DEEDS = re.compile(
    r"(?:^|_)(?:create|update|delete|merge|add|post|send|set|save|move|close|assign|publish|upload|deploy|run|apply)(?:_|$)"
)
_ANSWERED = re.compile(r'"([^"\n]{1,500})"="([^"\n]{1,500})"')
_EMPTY_REPORT = re.compile(r"(?:\w+[ -]){0,3}(?:done|finished|completed?|ok|okay|success(?:ful(?:ly)?)?)\W*", re.IGNORECASE)
_TAG = re.compile(r"<([\w-]+)>[^<]*</\1>\s*")
_FINISHED = {"completed", "done", "cancelled", "canceled"}
_KEPT_WITH_SESSION = {*PROMPT_TYPES, "SessionStart", "SessionEnd"}


def read_finding(tag: str, event: EventReading) -> Finding:
    """What an event says that neither changed files nor ran a command."""
    use = event.tool_use
    if use is None:
        return _read_note(tag, event)
    reader = _READERS.get(use.kind)
    return reader(tag, use) if reader else IgnoredEvent(f"no rule for this tool: {shorten(use.tool, 60)}")


def _read_report(tag: str, use: ToolUse) -> Finding:
    """What a sub-agent reports of its task."""
    report = _TAG.sub("", bounded(prose(use.output))).strip()
    if not report or _EMPTY_REPORT.fullmatch(report):
        return IgnoredEvent(f"nothing reported: {use.tool}")
    agent = field(use.fields, "subagent_type", "agent_type") or "sub-agent"
    task = shorten(field(use.fields, "description", "task", "prompt", "message"), 45)
    return DraftObservation(
        type="discovery",
        title=shorten(f"{task}: {first_sentence(report, MAX_TITLE)}" if task else report, MAX_TITLE),
        narrative=shorten(report, _MAX_NARRATIVE),
        facts=[f"Told by a sub-agent ({agent})"],
        concepts=["how-it-works"],
        events=[tag],
    )


def _read_reply(tag: str, use: ToolUse) -> Finding:
    """What the user answered to questions or to a plan: a decision that quotes both sides."""
    plan, reply = field(use.fields, "plan"), prose(use.output).strip()
    if plan:
        reply = "" if reply == plan.strip() else shorten(reply, _MAX_REPLY)
        steps = [line for line in plan.splitlines() if line.strip() and not line.startswith("#")]
        title = f"{ACCEPTED_PLAN}{reply or '; '.join(steps) or plan}"
        quotes = [f'The user, to the plan: "{reply}"' if reply else "", shorten(plan, _MAX_NARRATIVE // 2)]
    else:
        pairs = list(record(use.answer.get("answers")).items()) or _ANSWERED.findall(reply)
        if not pairs:
            return IgnoredEvent(f"nothing answered: {use.tool}")
        answers = [(shorten(question, 200), shorten(prose(answer) or ", ".join(texts(answer)), 300)) for question, answer in pairs]
        title = "; ".join(_title_answer(answer, question) for question, answer in answers)
        quotes = [f'Asked: "{question}" The user: "{answer}"' for question, answer in answers]
    return DraftObservation(
        type="decision",
        title=shorten(title, MAX_LAID_DOWN),
        narrative=" ".join(filter(None, quotes)),
        concepts=["pattern"],
        events=[tag],
    )


def _title_answer(words: str, about: str) -> str:
    """The answer first, then what it answers."""
    about = shorten(about, max(MAX_LAID_DOWN // 3, MAX_LAID_DOWN - len(words) - 3))
    return capitalize(f"{shorten(words, MAX_LAID_DOWN - len(about) - 3)} ({about})")


def _read_todos(_tag: str, use: ToolUse) -> Finding:
    """The agent's list; one that has no items with a state changes nothing."""
    items = [record(item) for name in ("todos", "plan", "items") for item in array(use.fields.get(name))]
    if not items:
        return IgnoredEvent(f"the agent's own plan: {use.tool}")
    names: dict[bool, list[str]] = {True: [], False: []}
    for item in items:
        if name := field(item, "content", "step", "description", "title", "text").strip():
            names[field(item, "status", "state").casefold() in _FINISHED].append(name)
    return TodoList(unfinished=names[False], finished=names[True])


def _read_mcp(tag: str, use: ToolUse) -> Finding:
    """What an MCP tool changed; tools that only look something up are ignored."""
    name = shorten(use.tool, 60)
    server, _, tool = use.tool.removeprefix("mcp__").partition("__")
    tool = re.sub(r"(?<=[a-z])(?=[A-Z])|-", "_", tool).lower()
    if _MCP_LOOKS.search(tool) and not _MCP_DEEDS.match(tool):
        return IgnoredEvent(f"trivial look-up: {name}")
    subject = field(use.fields, "title", "name", "subject", "summary", "text", "message", "body", "id", "path")
    if not _MCP_DEEDS.search(tool) or not subject:
        return IgnoredEvent(f"no rule for this tool: {name}")
    answer = first_sentence(bounded(prose(use.output)), 160)
    return DraftObservation(
        type="change",
        title=shorten(f"{server} {tool.replace('_', ' ')}: {first_sentence(subject, 80)}", MAX_TITLE),
        facts=[f"Answer: {answer}"] if answer else [],
        concepts=["what-changed"],
        events=[tag],
    )


def _read_note(tag: str, event: EventReading) -> Finding:
    """An event that is no tool use: kept when it carries words of some substance."""
    event_type, payload, fields = event.event_type, event.payload, record(event.payload)
    if rules := read_rules(event.prompt):
        return LaidDown(rules)
    if event_type in _KEPT_WITH_SESSION:
        return IgnoredEvent(f"kept with the session: {event_type}")
    if message := field(fields, "last_assistant_message"):
        return TurnEnd(message, read_open_ends(message))
    text = payload if isinstance(payload, str) and not fields else ""
    text = (text or field(fields, "text", "content", "note", "message", "summary")).strip()
    if "assistant" in event_type.lower() or (len(text.split()) < _FEW_WORDS and len(text) < _FEW_CHARS):
        return IgnoredEvent(f"nothing to keep: {shorten(event_type, 60)}")
    return DraftObservation(
        type="discovery",
        title=first_sentence(text, MAX_TITLE).rstrip("."),
        narrative=shorten(" ".join(text.split()), _MAX_NARRATIVE),
        concepts=["how-it-works"],
        events=[tag],
    )


_READERS: dict[ToolKind, Callable[[str, ToolUse], Finding]] = {
    ToolKind.AGENT: _read_report,
    ToolKind.QUESTION: _read_reply,
    ToolKind.PLAN: _read_todos,
    ToolKind.MCP: _read_mcp,
}
