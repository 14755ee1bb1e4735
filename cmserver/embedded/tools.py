"""Finds and runs pg_dump, pg_restore and psql.

The wheel's programs cannot encrypt connections, so for remote servers the installed ones come first.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import secrets
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO

import msgspec
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from cmserver.base.errors import CmserverError
from cmserver.embedded.files import DEBIAN, SetupError, wheel_binaries

_BLOCK_BYTES = 1 << 20
_HEADER_LINES = 60
_DUMP_NICENESS = 10
"""Requests come before pg_dump, which would compress as fast as it may."""
_RESTRICTS = {major: (major, minor) for major, minor in ((13, 22), (14, 19), (15, 14), (16, 10), (17, 6))}
"""The first minor versions of August 2025 that know `\\restrict`; 18 always does."""
_SCHEMAS = ("--schema=public", "--schema=cmserver_past")
"""What is dumped. The second one is not there before migration 0014."""
_PROGRAMS = ("pg_dump", "pg_restore", "psql")
# From 17 on pg_restore sets this, which older servers do not know.
_UNKNOWN_TO_OLDER = re.compile(rb"^SET transaction_timeout = ")
_VECTOR_COLUMN = re.compile(rb"^(    \w+) public\.(?:half)?vec(?:tor)?(?:\(\d+\))?(?=[ ,\n])")
VECTOR_TABLES = ("observation_embeddings", "embedding_models", "embedding_calibrations")
"""Tables that stay empty where there is no pgvector."""
_VECTOR_ENTRY = re.compile(rf"^\d+; \d+ \d+ (TABLE DATA public ({'|'.join(VECTOR_TABLES)}) |INDEX public embeddings_near_)")
# Extensions are made by whoever may; the schema public is in every database.
_NOT_RESTORED = re.compile(r"^\d+; \d+ \d+ (EXTENSION - |COMMENT - EXTENSION |SCHEMA - public |COMMENT - SCHEMA public )")


class ToolError(CmserverError):
    """Pg_dump, pg_restore or psql failed; the message ends with its error."""


class Tools(msgspec.Struct, frozen=True, kw_only=True):
    """A folder with pg_dump, pg_restore and psql of one major version."""

    bin: Path
    major: int
    can_encrypt: bool = True
    can_restrict: bool = True
    """Whether psql can be told to run nothing but SQL (`\\restrict`), and pg_restore tells it so."""


def find_tools(at_least: int, *, encrypted: bool = False, restricted: bool = False) -> Tools:
    """The oldest tools of version `at_least` or newer, since servers refuse older ones, and older servers what newer tools write.

    `restricted` is for reading a dump: tools that can restrict psql come before older ones that cannot.
    """
    fitting = [tools for tools in _installed() if tools.major >= at_least and (tools.can_encrypt or not encrypted)]
    if not fitting:
        how = " that can encrypt their connection" if encrypted else ""
        raise SetupError(
            f"This needs pg_dump, pg_restore and psql of PostgreSQL {at_least} or newer{how}, and there are none here. "
            "Install the client programs, on Debian: apt-get install postgresql-client."
        )
    return min(
        fitting, key=lambda tools: (restricted > tools.can_restrict, tools.major, not tools.can_restrict, not tools.can_encrypt)
    )


def _installed() -> Iterator[Tools]:
    if (wheel := wheel_binaries()) is not None:
        yield Tools(bin=wheel.bin, major=wheel.major, can_encrypt=False)
    folders = [folder for folder in DEBIAN.glob("*/bin") if folder.parent.name.isdigit()]
    if (pg_dump := shutil.which("pg_dump")) is not None:
        folders.append(Path(pg_dump).parent)
    for folder in folders:
        if all((folder / program).exists() for program in _PROGRAMS) and (version := _version(folder)) is not None:
            yield Tools(bin=folder, major=version[0], can_restrict=version >= _RESTRICTS.get(version[0], (18, 0)))


def _version(folder: Path) -> tuple[int, int] | None:
    output = subprocess.run([folder / "pg_dump", "--version"], capture_output=True, text=True, check=False).stdout  # noqa: S603
    match = re.search(r"\) (\d+)(?:\.(\d+))?", output)
    return (int(match[1]), int(match[2] or 0)) if match else None


def dump(
    tools: Tools, url: str, snapshot: str, write: Callable[[bytes], object], stop: threading.Event | None = None
) -> tuple[int, str]:
    """Dump the snapshot in pg_dump's custom format to `write`; returns its length and SHA-256. `stop` ends it: ToolError."""
    command = [tools.bin / "pg_dump", "--format=custom", "--no-owner", f"--snapshot={snapshot}", *_SCHEMAS]
    digest, length = hashlib.sha256(), 0
    with tempfile.TemporaryFile() as output:
        with _started([*command, *connection_arguments(url)[0]], url, stderr=output) as process:
            assert process.stdout is not None
            os.setpriority(os.PRIO_PROCESS, process.pid, max(_DUMP_NICENESS, os.getpriority(os.PRIO_PROCESS, 0)))
            try:
                while block := process.stdout.read(_BLOCK_BYTES):
                    digest.update(block)
                    length += len(block)
                    write(block)
                    if stop is not None and stop.is_set():
                        process.kill()
            except BaseException:
                process.kill()
                raise
        _check("pg_dump", process, output)
    return length, digest.hexdigest()


