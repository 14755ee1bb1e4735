"""The coding agents that `cmserver connect` knows: one `Agent` each, in the table AGENTS."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, cast

import msgspec

from cmserver.base.tolerant_json import array
from cmserver.client import agent_files
from cmserver.client.json_edit import Addition
from cmserver.client.json_settings import Json, json_object

TEMPLATES = Path(__file__).parent / "templates"

RULES = (TEMPLATES / "rules.md").read_text(encoding="utf-8")
"""How an agent reads the memory, for its rules file."""

CLAUDE_MEM = "claude-mem"
"""No agent but a plugin for one, which brings hooks and tools of its own: only its settings are changed."""


class Agent(msgspec.Struct, frozen=True, kw_only=True):
    """An agent, the files in which it is told of cmserver, and its hooks if it has any that the server understands."""

    name: str
    """In commands, of its client folder, and of its adapter on the server: /v1/hooks/NAME."""
    title: str
    """What people call it."""
    program: str
    home_variable: str = ""
    """The environment variable that moves `home_folder`."""
    home_folder: str = ""
    """Relative to the user's home folder."""
    settings_name: str = ""
    """The settings file of the user, relative to `home_folder`. Empty where `build_files` says which files there are."""
    build_files: Callable[[agent_files.AgentPlace], list[agent_files.AgentFile]] | None = None
    """The files that connecting changes. None for one file with hooks; the agent's own command then adds the MCP server."""
    folder_variable: str = ""
    """What the agent sets for its hooks to the folder in which it works; empty where that is the working folder."""
    session_variable: str = ""
    """What the agent sets for its hooks to the session's id; empty where only the payload has it."""
    prompt_event: str = ""
    """The hook of a prompt, where the model is given what it answers."""
    starts_with_prompt: bool = False
    """Whether the index is given with the first prompt (see `Adapter` of the hooks' door)."""
    transcripts: Literal["", "words", "commands"] = ""
    """What is read in the transcript that payloads name, where it is written line by line: the last words of a turn that was cut
    off, and with `commands` how commands ended."""
    hooks: tuple[agent_files.Hook, ...] = ()
    read_hook: agent_files.Hook | None = None
    """Runs before a file is read, and only with --on-file: it costs every read the start of a program."""
    build_permissions: Callable[[agent_files.AgentPlace], tuple[Addition, ...]] = lambda _place: ()
    """What lets the agent read the memory without asking, beside the hooks in the settings."""
    build_rules_file: Callable[[agent_files.AgentPlace, Path], agent_files.AgentFile] | None = None
    """The same as a file of ours in the folder of the settings."""
    names_hooks: bool = False
    """Whether a hook has a name in the settings."""
    has_plugins: bool = False
    records: bool = True
    """Whether what the agent does is recorded, by hooks or by a plugin. Else it only reads, through MCP."""
    find_problems: Callable[[Json, Path], list[str]] = lambda _settings, _file: []
    """Sentences about what in the settings, or beside them, keeps hooks from running."""
    has_tools: Callable[[Path], bool] = lambda _file: False
    """Whether it has the memory's tools by what stands beside the settings: its plugin, or an MCP server of ours."""
    add_mcp: Callable[[Sequence[str]], list[str]] | None = None
    """The arguments with which the program starts a command as the MCP server `cmserver`, in all projects of the user."""

    def settings_file(self, environ: Mapping[str, str], home: Path) -> Path:
        """The user's own settings, which hold in all projects."""
        moved = environ.get(self.home_variable)
        return (Path(moved) if moved else home / self.home_folder) / self.settings_name

    def files(self, place: agent_files.AgentPlace, settings_file: Path | None = None) -> list[agent_files.AgentFile]:
        """The files that connecting changes, the settings first; with `settings_file` that one in place of the user's own."""
        if self.build_files is not None:
            return self.build_files(place)
        own_file = self.settings_file(place.environ, place.home)
        file = (settings_file or own_file).expanduser().absolute()
        hooks = agent_files.grouped_hooks(place, file, names_hooks=self.names_hooks, additions=self.build_permissions(place))
        return [hooks, *([self.build_rules_file(place, own_file.parent)] if self.build_rules_file else [])]


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
    config_file, config = _read_codex_config(file)
    features = json_object(config.get("features"))
    if features.get("hooks") is False or features.get("codex_hooks") is False:
        problems.append(f"{config_file} turns hooks off below [features]. Nothing is recorded until you remove that.")
    if json_object(config.get("hooks")).keys() - {"state"}:
        problems.append(f"{config_file} has hooks as well. Codex runs both, and warns about it at each start.")
    return problems


