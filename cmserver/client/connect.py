"""Connects an agent to a server and disconnects it: its hooks, its key and its client folder. A plan is shown before it is done."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import structs

from cmserver.base.errors import CmserverError
from cmserver.base.own_command import build_launcher_command
from cmserver.base.settings import Settings
from cmserver.client import hook_key, json_settings, plugin
from cmserver.client.agent_files import PLUGIN_NAME, AgentFile, AgentPlace, Hook
from cmserver.client.agents import Agent
from cmserver.client.client_folder import (
    ClientFolder,
    Connection,
    build_config,
    clients_folder,
    home_folder,
    list_missing,
    remove_empty,
)
from cmserver.client.dialog import Dialog, Report
from cmserver.client.server_api import is_local

_HOOK_ROUTE = "/v1/hooks/"
_LESS = (
    "others see how many files you changed, how checks ended, and commits. What comes with a key that somebody else made for you, "
    "everybody in the team can read."
)
_READERS = {
    "members": "Everybody in the team {team} can read what you ask {agent} and what it answers.",
    "owners": f"The owners of the team {{team}} can read what you ask {{agent}} and what it answers; {_LESS}",
    "nobody": f"Nobody else in the team {{team}} can read what you ask {{agent}} and what it answers; {_LESS}",
}
"""Who reads what is recorded, by the team's setting."""


class ConnectRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `cmserver connect AGENT`."""

    settings_file: Path | None = None
    url: str | None
    key: str | None
    exclude: tuple[str, ...] = ()
    allow_writing: bool | None
    start_with_machine: bool | None
    dry_run: bool
    yes: bool
    on_file: bool | None = None
    plugin: str | None = None
    """The marketplace's folder, "" for the default one; None for hooks in the settings."""

    def __repr__(self) -> str:
        return f"ConnectRequest(settings_file={self.settings_file!r}, url={self.url!r}, key='...')"


