"""The plugin for Claude Code: the folder `plugin` of the repository, which `cmserver connect` installs from its own marketplace.

What is installed so differs from the folder in a line that says where the client folders are. The key is in neither.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from cmserver import __version__
from cmserver.base.atomic_file import write_file
from cmserver.base.errors import Conflict
from cmserver.base.lookalikes import sanitize_line
from cmserver.client.agent_files import PLUGIN_NAME, PLUGIN_TOOL_PREFIX, READING_TOOLS, Hook
from cmserver.client.client_folder import PROGRAMS, SOURCE
from cmserver.client.dialog import Report
from cmserver.client.json_settings import Json, hook_group

NAME = "cmserver"
"""Plugin and marketplace, as `claude plugin install` takes them."""

FOLDER = "plugin"
MARKETPLACE = ".claude-plugin/marketplace.json"
HOOKS = f"{FOLDER}/hooks/hooks.json"
_SERVERS = f"{FOLDER}/.mcp.json"
_ABOUT = "What earlier sessions did, for the next one: records what the agent does, and tells it at the start."
_ALLOW = '{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"allow"}}'
"""Docs: https://code.claude.com/docs/en/hooks#pretooluse-decision-control"""
_MARK = ".written-by-cmserver-connect"
"""Lists the files of a marketplace that `connect` has written, and stands for nothing else: nothing else is removed."""
_TIMEOUT_SECONDS = 120


def generate_files(hooks: Sequence[Hook], version: str) -> dict[str, str]:
    """The parts of the repository's plugin that follow from the code: path from the repository's folder -> text."""
    owner: Json = {"name": NAME}
    manifest: Json = {"name": NAME, "version": version, "description": _ABOUT, "author": owner, "license": "Apache-2.0"}
    return {
        MARKETPLACE: _json(
            {
                "name": NAME,
                "owner": owner,
                "metadata": {"description": "Memory for coding agents, on a server of your own."},
                "plugins": [{"name": NAME, "source": f"./{FOLDER}", "description": _ABOUT, "version": version}],
            }
        ),
        f"{FOLDER}/.claude-plugin/plugin.json": _json({**manifest, "userConfig": _USER_CONFIG}),
        f"{FOLDER}/.codex-plugin/plugin.json": _json(
            {
                **manifest,
                "skills": "./skills/",
                "mcpServers": "./codex.mcp.json",
                "hooks": {},
                "interface": {"displayName": NAME, "shortDescription": _ABOUT, "category": "Productivity", "logo": "./icon.svg"},
            }
        ),
        HOOKS: render_hooks(hooks),
        **{f"{FOLDER}/client/{name}": (SOURCE / source).read_text(encoding="utf-8") for name, source in PROGRAMS.items()},
    }


_USER_CONFIG: Json = {
    "server": {
        "type": "string",
        "title": "Server",
        "description": (
            "Address of your team's cmserver, for example https://memory.example.com. Leave it empty after `cmserver connect`."
        ),
        "required": False,
    },
    "key": {
        "type": "string",
        "title": "Key",
        "description": "Your key there. Leave it empty after `cmserver connect`.",
        "sensitive": True,
        "required": False,
    },
}


def render_hooks(hooks: Sequence[Hook]) -> str:
    """The plugin's hooks.json: these hooks, and one by which the agent reads the memory without asking.

    A plugin cannot bring rules of permissions. A user's own rule that denies a tool stands over what a hook allows.
    """
    groups: dict[str, list[Json]] = {}
    for hook in hooks:
        command = f'sh "${{CLAUDE_PLUGIN_ROOT}}/hook" {hook.event}'
        groups.setdefault(hook.event, []).append(hook_group(command, hook.timeout, matcher=hook.matcher))
    tools = "|".join(f"{PLUGIN_TOOL_PREFIX}{tool}" for tool in READING_TOOLS)
    groups.setdefault("PreToolUse", []).append(hook_group(f"printf %s {shlex.quote(_ALLOW)}", 5, matcher=tools))
    return _json({"description": _ABOUT, "hooks": groups})


def build_files(hooks: Sequence[Hook], clients: Path, *, has_mcp: bool) -> dict[str, str]:
    """What `connect` installs: path below the marketplace's folder -> text. Without MCP no server for it: a dead one is shown."""
    folder = _find_folder()
    files = {
        str(path.relative_to(folder.parent)): path.read_text(encoding="utf-8")
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.relative_to(folder).parts[0] not in {"evals", "client"}  # the client comes with this program
    }
    files |= generate_files(hooks, __version__)
    files[f"{FOLDER}/clients"] = f"{clients}\n"
    if not has_mcp:
        del files[_SERVERS]
    return files


