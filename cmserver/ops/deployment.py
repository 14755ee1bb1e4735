"""The server as a whole, for its operator: versions, sizes and growth."""

from __future__ import annotations

import msgspec

from cmserver import __version__
from cmserver.base.db import Db
from cmserver.base.migrate import newest
from cmserver.base.process import resident_bytes
from cmserver.base.settings import Settings
from cmserver.ops import repository
from cmserver.ops.repository import MonthTotals, TableSize

_SHOWN_TABLES = 12


class Deployment(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The server and its database. `tables` are the largest ones; `rows` of each is PostgreSQL's estimate."""

    version: str
    schema_version: int
    newest_schema_version: int
    """What this program's migrations make."""
    postgres_version: str
    is_embedded: bool
    has_vectors: bool
    workers: int
    """How many run."""
    memory_bytes: int | None
    """Of the process that answers."""
    database_bytes: int
    teams: int
    """Without archived ones."""
    tables: list[TableSize]
    months: list[MonthTotals]
    """Of all teams, the newest first."""


async def read_deployment(db: Db, settings: Settings) -> Deployment:
    """The state of the server now."""
    async with db.system() as conn:
        schema = await repository.schema(conn)
        sizes = await repository.sizes(conn)
        tables = (await repository.table_sizes(conn))[:_SHOWN_TABLES]
        months = await repository.month_totals(conn)
    return Deployment(
        version=__version__,
        schema_version=schema.number,
        newest_schema_version=newest(),
        postgres_version=schema.postgres,
        is_embedded=settings.database_url is None,
        has_vectors=schema.vectors,
        workers=schema.workers,
        memory_bytes=resident_bytes(),
        database_bytes=sizes.database_bytes,
        teams=sizes.teams,
        tables=tables,
        months=months,
    )
