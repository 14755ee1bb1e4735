"""Reads one event of a batch as an act: something ignored, an edit, a command, or a finding that is an observation by itself."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

import msgspec

from cmserver.base.tolerant_json import array, field, number, record, texts
from cmserver.providers.event_tool_use import read_event_tool_use
from cmserver.providers.model import CommandKind, CommandResult, DraftObservation, PromptEvent
from cmserver.rules import file_changes
from cmserver.rules.file_changes import FileChange
from cmserver.rules.offers import title_answer
from cmserver.rules.outcomes import Outcome, read_outcome
from cmserver.rules.standing import read_choices, read_standing_instructions
from cmserver.rules.text import MAX_LAID_DOWN, MAX_TITLE, bounded, count_noun, first_line, first_sentence
from cmserver.tooluse.commands import CommandLine, Purpose, SimpleCommand, read_command_line
from cmserver.tooluse.model import ToolKind, ToolUse
from cmserver.tooluse.own_tool_use import reads_own_memory
from cmserver.tooluse.text import prose, relative, shorten
from cmserver.tooluse.typed_prompt import typed_text


class IgnoredEvent(msgspec.Struct, frozen=True):
    """Nothing to keep, and why; `files_read` are files looked at on the way."""

    reason: str
    files_read: list[str] = []


class FileEdit(msgspec.Struct, frozen=True):
    """Files changed by one event."""

    changes: list[FileChange]


class CommandRun(msgspec.Struct, frozen=True):
    """A command, and how it ended."""

    command: CommandLine
    outcome: Outcome

    @property
    def is_proved(self) -> bool:
        """Whether it is known to have passed."""
        return not self.outcome.failed and bool(self.outcome.proof)

    @property
    def result(self) -> CommandResult:
        """What later batches of the session compare their own runs with."""
        outcome = self.outcome
        return CommandResult(
            command=self.command.key,
            kind=_KINDS.get(self.command.main.purpose, "other"),
            passed=not outcome.failed,
            failure=outcome.failure,
            selectors=self.command.selectors if self.command.is_check else [],
            failing=(outcome.failing_files or outcome.failing_tests)[:_MAX_FAILING],
        )


class Finding(msgspec.Struct, frozen=True):
    """Something that is an observation by itself. `report` is a sub-agent's whole report."""

    draft: DraftObservation
    report: str = ""
    is_users: bool = False
    """Whether the user said it."""


class TurnEnd(msgspec.Struct, frozen=True):
    """The agent's last message of a turn."""

    message: str


class TodoList(msgspec.Struct, frozen=True):
    """The agent's own list of what it has to do, as it is now."""

    unfinished: list[str]
    finished: list[str]


class StandingInstructions(msgspec.Struct, frozen=True):
    """What the user laid down for good in a prompt, in their own words."""

    texts: list[str]
    choices: list[str] = []
    """What they decided for now."""


Act = IgnoredEvent | FileEdit | CommandRun | Finding | TurnEnd | StandingInstructions | TodoList

_MAX_NARRATIVE = 1_500
_FEW_WORDS = 8
_MAX_FILE_COMMANDS = 50
_MAX_RESULTS = 20
_MAX_FAILING = 20

_MCP_LOOKS = re.compile(
    r"(?:^|_)(?:search|find|list|get|read|fetch|query|lookup|look|show|describe|resolve|browse|check|status|context|"
    r"timeline|observations?|snapshot|screenshot|navigate|logs?|help|view)(?:_|$)"
)
_MCP_DEEDS = re.compile(
    r"(?:^|_)(?:create|update|delete|merge|add|post|send|set|save|move|close|assign|publish|upload|deploy|run|apply)(?:_|$)"
)
_DECIDED = re.compile(r"\b(?:decid(?:ed|es)|decision|chose|chosen|agreed|settled on|opted for|will use)\b", re.IGNORECASE)
_TELLING = re.compile(
    r"\b(?:root cause|turns out|turned out|because|learned|discovered|important|gotcha|caveat|workaround)\b", re.IGNORECASE
)
_WEIGHED = re.compile(r"\b(?:instead of|rather than|trade-?offs?|over|versus|vs)\b", re.IGNORECASE)
_WARNED = re.compile(r"\b(?:gotcha|caveat|careful|beware|never|must not|root cause|turns out|workaround)\b", re.IGNORECASE)
_EMPTY_REPORT = re.compile(r"(?:\w+[ -]){0,3}(?:done|finished|completed?|ok|okay|success(?:ful(?:ly)?)?)\W*", re.IGNORECASE)
_ANSWERED = re.compile(r'"([^"\n]{1,500})"="([^"\n]{1,500})"')
_TAG = re.compile(r"<([\w-]+)>[^<]*</\1>\s*")
_REFUSALS = ("doesn't want to", "interrupted by user", "permission denied by user")
_FINISHED = {"completed", "done", "cancelled", "canceled"}
_PROMPTS = {"user_prompt", "UserPromptSubmit"}
_KEPT_WITH_SESSION = {*_PROMPTS, "SessionStart", "SessionEnd"}
_KINDS: dict[Purpose, CommandKind] = {
    **dict.fromkeys((Purpose.TEST, Purpose.CHECK), "check"),
    **dict.fromkeys((Purpose.DEED, Purpose.INSTALL), "deed"),
    Purpose.COMMIT: "commit",
}


