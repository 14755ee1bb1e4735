"""Reads and checks the settings from a TOML file and the environment."""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path

import msgspec
from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict

from cmserver.base.contextify import UNUSED_VARIABLES
from cmserver.base.errors import CmserverError
from cmserver.base.http.address import parse_networks
from cmserver.base.removed_settings import HOLDING, REMOVED
from cmserver.base.settings import PREFIX, Field, Settings, fields

TEST_PREFIX = "CMSERVER_TEST_"
"""Prefix of the tests' variables, which are not warned about."""
CLIENT_NAMES = {"CMSERVER_URL", "CMSERVER_KEY", "CMSERVER_KEY_FILE", "CMSERVER_CLIENT_DIR", "CMSERVER_COMMAND", "CMSERVER_PRIVATE"}
"""Variables of bin/cmserver, the client commands and hooks, which are no settings of the server."""
CONFIG_FILE = "CMSERVER_CONFIG"
CONFIG_NAME = "config.toml"
"""The TOML file in the data folder, which is read when no other one is named."""
FOREIGN_NAMES = {
    "CLAUDE_MEM_SERVER_DATABASE_URL": "database_url",
    "CLAUDE_MEM_WORKER_PORT": "port",
    "CLAUDE_MEM_MODEL": "model",
    "CLAUDE_MEM_VERBOSITY": "verbosity",
    "VOYAGE_API_KEY": "embedder_key",
}
"""Variable of claude-mem or Voyage -> the setting that it stands for, where the setting's own variable is not set."""
_CLAUDE_PROVIDERS = {"anthropic", "claude-cli"}
_DEBOUNCE_WITH_A_MODEL_SECONDS = 30.0
_OLLAMA_CONTEXT_TOKENS = 32_768
"""What docs/howto/use-ollama.md recommends: Ollama silently cuts what is longer than its context."""
_BYTE_ORDER_MARK = "\ufeff"
_DATABASE_URLS = {"database_url", "database_tenant_url", "database_direct_url"}


class BadSetting(CmserverError):
    """A setting has an invalid value; the program does not start."""


class LoadedSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings, their sources, and warnings for the operator."""

    settings: Settings
    sources: dict[str, str]
    """Field name -> "default", "environment NAME", "NAME=path" for a `_FILE`, or the path of the TOML file."""
    warnings: list[str]
    """Sentences."""
    translated: dict[str, str]
    """Variable of another program that is used -> the variable of cmserver that it stands for."""
    config_file: Path
    """The TOML file with settings; it exists when it was named."""


class ShownSetting(msgspec.Struct, frozen=True, kw_only=True):
    """An effective setting with secrets masked."""

    name: str
    value: str | int | float | None
    source: str
    masked: bool
    """Whether the value is hidden."""


class _RawValue(msgspec.Struct, frozen=True, kw_only=True):
    """A value, and how messages describe where it was set."""

    value: object
    description: str
    source: str
    typed: bool = False
    """Whether the value is from TOML, where "80" is no number; variables and `_FILE`s hold text."""


def load(environ: Mapping[str, str], *, config_file: Path | None = None) -> LoadedSettings:
    """Defaults, then the TOML file, then the environment.

    The file is `config_file`, else the one that CMSERVER_CONFIG names, else `config.toml` in the data folder, if it is there.
    An empty value counts as not set. Raises `BadSetting` with one sentence for the first value that cannot be used.
    """
    warnings: list[str] = []
    raw_values = _from_toml(environ, config_file, warnings) | _from_environment(environ, warnings)
    translated = _add_foreign(environ, raw_values, warnings)
    values: dict[str, object] = {}
    for field in fields():
        if field.name in raw_values:
            values[field.name] = _checked(field, raw_values[field.name], environ)
    if "data_dir" not in values:
        values["data_dir"] = default_data_dir(environ)
    provider = str(values.get("provider", "offline"))
    if provider != "offline":
        values.setdefault("generation_debounce_seconds", _DEBOUNCE_WITH_A_MODEL_SECONDS)
    if "ollama" in {name.strip() for name in provider.split(",")}:
        values.setdefault("model_context_tokens", _OLLAMA_CONTEXT_TOKENS)
    settings = msgspec.convert(values, Settings)
    _check_together(settings, {f.name: raw_values[f.name].description if f.name in raw_values else f.environment for f in fields()})
    sources = {f.name: raw_values[f.name].source if f.name in raw_values else "default" for f in fields()}
    named = config_file or (Path(environ[CONFIG_FILE]) if environ.get(CONFIG_FILE) else None)
    return LoadedSettings(
        settings=settings,
        sources=sources,
        warnings=warnings,
        translated=translated,
        config_file=named or settings.data_dir / CONFIG_NAME,
    )


def find_data_dir(environ: Mapping[str, str], *, config_file: Path | None = None) -> Path:
    """The data folder, also where another setting cannot be used."""
    try:
        return load(environ, config_file=config_file).settings.data_dir
    except BadSetting:
        return _data_dir(environ)


def effective(loaded: LoadedSettings) -> list[ShownSetting]:
    """Every setting with its source, secrets masked."""
    effective_settings: list[ShownSetting] = []
    for field in fields():
        value = getattr(loaded.settings, field.name)
        value = str(value) if isinstance(value, Path) else value
        masked = field.masked(value)
        effective_settings.append(
            ShownSetting(
                name=field.name,
                value=msgspec.convert(masked, str | int | float | None),
                source=loaded.sources[field.name],
                masked=masked != value,
            )
        )
    return effective_settings


def default_data_dir(environ: Mapping[str, str]) -> Path:
    if os.geteuid() == 0:
        return Path("/var/lib/cmserver")
    xdg = environ.get("XDG_DATA_HOME", "")
    if Path(xdg).is_absolute():  # the XDG specification wants relative ones ignored
        return Path(xdg) / "cmserver"
    return _home(environ) / ".local" / "share" / "cmserver"


def _data_dir(environ: Mapping[str, str]) -> Path:
    text = environ.get("CMSERVER_DATA_DIR", "")
    return _path(text, environ) if text else default_data_dir(environ)


def _from_toml(environ: Mapping[str, str], config_file: Path | None, warnings: list[str]) -> dict[str, _RawValue]:
    """The values in the TOML file, if there is one; names that are no settings go into `warnings`."""
    if config_file is None and not environ.get(CONFIG_FILE):
        return _from_data_dir(environ, warnings)
    source_name, path = ("--config", config_file) if config_file else (CONFIG_FILE, Path(environ[CONFIG_FILE]))
    return _read_toml(path, f"{source_name} names {path}, which", warnings)


def _from_data_dir(environ: Mapping[str, str], warnings: list[str]) -> dict[str, _RawValue]:
    """The values in the data folder's own file. It cannot say which folder that is."""
    data_dir = _data_dir(environ)
    path = data_dir / CONFIG_NAME
    try:
        if not path.is_file():
            return {}
    except PermissionError:
        return {}  # another user's data folder
    if not os.access(path, os.R_OK):
        warnings.append(f"{path} is skipped: this user may not read it.")
        return {}
    raw_values = _read_toml(path, str(path), warnings)
    elsewhere = raw_values.pop("data_dir", None)
    if elsewhere is not None and not _is_folder(elsewhere.value, data_dir, environ):
        warnings.append(f"data_dir in {path} is ignored: set CMSERVER_DATA_DIR instead.")
    return raw_values


def _is_folder(value: object, folder: Path, environ: Mapping[str, str]) -> bool:
    """Whether the value of a TOML file is a path of the folder."""
    try:
        return isinstance(value, str) and _path(value, environ).resolve() == folder.resolve()
    except (OSError, RuntimeError, ValueError):  # a loop of links, or no path at all
        return False


def _read_toml(path: Path, subject: str, warnings: list[str]) -> dict[str, _RawValue]:
    """The values in the file; names that are no settings go into `warnings`. `subject` begins the sentence about a broken file."""
    try:
        table = tomllib.loads(_text_of(path, subject).removeprefix(_BYTE_ORDER_MARK))
    except tomllib.TOMLDecodeError as error:
        raise BadSetting(f"{subject} is not valid TOML: {error}.") from error
    names = {field.name: field.name for field in fields()}
    raw_values: dict[str, _RawValue] = {}
    for key, value in table.items():
        if key not in names:
            warnings.append(_unknown(f"{key} in {path}", key, value, names))
        elif value != "":
            raw_values[key] = _RawValue(value=value, description=f"{key} in {path}", source=str(path), typed=True)
    return raw_values


