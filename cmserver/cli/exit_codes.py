"""Exit codes, and which error ends with which."""

from __future__ import annotations

from enum import IntEnum

from cmserver.base.configuration import BadSetting
from cmserver.base.errors import CmserverError, Unavailable
from cmserver.base.migrate import MigrationError
from cmserver.base.tenant_role import UnsafeConnection
from cmserver.client.server_api import ServerUnreachable
from cmserver.embedded.files import DataDirInUse, SetupError


class ExitCode(IntEnum):
    """The exit status of cmserver."""

    OK = 0
    FAILURE = 1
    USAGE = 2
    DATABASE = 3
    SCHEMA = 4
    IN_USE = 5
    WARNING = 6


MEANINGS: dict[ExitCode, str] = {
    ExitCode.OK: "Success; a server that Ctrl-C or SIGTERM stopped has drained.",
    ExitCode.FAILURE: "The request was refused, something was not found, the sums do not hold, the server is not running, or an "
    "internal error occurred; the message or the log says which.",
    ExitCode.USAGE: "A setting or an argument is wrong, or --yes is missing; the message says which.",
    ExitCode.DATABASE: "The database, or the server that a command calls, cannot be reached; or the database cannot be set up.",
    ExitCode.SCHEMA: "The database cannot be migrated to this program's schema (too old, from a newer cmserver, rights missing).",
    ExitCode.IN_USE: "The data folder or the port belongs to another process.",
    ExitCode.WARNING: "`cmserver doctor` found something that should be looked at, and nothing worse.",
}


class ResourceInUse(CmserverError):
    """The port or the database belongs to another process."""


def exit_code(error: CmserverError) -> ExitCode:
    """The exit status for an error."""
    if isinstance(error, (DataDirInUse, ResourceInUse)):
        return ExitCode.IN_USE
    if isinstance(error, MigrationError):
        return ExitCode.SCHEMA
    if isinstance(error, (SetupError, Unavailable, ServerUnreachable)):
        return ExitCode.DATABASE
    return ExitCode.USAGE if isinstance(error, (BadSetting, UnsafeConnection)) else ExitCode.FAILURE
