"""`cmserver psql`: the right psql, as the right role, on the server's database."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import psycopg

from cmserver.base.errors import Unavailable
from cmserver.base.migrate import sql_folder
from cmserver.base.settings import Settings
from cmserver.cli.config import settings_option
from cmserver.cli.database import database_urls
from cmserver.embedded.tools import connection_arguments, find_tools


@click.command(context_settings={"ignore_unknown_options": True})
@settings_option
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
def psql(settings: Settings, words: tuple[str, ...]) -> None:
    """Open psql on the server's database, which may run meanwhile; WORDS go to psql.

    `cmserver psql -f sql/ops/queue_overview.sql` runs one of the files that come with cmserver. With the embedded database its own
    psql is used, as the role that owns the tables. Exits as psql does.
    """
    with database_urls(settings) as urls:
        try:
            with psycopg.connect(urls.session) as conn:
                tools = find_tools(conn.info.server_version // 10_000, encrypted=conn.pgconn.ssl_in_use)
        except psycopg.OperationalError as error:
            raise Unavailable(f"The database cannot be reached: {str(error).strip()}") from error
        arguments, environ = connection_arguments(urls.session)
        command = [str(tools.bin / "psql"), *arguments, *map(_shipped, words)]
        code = subprocess.run(command, env={**os.environ, **environ}, check=False).returncode  # noqa: S603 - PostgreSQL's own
    sys.exit(code)


def _shipped(word: str) -> str:
    """The path of a file that comes with cmserver, where the word names one that is not here; else the word."""
    path = Path(word)
    if path.parts[:1] == ("sql",) and not path.exists():
        shipped = sql_folder() / Path(*path.parts[1:])
        return str(shipped) if shipped.is_file() else word
    return word
