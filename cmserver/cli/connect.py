"""`cmserver connect` and `cmserver disconnect`: an agent's hooks, its key, and what stands in its settings."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import click
import msgspec
from msgspec import structs

from cmserver.base.configuration import load
from cmserver.base.errors import CmserverError
from cmserver.cli import claude_plugin, connecting, with_machine
from cmserver.cli.connect_claude_mem import connect_claude_mem, disconnect_claude_mem
from cmserver.cli.connecting import Found, HookKey, Whom, is_here
from cmserver.cli.talk import confirm, yes_option
from cmserver.hooks.attach import claude_code, codex, entries, gemini, jsontext, plugin, units
from cmserver.hooks.attach.folder import ClientFolder, clients_folder, configuration, home
from cmserver.hooks.attach.model import SCOPES, Attachment, Connection, Hook
from cmserver.hooks.attach.write import replace

ATTACHMENTS: tuple[Attachment, ...] = (claude_code.ATTACHMENT, codex.ATTACHMENT, gemini.ATTACHMENT)

_BY_HAND = "/v1/hooks/"


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What was typed behind `cmserver connect AGENT`."""

    settings_file: Path | None
    url: str | None
    key: str | None
    exclude: tuple[str, ...]
    config_file: Path | None
    start_with_machine: bool | None
    dry_run: bool
    yes: bool
    on_file: bool | None = None
    plugin: str | None = None
    """The marketplace's folder, or "" for the usual one; None where the hooks shall stand in the settings."""

    def __repr__(self) -> str:
        return f"Wanted(settings_file={self.settings_file!r}, url={self.url!r}, key='...')"


_SETTINGS = click.option(
    "--settings",
    "settings_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Another settings file of the agent, for example that of one project; else the user's own.",
)
_DRY_RUN = click.option("--dry-run", is_flag=True, help="Show what would be done, and do nothing.")
_OPTIONS = (
    click.option("--server", "url", envvar="CMSERVER_URL", show_envvar=True, help="The server; else that of the data folder."),
    click.option(
        "--key",
        envvar="CMSERVER_KEY",
        show_envvar=True,
        help="A key that may make keys, or the hooks' own; better in CMSERVER_KEY_FILE's file. Else that of the data folder.",
    ),
    click.option(
        "--exclude",
        multiple=True,
        metavar="PATTERN",
        help="Folders or repositories of which nothing is sent: ~/private/*; may be repeated.",
    ),
    _SETTINGS,
    click.option(
        "--start-with-machine/--no-start-with-machine",
        default=None,
        help="Whether a server on this machine starts with it (systemd, launchd); else you are asked.",
    ),
    _DRY_RUN,
    yes_option,
    click.option("--config", "config_file", type=click.Path(path_type=Path), help="A TOML file with settings."),
)


def _options(command: Callable[..., None]) -> Callable[..., None]:
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@click.group()
def connect() -> None:
    """Attach a coding agent: its hooks, and a key for them. Shows what changes, and asks."""


@connect.command("claude-code")
@click.option(
    "--on-file/--no-on-file", default=None, help="Whether a hook also runs before a file is read (CMSERVER_CONTEXT_ON_FILE)."
)
@click.option(
    "--plugin",
    is_flag=False,
    flag_value="",
    metavar="[DIR]",
    help="As a plugin, whose marketplace is written into this folder, instead of hooks in the settings.",
)
@_options
def connect_claude_code(**typed: object) -> None:
    """Attach Claude Code."""
    _connect(claude_code.ATTACHMENT, msgspec.convert(typed, Wanted))


@connect.command("codex")
@_options
def connect_codex(**typed: object) -> None:
    """Attach Codex."""
    _connect(codex.ATTACHMENT, msgspec.convert(typed, Wanted))


@connect.command("gemini")
@_options
def connect_gemini(**typed: object) -> None:
    """Attach Gemini CLI."""
    _connect(gemini.ATTACHMENT, msgspec.convert(typed, Wanted))