def load(
    script_tools: Tools,
    tools: Tools,
    file: Path,
    url: str,
    *,
    prologue: bytes = b"",
    with_vectors: bool = True,
    progress: Callable[[int], object] = lambda _rows: None,
) -> None:
    """Load a dump into an empty database, in one transaction of psql. The user of the URL will own its tables.

    `script_tools` read the dump, and `tools` talk to the server, which may be older. Without vectors, their columns become real[]
    and their tables stay empty, as in a database that never had pgvector. Any error of psql undoes everything. `progress` is told
    about how many rows are loaded.

    Whoever made the dump may have written commands of psql into it, so psql takes none; ToolError where it is too old for that.
    """
    if not tools.can_restrict:
        raise ToolError(
            f"The psql in {tools.bin} is older than August 2025: it would also run commands that somebody has written into a dump. "
            "Update PostgreSQL's client programs to 14.19, 15.14, 16.10, 17.6 or newer."
        )
    listed = subprocess.run([script_tools.bin / "pg_restore", "--list", file], capture_output=True, text=True, check=False)  # noqa: S603
    if listed.returncode != 0:
        raise ToolError(f"pg_restore cannot read the dump: {_last_line(listed.stderr)}")
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as psql_output:
        contents = Path(folder) / "contents"
        contents.write_text("".join(line for line in listed.stdout.splitlines(keepends=True) if _is_loaded(line, with_vectors)))
        script = [script_tools.bin / "pg_restore", "--no-owner", f"--use-list={contents}", "--file=-", file]
        psql = [tools.bin / "psql", "--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", "--file=-", *connection_arguments(url)[0]]
        with _started(psql, url, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=psql_output) as loading:
            assert loading.stdin is not None
            try:
                if not script_tools.can_restrict:  # else pg_restore's scripts begin with it
                    loading.stdin.write(f"\\restrict {secrets.token_hex()}\n".encode())
                loading.stdin.write(b"BEGIN;\n" + prologue)
                _feed([*script, "--section=pre-data"], loading.stdin, lines=None, with_vectors=with_vectors)
                data = [*script, "--section=data", "--section=post-data"]
                _feed(data, loading.stdin, lines=_HEADER_LINES, with_vectors=True, progress=progress)
                loading.stdin.write(b"COMMIT;\n")
                loading.stdin.close()
            except BrokenPipeError:
                with suppress(BrokenPipeError):
                    loading.stdin.close()  # psql has ended, and says why
            except BaseException:
                loading.kill()
                raise
        _check("psql", loading, psql_output)


def _is_loaded(entry: str, with_vectors: bool) -> bool:
    """Whether the entry of the dump's table of contents is loaded."""
    return not _NOT_RESTORED.match(entry) and (with_vectors or not _VECTOR_ENTRY.match(entry))


def _feed(
    script: list[str | Path],
    into: IO[bytes],
    *,
    lines: int | None,
    with_vectors: bool,
    progress: Callable[[int], object] = lambda _rows: None,
) -> None:
    """Write what pg_restore says to psql; its first `lines` (None: all) as every server understands them."""
    with tempfile.TemporaryFile() as output:
        with _started(script, None, stderr=output) as reading:
            assert reading.stdout is not None
            try:
                for line in itertools.islice(reading.stdout, lines):
                    if not _UNKNOWN_TO_OLDER.match(line):
                        into.write(line if with_vectors else _VECTOR_COLUMN.sub(rb"\1 real[]", line))
                rows = 0
                while block := reading.stdout.read(_BLOCK_BYTES):
                    into.write(block)
                    rows += block.count(b"\n")  # a row is a line, whatever is in it
                    progress(rows)
            finally:
                reading.stdout.close()
        _check("pg_restore", reading, output)


def _started(
    command: list[str | Path], url: str | None, *, stderr: IO[bytes], stdin: int = subprocess.DEVNULL, stdout: int = subprocess.PIPE
) -> subprocess.Popen[bytes]:
    password = connection_arguments(url)[1] if url else {}
    environ = {**os.environ, "LC_ALL": "C", "PGAPPNAME": "cmserver backup", **password}
    return subprocess.Popen(command, env=environ, stdin=stdin, stdout=stdout, stderr=stderr)  # noqa: S603 - PostgreSQL's own


def connection_arguments(url: str) -> tuple[list[str], dict[str, str]]:
    """Arguments and environment of PostgreSQL's programs; the password in the latter: everybody reads command lines."""
    given = conninfo_to_dict(url)
    parameters = {name: value for name, value in given.items() if name not in {"password", "application_name"}}
    password = given.get("password")
    return ["--dbname", make_conninfo("", **parameters)], {"PGPASSWORD": str(password)} if password else {}


def _check(program: str, process: subprocess.Popen[bytes], output: IO[bytes]) -> None:
    if process.returncode != 0:
        output.seek(0)
        raise ToolError(f"{program} has failed: {_last_line(output.read().decode(errors='replace'))}")


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if "error" in line.lower()] or text.strip().splitlines()
    return lines[0] if lines else "no message."
