"""The files of an agent that `cmserver connect` changes: how our part gets into each, and out of it again."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from cmserver.base.errors import Conflict
from cmserver.base.tolerant_json import texts
from cmserver.client import json_settings
from cmserver.client.json_edit import Addition, add_values, remove_values

SERVER_NAME = "cmserver"
"""Of the MCP server in an agent's settings."""
PLUGIN_NAME = "cmserver@cmserver"
"""The plugin and its marketplace, as agents' own commands take them."""
PLUGIN_TOOL_PREFIX = "mcp__plugin_cmserver_cmserver__"
"""Begins the names of the plugin's tools in Claude Code."""

READING_TOOLS = ("observation_search", "observation_timeline", "observation_get", "observation_why", "observation_context")
"""Our MCP tools that only read: an agent may call them without asking."""

_BLOCK_START = "<!-- cmserver: begin. `cmserver disconnect` removes this block. -->"
_BLOCK_END = "<!-- cmserver: end -->"


class Hook(msgspec.Struct, frozen=True):
    """One event of an agent that runs the hook client. `timeout` is in the agent's own unit."""

    event: str
    timeout: int
    matcher: str | None = None
    argument: str | None = None
    """What the hook client is called with, where that is not the event: it knows the start of a session as SessionStart."""

    def command(self, program: Path) -> str:
        return json_settings.hook_command(program, self.argument or self.event)


class AgentPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Where an agent's files are on this machine, and what is written into them."""

    name: str
    environ: Mapping[str, str]
    home: Path
    platform: str
    """As `sys.platform` has it."""
    hook: Path
    """The hook client."""
    hooks: tuple[Hook, ...]
    is_our_hook: json_settings.IsOurs
    mcp_command: tuple[str, ...]
    """Starts the MCP bridge; empty where the server has no MCP."""
    has_plugin: bool = False
    """Whether a plugin brings the hooks and the tools."""

    @property
    def recall_command(self) -> str:
        """How the index tells the agent to read more in a shell."""
        return f"{shlex.quote(str(self.hook))} recall"

    @property
    def config_home(self) -> Path:
        """Where desktop programs keep their settings."""
        if self.platform == "darwin":
            return self.home / "Library" / "Application Support"
        return self.xdg_config_home

    @property
    def xdg_config_home(self) -> Path:
        """Where programs for the terminal keep their settings, on every platform."""
        configured = self.environ.get("XDG_CONFIG_HOME")
        return Path(configured) if configured else self.home / ".config"


class Installation(msgspec.Struct, frozen=True, kw_only=True):
    """The text of a file with our part."""

    text: str | None
    made: list[str] = []
    """What was made for our part besides, so that it goes with it: see `json_edit.add_values`."""


class AgentFile(Protocol):
    """One file. Both verbs raise `UnusableSettings` or Conflict for a file that they cannot edit safely."""

    @property
    def path(self) -> Path: ...

    def install(self, text: str | None) -> Installation:
        """The text with our part; the same text when it has it already. None stands for no file."""
        ...

    def uninstall(self, text: str | None, made: Sequence[str]) -> str | None:
        """The text without our part; the same text when it has none, and None where no file is left."""
        ...


class GroupedHooks(msgspec.Struct, frozen=True, kw_only=True):
    """Hooks in the form of Claude Code: groups with a matcher, by event, below `hooks`; and values of ours beside them."""

    path: Path
    groups: Sequence[tuple[str, json_settings.Json]]
    is_ours: json_settings.IsOurs
    additions: tuple[Addition, ...] = ()

    def install(self, text: str | None) -> Installation:
        is_new = text is None
        if self.groups:
            text = json_settings.install_hooks(text, self.path, self.groups, self.is_ours)
        else:
            text = json_settings.uninstall_hooks(text, self.path, self.is_ours)
        made = [""] if is_new else []
        if not self.additions:
            return Installation(text=text, made=made)
        added, made_for_values = add_values(self.path, text, self.additions)
        return Installation(text=added, made=[*dict.fromkeys([*made, *made_for_values])])

    def uninstall(self, text: str | None, made: Sequence[str]) -> str | None:
        text = json_settings.uninstall_hooks(text, self.path, self.is_ours)
        return remove_values(self.path, text, self.additions, made)


class JsonFile(msgspec.Struct, frozen=True, kw_only=True):
    """Members and items of ours in a JSON file."""

    path: Path
    additions: tuple[Addition, ...]
    is_wanted: bool = True
    """Whether our values belong into it now; else those of an earlier time are removed."""

    def install(self, text: str | None) -> Installation:
        if not self.is_wanted:
            return Installation(text=remove_values(self.path, text, self.additions, ()))
        added, made = add_values(self.path, text, self.additions)
        return Installation(text=added, made=made)

    def uninstall(self, text: str | None, made: Sequence[str]) -> str | None:
        return remove_values(self.path, text, self.additions, made)


