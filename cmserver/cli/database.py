"""The database for commands: given by URL, or the embedded one, running or started for the moment."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from cmserver.base.postgres import DataDirInUse, Embedded
from cmserver.base.settings import Settings


@contextmanager
def database_url(settings: Settings) -> Generator[str, None, None]:
    """Its URL, for as long as the command runs."""
    if settings.database_url:
        yield settings.database_url
        return
    embedded = Embedded(settings.data_dir)
    try:
        embedded.start()
    except DataDirInUse:
        # The server runs: its database is ours to ask.
        yield embedded.url
        return
    try:
        yield embedded.url
    finally:
        embedded.stop()
