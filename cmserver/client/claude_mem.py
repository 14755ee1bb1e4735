"""The stock claude-mem plugin: connected by its settings alone, which are put back when it is disconnected."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import httpx
import msgspec

from cmserver.base import credentials
from cmserver.base.configuration import BadSetting
from cmserver.base.errors import Conflict
from cmserver.base.settings import Settings
from cmserver.client import hook_key, json_settings
from cmserver.client.agents import CLAUDE_MEM
from cmserver.client.client_folder import ClientFolder, Connection, clients_folder, home_folder, list_missing, remove_empty
from cmserver.client.dialog import Dialog
from cmserver.client.json_edit import remove_values
from cmserver.client.json_settings import Json
from cmserver.client.server_api import is_local

KEYLESS_ROUTE = "/api/projects"
"""Read by claude-mem without a key, so it shows whether calls without a key are accepted."""

ACCEPT_KEYLESS = "Start the server with CMSERVER_TRUST_LOOPBACK=TEAM, on this machine and not in a container"

_KEY_NAME = "CLAUDE_MEM_SERVER_API_KEY"
_ENV = "env"
"""Settings stand in the outermost object, or all of them below this name."""


class SettingsEdit(msgspec.Struct, frozen=True):
    """The text with our values, and the values that they replace."""

    text: str
    before: dict[str, str | None]


def connect(
    settings: Settings, url: str | None, key: str | None, project: str | None, settings_file: Path | None, dialog: Dialog
) -> None:
    """Point the plugin at a server: as its worker on this machine, or with a project and a key at any (--server-mode)."""
    folder = ClientFolder(clients_folder(os.environ), CLAUDE_MEM)
    old = folder.connection()
    file = _settings_file(settings_file)
    before = json_settings.read_settings(file)
    target: hook_key.ConnectTarget | None = None
    agent_key: hook_key.HookKey | None = None
    if project is not None:
        target = hook_key.resolve_target(settings, url, key, folder, old)
        agent_key = asyncio.run(hook_key.check_server(target, old)).key
        address = target.url
    else:
        address = _find_local_server(settings, url)
    values = _build_values(address, target, agent_key, project)
    if old is not None and old.written.keys() != values.keys():
        raise Conflict("claude-mem is connected in the other mode. First run `cmserver disconnect claude-mem`.")
    edit = set_values(file, before, values)
    if old is not None and edit.text == before and old.url == address:
        dialog.report(f"claude-mem is connected to {address}. Nothing to change.")
        _advise(address, file, project, dialog)
        return
    dialog.report(f"Server: {address}")
    if agent_key is not None and agent_key.text is None:
        dialog.report(f"Make a key: {hook_key.key_name(CLAUDE_MEM)}")
    dialog.report(json_settings.render_diff(file, before, edit.text, secrets=_find_secrets(file, before, values)))
    if not dialog.confirm("Connect claude-mem?"):
        return
    if target is not None and agent_key is not None and agent_key.text is None:
        agent_key = asyncio.run(hook_key.make_key(target, CLAUDE_MEM))
        values = _build_values(address, target, agent_key, project)
        edit = set_values(file, before, values)
    made = {str(file): [""]} if before is None else {} if old is None else old.made
    folders = [*list_missing([folder.path, file.parent]), *(old.folders if old is not None else [])]
    if agent_key is not None and agent_key.text is not None:
        folder.install({"URL": address}, agent_key.text)
    folder.save(
        Connection(
            agent=CLAUDE_MEM,
            url=address,
            settings=[str(file)],
            key_id=None if agent_key is None else agent_key.id,
            key_is_ours=agent_key is not None and agent_key.is_ours,
            made=made,
            folders=folders,
            before=edit.before if old is None else old.before,
            written=values,
        )
    )
    backup = json_settings.replace_settings(file, before, edit.text, secret=_KEY_NAME in values)
    dialog.report(f"Written: {file}{f' (backup: {backup})' if backup else ''}")
    dialog.report(f"claude-mem is connected to {address}.")
    _advise(address, file, project, dialog)


def disconnect(settings_file: Path | None, dialog: Dialog) -> None:
    """Restore the plugin's settings, and end its key."""
    folder = ClientFolder(clients_folder(os.environ), CLAUDE_MEM)
    old = folder.connection()
    if old is None:
        dialog.report("claude-mem is not connected.")
        return
    file = _settings_file(settings_file) if settings_file is not None else Path(old.settings[0])
    before = json_settings.read_settings(file)
    after = remove_values(file, restore_values(file, before, old.written, old.before), (), old.made.get(str(file), []))
    secrets = [key for table in (old.written, old.before) if (key := table.get(_KEY_NAME))]
    dialog.report(json_settings.render_diff(file, before, after or "", secrets=secrets))
    if not dialog.confirm("Disconnect claude-mem?"):
        return
    if after != before:
        backup = json_settings.replace_settings(file, before, after, secret=_KEY_NAME in old.written)
        dialog.report(f"Removed: {file}" if after is None else f"Written: {file} (backup: {backup})")
    hook_key.end_own_key(old, folder.key(), dialog.report)
    folder.remove(purge=True)
    remove_empty(old.folders)
    dialog.report("claude-mem is disconnected.")


