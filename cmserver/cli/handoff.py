"""`cmserver handoff`: one page of what a branch is at, to read or for the next session of a teammate."""

from __future__ import annotations

import click

from cmserver.base.lookalikes import sanitize_line
from cmserver.cli.api_client import ApiClient, api_command, in_current_project, present
from cmserver.client.git_history import find_repository, run_git
from cmserver.recall.wire import HandoffOut, render_handoff


@click.command()
@click.option("--to", metavar="NAME", help="The member of the team whose next session in the project starts with it, once.")
@click.option("--project", metavar="PROJECT", help="The project. [default: that of the current folder]")
@click.option("--branch", metavar="BRANCH", help="The git branch. [default: that of the current folder; with --project none]")
@api_command
async def handoff(client: ApiClient, to: str | None, project: str | None, branch: str | None) -> None:
    """Show what is open, was decided and changed on this branch, on one page, or hand it over to a teammate.

    Without a branch it is of the whole project.
    """
    if branch is None and project is None:
        branch = _read_branch()
    body = {"branch": branch, "member": to}
    if project is not None:
        answer = await client.post("/v1/handoff", present({**body, "projectId": project}))
    else:
        answer = await in_current_project(lambda here: client.post("/v1/handoff", present({**body, "projectId": here})))
    client.show(answer, HandoffOut, _render)


def _read_branch() -> str:
    """The branch that is checked out in the current folder; empty where there is none."""
    folder = find_repository()
    return run_git(folder, "branch", "--show-current").strip() if folder else ""


def _render(result: HandoffOut) -> str:
    return "\n".join(map(sanitize_line, render_handoff(result).splitlines()))
