"""What an operator may set: one Struct, read once at the edge from a TOML file and the environment, and handed down."""

from __future__ import annotations

import difflib
import os
import re
import sys
import tomllib
from collections.abc import Mapping
from functools import cache
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Literal, get_args, get_origin

import msgspec
from msgspec import Meta
from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict

from cmserver.base.errors import CmserverError

PREFIX = "CMSERVER_"
TEST_PREFIX = "CMSERVER_TEST_"
"""Names below it belong to the tests and are not warned about."""
CLIENT_NAMES = {"CMSERVER_URL", "CMSERVER_KEY", "CMSERVER_KEY_FILE", "CMSERVER_CLIENT_DIR"}
"""Where the commands that ask a server find it and their key, and where hooks keep theirs: options, and no settings."""
CONFIG_FILE = "CMSERVER_CONFIG"
OLDER_NAMES = {"CLAUDE_MEM_SERVER_DATABASE_URL": "database_url"}
"""Accepted where the setting has no value under its own name."""

# How a value is hidden when shown: a key keeps its first letters, a URL all but its password.
_KEY: dict[str, str] = {"mask": "key"}
_URL: dict[str, str] = {"mask": "url"}


_DEBOUNCE_WITH_A_MODEL_SECONDS = 30.0


def _log_format_here() -> Literal["console", "json"]:
    return "console" if sys.stderr.isatty() else "json"


