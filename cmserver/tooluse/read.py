"""Reads a tool call, by the names that agents give their tools and fields. Nothing here raises, whatever an agent has sent."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from urllib.parse import unquote, urlsplit

from cmserver.base.tolerant_json import array, field, record, texts
from cmserver.tooluse.model import ToolKind, ToolUse

_TOOLS: dict[ToolKind, str] = {
    ToolKind.EDIT: "Edit MultiEdit NotebookEdit apply_patch replace edit edit_file str_replace str_replace_editor "
    "str_replace_based_edit_tool search_replace multi_edit StrReplace Delete",
    ToolKind.WRITE: "Write write_file create_file write write_to_file",
    ToolKind.READ: "Read NotebookRead read read_file read_many_files read_multiple_files view view_file",
    ToolKind.SEARCH: "Grep Glob LS ToolSearch grep list search_file_content grep_search glob list_directory list_dir file_search",
    ToolKind.SHELL: "Bash Shell bash shell local_shell shell_command exec_command run_shell_command execute run_terminal_cmd",
    ToolKind.PROCESS: "BashOutput TaskOutput KillShell KillBash write_stdin",
    ToolKind.WEB: "WebFetch WebSearch webfetch websearch web_fetch google_web_search web_search",
    ToolKind.AGENT: "Agent Task task spawn_agent",
    ToolKind.PLAN: "TodoWrite TodoRead TaskCreate TaskUpdate TaskList TaskGet update_plan write_todos todowrite todoread",
    ToolKind.QUESTION: "AskUserQuestion ExitPlanMode exit_plan_mode ask_user request_user_input question",
    ToolKind.LOOKUP: "LSP lsp",
}
"""What coding agents call their tools. A new tool is one word here."""

TOOL_KINDS: dict[str, ToolKind] = {name: kind for kind, names in _TOOLS.items() for name in names.split()}

FILE_KINDS = {ToolKind.EDIT, ToolKind.WRITE, ToolKind.READ}
"""Tools that work on named files; an MCP server's `write_file` with a path is one, too."""

PATH_FIELDS = (
    "file_path", "filePath", "filepath", "notebook_path", "notebookPath", "absolute_path", "absolutePath", "path", "target_file",
    "targetFile", "filename", "fileName", "file_name", "relative_path", "relativePath", "relative_workspace_path", "old_path",
    "oldPath", "new_path", "newPath", "source_path", "sourcePath", "destination_path", "destinationPath", "dir_path", "dirPath",
    "dir", "directory", "folder", "file",
)  # fmt: skip
"""Fields that name a file or a folder. Before a field that names the main one of several comes none that does not."""

PATH_LIST_FIELDS = ("paths", "file_paths", "filePaths", "files", "edits", "changes")
"""Fields that hold several: a list of names, a list of objects with PATH_FIELDS, or an object whose keys are the names."""

COMMAND_FIELDS = ("command", "cmd", "script")
PATCH_FIELDS = ("patch", "input", "diff", "command")

READING_COMMANDS = {"view"}
"""Values of `command` by which an editing tool only reads."""

BEGIN_PATCH = "*** Begin Patch"
_PATCHED_FILE = re.compile(r"^\*\*\* (?:(?:Add|Update|Delete) File|Move to): (.+)$", re.MULTILINE)
_DIFFED_FILE = re.compile(r"^(?:---|\+\+\+) (?:[ab]/)?([^\t\n]+)", re.MULTILINE)
_DIFF = re.compile(r"^--- .+\n\+\+\+ .+$", re.MULTILINE)
_NO_FILE = "/dev/null"
_MAX_PATHS = 1_000
_MAX_WORDS = 1_000
_MCP = "mcp__"


def read_tool_use(tool: str | None, tool_input: object, output: object = None, error: str | None = None) -> ToolUse:
    """The tool call of any agent as a ToolUse. Unknown tools are of kind OTHER, with the paths and the command they name."""
    name = tool or ""
    fields = record(tool_input)
    patch = _patch(fields, tool_input)
    kind = _kind(name, fields)
    # A text that is written to a named file may look like a patch of other files.
    named = list(_paths(fields)) if kind is not ToolKind.SHELL else []
    named = named or _patched_files(patch)
    if not named and kind in FILE_KINDS:
        named = _answered_paths(record(output))
    if kind in FILE_KINDS and name.startswith(_MCP) and not named:
        kind = ToolKind.MCP
    has_command = kind in {ToolKind.SHELL, ToolKind.MCP, ToolKind.OTHER} and not patch
    return ToolUse(
        kind=kind,
        tool=name,
        command=_command(fields, tool_input if kind is ToolKind.SHELL else None) if has_command else "",
        paths=list(dict.fromkeys(named))[:_MAX_PATHS],
        patch=patch,
        input=tool_input,
        fields=fields,
        output=output,
        error=error,
    )


def _kind(name: str, fields: dict[str, object]) -> ToolKind:
    kind = TOOL_KINDS.get(name)
    if kind is ToolKind.EDIT and field(fields, "command") in READING_COMMANDS:
        return ToolKind.READ
    if kind is None and name.startswith(_MCP):
        served = TOOL_KINDS.get(name.rpartition("__")[2])
        return served if served in FILE_KINDS else ToolKind.MCP
    return kind or ToolKind.OTHER


def _command(fields: dict[str, object], bare_input: object) -> str:
    """The command line in the first field that has one, else in an input that is no object; "" when there is none."""
    for name in COMMAND_FIELDS:
        if command := _command_line(fields.get(name)):
            return command
    return _command_line(bare_input)


def _command_line(value: object) -> str:
    """A command as one line. Codex sends `["bash", "-lc", "npm ci"]`: the script is the last word."""
    if isinstance(value, str):
        return value
    words = texts(value)[:_MAX_WORDS]
    return words[2] if len(words) == 3 and words[1] in {"-c", "-lc"} else shlex.join(words)


def _patch(fields: dict[str, object], tool_input: object) -> str:
    for value in (*(fields.get(name) for name in PATCH_FIELDS), tool_input):
        text = value if isinstance(value, str) else "\n".join(texts(value)[:_MAX_WORDS])
        if BEGIN_PATCH in text or _DIFF.search(text):
            return text
    return ""


def _patched_files(patch: str) -> list[str]:
    names = _PATCHED_FILE.findall(patch) if BEGIN_PATCH in patch else _DIFFED_FILE.findall(patch)
    return [path for name in names if (path := name.strip()) and path != _NO_FILE]


def _paths(fields: dict[str, object]) -> Iterator[str]:
    """The paths in the fields of a tool's input, also those in lists."""
    yield from _named_paths(fields)
    for name in PATH_LIST_FIELDS:
        value = fields.get(name)
        yield from record(value)  # {"a.py": "its content"}
        for item in array(value):
            if isinstance(item, str):
                yield from filter(None, [item.strip()])
            else:
                yield from _named_paths(record(item))


def _answered_paths(answer: dict[str, object]) -> list[str]:
    """The file that the tool answers with, where its input was lost."""
    return [*_named_paths(answer), *_named_paths(record(answer.get("file")))]


def _named_paths(source: dict[str, object]) -> Iterator[str]:
    """The paths in an object's own fields, as they are written; `file:` addresses as paths."""
    for name in PATH_FIELDS:
        if path := field(source, name).strip():
            yield path
    for name in ("uri", "url"):
        if (uri := field(source, name)).startswith("file:"):
            yield unquote(urlsplit(uri).path)
