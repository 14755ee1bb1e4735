"""One event of a batch as an act: something looked up, edited, run, or said. Tools are recognised by name, from one table."""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from cmserver.providers.model import DraftObservation, PromptEvent
from cmserver.providers.rules import edits
from cmserver.providers.rules.commands import MAX_COMMAND, Command, Part, Sort, read
from cmserver.providers.rules.edits import FileChange
from cmserver.providers.rules.outcomes import Outcome, judge
from cmserver.providers.rules.phrases.manner import counted, words
from cmserver.providers.rules.text import (
    MAX_TITLE,
    array,
    bounded,
    field,
    first_sentence,
    number,
    prose,
    record,
    relative,
    shorten,
)


class Passed(msgspec.Struct, frozen=True):
    """Nothing to keep, and why; `reads` are files looked at on the way."""

    reason: str
    reads: list[str] = []


class Edited(msgspec.Struct, frozen=True):
    """Files changed."""

    changes: list[FileChange]


class Ran(msgspec.Struct, frozen=True):
    """A command, and how it ended."""

    command: Command
    outcome: Outcome


class Said(msgspec.Struct, frozen=True):
    """Something that is an observation by itself."""

    draft: DraftObservation


Act = Passed | Edited | Ran | Said

_MAX_NARRATIVE = 1_500
_FEW_WORDS = 8
_MAX_FILE_COMMANDS = 50

_ALIASES = {  # what other agents call the same tools
    "shell": "Bash", "local_shell": "Bash", "run_shell_command": "Bash", "exec_command": "Bash", "execute": "Bash",
    "apply_patch": "Edit", "replace": "Edit", "edit_file": "Edit", "str_replace": "Edit", "MultiEdit": "Edit",
    "NotebookEdit": "Edit", "write_file": "Write", "create_file": "Write",
    "read_file": "Read", "read_many_files": "Read", "view": "Read", "NotebookRead": "Read",
    "list_directory": "LS", "search_file_content": "Grep", "grep_search": "Grep", "glob": "Glob",
    "BashOutput": "LS", "KillShell": "LS", "KillBash": "LS", "TaskOutput": "LS", "ToolSearch": "LS", "LSP": "LS",
    "web_fetch": "WebFetch", "google_web_search": "WebSearch", "web_search": "WebSearch",
    "Task": "Agent", "spawn_agent": "Agent", "update_plan": "TodoWrite", "write_todos": "TodoWrite",
    "TaskCreate": "TodoWrite", "TaskUpdate": "TodoWrite", "TaskList": "TodoWrite", "TaskGet": "TodoWrite",
    "TodoRead": "TodoWrite",
}  # fmt: skip
_MCP_LOOKS = re.compile(
    r"(?:^|_)(?:search|find|list|get|read|fetch|query|lookup|look|show|describe|resolve|browse|check|status|context|"
    r"timeline|observations?|snapshot|screenshot|navigate|logs?|help|view)(?:_|$)"
)
_MCP_DEEDS = re.compile(
    r"(?:^|_)(?:create|update|delete|merge|add|post|send|set|save|move|close|assign|publish|upload|deploy|run|apply)(?:_|$)"
)
_OWN_MCP = ("mcp__cmserver", "mcp__claude-mem", "mcp__plugin_claude-mem")
_DECIDED = re.compile(r"\b(?:decid(?:ed|es)|decision|chose|chosen|agreed|settled on|opted for|will use)\b", re.IGNORECASE)
_TELLING = re.compile(
    r"\b(?:root cause|turns out|turned out|because|learned|discovered|important|gotcha|caveat|workaround)\b", re.IGNORECASE
)
_WEIGHED = re.compile(r"\b(?:instead of|rather than|trade-?offs?|over|versus|vs)\b", re.IGNORECASE)
_WARNED = re.compile(r"\b(?:gotcha|caveat|careful|beware|never|must not|root cause|turns out|workaround)\b", re.IGNORECASE)
_NOTHING_TOLD = re.compile(r"(?:\w+[ -]){0,3}(?:done|finished|completed?|ok|okay|success(?:ful(?:ly)?)?)\W*", re.IGNORECASE)
_TAG = re.compile(r"<([\w-]+)>[^<]*</\1>\s*")
_REFUSED = ("doesn't want to", "interrupted by user", "permission denied by user")
_HEARD_ELSEWHERE = {
    "user_prompt": "kept with the session",
    "UserPromptSubmit": "kept with the session",
    "SessionStart": "kept with the session",
    "SessionEnd": "kept with the session",
}


def understand(event: PromptEvent, root: str | None) -> Act:
    """Read one event. Whatever its fields hold, this answers; what no rule knows is passed over with that reason."""
    name = event.tool_name or ""
    if not name:
        return _note(event)
    if event.error and any(words in event.error for words in _REFUSED):
        return Passed(f"refused by the user: {name}")
    if name.startswith("mcp__"):
        return _mcp(event, root)
    reader = _TOOLS.get(_ALIASES.get(name, name))
    return reader(event, root) if reader else Passed(f"no rule for this tool: {shorten(name, 60)}")


