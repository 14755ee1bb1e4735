"""`cmserver usage`: how much of what it may a team has used."""

from __future__ import annotations

import click
import msgspec

from cmserver.cli.show import Cell, pairs
from cmserver.cli.talk import Talk, talks


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of GET /v1/usage."""

    since: str
    usage: dict[str, int]
    limits: dict[str, int | None]


@click.command()
@talks
async def usage(talk: Talk) -> None:
    """What the team has used this month, and its limits."""
    talk.tell(await talk.api.get("/v1/usage"), Usage, _lines)


def _lines(found: Usage) -> str:
    used: list[tuple[str, Cell]] = list(found.usage.items())
    limits: list[tuple[str, Cell]] = [(f"limit: {name}", most) for name, most in found.limits.items()]
    return pairs(("since", found.since), *used, *limits)
