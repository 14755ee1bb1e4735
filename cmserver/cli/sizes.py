"""`cmserver sizes`: versions, sizes and growth of the server, for its operator."""

from __future__ import annotations

import click

from cmserver.cli.api_client import ApiClient, api_command
from cmserver.cli.output import format_time, render_fields, render_table
from cmserver.ops.deployment import Deployment


@click.command()
@api_command
async def sizes(client: ApiClient) -> None:
    """Show versions, sizes and growth of the whole server. Operator only: --operator, or a key with the scope *."""
    client.show(await client.get("/v1/server"), Deployment, _lines)


def _lines(deployment: Deployment) -> str:
    fields = render_fields(
        ("cmserver", deployment.version),
        ("schema", f"{deployment.schema_version} of {deployment.newest_schema_version}"),
        ("postgres", f"{deployment.postgres_version}{', embedded' if deployment.is_embedded else ''}"),
        ("workers", deployment.workers),
        ("teams", deployment.teams),
        ("database bytes", f"{deployment.database_bytes:,}"),
        ("backups", f"{deployment.backups.backups}, the newest of {format_time(deployment.backups.newest_at_epoch) or 'never'}"),
    )
    tables = render_table(
        ("table", "bytes", "rows, about"),
        [(table.name, f"{table.bytes:,}", None if table.rows is None else f"{table.rows:,}") for table in deployment.tables],
        empty="",
    )
    months = render_table(
        ("month", "events", "requests"),
        [(f"{month.month:%Y-%m}", f"{month.events:,}", f"{month.requests:,}") for month in deployment.months],
        empty="Nothing was stored yet.",
    )
    return f"{fields}\n\n{tables}\n\n{months}"
