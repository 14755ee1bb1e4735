"""The command `cmserver` and its command groups."""

from __future__ import annotations

import errno
import sys

import click

from cmserver import __version__
from cmserver.base.errors import CmserverError
from cmserver.base.logs import configure as configure_logs
from cmserver.cli.exit_codes import ExitCode, exit_code
from cmserver.cli.output import as_called, program_name
from cmserver.cli.run import run


class _Commands(click.Group):
    """Has `run` from the beginning, and the others when one of them is asked for."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name != run.name:
            self._add_others()
        return super().get_command(ctx, cmd_name)

    def list_commands(self, ctx: click.Context) -> list[str]:
        self._add_others()
        return super().list_commands(ctx)

    def _add_others(self) -> None:
        if list(self.commands) == [run.name]:
            from cmserver.cli.commands import add_all  # noqa: PLC0415 - six megabytes, which no server should take

            add_all(self)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="cmserver")
def cli() -> None:
    """Memory for coding agents, on one PostgreSQL and nothing else."""


cli.add_command(run)


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
