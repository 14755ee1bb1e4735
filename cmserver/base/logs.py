"""Structured logs to standard error: our events and the records of the libraries below us come out in one shape."""

from __future__ import annotations

import json
import logging
import math
import re
import sys
from collections.abc import Mapping, MutableMapping
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Literal, TextIO, cast

import psycopg
import structlog
from structlog.typing import EventDict, FilteringBoundLogger, Processor

MAX_CHARS = 2_000
MAX_EXCEPTION_CHARS = 16_000  # the last line of a traceback matters most, and stands at its end
MAX_DEPTH = 6
MAX_ITEMS = 100

# Compared with the key in lower case and with underscores. A count of `tokens` is no secret.
_SECRET_PARTS = (
    "authorization",
    "api_key",
    "apikey",
    "password",
    "passwd",
    "secret",
    "cookie",
    "database_url",
    "database_tenant_url",
    "database_direct_url",
)
_SECRET_ENDS = ("token", "bootstrap_key")

# What PostgreSQL adds to the sentence of an error: rows and parameters stand there.
_ADDED = re.compile(r"\n(?:DETAIL|HINT|CONTEXT|QUERY|STATEMENT|LINE \d+): ")

_EXPORTERS = [f"opentelemetry.exporter.otlp.proto.http.{name}_exporter" for name in ("trace", "metric")]

# Libraries whose INFO is one line for each job, or which warn before each of many attempts.
_CHATTY = {"procrastinate": logging.WARNING, **dict.fromkeys(_EXPORTERS, logging.ERROR)}

# Libraries that write addresses with passwords in them, headers, and at DEBUG whole requests: what users have stored.
_TELLTALE = ("httpx", "httpx2", "httpcore", "httpcore2", "anthropic", "mcp")


def get_logger(name: str) -> FilteringBoundLogger:
    """The logger of the module of that name."""
    return structlog.get_logger(name)


def configure(log_format: Literal["console", "json"], level: str) -> None:
    """Set up structlog and the standard library's logging; called again, a logger that was used keeps its first level."""
    renderer: Processor = (
        _as_json
        if log_format == "json"
        else structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(),
            exception_formatter=structlog.dev.plain_traceback,  # the rich one prints local variables, secrets too
            timestamp_key="ts",
            sort_keys=False,
        )
    )
    handler = _ToStandardError()
    handler.setFormatter(
        _Formatter(
            processors=[_without_rows, structlog.processors.format_exc_info, _in_shape, renderer],
            foreign_pre_chain=[structlog.contextvars.merge_contextvars],
        )
    )
    number = logging.getLevelNamesMapping()[level.upper()]
    root = logging.getLogger()
    for ours in [handler for handler in root.handlers if isinstance(handler, _ToStandardError)]:
        root.removeHandler(ours)
    root.addHandler(handler)
    root.setLevel(number)
    for name, least in _CHATTY.items():
        logging.getLogger(name).setLevel(number if number <= logging.DEBUG else max(number, least))
    for name in _TELLTALE:
        logging.getLogger(name).setLevel(max(number, logging.WARNING))
    for name in ("uvicorn", "uvicorn.error"):
        logging.getLogger(name).handlers.clear()
        logging.getLogger(name).propagate = True
    access = logging.getLogger("uvicorn.access")  # uvicorn does not even build the record when nobody would get it
    access.handlers.clear()
    access.propagate = False
    structlog.configure(
        processors=_PROCESSORS,
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.make_filtering_bound_logger(number),
        cache_logger_on_first_use=True,
    )


# What may fail stands in the formatter, where a failure cannot reach the caller. One list for all calls of `configure`,
# because structlog's capture_logs, which tests use, changes the list that a used logger has kept.
_PROCESSORS: list[Processor] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
]


class _ToStandardError(logging.StreamHandler[TextIO]):
    """Writes to what `sys.stderr` is at that moment; a failure is nobody's business but the log's own."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: ARG002, N802 - there is nowhere left to tell it
        return


class _Formatter(structlog.stdlib.ProcessorFormatter):
    def format(self, record: logging.LogRecord) -> str:
        """Format the record; where that fails, a line that says so."""
        try:
            for value in record.args.values() if isinstance(record.args, Mapping) else record.args or ():
                if isinstance(value, BaseException):
                    forget_rows(value)
            return super().format(record)
        except Exception as error:  # noqa: BLE001 - a log line never breaks what it tells of
            return json.dumps(
                {
                    "ts": _moment(record),
                    "level": record.levelname.lower(),
                    "event": "a record that could not be formatted",
                    "logger": record.name,
                    "exception": type(error).__name__,
                }
            )


def forget_rows(error: BaseException) -> None:
    """Changes what PostgreSQL's errors say, in the whole chain: the texts of users stand in the details, and must not be logged."""
    waiting, visited = [error], set[int]()
    while waiting:
        exception = waiting.pop()
        if id(exception) in visited:
            continue
        visited.add(id(exception))
        waiting += [linked for linked in (exception.__cause__, exception.__context__) if linked is not None]
        if isinstance(exception, BaseExceptionGroup):
            waiting += cast("BaseExceptionGroup[BaseException]", exception).exceptions
        if isinstance(exception, psycopg.Error):
            exception.args = (_without_values(exception),)


