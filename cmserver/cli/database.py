"""The database of the server and the commands: the configured one, or the embedded one, running or started for the command."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from cmserver.base.db import DatabaseUrls
from cmserver.base.settings import Settings
from cmserver.embedded.files import Binaries, DataDirInUse
from cmserver.embedded.postgres import EmbeddedPostgres


def own_database(settings: Settings) -> DatabaseUrls | None:
    """The database that the settings name; None for the embedded one."""
    if settings.database_url is None:
        return None
    return DatabaseUrls(
        owner=settings.database_url,
        tenant=settings.database_tenant_url,
        direct=settings.database_direct_url,
        pooling=settings.database_pooling,
    )


@contextmanager
def database_urls(settings: Settings, binaries: Binaries | None = None) -> Generator[DatabaseUrls, None, None]:
    """The URLs of the database, usable inside the context. `binaries` run the embedded one, else the newest that are there."""
    urls = own_database(settings)
    if urls is not None:
        yield urls
        return
    embedded = EmbeddedPostgres(settings.data_dir, binaries)
    try:
        embedded.start()
    except DataDirInUse:
        # The server runs: use its database.
        yield embedded.urls
        return
    try:
        yield embedded.urls
    finally:
        embedded.stop()
