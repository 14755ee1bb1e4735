"""`cmserver users list`: the people of the team, or all accounts of the server."""

from __future__ import annotations

import click

from cmserver.access.people import wire as people_wire
from cmserver.base.columns import Columns
from cmserver.cli.api_client import ApiClient, api_command

_INVITE = " `cmserver users invite` prints a link."


@click.command("list")
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
