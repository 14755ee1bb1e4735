"""`cmserver connect claude-mem`: the stock plugin stays as it is, and only its settings are pointed here."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import click
import httpx

from cmserver.base import credentials
from cmserver.base.configuration import BadSetting, load
from cmserver.base.errors import Conflict
from cmserver.cli import connecting
from cmserver.cli.connecting import HookKey, Whom, is_here
from cmserver.cli.connections import GUESTS_ASK, LET_IN
from cmserver.cli.talk import confirm, yes_option
from cmserver.hooks.attach import claude_mem, jsontext
from cmserver.hooks.attach.folder import ClientFolder, clients_folder, home
from cmserver.hooks.attach.model import Connection
from cmserver.hooks.attach.write import replace

_SETTINGS = click.option(
    "--settings",
    "settings_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Another settings file of claude-mem; else ~/.claude-mem/settings.json.",
)
_DRY_RUN = click.option("--dry-run", is_flag=True, help="Show what would be done, and do nothing.")


@click.command("claude-mem")
@click.option("--server", "url", envvar="CMSERVER_URL", show_envvar=True, help="The server; else that of the data folder.")
@click.option(
    "--key",
    envvar="CMSERVER_KEY",
    show_envvar=True,
    help="Only with --server-mode: a key that may make keys, or the plugin's own. Else that of the data folder.",
)
@click.option("--server-mode", is_flag=True, help="Let it send to a server with a key, into one project (--project).")
@click.option("--project", metavar="NAME", help="With --server-mode: the project that everything belongs to.")
@_SETTINGS
@_DRY_RUN
@yes_option
@click.option("--config", "config_file", type=click.Path(path_type=Path), help="A TOML file with settings.")
def connect_claude_mem(
    url: str | None,
    key: str | None,
    project: str | None,
    settings_file: Path | None,
    config_file: Path | None,
    *,
    server_mode: bool,
    dry_run: bool,
    yes: bool,
) -> None:
    """Attach the stock claude-mem plugin, unchanged: only its settings are pointed here."""
    if server_mode != (project is not None):
        raise click.UsageError("--server-mode and --project NAME go together.")
    settings = load(os.environ, config_file=config_file).settings
    folder = ClientFolder(clients_folder(os.environ), "claude-mem")
    old = folder.connection()
    file = _file(settings_file)
    before = jsontext.read(file)
    if server_mode:
        whom = connecting.whom(settings, url, key, folder, old)
        hook_key = asyncio.run(connecting.look(whom, old)).key
        address = whom.url
    else:
        whom, hook_key = None, None
        address = (url or _usual(settings.data_dir, settings.port)).rstrip("/")
        if not is_here(address):
            raise BadSetting(
                f"{address} is another machine, and claude-mem sends no key to its worker. Say --server-mode --project NAME."
            )
    values = _values(address, whom, hook_key, project, dry_run=True)
    if old is not None and old.written.keys() != values.keys():  # it worked the other way until now
        raise Conflict("claude-mem is connected in another way. Let it go first: cmserver disconnect claude-mem")
    edit = claude_mem.put(file, before, values)
    if old is not None and edit.text == before and old.url == address:
        click.echo(f"claude-mem is connected to {address}; nothing is to be changed.")
        _advise(address, file, server_mode=server_mode)
        return
    click.echo(f"Server: {address}")
    if hook_key is not None and hook_key.text is None:
        click.echo(f"A key is made: {connecting.label('claude-mem')}")
    click.echo(jsontext.diff(file, before, edit.text, secrets=_secrets(before, file, values)))
    if dry_run:
        click.echo("Nothing is written, and no key is made (--dry-run).")
        return
    confirm("Connect claude-mem?", yes=yes)
    if whom is not None and hook_key is not None and hook_key.text is None:
        hook_key = asyncio.run(connecting.mint(whom, "claude-mem"))
    values = _values(address, whom, hook_key, project, dry_run=False)
    edit = claude_mem.put(file, before, values)
    if hook_key is not None and hook_key.text is not None:
        folder.make({"URL": address}, hook_key.text)
    folder.remember(
        Connection(
            agent="claude-mem",
            url=address,
            settings=[str(file)],
            key_id=None if hook_key is None else hook_key.id,
            key_is_ours=hook_key is not None and hook_key.is_ours,
            before=edit.before if old is None else old.before,
            written=values,
        )
    )
    backup = replace(file, before, edit.text, secret=claude_mem.check_mode(values))
    click.echo(f"Written: {file}{f' (before: {backup})' if backup else ''}")
    click.echo(f"claude-mem is connected to {address}.")
    _advise(address, file, server_mode=server_mode)


@click.command("claude-mem")
@_SETTINGS
@_DRY_RUN
@yes_option
def disconnect_claude_mem(settings_file: Path | None, *, dry_run: bool, yes: bool) -> None:
    """Put claude-mem's settings back as they were."""
    folder = ClientFolder(clients_folder(os.environ), "claude-mem")
    old = folder.connection()
    if old is None:
        click.echo("claude-mem is not connected.")
        return
    file = _file(settings_file) if settings_file is not None else Path(old.settings[0])
    before = jsontext.read(file)
    after = claude_mem.take(file, before, old.written, old.before)
    secrets = [value for table in (old.written, old.before) for name in claude_mem.SECRETS if (value := table.get(name))]
    click.echo(jsontext.diff(file, before, after or "", secrets=secrets))
    if dry_run:
        click.echo("Nothing is changed (--dry-run).")
        return
    confirm("Disconnect claude-mem?", yes=yes)
    if after is not None and after != before:
        backup = replace(file, before, after, secret=claude_mem.check_mode(old.written))
        click.echo(f"Written: {file} (before: {backup})")
    key = folder.key()
    if old.key_is_ours and key is not None:
        sentence = asyncio.run(connecting.revoke(old.url, key))
        if sentence is not None:
            click.echo(sentence, err=True)
    folder.remove(purge=True)
    click.echo("claude-mem is disconnected.")


