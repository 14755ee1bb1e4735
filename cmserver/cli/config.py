"""`cmserver config`: the effective settings and their sources. Also the option --config, by which all commands load theirs."""

from __future__ import annotations

import asyncio
import json
import os
import re
from pathlib import Path
from urllib.parse import quote

import click
import msgspec
import yaml

from cmserver.access.model import RetentionPolicy
from cmserver.access.wire import OneTeamOut
from cmserver.base import configuration
from cmserver.base.configuration import BadSetting, LoadedSettings, ShownSetting
from cmserver.base.contextify import translate_contextify
from cmserver.base.lookalikes import sanitize_line
from cmserver.base.settings import PREFIX, Settings
from cmserver.cli.output import render_json
from cmserver.client.server_api import Api


def _load(_context: click.Context, _parameter: click.Parameter, config_file: Path | None) -> LoadedSettings:
    return configuration.load(os.environ, config_file=config_file)


def _load_settings(context: click.Context, parameter: click.Parameter, config_file: Path | None) -> Settings:
    return _load(context, parameter, config_file).settings


config_file_option = click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    help="A TOML file with settings. [default: the file in CMSERVER_CONFIG, else config.toml in the data folder]",
)
"""Passes the path of the file to the command as `config_file`."""
settings_option = click.option(
    "--config", "settings", type=click.Path(path_type=Path), callback=_load_settings, help="A TOML file with settings."
)
"""Passes the settings of this file and the environment to the command as `settings`."""
loaded_option = click.option(
    "--config", "loaded", type=click.Path(path_type=Path), callback=_load, help="A TOML file with settings."
)
"""Like `settings_option`, but passes them with their sources, as `loaded`."""


@click.group("config", invoke_without_command=True)
@config_file_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object: name -> value, source, masked.")
@click.pass_context
def config(context: click.Context, config_file: Path | None, *, as_json: bool) -> None:
    """Print the effective settings, with secrets masked.

    The output is TOML and can serve as a config file; masked lines are comments.
    """
    if context.invoked_subcommand is not None:
        return
    loaded = configuration.load(os.environ, config_file=config_file)
    shown = configuration.effective(loaded)
    if as_json:
        settings = {s.name: {"value": s.value, "source": s.source, "masked": s.masked} for s in shown}
        click.echo(render_json(json.dumps(settings).encode()))
    else:
        for setting in shown:
            click.echo(_line(setting))
    for warning in loaded.warnings:
        click.echo(warning, err=True)


@config.command("import")
@click.argument("program", type=click.Choice(["contextify"]))
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--team", help="Set in this team's policy what is no setting of the server: lifetimes, thresholds, how to merge.")
@settings_option
def import_config(settings: Settings, program: str, file: Path, team: str | None) -> None:  # noqa: ARG001 - the only program so far
    """Print another program's settings as lines of cmserver's config.toml.

    FILE is an env file, or the config.yaml of Contextify. Secrets are printed, too: they are in FILE. With --team it needs access
    to the database, and neither server nor key.
    """
    text = file.read_text(encoding="utf-8", errors="replace")
    values = _read_yaml(text) if file.suffix in {".yaml", ".yml"} else _read_env_file(text)
    imported = translate_contextify(values)
    configuration.load({"HOME": str(Path.home()), **{f"{PREFIX}{name.upper()}": value for name, value in imported.values.items()}})
    for name, value in imported.values.items():
        click.echo(f"{name} = {value if _NUMBER.fullmatch(value) else _toml(value)}")
    try:
        policy = msgspec.convert(imported.policy, RetentionPolicy, strict=False)
    except msgspec.ValidationError as error:
        raise BadSetting(f"{file}: {error}") from error
    if imported.policy and team is not None:
        _set_policy(settings, team, policy)
    elif imported.policy:
        click.echo(f"Of a team, with --team TEAM: {_describe(policy)}.", err=True)
    if imported.unused:
        click.echo(f"Without a setting here: {', '.join(map(sanitize_line, imported.unused))}.", err=True)


def _set_policy(settings: Settings, team: str, policy: RetentionPolicy) -> None:
    """Set in the team's policy what this one says; the rest of it stays."""
    # These load settings by the options of this file.
    from cmserver.cli.database import database_urls  # noqa: PLC0415
    from cmserver.cli.operator import open_operator_client  # noqa: PLC0415

    async def change() -> None:
        with database_urls(settings) as database:
            async with open_operator_client(settings, database) as (http, operator):
                await operator.act_for(team)
                api = Api(http)
                path = f"/v1/teams/{quote(team, safe='')}"
                before = (await api.get(path)).read(OneTeamOut).team.retention
                said = {name: value for name in policy.__struct_fields__ if (value := getattr(policy, name)) is not None}
                await api.patch(path, {"retention": msgspec.structs.replace(before, **said)})

    asyncio.run(change())
    click.echo(f"Set in the policy of the team {sanitize_line(team)}: {_describe(policy)}.", err=True)


def _describe(policy: RetentionPolicy) -> str:
    return ", ".join(f"{name} {value}" for name, value in msgspec.to_builtins(policy).items())


_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?")
_ENV_LINE = re.compile(r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*?)\s*")


def _read_env_file(text: str) -> dict[str, str]:
    lines = [match for line in text.splitlines() if (match := _ENV_LINE.fullmatch(line))]
    return {match[1]: match[2].strip("\"'") for match in lines}


def _read_yaml(text: str) -> dict[str, str]:
    """The values of a YAML file of sections, as `section.key`; deeper ones and lists are left out."""
    try:
        content: object = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise BadSetting(f"The file is no YAML: {sanitize_line(str(error))}") from error
    sections = msgspec.convert(content, dict[str, object]) if isinstance(content, dict) else {}
    return {
        f"{section}.{key}": str(value)
        for section, values in sections.items()
        if isinstance(values, dict)
        for key, value in msgspec.convert(values, dict[str, object]).items()
        if isinstance(value, str | int | float)
    }


def _toml(value: str | float) -> str:
    # JSON's strings and numbers are TOML's too, except for one character.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _line(setting: ShownSetting) -> str:
    value = _toml("" if setting.value is None else setting.value)  # an empty string counts as not set
    line = f"{setting.name} = {value}  # {setting.source}"
    return f"# {line} (masked)" if setting.masked else line
