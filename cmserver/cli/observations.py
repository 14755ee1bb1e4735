"""`cmserver show`, `remember`, `promote` and `forget`: read single observations, and write, keep or delete them by hand."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import get_args
from uuid import UUID

import click
from click.core import ParameterSource

from cmserver.access.wire import OneProjectOut
from cmserver.base.columns import Cell, format_time, render_fields
from cmserver.base.errors import Forbidden, Gone, NotFound
from cmserver.base.lookalikes import sanitize_line
from cmserver.cli import api_client
from cmserver.cli.output import TextCommand, as_called
from cmserver.client.server_api import ApiAnswer
from cmserver.consolidation.model import list_others
from cmserver.consolidation.wire import StoredObservationOut
from cmserver.observations import wire as observations_wire
from cmserver.observations.model import CURRENT_ON, INSTRUCTION_IMPORTANCE, ObservationType, compose
from cmserver.observations.plain import SUMMARY_LABELS, one_line
from cmserver.personal.model import parse_personal_name
from cmserver.personal.wire import OnePersonalObservationOut, render_personal_line, render_personal_whole
from cmserver.recall.search.wire import TITLE_CHARS
from cmserver.sessions.turns.wire import OneTurnOut

_WRITING_SCOPE = "observations:write"
_HOW_TO_WRITE = (
    f"`cmserver keys create --scope {_WRITING_SCOPE}` makes a key with it; "
    "`cmserver connect AGENT --allow-writing` gives one to an agent."
)

expires_after_option = click.option(
    "--expires-after", metavar="DAYS", type=click.IntRange(1, 36_500), help="Show it for so many days only."
)


def lifetime_seconds(days: int | None) -> int | None:
    return None if days is None else days * 86_400


_numbers = click.argument("observation_id", metavar="NUMBER...", nargs=-1, required=True)


@click.command()
@_numbers
@api_client.api_command
async def show(client: api_client.ApiClient, observation_id: tuple[str, ...]) -> None:
    """Show observations and turns whole, by their numbers (12, "#12") or ids, and what is yours alone by its name (m12).

    With --json each one is a JSON document of its own.
    """
    project_names: dict[UUID, str] = {}
    missing: list[str] = []
    gone: list[str] = []
    is_first = True
    for name in dict.fromkeys(observation_id):
        try:
            show_it = await _read_one(client, name, project_names)
        except Gone as error:
            gone.append(str(error))
        except NotFound:
            missing.append(name)
        else:
            if not (is_first or client.as_json):
                click.echo()
            show_it()
            is_first = False
    if gone:
        raise Gone("\n".join(gone))
    _raise_missing(missing)


async def _read_one(client: api_client.ApiClient, name: str, project_names: dict[UUID, str]) -> Callable[[], None]:
    """How what has that name is shown: an observation, a turn, or what is personal. `project_names` are those found so far."""
    segment = api_client.path_segment(name)
    if parse_personal_name(name) is not None:
        own = await client.get(f"/v1/personal-observations/{segment}")
        return lambda: client.show(own, OnePersonalObservationOut, render_personal_whole)
    try:
        answer = await client.get(path_of(name))
    except NotFound:
        turn = await client.get(f"/v1/turns/{segment}")
        return lambda: client.show(turn, OneTurnOut, render_turn)
    if client.as_json:
        return lambda: client.show(answer, observations_wire.OneObservationOut, headline_of_answer)
    project_id = answer.read(observations_wire.OneObservationOut).observation.project_id
    if project_id not in project_names:
        project_names[project_id] = await _find_project_name(client, project_id)
    project = project_names[project_id]
    return lambda: client.show(answer, observations_wire.OneObservationOut, lambda result: _render(result.observation, project))


def render_turn(result: OneTurnOut) -> str:
    turn = result.turn
    fields: list[tuple[str, Cell]] = [
        ("type", "turn"),
        ("session", turn.server_session_id),
        ("time", format_time(turn.created_at_epoch)),
        ("by", turn.actor_id),
        ("line", None if turn.own_line is None else one_line(turn.own_line, TITLE_CHARS) or "none: somebody left it out"),
        ("sub-agent", turn.agent_id),
        ("files", ", ".join(turn.files)),
        ("checks", ", ".join(turn.checks)),
        ("commits", ", ".join(turn.commits)),
    ]
    known = render_fields(*((name, value) for name, value in fields if value))
    sides = [
        f"{label}:\n{text}" for label, text in (("Task" if turn.agent_id else "User", turn.prompt), ("Agent", turn.reply)) if text
    ]
    paragraphs = ("\n".join(map(sanitize_line, side.splitlines())) for side in sides)
    return "\n\n".join([f"#{turn.number} {sanitize_line(one_line(turn.prompt, TITLE_CHARS))}\n{known}", *paragraphs])


def _render(observation: observations_wire.ObservationOut, project: str) -> str:
    fields: list[tuple[str, Cell]] = [
        (
            "type",
            observations_wire.type_shown(
                observation.observation_kind, observation.type, observation.origin, observation.caller_type
            ),
        ),
        ("state", _state(observation)),
        ("project", f"{project} (shared with the team)" if observation.scope == "team" else project),
        ("session", observation.server_session_id),
        ("time", format_time(observation.created_at_epoch)),
        ("expires", format_time(observation.expires_at_epoch)),
        ("origin", observation.origin),
        ("by", observation.actor_id),
        ("author", observation.agent),
        ("current on", _current_on(observation)),
        ("turn", f"#{observation.turn_number}" if observation.turn_number is not None else None),
        ("sources", _sources(observation.sources or [])),
        ("concepts", ", ".join(observation.concepts)),
        ("modified", ", ".join(observation.files_modified)),
        ("read", ", ".join(observation.files_read)),
        ("anchors", ", ".join(observation.anchors)),
    ]
    known = render_fields(*((name, value) for name, value in fields if value))
    paragraphs = ("\n".join(map(sanitize_line, text.splitlines())) for text in _list_texts(observation))
    return "\n\n".join([f"{headline(observation)}\n{known}", *paragraphs])


def _list_texts(observation: observations_wire.ObservationOut) -> Iterator[str]:
    """All texts but the title; the content only where it is not composed of the others."""
    facts = observation.facts
    if observation.subtitle:
        yield observation.subtitle
    summary = observation.summary
    parts = [f"{label}: {text}" for name, label in SUMMARY_LABELS.items() if summary and (text := getattr(summary, name))]
    yield from parts
    if observation.narrative:
        yield observation.narrative
    elif not parts and observation.content != compose(observation.title, observation.subtitle, None, facts):
        yield observation.content
    if observation.quote and observation.quote not in (observation.narrative or ""):
        yield f'"{observation.quote}"'
    if facts:
        yield "\n".join(f"- {sanitize_line(fact)}" for fact in facts)


def headline_of_answer(result: observations_wire.OneObservationOut) -> str:
    return headline(result.observation)


def headline(observation: observations_wire.ObservationOut) -> str:
    """The number, and the title or the beginning of the text."""
    title = one_line(observation.title or observation.narrative or observation.content, TITLE_CHARS)
    return f"#{observation.number} {sanitize_line(title)}"


def _state(observation: observations_wire.ObservationOut) -> str | None:
    if observation.state is None:
        return None
    by = f" with #{observation.closed_by}" if observation.closed_by else ""
    at = f", {format_time(observation.closed_at_epoch)}" if observation.closed_at_epoch else ""
    return f"{observation.state}{by}{at}"


def _current_on(observation: observations_wire.ObservationOut) -> str | None:
    matter = observation.metadata.get(CURRENT_ON)
    return one_line(matter, TITLE_CHARS) if isinstance(matter, str) else None


def _sources(sources: Sequence[observations_wire.SourceOut]) -> str:
    """How many there are of each kind; a single one by its id."""
    if len(sources) == 1:
        return f"{sources[0].source_type} {sources[0].source_id}"
    counts = Counter(source.source_type for source in sources)
    return ", ".join(f"{count} {source_type}" for source_type, count in counts.items())


async def _find_project_name(client: api_client.ApiClient, project_id: UUID) -> str:
    try:
        return (await client.get(f"/v1/projects/{project_id}")).read(OneProjectOut).project.canonical_id
    except NotFound:  # of another project, which shares it with the team
        return str(project_id)


@click.command(cls=TextCommand)
@click.argument("text")
@click.option("--title", help="A line that stands for it in lists. [default: the beginning of the text]")
@click.option(
    "--type",
    "type_",
    type=click.Choice(get_args(ObservationType)),
    help="What it is. [default: decision, of what expires discovery]",
)
@click.option("--project", metavar="PROJECT", help="Where it belongs. [default: the project of the key, or of the current folder]")
@click.option(
    "--on-duplicate",
    type=click.Choice(get_args(observations_wire.OnDuplicate)),
    default="suggest",
    show_default=True,
    help="What becomes of a text that says what is there already: keep it, suggest to merge it, or merge it.",
)
@click.option(
    "--importance", type=click.FloatRange(0, 1), help="0 to 1; from 0.8 on it is not let expire. [default: 0.5, of a decision 0.9]"
)
@expires_after_option
@click.option("--for", "for_", type=click.Choice(["me"]), metavar="me", help="It is yours alone, in all projects of the team.")
@api_client.api_command
async def remember(
    client: api_client.ApiClient,
    text: str,
    title: str | None,
    type_: ObservationType | None,
    project: str | None,
    on_duplicate: observations_wire.OnDuplicate,
    importance: float | None,
    expires_after: int | None,
    for_: str | None,
) -> None:
    """Write an observation by hand and print its number. TEXT is what is to be remembered; - reads it from standard input.

    Nothing is generated from it. What is there already is not stored again. A project that does not exist is made. It stands with
    what users laid down, unless its type or its importance says otherwise, or it expires. The key needs the scope
    observations:write. With `--for me` it is yours alone: nobody else of the team is shown it, and `cmserver mine` lists it.
    """
    narrative = (sys.stdin.read() if text == "-" else text).strip()
    if not narrative:
        raise click.UsageError("Nothing to remember: the text is empty.")
    if for_ == "me":
        await _remember_for_me(client, narrative, type_ or "decision")
        return
    if type_ is None:
        type_ = "decision" if expires_after is None else "discovery"
    if type_ == "decision" and importance is None and expires_after is None:
        importance = INSTRUCTION_IMPORTANCE

    async def write(project: str | None) -> ApiAnswer:
        body = {
            "projectId": project,
            "type": type_,
            "title": title,
            "narrative": narrative,
            "onDuplicate": on_duplicate,
            "importance": importance,
            "ttlSeconds": lifetime_seconds(expires_after),
        }
        return await client.post("/v1/observations", api_client.present(body))

    async def write_or_make(project: str | None) -> ApiAnswer:
        """Write it; into a new project where the one that is named does not exist."""
        try:
            return await write(project)
        except NotFound:
            if project is None:
                raise
        made = await client.post("/v1/projects", {"canonicalId": project})
        click.echo(f"Made the project {made.read(OneProjectOut).project.canonical_id}.", err=True)
        return await write(project)

    try:
        answer = await (write_or_make(project) if project else api_client.in_current_project(write_or_make))
    except Forbidden as error:
        raise explain_scope(error) from error
    client.show(answer, StoredObservationOut, _render_stored)


async def _remember_for_me(client: api_client.ApiClient, text: str, type_: ObservationType) -> None:
    """Keep it for the key's person alone; a usage error for an option that has no meaning then."""
    context = click.get_current_context()
    for name in ("title", "project", "on_duplicate", "importance", "expires_after"):
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            option = f"--{name.replace('_', '-')}"
            raise click.UsageError(f"{option} has no meaning with --for me: what is yours alone has only a text and a --type.")
    try:
        answer = await client.post("/v1/observations", {"scope": "user", "narrative": text, "type": type_})
    except Forbidden as error:
        raise explain_scope(error) from error
    client.show(answer, OnePersonalObservationOut, lambda result: render_personal_line(result.personal))


