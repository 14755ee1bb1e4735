"""A hook's call and its answer: what all agents have in common once their own words are translated."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime
from typing import Literal
from uuid import UUID

import msgspec

from cmserver.ingest.model import EventIdentity
from cmserver.recall.model import SessionStart
from cmserver.tooluse.model import ToolUse

Moment = Literal["start", "prompt", "file", "turn_end", "end", "other"]
"""When in a session a hook runs: at its start, at a prompt, when a file is read, at the end of a turn or of the session."""


class HookEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event to be stored, and by what it is known whichever hook sends it, and however often (`identity`)."""

    event_type: str
    payload: object
    source_event_id: str | None
    identity: EventIdentity
    turn_id: str | None = None
    tool: ToolUse | None = None
    """The tool call, if it is one."""
    metadata: dict[str, object] = {}


class ToolEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How a tool use ended whose own hook did not say it."""

    tool_use_id: str
    exit_code: int | None
    """0 also where a task that is no command is done."""
    report: str = ""
    """What a sub-agent found."""
    command: list[str] = []
    """The words of the command, where they are known."""


class HookCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a hook. `events` is empty when there is nothing to store."""

    name: str
    """The agent's name for the hook."""
    session_id: str
    cwd: str | None
    moment: Moment
    events: list[HookEvent] = []
    source: SessionStart = "startup"
    """At the start."""
    tool_ends: list[ToolEnd] = []
    """Of tool uses that were told of before."""
    prompt: str | None = None
    """At a prompt."""
    file: str | None = None
    """When a file is read: its path as the agent names it."""
    said_at: datetime | None = None
    """Of an agent's last words that its transcript has: when it said them. They are stored where no others came."""
    is_subagent: bool = False
    """Whether an agent within the session calls; its turns are not those of the session."""
    metadata: dict[str, object] = {}
    """At the start: what is kept with the session."""


class HookHeaders(msgspec.Struct, frozen=True, kw_only=True):
    """What the hook client says beside the payload, in headers `X-Cmserver-...`. Empty texts where it says nothing."""

    project: str = ""
    """The project's name in `.cmserver.toml`."""
    git_remote: str = ""
    git_branch: str = ""
    git_commit: str = ""
    """The commit that is checked out, where the client could tell it without git."""
    clone_id: UUID | None = None
    """The clone, or the work tree, in which the agent works."""
    root: str = ""
    """The root of the repository."""
    name_before: str = ""
    """What the folder was called when the client saw it last, if that was otherwise."""
    changed_files: list[str] = []
    """Files that the working tree has changed."""
    hook: str = ""
    """The path of the client: what the agent is told to read more with."""
    sent_at: datetime | None = None
    is_late: bool = False
    """Whether it comes from the client's spool; nobody reads the answer."""


class HookReply(msgspec.Struct, frozen=True, kw_only=True):
    """What a hook answers: context for the model, and a message that the user sees."""

    context: str | None = None
    message: str | None = None


class SpecificOutput(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The part of the output that belongs to one kind of hook."""

    hook_event_name: str
    additional_context: str


class HookOutput(msgspec.Struct, rename="camel", frozen=True, kw_only=True, omit_defaults=True):
    """A reply in the names that the agents use. Absent fields are left out: an unknown key is an error to some agents."""

    hook_specific_output: SpecificOutput | None = None
    system_message: str | None = None
    additional_context: str | None = msgspec.field(default=None, name="additional_context")
    """In Cursor."""
    flat_context: str | None = msgspec.field(default=None, name="additionalContext")
    """In Copilot CLI."""


class Adapter(msgspec.Struct, frozen=True, kw_only=True):
    """One agent."""

    platform: str
    parse: Callable[[object, str | None], HookCall]
    """From payload and delivery id. Stores unknown kinds of hooks; raises Invalid only for what is not a hook's payload."""
    context_hooks: Collection[str]
    """Their output may hold context."""
    silent_hooks: Collection[str]
    """Their output must be empty: at the end of a turn any text would make the model go on, and some have no output schema."""
    starts_with_prompt: bool = False
    """Whether the index is given with the first prompt after a start, because the start's own output harms."""
    flat_field: Literal["", "additional_context", "additionalContext"] = ""
    """The field on the wire that is the whole output, where the agent takes context at the top and nothing else."""