class SettingsFileEdit(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of one of the agent's files; None stands for no file."""

    path: Path
    before: str | None
    after: str | None

    @property
    def is_change(self) -> bool:
        return self.before != self.after


class ConnectPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What connecting will change."""

    agent: Agent
    folder: ClientFolder
    old: Connection | None
    target: hook_key.ConnectTarget
    server: hook_key.ServerCheck
    edits: tuple[SettingsFileEdit, ...]
    """The first one is of the settings."""
    config: dict[str, str]
    connection: Connection
    marketplace: Path | None
    plugin_files: dict[str, str]

    @property
    def file(self) -> Path:
        return self.edits[0].path

    @property
    def settings(self) -> json_settings.Json:
        """What the settings are now."""
        return json_settings.parse_settings(self.file, self.edits[0].before)

    @property
    def settings_change(self) -> bool:
        return any(edit.is_change for edit in self.edits)

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
        if self.agent.records and not is_local(self.target.url):
            readers = _READERS.get(self.server.words, _READERS["members"])
            lines.append(f"{readers.format(team=self.server.team, agent=self.agent.title)} --exclude leaves folders out.")
        if key.text is None:
            lines.append(
                f"Make a key for every project of the team: {hook_key.key_name(self.agent.name, key.scopes)} "
                f"({', '.join(key.scopes)})"
            )
        elif not key.is_ours:
            lines.append("The agent uses the given key, which cannot make another one.")
        if self.folder_changes:
            lines.append(f"Write the hook client, its configuration and the key into {self.folder.path} (only you can read it)")
        if self.marketplace is not None:
            lines.append(f"Write the plugin into {self.marketplace}, and install it with `claude plugin`")
        if self.plugin_goes:
            lines.append("Uninstall the plugin: the hooks will be in the settings")
        lines += [json_settings.render_diff(edit.path, edit.before, edit.after or "") for edit in self.edits if edit.is_change]
        return lines

    def find_warnings(self) -> list[str]:
        """Warnings: hooks that would send events twice, and an address without encryption."""
        warnings: list[str] = []
        targets = json_settings.list_hook_targets(self.settings.get("hooks"))
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
        lines = self.agent.find_problems(self.settings, self.file)
        mcp = self.server.mcp
        if mcp.is_open and "TOOLS" not in self.config and self.agent.add_mcp is not None and not self.agent.has_tools(self.file):
            command = build_launcher_command("mcp", "--agent", self.agent.name)
            lines.append(f"To add the memory's tools, type: {shlex.join([self.agent.program, *self.agent.add_mcp(command)])}")
        if mcp.problem is not None:
            lines.append(f"The memory's tools are left out: {mcp.problem}")
        return lines


def plan_connect(agent: Agent, request: ConnectRequest, settings: Settings, report: Report) -> ConnectPlan:
    """Look at the settings and ask the server. Nothing is changed."""
    folder = ClientFolder(clients_folder(os.environ), agent.name)
    old = folder.connection()
    # Before the server is asked, so that a file that cannot be edited is refused first. The hooks may change with what it says.
    files = agent.files(_find_place(agent, folder, agent.hooks), request.settings_file)
    for edit in _plan_edits(files):
        if edit.path.suffix == ".json":
            json_settings.parse_settings(edit.path, edit.before)
    file = files[0].path
    if shutil.which(agent.program) is None and not file.parent.exists():
        report(
            f"{agent.title} does not seem to be installed: {agent.program} is not on the PATH, and {file.parent} does not exist. "
            "It is connected nevertheless.",
            err=True,
        )

    target = hook_key.resolve_target(settings, request.url, request.key, folder, old)
    allow_writing = _keep(request.allow_writing, old.allow_writing if old else None)
    if old is not None and old.key_is_ours and old.allow_writing and not allow_writing:
        target = structs.replace(target, agent_key=None)  # the key that it has may do more than it should
    scopes = hook_key.SCOPES if agent.records else hook_key.READING_SCOPES
    server = asyncio.run(hook_key.check_server(target, old, (*scopes, hook_key.WRITING_SCOPE) if allow_writing else scopes))
    brings_tools = request.plugin is not None or agent.build_files is not None
    config = build_config(agent, folder.config(), target.url, request.exclude, has_tools=brings_tools and server.mcp.is_open)
    on_file = _keep(request.on_file, old.on_file if old else None)
    hooks = (*agent.hooks, agent.read_hook) if on_file and agent.read_hook is not None else agent.hooks
    marketplace: Path | None = None
    plugin_files: dict[str, str] = {}
    settings_files = list(old.settings) if old else []
    made = dict(old.made) if old else {}
    files = agent.files(_find_place(agent, folder, hooks, has_mcp=server.mcp.is_open), request.settings_file)
    if request.plugin is not None:
        default = (old.plugin if old else None) or str(folder.path.parent.parent / "marketplace")
        marketplace = Path(request.plugin or default).expanduser().absolute()
        plugin_files = plugin.build_files(hooks, folder.path.parent, has_mcp=server.mcp.is_open)
        place = structs.replace(_find_place(agent, folder, ()), has_plugin=True)
        edits = _plan_edits(agent.files(place, request.settings_file), made)
        settings_files = [name for name in settings_files if name != str(file)]
    else:
        edits = _plan_edits(files, made)
        hooked = edits if agent.build_files is not None else edits[:1]
        settings_files += [str(edit.path) for edit in hooked if str(edit.path) not in settings_files and edit.after is not None]
    connection = Connection(
        agent=agent.name,
        url=target.url,
        settings=settings_files,
        key_id=server.key.id,
        key_is_ours=server.key.is_ours,
        on_file=on_file,
        allow_writing=allow_writing,
        plugin=None if marketplace is None else str(marketplace),
        made=made,
        folders=[*list_missing([folder.path, *(edit.path.parent for edit in edits)]), *(old.folders if old else [])],
    )
    return ConnectPlan(
        agent=agent,
        folder=folder,
        old=old,
        target=target,
        server=server,
        edits=edits,
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
        key = asyncio.run(hook_key.make_key(plan.target, plan.agent.name, key.scopes))
    assert key.text is not None
    try:
        folder.install(plan.config, key.text)
        folder.save(structs.replace(plan.connection, key_id=key.id))
        for edit in plan.edits:
            _apply(edit, report)
        if plan.marketplace is not None and install:
            plugin.write_marketplace(plan.marketplace, plan.plugin_files)
    except (CmserverError, OSError):
        if plan.server.key.text is None and (old is None or not old.key_is_ours):
            asyncio.run(hook_key.revoke_key(plan.target.url, key.text))
        raise
    if plan.marketplace is not None and install:
        plugin.install_plugin(plan.marketplace, report)
    if plan.plugin_goes and old is not None:
        _remove_plugin(old, report)
    if old is not None and old_key != key.text:
        hook_key.end_own_key(
            old, old_key, report, only=plan.server.key.text is not None
        )  # a user may have rotated it to the new one


def disconnect(agent: Agent, settings_file: Path | None, dialog: Dialog, *, purge: bool) -> None:
    """Remove what is ours from one settings file, or from all; with the last ones the key and the client folder go as well."""
    folder = ClientFolder(clients_folder(os.environ), agent.name)
    old = folder.connection()
    place = _find_place(agent, folder, agent.hooks)
    connected = [Path(name) for name in old.settings] if old is not None else []
    files = _find_connected_files(agent, place, connected, settings_file)
    edits = [edit for edit in _plan_removal(files, old.made if old is not None else {}) if edit.is_change]
    if old is None and not edits and not (purge and folder.path.exists()):
        dialog.report(f"{agent.title} is not connected.")
        return
    paths = [file.path for file in files]
    other_files = [str(path) for path in connected if path not in paths]
    keeps_plugin = settings_file is not None and old is not None and old.plugin is not None
    is_last = not other_files and not keeps_plugin
    for edit in edits:
        dialog.report(json_settings.render_diff(edit.path, edit.before, edit.after or ""))
    if old is not None and is_last:
        if old.plugin is not None:
            dialog.report(f"Uninstall the plugin {PLUGIN_NAME}, and remove {old.plugin}")
        if old.key_is_ours:
            dialog.report(f"End the key {old.key_id} at {old.url}; what was sent with it is still worked")
    if not dialog.confirm(f"Disconnect {agent.title}?"):
        return
    for edit in edits:
        _apply(edit, dialog.report)
    if old is not None and not is_last:
        folder.save(structs.replace(old, settings=other_files))
        dialog.report(f"{agent.title} stays connected by {' '.join(other_files) or 'its plugin'}.")
    else:
        _remove(folder, old, dialog.report, purge=purge)
        dialog.report(f"{agent.title} is disconnected.")
    remove_empty(old.folders if old is not None else [])


def _find_connected_files(
    agent: Agent, place: AgentPlace, connected: Sequence[Path], settings_file: Path | None
) -> list[AgentFile]:
    """The files that may have a part of ours; while other settings stay connected, only the named one."""
    files = agent.files(place, settings_file)
    if agent.build_files is not None:
        return files
    if settings_file is not None:
        return files[:1] if any(path != files[0].path for path in connected) else files
    found = [file for path in dict.fromkeys([*connected, files[0].path]) for file in agent.files(place, path)]
    return list({file.path: file for file in found}.values())


def _remove(folder: ClientFolder, old: Connection | None, report: Report, *, purge: bool) -> None:
    if old is not None:
        _remove_plugin(old, report)
        hook_key.end_own_key(old, folder.key(), report)
    if folder.remove(purge=purge):
        report(f"Calls that could not be sent stay in {folder.path}: they are sent when you connect again. --purge deletes them.")


def _remove_plugin(old: Connection, report: Report) -> None:
    if old.plugin is not None:
        plugin.uninstall_plugin(report)
        plugin.remove_marketplace(Path(old.plugin))


def _keep(chosen: bool | None, before: bool | None) -> bool:
    """An option's value: the given one, else that of the last time, else no."""
    return bool(before if chosen is None else chosen)


# -- the agent's files


def _find_place(agent: Agent, folder: ClientFolder, hooks: tuple[Hook, ...], *, has_mcp: bool = True) -> AgentPlace:
    return AgentPlace(
        name=agent.name,
        environ=os.environ,
        home=home_folder(),
        platform=sys.platform,
        hook=folder.hook,
        hooks=hooks,
        is_our_hook=folder.is_ours,
        mcp_command=tuple(build_launcher_command("mcp", "--agent", agent.name)) if has_mcp else (),
    )


def _plan_edits(files: Sequence[AgentFile], made: dict[str, list[str]] | None = None) -> tuple[SettingsFileEdit, ...]:
    """The edits that put our part into the files. What is made for it besides is added to `made`, by path."""
    edits: list[SettingsFileEdit] = []
    for file in files:
        before = json_settings.read_settings(file.path)
        installed = file.install(before)
        if made is not None and installed.made:
            made[str(file.path)] = [*dict.fromkeys([*made.get(str(file.path), []), *installed.made])]
        edits.append(SettingsFileEdit(path=file.path, before=before, after=installed.text))
    return tuple(edits)


def _plan_removal(files: Sequence[AgentFile], made: Mapping[str, list[str]]) -> tuple[SettingsFileEdit, ...]:
    """The edits that take our part out of the files."""
    texts = [(file, json_settings.read_settings(file.path)) for file in files]
    return tuple(
        SettingsFileEdit(path=file.path, before=before, after=file.uninstall(before, made.get(str(file.path), [])))
        for file, before in texts
    )


def _apply(edit: SettingsFileEdit, report: Report) -> None:
    if not edit.is_change:
        return
    backup = json_settings.replace_settings(edit.path, edit.before, edit.after)
    report(f"{'Removed' if edit.after is None else 'Written'}: {edit.path}{f' (backup: {backup})' if backup else ''}")
