"""Renders observations for agents, in one line or whole. Their texts cannot look like our lines, or end the block around them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC

from cmserver.base.lookalikes import JOINERS, is_token, read_letters, remove_invisible, replace_tags
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
_ACTOR_CHARS = 40
_FILES = 20
_OTHERS = re.compile(r"[\W_]+")
# Coding agents put what a hook says, and what they say themselves, into elements of their own.
_TAGS = (
    "cmservercontext", "claudememcontext", "systemreminder", "systeminstruction", "persistedoutput", "tasknotification",
    "userpromptsubmithook", "hookcontext", "environmentcontext", "userinstructions", "localcommandstd", "functionresult",
)  # fmt: skip
_ALONE = re.compile(
    r"[\W_]*+(?:system|sys\s*+>>|invoke|tool[\W_]{1,3}+(?:use|calls?|results?|response)|function[\W_]{1,3}+calls?)(?![\w.:,(*&-])"
)
"""The tag alone: `List<System.String>`, `<system_error>` and `List<ToolCall>` are code."""
_FOREIGN = re.compile(
    r"(?:[a-z][a-z\d]*+(?>(?:-[a-z\d]+)+)"
    r"|(?:env|important|instructions?|user|assistant|human|developer|channel|claudemd|reminder"
    r"|user_?prompt|user_?message|tool_use_error|(?:start|end)_of_turn|begin_of_text|end_of_text))"
    r"(?:\s*+/?\s*+>|\s++[\w:-]++\s*+=)"
)
"""A whole tag that stands apart: agents' own are of words with hyphens (`<command-name>`), as no name of a type or a header is, or
one of these. `List<User>`, `<vector>` and `<system_error>` are code."""
_PREFIXES = re.compile(r"(?>(?:[\w.-]*+\s*+:\s*+)+)")

_LIKE_OURS = re.compile(r"(?:→ ?)?(?:#|prompt )? ?\d", re.IGNORECASE)
_ROLE = re.compile(r"\W*+(?:human|user|assistant|agent|system|developer|tool)\s*+:")
"""Who speaks, as models were taught it, and as we write it before the two sides of a turn."""
_ROLE_CHARS = 30


def labelled_summary(parts: Mapping[str, str | None] | None) -> list[tuple[str, str]]:
    """The parts that a summary has, with their labels."""
    return [(label, text) for name, label in SUMMARY_LABELS.items() if (text := (parts or {}).get(name))]


def one_line(text: str, max_chars: int) -> str:
    """At most `max_chars` in one line, without invisible characters and our tags: a title must not look like a line."""
    line = defuse_tags(_in_one_line(text[: max_chars * 4]))
    if len(line) <= max_chars:
        return line
    cut = line[: max_chars - 1]
    if cut.count("`") % 2:  # code whose end was cut off gets one
        cut = cut[:-1]
        return cut.rstrip() + ("…`" if cut.count("`") % 2 else "…")
    return cut.rstrip() + "…"


def _in_one_line(text: str) -> str:
    text = remove_invisible(text)
    if not text.isprintable():
        text = "".join(letter if letter.isprintable() or letter in JOINERS else " " for letter in text)
    return " ".join(text.split())


def defuse_tags(text: str) -> str:
    """The text with `[` for the tags around what agents are told, and `(INST]`. It must have nothing invisible."""
    return replace_tags(text, _is_ours, lambda opener: "(" if opener in "[\uff3b" else "[")


def _is_ours(name: str, is_apart: bool) -> bool:
    """Whether a tag that goes on so is one of ours, also with prefixes (`x:system-reminder`), or of another program's."""
    if is_token(name) or (is_apart and _FOREIGN.match(name)):
        return True
    prefixes = _PREFIXES.match(name)
    names = (name, name[prefixes.end() :]) if prefixes else (name,)
    return any(_OTHERS.sub("", part_name).startswith(_TAGS) or _ALONE.match(part_name) for part_name in names)


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
    shown = source_shown(observation)
    return f"#{observation.number} {day} {shown} {title}{state}{stale}{shared} ~{observation.cost}"


def source_shown(observation: Observation) -> str:
    """The type that a line shows; of a commit also which one it is, and whose."""
    shown = type_shown(observation.kind, observation.type, observation.origin, observation.caller_type)
    return history_shown(observation.metadata.get("git"), observation.metadata.get("author")) if shown == "commit" else shown


def history_shown(commit: object, author: object) -> str:
    """What a line calls a commit: `commit 4c1e2f3 by Ann`."""
    by = f" by {one_line(author, _ACTOR_CHARS)}:" if isinstance(author, str) and author else ""
    return f"commit {str(commit)[:7]}{by}"


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
    fields = [f"{label}: {block(text)}" for label, text in labelled_summary(observation.summary)]
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
    origin = [f"By {one_line(observation.actor_id, _ACTOR_CHARS)}"] if observation.actor_id else []
    if observation.turn_number is not None:
        origin.append(f"Turn #{observation.turn_number}")
    if origin:
        yield ", ".join(origin)


def render_turns(turns: Iterable[SessionTurn]) -> str:
    """Several turns in one block, with an empty line between them."""
    return fence(["\n".join("".join(f"{line}\n" for line in turn_lines(turn)) for turn in turns)])


def turn_line(turn: SessionTurn) -> str:
    """A turn as one line: its number, its day, what was said, and the tokens that reading it takes."""
    title = f"{turn_kind(turn.agent_id)} {one_line(turn.line, _TITLE_CHARS)}"
    return f"#{turn.number} {turn.created_at.astimezone(UTC):%Y-%m-%d} {title} ~{turn.cost}"


def turn_kind(agent_id: str | None) -> str:
    """What a turn is called in lists: nobody shall take for the user's words what an agent asked its sub-agent."""
    return f"turn of sub-agent {one_line(agent_id, _ACTOR_CHARS)}" if agent_id else "turn"


def turn_sides(prompt: str, reply: str | None, agent_id: str | None) -> Iterator[str]:
    """What was said, each side below its speaker."""
    asked, answered = ("Task", "Sub-agent") if agent_id else ("User", "Agent")
    yield from (f"  {speaker}: {block(side)}" for speaker, side in ((asked, prompt), (answered, reply)) if side)


def turn_lines(turn: SessionTurn) -> Iterator[str]:
    """A turn whole, its first line as in a list."""
    actor = f" by {one_line(turn.actor_id, _ACTOR_CHARS)}" if turn.actor_id else ""
    yield f"#{turn.number} {turn.created_at.astimezone(UTC):%Y-%m-%d %H:%M} {turn_kind(turn.agent_id)}{actor}"
    yield from turn_sides(turn.prompt, turn.reply, turn.agent_id)
    for label, items in (("Files", turn.files), ("Checks", turn.checks), ("Commits", turn.commits)):
        if items:
            yield f"  {label}: {one_line(', '.join(items), _FILES * 200)}"


def _apart(text: str) -> str:
    """Indented where it begins as a line of ours does: `#7`, `→ #7`, `prompt 7`, or a day."""
    text = quote_role(text)
    return f"  {text}" if _LIKE_OURS.match(unicodedata.normalize("NFKC", text[:20])) else text


def quote_role(line: str) -> str:
    """The line, as a quotation if it begins with who speaks: `Human: ...`."""
    return f"> {line}" if _ROLE.match(read_letters(line[:_ROLE_CHARS])) else line


def block(text: str) -> str:
    """A text that may have lines: those after the first are indented, as none of ours is."""
    return defuse_tags("\n  ".join(quote_role(_in_one_line(line)) for line in text.splitlines() if line.strip()))