def _from_environment(environ: Mapping[str, str], warnings: list[str]) -> dict[str, _RawValue]:
    """The values in the variables and in the files that `_FILE` variables name; unknown and ignored names go into `warnings`."""
    raw_values: dict[str, _RawValue] = {}
    for field in fields():
        name, file_name = field.environment, f"{field.environment}_FILE"
        path = environ.get(file_name, "") if field.mask else ""
        if environ.get(name) and path:
            raise BadSetting(f"{name} and {file_name} are both set: keep one of them.")
        if path:
            value = _text_of(Path(path), f"{file_name} names {path}, which").removesuffix("\n").removesuffix("\r")
            if not value:
                raise BadSetting(f"{file_name} names {path}, which is empty: write the value into it.")
            raw_values[field.name] = _RawValue(value=value, description=f"{file_name} ({path})", source=f"{file_name}={path}")
        elif environ.get(name):
            raw_values[field.name] = _RawValue(value=environ[name], description=name, source=f"environment {name}")
    warnings.extend(_unknown_variables(environ))
    return raw_values


def _add_foreign(environ: Mapping[str, str], raw_values: dict[str, _RawValue], warnings: list[str]) -> dict[str, str]:
    """Add to `raw_values` what variables of other programs say, where cmserver's own do not; returns which stand for which."""
    translated: dict[str, str] = {}
    environment_names = {field.name: field.environment for field in fields()}
    providers = str(raw_values["provider"].value).split(",") if "provider" in raw_values else ["offline"]
    for name, field_name in FOREIGN_NAMES.items():
        if not environ.get(name):
            continue
        if name == "VOYAGE_API_KEY" and not _embeds_with_voyage(raw_values):
            continue  # never sent to another address: models/providers/embedding/registry.py
        if field_name in raw_values:
            warnings.append(f"{name} is ignored, because {raw_values[field_name].description} is set.")
        elif field_name == "model" and not (len(providers) == 1 and providers[0].strip() in _CLAUDE_PROVIDERS):
            warnings.append(f"{name} is ignored, because the provider is {_short(','.join(providers))}.")
        else:
            raw_values[field_name] = _RawValue(value=environ[name], description=name, source=f"environment {name}")
            translated[name] = environment_names[field_name]
    if unused := [name for name in UNUSED_VARIABLES if environ.get(name)]:
        warnings.append(f"Variables of Contextify that are not used: {', '.join(unused)}.")
    return translated


def _embeds_with_voyage(raw_values: Mapping[str, _RawValue]) -> bool:
    embedder = raw_values.get("embedder")
    return embedder is not None and str(embedder.value).lower() == "voyage" and "embedder_base_url" not in raw_values


def _unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """A warning for each CMSERVER_ variable that is no setting, with what stands in its place or what it may mean."""
    names = {CONFIG_FILE, *(f.environment for f in fields()), *(f"{f.environment}_FILE" for f in fields() if f.mask)}
    # Compared without the prefix, so that CMSERVER_OPENAI_API_KEY finds OPENAI_API_KEY.
    candidates = {name.removeprefix(PREFIX): name for name in sorted(names)}
    return [
        _unknown(name, name.removeprefix(PREFIX), environ[name], candidates)
        for name in sorted(environ)
        if name == "VOYAGE_API_KEY_FILE"
        or (name.startswith(PREFIX) and name not in names | CLIENT_NAMES and not name.startswith(TEST_PREFIX))
    ]


def _unknown(subject: str, name: str, value: object, candidates: Mapping[str, str]) -> str:
    """The warning about a name that is no setting. `candidates`: compared name -> displayed name.

    Raises BadSetting where ignoring the value would delete what it kept, or keep what it deleted.
    """
    removed = name.lower()
    if removed not in REMOVED:
        removed = removed.removesuffix("_file")
    if removed not in REMOVED:
        return f"{subject} is not a setting and is ignored{_nearest(name, candidates)}"
    if removed in HOLDING and value != "":
        if removed != name.lower():
            value = _text_of(Path(str(value)), f"{subject} names {value}, which").strip()
        if not _is_number(value, HOLDING[removed]):
            raise BadSetting(f"{subject} is {_short(repr(value))} and no setting any more; take it away. {REMOVED[removed]}")
    return f"{subject} is no setting any more and is ignored: {REMOVED[removed]}"


def _is_number(value: object, number: float) -> bool:
    """Whether the value, or its text, is that number."""
    try:
        return float(str(value)) == number
    except ValueError:
        return False


