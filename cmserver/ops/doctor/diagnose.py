"""Runs the checks that a server can make of itself."""

from __future__ import annotations

from cmserver.base.db import Db
from cmserver.base.settings import Settings
from cmserver.ops.doctor.database import check_database
from cmserver.ops.doctor.server import check_server
from cmserver.ops.doctor.wire import DiagnosisOut, diagnosis_out


async def diagnose(db: Db, settings: Settings) -> DiagnosisOut:
    """All checks that the server can make of itself."""
    return diagnosis_out([*await check_database(db, settings), *check_server(settings)], {"database", "server"})
