"""`cmserver reindex`: recompute search columns."""

from __future__ import annotations

import asyncio

import click
import msgspec

from cmserver.cli.api_client import ApiClient, api_command, present
from cmserver.cli.output import as_called
from cmserver.cli.progress import POLL_SECONDS, Progress
from cmserver.client.server_api import ApiAnswer
from cmserver.generation.reindex import ReindexProgress
from cmserver.generation.wire import SingleJobOut

_OPEN = {"queued", "processing"}


@click.command()
@click.option("--project", help="Reindex all observations of this project.")
@click.option("--session", "session_id", metavar="ID", help="Reindex all observations of this session.")
@click.option("--observation", "observation_id", metavar="ID", help="Reindex this observation, by id or number.")
@click.option("--wait", is_flag=True, help="Show how far it is until it has ended; needs the scope admin.")
@api_command
async def reindex(
    client: ApiClient, project: str | None, session_id: str | None, observation_id: str | None, *, wait: bool
) -> None:
    """Recompute the search columns of observations: of a project, a session, or one observation."""
    body = present({"projectId": project, "sessionId": session_id, "observation": observation_id})
    if len(body) != 1:
        raise click.UsageError("Pass one of --project, --session and --observation.")
    answer = await client.post("/v1/reindex", body)
    client.show(await _wait(client, answer) if wait else answer, SingleJobOut, _line)


async def _wait(client: ApiClient, answer: ApiAnswer) -> ApiAnswer:
    """Show the job's progress until it has ended; returns its last state."""
    path = f"/v1/jobs/{answer.read(SingleJobOut).generation_job.id}"
    answer = await client.get(path, {"include": "payload"})
    interrupted = "Interrupted. The job goes on in the server."
    with Progress("Reindexing", _read_progress(answer).total, "observations", interrupted=interrupted) as progress:
        while answer.read(SingleJobOut).generation_job.status in _OPEN:
            progress.show(_read_progress(answer).done)
            await asyncio.sleep(POLL_SECONDS)
            answer = await client.get(path, {"include": "payload"})
    return answer


def _read_progress(answer: ApiAnswer) -> ReindexProgress:
    payload = answer.read(SingleJobOut).generation_job.payload
    return msgspec.convert(payload.job, ReindexProgress) if payload else ReindexProgress(scope="project")


def _line(result: SingleJobOut) -> str:
    job = result.generation_job
    outcome = f": {job.outcome_reason}" if job.outcome_reason else ""
    return as_called(f"The job {job.id} is {job.status}{outcome}. Follow it with `cmserver jobs show {job.id}`.")
