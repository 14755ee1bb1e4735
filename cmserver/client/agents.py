"""The coding agents that `cmserver connect` knows: one `Agent` each, in the table AGENTS."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import cast

import msgspec

from cmserver.base.tolerant_json import array
from cmserver.client.json_settings import Json, json_object

CLAUDE_MEM = "claude-mem"
"""No agent but a plugin for one, which brings hooks and tools of its own: only its settings are changed."""


class Hook(msgspec.Struct, frozen=True):
    """One event of an agent that runs the hook client. `timeout` is in the agent's own unit."""

    event: str
    timeout: int
    matcher: str | None = None


class Agent(msgspec.Struct, frozen=True, kw_only=True):
    """An agent whose hooks stand below `hooks` in a JSON file."""

    name: str
    """In commands, of its client folder, and of its adapter on the server: /v1/hooks/NAME."""
    title: str
    """What people call it."""
    program: str
    home_variable: str
    """The environment variable that moves `home_folder`."""
    home_folder: str
    """Relative to the user's home folder."""
    settings_name: str
    """The settings file of the user, relative to `home_folder`."""
    folder_variable: str = ""
    """What the agent sets for its hooks to the folder in which it works; empty where that is the working folder."""
    session_variable: str = ""
    """What the agent sets for its hooks to the session's id; empty where only the payload has it."""
    hooks: tuple[Hook, ...]
    read_hook: Hook | None = None
    """Runs before a file is read, and only with --on-file: it costs every read the start of a program."""
    names_hooks: bool = False
    """Whether a hook has a name in the settings."""
    has_plugins: bool = False
    find_problems: Callable[[Json, Path], list[str]]
    """Sentences about what in the settings, or beside them, keeps hooks from running."""
    add_mcp: Callable[[Sequence[str]], list[str]]
    """The arguments with which the program starts a command as the MCP server `cmserver`, in all projects of the user."""

    def settings_file(self, environ: Mapping[str, str], home: Path) -> Path:
        """The user's own settings, which hold in all projects."""
        moved = environ.get(self.home_variable)
        return (Path(moved) if moved else home / self.home_folder) / self.settings_name


def _find_claude_code_problems(settings: Json, file: Path) -> list[str]:
    problems: list[str] = []
    if settings.get("disableAllHooks") is True:
        problems.append(f'{file} has "disableAllHooks": true. Nothing is recorded until you remove it.')
    if json_object(settings.get("enabledPlugins")).get("claude-mem@thedotmack") is True:
        problems.append("The plugin claude-mem is enabled as well, so the agent gets its memory twice. Disable one of them.")
    return problems


def _find_codex_problems(_settings: Json, file: Path) -> list[str]:
    """What the user of Codex should know, or has to change, before its hooks work."""
    problems = [
        "Codex runs only hooks that you have reviewed and trusted: type /hooks in Codex now, and again whenever they change.",
        "Versions of Codex in which hooks are off by default need codex_hooks = true below [features] in config.toml.",
    ]
    config_file = file.with_name("config.toml")
    try:
        config = cast("Json", tomllib.loads(config_file.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return problems
    features = json_object(config.get("features"))
    if features.get("hooks") is False or features.get("codex_hooks") is False:
        problems.append(f"{config_file} turns hooks off below [features]. Nothing is recorded until you remove that.")
    if json_object(config.get("hooks")).keys() - {"state"}:
        problems.append(f"{config_file} has hooks as well. Codex runs both, and warns about it at each start.")
    return problems


def _find_gemini_problems(settings: Json, file: Path) -> list[str]:
    problems: list[str] = []
    config = json_object(settings.get("hooksConfig"))
    if config.get("enabled") is False:
        problems.append(f'{file} has "hooksConfig": {{"enabled": false}}. Nothing is recorded until you remove it.')
    if "cmserver" in array(config.get("disabled")):
        problems.append(f"{file} lists cmserver among the disabled hooks. Nothing is recorded until you remove it.")
    return problems


def _hooks(timeout: int, *events: str) -> list[Hook]:
    return [Hook(event, timeout) for event in events]


AGENTS: dict[str, Agent] = {
    agent.name: agent
    for agent in (
        Agent(  # https://code.claude.com/docs/en/hooks; timeouts in seconds
            name="claude-code",
            title="Claude Code",
            program="claude",
            home_variable="CLAUDE_CONFIG_DIR",
            home_folder=".claude",
            settings_name="settings.json",
            folder_variable="CLAUDE_PROJECT_DIR",
            session_variable="CLAUDE_CODE_SESSION_ID",
            hooks=(
                *_hooks(
                    5, "SessionStart", "UserPromptSubmit", "PostToolUse", "PostToolUseFailure", "SubagentStart", "SubagentStop"
                ),
                *_hooks(5, "PreCompact", "PostCompact", "Stop", "StopFailure"),  # and not PostToolBatch, which repeats PostToolUse
                Hook("SessionEnd", 10),  # without a timeout, all hooks of this event share 1.5 seconds
            ),
            read_hook=Hook("PreToolUse", 5, matcher="Read"),
            has_plugins=True,
            find_problems=_find_claude_code_problems,
            add_mcp=lambda command: ["mcp", "add", "--scope", "user", "cmserver", "--", *command],
        ),
        Agent(  # https://developers.openai.com/codex/hooks; timeouts in seconds, at most 3 for SessionEnd
            name="codex",
            title="Codex",
            program="codex",
            home_variable="CODEX_HOME",
            home_folder=".codex",
            settings_name="hooks.json",  # takes no members but `hooks` and `description`
            hooks=(
                *_hooks(5, "SessionStart", "UserPromptSubmit", "PostToolUse", "SubagentStart", "SubagentStop"),
                *_hooks(5, "PreCompact", "PostCompact", "Stop", "StopFailure"),
                Hook("SessionEnd", 3),
            ),
            find_problems=_find_codex_problems,
            add_mcp=lambda command: ["mcp", "add", "cmserver", "--", *command],
        ),
        Agent(  # https://geminicli.com/docs/hooks/reference; timeouts in milliseconds
            name="gemini",
            title="Gemini CLI",
            program="gemini",
            home_variable="GEMINI_CLI_HOME",
            home_folder="",
            settings_name=".gemini/settings.json",
            folder_variable="GEMINI_PROJECT_DIR",
            session_variable="GEMINI_SESSION_ID",
            hooks=(
                *_hooks(5_000, "SessionStart", "BeforeAgent", "AfterTool", "AfterAgent", "PreCompress"),
                Hook("SessionEnd", 10_000),
            ),
            names_hooks=True,
            find_problems=_find_gemini_problems,
            add_mcp=lambda command: ["mcp", "add", "--scope", "user", "cmserver", command[0], "--", *command[1:]],
        ),
    )
}
