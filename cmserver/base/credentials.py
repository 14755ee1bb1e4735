"""The file `credentials` in the data folder: where this machine's server is and a key for it, for its owner only."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path

import msgspec

from cmserver.base.errors import CmserverError

FILE_NAME = "credentials"


class Credentials(msgspec.Struct, frozen=True, kw_only=True):
    """How the command line reaches the server. Written at the very first start; a person may replace it."""

    url: str
    key: str
    team: str

    def __repr__(self) -> str:
        return f"Credentials(url={self.url!r}, key='...', team={self.team!r})"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        return [("url", self.url), ("key", "..."), ("team", self.team)]


class BadCredentials(CmserverError):
    """The file is there but cannot be used."""


def read(data_dir: Path) -> Credentials | None:
    """None when there is no such file; raises `BadCredentials` when it cannot be read or understood."""
    path = data_dir / FILE_NAME
    try:
        return msgspec.json.decode(path.read_bytes(), type=Credentials)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise BadCredentials(f"{path} cannot be read: {error.strerror or error}.") from error
    except (msgspec.DecodeError, UnicodeDecodeError):
        # Without the cause: its text could hold the key.
        raise BadCredentials(f'{path} is damaged: it must hold {{"url": ..., "key": ..., "team": ...}}. Write it anew.') from None


def write(data_dir: Path, credentials: Credentials) -> Path:
    """Replaces the file as a whole; `data_dir` must exist. Nobody but the owner can read it at any moment."""
    path = data_dir / FILE_NAME
    draft = data_dir / f".{FILE_NAME}.{secrets.token_hex(8)}"
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(credentials)) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        with suppress(FileNotFoundError):
            draft.unlink()
        raise
    folder = os.open(data_dir, os.O_RDONLY)
    try:
        os.fsync(folder)  # the new name, too, survives a loss of power
    finally:
        os.close(folder)
    return path
