"""`cmserver users`: the people who sign in to the web interface."""

from __future__ import annotations

from typing import get_args

import click

from cmserver.access.model import PersonRole
from cmserver.access.people import wire as people_wire
from cmserver.cli.api_client import ApiClient, api_command, confirm, path_segment, yes_option
from cmserver.cli.output import Columns, format_time

_INVITE = " `cmserver users invite` prints a link."
_ROLES = click.Choice(get_args(PersonRole))


@click.group()
def users() -> None:
    """People who sign in to the web interface: invitations, roles and new passwords."""


@users.command("list")
@click.option("--all", "all_accounts", is_flag=True, help="All accounts of the server. Operator only.")
@api_command
async def list_users(client: ApiClient, *, all_accounts: bool) -> None:
    """List the people of the team."""
    if all_accounts:
        client.show(await client.get("/v1/users/accounts"), people_wire.AccountsOut, _accounts)
    else:
        client.show(await client.get("/v1/users"), people_wire.PeopleOut, _people)


_PEOPLE_COLUMNS = Columns(
    people_wire.PersonOut,
    "name, role, operator, last seen, since=created",
    operator=lambda person: "yes" if person.is_operator else "",
)
_ACCOUNT_COLUMNS = Columns(
    people_wire.AccountOut,
    "name, operator, password, since=created",
    operator=lambda account: "yes" if account.is_operator else "",
    password=lambda account: "yes" if account.has_password else "no",
)


def _people(page: people_wire.PeopleOut) -> str:
    return _PEOPLE_COLUMNS.table(page.users, empty="Nobody has an account in this team." + _INVITE, shrink=("name",))


def _accounts(page: people_wire.AccountsOut) -> str:
    return _ACCOUNT_COLUMNS.table(page.accounts, empty="Nobody has an account on this server." + _INVITE, shrink=("name",))


@users.command()
@click.option("--role", type=_ROLES, default="member", show_default=True, help="What they will be in the team.")
@click.option("--note", default="", help="Whom it is for, to tell invitations apart.")
@click.option("--server-operator", is_flag=True, help="They run the server, too. Operator only.")
@api_command
async def invite(client: ApiClient, role: str, note: str, *, server_operator: bool) -> None:
    """Print a link that makes somebody a member of the team. It works once, within a week."""
    answer = await client.post("/v1/users/invitations", {"role": role, "note": note, "operator": server_operator})
    client.show(answer, people_wire.NewInvitationOut, lambda result: _link(client, result.path, result.url))


@users.command()
@api_command
async def invitations(client: ApiClient) -> None:
    """List the invitations that nobody has used."""
    client.show(await client.get("/v1/users/invitations"), people_wire.InvitationsOut, _invitations)


_INVITATION_COLUMNS = Columns(
    people_wire.InvitationOut,
    "id, role, operator, note, by=invited_by, expires",
    operator=lambda invitation: "yes" if invitation.makes_operator else "",
    expires=lambda invitation: "expired" if invitation.expired else format_time(invitation.expires_at_epoch),
)


def _invitations(page: people_wire.InvitationsOut) -> str:
    return _INVITATION_COLUMNS.table(page.invitations, empty="There is no open invitation.", shrink=("note", "by"))


@users.command()
@click.argument("invitation")
@api_command
async def withdraw(client: ApiClient, invitation: str) -> None:
    """Withdraw an invitation, by its id."""
    answer = await client.delete(f"/v1/users/invitations/{path_segment(invitation)}")
    client.show(answer, people_wire.WithdrawnInvitationOut, lambda result: f"The link of {result.id} works no more.")


@users.command()
@click.argument("name")
@click.argument("role", type=_ROLES)
@api_command
async def role(client: ApiClient, name: str, role: str) -> None:
    """Change what a person is in the team: owner, member or viewer."""
    answer = await client.patch(f"/v1/users/{path_segment(name)}", {"role": role})
    client.show(answer, people_wire.OnePersonOut, lambda result: f"{result.user.name} is {result.user.role}.")


@users.command()
@click.argument("name")
@click.option("--off", is_flag=True, help="They run the server no more.")
@api_command
async def operator(client: ApiClient, name: str, *, off: bool) -> None:
    """Make a person of the team an operator of the server. Operator only: --operator, or a key with the scope *."""
    answer = await client.patch(f"/v1/users/{path_segment(name)}", {"operator": not off})
    client.show(
        answer,
        people_wire.OnePersonOut,
        lambda result: f"{result.user.name} is {'an' if result.user.is_operator else 'no'} operator of this server.",
    )


@users.command()
@click.argument("name")
@api_command
async def reset(client: ApiClient, name: str) -> None:
    """Print a link for a new password. It works once, within a day. Operator only: --operator, or a key with the scope *."""
    answer = await client.post(f"/v1/users/{path_segment(name)}/reset", {})
    client.show(answer, people_wire.ResetOut, lambda result: _link(client, result.path, result.url))


@users.command()
@click.argument("name")
@yes_option
@api_command
async def remove(client: ApiClient, name: str, *, yes: bool) -> None:
    """Take a person out of the team, and end the keys and invitations that they made in it."""
    confirm(f"Take {name} out of the team, and end the keys and invitations that they made?", yes=yes)
    answer = await client.delete(f"/v1/users/{path_segment(name)}")
    client.show(
        answer,
        people_wire.RemovedPersonOut,
        _render_removed,
    )


def _render_removed(result: people_wire.RemovedPersonOut) -> str:
    lines = [f"{result.name} is out of the team. Keys revoked: {result.revoked_keys}."]
    if result.withdrawn_invitations:
        lines.append(f"Invitations withdrawn: {result.withdrawn_invitations}.")
    if result.other_keys:
        lines.append("Made for others, who need new keys now:")
        lines += [f"  {key.actor_id}  {key.id}  {key.name}".rstrip() for key in result.other_keys]
    return "\n".join(lines)


def _link(client: ApiClient, path: str, url: str) -> str:
    """The link; as operator, who calls no server, with the address in the credentials file."""
    return client.server_url(path) if client.operator is not None else url
