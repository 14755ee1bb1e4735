"""`cmserver projects`: the projects of a team."""

from __future__ import annotations

import click
import msgspec

from cmserver.access.projects import canonical_id
from cmserver.base.errors import NotFound
from cmserver.cli.erased import Erased, erased_lines
from cmserver.cli.policy import Change, Policy, policy_lines, policy_options
from cmserver.cli.show import moment, pairs, table
from cmserver.cli.talk import Talk, confirm, limit_option, more, segment, talks, yes_option


class Project(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A project as the API shows it."""

    id: str
    canonical_id: str
    name: str
    aliases: list[str] = []
    generation_policy: Policy = Policy()
    search_language: str = "english"
    archived_at_epoch: int | None = None
    created_at_epoch: int


class OneProject(msgspec.Struct, frozen=True, kw_only=True):
    """An answer with one project."""

    project: Project


class Projects(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """An answer with projects."""

    projects: list[Project]
    next_cursor: str | None


@click.group()
def projects() -> None:
    """Projects: the code bases that a team's agents work on.

    A project is named by its id, its canonical id (github.com/user/repo, a path), any URL form of that, an alias, or its name.
    """


@projects.command("list")
@click.option("--archived", is_flag=True, help="Those that are archived instead.")
@limit_option
@talks
async def list_projects(talk: Talk, limit: int, *, archived: bool) -> None:
    """The team's projects, newest first."""
    answer = await talk.api.pages("/v1/projects", "projects", {"archived": archived or None}, limit=limit)
    talk.tell(answer, Projects, _table)


def _table(found: Projects) -> str:
    more(found.next_cursor)
    return table(
        ("id", "project", "name", "aliases", "created", "archived"),
        [
            (
                project.id,
                project.canonical_id,
                project.name,
                ", ".join(project.aliases),
                moment(project.created_at_epoch),
                moment(project.archived_at_epoch),
            )
            for project in found.projects
        ],
        nothing="There are no projects.",
        wide=("project", "name", "aliases"),
    )


def _lines(project: Project) -> str:
    return pairs(
        ("id", project.id),
        ("project", project.canonical_id),
        ("name", project.name),
        ("aliases", ", ".join(project.aliases)),
        *policy_lines(project.generation_policy),
        ("search language", project.search_language),
        ("created", moment(project.created_at_epoch)),
        ("archived", moment(project.archived_at_epoch)),
    )


@projects.command()
@click.argument("canonical_id")
@click.option("--name", help="A short name for people; else the last part of the canonical id.")
@click.option("--search-language", help="What its texts are mostly written in: english, german, ...; simple for any other.")
@talks
async def create(talk: Talk, canonical_id: str, name: str | None, search_language: str | None) -> None:
    """Make a project, or find it when it is there. Events make their project themselves."""
    given = {"name": name, "searchLanguage": search_language}
    body = {"canonicalId": canonical_id, **{field: value for field, value in given.items() if value is not None}}
    talk.tell(await talk.api.post("/v1/projects", body), OneProject, lambda one: _lines(one.project))


@projects.command()
@click.argument("project")
@talks
async def show(talk: Talk, project: str) -> None:
    """One project."""
    talk.tell(await talk.api.get(_path(project)), OneProject, lambda one: _lines(one.project))


@projects.command()
@click.argument("project")
@click.argument("name")
@talks
async def rename(talk: Talk, project: str, name: str) -> None:
    """Give a project another name; its canonical id stays."""
    await _patch(talk, project, name=name)


@projects.command("search-language")
@click.argument("project")
@click.argument("language")
@talks
async def change_search_language(talk: Talk, project: str, language: str) -> None:
    """Say what a project's texts are mostly written in (english, german, ...; simple for others), so that search knows its words.

    All its texts are made ready to be found anew: some seconds for 10,000, and what comes in for the project waits meanwhile.
    """
    await _patch(talk, project, searchLanguage=language)


@projects.group()
def alias() -> None:
    """Other names by which a project is found."""


@alias.command("add")
@click.argument("project")
@click.argument("alias")
@talks
async def add_alias(talk: Talk, project: str, alias: str) -> None:
    """Let a project be found by one more name."""
    known = (await talk.api.get(_path(project))).read(OneProject).project.aliases
    await _patch(talk, project, aliases=[*known, alias])


@alias.command("remove")
@click.argument("project")
@click.argument("alias")
@talks
async def remove_alias(talk: Talk, project: str, alias: str) -> None:
    """Take one of its other names from a project."""
    known = (await talk.api.get(_path(project))).read(OneProject).project.aliases
    unwanted = canonical_id(alias)
    if unwanted not in known:
        raise NotFound(f"{unwanted} is no alias of the project. Its aliases are: {', '.join(known) or 'none'}.")
    await _patch(talk, project, aliases=[one for one in known if one != unwanted])


@projects.command()
@click.argument("project")
@talks
async def archive(talk: Talk, project: str) -> None:
    """Put a project away: it takes no events and is not found; nothing is deleted."""
    await _patch(talk, project, archived=True)


@projects.command()
@click.argument("project")
@talks
async def unarchive(talk: Talk, project: str) -> None:
    """Take an archived project back; it is named by its id (`cmserver projects list --archived`)."""
    await _patch(talk, project, archived=False)


@projects.command()
@click.argument("project")
@policy_options
@talks
async def policy(talk: Talk, project: str, change: Change) -> None:
    """When observations are made of a project's events, and how they are worded; without options what is said now."""
    answer = await talk.api.get(_path(project))
    if not change.nothing:
        wanted = change.of(answer.read(OneProject).project.generation_policy)
        answer = await talk.api.patch(_path(project), {"generationPolicy": wanted})
    talk.tell(
        answer, OneProject, lambda one: pairs(("project", one.project.canonical_id), *policy_lines(one.project.generation_policy))
    )


@projects.command()
@click.argument("project")
@yes_option
@talks
async def purge(talk: Talk, project: str, *, yes: bool) -> None:
    """Delete what is remembered of a project (observations, events, sessions, jobs), for ever; the project stays."""
    confirm(f"Delete everything that is remembered of {project}, for ever?", yes=yes)
    answer = await talk.api.delete(f"{_path(project)}/memory")
    talk.tell(answer, Erased, lambda gone: erased_lines(f"The memory of {project} is deleted.", gone))


@projects.command()
@click.argument("project")
@yes_option
@talks
async def delete(talk: Talk, project: str, *, yes: bool) -> None:
    """Delete a project and everything that is remembered of it, for ever."""
    confirm(f"Delete the project {project} and everything that is remembered of it, for ever?", yes=yes)
    talk.tell(await talk.api.delete(_path(project)), Erased, lambda gone: erased_lines(f"The project {project} is deleted.", gone))


async def _patch(talk: Talk, project: str, **changed: object) -> None:
    talk.tell(await talk.api.patch(_path(project), changed), OneProject, lambda one: _lines(one.project))


def _path(project: str) -> str:
    return f"/v1/projects/{segment(project)}"
