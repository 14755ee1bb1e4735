"""`cmserver reindex`: make search columns anew."""

from __future__ import annotations

import click
import msgspec

from cmserver.cli.talk import Talk, talks


class Begun(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The answer to a reindexing."""

    generation_job: BegunJob


class BegunJob(msgspec.Struct, frozen=True, kw_only=True):
    """Its job, as far as it matters here."""

    id: str
    status: str


@click.command()
@click.option("--project", help="Of all observations of this project.")
@click.option("--session", "session_id", metavar="ID", help="Of all observations of this session.")
@click.option("--observation", "observation_id", metavar="ID", help="Of this one observation, by id or number.")
@talks
async def reindex(talk: Talk, project: str | None, session_id: str | None, observation_id: str | None) -> None:
    """Make the search columns of observations anew. Say of which."""
    named = {"projectId": project, "sessionId": session_id, "observation": observation_id}
    body = {name: value for name, value in named.items() if value is not None}
    if len(body) != 1:
        raise click.UsageError("Say one of --project, --session and --observation.")
    answer = await talk.api.post("/v1/reindex", body)
    talk.tell(
        answer,
        Begun,
        lambda it: f"The job {it.generation_job.id} is {it.generation_job.status}: `cmserver jobs show` tells when it is done.",
    )
