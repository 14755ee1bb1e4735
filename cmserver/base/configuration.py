"""Reads the settings once, at the edge, from a TOML file and the environment; says what is wrong with one, and shows them."""

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

from cmserver.base.errors import CmserverError
from cmserver.base.settings import PREFIX, Field, Settings, fields

TEST_PREFIX = "CMSERVER_TEST_"
"""Names below it belong to the tests and are not warned about."""
CLIENT_NAMES = {"CMSERVER_URL", "CMSERVER_KEY", "CMSERVER_KEY_FILE", "CMSERVER_CLIENT_DIR"}
"""Where the commands that ask a server find it and their key, and where hooks keep theirs: options, and no settings."""
CONFIG_FILE = "CMSERVER_CONFIG"
OLDER_NAMES = {"CLAUDE_MEM_SERVER_DATABASE_URL": "database_url"}
"""Accepted where the setting has no value under its own name."""
_DEBOUNCE_WITH_A_MODEL_SECONDS = 30.0


class BadSetting(CmserverError):
    """A setting has a value that cannot be used; the program does not start."""


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """The settings, where each came from, and what the operator should be told about them."""

    settings: Settings
    sources: dict[str, str]
    """Field name -> "default", "environment NAME", "NAME=path" for a `_FILE`, or the path of the TOML file."""
    warnings: list[str]
    """Sentences."""


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """One effective setting as it may be shown to anybody."""

    name: str
    value: str | int | float | None
    source: str
    masked: bool
    """Whether the value stands for one that is not shown."""


class _Found(msgspec.Struct, frozen=True, kw_only=True):
    """A value, and how whoever set it would name it in a sentence."""

    value: object
    written: str
    source: str
    typed: bool = False
    """From TOML, where "80" is no number; a variable or a `_FILE` holds all values as text."""


def load(environ: Mapping[str, str], *, config_file: Path | None = None) -> Loaded:
    """Defaults, then the TOML file (`config_file`, or the one CMSERVER_CONFIG names), then the environment.

    An empty value counts as not set. Raises `BadSetting` with one sentence for the first value that cannot be used.
    """
    warnings: list[str] = []
    found = _from_toml(environ, config_file, warnings) | _from_environment(environ, warnings)
    values: dict[str, object] = {}
    for field in fields():
        if field.name in found:
            values[field.name] = _checked(field, found[field.name], environ)
    if "data_dir" not in values:
        values["data_dir"] = default_data_dir(environ)
    if values.get("provider", "offline") != "offline":
        values.setdefault("generation_debounce_seconds", _DEBOUNCE_WITH_A_MODEL_SECONDS)
    settings = msgspec.convert(values, Settings)
    _check_together(settings, {f.name: found[f.name].written if f.name in found else f.environment for f in fields()})
    sources = {f.name: found[f.name].source if f.name in found else "default" for f in fields()}
    return Loaded(settings=settings, sources=sources, warnings=warnings)


def effective(loaded: Loaded) -> list[Shown]:
    """Every setting with its source, secrets masked."""
    shown: list[Shown] = []
    for field in fields():
        value = getattr(loaded.settings, field.name)
        value = str(value) if isinstance(value, Path) else value
        masked = field.masked(value)
        shown.append(
            Shown(
                name=field.name,
                value=msgspec.convert(masked, str | int | float | None),
                source=loaded.sources[field.name],
                masked=masked != value,
            )
        )
    return shown


def default_data_dir(environ: Mapping[str, str]) -> Path:
    if os.geteuid() == 0:
        return Path("/var/lib/cmserver")
    xdg = environ.get("XDG_DATA_HOME", "")
    if Path(xdg).is_absolute():  # the XDG specification wants relative ones ignored
        return Path(xdg) / "cmserver"
    return _home(environ) / ".local" / "share" / "cmserver"


def _from_toml(environ: Mapping[str, str], config_file: Path | None, warnings: list[str]) -> dict[str, _Found]:
    if config_file is None and not environ.get(CONFIG_FILE):
        return {}
    naming, path = ("--config", config_file) if config_file else (CONFIG_FILE, Path(environ[CONFIG_FILE]))
    try:
        table = tomllib.loads(_text_of(path, naming))
    except tomllib.TOMLDecodeError as error:
        raise BadSetting(f"{naming} names {path}, which is not valid TOML: {error}.") from error
    known = {field.name: field.name for field in fields()}
    found: dict[str, _Found] = {}
    for key, value in table.items():
        if key not in known:
            warnings.append(f"{key} in {path} is not a setting and is ignored{_nearest(key, known)}")
        elif value != "":
            found[key] = _Found(value=value, written=f"{key} in {path}", source=str(path), typed=True)
    return found


