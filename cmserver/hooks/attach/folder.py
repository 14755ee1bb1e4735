"""The client folder of an agent: its copy of the hook client, where the server is, the key, and what could not be sent yet."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from cmserver.base.configuration import BadSetting
from cmserver.base.errors import CmserverError
from cmserver.hooks.attach.entries import program_of
from cmserver.hooks.attach.model import AGENTS, Agent, Connection
from cmserver.hooks.attach.write import write
from cmserver.hooks.client import PROGRAMS, SOURCE

_HEADERS = """\
#!/bin/sh
# Gives Claude Code the headers with the key and the project, for the MCP server. The key stays in its own file.
exec "${0%/*}/hook" headers "$@"
"""
_CONNECTION = "connection.json"
_AUTHORIZATION = "Authorization: Bearer "
_KEY = re.compile(r"[\x21-\x7e]+")
_LINE = re.compile(r"([A-Z_]+)='([^']*)'")


class ClientFolder:
    """One agent's. Nothing is made before `make`."""

    def __init__(self, clients: Path, agent: Agent) -> None:
        self.agent: Agent = agent
        self.path = clients / agent
        self.hook = self.path / "hook"
        self.headers = self.path / "headers"

    def is_ours(self, command: str) -> bool:
        """Whether a handler's command is the hook client of this agent, wherever it stands."""
        program = program_of(command)
        if program is None or program.name != "hook" or program.parent.name != self.agent:
            return False
        usual = program.parts[-4:-2] == ("cmserver", "clients")
        return program.parent == self.path or usual or (program.parent / _CONNECTION).exists()

    # -- what is there

    def connection(self) -> Connection | None:
        """None when the agent is not attached."""
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
        """The key that the calls carry."""
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
        return {found[1]: found[2] for line in lines if (found := _LINE.fullmatch(line.strip()))}

    def is_current(self, client: Path = SOURCE) -> bool:
        """Whether the hook client in it is that of this version."""
        try:
            same = all((self.path / name).read_bytes() == (client / source).read_bytes() for name, source in PROGRAMS.items())
            return same and self.headers.read_text(encoding="utf-8") == _HEADERS
        except (FileNotFoundError, NotADirectoryError, UnicodeDecodeError):
            return False

    def says(self, config: Mapping[str, str], key: str | None) -> bool:
        """Whether it already has exactly these lines and this key."""
        return self.config() == dict(config) and self.key() == key

    # -- what is done

    def make(self, config: Mapping[str, str], key: str | None, client: Path = SOURCE) -> None:
        """The client, its configuration and the key, each written as a whole."""
        self._private()
        for name, source in PROGRAMS.items():
            write(self.path / name, (client / source).read_bytes(), mode=0o755 if name == "hook" else 0o644)
        write(self.headers, _HEADERS, mode=0o755)
        write(self.path / "config", "".join(f"{name}='{value}'\n" for name, value in config.items()), mode=0o600)
        if key is not None:
            write(self.path / "authorization", f"{_AUTHORIZATION}{key}\n", mode=0o600)

    def remember(self, connection: Connection) -> None:
        """That the agent is attached, and how."""
        self._private()
        write(self.path / _CONNECTION, msgspec.json.format(msgspec.json.encode(connection)) + b"\n", mode=0o600)

    def remove(self, *, purge: bool) -> bool:
        """Take away what was made here; says whether calls that were not sent stay. With `purge` nothing stays."""
        for name in (*PROGRAMS, "headers", "config", "authorization", _CONNECTION):
            (self.path / name).unlink(missing_ok=True)
        spool = self.path / "spool"
        if not purge and spool.is_dir() and any(spool.iterdir()):
            return True
        shutil.rmtree(self.path, ignore_errors=True)
        with suppress(OSError):  # the last agent's
            self.path.parent.rmdir()
        return False

    def _private(self) -> None:
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path.chmod(0o700)


def home() -> Path:
    """The user's home folder, where agents keep their settings."""
    try:
        return Path.home()
    except RuntimeError as error:
        raise BadSetting("This user has no home folder, and so no agents with settings: set HOME.") from error


def clients_folder(environ: Mapping[str, str]) -> Path:
    """Where the client folders are."""
    named = environ.get("CMSERVER_CLIENT_DIR")
    folder = Path(named) if named else Path(environ.get("XDG_CONFIG_HOME") or home() / ".config") / "cmserver" / "clients"
    if not folder.is_absolute():
        which = "CMSERVER_CLIENT_DIR" if named else "XDG_CONFIG_HOME"
        raise BadSetting(f"{which} is {str(folder)!r}: an absolute path is expected.")
    return folder


def connections(clients: Path) -> list[tuple[ClientFolder, Connection]]:
    """The agents that are attached."""
    folders = [ClientFolder(clients, agent) for agent in AGENTS]
    return [(one, found) for one in folders if (found := one.connection()) is not None]


def configuration(old: Mapping[str, str], url: str, exclude: Sequence[str], *, has_tools: bool) -> dict[str, str]:
    """The lines of `config`: what a person has set there stays. Without patterns the old ones stay; an empty one takes them out.

    With `has_tools` the agent has our MCP tools, and is told to read with these.
    """
    for one in (url, *exclude):
        if "'" in one or not one.isprintable():
            raise BadSetting(f"{one!r} cannot stand in a configuration: no quotes and no line ends, please.")
    for one in exclude:
        if ":" in one:
            raise BadSetting(f"The pattern {one!r} has a colon, which stands between patterns. Say --exclude once for each.")
    patterns = {"EXCLUDE": ":".join(one for one in exclude if one)} if exclude else {}
    kept = {name: value for name, value in old.items() if name != "TOOLS"}
    return {**kept, "URL": url, **patterns, **({"TOOLS": "mcp"} if has_tools else {})}


def check_key(key: str) -> None:
    """Raises `BadSetting` for what no header can hold; the key itself is not shown."""
    if not _KEY.fullmatch(key):
        raise BadSetting("The key cannot be used: it holds spaces, line ends or letters that no key has.")
