"""`cmserver embeddings`: what search by meaning goes by."""

from __future__ import annotations

import click
import msgspec

from cmserver.cli.show import pairs, plain, table
from cmserver.cli.talk import Talk, talks
from cmserver.providers.meaning import MEANINGS


class Building(msgspec.Struct, frozen=True, kw_only=True):
    """The model that takes the place of the one in use."""

    embedder: str
    model: str
    waiting: int
    failing: int


class Embeddings(msgspec.Struct, frozen=True, kw_only=True):
    """How embedding goes."""

    state: str
    embedder: str | None
    model: str | None
    dimensions: int | None
    waiting: int
    failing: int
    building: Building | None
    hint: str | None


class Reason(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Why observations could not be embedded."""

    reason: str
    observations: int
    given_up: int


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of GET /v1/embeddings."""

    embeddings: Embeddings
    reasons: list[Reason]


class Retried(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a retry."""

    retried: int


@click.group()
def embeddings() -> None:
    """What search by meaning goes by: which model makes vectors of texts, and what waits for it."""


@embeddings.command()
@talks
async def status(talk: Talk) -> None:
    """The model in use, what waits for its vectors, and why what failed did."""
    talk.tell(await talk.api.get("/v1/embeddings"), Found, _lines)


def _lines(found: Found) -> str:
    it = found.embeddings
    building = it.building
    told = pairs(
        ("state", it.state),
        ("embedder", it.embedder),
        ("model", it.model),
        ("dimensions", it.dimensions),
        ("waiting", it.waiting),
        ("failing", it.failing),
        *((("building", f"{building.embedder} ({building.model}): {building.waiting} wait for it"),) if building else ()),
        *((("hint", it.hint),) if it.hint else ()),
    )
    return f"{told}\n\n{_reasons(found.reasons)}" if found.reasons else told


def _reasons(reasons: list[Reason]) -> str:
    return table(
        ("failed for", "observations", "given up", "the embedder"),
        [(one.reason, one.observations, one.given_up, _meaning(one.reason)) for one in reasons],
        nothing="Nothing has failed.",
        wide=("the embedder",),
    )


def _meaning(reason: str) -> str:
    return next((meaning.what for kind, meaning in MEANINGS.items() if kind.value == reason), plain(reason))


@embeddings.command()
@talks
async def retry(talk: Talk) -> None:
    """Try at once what could not be embedded, also what was given up."""
    talk.tell(
        await talk.api.post("/v1/embeddings/retry"),
        Retried,
        lambda it: f"{it.retried} that failed {'is' if it.retried == 1 else 'are'} tried again now.",
    )
