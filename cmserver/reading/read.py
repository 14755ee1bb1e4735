"""Reads an event of an agent: its tool call, and what happened. Never raises; what is not known is ignored, with the reason."""

from __future__ import annotations

from collections.abc import Iterable

from cmserver.base.text import shorten
from cmserver.base.tolerant_json import field, record
from cmserver.reading import file_changes
from cmserver.reading.background import BackgroundShells
from cmserver.reading.branches import find_branch
from cmserver.reading.model import (
    PROMPT_TYPES,
    UNKNOWN_BRANCH,
    Act,
    Branch,
    CommandResult,
    CommandRun,
    EventReading,
    FileChange,
    FileEdit,
    IgnoredEvent,
    Outcome,
)
from cmserver.reading.outcomes import read_outcome
from cmserver.reading.results import read_results
from cmserver.tooluse.commands import read_command_line
from cmserver.tooluse.model import CommandLine, Purpose, SimpleCommand, ToolKind, ToolUse, WorkingFolder
from cmserver.tooluse.own_tool_use import reads_own_memory
from cmserver.tooluse.read import read_tool_use
from cmserver.tooluse.typed_prompt import typed_text

_FOLDER_FIELDS = ("workdir", "cwd", "directory", "dir_path", "working_directory", "workingDirectory")
_MAX_FILE_COMMANDS = 50
_MAX_RESULTS = 20
_MAX_NAME_CHARS = 128

_REFUSALS = ("doesn't want to", "interrupted by user", "permission denied by user")
_ERROR_PREFIXES = ("<tool_use_error>", "Error:", "error:")


def read_event(
    event_type: str,
    payload: object,
    root: str | None,
    *,
    occurred_at_epoch: int = 0,
    branch: Branch = UNKNOWN_BRANCH,
    shells: BackgroundShells | None = None,
) -> EventReading:
    """Read one event, with paths relative to the root. `payload` is the stored one.

    `branch` is the one that is checked out, and `shells` are the commands in the background that the events before started.
    """
    fields = record(payload)
    folder = WorkingFolder(root or "", field(fields, "cwd"))
    name, error = field(fields, "tool_name"), fields.get("error")
    response = fields.get("tool_response", fields.get("tool_output"))
    use = read_tool_use(name, fields.get("tool_input"), response, error if isinstance(error, str) else None) if name else None
    prompt = _read_prompt(payload) if event_type in PROMPT_TYPES and use is None else ""
    agents = {key: fields.get(key, fields.get(older)) for key, older in (("agent_id", "agentId"), ("agent_type", "agentType"))}
    has_failed = bool(use and use.error) or "fail" in f"{event_type} {field(fields, 'hook_event_name')}".lower()
    branch = find_branch(use, branch) if use else branch
    act = _read_use(use, folder, branch, shells or BackgroundShells(), has_failed=has_failed) if use else None
    return EventReading(
        event_type=event_type,
        payload=payload,
        folder=folder,
        tool_use=use,
        has_failed=has_failed,
        act=act,
        prompt=prompt,
        branch=branch,
        changed_files=[] if use is None or has_failed or _reports_error(use, fields) else _changed_files(use, act, folder),
        occurred_at_epoch=occurred_at_epoch,
        **{key: text[:_MAX_NAME_CHARS] for key, text in agents.items() if isinstance(text, str) and text},
    )


def read_command_results(readings: Iterable[EventReading]) -> list[CommandResult]:
    """The last result of each command that the events ran, look-ups left out."""
    results: dict[object, CommandResult] = {}
    for reading in readings:
        act = reading.act
        if isinstance(act, CommandRun):
            known = act.results if act.result.kind in {"commit", "deed"} else act.known_results
            results |= {result.identity: result for result in known}
    return list(results.values())[-_MAX_RESULTS:]


def _read_prompt(payload: object) -> str:
    return typed_text(payload if isinstance(payload, str) else field(record(payload), "prompt", "text", "content"))


def _read_use(use: ToolUse, folder: WorkingFolder, branch: Branch, shells: BackgroundShells, *, has_failed: bool) -> Act | None:
    if use.error and any(refusal in use.error for refusal in _REFUSALS):
        return IgnoredEvent(f"refused by the user: {use.tool}")
    if reads_own_memory(use):
        return IgnoredEvent(f"our own memory: {shorten(use.tool, 60)}")
    if use.kind is ToolKind.SHELL:
        return _read_shell(use, folder, branch, shells, has_failed=has_failed)
    if has_failed and use.kind in _FAILED_CALLS:
        return IgnoredEvent(f"{_FAILED_CALLS[use.kind]}: {shorten(use.tool, 60)}")
    if use.kind in _LOOKUPS:
        return _read_lookup(use, folder, branch, shells)
    return _read_edit(use, folder) if use.kind in _EDITS else None