class BadSetting(CmserverError):
    """A setting has a value that cannot be used; the program does not start."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator may set. Made by `load`, which has checked every value; never changed afterwards."""

    data_dir: Annotated[
        Path,
        Meta(
            description="The folder of the embedded database, the credentials file, and the pid and port files.",
            extra={"default": "`$XDG_DATA_HOME/cmserver` or `~/.local/share/cmserver`; as root `/var/lib/cmserver`"},
        ),
    ]
    database_url: Annotated[
        str | None,
        Meta(
            description="A PostgreSQL 15 or newer that is yours; without it an embedded one is started.",
            extra=_URL,
        ),
    ] = None
    database_wait_seconds: Annotated[
        float, Meta(ge=0, le=3600, description="How long the start waits for a database that cannot be reached.")
    ] = 30.0
    database_pool_size: Annotated[
        int,
        Meta(
            ge=1,
            le=1000,
            description="The most connections in each of a process's two pools: for requests, and for work and upkeep.",
        ),
    ] = 10
    embedded: Annotated[
        Literal["auto", "never"],
        Meta(description="Whether an embedded PostgreSQL may be started when no database URL is set."),
    ] = "auto"
    host: Annotated[str, Meta(description="The address to listen on; 0.0.0.0 is every address of this machine.")] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535, description="The port to listen on; 0 takes any free one.")] = 37877
    bootstrap_team: Annotated[str, Meta(description="The team that is made in an empty database.")] = "default"
    bootstrap_key: Annotated[
        str | None,
        Meta(description="The admin key of that team; without it one is made and shown once.", extra=_KEY),
    ] = None
    provider: Annotated[
        str,
        Meta(
            description=(
                "Who generates observations: offline (rules), anthropic, gemini, openai, openrouter, ollama, claude-cli, or one of "
                "your own as package.module:factory; several, with commas between, stand in for each other in that order."
            )
        ),
    ] = "offline"
    model: Annotated[
        str | None,
        Meta(description="The provider's model; without it the one that its page recommends; of several providers one each."),
    ] = None
    base_url: Annotated[str | None, Meta(description="Where the provider is reached, if not at its usual address.", extra=_URL)] = (
        None
    )
    anthropic_api_key: Annotated[str | None, Meta(description="The key of the provider anthropic.", extra=_KEY)] = None
    gemini_api_key: Annotated[str | None, Meta(description="The key of the provider gemini.", extra=_KEY)] = None
    openai_api_key: Annotated[str | None, Meta(description="The key of the provider openai.", extra=_KEY)] = None
    openrouter_api_key: Annotated[str | None, Meta(description="The key of the provider openrouter.", extra=_KEY)] = None
    claude_program: Annotated[str, Meta(description="The program that the provider claude-cli starts.")] = "claude"
    language: Annotated[
        str, Meta(min_length=2, max_length=40, description="What observations are worded in, unless the project says otherwise.")
    ] = "English"
    prompt_event_tokens: Annotated[
        int,
        Meta(
            ge=500,
            le=500_000,
            description="How much of a batch's events a model is shown, at 4 characters a token; the longest are cut to fit.",
        ),
    ] = 16_000
    answer_max_tokens: Annotated[
        int,
        Meta(ge=256, le=128_000, description="The longest answer a model may give; one that is cut there is asked for in parts."),
    ] = 8_192
    generation_debounce_seconds: Annotated[
        float,
        Meta(
            ge=0,
            le=3600,
            description="How long an event waits for the rest of its burst; one call of a model serves a burst.",
            extra={"default": "`2` with the provider offline, else `30`"},
        ),
    ] = 2.0
    session_idle_hours: Annotated[
        float,
        Meta(
            ge=0, le=8760, description="A session without a sign of life for so long is ended, and gets its summary; 0 never does."
        ),
    ] = 4.0
    checkpoint_events: Annotated[
        int,
        Meta(
            ge=1,
            le=100_000,
            description="At the end of a turn a session gets a new summary when it has so many new events since the last.",
        ),
    ] = 50
    checkpoint_minutes: Annotated[
        float,
        Meta(
            ge=0,
            le=10_080,
            description="Or when it has any, and so many minutes have passed since the last summary, or since its start.",
        ),
    ] = 30.0
    context_tokens: Annotated[
        int,
        Meta(
            ge=200,
            le=2_375,
            description="The most that a session's index costs, at 4 characters a token; agents cut what is longer than the most.",
        ),
    ] = 2_000
    context_observations: Annotated[
        int, Meta(ge=0, le=500, description="The most observations in that index; the most useful ones are taken.")
    ] = 50
    context_summaries: Annotated[int, Meta(ge=0, le=50, description="The most summaries of earlier sessions in that index.")] = 10
    context_on_prompt: Annotated[
        Literal["on", "off"], Meta(description="Whether a prompt is answered with up to three lines that clearly belong to it.")
    ] = "on"
    context_on_file: Annotated[
        Literal["on", "off"],
        Meta(
            description="Whether an agent that opens a file is told in a few lines what is known about it; "
            "Claude Code also needs `cmserver connect claude-code --on-file`."
        ),
    ] = "off"
    trust_loopback: Annotated[
        str | None,
        Meta(
            description=(
                "A team whose memory callers on this machine may use without a key, as the hooks of claude-mem do; "
                "only where the server listens on loopback, and in no container."
            )
        ),
    ] = None
    heartbeat_seconds: Annotated[float, Meta(ge=0.05, le=600, description="How often a worker says that it is alive.")] = 5.0
    lease_seconds: Annotated[
        float, Meta(ge=0.2, le=3600, description="How long a silent worker keeps its jobs before others take them.")
    ] = 20.0
    drain_seconds: Annotated[float, Meta(ge=0, le=600, description="How long a stopping worker may finish what it has begun.")] = (
        8.0
    )
    job_hard_limit_seconds: Annotated[
        float, Meta(ge=0.1, le=86400, description="The longest one job may take before it is given up.")
    ] = 300.0
    provider_timeout_seconds: Annotated[float, Meta(ge=0.1, le=3600, description="How long one call of a provider may take.")] = (
        120.0
    )
    generation_concurrency: Annotated[
        int, Meta(ge=1, le=1000, description="How many batches one worker generates at the same time.")
    ] = 4
    batch_max_events: Annotated[int, Meta(ge=1, le=500, description="The most events that are given to a provider at once.")] = 20
    batch_max_chars: Annotated[
        int, Meta(ge=1000, le=10_000_000, description="The most characters of events that are given at once.")
    ] = 60_000
    queue_warning_seconds: Annotated[
        float,
        Meta(ge=0, le=604_800, description="How long a job that is due may wait before that is logged and shown; 0 never warns."),
    ] = 300.0
    job_max_attempts: Annotated[int, Meta(ge=1, le=100, description="How often a job is tried before it has failed.")] = 3
    body_max_bytes: Annotated[
        int, Meta(ge=1024, le=268_435_456, description="The largest request body; a larger one is answered with 413.")
    ] = 8_388_608
    body_timeout_seconds: Annotated[
        float, Meta(ge=0.1, le=3600, description="How long a request's body may take to come; after that it is answered with 408.")
    ] = 30.0
    field_max_chars: Annotated[
        int, Meta(ge=100, le=10_000_000, description="Longer fields of a payload keep their head and tail only.")
    ] = 16_000
    key_requests_per_minute: Annotated[
        int, Meta(ge=1, le=1_000_000, description="How many requests a minute a new key may make, unless it is made with a limit.")
    ] = 600
    stream_heartbeat_seconds: Annotated[
        float, Meta(ge=0.05, le=600, description="How often a live stream on which nothing happens shows that it is alive.")
    ] = 15.0
    streams_per_key: Annotated[
        int, Meta(ge=1, le=100_000, description="How many live streams one key may have open at a time.")
    ] = 50
    stalled_client_seconds: Annotated[
        float,
        Meta(ge=1, le=3600, description="How long a client may take in nothing of an answer before its connection is closed."),
    ] = 30.0
    log_format: Annotated[
        Literal["console", "json"],
        Meta(
            description="Logs for a person to read, or one JSON object a line.",
            extra={"default": "`console` on a terminal, else `json`"},
        ),
    ] = msgspec.field(default_factory=_log_format_here)
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], Meta(description="The least important records that are logged.")
    ] = "info"

    def __repr__(self) -> str:
        return f"Settings({', '.join(f'{name}={value!r}' for name, value in self.__rich_repr__())})"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        return [(field.name, field.masked(getattr(self, field.name))) for field in fields()]


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """One setting, as its line in `Settings` describes it."""

    name: str
    type: object
    annotated: object
    """The type with its limits."""
    description: str
    environment: str
    default: object
    default_in_words: str | None
    mask: str | None
    """How a secret is shown: "key" or "url"; None is no secret."""
    at_least: float | None
    at_most: float | None

    @property
    def choices(self) -> tuple[str, ...]:
        return get_args(self.type) if get_origin(self.type) is Literal else ()

    @property
    def expected(self) -> str:
        """Finishes the sentence "... is expected"."""
        if self.choices:
            return " or ".join(repr(choice) for choice in self.choices)
        if self.at_least is not None:
            kind = "a whole number" if self.type is int else "a number"
            return f"{kind} from {_plain(self.at_least)} to {_plain(self.at_most)}"
        return "an absolute path" if self.type is Path else "a text"

    def masked(self, value: object) -> object:
        """The value as it may be shown: secrets hidden, all else as it is."""
        if self.mask is None or value is None:
            return value
        if not isinstance(value, str):
            return "***"
        if self.mask == "url":
            return _without_password(value)
        return f"{value[:4]}..." if len(value) > 12 else "..."


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


