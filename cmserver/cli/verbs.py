"""Makes commands of the rows of verbs: options by the fields of their Structs, the request, and what is shown of the answer."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import click
import msgspec
from msgspec import UNSET, Meta, UnsetType

from cmserver.access.api import routes as access_routes
from cmserver.access.verb import Command, Option, Verb
from cmserver.access.wire import TeamsOut
from cmserver.base.http.operation import Operation
from cmserver.cli.api_client import (
    ApiClient,
    api_command,
    confirm,
    in_current_project,
    limit_option,
    path_segment,
    team_command,
    yes_option,
)
from cmserver.cli.choose_model import choose_model, try_model
from cmserver.cli.keys import rotate
from cmserver.cli.pins import check_pins, load_pins
from cmserver.cli.users import list_users
from cmserver.client.server_api import ApiAnswer
from cmserver.embeddings.api import routes as embeddings_routes
from cmserver.generation.api import routes as generation_routes
from cmserver.ingest.api import routes as ingest_routes
from cmserver.observations.answering.api import routes as approval_routes
from cmserver.ops.activity.api import routes as activity_routes
from cmserver.ops.analytics.api import routes as analytics_routes
from cmserver.ops.api import routes as ops_routes
from cmserver.ops.erasure.api import routes as erasure_routes
from cmserver.ops.joining.api import routes as joining_routes
from cmserver.ops.privacy.api import routes as privacy_routes
from cmserver.ops.proof.api import routes as proof_routes
from cmserver.ops.provider_choice.api import routes as provider_choice_routes
from cmserver.ops.spending.api import routes as spending_routes
from cmserver.personal.api import routes as personal_routes
from cmserver.pins.api import routes as pins_routes
from cmserver.recall.api import routes as recall_routes
from cmserver.replays.api import routes as replays_routes
from cmserver.sessions.api import routes as sessions_routes
from cmserver.steward.api import routes as steward_routes

T = TypeVar("T", bound=Callable[..., None])
_ROUTES: list[Operation] = [
    *access_routes,
    *activity_routes,
    *analytics_routes,
    *approval_routes,
    *embeddings_routes,
    *erasure_routes,
    *generation_routes,
    *ingest_routes,
    *joining_routes,
    *ops_routes,
    *personal_routes,
    *pins_routes,
    *privacy_routes,
    *proof_routes,
    *provider_choice_routes,
    *recall_routes,
    *replays_routes,
    *sessions_routes,
    *spending_routes,
    *steward_routes,
]
_PATH_NAME = re.compile(r"\{(\w+)(?::path)?\}")
_SHOWN_MOST = 100_000
"""A limit above this is left to the server to say."""


_GROUPS = {
    "budgets": """Limit what the team and its projects may spend on providers in a day or a month (UTC).

    When a budget is spent, generation waits: events are stored, and become observations in the next period or with a larger budget.
    """,
    "teams members": "The members of the key's team, with an account or without.",
    "users": "People who sign in to the web interface: invitations, roles and new passwords.",
    "keys": "API keys of the team.",
    "model": "The model that words the memory: one is tried with a real call, and kept in the server's data folder.",
    "providers": "The providers that generate observations. One that fails is paused for the whole server, and resumes by itself.",
    "mine": """What is remembered for you alone, in all projects of the team: nobody else of it is shown that.

    The key must be yours: made by you when you were signed in, or bound to you on your profile page.
    """,
    "pins": """What the team's memory must answer: a question, words that must come in its first lines, and words that must not.

    A check is a search for each question, by words, without a model. `check` exits 1 when a pin does not hold.
    """,
    "replays": """What today's rules, or a model, would remember of stored events: `cmserver replay` begins one.

    Nothing of a replay is told to agents, until it is taken over; a take-over can be undone.
    """,
    "audit": "The audit log: ids and names, never texts.",
}
_BY_HAND = {"users": [list_users], "keys": [rotate], "pins": [check_pins, load_pins], "model": [choose_model, try_model]}
"""Commands that do more than their verb."""


def add_commands(cli: click.Group) -> None:
    """Add a command for each row that has one, in the group that its name begins with. Groups made by hand are there already."""
    for name, text in _GROUPS.items():
        *outer, last = name.split()
        _find_group(cli, outer).add_command(click.Group(last, help=inspect.cleandoc(text), commands=_BY_HAND.get(name)))
    rows = [(verb, command) for verb in _ROUTES if isinstance(verb, Verb) for command in verb.commands]
    for verb, command in rows:
        *outer, last = command.name.split()
        _find_group(cli, outer).add_command(_make_command(verb, command), last)


def _find_group(cli: click.Group, words: Sequence[str]) -> click.Group:
    for word in words:
        cli = cast("click.Group", cli.commands[word])
    return cli


def _make_command(verb: Verb, command: Command) -> click.Command:
    hints: dict[str, object] = {}
    fields: dict[str, Any] = {}
    if verb.given not in (None, str):
        hints = get_type_hints(verb.given, include_extras=True)
        fields = {field.name: field for field in msgspec.structs.fields(verb.given)}
    is_list = fields.keys() >= {"limit", "cursor"}
    options = [*_arguments(verb, command), *command.options]
    names_team = any(option.field == "team" for option in options)

    async def act(client: ApiClient, **typed: Any) -> None:
        if command.confirm is not None:
            confirm(command.confirm(typed), yes=typed["yes"])
        given = {**{option.field: typed[option.parameter] for option in options}, **command.sets}
        if "{team}" in verb.path:
            if names_team:
                await client.act_for_team(given["team"])
            if given.get("team") is None:
                given["team"] = str((await client.get("/v1/teams")).read(TeamsOut).teams[0].id)
        sent = {fields[name].encode_name: value for name, value in given.items() if name in fields and value not in (None, ())}

        async def send(project: str | None) -> ApiAnswer:
            named = sent if project is None else {**sent, fields["project_id"].encode_name: project}
            return await _send(client, verb, given, named, limit=typed["limit"] if is_list else None)

        asks_for_project = "project_id" in fields and given.get("project_id") is None
        answer = await (in_current_project(send) if asks_for_project else send(None))
        if command.quiet is not None and typed["quiet"]:
            click.echo(command.quiet[1](answer.read(_out(verb))))
        else:
            client.show(answer, _out(verb), lambda out: _show(command, out, typed))

    act.__doc__ = command.text or (inspect.getdoc(verb.endpoint) or "").partition("\n\n")[0]
    made = (team_command if names_team else api_command)(act)
    for decorate in reversed([*_click_options(options, command, fields, hints, is_list=is_list)]):
        made = decorate(made)
    return click.command()(made)


def _show(command: Command, out: object, typed: dict[str, Any]) -> str:
    if command.warns is not None and (warning := command.warns(out)):
        click.echo(warning, err=True)
    return command.shows(out, typed)


def _arguments(verb: Verb, command: Command) -> Iterator[Option]:
    """The names in the path, for which the command has no option; without an option the team is the key's own."""
    for name in cast("list[str]", _PATH_NAME.findall(verb.path)):
        if name != "team" and all(option.field != name for option in command.options):
            yield Option(name=name.upper(), field=name, text="", metavar=None, default=None, on=True)


