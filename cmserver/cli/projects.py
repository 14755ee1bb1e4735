"""`cmserver projects`: what is more than its verb; the other commands are rows of verbs."""

from __future__ import annotations

from typing import get_args

import click

from cmserver.access.model import Consolidation
from cmserver.access.projects import canonical_id
from cmserver.access.wire import OneProjectOut, ProjectOut, render_project
from cmserver.base.errors import NotFound
from cmserver.cli import policy as cli_policy
from cmserver.cli.api_client import ApiClient, api_command, path_segment, present
from cmserver.graph.overviews.wire import ProjectOverviewOut


@click.group()
def projects() -> None:
    """Projects: the code bases that a team's agents work on.

    Name a project by its id, its canonical id (github.com/user/repo, a path), any URL form of that, an alias, or its name.
    """


@projects.command()
@click.argument("project")
@click.option("--make", is_flag=True, help="Make the page anew first.")
@api_command
async def overview(client: ApiClient, project: str, *, make: bool) -> None:
    """Show the page about a project: what it is, its parts, the present work and what is open."""
    path = f"{_path(project)}/overview"
    client.show(await (client.post(path) if make else client.get(path)), ProjectOverviewOut, _page)


def _page(result: ProjectOverviewOut) -> str:
    return result.overview.body if result.overview else "There is no page yet: --make makes one."


@projects.command("consolidation")
@click.argument("project")
@click.argument("choice", type=click.Choice(get_args(Consolidation)), required=False)
@click.option(
    "--with-model/--without-model", default=None, help="Whether the configured model words what you merge. [default: as it is]"
)
@api_command
async def change_consolidation(client: ApiClient, project: str, choice: Consolidation | None, with_model: bool | None) -> None:
    """Set what becomes of generated observations that say what is there already.

    `suggest` lists them for `cmserver review`, `merge` merges those that are alike without doubt, `off` compares nothing.
    """
    changes = present({"consolidation": choice, "mergeWithModel": with_model})
    if not changes:
        raise click.UsageError("Say off, suggest or merge, or --with-model or --without-model.")
    await _patch(client, project, **changes)


@projects.group()
def alias() -> None:
    """Other names of a project."""


@alias.command("add")
@click.argument("project")
@click.argument("alias")
@api_command
async def add_alias(client: ApiClient, project: str, alias: str) -> None:
    """Add an alias to a project."""
    await _patch(client, project, aliases=[*(await _get(client, project)).aliases, alias])


@alias.command("remove")
@click.argument("project")
@click.argument("alias")
@api_command
async def remove_alias(client: ApiClient, project: str, alias: str) -> None:
    """Remove an alias from a project."""
    aliases = (await _get(client, project)).aliases
    removed = alias if alias in aliases else canonical_id(alias)
    if removed not in aliases:
        raise NotFound(f"{removed} is no alias of the project. Its aliases are: {', '.join(aliases) or 'none'}.")
    await _patch(client, project, aliases=[alias for alias in aliases if alias != removed])


async def _find_path(_: ApiClient, project: str) -> str:
    return _path(project)


cli_policy.add_policy_commands(
    projects,
    "project",
    ("of a project's events", "what of a project is kept"),
    api_command,
    _find_path,
    OneProjectOut,
    lambda found: found.project,
)


async def _get(client: ApiClient, project: str) -> ProjectOut:
    return (await client.get(_path(project))).read(OneProjectOut).project


async def _patch(client: ApiClient, project: str, **changes: object) -> None:
    client.show(await client.patch(_path(project), changes), OneProjectOut, render_project)


def _path(project: str) -> str:
    return f"/v1/projects/{path_segment(project)}"