def edits_files(tool_name: str) -> bool:
    """Whether a tool is there to change files, whatever its agent calls it."""
    return _TOOLS.get(_ALIASES.get(tool_name, tool_name)) is _edit


def failed(event: PromptEvent) -> bool:
    return bool(event.error) or "fail" in event.event_type.lower()


def _look(event: PromptEvent, root: str | None) -> Act:
    given = record(event.tool_input)
    if failed(event):
        return Passed(f"look-up failed: {event.tool_name}")
    path = field(given, "file_path", "absolute_path", "notebook_path")
    return Passed(f"trivial look-up: {event.tool_name}", [relative(path, root)] if path else [])


def _plan(event: PromptEvent, _root: str | None) -> Act:
    return Passed(f"the agent's own plan: {event.tool_name}")


def _edit(event: PromptEvent, root: str | None) -> Act:
    if failed(event):
        return Passed(f"edit did not apply: {event.tool_name}")
    return _edited(event, edits.changes_of(event.tool_input, event.tool_response, root))


def _edited(event: PromptEvent, changes: list[FileChange]) -> Act:
    return Edited(changes) if changes else Passed(f"no effect: {event.tool_name}")


def _shell(event: PromptEvent, root: str | None) -> Act:
    given = record(event.tool_input)
    line = field(given, "command", "cmd") or _joined(array(given.get("command")) or array(event.tool_input))
    line = line or (event.tool_input if isinstance(event.tool_input, str) else "")
    if not line.strip():
        return Passed("no effect: empty command")
    if "*** Begin Patch" in line and not failed(event):
        return _edited(event, edits.changes_of(line, None, root))
    command = read(line)
    if given.get("run_in_background") is True and not failed(event):
        return Passed(f"started in the background: {command.chief.label}")
    outcome = judge(command, event.tool_response, event.error, root, reported_failed=failed(event))
    return _failed_run(command, outcome) if outcome.failed else _ended_run(command, outcome, root)


def _failed_run(command: Command, outcome: Outcome) -> Act:
    label = command.chief.label
    if command.chief.sort is Sort.LOOK:
        return Passed(f"look-up failed: {label}")
    if command.chief.sort is Sort.COMMIT and "nothing to commit" in outcome.output:
        return Passed(f"no effect: {label}")
    return Ran(command, outcome)


def _ended_run(command: Command, outcome: Outcome, root: str | None) -> Act:
    if command.chief.sort is Sort.LOOK:
        reads = [relative(path, root) for part in command.parts for path in _shown_files(part.words)]
        return Passed(f"trivial look-up: {command.chief.label}", reads)
    if command.chief.sort is Sort.FILES:
        return _file_commands(command, root)
    return Ran(command, outcome)


def _joined(words: list[object]) -> str:
    """Codex sends `["bash", "-lc", "pytest -q"]`: the script is the last word."""
    spelled = [word for word in words if isinstance(word, str)][:200]
    if len(spelled) == 3 and spelled[1] in {"-lc", "-c"}:
        return spelled[2]
    return " ".join(spelled)[:MAX_COMMAND]


def _shown_files(words: list[str]) -> list[str]:
    if not words or words[0] not in {"cat", "head", "tail", "less", "bat", "nl"}:
        return []
    return [word for word in words[1:] if not word.startswith("-") and "." in word and "*" not in word]


def _file_commands(command: Command, root: str | None) -> Act:
    """Files written, moved or removed by the shell."""
    changes: list[FileChange] = []
    for part in [part for part in command.parts if part.sort is Sort.FILES][:_MAX_FILE_COMMANDS]:
        changes += _file_command(part, command.heredocs, root)
    return Edited(changes) if changes else Passed(f"routine command: {command.chief.label}")


def _file_command(part: Part, heredocs: list[str], root: str | None) -> list[FileChange]:
    if part.writes:
        path = relative(part.writes, root)
        if path.startswith("/tmp/"):  # noqa: S108 - what lands there is not the project's
            return []
        content = heredocs[0] if heredocs else " ".join(part.words[1:])
        return [edits.written_by_shell(path, content, appends=part.appends)]
    arguments = part.words[len(part.label.split()) :]
    paths = [relative(word, root) for word in arguments if not word.startswith("-")]
    verb = part.label.removeprefix("git ")
    if verb == "mv":
        return [edits.moved(paths[0], paths[1])] if len(paths) == 2 else []
    if verb == "rm":
        return [edits.removed(path) for path in paths[:10] if not path.startswith("/tmp/")]  # noqa: S108 - as above
    return [edits.rewritten(path, f"`sed` {shorten(paths[0], 70)}") for path in paths[1:10]]


