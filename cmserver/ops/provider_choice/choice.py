"""Chooses the model that words the memory while the server runs: shows it, tries it, and keeps it in the data folder."""

from __future__ import annotations

import asyncio
import os
import socket
from urllib.parse import urlsplit

from httpx import URL, InvalidURL

from cmserver.access import audit
from cmserver.access.model import Principal
from cmserver.base.config_file import locked_folder, replace_settings
from cmserver.base.configuration import CONFIG_NAME, BadSetting, LoadedSettings, load
from cmserver.base.db import Db
from cmserver.base.errors import Conflict, Forbidden, Invalid
from cmserver.base.lookalikes import sanitize_line
from cmserver.base.server_start import ServerStart
from cmserver.base.settings import Settings, fields
from cmserver.base.structs import reshape
from cmserver.generation.leases import repository as leases
from cmserver.models.providers import registry
from cmserver.models.providers.embedding.registry import embedder_settings
from cmserver.models.providers.http_client import MissingKey, check_key
from cmserver.models.providers.model import Provider, ProviderSettings, Rules
from cmserver.models.providers.table import PROVIDERS, KnownProvider
from cmserver.ops.model_health import read_model_health
from cmserver.ops.provider_choice.trial import ProviderTrialOut, try_provider, try_rules
from cmserver.ops.provider_choice.wire import ChosenModelOut, ModelIn, ModelOut, ProviderChoiceOut, SettingSourceOut

TRIAL_SECONDS = 50.0
"""Of a request: proxies wait for an answer for a minute. `cmserver doctor provider` waits as long as a job does."""
_CHOICE = ("provider", "model", "base_url")
_KEYS = tuple(known.key_setting.lower() for known in PROVIDERS.values() if known.key_setting)
_CHOSEN = (*_CHOICE, *_KEYS)
MODEL_SETTINGS = (*_CHOSEN, "model_context_tokens", "generation_debounce_seconds")
"""What a reload takes over."""
_VARIABLES = {field.name: field.environment for field in fields()}
_SHORT_KEY = 12


async def read_model(db: Db, settings: Settings, start: ServerStart) -> ModelOut:
    """The model in force, and what can be chosen."""
    loaded, fixed_because = await asyncio.to_thread(_load, settings, start)
    async with db.system() as conn:
        workers = await leases.WORKERS.all(conn)
        answers = await read_model_health(conn, settings, None)
    hosts = sorted({worker.label.rpartition(":")[0] for worker in workers if worker.alive} - {socket.gethostname()})
    if fixed_because is None and hosts:
        fixed_because = f"Workers on other machines ({', '.join(hosts)}) serve this database, too, each with settings of its own."
    sources = loaded.sources if loaded else {}
    return ModelOut(
        provider=settings.provider,
        model=settings.model,
        base_url=settings.base_url,
        sources=[
            SettingSourceOut(setting=_VARIABLES[name], source=sources[name])
            for name in _CHOSEN
            if sources.get(name, "default") != "default"
        ],
        pending=loaded is not None and any(getattr(loaded.settings, name) != getattr(settings, name) for name in _CHOSEN),
        not_reloaded=start.not_reloaded and sanitize_line(start.not_reloaded),
        file=str(settings.data_dir / CONFIG_NAME),
        fixed_because=fixed_because,
        providers=[
            ProviderChoiceOut(
                name="offline",
                title="The server's own rules, without a model",
                model=None,
                example="",
                sent_to="",
                bill="free",
                takes_base_url=False,
                key_setting=None,
                key_end=None,
            ),
            *(_choice_out(known, registry.find_key(settings, known.name)) for known in PROVIDERS.values()),
        ],
        answers=answers,
    )


def _choice_out(known: KnownProvider, key: str | None) -> ProviderChoiceOut:
    return reshape(
        known,
        ProviderChoiceOut,
        title=known.title or known.name,
        sent_to=known.recipient,
        takes_base_url=known.takes_base_url,
        key_setting=known.key_setting,
        key_end=None if key is None else key[-4:] if len(key) > _SHORT_KEY else "set",
    )


async def try_model(settings: Settings, start: ServerStart, given: ModelIn) -> ProviderTrialOut:
    """One real call of the choice, whose answer is read as a job reads it. Nothing is kept. Invalid for what cannot be called."""
    loaded, _ = await asyncio.to_thread(_load, settings, start)
    provider, key = _make(settings, loaded, given)
    if isinstance(provider, Rules):
        return try_rules()
    return await try_provider(provider, min(TRIAL_SECONDS, settings.provider_timeout_seconds), key)