def _values(address: str, whom: Whom | None, key: HookKey | None, project: str | None, *, dry_run: bool) -> dict[str, str]:
    """What is written; before a key is made, with words in its place."""
    parts = httpx.URL(address)
    worker: dict[str, str] = {}
    if is_here(address):
        host = "127.0.0.1" if parts.host == "localhost" else parts.host
        worker = claude_mem.worker(host, parts.port or 80)
    if whom is None or key is None or project is None:
        return worker
    named = "(the id of the project)" if dry_run and key.text is None else asyncio.run(connecting.project_id(whom, project))
    return {**worker, **claude_mem.server(address, key.text or "(a new key)", named)}


def _advise(address: str, file: Path, *, server_mode: bool) -> None:
    """What else it takes."""
    if is_here(address) and not _admits_guests(address):
        what = "asks for the index at a session's start without a key" if server_mode else "sends no key to its worker"
        click.echo(f"claude-mem {what}, and such calls are refused. {LET_IN}.")
    stale = claude_mem.stale_pid(file.parent)
    if stale is not None:
        click.echo(f"{stale} names a worker that is gone. Remove the file, or the plugin takes the port for dead.")
    if not is_here(address):
        click.echo(
            "The index at a session's start still comes from a worker on this machine: claude-mem asks no other server for it."
        )


def _admits_guests(address: str) -> bool:
    try:
        return httpx.get(f"{address}{GUESTS_ASK}", timeout=3.0, trust_env=not is_here(address)).is_success
    except (httpx.HTTPError, httpx.InvalidURL):
        return False


def _secrets(before: str | None, file: Path, values: dict[str, str]) -> list[str]:
    found = jsontext.parse(file, before)
    tables = [values, found, jsontext.table(found.get("env"))]
    return [
        value for table in tables for name in claude_mem.SECRETS if isinstance(value := table.get(name), str) and value[:1] != "("
    ]


def _usual(data_dir: Path, port: int) -> str:
    known = credentials.read(data_dir)
    return known.url if known is not None else f"http://127.0.0.1:{port}"


def _file(named: Path | None) -> Path:
    return (named or claude_mem.folder(os.environ, home()) / "settings.json").expanduser().absolute()