def _find_local_server(settings: Settings, url: str | None) -> str:
    stored = credentials.read(settings.data_dir)
    address = (url or (stored.url if stored is not None else f"http://127.0.0.1:{settings.port}")).rstrip("/")
    if not is_local(address):
        raise BadSetting(
            f"{address} is another machine, and claude-mem sends no key to its worker. Pass --server-mode --project NAME."
        )
    return address


def _find_secrets(file: Path, text: str | None, values: Mapping[str, str]) -> list[str]:
    settings = json_settings.parse_settings(file, text)
    tables = (values, settings, json_settings.json_object(settings.get(_ENV)))
    return [key for table in tables if isinstance(key := table.get(_KEY_NAME), str) and key[:1] != "("]


def _advise(url: str, file: Path, project: str | None, dialog: Dialog) -> None:
    """What the user has to do besides."""
    if is_local(url) and not _accepts_keyless_calls(url):
        calls = "asks for the index at a session's start without a key" if project else "sends no key to its worker"
        dialog.report(f"claude-mem {calls}, and such calls are refused. {ACCEPT_KEYLESS}.")
    pid_file = find_stale_pid(file.parent)
    if pid_file is not None:
        dialog.report(f"{pid_file} names a worker that has ended. Remove the file, or the plugin takes the port for dead.")
    if not is_local(url):
        dialog.report("The index at a session's start still comes from a worker on this machine: claude-mem asks no other server.")


# -- its settings


def set_values(path: Path, text: str | None, values: Mapping[str, str]) -> SettingsEdit:
    """The settings with these values."""
    settings = json_settings.parse_settings(path, text)
    before: dict[str, str | None] = {}
    env = settings.get(_ENV)
    table = cast("Json", env) if isinstance(env, dict) else settings
    for name, value in values.items():
        old = table.get(name)
        if old is not None and not isinstance(old, (str, int)):
            raise json_settings.UnusableSettings(f"In {path} {name} is neither text nor a number. The file is left as it is.")
        before[name] = None if old is None else str(old)
        if str(old) != value:
            text = json_settings.set_member(path, text, *((name, value) if table is settings else (_ENV, {**table, **values})))
    return SettingsEdit(text or "", before)


def restore_values(path: Path, text: str | None, written: Mapping[str, str], before: Mapping[str, str | None]) -> str | None:
    """The settings with the values before ours. A value that is not ours any more stays."""
    if text is None:
        return None
    settings = json_settings.parse_settings(path, text)
    env = settings.get(_ENV)
    table = dict(cast("Json", env)) if isinstance(env, dict) else settings
    ours = [name for name, value in written.items() if str(table.get(name)) == value]
    for name in ours:
        old = before.get(name)
        if table is settings:
            text = json_settings.remove_member(path, text, name) if old is None else json_settings.set_member(path, text, name, old)
        elif old is None:
            del table[name]
        else:
            table[name] = old
    return text if table is settings or not ours else json_settings.set_member(path, text, _ENV, table)


def find_stale_pid(folder: Path) -> Path | None:
    """The pid file of a worker that has ended, because of which the plugin's hooks do not call."""
    file = folder / "worker.pid"
    try:
        pid = msgspec.json.decode(file.read_bytes(), type=dict[str, object]).get("pid")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return file
    return None if isinstance(pid, int) and pid > 0 and _is_running(pid) else file


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return True


def _build_values(
    url: str, target: hook_key.ConnectTarget | None, key: hook_key.HookKey | None, project: str | None
) -> dict[str, str]:
    """What is written. Before the key is made, words take the place of the key and of the project's id."""
    values: dict[str, str] = {}
    if is_local(url):
        address = httpx.URL(url)
        host = "127.0.0.1" if address.host == "localhost" else address.host
        values = {"CLAUDE_MEM_WORKER_HOST": host, "CLAUDE_MEM_WORKER_PORT": str(address.port or 80)}
    if target is not None and key is not None and project is not None:
        values |= {
            "CLAUDE_MEM_RUNTIME": "server",
            "CLAUDE_MEM_SERVER_URL": url,
            _KEY_NAME: key.text or "(a new key)",
            "CLAUDE_MEM_SERVER_PROJECT_ID": asyncio.run(hook_key.ensure_project(target, project))
            if key.text
            else "(the project's id)",
        }
    return values


def _accepts_keyless_calls(url: str) -> bool:
    try:
        return httpx.get(f"{url}{KEYLESS_ROUTE}", timeout=3.0, trust_env=not is_local(url)).is_success
    except (httpx.HTTPError, httpx.InvalidURL):
        return False


def _settings_file(named: Path | None) -> Path:
    data_dir = os.environ.get("CLAUDE_MEM_DATA_DIR")
    default = (Path(data_dir) if data_dir else home_folder() / ".claude-mem") / "settings.json"
    return (named or default).expanduser().absolute()
