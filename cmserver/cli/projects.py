"""`cmserver projects`: the projects of a team."""

from __future__ import annotations

import click

from cmserver.access.projects import canonical_id
from cmserver.access.wire import OneProjectOut, ProjectOut, ProjectsOut
from cmserver.base.errors import NotFound
from cmserver.cli.api_client import ApiClient, api_command, confirm, limit_option, path_segment, present, yes_option
from cmserver.cli.output import format_time, render_erasure, render_fields, render_table
from cmserver.cli.policy import change_policy, policy_fields, policy_options
from cmserver.ops.erasure.wire import DeletedProjectOut, PurgedProjectOut


@click.group()
def projects() -> None:
    """Projects: the code bases that a team's agents work on.

    Name a project by its id, its canonical id (github.com/user/repo, a path), any URL form of that, an alias, or its name.
    """


@projects.command("list")
@click.option("--archived", is_flag=True, help="Only archived projects.")
@limit_option
@api_command
async def list_projects(client: ApiClient, limit: int, *, archived: bool) -> None:
    """List the team's projects, newest first."""
    client.show(await client.pages("/v1/projects", "projects", {"archived": archived or None}, limit=limit), ProjectsOut, _table)


def _table(page: ProjectsOut) -> str:
    return render_table(
        ("id", "project", "name", "aliases", "created", "archived"),
        [
            (
                project.id,
                project.canonical_id,
                project.name,
                ", ".join(project.aliases),
                format_time(project.created_at_epoch),
                format_time(project.archived_at_epoch),
            )
            for project in page.projects
        ],
        empty="There are no projects.",
        shrink=("project", "name", "aliases"),
        next_cursor=page.next_cursor,
    )


def _lines(result: OneProjectOut) -> str:
    project = result.project
    return render_fields(
        ("id", project.id),
        ("project", project.canonical_id),
        ("name", project.name),
        ("aliases", ", ".join(project.aliases)),
        *policy_fields(project.generation_policy),
        ("search language", project.search_language),
        ("created", format_time(project.created_at_epoch)),
        ("archived", format_time(project.archived_at_epoch)),
    )


@projects.command()
@click.argument("canonical_id")
@click.option("--name", help="A short name. [default: the last part of the canonical id]")
@click.option(
    "--search-language", help="The main language of its texts: english, german, ...; simple for any other. [default: english]"
)
@api_command
async def create(client: ApiClient, canonical_id: str, name: str | None, search_language: str | None) -> None:
    """Create a project, or show it when it exists. Events create their project by themselves."""
    body = present({"canonicalId": canonical_id, "name": name, "searchLanguage": search_language})
    client.show(await client.post("/v1/projects", body), OneProjectOut, _lines)


@projects.command()
@click.argument("project")
@api_command
async def show(client: ApiClient, project: str) -> None:
    """Show one project."""
    client.show(await client.get(_path(project)), OneProjectOut, _lines)


@projects.command()
@click.argument("project")
@click.argument("name")
@api_command
async def rename(client: ApiClient, project: str, name: str) -> None:
    """Rename a project; its canonical id stays."""
    await _patch(client, project, name=name)


@projects.command("search-language")
@click.argument("project")
@click.argument("language")
@api_command
async def change_search_language(client: ApiClient, project: str, language: str) -> None:
    """Set the main language of a project's texts (english, german, ...; simple for any other), so that search knows its words.

    This reindexes all its texts: some seconds for 10,000. New events of the project wait meanwhile.
    """
    await _patch(client, project, searchLanguage=language)


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


@projects.command()
@click.argument("project")
@api_command
async def archive(client: ApiClient, project: str) -> None:
    """Archive a project: it takes no events and search does not find it; nothing is deleted."""
    await _patch(client, project, archived=True)


@projects.command()
@click.argument("project")
@api_command
async def unarchive(client: ApiClient, project: str) -> None:
    """Restore an archived project; name it by its id (`cmserver projects list --archived`)."""
    await _patch(client, project, archived=False)


@projects.command()
@click.argument("project")
@policy_options
@api_command
async def policy(client: ApiClient, project: str, **options: object) -> None:
    """Set when observations are made of a project's events, and how they are worded; without options show it."""
    answer = await client.get(_path(project))
    if (changed := change_policy(answer.read(OneProjectOut).project.generation_policy, options)) is not None:
        answer = await client.patch(_path(project), {"generationPolicy": changed})
    client.show(answer, OneProjectOut, _policy_lines)


def _policy_lines(result: OneProjectOut) -> str:
    return render_fields(("project", result.project.canonical_id), *policy_fields(result.project.generation_policy))


@projects.command()
@click.argument("project")
@yes_option
@api_command
async def purge(client: ApiClient, project: str, *, yes: bool) -> None:
    """Delete the memory of a project (observations, events, sessions, jobs) for ever; the project stays."""
    confirm(f"Delete the whole memory of {project}, for ever?", yes=yes)
    answer = await client.delete(f"{_path(project)}/memory")
    client.show(answer, PurgedProjectOut, lambda result: render_erasure(f"The memory of {project} is deleted.", result.counts))


@projects.command()
@click.argument("project")
@yes_option
@api_command
async def delete(client: ApiClient, project: str, *, yes: bool) -> None:
    """Delete a project and its memory for ever."""
    confirm(f"Delete the project {project} and its whole memory, for ever?", yes=yes)
    answer = await client.delete(_path(project))
    client.show(answer, DeletedProjectOut, lambda result: render_erasure(f"The project {project} is deleted.", result.counts))


async def _get(client: ApiClient, project: str) -> ProjectOut:
    return (await client.get(_path(project))).read(OneProjectOut).project


async def _patch(client: ApiClient, project: str, **changes: object) -> None:
    client.show(await client.patch(_path(project), changes), OneProjectOut, _lines)


def _path(project: str) -> str:
    return f"/v1/projects/{path_segment(project)}"