def _render_stored(result: StoredObservationOut) -> str:
    near = list_others(result.suggestions, result.observation.number)
    if near:
        numbers = ", ".join(f"#{number}" for number in near)
        click.echo(as_called(f"It is near to {numbers}. `cmserver review` asks what to do."), err=True)
    return f"{_ACTIONS[result.action]}{headline(result.observation)}"


_ACTIONS = {
    "created": "",
    "held": "It counts only after a person's yes (`cmserver rules pending`): ",
    "repeated": "It was there already: ",
    "merged": "Merged into ",
}


@click.command()
@_numbers
@api_client.api_command
async def promote(client: api_client.ApiClient, observation_id: tuple[str, ...]) -> None:
    """Make observations that expire permanent, by their numbers (12, "#12") or ids; also expired ones that are not purged yet.

    The key needs the scope observations:write.
    """
    await _change_lives(client, observation_id, "promote", "Permanent")


@click.command()
@_numbers
@api_client.api_command
async def expire(client: api_client.ApiClient, observation_id: tuple[str, ...]) -> None:
    """End the time of observations now, by their numbers (12, "#12") or ids: they are shown no longer, and purged later.

    `cmserver undo` brings one back, for good. The key needs the scope observations:write.
    """
    await _change_lives(client, observation_id, "expire", "Expired")


