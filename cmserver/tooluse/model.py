"""What a tool call of a coding agent is, whichever agent made it."""

from __future__ import annotations

import posixpath
import re
from enum import Enum, IntEnum

import msgspec

from cmserver.base.tolerant_json import record

_SELECTING_FLAGS = {"--test", "--tests", "--package", "--filter", "--grep", "--project", "--shard", "--scope", "--features"}
_LIMITING_FLAGS = {"--changed", "--onlyChanged", "--affected", "--changedSince", "--since"}
"""Flags by which a check runs no more than some of its tests: which, is not known."""
_OTHER_FLAGS = {
    "-n",
    "-c",
    "-j",
    "-o",
    "-W",
    "--maxfail",
    "--tb",
    "--workers",
    "--cov",
    "--config",
    "--reporter",
    "--count",
    "--seed",
}
"""Flags whose values select nothing."""
_EVERYTHING = {"", ".", "...", "tests", "test", "src", "spec", "run", "all", "clean"}
_ABSOLUTE = re.compile(r"[/\\~]|[A-Za-z]:")
_NUMBER_SETTING = re.compile(r"\b[A-Z]\w*=\d{2,}\b")
"""In the environment of a check: another port, another seed, other results."""


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


class Purpose(IntEnum):
    """What a command is for. Of a line with several commands the highest counts."""

    LOOK = 0
    ROUTINE = 1
    OTHER = 2
    FILES = 3
    DEED = 4
    INSTALL = 5
    CHECK = 6
    TEST = 7
    COMMIT = 8


class CommandPlace(msgspec.Struct, frozen=True):
    """Where a command works, as it is written there: a folder, a package by its name, and whether it is all packages below."""

    folder: str = ""
    package: str = ""
    is_all: bool = False


_OTHER_STASH = {"pop", "apply", "drop", "list", "show", "clear", "branch"}


class SimpleCommand(msgspec.Struct, frozen=True, kw_only=True):
    """One simple command of a line. `label` names its program and purpose (`pytest`, `git push`, `npm test`)."""

    purpose: Purpose
    label: str
    words: list[str]
    output_path: str | None = None
    """The file its output is redirected to."""
    appends: bool = False
    operator: str = ""
    """What stands behind it: `;`, `&&`, `||`, `|`, `&` or a line's end."""
    is_negated: bool = False
    source: str = ""
    """As it was written, without redirections."""
    place: CommandPlace = CommandPlace()
    """Where it works, as the line says it."""
    settings: list[str] = []
    """What the line sets in its environment: `DB=postgres`."""

    @property
    def is_check(self) -> bool:
        """True for test runs and other checks of the code."""
        return self.purpose in {Purpose.TEST, Purpose.CHECK}

    @property
    def key(self) -> str:
        """Two runs with the same key try the same thing: checks and commits by their label, other commands by their words."""
        numbers = "".join(f"{setting} " for setting in _NUMBER_SETTING.findall(self.source)) if self.is_check else ""
        return numbers + self.label if self.is_check or self.purpose is Purpose.COMMIT else self.source

    @property
    def selectors(self) -> list[str]:
        """What a check is limited to: paths, tests, packages. Empty when it runs everything."""
        label, previous, selectors = self.label.split(), "", list[str]()
        for word in self.words[1:]:
            flag, _, value = word.partition("=")
            if flag in _LIMITING_FLAGS:
                selectors.append(word)
            elif flag in _SELECTING_FLAGS and value:
                selectors.append(value)
            elif not word.startswith("-") and word not in label and not word.isdigit() and previous not in _OTHER_FLAGS:
                selectors.append(word.removeprefix("./").rstrip("/"))
            previous = word
        return [selector for selector in selectors if selector not in _EVERYTHING and not selector.startswith("no:")]


def _puts_away(command: SimpleCommand) -> bool:
    """Whether it puts the changes on the stash: `git stash`, and not `git stash pop`."""
    return command.label == "git stash" and not _OTHER_STASH & set(command.words)


class CommandLine(msgspec.Struct, frozen=True, kw_only=True):
    """A command line, understood by its most telling command."""

    text: str
    """Short enough for a title, without `cd` and redirections where one command tells it all."""
    main: SimpleCommand
    commands: list[SimpleCommand]
    heredocs: list[str]

    @property
    def is_check(self) -> bool:
        """True for test runs and other checks of the code."""
        return self.main.is_check

    @property
    def decides_exit_code(self) -> bool:
        """Whether exit code 0 of the line says that the main command ended with 0: it ran, and nothing hides how it ended."""
        return self.is_decided(self.main)

    def is_decided(self, command: SimpleCommand) -> bool:
        """Whether exit code 0 of the line says that this command of it ended with 0."""
        place = next(place for place, it in enumerate(self.commands) if it is command)
        before, behind = [it.operator for it in self.commands[:place]], [it.operator for it in self.commands[place:]]
        same_list = before[max((at + 1 for at, operator in enumerate(before) if operator in {";", "\n", "&"}), default=0) :]
        is_last = all(operator == "&&" for operator in behind[:-1]) and behind[-1] in {"", ";", "\n"}
        return is_last and "||" not in same_list and not command.is_negated

    @property
    def compares(self) -> bool:
        """Whether it runs a check without the changes, which wait in a stash meanwhile."""
        first = next((it for it in self.commands if _puts_away(it) or it.purpose >= Purpose.CHECK), None)
        return self.is_check and first is not None and _puts_away(first)

    @property
    def key(self) -> str:
        """That of the main command; the text where that says little without what stands before it (`echo no; exit 3`)."""
        first = next((it for it in self.commands if it.label not in {"cd", "pushd"}), self.main)
        return self.main.key if self.main.purpose > Purpose.OTHER or first is self.main else self.text


class WorkingFolder(msgspec.Struct, frozen=True):
    """The root that paths are shown from, and the folder where the agent works, from which it writes relative ones.

    The root is the repository's. Where none is known, or the agent works elsewhere, it is the folder itself.
    Paths of Windows are read on every system. What is returned has `/` between names, and no `..` that can be resolved.
    """

    root: str = ""
    folder: str = ""

    def resolve(self, path: str, folder: str = "") -> str:
        """The whole path. A relative one begins in `folder`, which a command entered, else where the agent works."""
        for base in (folder, self.folder, self.root):
            if base and not _ABSOLUTE.match(path):
                path = f"{base}/{path}"
        path = posixpath.normpath(path.replace("\\", "/"))
        return path[0].upper() + path[1:] if path[1:2] == ":" else path

    def relative(self, path: str) -> str:
        """The path as seen from the root; the whole path for what is outside it."""
        root = self.root and self.resolve(self.root).rstrip("/")
        whole = path and self.resolve(path)
        if not root:
            return whole
        return "." if whole == root else whole.removeprefix(f"{root}/")


def is_absolute(path: str) -> bool:
    """Whether the path begins at a root, of Windows, too."""
    return _ABSOLUTE.match(path) is not None


def find_working_folder(root: str | None, folder: str | None) -> WorkingFolder:
    """Where an agent works, in the repository of that root if the folder is in it."""
    root, folder = (root or "").rstrip("/"), (folder or "")
    is_outside = _ABSOLUTE.match(WorkingFolder(root).relative(folder))
    return WorkingFolder(folder if is_outside or not root else root, folder)
