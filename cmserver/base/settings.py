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


def described(description: str, extra: dict[str, str] | None = None) -> Meta:
    """A setting: a noun phrase with its unit. `extra` has the `mask` of a secret, or the `default` in words."""
    return Meta(description=description, extra=extra)


def within(at_least: float, at_most: float, description: str, extra: dict[str, str] | None = None) -> Meta:
    """A number within limits."""
    return Meta(ge=at_least, le=at_most, description=description, extra=extra)


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator may set. Made by `load`, which has checked every value; never changed afterwards."""

    data_dir: Annotated[
        Path,
        described(
            "Folder of the embedded database, the credentials file, the logs, `config.toml` with settings, and `server.json`, "
            "which names the running server.",
            {"default": "`$XDG_DATA_HOME/cmserver` or `~/.local/share/cmserver`; as root `/var/lib/cmserver`"},
        ),
    ]
    database_url: Annotated[
        str | None, described("URL of your PostgreSQL, version 15 or newer. Without it, an embedded one is started.", _URL)
    ] = None
    database_tenant_url: Annotated[
        str | None,
        described(
            "URL of the same database for requests, with a login role that row-level security binds. Without it, the "
            "owner's login takes that role, which transaction pooling does not allow.",
            _URL,
        ),
    ] = None
    database_direct_url: Annotated[
        str | None,
        described(
            "URL of the same database, not through the pooler, with the login that owns the tables: for migrations, locks and "
            "LISTEN. Required with transaction pooling; without it, the database URL is used.",
            _URL,
        ),
    ] = None
    database_pooling: Annotated[
        Literal["none", "session", "transaction"],
        described("Mode of the pooler that the database URLs lead to (PgBouncer's `pool_mode`)."),
    ] = "none"
    database_wait_seconds: Annotated[
        float,
        within(0, 3600, "How long the start waits for a database that does not answer, in seconds; then it fails. 0: one try."),
    ] = 30.0
    database_pool_size: Annotated[
        int,
        within(
            1,
            1000,
            "Maximum connections in each of the two pools, for requests, and for work and upkeep, of the API (its processes share "
            "them out) and of the worker.",
        ),
    ] = 10
    statement_timeout_seconds: Annotated[
        float,
        within(
            0,
            3600,
            "Time limit for one database query of a request, in seconds; then the request is answered with 503. 0: "
            "no limit. Workers, migrations, purges and deletions have none.",
        ),
    ] = 15.0
    embedded: Annotated[
        Literal["auto", "never"], described("Whether an embedded PostgreSQL is started when no database URL is set.")
    ] = "auto"
    host: Annotated[str, described("Address to listen on; 0.0.0.0 is every address of this machine.")] = "127.0.0.1"
    port: Annotated[int, within(0, 65535, "Port to listen on; 0 takes any free one.")] = 37877
    api_processes: Annotated[
        int, within(1, 64, "Processes that answer requests, on one port. The worker has a process of its own besides.")
    ] = 1
    bootstrap_team: Annotated[str, described("Name of the team that is made in an empty database.")] = "default"
    bootstrap_key: Annotated[
        str | None,
        described(
            "First key of the team that is made in an empty database; it may do everything (scope `*`). Without it, a key is made. "
            "Either is written to the credentials file.",
            _KEY,
        ),
    ] = None
    provider: Annotated[
        str,
        described(
            "Provider that generates observations: offline (rules), anthropic, gemini, openai, openrouter, ollama, "
            "claude-cli, or your own as package.module:factory. Of several, separated by commas, the next is called "
            "while those before are paused."
        ),
    ] = "offline"
    model: Annotated[
        str | None,
        described(
            "Model of the provider; without it, the one that its page recommends. With several providers, one for each in "
            "the same order, separated by commas."
        ),
    ] = None
    base_url: Annotated[
        str | None, described("Address of the provider, if not its usual one. With several providers, as for the model.", _URL)
    ] = None
    anthropic_api_key: Annotated[str | None, described("API key of the provider anthropic.", _KEY)] = None
    gemini_api_key: Annotated[str | None, described("API key of the provider gemini.", _KEY)] = None
    openai_api_key: Annotated[str | None, described("API key of the provider openai, and of the embedder openai.", _KEY)] = None
    openrouter_api_key: Annotated[str | None, described("API key of the provider openrouter.", _KEY)] = None
    model_context_tokens: Annotated[
        int,
        within(
            12_288,
            1_000_000,
            "Context of the models, in tokens. An eighth of it is for the answer, 16,384 at most; the events of a batch get "
            "at most 16,000 of the rest.",
            {"default": "`32768` with the provider ollama, else `65536`"},
        ),
    ] = 65_536
    verbosity: Annotated[
        Literal["minimal", "normal", "verbose"],
        described(
            "Which events become observations: only what changes how to work on the project (minimal), what you would tell a "
            "colleague (normal), or whatever may be useful (verbose). A project or its team can set another level."
        ),
    ] = "normal"
    generation_debounce_seconds: Annotated[
        float,
        within(
            0,
            3600,
            "How long an event waits for the rest of its burst, in seconds; a burst is one call of a model.",
            {"default": "`2` with the provider offline, else `30`"},
        ),
    ] = 2.0
    generation_gather_seconds: Annotated[
        float,
        within(
            0,
            86_400,
            "With the provider `offline`, how long events of hooks wait for the end of their turn at most, in seconds; with a"
            " model, how long prompts and last messages wait for a burst. 0: they wait like all others.",
        ),
    ] = 600.0
    entities: Annotated[
        Literal["off", "rules", "model"],
        described(
            "What finds entities: `rules` finds files, symbols, commands, errors and technologies, at no cost. With "
            "`model` the provider also names people, places, concepts and more, and words the overviews. `off` finds none."
        ),
    ] = "rules"
    context_on: Annotated[
        Literal["none", "prompt", "file", "both"],
        described(
            "When a session is told what is known, beside its start: on a prompt up to three observations that belong to it, on "
            "a file that its agent opens up to five lines. Claude Code also needs `cmserver connect claude-code --on-file`."
        ),
    ] = "prompt"
    embedder: Annotated[
        Literal["auto", "local", "minilm", "ollama", "openai", "voyage", "none"],
        described(
            "Embedder that makes vectors for search by meaning (needs pgvector); auto is local where that is installed, else none."
        ),
    ] = "auto"
    embedder_model: Annotated[
        str | None,
        described(
            "Model of the embedder, if not the one that its page recommends. A new one is used once everything is embedded; "
            "until then search uses the old one."
        ),
    ] = None
    embedder_base_url: Annotated[str | None, described("Address of the embedder, if not its usual one.", _URL)] = None
    embedder_key: Annotated[
        str | None, described("API key of the embedder voyage, or of the one at CMSERVER_EMBEDDER_BASE_URL.", _KEY)
    ] = None
    allowed_hosts: Annotated[
        str,
        described(
            "Host names under which `/mcp` is reached, besides IP addresses and those of this machine, separated by commas: "
            "`memory.example.com`, or `*` for any. Beside them the origins whose web pages may call it: `https://inspector.example.com`."
        ),
    ] = ""
    trusted_proxies: Annotated[
        str,
        described(
            "Addresses and networks of the proxies before this server, separated by commas (`10.0.0.0/8, ::1`). "
            "Their `X-Forwarded-For` or `Forwarded` names the client, their `X-Forwarded-Prefix` the path below which they show "
            "the server."
        ),
    ] = ""
    trusted_proxy_user_header: Annotated[
        str,
        described(
            "Header in which a trusted proxy names the person whom it has signed in (`Remote-User`): they need no password here. "
            "The proxy must remove the header from what its clients send."
        ),
    ] = ""
    metrics_token: Annotated[
        str | None,
        described("Bearer token of `GET /metrics` for Prometheus. Without it, that page does not exist.", _KEY),
    ] = None
    mcp_aliases: Annotated[
        Literal["none", "claude-mem", "memory", "contextify", "all"],
        described(
            "Further names for the MCP tools: those of claude-mem (search, timeline, ...), memory_* for each, those of "
            "Contextify (store_memory, ...), or all. Each costs a model tokens."
        ),
    ] = "none"
    trust_loopback: Annotated[
        str | None,
        described(
            "Team that callers on this machine may use without a key, as the hooks of claude-mem and the clients of Contextify do. "
            "Only where the server listens on loopback, and in no container but Docker's."
        ),
    ] = None
    heartbeat_seconds: Annotated[
        float,
        within(0.05, 600, "Interval of a worker's heartbeats, in seconds. A job of which no notification told waits for one."),
    ] = 5.0
    lease_seconds: Annotated[
        float, within(0.2, 3600, "How long a silent worker keeps its jobs before others take them, in seconds.")
    ] = 20.0
    provider_timeout_seconds: Annotated[float, within(0.1, 3600, "Time limit for one call of a provider, in seconds.")] = 120.0
    generation_concurrency: Annotated[int, within(1, 1000, "Batches that one worker generates at the same time.")] = 4
    backup_dir: Annotated[
        Path | None,
        described(
            "Folder of the backups and of the journal of erasures, which a restore repeats. Best on another disk. All processes of "
            "an installation must share it.",
            {"default": "`backups` in the data folder"},
        ),
    ] = None
    backup_every_hours: Annotated[
        float, within(0, 8760, "Make a backup when the newest one is older than this many hours. 0: never by itself.")
    ] = 0.0
    log_format: Annotated[
        Literal["console", "json"],
        described("Logs for people (console), or one JSON object per line.", {"default": "`console` on a terminal, else `json`"}),
    ] = msgspec.field(default_factory=_log_format_here)
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        described(
            "Lowest level that is logged.", {"default": "`info`; `warning` on a first start at a terminal, outside of a container"}
        ),
    ] = "info"

    @property
    def drain_seconds(self) -> float:
        """How long a stopping worker may finish what it has begun: within its lease, and the ten seconds that Docker gives."""
        return min(8.0, 0.4 * self.lease_seconds)

    @property
    def job_seconds(self) -> float:
        """How long a worker may hold a batch: for a call that ends at its time limit, another one, and what is between them.

        Five minutes at least, because a statement of a worker may take as long.
        """
        return max(300.0, 2.5 * self.provider_timeout_seconds)

    @property
    def backup_folder(self) -> Path:
        """The folder of the backups and the journal of erasures."""
        return self.backup_dir or self.data_dir / "backups"

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
        return "an absolute path" if self.is_path else "a text"

    @property
    def is_path(self) -> bool:
        return Path in {self.type, *get_args(self.type)}

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
    """The setting that a field of `Settings` declares."""
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