async def _change_lives(client: api_client.ApiClient, names: Sequence[str], verb: str, done: str) -> None:
    missing: list[str] = []
    for name in dict.fromkeys(name.removeprefix("#") for name in names):
        try:
            answer = await client.post(f"{path_of(name)}/{verb}", {})
        except NotFound:
            missing.append(name)
        except Forbidden as error:
            raise explain_scope(error) from error
        else:
            client.show(answer, observations_wire.OneObservationOut, lambda result: f"{done}: {headline(result.observation)}")
    _raise_missing(missing)


@click.command()
@_numbers
@api_client.yes_option
@api_client.api_command
async def forget(client: api_client.ApiClient, observation_id: tuple[str, ...], *, yes: bool) -> None:
    """Delete observations for ever, by their numbers (12, "#12") or ids; the events that they were made of stay.

    The key needs the scope observations:write.
    """
    names = list(dict.fromkeys(name.removeprefix("#") for name in observation_id))
    if not yes and api_client.is_interactive():
        batch = (await client.post("/v1/observations/batch", {"ids": names})).read(observations_wire.BatchReadOut)
        _raise_missing([str(name) for name in batch.missing])
        for observation in batch.observations:
            click.echo(headline(observation), err=True)
    api_client.confirm(
        f"Delete {'this observation' if len(names) == 1 else f'these {len(names)} observations'}, for ever?", yes=yes
    )
    missing: list[str] = []
    for name in names:
        try:
            answer = await client.delete(path_of(name))
        except NotFound:
            missing.append(name)
        except Forbidden as error:
            raise explain_scope(error) from error
        else:
            client.show(answer, observations_wire.DeletedObservationOut, lambda _, name=name: f"Deleted {_shown_name(name)}.")
    _raise_missing(missing)


def explain_scope(error: Forbidden) -> Forbidden:
    """The error, with how to get a key that may write where that is what is missing."""
    return Forbidden(f"{error} {_HOW_TO_WRITE}") if _WRITING_SCOPE in str(error) else error


def _raise_missing(names: list[str]) -> None:
    if names:
        raise NotFound(f"There is no observation {', '.join(map(_shown_name, names))}.")


def _shown_name(name: str) -> str:
    """A number with its sign; anything else as it was typed."""
    return f"#{name}" if name.isdigit() else sanitize_line(name)


def path_of(name: str) -> str:
    """The route of the observation with that number or id."""
    return f"/v1/observations/{api_client.path_segment(name)}"
