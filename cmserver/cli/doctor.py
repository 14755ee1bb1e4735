"""`cmserver doctor`: whether what cmserver depends on works, tried out."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from decimal import Decimal
from pathlib import Path

import click
import msgspec

from cmserver.base.configuration import BadSetting, load
from cmserver.base.errors import Invalid
from cmserver.base.ids import new_id
from cmserver.base.settings import Settings
from cmserver.cli.exits import Exit
from cmserver.cli.show import plain
from cmserver.generation.answers.parse import parse
from cmserver.providers import registry
from cmserver.providers.embedding import registry as embedders
from cmserver.providers.embedding.model import Embedder
from cmserver.providers.failures import in_prose
from cmserver.providers.meaning import MEANINGS
from cmserver.providers.model import Completion, FailureKind, Given, Prompt, PromptEvent, Provider, ProviderError
from cmserver.providers.prices import charged

_KEYS = {"anthropic", "gemini", "openai", "openrouter", "voyage"}
_EMBEDDER_HELPS = {
    FailureKind.TRANSIENT: "time; if it stays so, see whether it runs, and whether CMSERVER_EMBEDDER_BASE_URL is right",
    FailureKind.AUTH_INVALID: "check its key; that of a server at CMSERVER_EMBEDDER_BASE_URL is CMSERVER_EMBEDDER_KEY",
    FailureKind.SETUP_REQUIRED: "check CMSERVER_EMBEDDER_MODEL and CMSERVER_EMBEDDER_BASE_URL, and whether it offers that model",
    FailureKind.CONTEXT_TOO_LONG: "a model with a larger context",
    FailureKind.REFUSED: "another model or embedder",
    FailureKind.UNUSABLE_ANSWER: "check CMSERVER_EMBEDDER_DIMENSIONS, and that CMSERVER_EMBEDDER_MODEL is a model for embeddings",
}
"""What helps where an embedder's settings are not those of a provider of the same name."""
_SIGN_IN = {"claude-cli": "that the program is signed in: start it, and say /login"}

PROMPT = Prompt(
    kind="observations",
    project="shop",
    root="/home/dev/shop",
    requests=["Orders are charged twice when the payment service is slow. Please fix that."],
    events=[
        PromptEvent(
            tag="e1",
            event_type="tool_use",
            occurred_at_epoch=1_767_225_600_000,
            tool_name="Edit",
            tool_input={
                "file_path": "/home/dev/shop/payments/client.py",
                "old_string": "return await post(url, order)",
                "new_string": 'return await post(url, order, headers={"Idempotency-Key": order.id})',
            },
            tool_response={"filePath": "/home/dev/shop/payments/client.py", "success": True},
        ),
        PromptEvent(
            tag="e2",
            event_type="tool_use",
            occurred_at_epoch=1_767_225_630_000,
            tool_name="Bash",
            tool_input={"command": "pytest tests/test_payments.py", "description": "Run the tests of payments"},
            tool_response={"stdout": "12 passed in 0.80s", "stderr": "", "interrupted": False},
        ),
    ],
)
"""Two events that nobody has sent: what the doctor shows a model is nobody's."""


@click.group()
def doctor() -> None:
    """Try out whether what cmserver depends on works."""


@doctor.command()
@click.argument("name", required=False)
@click.option("--config", "config_file", type=click.Path(path_type=Path), help="A TOML file with settings.")
def provider(name: str | None, config_file: Path | None) -> None:
    """Ask each provider of CMSERVER_PROVIDER once, or the one of that NAME, and say what came of it.

    The call is a real one, with two made-up events; it costs what it says. Needs no server. Exits 0 when every answer could be
    used, 1 when one could not, and 2 when a setting is missing or wrong.
    """
    settings = load(os.environ, config_file=config_file).settings
    ends = [_try(one, settings) for one in _asked(settings, name)]
    sys.exit(max(ends))


@doctor.command()
@click.option("--config", "config_file", type=click.Path(path_type=Path), help="A TOML file with settings.")
def embedder(config_file: Path | None) -> None:
    """Ask the embedder of CMSERVER_EMBEDDER once for the vectors of the names of two tools, and say what came of it.

    Needs no server. Exits 0 when the vectors can be used, also when there is none to ask; 1 when they cannot, and 2 when a setting
    is missing or wrong.
    """
    settings = load(os.environ, config_file=config_file).settings
    given = embedders.chosen(settings)
    if given is None:
        why = "CMSERVER_EMBEDDER is none" if settings.embedder == "none" else "None is set, and local is not installed"
        click.echo(f"There is no embedder ({why}): search goes by words.")
        return
    try:
        made = embedders.make(given)
    except Invalid as error:
        raise BadSetting(str(error)) from error
    said, end = asyncio.run(_embedded(made))
    click.echo(plain(said.replace(given.api_key, "***") if given.api_key else said))
    sys.exit(end)


