"""The providers by name, as in CMSERVER_PROVIDER; `package.module:factory` names one of the operator's own."""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module
from typing import Protocol, cast

import msgspec

from cmserver.base.errors import Invalid
from cmserver.base.settings import Settings
from cmserver.providers.model import Given, Provider

_FILES = {
    "offline": "offline",
    "anthropic": "anthropic",
    "gemini": "gemini",
    "openai": "openai",
    "openrouter": "openai",
    "ollama": "openai",
    "claude-cli": "claude_cli",
}
"""The provider's name, and its file. Imported when it is wanted: a client library may take a second."""


USUAL_MODELS = {
    "offline": "rules",
    "anthropic": "claude-haiku-5-5",
    "openai": "gpt-6-luna",
    "gemini": "gemini-3.5-flash-lite",
    "claude-cli": "haiku",
}
"""Which model is asked where CMSERVER_MODEL says nothing: what the provider's file says, for those who need not read it."""


class Described(msgspec.Struct, frozen=True, kw_only=True):
    """A provider of the chain, as it is shown."""

    name: str
    model: str | None
    """None where only the provider itself knows."""


class _File(Protocol):
    def make(self, given: Given, /) -> Provider: ...


def chain(settings: Settings) -> list[Provider]:
    """The providers of CMSERVER_PROVIDER, the first first: each of the others is for when those before it are paused.

    CMSERVER_MODEL and CMSERVER_BASE_URL are lists as well when there are several, in the same order; an empty place is the usual
    one. Invalid says what is wrong with which setting.
    """
    return [load(one) for one in given(settings)]


def described(settings: Settings) -> list[Described]:
    """The same chain for those who only show it: without keys and client libraries. What is missing is not looked for."""
    return [Described(name=one.name, model=one.model or USUAL_MODELS.get(one.name)) for one in given(settings)]


def given(settings: Settings) -> list[Given]:
    """What the settings say for each provider of the chain. Invalid for a name that there is not."""
    names = _listed(settings.provider)
    if not names:
        raise Invalid("CMSERVER_PROVIDER names no provider.")
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise Invalid(f"CMSERVER_PROVIDER names {twice} twice.")
    for name in names:
        _refuse_unknown(name)
    models = _beside(names, settings.model, "CMSERVER_MODEL")
    base_urls = _beside(names, settings.base_url, "CMSERVER_BASE_URL")
    keys = {
        "anthropic": settings.anthropic_api_key,
        "gemini": settings.gemini_api_key,
        "openai": settings.openai_api_key,
        "openrouter": settings.openrouter_api_key,
    }
    return [
        Given(
            name=name,
            model=model or None,
            base_url=base_url or None,
            api_key=keys.get(name),
            timeout_seconds=settings.provider_timeout_seconds,
            answer_max_tokens=settings.answer_max_tokens,
            claude_program=settings.claude_program,
        )
        for name, model, base_url in zip(names, models, base_urls, strict=True)
    ]


def load(given: Given) -> Provider:
    """The provider of that name, ready to be asked. Invalid says what is missing, or which names there are."""
    name = given.name
    if name in _FILES:
        return cast("_File", import_module(f"cmserver.providers.{_FILES[name]}")).make(given)
    _refuse_unknown(name)
    return _of_the_operator(name)


def _refuse_unknown(name: str) -> None:
    if name in _FILES or ":" in name:
        return
    near = get_close_matches(name, _FILES, n=1)
    guess = f" Did you mean {near[0]!r}?" if near else ""
    raise Invalid(
        f"There is no provider {name!r}.{guess} Available: {', '.join(sorted(_FILES))}, "
        "or one of your own as package.module:factory."
    )


def _listed(text: str | None) -> list[str]:
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def _beside(names: list[str], text: str | None, setting: str) -> list[str]:
    values = [part.strip() for part in text.split(",")] if text else []
    if len(values) > len(names):
        raise Invalid(f"{setting} has {len(values)} entries for {len(names)} in CMSERVER_PROVIDER: one each is expected.")
    return [*values, *[""] * (len(names) - len(values))]


def _of_the_operator(name: str) -> Provider:
    module, _, attribute = name.partition(":")
    try:
        factory = cast("object", getattr(import_module(module), attribute))
    except (ImportError, AttributeError, ValueError) as error:
        raise Invalid(f"The provider {name!r} cannot be loaded: {error}.") from error
    made: object = factory() if callable(factory) else None
    texts = (getattr(made, "name", None), getattr(made, "model", None))
    if not (callable(getattr(made, "complete", None)) and all(isinstance(text, str) for text in texts)):
        raise Invalid(
            f"The provider {name!r} is no provider: {attribute}() must return an object with `name`, `model` and `complete`."
        )
    return cast("Provider", made)
