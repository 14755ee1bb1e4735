"""The client folder of an agent: its copy of the hook client, the server's address, the key, and what could not be sent yet."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from cmserver.base.atomic_file import write_file
from cmserver.base.configuration import BadSetting
from cmserver.base.errors import CmserverError
from cmserver.client.agents import AGENTS, CLAUDE_MEM, Agent
from cmserver.client.json_settings import parse_hook_command

SOURCE = Path(__file__).parent / "hook"
"""The hook client of this version of cmserver."""

PROGRAMS = {
    "hook": "hook.sh",
    **{
        name: name
        for name in (
            "project.sh",
            "changed.sh",
            "code.sh",
            "branches.sh",
            "transcript.sh",
            "drain.sh",
            "recall.sh",
            "headers.sh",
            "send.py",
        )
    },
}
"""Name in a client folder -> name in SOURCE."""

_HEADERS = """\
#!/bin/sh
# Gives Claude Code the headers with the key and the project, for the MCP server. The key stays in its own file.
exec "${0%/*}/hook" headers
"""
_CONNECTION = "connection.json"
_AUTHORIZATION = "Authorization: Bearer "
_KEY = re.compile(r"[\x21-\x7e]+")
_CONFIG_LINE = re.compile(r"([A-Z_]+)='([^']*)'")


class Connection(msgspec.Struct, frozen=True, kw_only=True):
    """How an agent is connected, kept in its client folder. Made by `cmserver connect`, removed by `cmserver disconnect`."""

    agent: str
    url: str
    settings: list[str]
    """The settings files that have our hooks."""
    key_id: str | None = None
    """The id of the key that its calls carry; None without a key, or when the key's text has no id."""
    key_is_ours: bool = False
    """Whether `cmserver connect` made the key, so that `cmserver disconnect` revokes it."""
    on_file: bool = False
    allow_writing: bool = False
    plugin: str | None = None
    """The marketplace's folder, when the hooks are those of a plugin."""
    made: dict[str, list[str]] = {}
    """By settings file: what was made for our part, and goes with it when it is empty. "" is the file itself."""
    folders: list[str] = []
    """The folders that were made for all of it, and go with it when they are empty; the innermost first."""
    before: dict[str, str | None] = {}
    """The values in claude-mem's settings that ours replaced; None for no value."""
    written: dict[str, str] = {}
    """Our values in claude-mem's settings."""


class ClientFolder:
    """The client folder of one agent. `install` makes it."""

    def __init__(self, clients: Path, agent: str) -> None:
        self.agent = agent
        self.path = clients / agent
        self.hook = self.path / "hook"
        self.headers = self.path / "headers"

    def is_ours(self, command: str) -> bool:
        """Whether a handler's command is the hook client of this agent, in whatever folder."""
        program = parse_hook_command(command)
        if program is None or program.name != "hook" or program.parent.name != self.agent:
            return False
        is_usual = program.parts[-4:-2] == ("cmserver", "clients")
        return program.parent == self.path or is_usual or (program.parent / _CONNECTION).exists()

    def connection(self) -> Connection | None:
        """The agent's connection as it was stored; None when it is not connected."""
        path = self.path / _CONNECTION
        try:
            return msgspec.json.decode(path.read_bytes(), type=Connection)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise CmserverError(f"{path} cannot be read: {error.strerror or error}.") from error
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise CmserverError(f"{path} is damaged. Remove it, and connect again.") from None

    def key(self) -> str | None:
        """The key that the agent's calls carry."""
        try:
            line = (self.path / "authorization").read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            return None
        return line.removeprefix(_AUTHORIZATION) if line.startswith(_AUTHORIZATION) else None

    def config(self) -> dict[str, str]:
        """The lines of the file `config`."""
        try:
            lines = (self.path / "config").read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError):
            return {}
        return {match[1]: match[2] for line in lines if (match := _CONFIG_LINE.fullmatch(line.strip()))}

    def is_current(self) -> bool:
        """Whether the hook client in it is that of this version."""
        try:
            is_same = all((self.path / name).read_bytes() == (SOURCE / source).read_bytes() for name, source in PROGRAMS.items())
            return is_same and self.headers.read_text(encoding="utf-8") == _HEADERS
        except (FileNotFoundError, NotADirectoryError, UnicodeDecodeError):
            return False

    def has(self, config: Mapping[str, str], key: str | None) -> bool:
        """Whether it has exactly this configuration and this key."""
        return self.config() == dict(config) and self.key() == key

    def install(self, config: Mapping[str, str], key: str) -> None:
        """Write the configuration, the key and the hook client. An older hook client can read the newer configuration."""
        self._make_private()
        write_file(self.path / "config", "".join(f"{name}='{value}'\n" for name, value in config.items()), mode=0o600)
        write_file(self.path / "authorization", f"{_AUTHORIZATION}{key}\n", mode=0o600)
        for name, source in PROGRAMS.items():
            write_file(self.path / name, (SOURCE / source).read_bytes(), mode=0o755 if name == "hook" else 0o644)
        write_file(self.headers, _HEADERS, mode=0o755)

    def save(self, connection: Connection) -> None:
        """Note how the agent is connected."""
        self._make_private()
        write_file(self.path / _CONNECTION, msgspec.json.format(msgspec.json.encode(connection)) + b"\n", mode=0o600)

    def remove(self, *, purge: bool) -> bool:
        """Remove what was installed. Returns whether unsent calls stay; with `purge` nothing stays."""
        for name in (*PROGRAMS, "headers", "config", "authorization", _CONNECTION):
            (self.path / name).unlink(missing_ok=True)
        spool = self.path / "spool"
        if not purge and spool.is_dir() and any(spool.iterdir()):
            return True
        shutil.rmtree(self.path, ignore_errors=True)
        with suppress(OSError):  # other agents have theirs beside it
            self.path.parent.rmdir()
        return False

    def _make_private(self) -> None:
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path.chmod(0o700)


