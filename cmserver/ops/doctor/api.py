"""What is wrong with the server, over HTTP."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from cmserver.access.model import Principal
from cmserver.base.http.operation import get
from cmserver.base.http.wire import answer, caller, db, dependency
from cmserver.base.settings import Settings
from cmserver.ops.doctor.diagnose import diagnose
from cmserver.ops.doctor.wire import DiagnosisOut


async def get_doctor(request: Request) -> Response:
    """What is wrong with the server and its database, each with the command that mends it. Errors come first."""
    await caller(request, Principal)
    return answer(await diagnose(db(request), dependency(request, Settings)))


routes = [get("/v1/doctor", get_doctor, "*", DiagnosisOut)]
