"""Recognises an agent's reading of our own memory, and its use of what is its person's alone: neither is recorded again."""

from __future__ import annotations

import re
from itertools import pairwise

from cmserver.tooluse.model import ToolKind, ToolUse
from cmserver.tooluse.shell import MAX_COMMAND, split_commands, without_assignments

# Claude Code and Codex write mcp__server__tool, Gemini mcp_server_tool, OpenCode and Kilo server_tool, Copilot CLI server-tool, and
# Cursor MCP:tool without the server; a plugin's server has the plugin's name before its own.
_TOOL = re.compile(r"(?:mcp__?(?:plugin_)?(?:cmserver|claude-mem)_|(?:MCP:|cmserver[_-])observation_)")
_SERVERS = ("cmserver", "claude-mem")
_SILENCED = re.compile(r"\s2>(?:&1|\s?/dev/null)(?=\s|$|[|;&])")
_QUOTED = re.compile(r"""'[^']*'|"(?:\\.|[^"\\])*"|\\.""", re.DOTALL)
_UNUSUAL = re.compile(r"""[\n()<>'"`]|(?<!&)&(?!&)""")
"""Outside of quotes: several lines, subshells, redirections, background commands, an unclosed quote."""
_SUBSTITUTION = re.compile(r"(?<!\\)(?:`|\$\()")
_CLIENT = re.compile(r"(?:^|/)[a-z][a-z0-9-]*/hook$")
"""The hook client in the folder of its agent, which may be any."""
_READING = {"context", "mine", "search", "sessions"}
"""`mine`, which also writes, is its person's alone."""
_OF_ONE = {"show", "undo"}
"""Of what is its person's alone where they name one of it (m12)."""
_PERSONAL_NAME = re.compile(r"#?[Mm][0-9]+")
_ROUTE = re.compile(r"/v1/(?:(?:personal-)?observations(?:/[\w-]+)?|search|context)/?(?:[?#].*)?$", re.DOTALL)
_MARK = re.compile(r"cmserver|\bcms_", re.IGNORECASE)
_WRITES = re.compile(r"-X\s*(?:PUT|PATCH|DELETE)|--request[ =](?:PUT|PATCH|DELETE)", re.IGNORECASE)
_TRIMS = {"cat", "head", "tail", "grep", "jq", "less", "wc", "sort", "cd", "echo", "true"}


def reads_own_memory(use: ToolUse, server: object = None) -> bool:
    """Whether a tool call only reads our memory, or is about what is its person's alone: by our own tool (of the MCP `server`, if
    named) or by a shell command.

    The tools of claude-mem, which cmserver replaces, count too.
    """
    if server in _SERVERS or _TOOL.match(use.tool) is not None:
        return True
    return use.kind is ToolKind.SHELL and _only_reads(use.command)


def _only_reads(command: str) -> bool:
    """Whether a command line only reads our memory, perhaps through `head` or `jq`; False in doubt."""
    if len(command) > MAX_COMMAND:
        return False
    parts = _parts(command)
    return any(map(_is_read, parts)) and all(_is_read(part) or part[0] in _TRIMS for part in parts)


def _parts(command: str) -> list[list[str]]:
    """The simple commands of a line; none when it uses more than pipes and `&&`."""
    line = _SILENCED.sub(" ", command.strip().replace("\\\n", " "))
    if _UNUSUAL.search(_QUOTED.sub(_substitutions, line)):
        return []
    return [words for part in split_commands(line) if (words := without_assignments(part.words))]


def _substitutions(quoted: re.Match[str]) -> str:
    """The signs of commands within double quotes, which the shell runs."""
    return "".join(_SUBSTITUTION.findall(quoted[0])) if quoted[0].startswith('"') else ""


def _is_for_me(arguments: list[str]) -> bool:
    return "--for=me" in arguments or ("--for", "me") in pairwise(arguments)


def _is_read(words: list[str]) -> bool:
    """Whether the command only reads the memory, or is about what is personal: of our program, or curl on such a route."""
    program, arguments = words[0], words[1:]
    if _CLIENT.search(program):
        return arguments[:1] == ["recall"]
    if program == "cmserver" or program.endswith("/cmserver"):
        return bool(arguments) and (
            arguments[0] in _READING
            or (arguments[0] == "remember" and _is_for_me(arguments))
            or (arguments[0] in _OF_ONE and any(map(_PERSONAL_NAME.fullmatch, arguments[1:])))
        )
    line = " ".join(arguments)
    # Other servers may have such paths: the line must also name cmserver or one of its keys.
    return (
        program.rpartition("/")[2] == "curl"
        and _MARK.search(line) is not None
        and any(map(_ROUTE.search, arguments))
        and _WRITES.search(line) is None
    )