class TextBlock(msgspec.Struct, frozen=True, kw_only=True):
    """A block of ours at the end of a text that is the user's."""

    path: Path
    block: str

    def install(self, text: str | None) -> Installation:
        block = f"{_BLOCK_START}\n{self.block.strip()}\n{_BLOCK_END}\n"
        if text is not None and block in text:
            return Installation(text=text)
        before = self.uninstall(text, ()) or ""
        return Installation(text=f"{before}\n{block}" if before else block, made=[] if text else [""])

    def uninstall(self, text: str | None, made: Sequence[str]) -> str | None:
        if text is None:
            return None
        begin = text.find(_BLOCK_START)
        end = text.find(_BLOCK_END, begin)
        if begin < 0 or end < 0:
            return text
        before, after = text[:begin].removesuffix("\n") if begin else "", text[end + len(_BLOCK_END) :].removeprefix("\n")
        return None if "" in made and not before and not after else before + after


class OwnFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that is ours as a whole. `mark` is in each version of it."""

    path: Path
    text: str
    mark: str

    def install(self, text: str | None) -> Installation:
        if text is not None and text.strip() and self.mark not in text:
            raise Conflict(f"{self.path} is not from cmserver. It is left as it is. Rename it, then connect again.")
        return Installation(text=self.text)

    def uninstall(self, text: str | None, made: Sequence[str]) -> str | None:
        del made
        return None if text is not None and self.mark in text else text


# -- what the files of several agents have in common


def mcp_server(
    place: AgentPlace, path: Path, container: str, build_entry: Callable[[Sequence[str]], json_settings.Json]
) -> JsonFile:
    """The file with the MCP server `cmserver`, which starts the bridge with the agent's own key."""

    def is_ours(value: object) -> bool:
        entry = json_settings.json_object(value)
        words = [*texts(entry.get("command")), *texts(entry.get("args"))]  # a list, or a program with a list
        return any(words[at : at + 3] == ["mcp", "--agent", place.name] for at in range(len(words)))

    entry = Addition(container=(container,), name=SERVER_NAME, value=build_entry(place.mcp_command), is_ours=is_ours)
    return JsonFile(path=path, additions=(entry,), is_wanted=bool(place.mcp_command))


def grouped_hooks(place: AgentPlace, path: Path, *, names_hooks: bool, additions: tuple[Addition, ...] = ()) -> GroupedHooks:
    """The file with hooks in the form of Claude Code."""
    name = SERVER_NAME if names_hooks else None
    groups = [
        (hook.event, json_settings.hook_group(hook.command(place.hook), hook.timeout, matcher=hook.matcher, name=name))
        for hook in place.hooks
    ]
    return GroupedHooks(path=path, groups=groups, is_ours=place.is_our_hook, additions=additions)


def allow_rules(place: AgentPlace, tool_prefixes: Sequence[str], *, allowed: Sequence[str]) -> tuple[Addition, ...]:
    """Claude Code's rules that let the agent read the memory without asking: by its command, and tools with these prefixes."""
    tools = "|".join(re.escape(f"{prefix}{tool}") for prefix in tool_prefixes for tool in READING_TOOLS)
    ours = re.compile(rf"{tools}|Bash\(.*/{re.escape(place.name)}/hook'? recall:\*\)")
    rules = [f"Bash({place.recall_command}:*)", *(f"{prefix}{tool}" for prefix in allowed for tool in READING_TOOLS)]
    return tuple(
        Addition(
            container=("permissions", "allow"),
            name=None,
            value=rule,
            is_ours=lambda value: isinstance(value, str) and ours.fullmatch(value) is not None,
        )
        for rule in rules
    )


def listed_hooks(place: AgentPlace, path: Path) -> JsonFile:
    """The file with hooks in the form of Cursor: a list of commands by event, below `hooks`."""

    def is_ours(value: object) -> bool:
        command = json_settings.json_object(value).get("command")
        return isinstance(command, str) and place.is_our_hook(command)

    def is_version(value: object) -> bool:
        return value == 1

    hooks = [
        Addition(
            container=("hooks", hook.event),
            name=None,
            value={"command": hook.command(place.hook), "timeout": hook.timeout},
            is_ours=is_ours,
        )
        for hook in place.hooks
    ]
    return JsonFile(path=path, additions=(Addition(container=(), name="version", value=1, is_ours=is_version, yields=True), *hooks))
