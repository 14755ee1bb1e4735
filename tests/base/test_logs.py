from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Literal
from uuid import uuid4

import psycopg
import pytest
import structlog
from psycopg import errors
from structlog.typing import FilteringBoundLogger

from cmserver.base import logs

Lines = Callable[[], list[dict[str, object]]]


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    libraries = ("procrastinate", "httpx", "httpx2", "httpcore", "httpcore2", "anthropic")
    names = ("", *libraries, "uvicorn", "uvicorn.error", "uvicorn.access")
    kept = [(logger, logger.level, logger.propagate) for logger in map(logging.getLogger, names)]
    config = structlog.get_config()
    yield
    structlog.contextvars.clear_contextvars()
    structlog.configure(**config)
    logging.getLogger().handlers[:] = [h for h in logging.getLogger().handlers if not is_ours(h)]
    for logger, level, propagate in kept:
        logger.setLevel(level)
        logger.propagate = propagate


def is_ours(handler: logging.Handler) -> bool:
    return type(handler).__module__ == logs.__name__


@pytest.fixture
def lines(capsys: pytest.CaptureFixture[str]) -> Lines:
    def read() -> list[dict[str, object]]:
        captured = capsys.readouterr()
        assert captured.out == ""
        return [json.loads(line) for line in captured.err.splitlines()]

    return read


def a_logger(log_format: Literal["console", "json"] = "json", level: str = "info") -> FilteringBoundLogger:
    """Under a name of its own, since a logger keeps the level it was first used with."""
    logs.configure(log_format, level)
    # pytest listens as well, and raises what a record does wrong.
    logging.getLogger().handlers[:] = [h for h in logging.getLogger().handlers if is_ours(h)]
    return structlog.get_logger(f"test.{uuid4()}")


def test_a_record_is_one_line_of_json_with_time_level_event_and_logger_first(lines: Lines):
    log = a_logger()

    log.info("server.started", port=37877, url="http://127.0.0.1\n")

    (record,) = lines()
    assert list(record) == ["ts", "level", "event", "logger", "port", "url"]
    assert (record["level"], record["event"], record["port"]) == ("info", "server.started", 37877)
    assert str(record["logger"]).startswith("test.")
    assert str(record["ts"]).endswith("Z")
    assert len(str(record["ts"])) == len("2026-01-01T00:00:00.000Z")
    assert datetime.fromisoformat(str(record["ts"])).tzinfo is not None


def test_records_of_the_libraries_have_the_same_shape(lines: Lines):
    a_logger()

    logging.getLogger("psycopg.pool").warning("error connecting in %r: %s", "pool-1", "refused")
    logging.getLogger("uvicorn.error").info("Started server process [%d]", 7)

    first, second = lines()
    assert list(first) == list(second) == ["ts", "level", "event", "logger"]
    assert (first["level"], first["logger"]) == ("warning", "psycopg.pool")
    assert first["event"] == "error connecting in 'pool-1': refused"
    assert second["event"] == "Started server process [7]"


def test_a_record_carries_the_request_and_the_job_it_belongs_to(lines: Lines):
    log = a_logger()

    with structlog.contextvars.bound_contextvars(request_id="r1", job_id="j1", lane="l1"):
        log.warning("lease.lost")
        logging.getLogger("psycopg").warning("hm")
    log.warning("lease.lost")

    ours, theirs, after = lines()
    assert (ours["request_id"], ours["job_id"], ours["lane"]) == ("r1", "j1", "l1")
    assert theirs["request_id"] == "r1"
    assert "request_id" not in after


def test_an_exception_is_text_in_one_field_ours_and_theirs(lines: Lines):
    log = a_logger()

    try:
        raise ValueError("broken")  # noqa: TRY301
    except ValueError:
        log.exception("request.failed")
        logging.getLogger("uvicorn.error").exception("Exception in ASGI application")

    for record in lines():
        assert record["level"] == "error"
        assert str(record["exception"]).startswith("Traceback (most recent call last):\n")
        assert str(record["exception"]).endswith("ValueError: broken")