def read_act(event: PromptEvent, root: str | None) -> Act:
    """Read one event. Never raises; what no rule knows is ignored with that reason."""
    name = event.tool_name or ""
    if not name:
        return _read_note(event)
    if event.error and any(refusal in event.error for refusal in _REFUSALS):
        return IgnoredEvent(f"refused by the user: {name}")
    use = read_event_tool_use(event)
    if reads_own_memory(use):
        return IgnoredEvent(f"our own memory: {shorten(name, 60)}")
    reader = _READERS.get(use.kind)
    return reader(event, use, root) if reader else IgnoredEvent(f"no rule for this tool: {shorten(name, 60)}")


def read_prompt(event: PromptEvent) -> str:
    """What the user typed; empty for an event of another kind."""
    if event.event_type not in _PROMPTS:
        return ""
    return typed_text(
        event.payload if isinstance(event.payload, str) else field(record(event.payload), "prompt", "text", "content")
    )


def is_failed(event: PromptEvent) -> bool:
    return bool(event.error) or "fail" in event.event_type.lower()


def read_command_results(events: Iterable[PromptEvent], root: str | None) -> list[CommandResult]:
    """The last result of each command that the events ran, look-ups left out."""
    results: dict[str, CommandResult] = {}
    for event in events:
        is_shell = bool(event.tool_name) and read_event_tool_use(event).kind is ToolKind.SHELL
        act = read_act(event, root) if is_shell else None
        if isinstance(act, CommandRun) and (act.is_proved or act.outcome.failed or act.result.kind in {"commit", "deed"}):
            results[act.command.key] = act.result
    return list(results.values())[-_MAX_RESULTS:]


def _read_lookup(event: PromptEvent, use: ToolUse, root: str | None) -> Act:
    if is_failed(event):
        return IgnoredEvent(f"look-up failed: {event.tool_name}")
    paths = use.paths if use.kind is ToolKind.READ else []
    return IgnoredEvent(f"trivial look-up: {event.tool_name}", [relative(path, root) for path in paths])


def _read_edit(event: PromptEvent, use: ToolUse, root: str | None) -> Act:
    """The changes of an edit."""
    if is_failed(event):
        return IgnoredEvent(f"edit did not apply: {event.tool_name}")
    changes = file_changes.read_file_changes(use, root)
    return FileEdit(changes) if changes else IgnoredEvent(f"no effect: {event.tool_name}")


def _read_shell(event: PromptEvent, use: ToolUse, root: str | None) -> Act:
    """What a shell command did: changes of files, a run with its outcome, or nothing to record."""
    line = use.command or use.patch
    if not line.strip():
        return IgnoredEvent("no effect: empty command")
    if use.patch and not is_failed(event):
        return _read_edit(event, use, root)
    command = read_command_line(line)
    is_background = use.fields.get("run_in_background") is True or "backgroundTaskId" in use.answer
    if is_background and not is_failed(event):
        return IgnoredEvent(f"started in the background: {command.main.label}")
    return _read_run(command, read_outcome(command, event.tool_response, event.error, root, is_failed=is_failed(event)), root)


def _read_run(command: CommandLine, outcome: Outcome, root: str | None) -> Act:
    """The act of a command that has ended: look-ups and routine are ignored, the rest is a run or a change of files."""
    label, purpose = command.main.label, command.main.purpose
    if purpose in {Purpose.LOOK, Purpose.ROUTINE} and outcome.failed:  # many end with 1 as a matter of course
        return IgnoredEvent(f"look-up failed: {label}")
    if purpose is Purpose.LOOK:
        paths = [relative(path, root) for simple in command.commands for path in _printed_files(simple.words)]
        return IgnoredEvent(f"trivial look-up: {label}", paths)
    if purpose is Purpose.COMMIT and outcome.failed and "nothing to commit" in outcome.output:
        return IgnoredEvent(f"no effect: {label}")
    if purpose is Purpose.FILES and not outcome.failed:
        simples = [simple for simple in command.commands if simple.purpose is Purpose.FILES][:_MAX_FILE_COMMANDS]
        changes = [change for simple in simples for change in _read_file_command(simple, command.heredocs, root)]
        return FileEdit(changes) if changes else IgnoredEvent(f"routine command: {label}")
    return CommandRun(command, outcome)