async def _embedded(asked: Embedder) -> tuple[str, Exit]:
    """What there is to say of one call."""
    began = time.monotonic()
    name = f"{asked.provider} ({asked.model})"
    try:
        vectors = await asked.embed([event.tool_name or "" for event in PROMPT.events], "document")
    except ProviderError as error:
        return f"{name} {failed_embedding(asked.provider, error)}", Exit.NO
    finally:
        await asked.close()
    return f"{name} answered in {time.monotonic() - began:.2f} s: vectors of {len(vectors[0])} dimensions.", Exit.OK


def _asked(settings: Settings, name: str | None) -> list[Given]:
    try:
        if name is None:
            return registry.given(settings)
        chain = [one for one in _chain_if_any(settings) if one.name == name]
        return chain or registry.given(msgspec.structs.replace(settings, provider=name, model=None, base_url=None))
    except Invalid as error:
        raise BadSetting(str(error)) from error


def _chain_if_any(settings: Settings) -> list[Given]:
    try:
        return registry.given(settings)
    except Invalid:
        return []  # another provider's setting may be wrong: this one is asked about


def _try(given: Given, settings: Settings) -> Exit:
    try:
        made = registry.load(given)
    except Invalid as error:
        _say(given, f"{given.name} cannot be asked: {error}")
        return Exit.USAGE
    said, end = asyncio.run(_said(made, settings.provider_timeout_seconds))
    _say(given, f"{made.name} ({made.model}) {said}")
    return end


def _say(given: Given, sentence: str) -> None:
    """Whatever a provider says: not its key."""
    click.echo(plain(sentence.replace(given.api_key, "***") if given.api_key else sentence))


async def _said(asked: Provider, timeout_seconds: float) -> tuple[str, Exit]:
    """What there is to say of one call, behind the provider's name."""
    began = time.monotonic()
    try:
        async with asyncio.timeout(timeout_seconds):
            completion = await asked.complete(PROMPT)
    except TimeoutError:
        late = f"no answer within {timeout_seconds:g} s, which CMSERVER_PROVIDER_TIMEOUT_SECONDS allows"
        return failed(asked.name, ProviderError(FailureKind.TRANSIENT, late)), Exit.NO
    except ProviderError as error:
        return failed(asked.name, error), Exit.NO
    seconds = time.monotonic() - began
    try:
        read = parse(completion.text, [new_id() for _ in PROMPT.events])
    except ProviderError as error:
        why = in_prose(asked.name, completion.text) or error
        return f"{_answered(asked.name, seconds, completion)}; but it {failed(asked.name, why)}", Exit.NO
    count = len(read.observations)
    return (
        f"{_answered(asked.name, seconds, completion)}; the answer was read: {count} observation{'' if count == 1 else 's'}.",
        Exit.OK,
    )


def _answered(provider: str, seconds: float, completion: Completion) -> str:
    tokens_in = completion.input_tokens + completion.cache_read_tokens + completion.cache_write_tokens
    took = f"answered in {seconds:.1f} s"
    if not tokens_in + completion.output_tokens:
        return took
    price = charged(provider, completion)
    cut = ", and was cut there (CMSERVER_ANSWER_MAX_TOKENS)" if completion.truncated else ""
    return f"{took}: {tokens_in:,} tokens in, {completion.output_tokens:,} out{cut}, {_money(price)}"


def _money(price: Decimal | None) -> str:
    if price is None:
        return "at a price that is not known here"
    return "for nothing" if price == 0 else f"about ${max(price, Decimal('0.0001')):.4f}"


def failed(name: str, error: ProviderError) -> str:
    """What there is to say of a call that failed, behind the provider's name."""
    meaning = MEANINGS[error.kind]
    key = f"{name.upper()}_API_KEY" if name in _KEYS else _SIGN_IN.get(name, "its key")
    return f"{meaning.what} ({str(error).rstrip('.')}). What helps: {meaning.helps.format(key=key)}."


def failed_embedding(name: str, error: ProviderError) -> str:
    """The same of an embedder: what helps is in settings of its own."""
    if error.kind in _EMBEDDER_HELPS:
        return f"{MEANINGS[error.kind].what} ({str(error).rstrip('.')}). What helps: {_EMBEDDER_HELPS[error.kind]}."
    return failed(name, error)
