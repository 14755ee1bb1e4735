"""Reads an event of an agent: its tool call, and what happened. Never raises; what is not known is ignored, with the reason."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from cmserver.base.text import shorten
from cmserver.base.tolerant_json import array, field, number, record, texts
from cmserver.reading import file_changes
from cmserver.reading.conclusions import read_conclusions
from cmserver.reading.model import (
    PROMPT_TYPES,
    Act,
    AgentReport,
    CommandResult,
    CommandRun,
    EventReading,
    FileChange,
    FileEdit,
    IgnoredEvent,
    Note,
    Outcome,
    RemoteDeed,
    StandingInstructions,
    TodoList,
    TurnEnd,
    UserReply,
    WebAnswer,
)
from cmserver.reading.outcomes import read_outcome
from cmserver.reading.standing import read_choices, read_standing_instructions
from cmserver.reading.text import bounded, first_sentence
from cmserver.tooluse.commands import read_command_line
from cmserver.tooluse.model import CommandLine, Purpose, SimpleCommand, ToolKind, ToolUse, WorkingFolder
from cmserver.tooluse.own_tool_use import reads_own_memory
from cmserver.tooluse.read import read_tool_use
from cmserver.tooluse.text import prose
from cmserver.tooluse.typed_prompt import typed_text

_FEW_WORDS = 8
_MAX_FILE_COMMANDS = 50
_MAX_RESULTS = 20
_MAX_NAME_CHARS = 128
_MAX_REPLY = 750

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
_EMPTY_REPORT = re.compile(r"(?:\w+[ -]){0,3}(?:done|finished|completed?|ok|okay|success(?:ful(?:ly)?)?)\W*", re.IGNORECASE)
_ANSWERED = re.compile(r'"([^"\n]{1,500})"="([^"\n]{1,500})"')
_TAG = re.compile(r"<([\w-]+)>[^<]*</\1>\s*")
_REFUSALS = ("doesn't want to", "interrupted by user", "permission denied by user")
_FINISHED = {"completed", "done", "cancelled", "canceled"}
_KEPT_WITH_SESSION = {*PROMPT_TYPES, "SessionStart", "SessionEnd"}
_ERROR_PREFIXES = ("<tool_use_error>", "Error:", "error:")


def read_event(event_type: str, payload: object, root: str | None, *, occurred_at_epoch: int = 0) -> EventReading:
    """Read one event, with paths relative to the root. `payload` is the stored one."""
    fields = record(payload)
    folder = WorkingFolder(root or "", field(fields, "cwd"))
    name, error = field(fields, "tool_name"), fields.get("error")
    response = fields.get("tool_response", fields.get("tool_output"))
    use = read_tool_use(name, fields.get("tool_input"), response, error if isinstance(error, str) else None) if name else None
    prompt = _read_prompt(payload) if event_type in PROMPT_TYPES and use is None else ""
    agents = {key: fields.get(key, fields.get(older)) for key, older in (("agent_id", "agentId"), ("agent_type", "agentType"))}
    has_failed = bool(use and use.error) or "fail" in f"{event_type} {field(fields, 'hook_event_name')}".lower()
    act = _read_use(use, folder, has_failed=has_failed) if use else _read_note(event_type, payload, prompt)
    return EventReading(
        event_type=event_type,
        payload=payload,
        folder=folder,
        tool_use=use,
        has_failed=has_failed,
        act=act,
        prompt=prompt,
        changed_files=[] if use is None or has_failed or _reports_error(use, fields) else _changed_files(use, act, folder),
        occurred_at_epoch=occurred_at_epoch,
        **{key: text[:_MAX_NAME_CHARS] for key, text in agents.items() if isinstance(text, str) and text},
    )


def read_command_results(readings: Iterable[EventReading]) -> list[CommandResult]:
    """The last result of each command that the events ran, look-ups left out."""
    results: dict[str, CommandResult] = {}
    for reading in readings:
        act = reading.act
        if isinstance(act, CommandRun) and (act.is_proved or act.outcome.failed or act.result.kind in {"commit", "deed"}):
            results[act.command.key] = act.result
    return list(results.values())[-_MAX_RESULTS:]


def _read_prompt(payload: object) -> str:
    return typed_text(payload if isinstance(payload, str) else field(record(payload), "prompt", "text", "content"))


def _read_use(use: ToolUse, folder: WorkingFolder, *, has_failed: bool) -> Act:
    if use.error and any(refusal in use.error for refusal in _REFUSALS):
        return IgnoredEvent(f"refused by the user: {use.tool}")
    if reads_own_memory(use):
        return IgnoredEvent(f"our own memory: {shorten(use.tool, 60)}")
    if use.kind is ToolKind.SHELL:
        return _read_shell(use, folder, has_failed=has_failed)
    if has_failed and use.kind in _FAILED_CALLS:
        return IgnoredEvent(f"{_FAILED_CALLS[use.kind]}: {shorten(use.tool, 60)}")
    reader = _READERS.get(use.kind)
    return reader(use, folder) if reader else IgnoredEvent(f"no rule for this tool: {shorten(use.tool, 60)}")


def _reports_error(use: ToolUse, payload: dict[str, object]) -> bool:
    """Whether the tool reports an error, in any of the forms that agents use."""
    if payload.get("error") or payload.get("is_error") is True:
        return True
    if isinstance(use.output, str):
        return use.output.lstrip().startswith(_ERROR_PREFIXES)
    answer = use.answer
    is_error = answer.get("is_error") is True or answer.get("isError") is True
    return is_error or answer.get("success") is False or bool(answer.get("error"))


def _changed_files(use: ToolUse, act: Act, folder: WorkingFolder) -> list[str]:
    """Files that the call changed, by what was asked for: edits, patches, and what a shell writes, moves or removes."""
    if isinstance(act, FileEdit):
        return list(dict.fromkeys(change.path for change in act.changes if change.path))
    old, new = (field(use.fields, *names) for names in (("old_string", "old_str"), ("new_string", "new_str")))
    if use.edits_files and not (old and old == new):
        # An empty file, or an edit of which only the file's name was kept.
        return [folder.relative(path) for path in use.paths[:1]]
    return []


def _read_lookup(use: ToolUse, folder: WorkingFolder) -> Act:
    paths = use.paths if use.kind is ToolKind.READ else []
    return IgnoredEvent(f"trivial look-up: {use.tool}", [folder.relative(path) for path in paths])


def _read_edit(use: ToolUse, folder: WorkingFolder) -> Act:
    """The changes of an edit."""
    changes = file_changes.read_file_changes(use, folder)
    return FileEdit(changes) if changes else IgnoredEvent(f"no effect: {use.tool}")


def _read_shell(use: ToolUse, folder: WorkingFolder, *, has_failed: bool) -> Act:
    """What a shell command did: changes of files, a run with its outcome, or nothing to record."""
    line = use.command or use.patch
    if not line.strip():
        return IgnoredEvent("no effect: empty command")
    if use.patch and not has_failed:
        return _read_edit(use, folder)
    command = read_command_line(line)
    is_background = use.fields.get("run_in_background") is True or "backgroundTaskId" in use.answer
    if is_background and not has_failed:
        return IgnoredEvent(f"started in the background: {command.main.label}")
    return _read_run(command, read_outcome(command, use.output, use.error, folder, is_failed=has_failed), folder)


def _read_run(command: CommandLine, outcome: Outcome, folder: WorkingFolder) -> Act:
    """The act of a command that has ended: look-ups and routine are ignored, the rest is a run or a change of files."""
    label, purpose = command.main.label, command.main.purpose
    if purpose in {Purpose.LOOK, Purpose.ROUTINE} and outcome.failed:  # many end with 1 as a matter of course
        return IgnoredEvent(f"look-up failed: {label}")
    if purpose is Purpose.LOOK:
        paths = [folder.relative(path) for simple in command.commands for path in _printed_files(simple.words)]
        return IgnoredEvent(f"trivial look-up: {label}", paths)
    if purpose is Purpose.COMMIT and outcome.failed and "nothing to commit" in outcome.output:
        return IgnoredEvent(f"no effect: {label}")
    if purpose is Purpose.FILES and not outcome.failed:
        simples = [simple for simple in command.commands if simple.purpose is Purpose.FILES][:_MAX_FILE_COMMANDS]
        changes = [change for simple in simples for change in _read_file_command(simple, command.heredocs, folder)]
        return FileEdit(changes) if changes else IgnoredEvent(f"routine command: {label}")
    return CommandRun(command, outcome, folder)


def _printed_files(words: list[str]) -> list[str]:
    if not words or words[0] not in {"cat", "head", "tail", "less", "bat", "nl"}:
        return []
    return [word for word in words[1:] if not word.startswith("-") and "." in word and "*" not in word]


def _read_file_command(command: SimpleCommand, heredocs: list[str], folder: WorkingFolder) -> list[FileChange]:
    """Files that a shell command writes, moves or removes."""
    if command.output_path:
        path = folder.relative(command.output_path)
        if path.startswith("/tmp/"):  # noqa: S108 - what lands there is not the project's
            return []
        content = heredocs[0] if heredocs else " ".join(command.words[1:])
        append = file_changes.append_to_file
        return [append(path, content) if command.appends else file_changes.write_file(path, content, verb="wrote")]
    arguments = [word for word in command.words[len(command.label.split()) :] if not word.startswith("-")]
    paths = [folder.relative(word) for word in arguments]
    program = command.label.removeprefix("git ")
    if program == "mv":
        return [file_changes.move_file(paths[0], paths[1])] if len(paths) == 2 else []
    if program == "rm":
        removed = [path for path in paths[:10] if not path.startswith("/tmp/")]  # noqa: S108 - as above
        return [file_changes.change_whole_file(path, "removed") for path in removed]
    return [file_changes.change_whole_file(path, "changed", [f"`sed` {shorten(arguments[0], 70)}"]) for path in paths[1:10]]


def _read_web(use: ToolUse, _folder: WorkingFolder) -> Act:
    """What a search of the web or a fetched page says."""
    query = field(use.fields, "url", "query", "prompt")
    text = _TAG.sub("", bounded(prose(use.output))).strip()
    if not query:
        return IgnoredEvent(f"look-up failed: {use.tool}")
    if len(text.split()) < _FEW_WORDS:
        return IgnoredEvent(f"nothing found: {use.tool}")
    return WebAnswer(query=query, question=field(use.fields, "prompt"), is_url=bool(field(use.fields, "url")), text=text)


def _read_agent(use: ToolUse, _folder: WorkingFolder) -> Act:
    """What a sub-agent reports."""
    report = _TAG.sub("", bounded(prose(use.output))).strip()
    if not report or _EMPTY_REPORT.fullmatch(report):
        return IgnoredEvent(f"nothing reported: {use.tool}")
    answer = use.answer
    stats = record(answer.get("toolStats"))
    return AgentReport(
        agent=field(use.fields, "subagent_type", "agent_type") or "sub-agent",
        task=shorten(field(use.fields, "description", "task", "prompt", "message"), 45),
        report=report,
        edit_count=number(stats.get("editFileCount")),
        use_count=number(answer.get("totalToolUseCount")),
        lines=f"+{number(stats.get('linesAdded'))}/-{number(stats.get('linesRemoved'))}",
        conclusions=read_conclusions(report),
    )


def _read_answer(use: ToolUse, _folder: WorkingFolder) -> Act:
    """What the user answered to questions or to a plan."""
    plan, reply = field(use.fields, "plan"), prose(use.output).strip()
    if plan:
        return UserReply(plan=plan, reply="" if reply == plan.strip() else shorten(reply, _MAX_REPLY))
    pairs = list(record(use.answer.get("answers")).items()) or _ANSWERED.findall(reply)
    if not pairs:
        return IgnoredEvent(f"nothing answered: {use.tool}")
    return UserReply(
        answers=[(shorten(question, 200), shorten(prose(answer) or ", ".join(texts(answer)), 300)) for question, answer in pairs]
    )


def _read_todos(use: ToolUse, _folder: WorkingFolder) -> Act:
    """The agent's list; one that has no items with a state changes nothing."""
    items = [record(item) for name in ("todos", "plan", "items") for item in array(use.fields.get(name))]
    if not items:
        return IgnoredEvent(f"the agent's own plan: {use.tool}")
    names: dict[bool, list[str]] = {True: [], False: []}
    for item in items:
        if name := field(item, "content", "step", "description", "title", "text").strip():
            names[field(item, "status", "state").casefold() in _FINISHED].append(name)
    return TodoList(unfinished=names[False], finished=names[True])


