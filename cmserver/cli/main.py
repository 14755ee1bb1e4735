"""The command `cmserver` and its command groups."""

from __future__ import annotations

import errno
import sys

import click

from cmserver import __version__
from cmserver.base.errors import CmserverError
from cmserver.base.logs import configure as configure_logs
from cmserver.cli.backup import backup, backups
from cmserver.cli.config import config
from cmserver.cli.connect import connect_group, connections, disconnect_group
from cmserver.cli.context import context
from cmserver.cli.corrections import close, edit, list_observations
from cmserver.cli.doctor import doctor
from cmserver.cli.embeddings import embeddings
from cmserver.cli.exit_codes import ExitCode, exit_code
from cmserver.cli.history import history, merge, review, undo
from cmserver.cli.jobs import jobs
from cmserver.cli.licenses import licenses
from cmserver.cli.mcp import mcp
from cmserver.cli.observations import expire, forget, promote, remember, show
from cmserver.cli.output import as_called, program_name
from cmserver.cli.projects import projects
from cmserver.cli.psql import psql
from cmserver.cli.reindex import reindex
from cmserver.cli.request import api
from cmserver.cli.restore import restore
from cmserver.cli.retention import retention
from cmserver.cli.rules import rules_group
from cmserver.cli.run import run
from cmserver.cli.search import search
from cmserver.cli.service import restart, start, status, stop
from cmserver.cli.service_unit import logs, service_group
from cmserver.cli.sessions import sessions
from cmserver.cli.steward import steward
from cmserver.cli.teams import teams
from cmserver.cli.transfer import export, import_group
from cmserver.cli.upgrade import upgrade
from cmserver.cli.usage import usage
from cmserver.cli.verbs import add_commands
from cmserver.cli.verify import verify
from cmserver.cli.why import why


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="cmserver")
def cli() -> None:
    """Memory for coding agents, on one PostgreSQL and nothing else."""


for command in (
    run,
    start,
    stop,
    restart,
    status,
    logs,
    service_group,
    config,
    backup,
    backups,
    restore,
    upgrade,
    export,
    import_group,
    verify,
    psql,
    retention,
    doctor,
    licenses,
):
    cli.add_command(command)
for command in (connect_group, disconnect_group, connections, mcp):  # the agents on this machine
    cli.add_command(command)
for command in (
    teams,
    projects,
    sessions,
    search,
    why,
    list_observations,
    show,
    remember,
    edit,
    close,
    promote,
    expire,
    forget,
    merge,
    history,
    undo,
    review,
    rules_group,
    context,
    jobs,
    steward,
    reindex,
    usage,
    embeddings,
    api,
):  # clients of the API
    cli.add_command(command)

add_commands(cli)


_DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EROFS}


def main() -> None:
    """Run the command; an error is one sentence on standard error and an exit code."""
    configure_logs("console", "warning")  # what a command prints is its answer; the server configures its own
    try:
        cli(prog_name=program_name())  # also as `python -m cmserver`
    except CmserverError as error:
        click.echo(f"cmserver: {as_called(str(error))}", err=True)
        sys.exit(exit_code(error))
    except OSError as error:
        if error.errno not in _DISK_FULL:
            raise
        where = f" ({error.filename})" if error.filename else ""
        click.echo(f"cmserver: {error.strerror}{where}. Free space on that disk, then try again.", err=True)
        sys.exit(ExitCode.FAILURE)
