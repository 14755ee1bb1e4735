"""The file of a backup: an uncompressed zip of `database.dump` (pg_dump's custom format), `credentials` and `manifest.json`.

A zip lists its files at its end, so a truncated backup is noticed at once.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import secrets
import zipfile
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import UUID
from zlib import error as ZlibError  # noqa: N812 - zlib names it in lower case

import msgspec

from cmserver.base.credentials import sync_folder
from cmserver.base.errors import CmserverError

FORMAT = 2
"""1 is of before the first release, whose migrations had numbers up to 64; today's are counted from 1 again."""
DUMP, CREDENTIALS, MANIFEST = "database.dump", "credentials", "manifest.json"
_BLOCK_BYTES = 1 << 20
_SMALL_FILE_BYTES = 1 << 20
"""More than any manifest or credentials file has."""
_DAMAGED = (zipfile.BadZipFile, ZlibError, EOFError, KeyError, NotImplementedError, RuntimeError, ValueError)


class BackupError(CmserverError):
    """A backup cannot be made or restored. The message names the reason and what to do."""


class Manifest(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The file `manifest.json` of a backup."""

    format: int = FORMAT
    """What `schema` counts depends on it."""
    version: str
    """The program that made it."""
    created_at: str
    schema: int
    """The newest migration of the database."""
    postgres: int
    """The major version of the database's server."""
    dumped_by: int
    """The major version of pg_dump: pg_restore has to be as new."""
    vectors: bool
    """Whether the database uses pgvector."""
    roles: list[str]
    """Roles with grants in it, besides the owner; they must exist before it is restored."""
    installation: UUID
    counts: dict[str, int]
    """Rows per table, in the same snapshot as the dump."""
    dump_bytes: int
    dump_sha256: str
    credentials_sha256: str | None
    checksums: dict[str, str] = {}
    """By table, of the text of all rows; backups of older programs have none."""
    snapshot: str | None = None
    """The transactions that the backup has seen (pg_snapshot)."""
    cluster: str | None = None
    """The PostgreSQL cluster that counts them."""
    journal: str | None = None
    """The journal of erasures that was kept when it was made: a path on the machine of the server."""


class BackupWriter:
    """Writes the parts of a backup, the manifest last."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive

    @contextmanager
    def dump(self) -> Generator[Callable[[bytes], object]]:
        """Yields the function that writes the dump's blocks."""
        with self._archive.open(zipfile.ZipInfo(DUMP), "w", force_zip64=True) as member:
            yield member.write

    def credentials(self, content: bytes) -> None:
        self._archive.writestr(zipfile.ZipInfo(CREDENTIALS), content)

    def manifest(self, manifest: Manifest) -> None:
        self._archive.writestr(zipfile.ZipInfo(MANIFEST), msgspec.json.format(msgspec.json.encode(manifest)) + b"\n")


@contextmanager
def new_backup(file: Path) -> Generator[BackupWriter]:
    """Write a backup to `file`, which appears or is replaced when all of it is on the disk. Only its owner can read it."""
    draft = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    try:
        _remove_drafts(file)
        descriptor = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as opened:
                fcntl.flock(opened, fcntl.LOCK_EX)
                with zipfile.ZipFile(opened, "w", zipfile.ZIP_STORED) as archive:
                    yield BackupWriter(archive)
                opened.flush()
                os.fsync(opened.fileno())
            draft.replace(file)
        except BaseException:
            with suppress(OSError):
                draft.unlink()
            raise
        sync_folder(file.parent)
    except OSError as error:
        raise BackupError(f"{file} cannot be written: {error.strerror or error}.") from error


def _remove_drafts(file: Path) -> None:
    """Remove drafts that killed backups left. A draft that is still being written is locked, and stays."""
    for path in file.parent.iterdir():
        if not re.fullmatch(rf"\.{re.escape(file.name)}\.[0-9a-f]{{8}}", path.name):
            continue
        with suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
            finally:
                os.close(descriptor)


class BackupReader:
    """A backup whose manifest has been read. `copy_dump` and `credentials` check what they read against it."""

    def __init__(self, file: Path, archive: zipfile.ZipFile) -> None:
        self._file = file
        self._archive = archive
        self.manifest = self._read_manifest()

    def copy_dump(self, to: Path) -> None:
        """Write the dump there; BackupError, and no file, when it is not what was backed up."""
        try:
            with to.open("wb") as out:
                self._read_dump(out.write)
        except BaseException:
            to.unlink(missing_ok=True)
            raise

    def check_dump(self) -> None:
        """Read the dump to its end; BackupError when it is not what was backed up."""
        self._read_dump(len)

    def _read_dump(self, write: Callable[[bytes], object]) -> None:
        digest = hashlib.sha256()
        with _report_damage(self._file), self._archive.open(self._find_member(DUMP, self.manifest.dump_bytes)) as member:
            while block := member.read(_BLOCK_BYTES):
                digest.update(block)
                write(block)
        self._check_hash(digest.hexdigest(), self.manifest.dump_sha256)

    def credentials(self) -> bytes | None:
        if self.manifest.credentials_sha256 is None:
            return None
        with _report_damage(self._file):
            content = self._archive.read(self._find_member(CREDENTIALS))
        self._check_hash(hashlib.sha256(content).hexdigest(), self.manifest.credentials_sha256)
        return content

    def _read_manifest(self) -> Manifest:
        with _report_damage(self._file):
            content = self._archive.read(self._find_member(MANIFEST))
            version = msgspec.json.decode(content, type=dict[str, object]).get("format")
        if version not in {1, FORMAT}:
            raise BackupError(f"{self._file} was made by a newer cmserver (format {version}). Restore it with that one.")
        with _report_damage(self._file):
            return msgspec.json.decode(content, type=Manifest)

    def _find_member(self, name: str, size: int | None = None) -> zipfile.ZipInfo:
        """Return the zip's uncompressed member; BadZipFile when it does not have `size` bytes (without `size`: is too large)."""
        info = self._archive.getinfo(name)
        if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
            raise zipfile.BadZipFile(f"{name} is compressed")
        if info.file_size > _SMALL_FILE_BYTES if size is None else info.file_size != size:
            raise zipfile.BadZipFile(f"{name} has {info.file_size} bytes")
        return info

    def _check_hash(self, digest: str, expected: str) -> None:
        if digest != expected:
            raise BackupError(f"{self._file} is damaged: its content is not what was backed up. Nothing was restored.")


@contextmanager
def open_backup(file: Path) -> Generator[BackupReader]:
    """Open the backup in `file`; BackupError when it is damaged or not a backup."""
    try:
        with _report_damage(file):
            archive = zipfile.ZipFile(file)
    except OSError as error:
        raise BackupError(f"{file} cannot be read: {error.strerror or error}.") from error
    with archive:
        yield BackupReader(file, archive)


@contextmanager
def _report_damage(file: Path) -> Generator[None]:
    """Raise BackupError for what a damaged file makes the block raise."""
    try:
        yield
    except (*_DAMAGED, msgspec.DecodeError) as error:
        raise BackupError(f"{file} is damaged, or not a backup of cmserver ({error}). Nothing was restored.") from error