INVALID_JSON = """SELECT '{"password":"hunter2' ::jsonb"""
FAILING_ROW = "INSERT INTO t VALUES ('hunter2', 1)"
INVALID_NUMBER = "SELECT 'hunter2'::int"


@pytest.fixture
def table(empty_database: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(empty_database, autocommit=True) as conn:
        conn.execute("CREATE TABLE t (text text, n int CONSTRAINT n_is_zero CHECK (n = 0))")
        yield conn


@pytest.mark.parametrize("log_format", ["json", "console"])
@pytest.mark.parametrize(
    ("statement", "kept"),
    [
        (INVALID_JSON, ["InvalidTextRepresentation", "invalid input syntax for type json", "22P02"]),
        (FAILING_ROW, ["CheckViolation", "violates check constraint", "23514", "constraint n_is_zero"]),
        (INVALID_NUMBER, ["InvalidTextRepresentation", "invalid input syntax for type integer", "22P02"]),
    ],
)
def test_what_users_wrote_does_not_come_out_of_postgresql_s_errors(
    table: psycopg.Connection,
    capsys: pytest.CaptureFixture[str],
    log_format: Literal["json", "console"],
    statement: str,
    kept: list[str],
):
    log = a_logger(log_format)

    def failed() -> psycopg.Error:
        try:
            table.execute(statement.encode())
        except psycopg.Error as error:
            return error
        raise AssertionError

    try:
        try:
            raise failed()
        except psycopg.Error as error:
            raise RuntimeError("no luck") from error
    except RuntimeError:
        log.exception("request.failed")
        logging.getLogger("uvicorn.error").exception("Exception in ASGI application")
    try:
        try:
            raise failed()
        except psycopg.Error:
            raise RuntimeError from None
    except RuntimeError as error:
        log.warning("batch.failed", exc_info=error)
    log.error("batch.failed", exc_info=ExceptionGroup("several", [ValueError(), failed()]))
    log.warning("batch.failed", error=failed(), errors=[failed()])
    logging.getLogger("procrastinate").warning("Failed: %s (%r)", failed(), failed())

    written = capsys.readouterr().err
    assert "hunter2" not in written
    assert all(written.count(part) >= 3 for part in kept)


def test_an_error_that_was_made_by_hand_keeps_its_first_sentence(lines: Lines):
    log = a_logger()

    log.error("request.failed", exc_info=errors.UniqueViolation("taken\nDETAIL:  Key (name)=(hunter2) already exists."))
    log.error("request.failed", exc_info=psycopg.OperationalError("connection failed\n\tIs the server running?"))

    first, second = lines()
    assert str(first["exception"]).endswith("UniqueViolation: taken")
    assert "Is the server running?" in str(second["exception"])


async def test_a_forgotten_task_does_not_tell_what_users_wrote(table: psycopg.Connection, lines: Lines):
    a_logger()
    loop = asyncio.get_running_loop()

    try:
        table.execute(FAILING_ROW)
    except psycopg.Error as error:
        loop.default_exception_handler(
            {"message": "Task exception was never retrieved", "exception": error, "task": f"<Task exception={error!r}>"}
        )

    (record,) = lines()
    assert record["event"] == "Task exception was never retrieved"
    assert "CheckViolation" in str(record["exception"])
    assert "hunter2" not in str(record)


@pytest.mark.parametrize(
    "key", ["authorization", "X-Api-Key", "password", "access_token", "client_secret", "database_url", "set-cookie"]
)
def test_what_looks_like_a_secret_is_not_written(lines: Lines, key: str):
    log = a_logger()

    log.info("request.failed", **{key: "s3cret"}, headers={key: ["s3cret"]}, several=[{key: b"s3cret"}])

    (record,) = lines()
    assert record[key] == "***"
    assert "s3cret" not in str(record)


def test_counts_of_tokens_are_no_secret(lines: Lines):
    log = a_logger()

    log.info("batch.completed", tokens=12, input_tokens="many", token=5)

    (record,) = lines()
    assert (record["tokens"], record["input_tokens"], record["token"]) == (12, "many", 5)


def test_a_long_value_keeps_its_head_and_tail(lines: Lines):
    log = a_logger()

    log.info("request.failed", body="a" + "x" * 5_000 + "z", short="y" * 2_000)

    (record,) = lines()
    body = str(record["body"])
    assert len(body) == 2_000
    assert body.startswith("ax")
    assert body.endswith("xz")
    assert " ... 3002 characters ... " in body
    assert record["short"] == "y" * 2_000


class Hostile:
    def __str__(self) -> str:
        raise RuntimeError

    __repr__ = __str__


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_whatever_is_logged_never_raises(log_format: Literal["json", "console"], capsys: pytest.CaptureFixture[str]):
    log = a_logger(log_format)
    circle: dict[object, object] = {(1, 2): {1, 2}}
    circle["again"] = circle

    log.info("request.failed", a=Hostile(), b=circle, c=float("nan"), d="\udc80", e=b"\x00", f=uuid4(), g="\x00")
    log.info("request.failed", too_long_a_number=10**5000)
    log.info("request.failed", level="mine", ts=1, logger="mine", exc_info="odd")  # noqa: LOG014
    logging.getLogger("psycopg").warning("%d apples", "no")
    logging.getLogger("psycopg").warning(Hostile())

    written = capsys.readouterr().err
    assert len(written.splitlines()) == 5
    assert "[1, 2]" in written
    assert "NaN" not in written


def test_a_closed_standard_error_never_raises(monkeypatch: pytest.MonkeyPatch):
    log = a_logger()

    tried: list[str] = []

    class Closed:
        def write(self, text: str) -> None:
            tried.append(text)
            raise BrokenPipeError

    monkeypatch.setattr("sys.stderr", Closed())

    log.info("server.started")

    assert "server.started" in tried[0]


def test_only_records_of_the_level_and_above_are_written(lines: Lines):
    log = a_logger(level="warning")

    log.info("server.started")
    logging.getLogger("psycopg").info("hm")
    log.warning("lease.lost")

    assert [record["event"] for record in lines()] == ["lease.lost"]


def test_the_chatter_about_each_job_is_only_for_debugging(lines: Lines):
    def chatter() -> None:
        logging.getLogger("procrastinate.worker").info("Starting job generate[1]()")

    a_logger(level="info")
    chatter()
    quiet = lines()
    a_logger(level="debug")
    chatter()
    loud = lines()
    a_logger(level="error")
    logging.getLogger("procrastinate").warning("hm")
    strict = lines()

    assert (len(quiet), len(loud), len(strict)) == (0, 1, 0)


@pytest.mark.parametrize("library", ["httpx", "httpx2", "httpcore.http11", "httpcore2.http11", "anthropic._base_client"])
def test_what_a_library_says_of_requests_is_not_even_for_debugging(lines: Lines, library: str):
    a_logger(level="debug")

    logging.getLogger(library).info("HTTP Request: POST http://user:password@gateway/v1/messages")
    logging.getLogger(library).debug("Request options: {'json_data': {'messages': ...}}")
    logging.getLogger(library).warning("hm")

    assert [record["event"] for record in lines()] == ["hm"]


def test_uvicorn_sees_nobody_who_wants_its_access_log():
    a_logger(level="debug")

    assert not logging.getLogger("uvicorn.access").hasHandlers()


def test_configuring_twice_does_not_write_twice(lines: Lines):
    a_logger()
    log = a_logger()

    log.info("server.started")

    assert len(lines()) == 1


def test_the_console_is_for_a_person(capsys: pytest.CaptureFixture[str]):
    log = a_logger("console")

    log.info("server.started", port=37877, password="s3cret")

    (line,) = capsys.readouterr().err.splitlines()
    assert "server.started" in line
    assert "port=37877" in line
    assert "s3cret" not in line
    assert "\x1b" not in line  # no colours where no terminal is


def test_tests_can_capture_what_a_used_logger_says():
    log = a_logger()
    log.debug("server.started")
    logs.configure("json", "info")

    with structlog.testing.capture_logs() as captured:
        log.info("server.started", port=1)

    assert captured == [{"event": "server.started", "log_level": "info", "port": 1}]