async def _send(client: ApiClient, verb: Verb, given: Mapping[str, Any], sent: dict[str, Any], *, limit: int | None) -> ApiAnswer:
    path = _PATH_NAME.sub(lambda name: path_segment(str(given[name[1]])), verb.path)
    for name in cast("list[str]", _PATH_NAME.findall(verb.path)):
        sent.pop(name, None)
    if limit is not None:
        rows = next(field.encode_name for field in msgspec.structs.fields(_out(verb)) if field.name != "next_cursor")
        return await client.pages(path, rows, sent, limit=limit)
    return await client.send(verb.method, path, query=sent if verb.query else None, body=sent if verb.body else None)


def _out(verb: Verb) -> type[msgspec.Struct]:
    out = next(iter(verb.answers.values()))
    return cast("type[msgspec.Struct]", out[0] if isinstance(out, tuple) else out)


def _click_options(
    options: Sequence[Option], command: Command, fields: Mapping[str, Any], hints: Mapping[str, object], *, is_list: bool
) -> Iterator[Callable[[Callable[..., None]], Callable[..., None]]]:
    for option in options:
        type_, metas = plain_type(hints.get(option.field, str))
        if option.name.startswith("-"):
            yield _click_option(option, fields[option.field], type_, metas)
        else:
            yield click.argument(option.parameter, type=_click_type(type_, metas), required=option.name[0] != "[")
    if is_list:
        yield limit_option
    if command.quiet is not None:
        yield click.option("--quiet", is_flag=True, help=command.quiet[0])
    if command.confirm is not None:
        yield yes_option


def _click_option(option: Option, field: Any, type_: object, metas: tuple[Meta, ...]) -> Callable[[T], T]:
    if type_ is bool:
        return click.option(option.name, option.parameter, flag_value=option.on, default=option.default, help=option.text)
    is_list = get_origin(type_) is list
    default = option.default
    if default is None and field.default not in (msgspec.NODEFAULT, UNSET, ""):
        default = field.default
    return click.option(
        option.name,
        option.parameter,
        type=_click_type(*plain_type(get_args(type_)[0])) if is_list else _click_type(type_, metas),
        multiple=is_list,
        metavar=option.metavar,
        default=default,
        show_default=default is not None,
        required=field.required and default is None,
        help=option.text,
    )


def plain_type(hint: object, *metas: Meta) -> tuple[object, tuple[Meta, ...]]:
    """The type without None, UNSET and what is annotated to it, and that."""
    if get_origin(hint) is Annotated:
        plain, *more = get_args(hint)
        return plain_type(plain, *metas, *(meta for meta in more if isinstance(meta, Meta)))
    if get_origin(hint) in (Union, UnionType):
        return plain_type(next(part for part in get_args(hint) if part not in (NoneType, UnsetType)), *metas)
    return hint, metas


def _click_type(type_: object, metas: tuple[Meta, ...]) -> Any:
    """The type of what is typed; None for a text."""
    if get_origin(type_) is Literal:
        return click.Choice(get_args(type_))
    if type_ is not int and type_ is not float:
        return None
    least = next((meta.ge for meta in metas if meta.ge is not None), None)
    most = next((meta.le for meta in metas if meta.le is not None and meta.le <= _SHOWN_MOST), None)
    if type_ is float:
        return click.FloatRange(least, most)
    return click.IntRange(None if least is None else int(least), None if most is None else int(most))