def _checked(field: Field, raw: _RawValue, environ: Mapping[str, str]) -> object:
    """The value in its type; BadSetting when it is none that the setting can have."""
    value = raw.value
    if isinstance(value, str) and field.choices:
        value = value.lower()
    if isinstance(value, str) and field.is_path:
        value = _path(value, environ)
    try:
        converted: object = msgspec.convert(value, field.annotated, strict=raw.typed)
    except msgspec.ValidationError:
        raise _bad(field, raw, field.expected) from None  # its text could hold the secret
    if isinstance(converted, Path) and not converted.is_absolute():
        raise _bad(field, raw, field.expected)
    if field.name in _DATABASE_URLS and not _is_database_url(str(converted)):
        raise _bad(field, raw, "a URL like postgresql://user:password@host:5432/database")
    if field.name in {"base_url", "embedder_base_url"} and not all(
        re.match(r"https?://[^\s/]|$", url.strip()) for url in str(converted).split(",")
    ):
        raise _bad(field, raw, "a URL that begins with http:// or https://")
    return converted


def _check_together(settings: Settings, names: Mapping[str, str]) -> None:
    """Raise BadSetting for values that are valid each, but not together."""
    if settings.embedded == "never" and settings.database_url is None:
        raise BadSetting(
            f"{names['embedded']} is 'never' and {names['database_url']} is not set: "
            "set the URL of a PostgreSQL 15 or newer, or let the embedded one be used with 'auto'."
        )
    if settings.database_url is None:
        for name in ("database_tenant_url", "database_direct_url", "database_pooling"):
            if getattr(settings, name) not in {None, "none"}:
                raise BadSetting(
                    f"{names[name]} is set and {names['database_url']} is not: it belongs to a database of your own. "
                    "Set the URL of that as well."
                )
    if settings.database_pooling == "transaction" and settings.database_direct_url is None:
        raise BadSetting(
            f"{names['database_pooling']} is 'transaction' and {names['database_direct_url']} is not set: migrations, locks "
            "and LISTEN need a session. Set it to the database's own URL, past the pooler."
        )
    if settings.lease_seconds <= settings.heartbeat_seconds + settings.drain_seconds:
        raise BadSetting(
            f"{names['lease_seconds']} is {settings.lease_seconds:g}: more than {names['heartbeat_seconds']} "
            f"({settings.heartbeat_seconds:g}) and the {settings.drain_seconds:g} seconds in which a stopping worker finishes is "
            "expected, or it loses its jobs meanwhile."
        )
    if settings.trust_loopback is not None and not is_loopback(settings.host):
        raise BadSetting(
            f"{names['trust_loopback']} is set and {names['host']} is {_short(repr(settings.host))}: callers without a key are "
            "only let in where nobody but this machine can call. Listen on 127.0.0.1, or let them use keys."
        )
    try:
        parse_networks(settings.trusted_proxies)
    except ValueError as error:
        raise BadSetting(f"{names['trusted_proxies']}: {error}.") from error


def is_loopback(host: str) -> bool:
    """Whether only this machine can call a server that listens on the host."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _bad(field: Field, raw: _RawValue, expected: str) -> BadSetting:
    value = raw.value if field.mask is None else field.masked(raw.value)
    if field.name in _DATABASE_URLS and not _is_database_url(str(raw.value)):
        value = "***"  # what cannot be read as a URL cannot be masked in part
    return BadSetting(f"{raw.description} is {_short(repr(value))}: {expected} is expected.")


def _text_of(path: Path, subject: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise BadSetting(f"{subject} cannot be read: {error.strerror or error}.") from error
    except ValueError:
        raise BadSetting(f"{subject} cannot be read: it is no UTF-8 text.") from None


def _path(text: str, environ: Mapping[str, str]) -> Path:
    return _home(environ) / text[2:] if text == "~" or text.startswith("~/") else Path(text)


def _home(environ: Mapping[str, str]) -> Path:
    if environ.get("HOME"):
        return Path(environ["HOME"])
    try:
        return Path.home()
    except RuntimeError as error:
        raise BadSetting("This user has no home folder: set CMSERVER_DATA_DIR to an absolute path.") from error


def _nearest(name: str, candidates: Mapping[str, str]) -> str:
    """The end of the warning about an unknown name. `candidates`: compared name -> displayed name."""
    near = difflib.get_close_matches(name, candidates, n=1, cutoff=0.5)  # LEASE finds LEASE_SECONDS
    return f"; did you mean {candidates[near[0]]}?" if near else "; `cmserver config` lists all there are."


def _is_database_url(text: str) -> bool:
    try:
        conninfo_to_dict(text)
    except ProgrammingError:
        return False
    return text.startswith(("postgresql://", "postgres://")) or "=" in text


def _short(text: str) -> str:
    return text if len(text) <= 100 else f"{text[:97]}..."
