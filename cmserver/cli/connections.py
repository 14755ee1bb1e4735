"""`cmserver connections`: which agents are attached, whether their server answers, and what could not be sent yet."""

from __future__ import annotations

import os
import time
from pathlib import Path

import click
import httpx
import msgspec

from cmserver.cli.connecting import is_here
from cmserver.cli.show import plain, table
from cmserver.hooks.attach.folder import ClientFolder, clients_folder, connections
from cmserver.hooks.attach.model import Connection
from cmserver.hooks.client import spool

_ASK_SECONDS = 3.0
_NO_KEY = "lacks its key"

GUESTS_ASK = "/api/projects"
"""Read by claude-mem without a key, which tells whether its calls are admitted."""

LET_IN = "Start the server with CMSERVER_TRUST_LOOPBACK=TEAM, on this machine and in no container"


class Attached(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """An agent that is attached, as `connections --json` shows it."""

    agent: str
    settings: list[str]
    plugin: str | None
    url: str
    key_id: str | None
    server: str
    """`answers`, or what is wrong, in a few words."""
    folder: str
    waiting: int
    waiting_bytes: int
    oldest_epoch: int | None
    dropped: int
    refused: int
    pausing: bool
    """Whether calls are not even tried for a while, because several in a row have failed."""
    trouble: str | None
    """What the last call of a hook came to: `down`, `key`, `tools`; null when it went well."""
    current: bool
    """Whether the hook client in the folder is this version's."""


class AllAttached(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `connections --json`."""

    connections: list[Attached]


@click.command("connections")
@click.option("--json", "as_json", is_flag=True, help="The same for programs.")
def list_connections(*, as_json: bool) -> None:
    """List the agents that are attached: their settings, their server, and what could not be sent yet."""
    found = [_look(folder, one) for folder, one in connections(clients_folder(os.environ))]
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(AllAttached(connections=found))).decode())
        return
    rows = [
        (one.agent, one.url, one.server, one.key_id, one.waiting, one.dropped, one.refused, one.plugin or " ".join(one.settings))
        for one in found
    ]
    titles = ("agent", "url", "server", "key", "waiting", "dropped", "refused", "settings")
    click.echo(table(titles, rows, nothing="No agent is attached: `cmserver connect --help` shows how.", wide=("settings",)))
    for line in [line for one in found for line in _advice(one)]:
        click.echo(line, err=True)


def spooled(clients: Path) -> list[str]:
    """A line for each agent whose calls wait, or were lost."""
    lines: list[str] = []
    for folder, one in connections(clients):
        there = spool.look(folder.path)
        said = [
            f"{_calls(there.waiting)} waiting ({_size(there.waiting_bytes)}{_since(there.oldest_epoch)})" if there.waiting else "",
            f"{_calls(there.dropped)} dropped, because too much waited" if there.dropped else "",
            f"{_calls(there.refused)} refused by the server" if there.refused else "",
        ]
        if any(said):
            lines.append(f"{one.agent}: {', '.join(part for part in said if part)}")
    return lines


def _look(folder: ClientFolder, one: Connection) -> Attached:
    there, key = spool.look(folder.path), folder.key()
    return Attached(
        agent=one.agent,
        settings=one.settings,
        plugin=one.plugin,
        url=one.url,
        key_id=one.key_id,
        server=_NO_KEY if key is None and one.agent != "claude-mem" else _server(one.url, key),
        folder=str(folder.path),
        waiting=there.waiting,
        waiting_bytes=there.waiting_bytes,
        oldest_epoch=there.oldest_epoch,
        dropped=there.dropped,
        refused=there.refused,
        pausing=there.breaker_open_until is not None,
        trouble=there.trouble,
        current=one.agent == "claude-mem" or folder.is_current(),
    )


def _server(url: str, key: str | None) -> str:
    """What a hook would find there."""
    path, headers = ("/v1/info", {"Authorization": f"Bearer {key}"}) if key is not None else (GUESTS_ASK, {})
    try:
        answer = httpx.get(f"{url}{path}", headers=headers, timeout=_ASK_SECONDS, trust_env=not is_here(url))
    except (httpx.HTTPError, httpx.InvalidURL, UnicodeEncodeError):
        return "does not answer"
    if answer.status_code in {401, 403}:
        return "refuses the key" if key is not None else "refuses guests"
    return "answers" if answer.is_success else f"answers {answer.status_code}"


def _advice(one: Attached) -> list[str]:
    said: list[str] = []
    again = f"cmserver connect {one.agent}{'' if one.plugin is None else ' --plugin'}"
    if not one.current:
        said.append(f"{one.agent}: its hook client is not this version's. {again} renews it.")
    if one.server in {"refuses the key", _NO_KEY}:
        said.append(f"{one.agent}: its key opens nothing any more. {again} makes a new one.")
    if one.server == "refuses guests":
        said.append(f"{one.agent}: it sends no key, and the server takes no call without one. {LET_IN}.")
    if one.trouble == "tools":
        said.append(f"{one.agent}: its hooks have found neither curl nor python3, so that nothing can be sent.")
    if one.pausing:
        said.append(f"{one.agent}: several calls in a row have failed, so that its hooks only keep them for the moment.")
    missing = [file for file in one.settings if not Path(file).exists()]
    said += [f"{one.agent}: the settings file {plain(file)} is gone. {again} writes it." for file in missing]
    return said


def _calls(number: int) -> str:
    return f"{number} call" if number == 1 else f"{number} calls"


def _size(number: int) -> str:
    return f"{number} bytes" if number < 1000 else f"{number / 1000:.0f} kB"


def _since(epoch_ms: int | None) -> str:
    if epoch_ms is None:
        return ""
    minutes = max(0, round((time.time() - epoch_ms / 1000) / 60))
    if minutes >= 60:
        return f", the oldest for {minutes // 60} h {minutes % 60} min"
    return f", the oldest for {minutes or 'less than 1'} min"
