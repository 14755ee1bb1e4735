"""Connects an agent to a server and disconnects it: its hooks, its key and its client folder. A plan is shown before it is done."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import sys
from pathlib import Path

import msgspec
from msgspec import structs

from cmserver.base.errors import CmserverError
from cmserver.base.settings import Settings
from cmserver.client import plugin
from cmserver.client.agents import Agent
from cmserver.client.client_folder import ClientFolder, Connection, build_config, clients_folder, home_folder
from cmserver.client.dialog import Dialog, Report
from cmserver.client.hook_key import (
    SCOPES,
    WRITING_SCOPE,
    ConnectTarget,
    ServerCheck,
    check_server,
    key_name,
    make_key,
    resolve_target,
    revoke_key,
    revoke_own_key,
)
from cmserver.client.json_settings import (
    Json,
    hook_command,
    hook_group,
    install_hooks,
    list_hook_targets,
    parse_settings,
    read_settings,
    render_diff,
    replace_settings,
    uninstall_hooks,
)
from cmserver.client.server_api import is_local
from cmserver.client.service_units import server_command

_HOOK_ROUTE = "/v1/hooks/"


class ConnectRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `cmserver connect AGENT`."""

    settings_file: Path | None
    url: str | None
    key: str | None
    exclude: tuple[str, ...]
    allow_writing: bool | None
    start_with_machine: bool | None
    dry_run: bool
    yes: bool
    on_file: bool | None = None
    plugin: str | None = None
    """The marketplace's folder, "" for the default one; None for hooks in the settings."""

    def __repr__(self) -> str:
        return f"ConnectRequest(settings_file={self.settings_file!r}, url={self.url!r}, key='...')"


class ConnectPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What connecting will change."""

    agent: Agent
    folder: ClientFolder
    old: Connection | None
    target: ConnectTarget
    server: ServerCheck
    file: Path
    before: str | None
    after: str | None
    config: dict[str, str]
    connection: Connection
    marketplace: Path | None
    plugin_files: dict[str, str]

    @property
    def settings_change(self) -> bool:
        return self.after != self.before

    @property
    def plugin_changes(self) -> bool:
        return self.marketplace is not None and not plugin.is_current(self.marketplace, self.plugin_files)

    @property
    def plugin_goes(self) -> bool:
        return self.marketplace is None and self.old is not None and self.old.plugin is not None

    @property
    def folder_changes(self) -> bool:
        return not self.folder.is_current() or not self.folder.has(self.config, self.server.key.text)

    @property
    def is_done(self) -> bool:
        """Whether nothing has to be changed."""
        changes = self.settings_change or self.plugin_changes or self.plugin_goes or self.folder_changes
        return not changes and self.old == self.connection

    def render(self) -> list[str]:
        """What will be done, and the change of the settings."""
        key = self.server.key
        lines = [f"Server: {self.target.url}, team {self.server.team}", *self.find_warnings()]
        if key.text is None:
            lines.append(f"Make a key for every project of the team: {key_name(self.agent.name)} ({', '.join(key.scopes)})")
        elif not key.is_ours:
            lines.append("The agent uses the given key, which cannot make another one.")
        if self.folder_changes:
            lines.append(f"Write the hook client, its configuration and the key into {self.folder.path} (only you can read it)")
        if self.marketplace is not None:
            lines.append(f"Write the plugin into {self.marketplace}, and install it with `claude plugin`")
        if self.plugin_goes:
            lines.append("Uninstall the plugin: the hooks will be in the settings")
        if self.settings_change:
            lines.append(render_diff(self.file, self.before, self.after or ""))
        return lines

    def find_warnings(self) -> list[str]:
        """Warnings: hooks that would send events twice, and an address without encryption."""
        warnings: list[str] = []
        targets = list_hook_targets(parse_settings(self.file, self.before).get("hooks"))
        others = [target for target in targets if _HOOK_ROUTE in target and not self.folder.is_ours(target)]
        if others:
            warnings.append(
                f"{self.file} has {len(others)} more hooks that send to cmserver. Remove them, or events are sent twice."
            )
        if not self.target.url.startswith("https://") and not is_local(self.target.url):
            warnings.append(f"{self.target.url} is not encrypted: the network can read the key and everything that is sent.")
        return warnings

    def advise(self) -> list[str]:
        """What the user should know or do afterwards."""
        lines = self.agent.find_problems(parse_settings(self.file, self.before), self.file)
        mcp = self.server.mcp
        if mcp.is_open and "TOOLS" not in self.config:
            command = server_command(sys.executable, "mcp", "--agent", self.agent.name)
            lines.append(f"To add the memory's tools, type: {shlex.join([self.agent.program, *self.agent.add_mcp(command)])}")
        if mcp.problem is not None:
            lines.append(f"The memory's tools are left out: {mcp.problem}")
        return lines


def plan_connect(agent: Agent, request: ConnectRequest, settings: Settings, report: Report) -> ConnectPlan:
    """Look at the settings and ask the server. Nothing is changed."""
    folder = ClientFolder(clients_folder(os.environ), agent.name)
    old = folder.connection()
    file = _settings_file(agent, request.settings_file)
    before = read_settings(file)
    parse_settings(file, before)
    if shutil.which(agent.program) is None and not file.parent.exists():
        report(
            f"{agent.title} does not seem to be installed: {agent.program} is not on the PATH, and {file.parent} does not exist. "
            "It is connected nevertheless.",
            err=True,
        )

    target = resolve_target(settings, request.url, request.key, folder, old)
    allow_writing = _keep(request.allow_writing, old.allow_writing if old else None)
    if old is not None and old.key_is_ours and old.allow_writing and not allow_writing:
        target = structs.replace(target, agent_key=None)  # the key that it has may do more than it should
    server = asyncio.run(check_server(target, old, (*SCOPES, WRITING_SCOPE) if allow_writing else SCOPES))
    config = build_config(
        agent, folder.config(), target.url, request.exclude, has_tools=request.plugin is not None and server.mcp.is_open
    )
    on_file = _keep(request.on_file, old.on_file if old else None)
    hooks = (*agent.hooks, agent.read_hook) if on_file and agent.read_hook is not None else agent.hooks
    marketplace: Path | None = None
    plugin_files: dict[str, str] = {}
    settings_files = list(old.settings) if old else []
    if request.plugin is not None:
        default = (old.plugin if old else None) or str(folder.path.parent.parent / "marketplace")
        marketplace = Path(request.plugin or default).expanduser().absolute()
        mcp_url = f"{target.url}/mcp" if server.mcp.is_open else None
        plugin_files = plugin.build_files(hooks, folder.path, mcp_url=mcp_url, delimiter=plugin.find_delimiter(marketplace))
        after = uninstall_hooks(before, file, folder.is_ours)
        settings_files = [name for name in settings_files if name != str(file)]
    else:
        name = "cmserver" if agent.names_hooks else None
        groups: list[tuple[str, Json]] = [
            (hook.event, hook_group(hook_command(folder.hook, hook.event), hook.timeout, matcher=hook.matcher, name=name))
            for hook in hooks
        ]
        after = install_hooks(before, file, groups, folder.is_ours)
        settings_files += [str(file)] if str(file) not in settings_files else []
    connection = Connection(
        agent=agent.name,
        url=target.url,
        settings=settings_files,
        key_id=server.key.id,
        key_is_ours=server.key.is_ours,
        on_file=on_file,
        allow_writing=allow_writing,
        plugin=None if marketplace is None else str(marketplace),
    )
    return ConnectPlan(
        agent=agent,
        folder=folder,
        old=old,
        target=target,
        server=server,
        file=file,
        before=before,
        after=after,
        config=config,
        connection=connection,
        marketplace=marketplace,
        plugin_files=plugin_files,
    )


def connect(plan: ConnectPlan, report: Report) -> None:
    """Carry out the plan. The client folder is written first, so that hooks in the settings can always be removed again."""
    old, folder = plan.old, plan.folder
    old_key = folder.key() if old is not None else None
    install = plan.plugin_changes or (plan.marketplace is not None and old is None)
    key = plan.server.key
    if key.text is None:
        key = asyncio.run(make_key(plan.target, plan.agent.name, key.scopes))
    assert key.text is not None
    try:
        folder.install(plan.config, key.text)
        folder.save(structs.replace(plan.connection, key_id=key.id))
        if plan.after is not None and plan.settings_change:
            backup = replace_settings(plan.file, plan.before, plan.after)
            report(f"Written: {plan.file}{f' (backup: {backup})' if backup else ''}")
        if plan.marketplace is not None and install:
            plugin.write_marketplace(plan.marketplace, plan.plugin_files)
    except (CmserverError, OSError):
        if plan.server.key.text is None and (old is None or not old.key_is_ours):
            asyncio.run(revoke_key(plan.target.url, key.text))
        raise
    if plan.marketplace is not None and install:
        plugin.install_plugin(plan.marketplace, report)
    if plan.plugin_goes and old is not None:
        _remove_plugin(old, report)
    if old is not None and old_key != key.text:
        revoke_own_key(old, old_key, report)


def disconnect(agent: Agent, settings_file: Path | None, dialog: Dialog, *, purge: bool) -> None:
    """Remove our hooks from one settings file, or from all; with the last ones the key and the client folder go as well."""
    folder = ClientFolder(clients_folder(os.environ), agent.name)
    old = folder.connection()
    file = _settings_file(agent, settings_file)
    connected = [Path(name) for name in old.settings] if old is not None else []
    files = [file] if settings_file is not None else list(dict.fromkeys([*connected, file]))
    texts = [(path, text, uninstall_hooks(text, path, folder.is_ours)) for path in files for text in [read_settings(path)]]
    changes = [(path, before, after) for path, before, after in texts if before != after]
    if old is None and not changes and not (purge and folder.path.exists()):
        dialog.report(f"{agent.title} is not connected.")
        return
    other_files = [str(path) for path in connected if path not in files]
    keeps_plugin = settings_file is not None and old is not None and old.plugin is not None
    is_last = not other_files and not keeps_plugin
    for path, before, after in changes:
        dialog.report(render_diff(path, before, after or ""))
    if old is not None and is_last:
        if old.plugin is not None:
            dialog.report(f"Uninstall the plugin {plugin.FULL_NAME}, and remove {old.plugin}")
        if old.key_is_ours:
            dialog.report(f"Revoke the key {old.key_id} at {old.url}")
    if not dialog.confirm(f"Disconnect {agent.title}?"):
        return
    for path, before, after in changes:
        dialog.report(f"Written: {path} (backup: {replace_settings(path, before, after or '')})")
    if old is not None and not is_last:
        folder.save(structs.replace(old, settings=other_files))
        dialog.report(f"{agent.title} stays connected by {' '.join(other_files) or 'its plugin'}.")
    else:
        _remove(folder, old, dialog.report, purge=purge)
        dialog.report(f"{agent.title} is disconnected.")


def _remove(folder: ClientFolder, old: Connection | None, report: Report, *, purge: bool) -> None:
    if old is not None:
        _remove_plugin(old, report)
        revoke_own_key(old, folder.key(), report)
    if folder.remove(purge=purge):
        report(f"Calls that could not be sent stay in {folder.path}: they are sent when you connect again. --purge deletes them.")


def _remove_plugin(old: Connection, report: Report) -> None:
    if old.plugin is not None:
        plugin.uninstall_plugin(report)
        plugin.remove_marketplace(Path(old.plugin))


def _keep(chosen: bool | None, before: bool | None) -> bool:
    """An option's value: the given one, else that of the last time, else no."""
    return bool(before if chosen is None else chosen)


def _settings_file(agent: Agent, named: Path | None) -> Path:
    return (named or agent.settings_file(os.environ, home_folder())).expanduser().absolute()
