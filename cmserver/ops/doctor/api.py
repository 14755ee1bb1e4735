"""What is wrong with the server, over HTTP."""

from __future__ import annotations

from cmserver.access import verb
from cmserver.base.db import Db
from cmserver.base.settings import Settings
from cmserver.ops.doctor.diagnose import diagnose
from cmserver.ops.doctor.wire import DiagnosisOut


@verb.get("/v1/doctor", "*")
async def get_doctor(call: verb.VerbCall) -> DiagnosisOut:
    """What is wrong with the server and its database, each with the command that mends it. Errors come first."""
    return await diagnose(call.dependency(Db), call.dependency(Settings))


routes = [get_doctor]
