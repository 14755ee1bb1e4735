"""Runs the checks that a server can make of itself."""

from __future__ import annotations

import psycopg

from cmserver.base.db import Db
from cmserver.base.errors import Unavailable
from cmserver.base.settings import Settings
from cmserver.ops.doctor.database import check_database
from cmserver.ops.doctor.server import check_server
from cmserver.ops.doctor.wire import DiagnosisOut, diagnosis_out
from cmserver.ops.model_health import read_model_health
from cmserver.ops.wire import AnswersOut


async def diagnose(db: Db, settings: Settings) -> DiagnosisOut:
    """All checks that the server can make of itself."""
    findings = [*await check_database(db, settings), *check_server(settings)]
    return diagnosis_out(findings, {"database", "server"}, await read_answers(db, settings))


async def read_answers(db: Db, settings: Settings) -> AnswersOut | None:
    """How the models do for the whole server; None while rules alone word the memory, or when the database does not tell."""
    try:
        async with db.system() as conn:
            return await read_model_health(conn, settings, None)
    except (Unavailable, psycopg.Error):
        return None  # which is a finding of its own