def _from_environment(environ: Mapping[str, str], warnings: list[str]) -> dict[str, _Found]:
    found: dict[str, _Found] = {}
    for field in fields():
        name, file_name = field.environment, f"{field.environment}_FILE"
        path = environ.get(file_name, "") if field.mask else ""
        if environ.get(name) and path:
            raise BadSetting(f"{name} and {file_name} are both set: keep one of them.")
        if path:
            value = _text_of(Path(path), file_name).removesuffix("\n").removesuffix("\r")
            if not value:
                raise BadSetting(f"{file_name} names {path}, which is empty: write the value into it.")
            found[field.name] = _Found(value=value, written=f"{file_name} ({path})", source=f"{file_name}={path}")
        elif environ.get(name):
            found[field.name] = _Found(value=environ[name], written=name, source=f"environment {name}")
    for older, field_name in OLDER_NAMES.items():
        if environ.get(older) and field_name in found:
            warnings.append(f"{older} is ignored, because {found[field_name].written} is set.")
        elif environ.get(older):
            found[field_name] = _Found(value=environ[older], written=older, source=f"environment {older}")
    warnings.extend(_unknown(environ))
    return found


def _unknown(environ: Mapping[str, str]) -> list[str]:
    known = {CONFIG_FILE, *(f.environment for f in fields()), *(f"{f.environment}_FILE" for f in fields() if f.mask)}
    # Compared without the prefix, so that CMSERVER_OPENAI_API_KEY finds OPENAI_API_KEY.
    candidates = {name.removeprefix(PREFIX): name for name in sorted(known)}
    return [
        f"{name} is not a setting and is ignored{_nearest(name.removeprefix(PREFIX), candidates)}"
        for name in sorted(environ)
        if name.startswith(PREFIX) and name not in known | CLIENT_NAMES and not name.startswith(TEST_PREFIX)
    ]


def _checked(field: Field, found: _Found, environ: Mapping[str, str]) -> object:
    value = found.value
    if isinstance(value, str) and field.choices:
        value = value.lower()
    if isinstance(value, str) and field.type is Path:
        value = _home(environ) / value[2:] if value == "~" or value.startswith("~/") else Path(value)
    try:
        converted: object = msgspec.convert(value, field.annotated, strict=found.typed)
    except msgspec.ValidationError:
        raise _bad(field, found, field.expected) from None  # its text could hold the secret
    if isinstance(converted, Path) and not converted.is_absolute():
        raise _bad(field, found, field.expected)
    if field.name == "database_url" and not _is_database_url(str(converted)):
        raise _bad(field, found, "a URL like postgresql://user:password@host:5432/database")
    if field.name in {"base_url", "embedder_base_url"} and not all(
        re.match(r"https?://[^\s/]|$", one.strip()) for one in str(converted).split(",")
    ):
        raise _bad(field, found, "a URL that begins with http:// or https://")
    return converted


def _check_together(settings: Settings, written: Mapping[str, str]) -> None:
    if settings.embedded == "never" and settings.database_url is None:
        raise BadSetting(
            f"{written['embedded']} is 'never' and {written['database_url']} is not set: "
            "set the URL of a PostgreSQL 15 or newer, or let the embedded one be used with 'auto'."
        )
    heartbeat_and_drain_seconds = settings.heartbeat_seconds + settings.drain_seconds
    if settings.lease_seconds <= heartbeat_and_drain_seconds:
        raise BadSetting(
            f"{written['lease_seconds']} is {settings.lease_seconds:g}: more than {written['heartbeat_seconds']} and "
            f"{written['drain_seconds']} together ({heartbeat_and_drain_seconds:g}) is expected, "
            "or a stopping worker loses its jobs while it finishes them."
        )
    if settings.provider_timeout_seconds >= settings.job_hard_limit_seconds:
        raise BadSetting(
            f"{written['provider_timeout_seconds']} is {settings.provider_timeout_seconds:g}: less than "
            f"{written['job_hard_limit_seconds']} ({settings.job_hard_limit_seconds:g}) is expected, "
            "or a job is given up while its provider may still answer."
        )
    if settings.trust_loopback is not None and not _is_loopback(settings.host):
        raise BadSetting(
            f"{written['trust_loopback']} is set and {written['host']} is {_short(repr(settings.host))}: callers without a key are "
            "only let in where nobody but this machine can call. Listen on 127.0.0.1, or let them use keys."
        )


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _bad(field: Field, found: _Found, expected: str) -> BadSetting:
    value = found.value if field.mask is None else field.masked(found.value)
    if field.name == "database_url" and not _is_database_url(str(found.value)):
        value = "***"  # what cannot be read as a URL cannot be masked in part
    return BadSetting(f"{found.written} is {_short(repr(value))}: {expected} is expected.")


def _text_of(path: Path, naming: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise BadSetting(f"{naming} names {path}, which cannot be read: {error.strerror or error}.") from error
    except ValueError:
        raise BadSetting(f"{naming} names {path}, which cannot be read: it is no UTF-8 text.") from None


def _home(environ: Mapping[str, str]) -> Path:
    if environ.get("HOME"):
        return Path(environ["HOME"])
    try:
        return Path.home()
    except RuntimeError as error:
        raise BadSetting("This user has no home folder: set CMSERVER_DATA_DIR to an absolute path.") from error


def _nearest(name: str, candidates: Mapping[str, str]) -> str:
    """Finishes the sentence about an unknown name; the candidates are what to compare -> what to show."""
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
