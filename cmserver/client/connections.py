"""The connected agents: whether their server answers, and which of their calls were not sent."""

from __future__ import annotations

import os
import re
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import httpx
import msgspec

from cmserver.base import credentials
from cmserver.base.configuration import BadSetting
from cmserver.base.errors import CmserverError
from cmserver.base.lookalikes import sanitize_line
from cmserver.base.settings import Settings
from cmserver.client.agents import CLAUDE_MEM
from cmserver.client.claude_mem import ACCEPT_KEYLESS, KEYLESS_ROUTE
from cmserver.client.client_folder import ClientFolder, Connection, clients_folder, list_connections, list_folders
from cmserver.client.server_api import (
    MissingKey,
    is_distrusted,
    is_local,
    make_trust,
    normalize_address,
    read_key_file,
    resolve_server,
)

_TIMEOUT_SECONDS = 3.0
_MAX_CALLS = 32
_NO_KEY = "lacks its key"
_REFUSES_KEY = "refuses the key"
_REFUSES_KEYLESS = "refuses guests"
DISTRUSTED = "has a certificate that is not trusted here"
_BODY_NAME = re.compile(r"(\d{16})-(\d{7,9})-[0-9a-f]+\.body")
_IN_FLIGHT_SECONDS = 30


class AgentStatus(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A connected agent, as `connections --json` shows it."""

    agent: str
    settings: list[str]
    plugin: str | None
    url: str
    key_id: str | None
    server: str
    """`answers`, or the problem in a few words."""
    folder: str
    waiting: int
    waiting_bytes: int
    oldest_epoch: int | None
    dropped: int
    refused: int
    pausing: bool
    """Whether calls only go into the spool for now, because several in a row have failed."""
    trouble: str | None
    """Why the last call failed: `down`, `key`, `tools`; null when it did not."""
    current: bool
    """Whether the hook client is that of this version."""

    def advise(self) -> list[str]:
        """What the user should do."""
        command = f"`cmserver connect {self.agent}{'' if self.plugin is None else ' --plugin'}`"
        missing = [sanitize_line(file) for file in self.settings if not Path(file).exists()]
        sentences = [
            "" if self.current else f"its hook client is from another version. {command} renews it.",
            f"its key is missing or not valid any more. {command} makes a new one."
            if self.server in {_REFUSES_KEY, _NO_KEY}
            else "",
            f"it sends no key, and the server refuses calls without one. {ACCEPT_KEYLESS}."
            if self.server == _REFUSES_KEYLESS
            else "",
            "its hooks found neither curl nor python3, so nothing can be sent." if self.trouble == "tools" else "",
            "several calls in a row have failed, so its hooks only keep new ones for now." if self.pausing else "",
            *(f"the settings file {file} is gone. {command} writes it." for file in missing),
        ]
        return [f"{self.agent}: {sentence}" for sentence in sentences if sentence]


class SpoolState(msgspec.Struct, frozen=True, kw_only=True):
    """Times are in milliseconds since 1970."""

    waiting: int
    """Payloads to be sent, without those that a hook is sending just now."""
    waiting_bytes: int
    oldest_epoch: int | None
    """When the first of them came in."""
    dropped: int
    """Lost, because the spool was full or they became too old."""
    refused: int
    """Payloads that the server did not take."""
    breaker_open_until: int | None
    """Until then hooks do not try to send."""
    trouble: str | None
    """Why the last attempt failed: `down`, `key` (the key is refused), `tools` (no curl, no python3); None when it did not."""


class ConnectionList(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `connections --json`."""

    connections: list[AgentStatus]


def check_connections(clients: Path) -> list[AgentStatus]:
    """The status of each connected agent. Calls their servers at the same time: one that hangs delays no other."""
    found = list_connections(clients)
    with ThreadPoolExecutor(_MAX_CALLS) as pool:
        return list(pool.map(_check, [folder for folder, _ in found], [connection for _, connection in found]))


def render_unsent_calls(clients: Path) -> list[str]:
    """A line for each agent with calls that wait or were lost."""
    lines: list[str] = []
    for folder, connection in list_connections(clients):
        spool = read_spool(folder.path)
        parts = [
            f"{_calls(spool.waiting)} waiting ({_size(spool.waiting_bytes)}{_age(spool.oldest_epoch)})" if spool.waiting else "",
            f"{_calls(spool.dropped)} dropped, because the spool was full or they were too old" if spool.dropped else "",
            f"{_calls(spool.refused)} refused by the server" if spool.refused else "",
        ]
        if any(parts):
            lines.append(f"{connection.agent}: {', '.join(filter(None, parts))}")
    return lines


def _check(folder: ClientFolder, connection: Connection) -> AgentStatus:
    """The state of an agent's connection: its server, its key, and what waits in its spool."""
    spool, key = read_spool(folder.path), folder.key()
    needs_key = connection.agent != CLAUDE_MEM
    return AgentStatus(
        agent=connection.agent,
        settings=connection.settings,
        plugin=connection.plugin,
        url=connection.url,
        key_id=connection.key_id,
        server=_NO_KEY if key is None and needs_key else _check_server(connection.url, key),
        folder=str(folder.path),
        waiting=spool.waiting,
        waiting_bytes=spool.waiting_bytes,
        oldest_epoch=spool.oldest_epoch,
        dropped=spool.dropped,
        refused=spool.refused,
        pausing=spool.breaker_open_until is not None,
        trouble=spool.trouble,
        current=not needs_key or folder.is_current(),
    )


def _check_server(url: str, key: str | None) -> str:
    """The state of the server as a hook's call would find it, in words."""
    path, headers = ("/v1/info", {"Authorization": f"Bearer {key}"}) if key is not None else (KEYLESS_ROUTE, {})
    try:
        response = httpx.get(
            f"{url}{path}", headers=headers, timeout=_TIMEOUT_SECONDS, trust_env=not is_local(url), verify=make_trust()
        )
    except (httpx.HTTPError, httpx.InvalidURL, UnicodeEncodeError) as error:
        return DISTRUSTED if is_distrusted(error) else "does not answer"
    if response.status_code in {401, 403}:
        return _REFUSES_KEY if key is not None else _REFUSES_KEYLESS
    return "answers" if response.is_success else f"answers {response.status_code}"


def _calls(count: int) -> str:
    return f"{count} call" if count == 1 else f"{count} calls"


def _size(count: int) -> str:
    return f"{count} bytes" if count < 1000 else f"{count / 1000:.0f} kB"


def _age(epoch_ms: int | None) -> str:
    if epoch_ms is None:
        return ""
    minutes = max(0, round((time.time() - epoch_ms / 1000) / 60))
    if minutes >= 60:
        return f", the oldest for {minutes // 60} h {minutes % 60} min"
    return f", the oldest for {minutes or 'less than 1'} min"


# -- the server of a command


def find_server(settings: Settings, url: str | None, key: str | None) -> tuple[str, str]:
    """The server and the key of a command: as named, else of the credentials file, else those of the connected agents.

    A key that is named goes to no agent's server unless the URL is named, too; an agent's key only to the address that it is
    connected to. Raises `BadSetting` where agents have several servers, or a connection cannot be read.
    """
    key = key or read_key_file()
    if key is None and url is None and credentials.read(settings.data_dir) is None:
        agents, problems = _list_keyed()
        if problems:
            raise BadSetting(f"{' '.join(problems)} Or choose a server with --url or CMSERVER_URL.")
        servers = {normalize_address(connection.url): connection for _, connection in agents}
        if len(servers) > 1:
            known = ", ".join(f"{one.agent} to {sanitize_line(one.url)}" for one in servers.values())
            raise BadSetting(f"Agents are connected to several servers: {known}. Choose one with --url or CMSERVER_URL.")
        url = next((connection.url for connection in servers.values()), None)
    try:
        return resolve_server(settings, url, key)
    except MissingKey:
        for folder, connection in _list_keyed()[0] if url is not None else []:
            agent_key = folder.key()
            if agent_key is not None and normalize_address(connection.url) == normalize_address(url or ""):
                return connection.url, agent_key
        raise


def describe_other_servers(url: str) -> str:
    """A sentence that names the server which was asked, where agents are connected to another one; else nothing."""
    agents, problems = _list_keyed()
    others = {
        normalize_address(connection.url): connection
        for _, connection in agents
        if normalize_address(connection.url) != normalize_address(url)
    }
    known = ", ".join(f"{one.agent} is connected to {sanitize_line(one.url)}" for one in others.values())
    said = [f"The server is {sanitize_line(url)}; {known}: --url chooses."] if known else []
    return "".join(f" {sentence}" for sentence in [*said, *problems])


def find_connection_of_key(key: str) -> Connection | None:
    """The connection of the agent whose key it is."""
    return next((connection for folder, connection in _list_keyed()[0] if folder.key() == key), None)


def _list_keyed() -> tuple[list[tuple[ClientFolder, Connection]], list[str]]:
    """The connected agents that have a key, those first whose key may write; and what keeps others from being read."""
    found: list[tuple[ClientFolder, Connection]] = []
    problems: list[str] = []
    with suppress(BadSetting):  # where there is no home folder, there are no agents
        for folder in list_folders(clients_folder(os.environ)):
            try:
                connection = folder.connection() if folder.key() else None
            except CmserverError as error:
                problems.append(sanitize_line(str(error)))
            else:
                found += [] if connection is None else [(folder, connection)]
    return sorted(found, key=lambda pair: not pair[1].allow_writing), problems


# -- the spool: the calls that hook.sh could not deliver yet


def read_spool(folder: Path) -> SpoolState:
    """The state of the spool in a client folder; empty without a folder."""
    now = time.time()
    waiting = sorted(_find_waiting(folder / "spool", now))
    failures, until, trouble = _read_breaker(folder / "state" / "breaker")
    return SpoolState(
        waiting=len(waiting),
        waiting_bytes=sum(size for _, size in waiting),
        oldest_epoch=waiting[0][0] if waiting else None,
        dropped=_parse_count(_read_text(folder / "state" / "dropped").strip()) or 0,
        refused=_parse_count(_read_text(folder / "state" / "refused").strip()) or 0,
        breaker_open_until=until * 1000 if until > now else None,
        trouble=trouble if failures else None,
    )


def _find_waiting(spool: Path, now: float) -> list[tuple[int, int]]:
    """Time (in milliseconds since 1970) and size of each waiting call."""
    waiting: list[tuple[int, int]] = []
    for body in spool.glob("*.body"):
        name = _BODY_NAME.fullmatch(body.name)
        size = _file_bytes(body)
        was_read = size > 1 or body.with_suffix(".mark").exists()
        if name is None or size == 0 or not was_read:  # delivered meanwhile, or its hook was killed before anything came
            continue
        came_at_ms = int(name[1]) // 1000
        is_marked = _file_bytes(body.with_suffix(".mark")) > 0
        if is_marked or now - came_at_ms / 1000 >= _IN_FLIGHT_SECONDS or not _is_alive(int(name[2])):
            waiting.append((came_at_ms, size))
    return waiting


def _file_bytes(file: Path) -> int:
    with suppress(OSError):
        return file.stat().st_size
    return 0


def _is_alive(pid: int) -> bool:
    with suppress(OSError):
        os.kill(pid, 0)
        return True
    return False


def _read_breaker(file: Path) -> tuple[int, int, str | None]:
    """Failures in a row, the end of the pause in seconds since 1970, and why the last call failed."""
    words = _read_text(file).split()
    if len(words) == 4:
        failures, until = _parse_count(words[0]), _parse_count(words[1])
        if failures is not None and until is not None:
            return failures, until, words[3]
    return 0, 0, None


def _parse_count(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 15 else None


def _read_text(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
