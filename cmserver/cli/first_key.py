"""Creates the first team and key. The key is on disk before the commit that makes it valid, so a crash cannot lose it.

`credentials.pending` is written inside the transaction and renamed to `credentials` after it. A start that is killed in between
leaves a pending file; the next start confirms it when the database has its key, and creates another key when there is no team.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Literal

import click
import msgspec

from cmserver.access import repository as access
from cmserver.access.bootstrap import bootstrap, is_key, replace_unused_first_key
from cmserver.access.model import Principal
from cmserver.access.people import repository as people
from cmserver.access.people.manage import invite
from cmserver.access.people.model import INVITATION_DAYS
from cmserver.base import credentials
from cmserver.base.credentials import PENDING_NAME, BadCredentials, Credentials
from cmserver.base.db import Db
from cmserver.base.logs import get_logger
from cmserver.base.process import container_sign
from cmserver.base.settings import Settings
from cmserver.cli.output import as_called
from cmserver.embedded.files import SetupError, make_data_dir

log = get_logger(__name__)


class FirstKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key that this start created, or confirmed after a start that was killed."""

    text: str
    file: Path | None
    """The credentials file with the key; None when the data folder is not writable."""
    origin: Literal["made", "found", "replaced"] = "made"
    """Found: pending from a start or restore that was killed. Replaced: a new key for one that was never used."""
    earlier: Path | None = None
    """Where the previous credentials file was moved to."""
    owner_link: str | None = None
    """The link that makes the first owner's account for the web interface; shown where the key is."""


async def ensure_first_key(db: Db, settings: Settings, url: str, *, embedded: bool) -> FirstKey | None:
    """Create the first team and key if there is none; None when the key is in its place already.

    Raises SetupError, and creates nothing, when the key could neither be written to the data folder nor shown on a terminal.
    """
    folder = settings.data_dir
    writable = True

    def write(text: str) -> None:
        make_data_dir(folder)
        credentials.write(folder, Credentials(url=url, key=text, team=settings.bootstrap_team), PENDING_NAME)

    async def keep(text: str) -> None:
        nonlocal writable
        try:
            await asyncio.to_thread(write, text)
        except (OSError, SetupError) as error:
            if not settings.bootstrap_key and not shows_key():
                raise SetupError(
                    f"The first key cannot be stored in {folder} ({error}), and is not written to a log. Set CMSERVER_DATA_DIR "
                    "to a writable folder, or CMSERVER_BOOTSTRAP_KEY to a key of your own."
                ) from error
            writable = False
            log.warning("credentials.not_written", folder=str(folder), error=str(error))

    made = await bootstrap(db, settings.bootstrap_team, settings.bootstrap_key, keep)
    if made is not None:
        return _confirmed(folder, made.text) if writable else FirstKey(text=made.text, file=None)
    try:
        pending = credentials.read(folder, PENDING_NAME)
        if pending is not None and await _is_known(db, pending.key):
            return msgspec.structs.replace(_confirmed(folder, pending.key), origin="found")
        if embedded and pending is None and not settings.bootstrap_key and credentials.read(folder) is None:
            replaced = await replace_unused_first_key(db, keep)
            if replaced is not None:
                return msgspec.structs.replace(_confirmed(folder, replaced.text), origin="replaced")
    except BadCredentials as error:
        log.warning("credentials.not_written", folder=str(folder), error=str(error))
    return None


async def _is_known(db: Db, text: str) -> bool:
    async with db.system() as conn:
        return await is_key(conn, text)


def _confirmed(folder: Path, text: str) -> FirstKey:
    earlier = credentials.confirm_pending(folder)
    return FirstKey(text=text, file=folder / credentials.FILE_NAME, earlier=earlier)


async def update_address(db: Db, settings: Settings, url: str) -> None:
    """Write the server's current address into the credentials file, if its key belongs to this database."""
    stored = credentials.read(settings.data_dir)
    if stored is not None and stored.url != url and await _is_known(db, stored.key):
        credentials.write(settings.data_dir, Credentials(url=url, key=stored.key, team=stored.team))


async def make_owner_link(db: Db, settings: Settings, url: str) -> str | None:
    """A link that makes the first owner and operator; None when somebody has an account, or the first team is gone."""
    async with db.system() as conn:
        team = await access.team_named(conn, settings.bootstrap_team, None)
        if team is None or await people.any_user(conn):
            return None
        server = Principal.of_server(team.id, actor_id="first start")
        new = await invite(conn, server, "owner", makes_operator=True)
    return f"{url}/ui/join/{new.token}"


def shows_key() -> bool:
    """Whether the key may be printed: on a terminal, but not in a container, which logs its terminal."""
    return sys.stdout.isatty() and container_sign(os.environ) is None


def echo_first_key(settings: Settings, first: FirstKey) -> None:
    """Print where the first key is, and on a terminal the key itself."""
    click.echo(first_key_lines(settings, first, shown=shows_key()))


def first_key_lines(settings: Settings, first: FirstKey, *, shown: bool) -> str:
    """What a start prints about the first key; the key itself only when `shown`."""
    team = settings.bootstrap_team
    if settings.bootstrap_key and first.origin == "made":
        return f"First start: created the team {team!r} with the key in CMSERVER_BOOTSTRAP_KEY."
    lines = [
        {
            "made": f"First start: created the team {team!r} and its key.",
            "found": "An earlier start or restore was interrupted; its key is now in place.",
            "replaced": f"The first key of the team {team!r} was never used and its file is missing: a new key replaces it.",
        }[first.origin]
    ]
    if shown and not settings.bootstrap_key:
        lines.append(f"  {first.text}")
    if first.file:
        lines.append(f"The key is in {first.file} (readable only by you); commands on this machine use it.")
    if first.earlier:
        lines.append(f"The previous file was moved to {first.earlier}.")
    if shown and first.owner_link:
        lines.append(f"Web interface: open {first.owner_link} within {INVITATION_DAYS} days to make your account.")
    elif first.origin == "made":
        lines.append(
            as_called("Web interface: `cmserver users invite --role owner --server-operator` prints a link for your account.")
        )
    lines.append(
        as_called("Next: `cmserver connect claude-code` (or codex, gemini, claude-mem), here or with --server on another machine.")
    )
    return "\n".join(lines)
