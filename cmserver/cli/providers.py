"""`cmserver providers`: the providers that generate observations, and their pauses."""

from __future__ import annotations

import click

from cmserver.cli.api_client import ApiClient, api_command, path_segment
from cmserver.cli.output import Columns, format_time
from cmserver.ops.wire import KnownProviderOut, ProvidersOut, ResumedProviderOut


@click.group()
def providers() -> None:
    """The providers that generate observations. One that fails is paused for the whole server, and resumes by itself."""


@providers.command("list")
@api_command
async def list_providers(client: ApiClient) -> None:
    """List the providers in the order in which they are asked, and why one is paused."""
    client.show(await client.get("/v1/providers"), ProvidersOut, _table)


_COLUMNS = Columns(
    KnownProviderOut,
    "name, model, state, until, why",
    until=lambda provider: provider.pause and format_time(provider.pause.until_epoch),
    why=lambda provider: provider.pause and f"{provider.pause.reason}: {provider.pause.message}",
)


def _table(page: ProvidersOut) -> str:
    return _COLUMNS.table(page.providers, empty="There is no provider.", shrink=("why",))


@providers.command()
@click.argument("provider")
@api_command
async def resume(client: ApiClient, provider: str) -> None:
    """End a provider's pause. Operator only: --operator, or a key with the scope *."""
    answer = await client.post(f"/v1/providers/{path_segment(provider)}/resume")
    client.show(answer, ResumedProviderOut, lambda result: f"{result.name} {'is resumed' if result.resumed else 'was not paused'}.")