def list_missing(folders: Iterable[Path]) -> list[str]:
    """Those of the folders, and of what they stand in, that do not exist yet; the innermost first."""
    missing = {path for folder in folders for path in (folder, *folder.parents) if not path.exists()}
    return [str(path) for path in sorted(missing, key=lambda path: (-len(path.parts), path))]


def remove_empty(folders: Iterable[str]) -> None:
    """Remove those of the folders that are empty, in this order."""
    for folder in folders:
        with suppress(OSError):
            Path(folder).rmdir()


def home_folder() -> Path:
    """The user's home folder, where agents keep their settings."""
    try:
        return Path.home()
    except RuntimeError as error:
        raise BadSetting("This user has no home folder, and so no agents with settings: set HOME.") from error


def clients_folder(environ: Mapping[str, str]) -> Path:
    """The folder of the client folders."""
    configured = environ.get("CMSERVER_CLIENT_DIR")
    config_home = environ.get("XDG_CONFIG_HOME")
    folder = Path(configured) if configured else Path(config_home or home_folder() / ".config") / "cmserver" / "clients"
    if not folder.is_absolute():
        name = "CMSERVER_CLIENT_DIR" if configured else "XDG_CONFIG_HOME"
        raise BadSetting(f"{name} is {str(folder)!r}: an absolute path is expected.")
    return folder


def list_folders(clients: Path) -> list[ClientFolder]:
    """The client folders that there can be."""
    return [ClientFolder(clients, name) for name in (*AGENTS, CLAUDE_MEM)]


def list_connections(clients: Path) -> list[tuple[ClientFolder, Connection]]:
    """The connected agents."""
    return [(folder, connection) for folder in list_folders(clients) if (connection := folder.connection()) is not None]


def build_config(agent: Agent, old: Mapping[str, str], url: str, exclude: Sequence[str], *, has_tools: bool) -> dict[str, str]:
    """The lines of `config`. Lines that a person has added stay; so do old patterns without new ones, and an empty one clears them.

    With `has_tools` the agent has our MCP tools, and the server tells it to read with them.
    """
    for value in (url, *exclude):
        if "'" in value or not value.isprintable():
            raise BadSetting(f"{value!r} cannot be stored: it must not have quotes or line ends.")
    for pattern in exclude:
        if ":" in pattern:
            raise BadSetting(f"The pattern {pattern!r} has a colon, which separates patterns. Pass --exclude once for each.")
    of_agent = build_agent_config(agent)
    config = {name: value for name, value in old.items() if name not in {"TOOLS", *of_agent}}
    config["URL"] = url
    if exclude:
        config["EXCLUDE"] = ":".join(pattern for pattern in exclude if pattern)
    config |= {name: value for name, value in of_agent.items() if value}
    if has_tools:
        config["TOOLS"] = "mcp"
    return config


def build_agent_config(agent: Agent) -> dict[str, str]:
    """The lines of `config` that follow from the agent's row; those without a value are left out of the file."""
    return {
        "FOLDER_VARIABLE": agent.folder_variable,
        "SESSION_VARIABLE": agent.session_variable,
        "PROMPT_EVENT": agent.prompt_event,
        "INDEX_AT": "prompt" if agent.starts_with_prompt else "",
        "TRANSCRIPTS": agent.transcripts,
    }


def check_key(key: str) -> None:
    """Raises `BadSetting`, without the key, for a key that no header can hold."""
    if not _KEY.fullmatch(key):
        raise BadSetting("The key is not valid: it has spaces, line ends or characters that no key has.")


def read_project(folder: Path | None) -> str | None:
    """What hooks call the project of the folder, or else of Claude Code's, or else of the working folder; None if unknown."""
    return _ask_hook("project", folder)


def is_private_folder(folder: Path | None) -> bool:
    """Whether a session there is private to its person: a `.cmserver.toml` on the way up, or CMSERVER_PRIVATE, says so."""
    return _ask_hook("is-private", folder) == "yes"


def _ask_hook(question: str, folder: Path | None) -> str | None:
    command = ["/bin/sh", SOURCE / "hook.sh", question]
    if folder is None:
        command.append(AGENTS["claude-code"].folder_variable)
    done = subprocess.run(command, cwd=folder, capture_output=True, check=False)  # noqa: S603 - our own script
    return done.stdout.decode(errors="replace").removesuffix("\n") or None