def _printed_files(words: list[str]) -> list[str]:
    if not words or words[0] not in {"cat", "head", "tail", "less", "bat", "nl"}:
        return []
    return [word for word in words[1:] if not word.startswith("-") and "." in word and "*" not in word]


def _read_file_command(command: SimpleCommand, heredocs: list[str], root: str | None) -> list[FileChange]:
    """Files that a shell command writes, moves or removes."""
    if command.output_path:
        path = relative(command.output_path, root)
        if path.startswith("/tmp/"):  # noqa: S108 - what lands there is not the project's
            return []
        content = heredocs[0] if heredocs else " ".join(command.words[1:])
        append = file_changes.append_to_file
        return [append(path, content) if command.appends else file_changes.write_file(path, content, verb="wrote")]
    arguments = command.words[len(command.label.split()) :]
    paths = [relative(word, root) for word in arguments if not word.startswith("-")]
    program = command.label.removeprefix("git ")
    if program == "mv":
        return [file_changes.move_file(paths[0], paths[1])] if len(paths) == 2 else []
    if program == "rm":
        removed = [path for path in paths[:10] if not path.startswith("/tmp/")]  # noqa: S108 - as above
        return [file_changes.change_whole_file(path, "removed") for path in removed]
    return [file_changes.change_whole_file(path, "changed", [f"`sed` {shorten(paths[0], 70)}"]) for path in paths[1:10]]


def _read_web(event: PromptEvent, use: ToolUse, _root: str | None) -> Act:
    """What a search of the web or a fetched page says, as a finding."""
    query = field(use.fields, "url", "query", "prompt")
    text = _TAG.sub("", bounded(prose(event.tool_response))).strip()
    if is_failed(event) or not query:
        return IgnoredEvent(f"look-up failed: {event.tool_name}")
    if len(text.split()) < _FEW_WORDS:
        return IgnoredEvent(f"nothing found: {event.tool_name}")
    is_url, question = bool(field(use.fields, "url")), field(use.fields, "prompt")
    source = re.sub(r"^https?://(?:www\.)?|/$", "", query) if is_url else f'"{shorten(query, 60)}"'
    return Finding(
        DraftObservation(
            type="discovery",
            title=shorten(f"{shorten(source, 60)}: {first_sentence(text, MAX_TITLE)}", MAX_TITLE),
            subtitle=f"Asked: {shorten(question, 150)}" if question and question != query else None,
            narrative=shorten(text, 800),
            facts=[f"Source: {shorten(query, 200)}"],
            concepts=["how-it-works"],
        )
    )


def _read_agent(event: PromptEvent, use: ToolUse, _root: str | None) -> Act:
    """What a sub-agent reports, as a finding."""
    report = _TAG.sub("", bounded(prose(event.tool_response))).strip()
    if is_failed(event):
        return IgnoredEvent(f"did not finish: {event.tool_name}")
    if not report or _EMPTY_REPORT.fullmatch(report):
        return IgnoredEvent(f"nothing reported: {event.tool_name}")
    answer, task = record(event.tool_response), shorten(field(use.fields, "description", "task", "prompt", "message"), 45)
    stats = record(answer.get("toolStats"))
    edit_count, use_count = number(stats.get("editFileCount")), number(answer.get("totalToolUseCount"))
    agent = field(use.fields, "subagent_type", "agent_type") or "sub-agent"
    if edit_count:
        lines = f"+{number(stats.get('linesAdded'))}/-{number(stats.get('linesRemoved'))}"
        fact = f"Done by a sub-agent ({agent}): {count_noun(edit_count, 'edit')}, {lines}"
    else:
        effort = f", {count_noun(use_count, 'tool use')}" if use_count else ""
        fact = f"Found by a sub-agent ({agent}{effort})"
    draft = DraftObservation(
        type="change" if edit_count else "discovery",
        title=shorten(f"{task}: {first_sentence(report, MAX_TITLE)}" if task else report, MAX_TITLE),
        narrative=shorten(report, _MAX_NARRATIVE),
        facts=[fact],
        concepts=["what-changed" if edit_count else "how-it-works"],
    )
    return Finding(draft, report=report)


