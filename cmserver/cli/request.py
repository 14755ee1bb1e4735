"""`cmserver api`: any request of the HTTP API."""

from __future__ import annotations

import sys

import click
import msgspec

from cmserver.base.json_text import decode_json
from cmserver.base.lookalikes import sanitize_line
from cmserver.cli.api_client import ApiClient, api_command
from cmserver.cli.output import render_json


@click.command("api")
@click.argument("method", type=click.Choice(["GET", "POST", "PUT", "PATCH", "DELETE"], case_sensitive=False), metavar="METHOD")
@click.argument("path")
@click.argument("fields", nargs=-1, metavar="[NAME=TEXT | NAME:=JSON]...")
@click.option("--body", metavar="JSON", help="The whole body; - reads it from standard input.")
@api_command
async def api(client: ApiClient, method: str, path: str, fields: tuple[str, ...], body: str | None) -> None:
    """Call the HTTP API: `cmserver api PUT /v1/budgets period=month maxTokens:=5000`. Prints the answer's JSON.

    Fields are parameters of a GET or DELETE, and else the body's. The reference of the API is at /docs of the server.
    """
    given = dict(_read_field(field) for field in fields)
    is_query = method in {"GET", "DELETE"}
    if body is not None and (given or is_query):
        raise click.UsageError("--body is for POST, PUT and PATCH, and takes the place of fields.")
    content = given or None if body is None else decode_json((sys.stdin.read() if body == "-" else body).encode())
    query = {name: value if isinstance(value, (str, int)) else _encode(value) for name, value in given.items()}
    answer = await client.send(method, path, None if is_query else content, query=query if is_query else None)
    try:
        click.echo(render_json(answer.raw), nl=bool(answer.raw))
    except msgspec.DecodeError:  # CSV, or no answer
        click.echo("\n".join(map(sanitize_line, answer.raw.decode(errors="replace").splitlines())))


def _read_field(field: str) -> tuple[str, object]:
    name, found, value = field.partition("=")
    if not found or not name.strip(":"):
        raise click.UsageError(f"{field!r} is no field: NAME=TEXT, or NAME:=JSON.")
    return (name[:-1], decode_json(value.encode())) if name.endswith(":") else (name, value)


def _encode(value: object) -> str:
    return msgspec.json.encode(value).decode()
