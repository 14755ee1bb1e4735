"""`cmserver keys rotate`: replaces a key, also in the credentials file."""

from __future__ import annotations

from uuid import UUID

import click

from cmserver.access.api.keys import render_new_key
from cmserver.access.wire import NewKeyOut
from cmserver.cli.api_client import ApiClient, api_command, path_segment, present


@click.command()
@click.argument("key_id")
@click.option("--overlap-seconds", type=click.IntRange(0, 2_592_000), help="How long the old key still works. [default: a day]")
@click.option("--quiet", is_flag=True, help="Print only the key: KEY=$(cmserver keys create --quiet).")
@api_command
async def rotate(client: ApiClient, key_id: str, overlap_seconds: int | None, *, quiet: bool) -> None:
    """Replace a key by a new one and print it, once. The old one still works for a while.

    If the old key is the one in the data folder's credentials file, the new one replaces it there.
    """
    answer = await client.post(f"/v1/keys/{path_segment(key_id)}/rotate", present({"overlapSeconds": overlap_seconds}))
    created = answer.read(NewKeyOut)
    if quiet:
        click.echo(created.api_key)
    else:
        client.show(answer, NewKeyOut, render_new_key)
    client.store_rotated_key(UUID(key_id), created.api_key)
