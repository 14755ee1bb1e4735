"""`cmserver projects`: the projects of a team."""

from __future__ import annotations

from typing import get_args

import click

from cmserver.access.model import Consolidation
from cmserver.access.projects import canonical_id
from cmserver.access.wire import OneProjectOut, ProjectOut, ProjectsOut, policy_fields
from cmserver.base.columns import Columns, format_time, render_fields, render_table
from cmserver.base.errors import NotFound
from cmserver.cli import policy as cli_policy
from cmserver.cli.api_client import ApiClient, api_command, confirm, limit_option, path_segment, present, yes_option
from cmserver.cli.output import render_erasure
from cmserver.graph.overviews.wire import ProjectOverviewOut
from cmserver.ops.activity.wire import ProjectActivityOut
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


_COLUMNS = Columns(ProjectOut, "id, project=canonical_id, name, aliases, created, archived")


def _table(page: ProjectsOut) -> str:
    shrink = ("project", "name", "aliases")
    return _COLUMNS.table(page.projects, page.next_cursor, empty="There are no projects.", shrink=shrink)


def _lines(result: OneProjectOut) -> str:
    project = result.project
    return render_fields(
        *Columns(ProjectOut, "id, project=canonical_id, name, aliases").fields(project),
        *policy_fields(project.generation_policy),
        ("search language", project.search_language),
        ("consolidation", project.consolidation),
        ("merges worded by", "model" if project.merge_with_model else "rules"),
        ("isolated", "yes" if project.isolated else "no"),
        *Columns(ProjectOut, "created, archived, joined to").fields(project),
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
@click.option("--make", is_flag=True, help="Make the page anew first.")
@api_command
async def overview(client: ApiClient, project: str, *, make: bool) -> None:
    """Show the page about a project: what it is, its parts, the present work and what is open."""
    path = f"{_path(project)}/overview"
    client.show(await (client.post(path) if make else client.get(path)), ProjectOverviewOut, _page)


def _page(result: ProjectOverviewOut) -> str:
    return result.overview.body if result.overview else "There is no page yet: --make makes one."


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


@projects.command("isolate")
@click.argument("project")
@click.option("--off", is_flag=True, help="Let it be found and see again what others share.")
@api_command
async def isolate(client: ApiClient, project: str, *, off: bool) -> None:
    """Isolate a project: nothing of it is found from elsewhere, and it sees nothing that other projects share.

    What it has shared with the team becomes its own, also after --off.
    """
    await _patch(client, project, isolated=not off)


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
@click.argument("into")
@yes_option
@api_command
async def join(client: ApiClient, project: str, into: str, *, yes: bool) -> None:
    """Join a project to another one that is the same: INTO gets all its memory, and its names.

    `cmserver projects separate` undoes it.
    """
    confirm(f"Give all the memory of {project} to {into}?", yes=yes)
    client.show(await client.post(f"{_path(project)}/join", {"into": into}), OneProjectOut, _lines)


@projects.command()
@click.argument("project")
@api_command
async def separate(client: ApiClient, project: str) -> None:
    """Separate a joined project, named by its id (`cmserver projects list --archived`): it gets its memory back.

    What came under its names since goes along. Such a project is not joined by itself any more.

    A project that has taken its folder's new name by itself is called by its folder again.
    """
    client.show(await client.post(f"{_path(project)}/separate"), OneProjectOut, _lines)


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


@projects.command()
@click.argument("project")
@api_command
async def activity(client: ApiClient, project: str) -> None:
    """Show what goes on in a project: its last 30 days, and the kinds and files of its newest observations."""
    client.show(await client.get(f"{_path(project)}/activity"), ProjectActivityOut, _render_activity)


def _render_activity(result: ProjectActivityOut) -> str:
    days = [(day.day, day.observations, day.sessions) for day in result.days if day.observations or day.sessions]
    kinds = [(kind.kind, kind.type, kind.count) for kind in result.kinds]
    files = [(file.path, file.count, format_time(file.last_at_epoch)) for file in result.files]
    return "\n\n".join(
        (
            render_table(("day", "observations", "sessions"), days, empty="Nothing happened in the last 30 days."),
            render_table(("kind", "type", "observations"), kinds, empty="There are no observations."),
            render_table(("file", "observations", "last"), files, empty="No observation names a file.", shrink=("file",)),
        )
    )


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
