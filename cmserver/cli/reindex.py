"""`cmserver reindex`: recompute search columns."""

from __future__ import annotations

import click

from cmserver.cli.api_client import ApiClient, api_command, present
from cmserver.cli.output import as_called
from cmserver.generation.wire import SingleJobOut


@click.command()
@click.option("--project", help="Reindex all observations of this project.")
@click.option("--session", "session_id", metavar="ID", help="Reindex all observations of this session.")
@click.option("--observation", "observation_id", metavar="ID", help="Reindex this observation, by id or number.")
@api_command
async def reindex(client: ApiClient, project: str | None, session_id: str | None, observation_id: str | None) -> None:
    """Recompute the search columns of observations: of a project, a session, or one observation."""
    body = present({"projectId": project, "sessionId": session_id, "observation": observation_id})
    if len(body) != 1:
        raise click.UsageError("Pass one of --project, --session and --observation.")
    client.show(await client.post("/v1/reindex", body), SingleJobOut, _line)


def _line(result: SingleJobOut) -> str:
    job = result.generation_job
    return as_called(f"The job {job.id} is {job.status}. Follow it with `cmserver jobs show {job.id}`.")
