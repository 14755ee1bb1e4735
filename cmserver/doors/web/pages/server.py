"""The server as a whole, for its operators: versions, sizes, growth, accounts, and the commands that check and back up."""

from __future__ import annotations

import os
import pwd
import socket
from datetime import UTC, date, datetime, timedelta

import msgspec
from starlette.responses import Response

from cmserver.access.people import manage as manage_people
from cmserver.access.people import repository as people
from cmserver.access.people.accounts import Accounts
from cmserver.access.people.links import warn_of_link
from cmserver.base.ids import from_epoch_ms
from cmserver.base.settings import Settings
from cmserver.doors.web.page import Page
from cmserver.doors.web.templates import plural
from cmserver.doors.web.visit import Visit
from cmserver.ops.deployment import BackupFolder, read_deployment

_MAX_ACCOUNTS = 500
_OLD_BACKUP = timedelta(days=7)


class OperatorForm(msgspec.Struct, frozen=True):
    operator: bool = False


async def get_server(visit: Visit) -> Response:
    """Versions, database, sizes, growth and accounts of the server."""
    deployment = await read_deployment(visit.db, visit.dependency(Settings))
    accounts = await visit.dependency(Accounts).run(lambda conn: people.users(conn, limit=_MAX_ACCOUNTS))
    return visit.render(
        "server.html",
        title="Server",
        deployment=deployment,
        accounts=accounts,
        backup_warning=warn_of_backups(deployment.backups),
        host=socket.gethostname(),
        account=_find_account(),
        event_bars=_month_bars([(row.month, row.events) for row in deployment.months]),
        request_bars=_month_bars([(row.month, row.requests) for row in deployment.months]),
    )


def _find_account() -> str:
    """The name of the account that runs this process, or its number where it has none, as in some containers."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def _month_bars(months: list[tuple[date, int]]) -> list[tuple[str, int, str]]:
    """Bars of a chart, the oldest month first; a month without any stands with 0."""
    counts = dict(months)
    month, newest, bars = min(counts, default=date.max), max(counts, default=date.min), list[tuple[str, int, str]]()
    while month <= newest:
        count = counts.get(month, 0)
        bars.append((f"{month:%Y-%m}", count, f"{count:,}"))
        month = (month + timedelta(days=31)).replace(day=1)
    return bars


def warn_of_backups(backups: BackupFolder) -> str:
    """The sentence about backups that are missing, old or damaged; empty where all is well."""
    if backups.newest_at_epoch is None:
        return "There is no backup of this server."
    age = datetime.now(UTC) - from_epoch_ms(backups.newest_at_epoch)
    if age > _OLD_BACKUP:
        return f"The newest backup of this server is {plural(age.days, 'day')} old."
    return f"{plural(backups.damaged, 'backup')} of this server cannot be read." if backups.damaged else ""


async def post_reset(visit: Visit) -> Response:
    """Make a link for a new password; it shows once."""
    principal = visit.principal
    name = visit.parameter("name")
    user, token = await visit.dependency(Accounts).run(lambda conn: manage_people.reset(conn, principal, name))
    link = f"{visit.server_url}/ui/reset/{token}"
    return visit.render(
        "reset_link.html",
        title="New password",
        status=201,
        user=user,
        link=link,
        link_warning=warn_of_link(link, "cmserver users reset NAME"),
    )


async def post_operator(visit: Visit) -> Response:
    """Make a person an operator of the server, or no more."""
    principal = visit.principal
    form = await visit.form(OperatorForm)
    name = visit.parameter("name")
    user = await visit.dependency(Accounts).run(
        lambda conn: manage_people.set_operator(conn, principal, name, is_operator=form.operator)
    )
    return visit.redirect("/ui/server", f"{user.name} is {'an' if user.is_operator else 'no'} operator now.")


routes = [
    Page("GET", "/ui/server", get_server, scope="*", is_for_operators=True),
    Page("POST", "/ui/server/accounts/{name}/reset", post_reset, scope="*", is_for_operators=True, form_of=get_server),
    Page("POST", "/ui/server/accounts/{name}/operator", post_operator, scope="*", is_for_operators=True, form_of=get_server),
]
