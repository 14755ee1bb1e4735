"""Checks of the server's settings and of the files in its data folder."""

from __future__ import annotations

import os
import pwd
import shutil
import stat
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from cmserver.base import credentials
from cmserver.base.errors import Invalid
from cmserver.base.settings import Settings
from cmserver.models.providers import registry
from cmserver.models.providers.embedding import registry as embedders
from cmserver.models.providers.http_client import MissingKey
from cmserver.ops.doctor.model import DoctorFinding, find

_FREE_SHARE = 0.05
_FREE_BYTES = 1_000_000_000
"""A disk is nearly full when less than this and less than the share is free."""
_MAX_FILES = 2_000


def check_server(settings: Settings, warnings: Sequence[str] = ()) -> list[DoctorFinding]:
    """All checks that need no network. `warnings` are those of loading the settings."""
    return [
        *(find("settings.unknown", warning) for warning in warnings),
        *_check_providers(settings),
        *_check_disk(settings.data_dir),
        *_check_files(settings.data_dir),
        *_check_credentials(settings.data_dir / credentials.FILE_NAME),
    ]


def _check_providers(settings: Settings) -> Iterator[DoctorFinding]:
    try:
        registry.chain(settings)
    except Invalid as error:
        also = " Or keep one on the page Model, or by `cmserver model set`." if isinstance(error, MissingKey) else ""
        yield find("provider.key", f"{error}{also}")
    try:
        configured = embedders.embedder_settings(settings)
        if configured is not None:
            embedders.make(configured)
    except Invalid as error:
        yield find("embedder.settings", str(error))


def _check_disk(data_dir: Path) -> Iterator[DoctorFinding]:
    try:
        usage = shutil.disk_usage(data_dir)
    except OSError:
        return  # no folder yet: the first start makes it
    if usage.free < _FREE_BYTES and usage.free < usage.total * _FREE_SHARE:
        yield find(
            "disk.full",
            f"The disk of {data_dir} has {usage.free / 1e6:.0f} MB left of {usage.total / 1e9:.0f} GB.",
            folder=data_dir,
        )


def _check_files(data_dir: Path) -> Iterator[DoctorFinding]:
    """Files of somebody else, and files that cannot be read, each kind with the first of them."""
    user_id = os.getuid()
    foreign, unreadable = list[Path](), list[Path]()
    for path in islice(_walk(data_dir), _MAX_FILES):
        try:
            status = path.lstat()
        except OSError:
            continue  # removed meanwhile
        # The embedded database of a server that root runs belongs to another user, whom the server has chosen.
        if user_id not in {0, status.st_uid}:
            foreign.append(path)
        elif not stat.S_ISLNK(status.st_mode) and not os.access(path, os.R_OK):
            unreadable.append(path)
    if foreign:
        name = pwd.getpwuid(user_id).pw_name
        yield find("files.owner", f"{foreign[0]} belongs to another user{_others(foreign)}.", user=name, folder=data_dir)
    if unreadable:
        yield find("files.unreadable", f"{unreadable[0]} cannot be read{_others(unreadable)}.", folder=data_dir)


def _walk(folder: Path) -> Iterator[Path]:
    try:
        entries = sorted(folder.iterdir())
    except OSError:
        return
    for entry in entries:
        yield entry
        if entry.is_dir() and not entry.is_symlink():
            yield from _walk(entry)


def _others(paths: list[Path]) -> str:
    return f", and {len(paths) - 1} more do" if len(paths) > 1 else ""


def _check_credentials(file: Path) -> Iterator[DoctorFinding]:
    try:
        mode = file.stat().st_mode
    except OSError:
        return
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        yield find("credentials.readable", f"{file} has the mode {stat.S_IMODE(mode):o}: others can read its key.", file=file)
