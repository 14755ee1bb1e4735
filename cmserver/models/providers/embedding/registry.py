"""Finds embedders by their name in CMSERVER_EMBEDDER."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Protocol, cast
from urllib.parse import urlsplit

from cmserver.base.errors import Invalid
from cmserver.base.settings import Settings
from cmserver.models.providers.embedding.local import is_installed
from cmserver.models.providers.embedding.model import Embedder, EmbedderSettings

_NAMES = ("local", "minilm", "ollama", "openai", "voyage")
"""Each is a module, imported on first use."""

DEFAULT_MODELS = {
    "local": "l2-supercat-256",
    "minilm": "all-MiniLM-L6-v2-int8",
    "ollama": "nomic-embed-text",
    "openai": "text-embedding-3-small",
    "voyage": "voyage-4",
}
"""The model used when CMSERVER_EMBEDDER_MODEL is not set, as in the embedder's module; for openai only at its default address."""


class _EmbedderModule(Protocol):
    def make(self, settings: EmbedderSettings, /) -> Embedder: ...


def embedder_settings(settings: Settings) -> EmbedderSettings | None:
    """The configured embedder, None for none. Its model is None only for the operator's own server when none is named."""
    name = settings.embedder
    if name == "auto":
        name = "local" if is_installed() else "none"
    if name == "none":
        return None
    default = None if name == "openai" and settings.embedder_base_url else DEFAULT_MODELS[name]
    return EmbedderSettings(
        provider=name,
        model=settings.embedder_model or default,
        base_url=settings.embedder_base_url,
        api_key=embedder_key(settings, name, settings.embedder_base_url),
        timeout_seconds=settings.provider_timeout_seconds,
    )


def embedder_key(settings: Settings, provider: str, base_url: str | None) -> str | None:
    """The key for an embedder; `provider` may be one that is still in use while another is configured.

    A key of an account at OpenAI or Voyage is never sent to another address, nor CMSERVER_EMBEDDER_KEY to another host.
    CMSERVER_EMBEDDER_KEY is of the chosen embedder; VOYAGE_API_KEY is of Voyage, whatever is chosen.
    """
    if base_url is not None:
        same = settings.embedder_base_url is not None and _host(settings.embedder_base_url) == _host(base_url)
        return settings.embedder_key if same else None
    if provider == "voyage":
        is_chosen = settings.embedder == "voyage" and settings.embedder_base_url is None
        return (settings.embedder_key if is_chosen else None) or os.environ.get("VOYAGE_API_KEY") or None
    return settings.openai_api_key if provider == "openai" else None


def make(settings: EmbedderSettings) -> Embedder:
    """Make the embedder without network access. Raises Invalid for a missing setting."""
    if settings.provider not in _NAMES:
        raise Invalid(f"There is no embedder {settings.provider!r}. Available: {', '.join(_NAMES)}.")
    return cast("_EmbedderModule", import_module(f"cmserver.models.providers.embedding.{settings.provider}")).make(settings)


def _host(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return url