def _web(event: PromptEvent, _root: str | None) -> Act:
    given = record(event.tool_input)
    asked = field(given, "url", "query", "prompt")
    found = _TAG.sub("", bounded(prose(event.tool_response))).strip()
    if failed(event) or not asked:
        return Passed(f"look-up failed: {event.tool_name}")
    if len(found.split()) < _FEW_WORDS:
        return Passed(f"nothing found: {event.tool_name}")
    query = "" if field(given, "url") else f'"{shorten(asked, 60)}"'
    source = query or re.sub(r"^https?://(?:www\.)?|/$", "", asked)
    title = shorten(f"{shorten(source, 60)}: {first_sentence(found, MAX_TITLE)}", MAX_TITLE)
    question = field(given, "prompt")
    return Said(
        DraftObservation(
            type="discovery",
            title=title,
            subtitle=f"{words().asked}: {shorten(question, 150)}" if question and question != asked else None,
            narrative=shorten(found, 800),
            facts=[f"{words().source}: {shorten(asked, 200)}"],
            concepts=["how-it-works"],
        )
    )


def _agent(event: PromptEvent, _root: str | None) -> Act:
    given, answer = record(event.tool_input), record(event.tool_response)
    task = field(given, "description", "task", "prompt", "message")
    report = _TAG.sub("", bounded(prose(event.tool_response))).strip()
    if failed(event):
        return Passed(f"did not finish: {event.tool_name}")
    if not report or _NOTHING_TOLD.fullmatch(report):
        return Passed(f"nothing reported: {event.tool_name}")
    stats = record(answer.get("toolStats"))
    changed = number(stats.get("editFileCount"))
    kind = field(given, "subagent_type", "agent_type") or words().sub_agent
    uses = number(answer.get("totalToolUseCount"))
    effort = f", {counted(words().tool_uses, uses)}" if uses else ""
    facts = [words().found_by.format(who=f"{kind}{effort}")]
    if changed:
        lines = f"+{number(stats.get('linesAdded'))}/-{number(stats.get('linesRemoved'))}"
        facts = [words().done_by.format(who=kind, edits=counted(words().edits, changed), lines=lines)]
    subject = shorten(task, 45)
    return Said(
        DraftObservation(
            type="change" if changed else "discovery",
            title=shorten(f"{subject}: {first_sentence(report, MAX_TITLE)}" if subject else report, MAX_TITLE),
            narrative=shorten(report, _MAX_NARRATIVE),
            facts=facts,
            concepts=["what-changed" if changed else "how-it-works"],
        )
    )


def _mcp(event: PromptEvent, _root: str | None) -> Act:
    name = event.tool_name or ""
    server, _, verb = name.removeprefix("mcp__").partition("__")
    verb = re.sub(r"(?<=[a-z])(?=[A-Z])|-", "_", verb).lower()
    if name.startswith(_OWN_MCP):
        return Passed(f"our own memory: {shorten(name, 60)}")
    if failed(event):
        return Passed(f"look-up failed: {shorten(name, 60)}")
    if _MCP_LOOKS.search(verb) and not _MCP_DEEDS.match(verb):
        return Passed(f"trivial look-up: {shorten(name, 60)}")
    given = record(event.tool_input)
    subject = field(given, "title", "name", "subject", "summary", "text", "message", "body", "id", "path")
    if not _MCP_DEEDS.search(verb) or not subject:
        return Passed(f"no rule for this tool: {shorten(name, 60)}")
    answer = first_sentence(bounded(prose(event.tool_response)), 160)
    title = f"{server} {verb.replace('_', ' ')}: {first_sentence(subject, 80)}"
    facts = [f"{words().answer}: {answer}"] if answer else []
    return Said(DraftObservation(type="change", title=shorten(title, MAX_TITLE), facts=facts, concepts=["what-changed"]))


def _note(event: PromptEvent) -> Act:
    """An event that is no tool use: kept when it carries words of some substance."""
    kind = event.event_type
    if kind in _HEARD_ELSEWHERE:
        return Passed(f"{_HEARD_ELSEWHERE[kind]}: {kind}")
    payload = record(event.payload)
    text = event.payload if isinstance(event.payload, str) and not payload else ""
    text = (text or field(payload, "text", "content", "note", "message", "summary")).strip()
    decided = _DECIDED.search(text) is not None
    substance = len(text.split()) >= 3 or len(text) >= 24
    if "assistant" in kind.lower():  # most of what an agent says is talk
        substance = len(text.split()) >= _FEW_WORDS and (decided or _TELLING.search(text) is not None)
    if not substance:
        return Passed(f"nothing to keep: {shorten(kind, 60)}")
    title = first_sentence(text, MAX_TITLE)
    rest = " ".join(text.split())
    return Said(
        DraftObservation(
            type="decision" if decided else "discovery",
            title=title.rstrip("."),
            narrative=shorten(rest, _MAX_NARRATIVE),
            concepts=_note_concepts(text, decided=decided),
        )
    )


def _note_concepts(text: str, *, decided: bool) -> list[str]:
    first = "why-it-exists" if decided else "gotcha" if _WARNED.search(text) else "how-it-works"
    return [first, "trade-off"] if _WEIGHED.search(text) else [first]


_TOOLS: dict[str, Callable[[PromptEvent, str | None], Act]] = {
    "Bash": _shell,
    "Edit": _edit,
    "Write": _edit,
    **dict.fromkeys(("Read", "Glob", "Grep", "LS"), _look),
    **dict.fromkeys(("WebFetch", "WebSearch"), _web),
    "Agent": _agent,
    "TodoWrite": _plan,
}