async def choose_model(db: Db, principal: Principal, settings: Settings, start: ServerStart, given: ModelIn) -> ChosenModelOut:
    """Keep the choice in the data folder's file, and let the server begin anew with it. Conflict where it cannot be made here."""
    if principal.project_id is not None:
        raise Forbidden("This key is bound to a project; the model is one for the whole server.")
    loaded, _ = await asyncio.to_thread(_load, settings, start)
    _make(settings, loaded, given)
    shown = await read_model(db, settings, start)
    if shown.fixed_because is not None:
        raise _refuse_fixed(shown.fixed_because, given)
    await asyncio.to_thread(_keep, settings, start, given)
    async with db.tenant(principal.team_id) as conn:
        await audit.record(conn, principal, "model.chosen", "model", given.provider, model=given.model, new_key=bool(given.key))
    if start.reload is not None:
        start.reload()
    return ChosenModelOut(provider=given.provider, file=shown.file)


def _keep(settings: Settings, start: ServerStart, given: ModelIn) -> None:
    """Decide by what the file says now, and write it, before another choice is looked at."""
    file = settings.data_dir / CONFIG_NAME
    with locked_folder(file.parent):
        loaded, fixed_because = _load(settings, start)
        if loaded is None or fixed_because is not None:
            raise _refuse_fixed(fixed_because or "", given)
        _make(settings, loaded, given)
        try:
            replace_settings(file, _values(loaded, given))
        except BadSetting as error:
            raise Conflict(str(error)) from error


def _refuse_fixed(because: str, given: ModelIn) -> Conflict:
    return Conflict(f"{because} Nothing was changed. Set there: {render_settings(given)}")


def _values(loaded: LoadedSettings, given: ModelIn) -> dict[str, str | None]:
    """What the file is to say; None for what goes. Invalid for a key that would not be used, or elsewhere, too."""
    values: dict[str, str | None] = {"provider": given.provider, "model": given.model, "base_url": given.base_url}
    known = PROVIDERS.get(given.provider)
    if known is None or known.key_setting is None or not (given.key or given.without_key):
        return values
    path, name = "$.key" if given.key else "$.withoutKey", known.key_setting.lower()
    source = loaded.sources[name]
    if source not in {"default", str(loaded.config_file)}:
        raise Invalid.at(path, f"The key comes from {source}, which wins: leave this empty, or change it there.")
    embedder = embedder_settings(loaded.settings)
    if (
        known.name == "openai"
        and given.base_url is not None
        and embedder
        and (embedder.provider, embedder.base_url) == ("openai", None)
    ):
        raise Invalid.at(
            path,
            f"CMSERVER_EMBEDDER=openai sends {known.key_setting} to OpenAI, so that it cannot be the key of another address. "
            "Choose another embedder first, or another provider.",
        )
    values[name] = given.key and given.key.strip()
    return values


def render_settings(given: ModelIn) -> str:
    """The choice as variables; of a key that it is needed."""
    known = PROVIDERS.get(given.provider)
    values = {
        "CMSERVER_PROVIDER": given.provider,
        "CMSERVER_MODEL": given.model,
        "CMSERVER_BASE_URL": given.base_url,
        **({known.key_setting: "..."} if known and known.key_setting else {}),
    }
    return " ".join(f"{name}={value}" for name, value in values.items() if value)


def _load(settings: Settings, start: ServerStart) -> tuple[LoadedSettings | None, str | None]:
    """The settings as the next start would read them, and why they cannot be changed here; None where they can."""
    environ = {**start.environ, "CMSERVER_DATA_DIR": str(settings.data_dir)}
    try:
        loaded = load(environ, config_file=start.config_file)
    except BadSetting as error:
        return None, str(error)
    file = settings.data_dir / CONFIG_NAME
    if start.reload is None:
        return loaded, "The API and the workers of this server are started apart, and each reads its own settings when it starts."
    if loaded.config_file != file:
        return loaded, f"The settings are read from {loaded.config_file}, which `--config` or CMSERVER_CONFIG names."
    elsewhere = [loaded.sources[name] for name in _CHOICE if loaded.sources[name] not in {"default", str(file)}]
    if elsewhere:
        return loaded, f"The model is set where the server starts ({', '.join(elsewhere)}), which wins over the data folder's file."
    if not os.access(file.parent, os.W_OK):
        return loaded, f"The server may not write into {file.parent}."
    return loaded, None