def _read_answer(event: PromptEvent, use: ToolUse, _root: str | None) -> Act:
    """What the user answered to questions or to a plan, as a decision that quotes both."""
    plan, reply = field(use.fields, "plan"), prose(event.tool_response).strip()
    pairs = list(record(use.answer.get("answers")).items())
    pairs = pairs or _ANSWERED.findall(reply)
    if is_failed(event) or not (plan or pairs):
        return IgnoredEvent(f"nothing answered: {event.tool_name}")
    if plan:
        reply = "" if reply == plan.strip() else shorten(reply, _MAX_NARRATIVE // 2)
        title = shorten(f"Accepted plan: {reply or first_line(plan)}", MAX_LAID_DOWN)
        narrative = " ".join(
            filter(None, [f'The user, to the plan: "{reply}"' if reply else "", shorten(plan, _MAX_NARRATIVE // 2)])
        )
    else:
        answers = [(shorten(question, 200), shorten(prose(answer) or ", ".join(texts(answer)), 300)) for question, answer in pairs]
        title = shorten("; ".join(title_answer(answer, question) for question, answer in answers), MAX_LAID_DOWN)
        narrative = " ".join(f'Asked: "{question}" The user: "{answer}"' for question, answer in answers)
    draft = DraftObservation(type="decision", title=title, narrative=narrative, concepts=["trade-off"])
    return Finding(draft, is_users=True)


def _read_todos(event: PromptEvent, use: ToolUse, _root: str | None) -> Act:
    """The agent's list; one that has no items with a state changes nothing."""
    items = [record(item) for name in ("todos", "plan", "items") for item in array(use.fields.get(name))]
    if is_failed(event) or not items:
        return IgnoredEvent(f"the agent's own plan: {event.tool_name}")
    names: dict[bool, list[str]] = {True: [], False: []}
    for item in items:
        if name := field(item, "content", "step", "description", "title", "text").strip():
            names[field(item, "status", "state").casefold() in _FINISHED].append(name)
    return TodoList(unfinished=names[False], finished=names[True])


def _read_mcp(event: PromptEvent, use: ToolUse, _root: str | None) -> Act:
    """What an MCP tool changed, as a finding; tools that only look something up are ignored."""
    name = shorten(event.tool_name or "", 60)
    server, _, tool = (event.tool_name or "").removeprefix("mcp__").partition("__")
    tool = re.sub(r"(?<=[a-z])(?=[A-Z])|-", "_", tool).lower()
    if is_failed(event):
        return IgnoredEvent(f"look-up failed: {name}")
    if _MCP_LOOKS.search(tool) and not _MCP_DEEDS.match(tool):
        return IgnoredEvent(f"trivial look-up: {name}")
    subject = field(use.fields, "title", "name", "subject", "summary", "text", "message", "body", "id", "path")
    if not _MCP_DEEDS.search(tool) or not subject:
        return IgnoredEvent(f"no rule for this tool: {name}")
    answer = first_sentence(bounded(prose(event.tool_response)), 160)
    title = f"{server} {tool.replace('_', ' ')}: {first_sentence(subject, 80)}"
    facts = [f"Answer: {answer}"] if answer else []
    return Finding(DraftObservation(type="change", title=shorten(title, MAX_TITLE), facts=facts, concepts=["what-changed"]))


def _read_note(event: PromptEvent) -> Act:
    """An event that is no tool use: kept when it carries words of some substance."""
    kind = event.event_type
    payload = record(event.payload)
    if prompt := read_prompt(event):
        instructions, choices = read_standing_instructions(prompt), read_choices(prompt)
        if instructions or choices:
            return StandingInstructions(instructions, choices)
    if kind in _KEPT_WITH_SESSION:
        return IgnoredEvent(f"kept with the session: {kind}")
    if message := field(payload, "last_assistant_message"):
        return TurnEnd(message)
    text = event.payload if isinstance(event.payload, str) and not payload else ""
    text = (text or field(payload, "text", "content", "note", "message", "summary")).strip()
    is_decision = _DECIDED.search(text) is not None
    has_substance = len(text.split()) >= 3 or len(text) >= 24
    if "assistant" in kind.lower():  # most of what an agent says is talk
        has_substance = len(text.split()) >= _FEW_WORDS and (is_decision or _TELLING.search(text) is not None)
    if not has_substance:
        return IgnoredEvent(f"nothing to keep: {shorten(kind, 60)}")
    concept = "why-it-exists" if is_decision else "gotcha" if _WARNED.search(text) else "how-it-works"
    return Finding(
        DraftObservation(
            type="decision" if is_decision else "discovery",
            title=first_sentence(text, MAX_TITLE).rstrip("."),
            narrative=shorten(" ".join(text.split()), _MAX_NARRATIVE),
            concepts=[concept, "trade-off"] if _WEIGHED.search(text) else [concept],
        )
    )


_READERS: dict[ToolKind, Callable[[PromptEvent, ToolUse, str | None], Act]] = {
    ToolKind.SHELL: _read_shell,
    **dict.fromkeys((ToolKind.EDIT, ToolKind.WRITE), _read_edit),
    **dict.fromkeys((ToolKind.READ, ToolKind.SEARCH, ToolKind.PROCESS, ToolKind.LOOKUP), _read_lookup),
    ToolKind.WEB: _read_web,
    ToolKind.AGENT: _read_agent,
    ToolKind.QUESTION: _read_answer,
    ToolKind.PLAN: _read_todos,
    ToolKind.MCP: _read_mcp,
}
