"""`cmserver model set` and `model try`: choose the model that words the memory, or only try one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click

from cmserver.cli.api_client import ApiClient, api_command
from cmserver.cli.exit_codes import ExitCode
from cmserver.ops.provider_choice.trial import ProviderTrialOut
from cmserver.ops.provider_choice.wire import ChosenModelOut, ModelIn

T = TypeVar("T", bound=Callable[..., object])


def _choice_options(command: T) -> T:
    for decorate in (
        click.option("--without-key", is_flag=True, help="Its address needs none; one that is set is not sent there."),
        click.option(
            "--key-file", type=click.Path(path_type=Path, allow_dash=True), help="File with its key; - is standard input."
        ),
        click.option("--base-url", help="Its address, if not the usual one."),
        click.argument("model", required=False),
        click.argument("provider"),
    ):
        command = decorate(command)
    return command


@click.command("try")
@_choice_options
@api_command
async def try_model(
    client: ApiClient, provider: str, model: str | None, base_url: str | None, key_file: Path | None, *, without_key: bool
) -> None:
    """Let the server call a model once, with two made-up events, and say what came of it.

    Without --key-file the key is used that the server has. It costs what it says, and keeps nothing. Operator only. Exits 1 when
    the answer could not be used.
    """
    choice = _read_choice(provider, model, base_url, key_file, without_key=without_key)
    answer = await client.post("/v1/model/trial", choice)
    client.show(answer, ProviderTrialOut, lambda trial: trial.message)
    if not answer.read(ProviderTrialOut).usable:
        sys.exit(ExitCode.FAILURE)


@click.command("set")
@_choice_options
@click.option("--untried", is_flag=True, help="Keep it without a call.")
@api_command
async def choose_model(
    client: ApiClient,
    provider: str,
    model: str | None,
    base_url: str | None,
    key_file: Path | None,
    *,
    without_key: bool,
    untried: bool,
) -> None:
    """Choose the model that words the memory. It is tried first, and kept when its answer can be used.

    It is kept in the server's data folder, and used within seconds. What the server's environment sets wins over it. Operator only.
    """
    choice = _read_choice(provider, model, base_url, key_file, without_key=without_key)
    if not untried:
        trial = (await client.post("/v1/model/trial", choice)).read(ProviderTrialOut)
        click.echo(trial.message, err=True)
        if not trial.usable:
            click.echo("Nothing was kept. --untried keeps it nevertheless.", err=True)
            sys.exit(ExitCode.FAILURE)
    answer = await client.put("/v1/model", choice)
    client.show(answer, ChosenModelOut, lambda kept: f"Kept in {kept.file}. The server begins to use {kept.provider} now.")


def _read_choice(provider: str, model: str | None, base_url: str | None, key_file: Path | None, *, without_key: bool) -> ModelIn:
    key = None
    if key_file is not None:
        key = (sys.stdin.read() if str(key_file) == "-" else key_file.read_text()).strip() or None
    return ModelIn(provider=provider, model=model, base_url=base_url, key=key, without_key=without_key)
