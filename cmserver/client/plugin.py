"""Claude Code's plugin: a marketplace folder with one plugin in it, made for this user, and installed by `claude plugin`.

The key is in neither.
"""

from __future__ import annotations

import re
import secrets
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import msgspec

from cmserver import __version__
from cmserver.base.atomic_file import write_file
from cmserver.base.errors import Conflict
from cmserver.base.lookalikes import sanitize_line
from cmserver.client.agent_files import Hook
from cmserver.client.dialog import Report
from cmserver.client.json_settings import Json, hook_command, hook_group

NAME = "cmserver"
FULL_NAME = f"{NAME}@{NAME}"
"""Plugin and marketplace, as `claude plugin install` takes them."""

_TEMPLATES = Path(__file__).parent / "templates"
_MANIFEST = ".claude-plugin/marketplace.json"
_PLUGIN = "${CLAUDE_PLUGIN_ROOT}"
_SERVERS = f"{NAME}/.mcp.json"
_DELIMITER = re.compile(r"END-[0-9a-f]{32}")
_TIMEOUT_SECONDS = 120


def build_files(hooks: Sequence[Hook], client: Path, *, mcp_url: str | None, delimiter: str) -> dict[str, str]:
    """Path below the marketplace's folder -> text. Without `mcp_url` no MCP server: a dead one is shown as an error."""
    owner = {"name": NAME}
    about = "What earlier sessions did, for the next one: records what Claude Code does, and tells it at the start."
    program = client / "hook"
    how = _template("how-by-command.md" if mcp_url is None else "how-by-tools.md").replace(
        "@HOOK@", hook_command(program, "").strip()
    )
    groups = {hook.event: [hook_group(f'"{_PLUGIN}/hook" {hook.event}', hook.timeout, matcher=hook.matcher)] for hook in hooks}
    files = {
        _MANIFEST: _json(
            {
                "name": NAME,
                "owner": owner,
                "metadata": {"description": "The plugin of the cmserver that this machine uses."},
                "plugins": [{"name": NAME, "source": f"./{NAME}", "description": about, "version": __version__}],
            }
        ),
        f"{NAME}/.claude-plugin/plugin.json": _json(
            {"name": NAME, "version": __version__, "description": about, "author": owner, "license": "Apache-2.0"}
        ),
        f"{NAME}/hooks/hooks.json": _json({"description": about, "hooks": groups}),
        f"{NAME}/hook": _template("hook.sh").replace("@HOOK@", str(program).replace("'", "'\\''")),
        f"{NAME}/skills/memory/SKILL.md": _template("SKILL.md").replace("@HOW@", how.strip()),
    }
    if mcp_url is not None:
        server = {"type": "http", "url": mcp_url, "headersHelper": headers_helper(client / "headers", delimiter)}
        files[_SERVERS] = _json({"mcpServers": {NAME: server}})
    return files


def find_delimiter(folder: Path) -> str:
    """The end of the here-document in the marketplace's commands, which nobody can guess: the one that it has, or a new one."""
    try:
        match = _DELIMITER.search((folder / _SERVERS).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        match = None
    return match[0] if match else f"END-{secrets.token_hex(16)}"


def headers_helper(program: Path, delimiter: str) -> str:
    """The shell command from which Claude Code learns the headers of its MCP calls.

    Claude Code runs it in the plugin's folder, and replaces ${CLAUDE_PROJECT_DIR} by the folder in which it works, as text. Between
    quotes a folder's name could hold a command, so it stands in a here-document with a delimiter that is in no folder's name.
    """
    return f"{hook_command(program, '').strip()} - <<'{delimiter}'\n${{CLAUDE_PROJECT_DIR}}\n{delimiter}\n"


def is_current(folder: Path, files: dict[str, str]) -> bool:
    """Whether the marketplace's folder has exactly these files."""
    present = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()} if folder.is_dir() else set[str]()
    return present == files.keys() and all((folder / name).read_bytes() == text.encode() for name, text in files.items())


def write_marketplace(folder: Path, files: dict[str, str]) -> None:
    """Write the marketplace's folder anew. Raises Conflict for a folder that has other files."""
    if folder.is_dir() and any(folder.iterdir()) and not _is_ours(folder):
        raise Conflict(f"{folder} has files that are not a marketplace of cmserver. Name an empty folder with --plugin.")
    remove_marketplace(folder)
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_file(path, text, mode=0o755 if path.name == "hook" else 0o644)


def remove_marketplace(folder: Path) -> None:
    """Remove the marketplace, if it is ours."""
    if _is_ours(folder):
        shutil.rmtree(folder / NAME, ignore_errors=True)
        shutil.rmtree(folder / ".claude-plugin", ignore_errors=True)
        if not any(folder.iterdir()):
            folder.rmdir()


def _is_ours(folder: Path) -> bool:
    try:
        return msgspec.json.decode((folder / _MANIFEST).read_bytes(), type=dict[str, object]).get("name") == NAME
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return False


def _template(name: str) -> str:
    return (_TEMPLATES / name).read_text(encoding="utf-8")


def _json(value: Json) -> str:
    return msgspec.json.format(msgspec.json.encode(value)).decode() + "\n"


# -- `claude plugin`


def install_plugin(folder: Path, report: Report) -> None:
    """Add the marketplace and install its plugin anew, since Claude Code keeps a copy; or report the commands to type."""
    steps = [["marketplace", "add", str(folder)], ["install", FULL_NAME]]
    if find_claude() is None:
        _report_steps("`claude` is not on the PATH. To install the plugin, type:", steps, report)
        return
    uninstall_plugin(None)
    if all(_run_claude(step, report) for step in steps):
        report(f"The plugin {FULL_NAME} is installed. In sessions that run already, type /reload-plugins.")
    else:
        _report_steps("To install the plugin, type:", steps, report)


def uninstall_plugin(report: Report | None) -> None:
    """Uninstall the plugin and its marketplace, if they are installed."""
    steps = [["uninstall", FULL_NAME], ["marketplace", "remove", NAME]]
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
