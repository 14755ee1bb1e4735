"""Finds the providers that this machine could use at once: the claude program, an Ollama with models, and API keys.

Nothing is started and nothing leaves the machine: a program is looked up on the PATH, Ollama is asked over loopback for its models.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import msgspec

from cmserver.base.configuration import is_loopback
from cmserver.base.settings import Settings
from cmserver.models.providers.registry import DEFAULT_MODELS, claude_program, find_key
from cmserver.models.providers.table import PROVIDERS

_OLLAMA_PORT = 11434
_OLLAMA_ADDRESS = f"http://127.0.0.1:{_OLLAMA_PORT}"
"""Where the provider looks for it without CMSERVER_BASE_URL."""
_OLLAMA_TIMEOUT_SECONDS = 0.5
_MAX_OLLAMA_MODELS = 3
_MODEL_NAME = re.compile(r"[\w./:@+-]{1,100}")


class AvailableProvider(msgspec.Struct, frozen=True, kw_only=True):
    """A provider with what it needs, and its model."""

    name: str
    model: str
    base_url: str | None = None
    """None is the provider's usual address."""


class _OllamaDetails(msgspec.Struct, frozen=True):
    family: str | None = None


class _OllamaModel(msgspec.Struct, frozen=True):
    name: str
    remote_host: str | None = None
    """Where a cloud model runs."""
    details: _OllamaDetails | None = None


class _OllamaModels(msgspec.Struct, frozen=True):
    models: list[_OllamaModel]


def find_available(settings: Settings, environ: Mapping[str, str]) -> list[AvailableProvider]:
    """The providers that could be used now. Takes half a second at most; an Ollama is listed once for each of its newest models."""
    found: list[AvailableProvider] = []
    # The program's login is one person's: not for a server that others can reach.
    program = Path(claude_program(environ)).expanduser()
    if is_loopback(settings.host) and shutil.which(program, path=environ.get("PATH")) is not None:
        found.append(AvailableProvider(name="claude-cli", model=DEFAULT_MODELS["claude-cli"]))
    found += _find_ollama(environ)
    offered = ((name, known.model or known.suggested_model) for name, known in PROVIDERS.items() if find_key(settings, name))
    found += [AvailableProvider(name=name, model=model) for name, model in offered if model]
    return found


def find_ollama_address(environ: Mapping[str, str]) -> str | None:
    """The URL of this machine's Ollama by OLLAMA_HOST, as Ollama reads it; None when it names another machine."""
    scheme, separator, address = environ.get("OLLAMA_HOST", "").strip().strip("\"'").rpartition("://")
    scheme = scheme or "http"
    try:
        url = urlsplit(f"{scheme}://{address}")
        host = url.hostname or "127.0.0.1"
        port = url.port or ({"http": 80, "https": 443}.get(scheme) if separator else _OLLAMA_PORT)
    except ValueError:
        return None
    host = "127.0.0.1" if host in {"0.0.0.0", "::"} else host  # noqa: S104 - it listens there; it is called by loopback
    if scheme not in {"http", "https"} or not is_loopback(host):
        return None
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def _find_ollama(environ: Mapping[str, str]) -> list[AvailableProvider]:
    address = find_ollama_address(environ)
    if address is None:
        return []
    try:
        response = httpx.get(f"{address}/api/tags", timeout=_OLLAMA_TIMEOUT_SECONDS, trust_env=False)
        models = msgspec.json.decode(response.raise_for_status().content, type=_OllamaModels).models
    except (httpx.HTTPError, httpx.InvalidURL, msgspec.DecodeError, UnicodeDecodeError):
        return []
    base_url = None if address == _OLLAMA_ADDRESS else f"{address}/v1"
    names = [model.name for model in models if _MODEL_NAME.fullmatch(model.name) and _writes_here(model)]
    return [AvailableProvider(name="ollama", model=name, base_url=base_url) for name in names[:_MAX_OLLAMA_MODELS]]


def _writes_here(model: _OllamaModel) -> bool:
    """Whether it runs on this machine, and makes text rather than vectors."""
    family = model.details.family if model.details is not None else None
    is_remote = bool(model.remote_host) or model.name.endswith(("-cloud", ":cloud"))
    return not is_remote and "embed" not in model.name and "bert" not in (family or "")
