"""Offers the providers that are at hand, once and on a terminal; the answer is kept in the configuration file."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import termios
import time
import tty
from decimal import Decimal
from pathlib import Path

import click

from cmserver.base.config_file import add_settings
from cmserver.base.configuration import BadSetting, LoadedSettings
from cmserver.base.lookalikes import sanitize_line
from cmserver.base.process import container_sign
from cmserver.cli import state
from cmserver.cli.api_client import is_interactive
from cmserver.cli.service import read_info
from cmserver.client.server_api import normalize_address
from cmserver.embedded.files import make_data_dir
from cmserver.models.providers.available import AvailableProvider, find_available
from cmserver.models.providers.model import Completion
from cmserver.models.providers.prices import compute_list_price
from cmserver.models.providers.registry import DEFAULT_MODELS
from cmserver.models.providers.table import PROVIDERS

DAY_SESSIONS = 5
"""A day of ordinary work, as the offer assumes it."""
SESSION_CALLS = 68
SESSION_INPUT_TOKENS = 184_000
SESSION_OUTPUT_TOKENS = 14_000
"""A session of 200 tool uses as they come, measured: docs/howto/what-it-costs.md."""

_ANSWER_SECONDS = 60.0
"""How long a start waits for an answer: a terminal may have nobody before it."""
_ENTER = "\n"
_NO_ANSWER = "No answer: rules word the memory for now. The next start asks again."
_PROVIDER_SETTINGS = ("provider", "model", "base_url")


def offer_provider(loaded: LoadedSettings) -> str | None:
    """Ask which provider at hand is to word the memory, and keep the answer. Returns the kept provider's name, or None.

    Asks only on a terminal outside of a container, while neither the file nor the environment says anything about a provider.
    """
    if not is_terminal() or container_sign(os.environ) is not None:
        return None
    if any(loaded.sources[name] != "default" for name in _PROVIDER_SETTINGS) or _is_unreadable(loaded.config_file):
        return None
    available = find_available(loaded.settings, os.environ)
    if not available:
        return None
    click.echo("\n".join(render_offer(available)))
    key = _ask(len(available))
    if key is None:
        with contextlib.suppress(OSError):  # the terminal may be gone
            click.echo(f"\n{_NO_ANSWER}")
        return None
    chosen = None if key == _ENTER else available[int(key) - 1]
    values = _build_values(chosen)
    try:
        if loaded.config_file.parent == loaded.settings.data_dir:
            make_data_dir(loaded.settings.data_dir)
        add_settings(loaded.config_file, values)
    except BadSetting as error:
        click.echo(f"The answer is not kept: {error}", err=True)
        return None
    click.echo(f"Kept in {loaded.config_file}: provider = {values['provider']}. Change it there, or with CMSERVER_PROVIDER.")
    if chosen is not None:
        variable = PROVIDERS[chosen.name].key_setting
        if variable and loaded.sources.get(variable.lower(), "default").startswith(("environment", variable)):
            click.echo(f"The key stays where it is: each start of the server needs {variable} or {variable}_FILE.")
        click.echo("`cmserver doctor provider` tests it with one real call.")
    return values["provider"]


def offer_to_local_server(loaded: LoadedSettings, url: str) -> None:
    """Offer a provider for the server at the URL, if it runs here with this data folder and without a model."""
    if not is_terminal():
        return
    server = state.running(loaded.settings.data_dir)
    if server is None or normalize_address(server.url) != normalize_address(url):
        return
    info, _ = read_info(loaded.settings, server.url)
    if info is None or info.provider is None or info.provider.name != "offline":
        return
    if offer_provider(loaded) not in {None, "offline"}:
        how = "`cmserver restart`" if server.background else "stop it where it runs, and start it again"
        click.echo(f"The running server reads it at its next start: {how}.")


def render_offer(available: list[AvailableProvider]) -> list[str]:
    """The question's lines: what there is, what a day of work costs, and what leaves the machine."""
    calls, read, written = (DAY_SESSIONS * count for count in (SESSION_CALLS, SESSION_INPUT_TOKENS, SESSION_OUTPUT_TOKENS))
    lines = [
        "Which provider words the memory? None is configured: rules keep what was said and done, word by word. A model also sees",
        "what nobody wrote down. Found here:",
        "",
    ]
    for number, provider in enumerate(available, start=1):
        lines += [
            f"  [{number}] {provider.name} ({sanitize_line(provider.model)}): {_describe_cost(provider)}",
            f"      {_describe_transfer(provider)}",
        ]
    return [
        *lines,
        "  [Enter] none: rules without a model",
        "      Free. Nothing leaves this machine.",
        "",
        f"A day is taken as {DAY_SESSIONS} sessions of 200 tool uses: {calls} calls, {read:,} tokens read and {written:,} written.",
    ]


