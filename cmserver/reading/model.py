"""One event of an agent as it was read: its tool call, and what happened."""

from __future__ import annotations

from typing import Literal

import msgspec

from cmserver.base.text import join_names, shorten
from cmserver.tooluse.model import CommandLine, ToolKind, ToolUse, WorkingFolder

Verb = Literal["added", "changed", "removed", "moved", "rewrote", "wrote"]
"""What was done to a file as a whole; `changed` is for a part of it."""
CommandKind = Literal["check", "commit", "deed", "other"]

PROMPT_TYPES = frozenset({"user_prompt", "UserPromptSubmit"})
"""Events that are a prompt of the user."""
REPLY_TYPE = "assistant_message"
"""The event that carries an agent's last words of a turn."""


class Branch(msgspec.Struct, frozen=True):
    """A branch. One that the client told needs no guess; `is_elsewhere` is true when the session came to it from an unknown one."""

    name: str = ""
    is_elsewhere: bool = False
    is_told: bool = False


UNKNOWN_BRANCH = Branch()


class EditedPlace(msgspec.Struct, frozen=True):
    """What an edit puts into one place of a file, and takes out of it, as tokens; see `edit_tokens`."""

    put_in: frozenset[int] = frozenset()
    took_out: frozenset[int] = frozenset()


class CommandResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of a command that an observation's events ran. Stored in its metadata, for later batches."""

    command: str
    """The check's name (`pytest`), else the command line; equal names are attempts at the same thing."""
    kind: CommandKind
    passed: bool
    failure: str = ""
    """What failed: one test, how many tests, or the error."""
    selectors: list[str] = []
    """What a check was limited to: paths, tests, packages; empty when it ran everything."""
    failing: list[str] = []
    """The files of the failing tests, else their names; empty when the output does not say."""
    folder: str | None = None
    """Where it ran, as seen from the root: "" there, `*/name` for a package, `**` at the end for all packages below; None in what
    was stored before this was known."""
    branch: str = ""
    """The branch it ran on, where that is known."""
    is_elsewhere: bool = False
    """Whether its turn switched to that branch from another one, of which nothing is known."""
    settings: list[str] = []
    """What its line set in the environment."""

    @property
    def identity(self) -> tuple[str, str | None, str, tuple[str, ...]]:
        """Runs of the same check have the same."""
        return self.command, self.folder, self.branch, tuple(self.settings)


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The end of one command."""

    failed: bool
    proof: Literal["exit", "report", ""] = ""
    """What says that it passed: the exit code of the command itself, or what a check reports. A masked code and silence do not."""
    exit_code: int | None = None
    counts: str = ""
    """The counts of tests as the runner prints them: "2 failed, 31 passed"."""
    failing_tests: list[str] = []
    """The names of the failing tests, those that the output has."""
    failing_files: list[str] = []
    """The files that the output names for them."""
    error: str = ""
    """The line that says most about the failure, at most 160 characters; empty when the command did not fail."""
    place: str = ""
    """Where it failed, when the output says: "orders/pricing.py:12"."""
    output: str = ""

    @property
    def failure(self) -> str:
        """What failed, in a few words: the one test, how many tests, or the error."""
        if len(self.failing_tests) > 1:
            return f"{len(self.failing_tests)} failing tests"
        return shorten(self.failing_tests[0] if self.failing_tests else self.error, 50)


class UserRule(msgspec.Struct, frozen=True):
    """What a user lays down for good, in their own words, with its exception and its reason."""

    text: str
    title: str


class OpenEnd(msgspec.Struct, frozen=True):
    """Something not done yet: as it was written, and in a title the clause that says it with what it is about."""

    text: str
    title: str


class FileChange(msgspec.Struct, frozen=True, kw_only=True):
    """What was done to one file."""

    path: str
    verb: Verb = "changed"
    old_path: str = ""
    """Where it was before it was moved."""
    plus: int = 0
    minus: int = 0
    names: list[str] = []
    """What the changed lines define or stand in."""
    sample: str = ""
    """The first changed line that tells something: "`old` → `new`", "added `new`", "removed `old`"."""

    def fact(self) -> str:
        """The change in one line: path, counted lines, names and a sample."""
        head = f"{self.path} (+{self.plus}/-{self.minus})" if self.plus or self.minus else self.path
        tail = "; ".join(filter(None, [join_names(self.names, 4), self.sample]))
        return shorten(f"{head}: {tail}" if tail else head, 220)


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
    folder: WorkingFolder
    results: list[CommandResult]
    """What later runs are compared with: the main command's first, then those of the line's other checks."""

    @property
    def is_proved(self) -> bool:
        """Whether it is known to have passed."""
        return not self.outcome.failed and bool(self.outcome.proof)

    @property
    def known_results(self) -> list[CommandResult]:
        """Those of which it is known how they ended."""
        return self.results if self.outcome.failed or self.outcome.proof else self.results[1:]

    @property
    def result(self) -> CommandResult:
        """That of the main command."""
        return self.results[0]


Act = IgnoredEvent | FileEdit | CommandRun


class EventReading(msgspec.Struct, frozen=True, kw_only=True):
    """What one stored event says. It is read once, for everything that is made of it."""

    event_type: str
    payload: object
    """As it is stored."""
    folder: WorkingFolder
    tool_use: ToolUse | None
    """None for an event that is no call of a tool."""
    has_failed: bool
    """Whether the call failed."""
    act: Act | None
    """None for what neither changes files nor runs a command: a page, a report, a reply, a message."""
    prompt: str = ""
    """What the user typed; empty for an event of another kind."""
    branch: Branch = UNKNOWN_BRANCH
    """The branch that is checked out after it."""
    changed_files: list[str] = []
    """Relative to the root. A call that failed changes none."""
    agent_id: str | None = None
    agent_type: str | None = None
    """Of the sub-agent that caused the event; None for the session's own agent."""
    occurred_at_epoch: int = 0
    """Milliseconds since 1970; 0 when unknown."""

    @property
    def is_by_user(self) -> bool:
        """Whether the user said it: a prompt, or the answer to a question of the agent's."""
        return self.event_type in PROMPT_TYPES or (self.tool_use is not None and self.tool_use.kind is ToolKind.QUESTION)
