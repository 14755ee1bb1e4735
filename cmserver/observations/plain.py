"""Renders observations for agents, in one line or whole. Their texts cannot look like our lines, or end the block around them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC

from cmserver.base.lookalikes import JOINERS, remove_invisible, replace_tags
from cmserver.observations.model import Observation
from cmserver.observations.wire import describe_stale, state_shown, type_shown
from cmserver.sessions.turns.model import SessionTurn

FIRST_LINE, LAST_LINE = "<cmserver-context>", "</cmserver-context>"
"""Around every text for an agent. What comes in between these is never stored again."""

SUMMARY_LABELS = {
    "request": "Request",
    "investigated": "Investigated",
    "learned": "Learned",
    "completed": "Completed",
    "next_steps": "Next steps",
    "notes": "Notes",
}
"""The parts of a summary, in this order, and their labels."""

_TITLE_CHARS = 160
_STALE_CHARS = 400
_FILES = 20
_OTHERS = re.compile(r"[\W_]+")
# Coding agents put what a hook says, and what they say themselves, into elements of their own.
_TAGS = (
    "cmservercontext", "claudememcontext", "systemreminder", "systeminstruction", "persistedoutput", "tasknotification",
    "userpromptsubmithook", "hookcontext", "environmentcontext", "userinstructions", "localcommandstd", "functionresult",
)  # fmt: skip
_SYSTEM = re.compile(r"[\W_]*+system(?![\w.:,(*&-])")
"""The tag alone: `List<System.String>` and `<system_error>` are code."""
_PREFIXES = re.compile(r"(?:[\w.-]*+\s*+:\s*+)++")

_LIKE_OURS = re.compile(r"(?:→ ?)?(?:#|prompt )? ?\d", re.IGNORECASE)


def one_line(text: str, max_chars: int) -> str:
    """At most `max_chars` characters, without line breaks, invisible characters and the tags around what agents are told.

    A title must not look like a line.
    """
    line = defuse_tags(_in_one_line(text[: max_chars * 4]))
    return line if len(line) <= max_chars else line[: max_chars - 1].rstrip() + "…"


def _in_one_line(text: str) -> str:
    text = remove_invisible(text)
    if not text.isprintable():
        text = "".join(letter if letter.isprintable() or letter in JOINERS else " " for letter in text)
    return " ".join(text.split())


def defuse_tags(text: str) -> str:
    """The text, in which a tag around what agents are told begins with `[`. It must have nothing invisible."""
    return replace_tags(text, _is_ours, lambda _opener: "[")


def _is_ours(name: str) -> bool:
    """Whether a tag that goes on so is one of ours, also with prefixes (`x:system-reminder`)."""
    prefixes = _PREFIXES.match(name)
    names = (name, name[prefixes.end() :]) if prefixes else (name,)
    return any(_OTHERS.sub("", part_name).startswith(_TAGS) or _SYSTEM.match(part_name) for part_name in names)


def fence(parts: Iterable[str]) -> str:
    """The parts, each of which ends with a line break, between our marks."""
    return "".join([FIRST_LINE, "\n", *parts, LAST_LINE, "\n"])


def insert_lines(text: str, lines: Sequence[str]) -> str:
    """The fenced text with these lines at its end; without a text they have a fence of their own."""
    if not lines:
        return text
    return "".join([text.removesuffix(f"{LAST_LINE}\n"), *lines, f"{LAST_LINE}\n"]) if text else fence(lines)


def index_line(observation: Observation) -> str:
    """An observation in one line: number, day, type, title, and about how many tokens the whole takes."""
    title = one_line(observation.title or observation.narrative or observation.content, _TITLE_CHARS)
    shared = " (of the whole team)" if observation.scope == "team" else ""
    day = f"{observation.created_at.astimezone(UTC):%Y-%m-%d}"
    state = state_shown(observation.state, observation.closed_by)
    stale = " (stale)" if observation.stale else ""
    shown = type_shown(observation.kind, observation.type)
    return f"#{observation.number} {day} {shown} {title}{state}{stale}{shared} ~{observation.cost}"


def render_observation(observation: Observation) -> str:
    """The whole observation, in a block."""
    return fence(f"{line}\n" for line in observation_lines(observation))


def render_observations(observations: Iterable[Observation]) -> str:
    """Several observations in one block, with an empty line between them."""
    texts = ["".join(f"{line}\n" for line in observation_lines(observation)) for observation in observations]
    return fence(["\n".join(texts)])


def observation_lines(observation: Observation) -> Iterator[str]:
    """The whole observation in lines, of which the first is its index line."""
    yield index_line(observation)
    if observation.stale:
        yield f"Stale: {one_line(describe_stale(observation.stale), _STALE_CHARS)}"
    parts = [(label, (observation.summary or {}).get(name)) for name, label in SUMMARY_LABELS.items()]
    fields = [f"{label}: {block(text)}" for label, text in parts if text]
    if observation.subtitle:
        yield _apart(one_line(observation.subtitle, len(observation.subtitle)))
    if fields:
        yield from fields
    elif observation.narrative or not (observation.subtitle or observation.facts):
        yield _apart(block(observation.narrative or observation.content))
    yield from (f"- {one_line(fact, len(fact))}" for fact in observation.facts or ())
    for label, files in (("Modified", observation.files_modified), ("Read", observation.files_read)):
        if files:
            more = f" and {len(files) - _FILES} more" if len(files) > _FILES else ""
            yield f"{label}: {', '.join(one_line(file, 200) for file in files[:_FILES])}{more}"


def render_turns(turns: Iterable[SessionTurn]) -> str:
    """Several turns in one block, with an empty line between them."""
    return fence(["\n".join("".join(f"{line}\n" for line in turn_lines(turn)) for turn in turns)])


def turn_line(turn: SessionTurn) -> str:
    """A turn as one line: its number, its day, what was said, and the tokens that reading it takes."""
    return f"#{turn.number} {turn.created_at.astimezone(UTC):%Y-%m-%d} turn {one_line(turn.line, _TITLE_CHARS)} ~{turn.cost}"


def turn_lines(turn: SessionTurn) -> Iterator[str]:
    """A turn whole, its first line as in a list."""
    yield f"#{turn.number} {turn.created_at.astimezone(UTC):%Y-%m-%d %H:%M} turn"
    yield f"  User: {block(turn.prompt)}"
    if turn.reply:
        yield f"  Agent: {block(turn.reply)}"
    for label, items in (("Files", turn.files), ("Checks", turn.checks), ("Commits", turn.commits)):
        if items:
            yield f"  {label}: {one_line(', '.join(items), _FILES * 200)}"


def _apart(text: str) -> str:
    """Indented where it begins as a line of ours does: `#7`, `→ #7`, `prompt 7`, or a day."""
    return f"  {text}" if _LIKE_OURS.match(unicodedata.normalize("NFKC", text[:20])) else text


def block(text: str) -> str:
    """A text that may have lines: those after the first are indented, as none of ours is."""
    return defuse_tags("\n  ".join(_in_one_line(line) for line in text.splitlines() if line.strip()))
