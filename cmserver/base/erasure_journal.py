"""The journal of erasures: a file beside the backups that names, by ids only, what was erased, revoked or removed.

An erasure is written here before its transaction commits, so before anybody is told that it is done. A restore repeats what its
backup does not know yet (`cmserver.ops.backup.replay`). When a commit fails after that, the journal names something that is still
there: a restore will erase it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Literal, get_args
from uuid import UUID
from weakref import WeakKeyDictionary

import msgspec

from cmserver.base.credentials import sync_folder
from cmserver.base.errors import Unavailable
from cmserver.base.sql import Conn, Query

FILE_NAME = "erasures.jsonl"

ErasureAction = Literal[
    "observation.deleted",
    "personal.deleted",
    "private.deleted",
    "turn.deleted",
    "entity.deleted",
    "session.deleted",
    "memory.purged",
    "project.deleted",
    "team.deleted",
    "key.revoked",
    "key.rotated",
    "member.removed",
]
ERASURE_ACTIONS: frozenset[str] = frozenset(get_args(ErasureAction))
"""Actions of the audit log that a restore must not undo."""


class Erasure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line: what was done to what. `resource_id` is an id, or the user of a member."""

    at: datetime | None = None
    """By the clock of the database; None until `locate` says it."""
    action: ErasureAction
    team_id: UUID
    resource_id: str
    transaction: int = 0
    cluster: str = ""
    """The transaction that did it, and the PostgreSQL cluster that counts transactions."""


class JournalHeader(msgspec.Struct, frozen=True, kw_only=True):
    """The first line. The journal names every erasure of the installation from `since` on."""

    installation: UUID
    since: datetime
    format: int = 1


class JournalError(Unavailable):
    """The journal cannot be written or read, so that nothing may be erased."""


class _Place(msgspec.Struct, frozen=True, kw_only=True):
    """The current transaction."""

    at: datetime
    cluster: str
    transaction: int


_PLACE = Query(
    _Place,
    """
    SELECT now() AS at, system_identifier::text AS cluster, pg_current_xact_id()::text::bigint AS transaction
      FROM pg_control_system()
    """,
)
_noted: WeakKeyDictionary[Conn, list[Erasure]] = WeakKeyDictionary()


def note(conn: Conn, action: str, team_id: UUID, resource_id: str) -> None:
    """Note an erasure of the current transaction, for the journal of the `Db` that commits it."""
    erasure = msgspec.convert({"action": action, "team_id": team_id, "resource_id": resource_id}, Erasure)
    _noted.setdefault(conn, []).append(erasure)


def take_noted(conn: Conn) -> list[Erasure]:
    """The erasures that were noted in the current transaction; they are forgotten."""
    return _noted.pop(conn, [])


async def locate(conn: Conn, erasures: Iterable[Erasure]) -> list[Erasure]:
    """The erasures with the transaction that does them, which this one is."""
    place = await _PLACE.one(conn)
    return [
        msgspec.structs.replace(erasure, at=place.at, transaction=place.transaction, cluster=place.cluster) for erasure in erasures
    ]


class ErasureJournal:
    """The journal in a folder. Several processes may append to it."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / FILE_NAME

    def begin(self, installation: UUID, since: datetime) -> None:
        """Make the journal, which begins at `since`, if there is none; another installation's is moved aside. JournalError."""
        try:
            make_backup_folder(self.file.parent)
            header = read_header(self.file)
            if header is not None and header.installation == installation:
                return
            if header is not None:
                self.file.replace(self.file.with_name(f"erasures-{header.installation}.jsonl"))
            self._append([msgspec.json.encode(JournalHeader(installation=installation, since=since))])
            sync_folder(self.file.parent)
        except OSError as error:
            raise _refusal(self.file, error) from error

    def append(self, erasures: Sequence[Erasure]) -> None:
        """Write the lines to the disk; JournalError when that is not possible."""
        try:
            self._append([msgspec.json.encode(erasure) for erasure in erasures])
        except OSError as error:
            raise _refusal(self.file, error) from error

    def _append(self, lines: Iterable[bytes]) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(self.file, flags, 0o600)
        try:
            # In one write, and with a line break before it: after a torn line of a full disk, the next one begins anew.
            content = b"\n" + b"\n".join(lines) + b"\n"
            if os.write(descriptor, content) != len(content):
                raise OSError(28, "No space left on device")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def read_header(file: Path) -> JournalHeader | None:
    """The first line of the journal; None when there is no journal. JournalError when the file is none."""
    for line in _lines(file):
        try:
            return msgspec.json.decode(line, type=JournalHeader)
        except msgspec.DecodeError as error:
            raise JournalError(f"{file} is no journal of erasures: its first line is damaged. Move it away.") from error
    return None


def read_journal(file: Path) -> tuple[JournalHeader, list[Erasure]] | None:
    """The journal's header and its erasures, without torn lines, which were never acknowledged; None when there is no journal."""
    header = read_header(file)
    if header is None:
        return None
    erasures: list[Erasure] = []
    for line in _lines(file)[1:]:
        try:
            erasures.append(msgspec.json.decode(line, type=Erasure))
        except msgspec.DecodeError:
            continue
    return header, erasures


def make_backup_folder(folder: Path) -> None:
    """Make the folder, which only its owner can read, if it is missing."""
    if not folder.is_dir():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def _lines(file: Path) -> list[bytes]:
    try:
        return [line for line in file.read_bytes().splitlines() if line]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise JournalError(f"The journal of erasures {file} cannot be read: {error.strerror or error}.") from error


def _refusal(file: Path, error: OSError) -> JournalError:
    return JournalError(
        f"The journal of erasures {file} cannot be written ({error.strerror or error}), so nothing was erased or revoked: a "
        "restored backup would bring it back. Make room, or set CMSERVER_BACKUP_DIR to a folder that the server may write to."
    )