def _read_lookup(use: ToolUse, folder: WorkingFolder, branch: Branch, shells: BackgroundShells) -> Act:
    """A look at files or the like, which is ignored; at a command in the background it is the end of that."""
    if ended := shells.find_end(use):
        command = read_command_line(ended.command)
        return _read_run(command, read_outcome(command, ended.output, None, folder, is_failed=False), folder, branch)
    paths = use.paths if use.kind is ToolKind.READ else []
    return IgnoredEvent(f"trivial look-up: {use.tool}", [folder.relative(path) for path in paths])


def _reports_error(use: ToolUse, payload: dict[str, object]) -> bool:
    """Whether the tool reports an error, in any of the forms that agents use."""
    if payload.get("error") or payload.get("is_error") is True:
        return True
    if isinstance(use.output, str):
        return use.output.lstrip().startswith(_ERROR_PREFIXES)
    answer = use.answer
    is_error = answer.get("is_error") is True or answer.get("isError") is True
    return is_error or answer.get("success") is False or bool(answer.get("error"))


def _changed_files(use: ToolUse, act: Act | None, folder: WorkingFolder) -> list[str]:
    """Files that the call changed, by what was asked for: edits, patches, and what a shell writes, moves or removes."""
    if isinstance(act, FileEdit):
        return list(dict.fromkeys(change.path for change in act.changes if change.path))
    old, new = (field(use.fields, *names) for names in (("old_string", "old_str"), ("new_string", "new_str")))
    if use.edits_files and not (old and old == new):
        # An empty file, or an edit of which only the file's name was kept.
        return [folder.relative(path) for path in use.paths[:1]]
    return []


def _read_edit(use: ToolUse, folder: WorkingFolder) -> Act:
    """The changes of an edit."""
    changes = file_changes.read_file_changes(use, folder)
    return FileEdit(changes) if changes else IgnoredEvent(f"no effect: {use.tool}")


def _read_shell(use: ToolUse, folder: WorkingFolder, branch: Branch, shells: BackgroundShells, *, has_failed: bool) -> Act:
    """What a shell command did: changes of files, a run with its outcome, or nothing to record."""
    line = use.command or use.patch
    if not line.strip():
        return IgnoredEvent("no effect: empty command")
    if use.patch and not has_failed:
        return _read_edit(use, folder)
    command = read_command_line(line)
    is_background = use.fields.get("run_in_background") is True or "backgroundTaskId" in use.answer
    if is_background and not has_failed:
        shells.add(use)
        return IgnoredEvent(f"started in the background: {command.main.label}")
    folder = _entered(use, folder)
    return _read_run(command, read_outcome(command, use.output, use.error, folder, is_failed=has_failed), folder, branch)


def _entered(use: ToolUse, folder: WorkingFolder) -> WorkingFolder:
    """The folder that the call names for its command, where it names one."""
    named = field(use.fields, *_FOLDER_FIELDS).strip()
    return WorkingFolder(folder.root, folder.resolve(named)) if named else folder


def _read_run(command: CommandLine, outcome: Outcome, folder: WorkingFolder, branch: Branch) -> Act:
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
    return CommandRun(command, outcome, folder, read_results(command, outcome, folder, branch))


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
        return [FileChange(path=paths[1], verb="moved", old_path=paths[0])] if len(paths) == 2 else []
    if program == "rm":
        removed = [path for path in paths[:10] if not path.startswith("/tmp/")]  # noqa: S108 - as above
        return [FileChange(path=path, verb="removed") for path in removed]
    return [FileChange(path=path, sample=f"`sed` {shorten(arguments[0], 70)}") for path in paths[1:10]]


_EDITS = (ToolKind.EDIT, ToolKind.WRITE)
_LOOKUPS = (ToolKind.READ, ToolKind.SEARCH, ToolKind.PROCESS, ToolKind.LOOKUP)
_FAILED_CALLS = {
    **dict.fromkeys(_EDITS, "edit did not apply"),
    **dict.fromkeys((*_LOOKUPS, ToolKind.WEB, ToolKind.MCP), "look-up failed"),
    ToolKind.AGENT: "did not finish",
    ToolKind.QUESTION: "nothing answered",
    ToolKind.PLAN: "the agent's own plan",
}
"""Why a call that failed is ignored."""