def _has_codex_tools(file: Path) -> bool:
    _, config = _read_codex_config(file)
    plugin = json_object(config.get("plugins")).get(agent_files.PLUGIN_NAME)
    has_plugin = plugin is not None and json_object(plugin).get("enabled") is not False
    return has_plugin or agent_files.SERVER_NAME in json_object(config.get("mcp_servers"))


def _read_codex_config(file: Path) -> tuple[Path, Json]:
    """The file beside the hooks, and what stands in it; nothing where it cannot be read."""
    config_file = file.with_name("config.toml")
    try:
        return config_file, cast("Json", tomllib.loads(config_file.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return config_file, {}


def _find_gemini_problems(settings: Json, file: Path) -> list[str]:
    problems: list[str] = []
    config = json_object(settings.get("hooksConfig"))
    if config.get("enabled") is False:
        problems.append(f'{file} has "hooksConfig": {{"enabled": false}}. Nothing is recorded until you remove it.')
    if "cmserver" in array(config.get("disabled")):
        problems.append(f"{file} lists cmserver among the disabled hooks. Nothing is recorded until you remove it.")
    return problems


def _find_cursor_problems(_settings: Json, file: Path) -> list[str]:
    claude_code = file.parent.parent / ".claude" / "settings.json"
    try:
        is_connected = "/cmserver/clients/claude-code/hook" in claude_code.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    if not is_connected:
        return []
    return [
        "Claude Code is connected as well, and Cursor can run its hooks too. Turn that off in Cursor, or all is recorded twice."
    ]


# -- files


def _stdio_entry(command: Sequence[str]) -> Json:
    return {"command": command[0], "args": list(command[1:])} if command else {}


def _editor_entry(command: Sequence[str]) -> Json:
    """The editor starts the bridge anywhere, and replaces the variable by the folder that is open."""
    return _stdio_entry([*command, "--folder", "${workspaceFolder}"] if command else ())


def _vscode_entry(command: Sequence[str]) -> Json:
    return {"type": "stdio", **_editor_entry(command)}


def _opencode_entry(command: Sequence[str]) -> Json:
    return {"type": "local", "command": list(command), "enabled": True}


def _cursor_files(place: agent_files.AgentPlace) -> list[agent_files.AgentFile]:
    folder = place.home / ".cursor"
    return [
        agent_files.listed_hooks(place, folder / "hooks.json"),
        agent_files.mcp_server(place, folder / "mcp.json", "mcpServers", _editor_entry),
    ]


def _windsurf_files(place: agent_files.AgentPlace) -> list[agent_files.AgentFile]:
    folder = place.home / ".codeium" / "windsurf"
    return [
        agent_files.mcp_server(place, folder / "mcp_config.json", "mcpServers", _stdio_entry),
        agent_files.TextBlock(path=folder / "memories" / "global_rules.md", block=RULES),
    ]


def _antigravity_files(place: agent_files.AgentPlace) -> list[agent_files.AgentFile]:
    folder = place.home / ".gemini"
    return [
        agent_files.mcp_server(place, folder / "config" / "mcp_config.json", "mcpServers", _stdio_entry),
        agent_files.TextBlock(path=folder / "GEMINI.md", block=RULES),
    ]


def _claude_desktop_files(place: agent_files.AgentPlace) -> list[agent_files.AgentFile]:
    return [agent_files.mcp_server(place, place.config_home / "Claude" / "claude_desktop_config.json", "mcpServers", _stdio_entry)]


def _vscode_files(place: agent_files.AgentPlace) -> list[agent_files.AgentFile]:
    copilot = Path(place.environ.get("COPILOT_HOME") or place.home / ".copilot")
    rules = f'---\ndescription: Memory of earlier sessions\napplyTo: "**"\n---\n\n{RULES}'
    return [
        agent_files.mcp_server(place, place.config_home / "Code" / "User" / "mcp.json", "servers", _vscode_entry),
        agent_files.OwnFile(path=copilot / "instructions" / "cmserver.instructions.md", text=rules, mark="(cmserver)"),
    ]


def _opencode_permissions(place: agent_files.AgentPlace) -> list[Addition]:
    """Only where the user has rules: without any, all is allowed. The last rule that matches decides."""
    names: list[tuple[tuple[str, ...], str]] = [(("permission",), f"cmserver_{tool}") for tool in agent_files.READING_TOOLS]
    names.append((("permission", "bash"), f"{place.recall_command} *"))
    return [
        Addition(container=container, name=name, value="allow", is_ours=lambda value: value == "allow", joins=True)
        for container, name in names
    ]


def _opencode_files(place: agent_files.AgentPlace) -> list[agent_files.AgentFile]:
    """Of OpenCode, and of Kilo, which is made of it.

    The plugin gives the rules: a global AGENTS.md would replace the user's CLAUDE.md, and opencode.jsonc our `instructions`.
    """
    folder = place.xdg_config_home / place.name
    plugin = (TEMPLATES / "opencode-plugin.js").read_text(encoding="utf-8").replace("@NAME@", place.name)
    for name, value in (("@HOOK@", str(place.hook)), ("@RULES@", RULES)):
        plugin = plugin.replace(name, json.dumps(value))
    config = agent_files.mcp_server(place, folder / f"{place.name}.json", "mcp", _opencode_entry)
    return [
        msgspec.structs.replace(config, additions=(*config.additions, *_opencode_permissions(place))),
        agent_files.OwnFile(path=folder / "plugins" / "cmserver.js", text=plugin, mark=f"`cmserver connect {place.name}`"),
    ]


def _copilot_files(place: agent_files.AgentPlace) -> list[agent_files.AgentFile]:
    folder = Path(place.environ.get("COPILOT_HOME") or place.home / ".copilot")
    return [
        agent_files.listed_hooks(place, folder / "hooks" / "cmserver.json"),
        agent_files.mcp_server(place, folder / "mcp-config.json", "mcpServers", _stdio_entry),
        agent_files.TextBlock(path=folder / "copilot-instructions.md", block=RULES),
    ]


def _cline_files(place: agent_files.AgentPlace) -> list[agent_files.AgentFile]:
    folder = place.home / ".cline"
    return [
        agent_files.mcp_server(place, folder / "data" / "settings" / "cline_mcp_settings.json", "mcpServers", _stdio_entry),
        agent_files.OwnFile(path=folder / "rules" / "cmserver.md", text=RULES, mark="(cmserver)"),
    ]


# -- what lets an agent read the memory without asking


def _claude_code_permissions(place: agent_files.AgentPlace) -> tuple[Addition, ...]:
    """Of the plugin's tools its own hook says so."""
    prefixes = ("mcp__cmserver__", agent_files.PLUGIN_TOOL_PREFIX)
    return agent_files.allow_rules(place, prefixes, allowed=() if place.has_plugin else prefixes[:1])


def _codex_rules(place: agent_files.AgentPlace, folder: Path) -> agent_files.AgentFile:
    """In the sandbox the command would not reach the server."""
    rule = f'prefix_rule(pattern = {json.dumps([str(place.hook), "recall"])}, decision = "allow")'
    text = f"# Written by `cmserver connect codex`, and removed by `cmserver disconnect codex`.\n{rule}\n"
    return agent_files.OwnFile(path=folder / "rules" / "cmserver.rules", text=text, mark="`cmserver connect codex`")


def _gemini_policy(place: agent_files.AgentPlace, folder: Path) -> agent_files.AgentFile:
    rules = [
        {"toolName": "run_shell_command", "commandPrefix": f"{place.recall_command} "},
        {"mcpName": agent_files.SERVER_NAME, "toolName": list(agent_files.READING_TOOLS)},
    ]
    lines = ["# Written by `cmserver connect gemini`, and removed by `cmserver disconnect gemini`."]
    for rule in rules:
        lines += ["", "[[rule]]", *(f"{name} = {json.dumps(value)}" for name, value in rule.items())]
        lines += ['decision = "allow"', "priority = 100"]
    text = "\n".join([*lines, ""])
    return agent_files.OwnFile(path=folder / "policies" / "cmserver.toml", text=text, mark="`cmserver connect gemini`")


# -- the table


def _hooks(timeout: int, *events: str) -> list[agent_files.Hook]:
    return [agent_files.Hook(event, timeout) for event in events]


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
            prompt_event="UserPromptSubmit",
            transcripts="words",
            hooks=(
                *_hooks(
                    5, "SessionStart", "UserPromptSubmit", "PostToolUse", "PostToolUseFailure", "SubagentStart", "SubagentStop"
                ),
                *_hooks(5, "PreCompact", "PostCompact", "Stop", "StopFailure"),  # and not PostToolBatch, which repeats PostToolUse
                agent_files.Hook("SessionEnd", 10),  # without a timeout, all hooks of this event share 1.5 seconds
            ),
            read_hook=agent_files.Hook("PreToolUse", 5, matcher="Read"),
            has_plugins=True,
            build_permissions=_claude_code_permissions,
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
            prompt_event="UserPromptSubmit",
            transcripts="commands",
            hooks=(
                *_hooks(5, "SessionStart", "UserPromptSubmit", "PostToolUse", "SubagentStart", "SubagentStop"),
                *_hooks(5, "PreCompact", "PostCompact", "Stop", "StopFailure"),
                agent_files.Hook("SessionEnd", 3),
            ),
            build_rules_file=_codex_rules,
            find_problems=_find_codex_problems,
            has_tools=_has_codex_tools,
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
            prompt_event="BeforeAgent",
            starts_with_prompt=True,
            hooks=(
                *_hooks(5_000, "SessionStart", "BeforeAgent", "AfterTool", "AfterAgent", "PreCompress"),
                agent_files.Hook("SessionEnd", 10_000),
            ),
            names_hooks=True,
            build_rules_file=_gemini_policy,
            find_problems=_find_gemini_problems,
            add_mcp=lambda command: ["mcp", "add", "--scope", "user", "cmserver", command[0], "--", *command[1:]],
        ),
        Agent(  # https://cursor.com/docs/hooks and /docs/mcp; timeouts in seconds
            name="cursor",
            title="Cursor",
            program="cursor",
            build_files=_cursor_files,
            folder_variable="CURSOR_PROJECT_DIR",
            hooks=(
                agent_files.Hook("sessionStart", 5, argument="SessionStart"),
                *_hooks(5, "beforeSubmitPrompt", "postToolUse", "postToolUseFailure", "preCompact"),
                *_hooks(5, "afterAgentResponse", "sessionEnd"),  # and not stop, which says no more than the reply before it
            ),
            find_problems=_find_cursor_problems,
        ),
        Agent(  # https://docs.windsurf.com/windsurf/cascade/mcp and /memories
            name="windsurf", title="Windsurf", program="windsurf", build_files=_windsurf_files, records=False
        ),
        Agent(  # https://antigravity.google/docs/mcp and /docs/rules
            name="antigravity", title="Antigravity", program="agy", build_files=_antigravity_files, records=False
        ),
        Agent(  # https://modelcontextprotocol.io/docs/develop/connect-local-servers
            name="claude-desktop",
            title="Claude Desktop",
            program="claude-desktop",
            build_files=_claude_desktop_files,
            records=False,
        ),
        Agent(  # https://code.visualstudio.com/docs/agents/reference/mcp-configuration
            name="vscode", title="VS Code", program="code", build_files=_vscode_files, records=False
        ),
        Agent(  # https://opencode.ai/v1/docs/mcp-servers.md and /plugins.md
            name="opencode", title="OpenCode", program="opencode", build_files=_opencode_files
        ),
        Agent(  # https://kilo.ai/docs/automate/mcp/using-in-cli; plugins as in OpenCode
            name="kilo", title="Kilo", program="kilo", build_files=_opencode_files
        ),
        Agent(  # https://docs.github.com/en/copilot/reference/hooks-reference; timeouts in seconds
            name="copilot",
            title="Copilot CLI",
            program="copilot",
            build_files=_copilot_files,
            folder_variable="COPILOT_PROJECT_DIR",
            prompt_event="UserPromptSubmit",
            hooks=(  # and not SubagentStart, which has other names than the rest, and no name of its own
                *_hooks(5, "SessionStart", "UserPromptSubmit", "PostToolUse", "PostToolUseFailure"),
                *_hooks(5, "SubagentStop", "PreCompact", "Stop"),
                agent_files.Hook("SessionEnd", 10),
            ),
        ),
        Agent(  # https://docs.cline.bot/mcp/mcp-overview; its hooks tell no prompt of `cline "..."`
            name="cline", title="Cline", program="cline", build_files=_cline_files, records=False
        ),
    )
}