def _find_folder() -> Path:
    """The plugin, in the wheel or in the checkout."""
    package = Path(__file__).parents[1]
    for folder in (package / "_repository" / FOLDER, package.parent / FOLDER):
        if (folder / "hook").is_file():
            return folder
    raise Conflict("This installation has no plugin. Connect without --plugin.")


def is_current(folder: Path, files: dict[str, str]) -> bool:
    """Whether the marketplace's folder is ours and has exactly these files."""
    if _read_mark(folder) != sorted(files):
        return False
    try:
        return all((folder / name).read_bytes() == text.encode() for name, text in files.items())
    except OSError:
        return False


def write_marketplace(folder: Path, files: dict[str, str]) -> None:
    """Write the marketplace's folder anew. Raises Conflict for a folder that has files, and was not made here."""
    if folder.is_dir() and any(folder.iterdir()) and _read_mark(folder) is None:
        raise Conflict(f"{folder} has files that `cmserver connect` has not written. Name an empty folder with --plugin.")
    remove_marketplace(folder)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_file(folder / _MARK, "".join(f"{name}\n" for name in sorted(files)), mode=0o644)
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_file(path, text, mode=0o644)


def remove_marketplace(folder: Path) -> None:
    """Remove the files of the marketplace that were written here, and the folders that are empty then."""
    names = _read_mark(folder)
    if names is None:
        return
    for name in names:
        path = folder / name
        if path.is_relative_to(folder) and ".." not in Path(name).parts:
            path.unlink(missing_ok=True)
            _remove_empty(path.parent, folder)
    (folder / _MARK).unlink(missing_ok=True)
    _remove_empty(folder, folder)


def _remove_empty(folder: Path, last: Path) -> None:
    """Remove the folder and those above it up to the last one, as far as they are empty."""
    with suppress(OSError):
        while True:
            folder.rmdir()
            if folder == last:
                return
            folder = folder.parent


def _read_mark(folder: Path) -> list[str] | None:
    """The files that were written into the marketplace; None for a folder that is not ours."""
    try:
        return (folder / _MARK).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return None


def _json(value: Json) -> str:
    return msgspec.json.format(msgspec.json.encode(value)).decode() + "\n"


# -- `claude plugin`


def install_plugin(folder: Path, report: Report) -> None:
    """Add the marketplace and install its plugin anew, since Claude Code keeps a copy; or report the commands to type."""
    steps = [["marketplace", "add", str(folder)], ["install", PLUGIN_NAME]]
    if find_claude() is None:
        _report_steps("`claude` is not on the PATH. To install the plugin, type:", steps, report)
        return
    uninstall_plugin(None)
    if all(_run_claude(step, report) for step in steps):
        report(f"The plugin {PLUGIN_NAME} is installed. In sessions that run already, type /reload-plugins.")
    else:
        _report_steps("To install the plugin, type:", steps, report)


def uninstall_plugin(report: Report | None) -> None:
    """Uninstall the plugin and its marketplace, if they are installed."""
    steps = [["uninstall", PLUGIN_NAME], ["marketplace", "remove", NAME]]
    if find_claude() is None:
        if report is not None:
            _report_steps("`claude` is not on the PATH. To uninstall the plugin, type:", steps, report)
        return
    for step in steps:
        _run_claude(step, None)


def find_claude() -> str | None:
    return shutil.which("claude")


def _run_claude(arguments: list[str], report: Report | None) -> bool:
    """Run `claude plugin` with these arguments; returns whether it succeeded, and reports when not."""
    program = find_claude()
    assert program is not None
    try:
        done = subprocess.run(  # noqa: S603 - the program that is connected
            [program, "plugin", *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=_TIMEOUT_SECONDS,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        problem = type(error).__name__
    else:
        if done.returncode == 0:
            return True
        problem = done.stderr or done.stdout
    if report is not None:
        report(f"claude plugin {shlex.join(arguments)} has failed: {sanitize_line(problem.strip())}", err=True)
    return False


def _report_steps(sentence: str, steps: list[list[str]], report: Report) -> None:
    report("\n".join([sentence, *(f"  claude plugin {shlex.join(step)}" for step in steps)]))