def _read_mcp(use: ToolUse, _folder: WorkingFolder) -> Act:
    """What an MCP tool changed; tools that only look something up are ignored."""
    name = shorten(use.tool, 60)
    server, _, tool = use.tool.removeprefix("mcp__").partition("__")
    tool = re.sub(r"(?<=[a-z])(?=[A-Z])|-", "_", tool).lower()
    if _MCP_LOOKS.search(tool) and not _MCP_DEEDS.match(tool):
        return IgnoredEvent(f"trivial look-up: {name}")
    subject = field(use.fields, "title", "name", "subject", "summary", "text", "message", "body", "id", "path")
    if not _MCP_DEEDS.search(tool) or not subject:
        return IgnoredEvent(f"no rule for this tool: {name}")
    return RemoteDeed(server=server, tool=tool, subject=subject, answer=first_sentence(bounded(prose(use.output)), 160))


def _read_note(event_type: str, payload: object, prompt: str) -> Act:
    """An event that is no tool use: kept when it carries words of some substance."""
    fields = record(payload)
    if prompt:
        instructions, choices = read_standing_instructions(prompt), read_choices(prompt)
        if instructions or choices:
            return StandingInstructions(instructions, choices)
    if event_type in _KEPT_WITH_SESSION:
        return IgnoredEvent(f"kept with the session: {event_type}")
    if message := field(fields, "last_assistant_message"):
        return TurnEnd(message, read_conclusions(message))
    text = payload if isinstance(payload, str) and not fields else ""
    text = (text or field(fields, "text", "content", "note", "message", "summary")).strip()
    is_decision = _DECIDED.search(text) is not None
    has_substance = len(text.split()) >= 3 or len(text) >= 24
    if "assistant" in event_type.lower():  # most of what an agent says is talk
        has_substance = len(text.split()) >= _FEW_WORDS and (is_decision or _TELLING.search(text) is not None)
    return Note(text, is_decision) if has_substance else IgnoredEvent(f"nothing to keep: {shorten(event_type, 60)}")


_LOOKUPS = (ToolKind.READ, ToolKind.SEARCH, ToolKind.PROCESS, ToolKind.LOOKUP)
_FAILED_CALLS = {
    **dict.fromkeys((ToolKind.EDIT, ToolKind.WRITE), "edit did not apply"),
    **dict.fromkeys((*_LOOKUPS, ToolKind.WEB, ToolKind.MCP), "look-up failed"),
    ToolKind.AGENT: "did not finish",
    ToolKind.QUESTION: "nothing answered",
    ToolKind.PLAN: "the agent's own plan",
}
"""Why a call that failed is ignored."""
_READERS: dict[ToolKind, Callable[[ToolUse, WorkingFolder], Act]] = {
    **dict.fromkeys((ToolKind.EDIT, ToolKind.WRITE), _read_edit),
    **dict.fromkeys(_LOOKUPS, _read_lookup),
    ToolKind.WEB: _read_web,
    ToolKind.AGENT: _read_agent,
    ToolKind.QUESTION: _read_answer,
    ToolKind.PLAN: _read_todos,
    ToolKind.MCP: _read_mcp,
}
