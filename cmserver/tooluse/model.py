"""What a tool call of a coding agent is, whichever agent made it."""

from __future__ import annotations

from enum import Enum

import msgspec

from cmserver.base.tolerant_json import record


class ToolKind(Enum):
    """What a tool is for."""

    EDIT = "edit"
    """Changes a part of a file, or several files by a patch."""
    WRITE = "write"
    """Writes a file as a whole."""
    READ = "read"
    SEARCH = "search"
    """Looks for files or text, or lists a folder."""
    SHELL = "shell"
    """Runs a command."""
    PROCESS = "process"
    """Looks at, or ends, a command that runs in the background."""
    WEB = "web"
    AGENT = "agent"
    """Gives a task to a sub-agent."""
    PLAN = "plan"
    """Keeps the agent's own list of tasks."""
    QUESTION = "question"
    """Asks the user, or shows a plan, and gets the answer."""
    LOOKUP = "lookup"
    """Asks the editor about code."""
    MCP = "mcp"
    """A tool of an MCP server."""
    OTHER = "other"


class ToolUse(msgspec.Struct, frozen=True, kw_only=True):
    """One tool call. A text field is empty, and `paths` has no entry, where the call names none."""

    kind: ToolKind
    tool: str
    """The tool's name as its agent writes it."""
    command: str = ""
    """The shell's command line; a script behind `bash -lc` without that. Empty for a patch."""
    paths: list[str] = []
    """Files and folders that the input names (else its patch, else the output), as written there: the main one first, each once.

    Empty for a shell command: what that reads or writes is not known for certain.
    """
    patch: str = ""
    """The text of a patch: `*** Begin Patch`, or a unified diff."""
    input: object = None
    """As the agent sent it."""
    fields: dict[str, object] = {}
    """The input as an object; empty where it was a bare string or a list."""
    output: object = None
    """As the agent sent it."""
    error: str | None = None
    """What a failed call reported."""

    @property
    def path(self) -> str:
        """The file or folder that the call is about."""
        return self.paths[0] if self.paths else ""

    @property
    def answer(self) -> dict[str, object]:
        """The output as an object; empty where it was none."""
        return record(self.output)

    @property
    def edits_files(self) -> bool:
        return self.kind in {ToolKind.EDIT, ToolKind.WRITE}
