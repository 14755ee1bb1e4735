"""Reads and writes the file `credentials` in the data folder: the server's URL and a key, readable by the owner only."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from itertools import count
from pathlib import Path
from uuid import UUID

import msgspec

from cmserver.base.atomic_file import write_file
from cmserver.base.errors import CmserverError

FILE_NAME = "credentials"
PENDING_NAME = "credentials.pending"
"""Holds a first key whose transaction may not have been committed yet; see `access.bootstrap`."""


class Credentials(msgspec.Struct, frozen=True, kw_only=True):
    """The server's URL, a key and its team. Written at the first start; users may replace it."""

    url: str
    key: str
    team: str

    def __repr__(self) -> str:
        return f"Credentials(url={self.url!r}, key='...', team={self.team!r})"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        return [("url", self.url), ("key", "..."), ("team", self.team)]


def parse_key_id(key: str) -> UUID | None:
    """The id in a key's text, `cms_<key id>_<secret>`; None for a key of another form."""
    parts = key.split("_", 2)
    if len(parts) == 3 and parts[0] == "cms":
        with suppress(ValueError):
            return UUID(hex=parts[1])
    return None


class BadCredentials(CmserverError):
    """The file exists but cannot be used."""


def read(data_dir: Path, name: str = FILE_NAME) -> Credentials | None:
    """The credentials in the file; None when there is no file. BadCredentials when it cannot be read or understood."""
    path = data_dir / name
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # reading a pipe would wait for ever
            raise BadCredentials(f"{path} is not a file. Move it away.")
        return msgspec.json.decode(path.read_bytes(), type=Credentials)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise BadCredentials(f"{path} cannot be read: {error.strerror or error}.") from error
    except (msgspec.DecodeError, UnicodeDecodeError):
        # Without the cause: its text could hold the key.
        raise BadCredentials(f'{path} is damaged: it must hold {{"url": ..., "key": ..., "team": ...}}. Write it anew.') from None


def write(data_dir: Path, credentials: Credentials, name: str = FILE_NAME) -> Path:
    """Replace the file as a whole; returns its path. `data_dir` must exist. Nobody but the owner can read it at any moment."""
    return write_bytes(data_dir, msgspec.json.format(msgspec.json.encode(credentials)) + b"\n", name)


def write_bytes(data_dir: Path, content: bytes, name: str = FILE_NAME) -> Path:
    """Replace the file by this content, which is that of a credentials file; returns its path."""
    path = data_dir / name
    write_file(path, content, mode=0o600)
    sync_folder(data_dir)
    return path


def confirm_pending(data_dir: Path) -> Path | None:
    """Make the pending file the credentials file, unless somebody did; where a different earlier one was moved: keep it."""
    path, pending = data_dir / FILE_NAME, data_dir / PENDING_NAME
    backup: Path | None = None
    if path.exists() and pending.exists() and path.read_bytes() != pending.read_bytes():
        backup = next(name for number in count(1) if not (name := data_dir / f"{FILE_NAME}.{number}").exists())
        path.replace(backup)
    with suppress(FileNotFoundError):
        pending.replace(path)
    sync_folder(data_dir)
    return backup


def sync_folder(folder: Path) -> None:
    """Sync the folder, so that new names in it survive a loss of power."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
