"""Claude Code's plugin: a local marketplace with one plugin in it, written for this user. The key is in neither."""

from __future__ import annotations

import re
import secrets
import shutil
from collections.abc import Sequence
from pathlib import Path

import msgspec

from cmserver import __version__
from cmserver.base.errors import Conflict
from cmserver.hooks.attach.entries import command, group
from cmserver.hooks.attach.jsontext import Json
from cmserver.hooks.attach.model import Hook
from cmserver.hooks.attach.write import write

NAME = "cmserver"
FULL_NAME = f"{NAME}@{NAME}"
"""Plugin and marketplace, as `claude plugin install` wants it."""

_TEMPLATES = Path(__file__).parent / "templates"
_MANIFEST = ".claude-plugin/marketplace.json"
_PLUGIN = "${CLAUDE_PLUGIN_ROOT}"
_SERVERS = f"{NAME}/.mcp.json"
_END = re.compile(r"END-[0-9a-f]{32}")


def files(hooks: Sequence[Hook], client: Path, *, mcp_url: str | None, end: str) -> dict[str, str]:
    """Path below the marketplace's folder -> text. `client` is the client folder, which has the key and what does the work.

    Without `mcp_url` there is no MCP server: a dead one would show its user an error at each start. `end` is of `end_for`.
    """
    owner = {"name": NAME}
    about = "What earlier sessions did, for the next one: records what Claude Code does, and tells it at the start."
    hook = client / "hook"
    how = _template("how-by-command.md" if mcp_url is None else "how-by-tools.md").replace("@HOOK@", command(hook, "").strip())
    found = {
        _MANIFEST: _json(
            {
                "name": NAME,
                "owner": owner,
                "metadata": {"description": "The plugin of the cmserver on this machine, or that this machine uses."},
                "plugins": [{"name": NAME, "source": f"./{NAME}", "description": about, "version": __version__}],
            }
        ),
        f"{NAME}/.claude-plugin/plugin.json": _json(
            {"name": NAME, "version": __version__, "description": about, "author": owner, "license": "Apache-2.0"}
        ),
        f"{NAME}/hooks/hooks.json": _json(
            {"description": about, "hooks": {one.event: [group(one, f'"{_PLUGIN}/hook" {one.event}')] for one in hooks}}
        ),
        f"{NAME}/hook": _template("hook.sh").replace("@HOOK@", str(hook).replace("'", "'\\''")),
        f"{NAME}/skills/memory/SKILL.md": _template("SKILL.md").replace("@HOW@", how.strip()),
    }
    if mcp_url is not None:
        server = {"type": "http", "url": mcp_url, "headersHelper": headers_helper(client / "headers", end)}
        found[_SERVERS] = _json({"mcpServers": {NAME: server}})
    return found


def end_for(folder: Path) -> str:
    """What ends a text in the marketplace's commands, and nobody else can guess: as it is there already, else a new one."""
    try:
        found = _END.search((folder / _SERVERS).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        found = None
    return found[0] if found else f"END-{secrets.token_hex(16)}"


def headers_helper(program: Path, end: str) -> str:
    """What Claude Code gives a shell, to learn the headers of its calls.

    It runs this in the plugin's folder, and puts the folder where it works itself in the place of a name, as text: between quotes a
    folder could then have a command in its name. So it stands in a text of its own, with an end that no folder is called.
    """
    return f"{command(program, '').strip()} - <<'{end}'\n${{CLAUDE_PROJECT_DIR}}\n{end}\n"


def is_current(folder: Path, wanted: dict[str, str]) -> bool:
    """Whether the marketplace's folder has exactly these files."""
    there = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()} if folder.is_dir() else set[str]()
    return there == wanted.keys() and all((folder / name).read_bytes() == text.encode() for name, text in wanted.items())


def make(folder: Path, wanted: dict[str, str]) -> None:
    """Write the marketplace's folder anew. Raises Conflict for a folder that has files of others."""
    if folder.is_dir() and any(folder.iterdir()) and not _is_ours(folder):
        raise Conflict(f"{folder} has files in it that are no marketplace of cmserver. Name an empty folder with --plugin.")
    remove(folder)
    for name, text in wanted.items():
        path = folder / name
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write(path, text, mode=0o755 if path.name == "hook" else 0o644)


def remove(folder: Path) -> None:
    """Take the marketplace away, if it is ours."""
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
