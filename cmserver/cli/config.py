"""`cmserver config`: the settings in force and where each comes from."""

from __future__ import annotations

import json
import os
from pathlib import Path

import click

from cmserver.base import configuration
from cmserver.base.configuration import Shown


@click.command("config")
@click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    help="A TOML file of settings; else the one that CMSERVER_CONFIG names.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object: name -> value, source, masked.")
def config(config_file: Path | None, *, as_json: bool) -> None:
    """Print the settings in force, secrets masked.

    The output is TOML and can be the beginning of a config file; masked lines are comments in it.
    """
    loaded = configuration.load(os.environ, config_file=config_file)
    shown = configuration.effective(loaded)
    if as_json:
        everything = {s.name: {"value": s.value, "source": s.source, "masked": s.masked} for s in shown}
        click.echo(json.dumps(everything, indent=2))
    else:
        for setting in shown:
            click.echo(_line(setting))
    for warning in loaded.warnings:
        click.echo(warning, err=True)


def _line(setting: Shown) -> str:
    # JSON's texts and numbers are TOML's as well, but for one character; an empty text counts as not set.
    value = json.dumps("" if setting.value is None else setting.value, ensure_ascii=False).replace("\x7f", "\\u007f")
    line = f"{setting.name} = {value}  # {setting.source}"
    return f"# {line} (masked)" if setting.masked else line
