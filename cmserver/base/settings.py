"""What an operator may set: one Struct, made at the edge by base/configuration.py, and handed down."""

from __future__ import annotations

import re
import sys
from functools import cache
from pathlib import Path
from typing import Annotated, Literal, get_args, get_origin

import msgspec
from msgspec import Meta

PREFIX = "CMSERVER_"

# How a value is hidden when shown: a key keeps its first letters, a URL all but its password.
_KEY: dict[str, str] = {"mask": "key"}
_URL: dict[str, str] = {"mask": "url"}


def _log_format_here() -> Literal["console", "json"]:
    return "console" if sys.stderr.isatty() else "json"


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
    embedder: Annotated[
        Literal["auto", "local", "ollama", "openai", "voyage", "none"],
        Meta(
            description="Who makes vectors of texts, with pgvector, so that search finds what is said in other words; auto is "
            "local where that is installed, else none."
        ),
    ] = "auto"
    embedder_model: Annotated[
        str | None,
        Meta(description="The embedder's model, if not the one that its page recommends; a new one is used once all is embedded."),
    ] = None
    embedder_base_url: Annotated[
        str | None, Meta(description="Where the embedder is reached, if not at its usual address.", extra=_URL)
    ] = None
    embedder_dimensions: Annotated[
        int,
        Meta(
            ge=0, le=4000, description="How long the vectors shall be, for models that offer several lengths; 0 leaves it to them."
        ),
    ] = 0
    embedder_key: Annotated[str | None, Meta(description="The key of an embedder at an address of your own.", extra=_KEY)] = None
    voyage_api_key: Annotated[str | None, Meta(description="The key of the embedder voyage.", extra=_KEY)] = None
    search_k1: Annotated[
        float, Meta(ge=0, le=10, description="BM25: how much a word that comes again and again in a text still counts.")
    ] = 0.9
    search_b: Annotated[float, Meta(ge=0, le=1, description="BM25: how much long texts are held back.")] = 0.4
    search_meaning_weight: Annotated[
        float, Meta(ge=0, le=1, description="How much of a hit's score is nearness in meaning; the rest is shared words.")
    ] = 0.45
    search_min_score: Annotated[
        float,
        Meta(ge=0, le=1, description="What fits worse is not found, so that a query about nothing known finds nothing."),
    ] = 0.23
    allowed_hosts: Annotated[
        str,
        Meta(
            description=(
                "The names by which `/mcp` may be asked, besides addresses and those of this machine, with commas between: "
                "`memory.example.com`, as a proxy hands it on, or `*` for any."
            )
        ),
    ] = ""
    allowed_origins: Annotated[
        str,
        Meta(
            description=(
                "The origins whose web pages may ask `/mcp`, besides those of this machine, with commas between: "
                "`https://inspector.example.com`, or `*` for any."
            )
        ),
    ] = ""
    mcp_aliases: Annotated[
        Literal["none", "claude-mem", "memory", "all"],
        Meta(
            description=(
                "Further names for the MCP tools, each of which costs a model tokens: those of claude-mem (search, timeline, ...), "
                "memory_* for each, or both."
            )
        ),
    ] = "none"
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


@cache
def fields() -> tuple[Field, ...]:
    """Every setting, in the order of `Settings`."""
    return tuple(_field(info) for info in msgspec.structs.fields(Settings))


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


def _without_password(text: str) -> str:
    """A URL, or libpq's `key=value` text, with `***` in place of what is secret in it."""
    value = r"'(?:[^'\\]|\\.)*'|(?:\\.|[^\s&\\])+"
    text = re.sub(rf"(?i)((?:password|secret|token|_key|\bkey)\s*=\s*)(?:{value})", r"\1***", text)
    # To the last @: a password that holds one itself must not be shown in part.
    return re.sub(r"^([\w+.-]+://[^:@/]*):.*@", r"\1:***@", text, flags=re.DOTALL)


def _plain(number: float | None) -> str:
    return "any" if number is None else f"{number:.12g}"
