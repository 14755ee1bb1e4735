"""Finds providers by their name in CMSERVER_PROVIDER; `package.module:factory` names one of the operator's own."""

from __future__ import annotations

import os
from collections.abc import Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Protocol, cast

import msgspec

from cmserver.base.errors import Invalid
from cmserver.base.settings import Settings
from cmserver.models.providers.http_client import require_key
from cmserver.models.providers.model import Provider, ProviderChain, ProviderSettings, Rules
from cmserver.models.providers.table import PROVIDERS

_OTHER_TOKENS = 6_750
"""Of a request beside its events: the instructions, and what it tells of the session."""
_RULES = Rules()
_NAMES = {_RULES.name, *PROVIDERS}
DEFAULT_MODELS = {_RULES.name: _RULES.model, **{name: known.model for name, known in PROVIDERS.items() if known.model}}
"""The model used when CMSERVER_MODEL is not set."""


class ProviderModel(msgspec.Struct, frozen=True, kw_only=True):
    """Name and model of a provider in the chain."""

    name: str
    model: str | None
    """None when only the provider knows it."""


class _ProviderModule(Protocol):
    def make(self, settings: ProviderSettings, /) -> Provider: ...


def chain(settings: Settings) -> ProviderChain:
    """The providers of CMSERVER_PROVIDER in order; each is used while those before it are paused.

    With several, CMSERVER_MODEL and CMSERVER_BASE_URL are lists in the same order; an empty entry means the default. Raises Invalid
    for a wrong setting.
    """
    return [_RULES if entry.name == _RULES.name else load(entry) for entry in provider_settings(settings)]


def check(settings: Settings) -> None:
    """Raise Invalid for a provider of the chain that cannot be made; without its client library, where that is large."""
    for entry in provider_settings(settings):
        known = PROVIDERS.get(entry.name)
        if known and known.key_setting and known.has_large_client:
            require_key(f"provider {entry.name}", entry.api_key, known.key_setting)
        elif entry.name != _RULES.name:
            load(entry)


def chain_models(settings: Settings) -> list[ProviderModel]:
    """The chain's names and models, without loading client libraries or checking keys."""
    return [
        ProviderModel(name=entry.name, model=entry.model or DEFAULT_MODELS.get(entry.name)) for entry in provider_settings(settings)
    ]


def provider_settings(settings: Settings) -> list[ProviderSettings]:
    """The settings of each provider of the chain. Raises Invalid for an unknown name."""
    names = [part.strip() for part in settings.provider.split(",") if part.strip()]
    if not names:
        raise Invalid("CMSERVER_PROVIDER names no provider.")
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise Invalid(f"CMSERVER_PROVIDER names {twice} twice.")
    for name in names:
        _refuse_unknown(name)
    models = _align_with(names, settings.model, "CMSERVER_MODEL")
    base_urls = _align_with(names, settings.base_url, "CMSERVER_BASE_URL")
    return [_entry(settings, name, model, url) for name, model, url in zip(names, models, base_urls, strict=True)]


def settings_of(settings: Settings, name: str) -> ProviderSettings:
    """The settings of any provider: as the chain has them, else those that it has without it. Invalid for an unknown name."""
    known = next((entry for entry in provider_settings(settings) if entry.name == name), None)
    if known is None:
        _refuse_unknown(name)
    return known or _entry(settings, name, "", "")


def _entry(settings: Settings, name: str, model: str, base_url: str) -> ProviderSettings:
    return ProviderSettings(
        name=name,
        model=model or None,
        base_url=base_url or None,
        api_key=find_key(settings, name),
        timeout_seconds=settings.provider_timeout_seconds,
        answer_max_tokens=answer_tokens(settings),
        claude_program=claude_program(os.environ),
    )


def find_key(settings: Settings, name: str) -> str | None:
    """The key that is set for the provider; None for none, or if it needs none."""
    known = PROVIDERS.get(name)
    return getattr(settings, known.key_setting.lower()) if known and known.key_setting else None


def claude_program(environ: Mapping[str, str]) -> str:
    """The program of claude-cli: a path, or a name to be found in PATH."""
    return environ.get("CLAUDE_CODE_PATH", "").strip() or "claude"


def answer_tokens(settings: Settings) -> int:
    """The most tokens of a model's answer: no batch needs more, and a model that thinks without an end is cut off."""
    return min(16_384, settings.model_context_tokens // 8)


def event_tokens(settings: Settings) -> int:
    """The most tokens of a batch's events that a model is shown.

    What its context has beside the answer and the other parts of a request, where a model may count a quarter more tokens than are
    estimated; at most as much as models answer well.
    """
    return min(16_000, max(500, (settings.model_context_tokens - answer_tokens(settings)) * 4 // 5 - _OTHER_TOKENS))


def load(settings: ProviderSettings) -> Provider:
    """Make the client of a model. Raises Invalid for a missing setting or an unknown name."""
    name = settings.name
    if known := PROVIDERS.get(name):
        return cast("_ProviderModule", import_module(f"cmserver.models.providers.{known.module}")).make(settings)
    _refuse_unknown(name)
    return _load_custom(name)


def _refuse_unknown(name: str) -> None:
    """Raise Invalid for a name that is no provider and no `package.module:factory`."""
    if name in _NAMES or ":" in name:
        return
    near = get_close_matches(name, _NAMES, n=1)
    guess = f" Did you mean {near[0]!r}?" if near else ""
    raise Invalid(
        f"There is no provider {name!r}.{guess} Available: {', '.join(sorted(_NAMES))}, "
        "or one of your own as package.module:factory."
    )


def _align_with(names: list[str], text: str | None, setting: str) -> list[str]:
    values = [part.strip() for part in text.split(",")] if text else []
    if len(values) > len(names):
        raise Invalid(
            f"{setting} has {len(values)} entries, more than the {len(names)} in CMSERVER_PROVIDER: give at most one for each, in"
            " the same order. An empty entry means the default."
        )
    return [*values, *[""] * (len(names) - len(values))]


def _load_custom(name: str) -> Provider:
    """The provider that `package.module:factory` returns; Invalid when there is none."""
    module, _, attribute = name.partition(":")
    try:
        factory = cast("object", getattr(import_module(module), attribute))
    except (ImportError, AttributeError, ValueError) as error:
        raise Invalid(f"The provider {name!r} cannot be loaded: {error}.") from error
    made: object = factory() if callable(factory) else None
    texts = (getattr(made, "name", None), getattr(made, "model", None))
    if not (callable(getattr(made, "complete", None)) and all(isinstance(text, str) for text in texts)):
        raise Invalid(
            f"The provider {name!r} cannot be used: {attribute}() must return an object with `name`, `model` and `complete`."
        )
    return cast("Provider", made)