def compute_day_cost(model: str) -> Decimal | None:
    """US dollars of the assumed day at the model's list price; None if it has none."""
    call = Completion(
        text="",
        model=model,
        input_tokens=round(SESSION_INPUT_TOKENS / SESSION_CALLS),
        output_tokens=round(SESSION_OUTPUT_TOKENS / SESSION_CALLS),
    )
    price = compute_list_price(model, call)
    return None if price is None else price * SESSION_CALLS * DAY_SESSIONS


def _describe_cost(provider: AvailableProvider) -> str:
    if bill := PROVIDERS[provider.name].bill:
        return bill
    price = compute_day_cost(provider.model)
    return "price unknown" if price is None else f"about ${price:.2f} a day, at list price"


def _describe_transfer(provider: AvailableProvider) -> str:
    if recipient := PROVIDERS[provider.name].recipient:
        return f"Your prompts and the agent's tool uses, with secrets replaced, go to {recipient}."
    return "Nothing leaves this machine."


def _ask(count: int) -> str | None:
    """The pressed key: a number up to `count`, or Enter; others are ignored. None when nobody answers within a minute."""
    deadline = time.monotonic() + _ANSWER_SECONDS
    numbers = [str(number) for number in range(1, count + 1)]
    click.echo(f"Press {', '.join(numbers)} or Enter: ", nl=False)
    while (key := read_key(max(0.0, deadline - time.monotonic()))) is not None:
        key = _ENTER if key == "\r" else key
        if key in {*numbers, _ENTER}:
            click.echo("none" if key == _ENTER else key)
            return key
    return None


def read_key(timeout_seconds: float) -> str | None:
    """One keypress on standard input; None when there is none in time, or at its end. Ctrl-C interrupts as usual."""
    fd = sys.stdin.fileno()
    try:
        before = termios.tcgetattr(fd)
        try:
            tty.setcbreak(fd)  # drops what was typed before the question
            is_pressed, _, _ = select.select([fd], [], [], timeout_seconds)
            return os.read(fd, 32).decode(errors="replace") or None if is_pressed else None
        finally:
            with contextlib.suppress(termios.error):
                termios.tcsetattr(fd, termios.TCSADRAIN, before)
    except (OSError, termios.error):
        return None  # the terminal is gone


def is_terminal() -> bool:
    """Whether both standard input and output are a terminal, and this process may read from it: it is no background job."""
    if not (is_interactive() and sys.stdout.isatty()):
        return False
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except OSError:
        return False


def _is_unreadable(file: Path) -> bool:
    """Whether the file is there, but another user's."""
    return os.access(file, os.F_OK) and not os.access(file, os.R_OK)


def _build_values(chosen: AvailableProvider | None) -> dict[str, str]:
    """The settings to keep; a provider's own default model is not among them."""
    if chosen is None:
        return {"provider": "offline"}
    values = {"provider": chosen.name}
    if chosen.model != DEFAULT_MODELS.get(chosen.name):
        values["model"] = chosen.model
    if chosen.base_url is not None:
        values["base_url"] = chosen.base_url
    return values
