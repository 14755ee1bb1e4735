"""Knows an agent's look into our own memory: what it reads there is known already, and must not come in again as news."""

from __future__ import annotations

import re
import shlex
from typing import cast

# Claude Code and Codex write mcp__server__tool, Gemini mcp_server_tool; a plugin's server has the plugin's name before its own.
_TOOL = re.compile(r"mcp__?(?:plugin_)?(?:cmserver|claude-mem)_")
_SERVERS = ("cmserver", "claude-mem")
_SHELLS = {"Bash", "shell", "local_shell", "shell_command", "exec_command", "run_shell_command"}
"""What the agents call the tool that runs commands."""
_LONGEST = 4_000
_SILENCED = re.compile(r"\s2>(?:&1|\s?/dev/null)(?=\s|$|[|;&])")
_ASSIGNED = re.compile(r"[A-Za-z_]\w*=")
_CLIENT = re.compile(r"(?:^|/)(?:claude-code|codex|gemini)/hook$")
_READING = {"context", "sessions"}
_ROUTE = re.compile(r"/v1/(?:observations(?:/[\w-]+)?|search|context)/?(?:[?#].*)?$", re.DOTALL)
_MARK = re.compile(r"cmserver|\bcms_", re.IGNORECASE)
_WRITES = re.compile(r"-X\s*(?:PUT|PATCH|DELETE)|--request[ =](?:PUT|PATCH|DELETE)", re.IGNORECASE)
_TRIMS = {"cat", "head", "tail", "grep", "jq", "less", "wc", "sort", "cd", "echo", "true"}
_OPERATORS = {"|", "&&", "||", ";"}


def is_look(tool: str | None, tool_input: object, server: object = None) -> bool:
    """Whether a tool use only looks into our memory: by a tool of ours (`server` is its MCP server, if told), or by a command.

    So do the tools of the memory that ours takes the place of.
    """
    if server in _SERVERS or (tool is not None and _TOOL.match(tool) is not None):
        return True
    return tool in _SHELLS and _only_reads(tool_input)


def _only_reads(tool_input: object) -> bool:
    """Whether a shell's command does nothing else than to read here, perhaps through `head` or `jq`. In doubt it does not."""
    given = cast("dict[str, object]", tool_input) if isinstance(tool_input, dict) else {}
    command = given.get("command", given["cmd"] if "cmd" in given else cast("object", tool_input))
    words = [word for word in cast("list[object]", command) if isinstance(word, str)] if isinstance(command, list) else []
    if words:
        command = words[2] if len(words) == 3 and words[1] in {"-c", "-lc"} else shlex.join(words)
    if not isinstance(command, str) or len(command) > _LONGEST:
        return False
    parts = _parts(command)
    return any(map(_is_read, parts)) and all(_is_read(part) or part[0] in _TRIMS for part in parts)


def _parts(command: str) -> list[list[str]]:
    """The simple commands of a line; none when it has more to it than pipes and `&&`."""
    line = _SILENCED.sub(" ", command.strip().replace("\\\n", " "))
    if "\n" in line:
        return []
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    parts: list[list[str]] = [[]]
    try:
        for word in lexer:
            if word in _OPERATORS:
                parts.append([])
            elif set(word) <= set("();<>|&"):
                return []
            elif parts[-1] or not _ASSIGNED.match(word):
                parts[-1].append(word)
    except ValueError:  # a quotation that does not end
        return []
    return [part for part in parts if part]


def _is_read(words: list[str]) -> bool:
    program, arguments = words[0], words[1:]
    if _CLIENT.search(program):
        return arguments[:1] == ["recall"]
    if program == "cmserver" or program.endswith("/cmserver"):
        return bool(arguments) and arguments[0] in _READING
    said = " ".join(arguments)
    # Others may have such paths, too: something about it must be ours.
    return (
        program.rpartition("/")[2] == "curl"
        and _MARK.search(said) is not None
        and any(map(_ROUTE.search, arguments))
        and _WRITES.search(said) is None
    )
