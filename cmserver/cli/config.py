"""`cmserver config`: the effective settings and their sources. Also the option --config, by which all commands load theirs."""

from __future__ import annotations

import json
import os
from pathlib import Path

import click

from cmserver.base import configuration
from cmserver.base.configuration import LoadedSettings, ShownSetting
from cmserver.base.settings import Settings


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


@click.command("config")
@config_file_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object: name -> value, source, masked.")
def config(config_file: Path | None, *, as_json: bool) -> None:
    """Print the effective settings, with secrets masked.

    The output is TOML and can serve as a config file; masked lines are comments.
    """
    loaded = configuration.load(os.environ, config_file=config_file)
    shown = configuration.effective(loaded)
    if as_json:
        settings = {s.name: {"value": s.value, "source": s.source, "masked": s.masked} for s in shown}
        click.echo(json.dumps(settings, indent=2))
    else:
        for setting in shown:
            click.echo(_line(setting))
    for warning in loaded.warnings:
        click.echo(warning, err=True)


def _line(setting: ShownSetting) -> str:
    # JSON's strings and numbers are TOML's too, except for one character; an empty string counts as not set.
    value = json.dumps("" if setting.value is None else setting.value, ensure_ascii=False).replace("\x7f", "\\u007f")
    line = f"{setting.name} = {value}  # {setting.source}"
    return f"# {line} (masked)" if setting.masked else line