@cache
def fields() -> tuple[Field, ...]:
    """Every setting, in the order of `Settings`."""
    return tuple(_field(info) for info in msgspec.structs.fields(Settings))


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
    if field.name == "base_url" and not all(re.match(r"https?://[^\s/]|$", one.strip()) for one in str(converted).split(",")):
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


def _field(info: msgspec.structs.FieldInfo) -> Field:
    type_, meta = get_args(info.type)
    assert isinstance(meta, Meta)
    extra: dict[str, str] = meta.extra or {}
    default: object = None if info.default is msgspec.NODEFAULT else info.default
    usual_name = info.name.upper()
    return Field(
        name=info.name,
        type=type_,
        annotated=info.type,
        description=meta.description or "",
        environment=usual_name if usual_name.endswith("_API_KEY") else PREFIX + usual_name,
        default=default,
        default_in_words=extra.get("default"),
        mask=extra.get("mask"),
        at_least=meta.ge,
        at_most=meta.le,
    )


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


def _without_password(text: str) -> str:
    """A URL, or libpq's `key=value` text, with `***` in place of what is secret in it."""
    value = r"'(?:[^'\\]|\\.)*'|(?:\\.|[^\s&\\])+"
    text = re.sub(rf"(?i)((?:password|secret|token|_key|\bkey)\s*=\s*)(?:{value})", r"\1***", text)
    # To the last @: a password that holds one itself must not be shown in part.
    return re.sub(r"^([\w+.-]+://[^:@/]*):.*@", r"\1:***@", text, flags=re.DOTALL)


def _plain(number: float | None) -> str:
    return "any" if number is None else f"{number:.12g}"


def _short(text: str) -> str:
    return text if len(text) <= 100 else f"{text[:97]}..."
