"""`cmserver embeddings`: the model behind semantic search."""

from __future__ import annotations

import asyncio

import click

from cmserver.base.columns import Columns, render_fields, render_table
from cmserver.base.lookalikes import sanitize_line
from cmserver.cli.api_client import ApiClient, api_command
from cmserver.cli.progress import POLL_SECONDS, Progress
from cmserver.client.server_api import ApiAnswer
from cmserver.embeddings.calibration.wire import CalibrationOut
from cmserver.embeddings.wire import EmbeddingStateOut, NextModelOut
from cmserver.models.providers.failures import FAILURE_HELP


@click.group()
def embeddings() -> None:
    """Semantic search: which model embeds observations, and what waits for it."""


@embeddings.command()
@click.option("--wait", is_flag=True, help="Show how far embedding is until nothing waits but what fails.")
@api_command
async def status(client: ApiClient, *, wait: bool) -> None:
    """Show the model in use, how many observations wait for vectors, and why embedding failed."""
    answer = await client.get("/v1/embeddings")
    if wait:
        total = _count_pending(answer)
        with Progress("Embedding", total, "observations", interrupted="Interrupted. The server goes on.") as progress:
            while pending := _count_pending(answer):
                progress.show(max(0, total - pending))
                await asyncio.sleep(POLL_SECONDS)
                answer = await client.get("/v1/embeddings")
    client.show(answer, EmbeddingStateOut, _lines)


def _count_pending(answer: ApiAnswer) -> int:
    """How many observations wait for the model in use and the next one, without those that fail."""
    current = answer.read(EmbeddingStateOut).embeddings
    return sum(model.waiting - model.failing for model in (current, current.building) if model)


def _lines(state: EmbeddingStateOut) -> str:
    current = state.embeddings
    building = current.building
    lines = render_fields(
        *Columns(type(current), "state, embedder, model, dimensions, waiting, failing").fields(current),
        *((("downloaded", f"{current.pulled_percent} %"),) if current.pulled_percent is not None else ()),
        *((("building", _building_text(building)),) if building else ()),
        *((("hint", current.hint),) if current.hint else ()),
    )
    if not state.reasons:
        return lines
    meanings = {kind.value: entry.predicate for kind, entry in FAILURE_HELP.items()}
    reasons = render_table(
        ("failed for", "observations", "given up", "the embedder"),
        [
            (row.reason, row.observations, row.given_up, meanings.get(row.reason, sanitize_line(row.reason)))
            for row in state.reasons
        ],
        empty="",
        shrink=("the embedder",),
    )
    return f"{lines}\n\n{reasons}"


def _building_text(building: NextModelOut) -> str:
    downloaded = "" if building.pulled_percent is None else f", {building.pulled_percent} % downloaded"
    return f"{building.embedder} ({building.model}): {building.waiting} waiting{downloaded}"


@embeddings.command()
@api_command
async def calibrate(client: ApiClient) -> None:
    """Measure what the embedder's cosines mean in your team's documents, so that searches say their confidence.

    A worker does it by itself once a project has 50 embedded observations; do it again when the project has changed a lot. The
    default embedder needs no calibration.
    """
    client.show(await client.post("/v1/embeddings/calibrate"), CalibrationOut, _calibration_lines)


def _calibration_lines(calibration: CalibrationOut) -> str:
    shown = Columns(CalibrationOut, "embedder, model, titles").fields(calibration)
    return render_fields(*shown, ("even cosine", f"{calibration.even_cosine:.3f}"), ("slope", f"{calibration.slope:.1f}"))