def _make(settings: Settings, loaded: LoadedSettings | None, given: ModelIn) -> tuple[Provider | Rules, str | None]:
    """The provider of the choice, and its key. Invalid with the field for what cannot be called; uses no network.

    `loaded` are the settings as they stand now, which may be others than those in force; None where they cannot be read.
    """
    known = PROVIDERS.get(given.provider)
    if known is None and given.provider != Rules().name:
        raise Invalid.at("$.provider", f"There is no provider {given.provider!r}. Available: offline, {', '.join(PROVIDERS)}.")
    _check_text("$.model", given.model)
    _check_address(given.base_url)
    if (known is None or not known.takes_base_url) and given.base_url is not None:
        raise Invalid.at("$.baseUrl", f"{given.provider} has no address: leave this empty.")
    if (known is None or known.key_setting is None) and given.key is not None:
        raise Invalid.at("$.key", f"{given.provider} needs no key: leave this empty.")
    if given.key is not None and given.without_key:
        raise Invalid.at("$.withoutKey", "A key is given, too: leave one of the two away.")
    if known is None:
        if given.model is not None:
            raise Invalid.at("$.model", "Rules have no model: leave this empty.")
        return Rules(), None
    if given.model is None and (known.model is None or (known.module == "openai" and given.base_url is not None)):
        raise Invalid.at("$.model", f"{known.title or known.name} needs a model: {known.example}.")
    key = _find_key(loaded.settings if loaded else settings, loaded, given, known)
    try:
        provider = registry.load(
            ProviderSettings(
                name=given.provider,
                model=given.model,
                base_url=given.base_url,
                api_key=key,
                timeout_seconds=settings.provider_timeout_seconds,
                answer_max_tokens=registry.answer_tokens(settings),
                claude_program=registry.claude_program(os.environ),
            )
        )
    except MissingKey as error:
        raise Invalid.at(
            "$.key",
            f"{known.title or known.name} needs a key: enter it below Key (commands take --key-file), or set {error.setting}, or "
            f"{error.setting}_FILE to a file with it, where the server starts.",
        ) from error
    except Invalid as error:
        raise Invalid.at("$.provider", str(error)) from error
    return provider, key


def _find_key(settings: Settings, loaded: LoadedSettings | None, given: ModelIn, known: KnownProvider) -> str | None:
    """The key that was sent, else the one that is set: that one is sent only to the address for which it was set.

    That is the address that is set beside it. Without one there, a key of the environment is that of the usual address; of one in
    the file nobody knows any more.
    """
    if known.key_setting is None or given.without_key:
        return None
    if given.key is not None:
        try:
            key = check_key(given.key, "It")
        except Invalid as error:
            raise Invalid.at("$.key", "The key has characters that no key has: was more copied than the key?") from error
        if key is None:
            raise Invalid.at("$.key", "The key is empty. Leave the field away for the key that is set.")
        return key
    key, addresses = registry.find_key(settings, known.name), _addresses(settings)
    if known.name in addresses:
        is_for_it = addresses[known.name] == given.base_url
    else:
        in_file = loaded is None or loaded.sources[known.key_setting.lower()] == str(loaded.config_file)
        is_for_it = given.base_url is None and not in_file
    if key is not None and not is_for_it:
        raise Invalid.at(
            "$.key",
            "Type the key for this address, or say that it needs none. The one that is set was set for another address, and is not "
            "sent to this one.",
        )
    return key


def _addresses(settings: Settings) -> dict[str, str | None]:
    """The providers that are set, and their addresses; None is the usual one."""
    try:
        return {entry.name: entry.base_url for entry in registry.provider_settings(settings)}
    except Invalid:
        return {}


def _check_text(path: str, text: str | None) -> None:
    """Invalid for what could not be one entry of a setting."""
    if text is not None and (not text.isprintable() or "," in text or text != text.strip()):
        raise Invalid.at(path, "Expected one name, without commas, line breaks or space around it.")


def _check_address(url: str | None) -> None:
    if url is None:
        return
    expected = "Expected an address that begins with http:// or https://: http://127.0.0.1:8000/v1 for example."
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in {"http", "https"} and bool(URL(url).host) and parts.port != 0
    except (ValueError, InvalidURL) as error:  # a UnicodeError, too: the name of a host that is none in Unicode
        raise Invalid.at("$.baseUrl", expected) from error
    if not is_address or not url.isprintable() or any(sign in url for sign in ', "\\'):
        raise Invalid.at("$.baseUrl", expected)
    if parts.username is not None or parts.query or parts.fragment:
        raise Invalid.at("$.baseUrl", "Expected an address without a user, a query or a fragment: the key has a field of its own.")
