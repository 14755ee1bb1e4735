"""`cmserver providers`: who generates observations, and whether they are paused."""

from __future__ import annotations

import click
import msgspec

from cmserver.cli.show import moment, table
from cmserver.cli.talk import Talk, segment, talks


class Pause(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Why a provider is left alone, and until when."""

    reason: str
    message: str
    until_epoch: int


class Provider(msgspec.Struct, frozen=True, kw_only=True):
    """A provider as the API shows it."""

    name: str
    model: str | None = None
    state: str
    pause: Pause | None = None


class Providers(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of GET /v1/providers."""

    providers: list[Provider]


class Resumed(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a resumption."""

    resumed: bool
    name: str


@click.group()
def providers() -> None:
    """Who generates observations. A provider that has refused is paused for the whole server, and resumes by itself."""


@providers.command("list")
@talks
async def list_providers(talk: Talk) -> None:
    """The providers in the order in which they are asked, and why one is paused."""
    talk.tell(await talk.api.get("/v1/providers"), Providers, _table)


def _table(found: Providers) -> str:
    return table(
        ("name", "model", "state", "until", "why"),
        [
            (
                one.name,
                one.model,
                one.state,
                moment(one.pause.until_epoch) if one.pause else None,
                f"{one.pause.reason}: {one.pause.message}" if one.pause else None,
            )
            for one in found.providers
        ],
        nothing="There is no provider.",
        wide=("why",),
    )


@providers.command()
@click.argument("provider")
@talks
async def resume(talk: Talk, provider: str) -> None:
    """Ask a paused provider again now. For the operator: with --operator, or a key of the scope *."""
    answer = await talk.api.post(f"/v1/providers/{segment(provider)}/resume")
    talk.tell(answer, Resumed, lambda it: f"{it.name} is asked again." if it.resumed else f"{it.name} was not paused.")
