"""The embedders by name, as in CMSERVER_EMBEDDER."""

from __future__ import annotations

from importlib import import_module
from typing import Protocol, cast
from urllib.parse import urlsplit

from cmserver.base.errors import Invalid
from cmserver.base.settings import Settings
from cmserver.providers.embedding.local import is_installed
from cmserver.providers.embedding.model import Embedder, EmbedderGiven

_NAMES = ("local", "ollama", "openai", "voyage")
"""Each is a file. It is imported when it is wanted."""

USUAL_MODELS = {
    "local": "l2-supercat-256",
    "ollama": "nomic-embed-text",
    "openai": "text-embedding-3-small",
    "voyage": "voyage-4",
}
"""Which model is asked where CMSERVER_EMBEDDER_MODEL says nothing: what the embedder's file says, for those who need not read it.
openai has one only at its usual address."""


class _File(Protocol):
    def make(self, given: EmbedderGiven, /) -> Embedder: ...


def chosen(settings: Settings) -> EmbedderGiven | None:
    """What the settings say; None for none. Its model is known, but for a server of the operator's own of which none is named."""
    name = settings.embedder
    if name == "auto":
        name = "local" if is_installed() else "none"
    if name == "none":
        return None
    usual = None if name == "openai" and settings.embedder_base_url else USUAL_MODELS[name]
    return EmbedderGiven(
        provider=name,
        model=settings.embedder_model or usual,
        base_url=settings.embedder_base_url,
        dimensions=settings.embedder_dimensions or None,
        api_key=key_of(settings, name, settings.embedder_base_url),
        timeout_seconds=settings.provider_timeout_seconds,
    )


def key_of(settings: Settings, provider: str, base_url: str | None) -> str | None:
    """The key of the embedder of that name; also for a model that is still in use when another is chosen already.

    The key of an account at OpenAI or Voyage never goes to another address, and that of an address never to another host: whose
    model is still in use may be whom one has left.
    """
    if base_url is not None:
        same = settings.embedder_base_url is not None and _host(settings.embedder_base_url) == _host(base_url)
        return settings.embedder_key if same else None
    return {"openai": settings.openai_api_key, "voyage": settings.voyage_api_key}.get(provider)


def make(given: EmbedderGiven) -> Embedder:
    """Ready to be asked. Invalid says what is missing; the network is not touched."""
    if given.provider not in _NAMES:
        raise Invalid(f"There is no embedder {given.provider!r}. Available: {', '.join(_NAMES)}.")
    return cast("_File", import_module(f"cmserver.providers.embedding.{given.provider}")).make(given)


def _host(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return url