connect.add_command(connect_claude_mem)


@click.group()
def disconnect() -> None:
    """Let go of an agent: its hooks are taken out, and the key that was made for them is revoked."""


def _disconnecting(attachment: Attachment) -> click.Command:
    @click.command(attachment.agent, help=f"Let go of {attachment.title}.")
    @_SETTINGS
    @click.option("--purge", is_flag=True, help="Throw away what could not be sent yet.")
    @_DRY_RUN
    @yes_option
    def command(settings_file: Path | None, *, purge: bool, dry_run: bool, yes: bool) -> None:
        _disconnect(attachment, settings_file, purge=purge, dry_run=dry_run, yes=yes)

    return command


for one in ATTACHMENTS:
    disconnect.add_command(_disconnecting(one))
disconnect.add_command(disconnect_claude_mem)


# -- connect


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What will be done, looked at before anything is."""

    file: Path
    before: str | None
    after: str | None
    config: dict[str, str]
    connection: Connection
    marketplace: Path | None
    plugin_files: dict[str, str]


def _connect(attachment: Attachment, wanted: Wanted) -> None:
    settings = load(os.environ, config_file=wanted.config_file).settings
    folder = ClientFolder(clients_folder(os.environ), attachment.agent)
    old = folder.connection()
    file = _settings_file(attachment, wanted.settings_file)
    before = jsontext.read(file)
    found = jsontext.parse(file, before)
    _say_if_missing(attachment, file)

    whom = connecting.whom(settings, wanted.url, wanted.key, folder, old)
    server = asyncio.run(connecting.look(whom, old))
    team, key = server.team, server.key
    has_tools = wanted.plugin is not None and server.mcp.is_open
    config = configuration(folder.config(), whom.url, wanted.exclude, has_tools=has_tools)
    plan = _plan(attachment, wanted, folder, old, whom, server, file, before, config)

    hooks_change = plan.after != before
    plugin_changes = plan.marketplace is not None and not plugin.is_current(plan.marketplace, plan.plugin_files)
    plugin_goes = plan.marketplace is None and old is not None and old.plugin is not None
    folder_changes = not folder.is_current() or not folder.says(config, key.text)
    warnings = [*_doubled(found, folder, file), *_in_clear(whom.url)]
    if not (hooks_change or plugin_changes or plugin_goes or folder_changes or old != plan.connection):
        click.echo(f"{attachment.title} is connected to {whom.url} (team {team}); nothing is to be changed.")
        for line in warnings:
            click.echo(line)
    else:
        click.echo(f"Server: {whom.url}, team {team}")
        for line in warnings + _outline(attachment, folder, key, plan, plugin_goes=plugin_goes, folder_changes=folder_changes):
            click.echo(line)
        if hooks_change:
            click.echo(jsontext.diff(file, before, plan.after or ""))
        if wanted.dry_run:
            click.echo("Nothing is written, and no key is made (--dry-run).")
            return
        confirm(f"Connect {attachment.title}?", yes=wanted.yes)
        _do(attachment, folder, old, whom, key, plan, install=plugin_changes or (plan.marketplace is not None and old is None))
        click.echo(f"{attachment.title} is connected to {whom.url}. Sessions that begin now are recorded.")
    for note in attachment.notes(found, file):
        click.echo(note)
    if server.mcp.is_open and not has_tools:
        click.echo(_tools_too(attachment))
    if server.mcp.why_not is not None:
        click.echo(f"The memory's tools are left out: {server.mcp.why_not}")
    if is_here(whom.url) and not wanted.dry_run:
        with_machine.offer(settings, os.environ, home(), wanted=wanted.start_with_machine)


def _plan(
    attachment: Attachment,
    wanted: Wanted,
    folder: ClientFolder,
    old: Connection | None,
    whom: Whom,
    server: Found,
    file: Path,
    before: str | None,
    config: dict[str, str],
) -> Plan:
    on_file = wanted.on_file if wanted.on_file is not None else (old.on_file if old else False)
    hooks = (*attachment.hooks, *([claude_code.ON_FILE] if on_file and attachment is claude_code.ATTACHMENT else []))
    marketplace: Path | None = None
    files: dict[str, str] = {}
    if wanted.plugin is not None:
        there = old.plugin if old is not None else None
        usual = there or str(folder.path.parent.parent / "marketplace")
        marketplace = Path(wanted.plugin or usual).expanduser().absolute()
        mcp_url = f"{whom.url}/mcp" if server.mcp.is_open else None
        files = plugin.files(hooks, folder.path, mcp_url=mcp_url, end=plugin.end_for(marketplace))
        after = entries.without_ours(before, file, folder.is_ours)
        named = [one for one in (old.settings if old else []) if one != str(file)]
    else:
        after = entries.with_ours(before, file, _groups(attachment, hooks, folder), folder.is_ours)
        named = list(old.settings) if old else []
        named += [str(file)] if str(file) not in named else []
    connection = Connection(
        agent=attachment.agent,
        url=whom.url,
        settings=named,
        key_id=server.key.id,
        key_is_ours=server.key.is_ours,
        on_file=on_file,
        plugin=None if marketplace is None else str(marketplace),
    )
    return Plan(
        file=file, before=before, after=after, config=config, connection=connection, marketplace=marketplace, plugin_files=files
    )


def _do(
    attachment: Attachment, folder: ClientFolder, old: Connection | None, whom: Whom, key: HookKey, plan: Plan, *, install: bool
) -> None:
    """In this order nothing is left without a trace: what stands in the settings can always be taken out again."""
    old_key = folder.key() if old is not None else None
    made = asyncio.run(connecting.mint(whom, attachment.agent)) if key.text is None else key
    assert made.text is not None
    try:
        folder.make(plan.config, made.text)
        folder.remember(structs.replace(plan.connection, key_id=made.id))
        if plan.after is not None and plan.after != plan.before:
            backup = replace(plan.file, plan.before, plan.after)
            click.echo(f"Written: {plan.file}{f' (before: {backup})' if backup else ''}")
        if plan.marketplace is not None and install:
            plugin.make(plan.marketplace, plan.plugin_files)
    except (CmserverError, OSError):
        if key.text is None and (old is None or not old.key_is_ours):
            asyncio.run(connecting.revoke(whom.url, made.text))
        raise
    if plan.marketplace is not None and install:
        claude_plugin.install(plan.marketplace)
    if plan.marketplace is None and old is not None and old.plugin is not None:
        claude_plugin.uninstall()
        plugin.remove(Path(old.plugin))
    if old is not None and old.key_is_ours and old_key is not None and old_key != made.text:
        _say(asyncio.run(connecting.revoke(old.url, old_key)))


def _groups(attachment: Attachment, hooks: Sequence[Hook], folder: ClientFolder) -> list[tuple[str, jsontext.Json]]:
    name = "cmserver" if attachment.named else None
    return [(hook.event, entries.group(hook, entries.command(folder.hook, hook.event), name=name)) for hook in hooks]


def _outline(
    attachment: Attachment, folder: ClientFolder, key: HookKey, plan: Plan, *, plugin_goes: bool, folder_changes: bool
) -> list[str]:
    """What will be done besides the change of the settings."""
    said: list[str] = []
    if key.text is None:
        scopes = ", ".join(SCOPES)
        said.append(f"A key is made, for every project of the team: {connecting.label(attachment.agent)} ({scopes})")
    elif not key.is_ours:
        said.append("The hooks use the key that was given: it may not make another one.")
    if folder_changes:
        said.append(f"Into {folder.path} go the hook client, its configuration, and the key (only you can read it)")
    if plan.marketplace is not None:
        said.append(f"The plugin is written into {plan.marketplace} and installed with `claude plugin`")
    if plugin_goes:
        said.append("The plugin is taken out: the hooks stand in the settings from now on")
    return said


def _tools_too(attachment: Attachment) -> str:
    """How the agent gets our MCP tools besides. Their settings are the agent's own affair; the key is in none of them."""
    ours = units.program(sys.executable, "mcp", "--agent", attachment.agent)
    return f"To give it the memory's tools as well, type: {shlex.join([attachment.program, *attachment.add_mcp(ours)])}"


