"""Exit codes, and the one table from refusals to them."""

from __future__ import annotations

from enum import IntEnum

from cmserver.base.configuration import BadSetting
from cmserver.base.errors import CmserverError, Unavailable
from cmserver.base.migrate import MigrationError
from cmserver.base.postgres import DataDirInUse, SetupError


class Exit(IntEnum):
    """What the exit status of cmserver says."""

    OK = 0
    NO = 1  # the answer is no: sums do not hold, the server is not running, something broke
    USAGE = 2  # a setting or an argument is wrong
    DATABASE = 3  # the database, or the server that a command asks, cannot be reached; or it cannot be set up
    SCHEMA = 4  # the database cannot be brought to this program's schema
    IN_USE = 5  # the data folder or the port belongs to another process


MEANING: dict[Exit, str] = {
    Exit.OK: "It worked; a server was stopped by Ctrl-C or SIGTERM and has drained.",
    Exit.NO: "The answer is no (refused, not found, the sums do not hold, the server is not running), or something broke; "
    "the log says what.",
    Exit.USAGE: "A setting or an argument is wrong, or a --yes is missing; one sentence says which.",
    Exit.DATABASE: "The database, or the server that a command asks, cannot be reached; or the database cannot be set up.",
    Exit.SCHEMA: "The database cannot be brought to this program's schema (too old, made by a newer cmserver, rights missing).",
    Exit.IN_USE: "The data folder or the port belongs to another process.",
}


class InUse(CmserverError):
    """The port belongs to another process."""


class Unreachable(CmserverError):
    """The server that a command asks does not answer."""


def exit_code(error: CmserverError) -> Exit:
    """What a refusal is as an exit status."""
    if isinstance(error, (DataDirInUse, InUse)):
        return Exit.IN_USE
    if isinstance(error, MigrationError):
        return Exit.SCHEMA
    if isinstance(error, (SetupError, Unavailable, Unreachable)):
        return Exit.DATABASE
    return Exit.USAGE if isinstance(error, BadSetting) else Exit.NO