def _without_values(error: psycopg.Error) -> str:
    """The sentence of a PostgreSQL error without values of users, with its SQLSTATE and constraint."""
    message = error.diag.message_primary
    if message is None:  # from the client's side, or made in a test
        return _ADDED.split(str(error), maxsplit=1)[0]
    message = message.partition(': "')[0]  # invalid input syntax for type integer: "..."
    details = [f"SQLSTATE {error.diag.sqlstate}", error.diag.constraint_name and f"constraint {error.diag.constraint_name}"]
    return f"{message} ({', '.join(filter(None, details))})"


def _without_rows(_logger: object, _method: str, event: EventDict) -> EventDict:
    """Remove the texts of users from the exception of a log event."""
    info: object = event.get("exc_info")
    if info is True:
        info = sys.exc_info()
    error = cast("tuple[object, ...]", info)[1] if isinstance(info, tuple) else info
    if isinstance(error, BaseException):
        forget_rows(error)
        record: logging.LogRecord = event["_record"]
        if record.name == "asyncio":  # its further lines repeat the exception as it was
            event["event"] = str(event["event"]).partition("\n")[0]
    return event


def _in_shape(_logger: object, _method: str, event: EventDict) -> EventDict:
    """The record as it is written: ts, level, event and logger first, secrets masked, values plain and not too long."""
    record: logging.LogRecord = event.pop("_record")
    del event["_from_structlog"]
    shaped: EventDict = {
        "ts": _moment(record),
        "level": record.levelname.lower(),
        "event": _plain(event.pop("event", "")),
        "logger": record.name,
    }
    exception: object = event.pop("exception", None)
    for key, value in event.items():
        shaped.setdefault(key, _masked(key, value, depth=0))
    if exception is not None:
        shaped["exception"] = _cut(str(exception), MAX_EXCEPTION_CHARS)
    return shaped


def _as_json(_logger: object, _method: str, event: MutableMapping[str, Any]) -> str:
    return json.dumps(event)


def _moment(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _masked(key: str, value: object, depth: int) -> object:
    """The value as `_plain` has it, or `***` when the name is that of a secret."""
    if isinstance(value, bool | int | float) or value is None:
        return _plain(value)
    name = key.lower().replace("-", "_")
    if name.endswith(_SECRET_ENDS) or any(part in name for part in _SECRET_PARTS):
        return "***"
    return _plain(value, depth)


def _plain(value: object, depth: int = 0) -> object:
    """The value as JSON can hold it; what is no text, number, list or mapping becomes its repr."""
    if isinstance(value, str):
        return _cut(str(value), MAX_CHARS)
    if value is None or isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if depth < MAX_DEPTH and isinstance(value, Mapping):
        pairs = cast("Mapping[object, object]", value)
        return {_cut(str(key), MAX_CHARS): _masked(str(key), item, depth + 1) for key, item in pairs.items()}
    if depth < MAX_DEPTH and isinstance(value, list | tuple | set | frozenset):
        return [_plain(item, depth + 1) for item in islice(cast("list[object]", value), MAX_ITEMS)]
    if isinstance(value, BaseException):
        forget_rows(value)
    try:
        text = str(value)
    except Exception:  # noqa: BLE001 - a __str__ of anybody
        text = f"<{type(value).__name__}>"
    return _cut(text, MAX_CHARS)


def _cut(text: str, max_chars: int) -> str:
    """The text with only its head and tail when it is longer than `max_chars`, and without lone surrogates."""
    if not text.isascii():
        # Lone surrogates (from file names, or half an emoji) can be neither written nor read back.
        text = text.encode("utf-8", "backslashreplace").decode("utf-8")
    if len(text) <= max_chars:
        return text
    mark = f" ... {len(text) - max_chars} characters ... "
    head = (max_chars - len(mark)) // 2
    return text[:head] + mark + text[-(max_chars - len(mark) - head) :]