def _say_if_missing(attachment: Attachment, file: Path) -> None:
    if shutil.which(attachment.program) is None and not file.parent.exists():
        click.echo(
            f"{attachment.title} seems not to be installed: there is no {attachment.program} on the PATH, and no {file.parent}. "
            "It can be connected all the same.",
            err=True,
        )


def _doubled(found: jsontext.Json, folder: ClientFolder, file: Path) -> list[str]:
    others = [text for text in entries.commands(found.get("hooks")) if _BY_HAND in text and not folder.is_ours(text)]
    if not others:
        return []
    return [f"{file} also has {len(others)} hooks that send to a cmserver by themselves. Take them out, or things are told twice."]


def _in_clear(url: str) -> list[str]:
    if url.startswith("https://") or is_here(url):
        return []
    return [f"{url} is asked without encryption: whoever is in between can read the key and all that is sent."]


def _settings_file(attachment: Attachment, named: Path | None) -> Path:
    return (named or attachment.settings(os.environ, home())).expanduser().absolute()


# -- disconnect


def _disconnect(attachment: Attachment, named: Path | None, *, purge: bool, dry_run: bool, yes: bool) -> None:
    folder = ClientFolder(clients_folder(os.environ), attachment.agent)
    old = folder.connection()
    usual = _settings_file(attachment, named)
    known = [Path(one) for one in old.settings] if old is not None else []
    files = [usual] if named is not None else list(dict.fromkeys([*known, usual]))
    rest = [str(one) for one in known if one not in files] if named is not None else []
    changes = [
        (file, before, after) for file in files if (before := jsontext.read(file)) != (after := _without(file, before, folder))
    ]
    if old is None and not changes and not (purge and folder.path.exists()):
        click.echo(f"{attachment.title} is not connected.")
        return

    for file, before, after in changes:
        click.echo(jsontext.diff(file, before, after or ""))
    ends = not rest and not (named is not None and old is not None and old.plugin is not None)
    if ends and old is not None and old.plugin is not None:
        click.echo(f"The plugin {plugin.FULL_NAME} and {old.plugin} are taken away")
    if ends and old is not None and old.key_is_ours:
        click.echo(f"The key {old.key_id} is revoked at {old.url}")
    if dry_run:
        click.echo("Nothing is changed (--dry-run).")
        return
    confirm(f"Disconnect {attachment.title}?", yes=yes)
    for file, before, after in changes:
        backup = replace(file, before, after or "")
        click.echo(f"Written: {file} (before: {backup})")
    if not ends and old is not None:
        folder.remember(structs.replace(old, settings=rest))
        click.echo(f"{attachment.title} stays connected by {' '.join(rest) or 'its plugin'}.")
        return
    _let_go(folder, old, purge=purge)
    click.echo(f"{attachment.title} is disconnected.")


def _let_go(folder: ClientFolder, old: Connection | None, *, purge: bool) -> None:
    if old is not None and old.plugin is not None:
        claude_plugin.uninstall()
        plugin.remove(Path(old.plugin))
    key = folder.key()
    if old is not None and old.key_is_ours and key is not None:
        _say(asyncio.run(connecting.revoke(old.url, key)))
    if folder.remove(purge=purge):
        click.echo(f"What could not be sent yet stays in {folder.path}: it is sent when you connect again; --purge throws it away.")


def _without(file: Path, before: str | None, folder: ClientFolder) -> str | None:
    return entries.without_ours(before, file, folder.is_ours)


def _say(sentence: str | None) -> None:
    if sentence is not None:
        click.echo(sentence, err=True)
