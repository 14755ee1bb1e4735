"""The doctor: what is wrong with the server, and what mends it."""

from __future__ import annotations

from starlette.responses import Response

from cmserver.base.settings import Settings
from cmserver.doors.web.page import Page
from cmserver.doors.web.visit import Visit
from cmserver.ops.doctor.diagnose import diagnose
from cmserver.ops.model_health import describe_wording


async def get_doctor(visit: Visit) -> Response:
    """What is wrong with the server and its database, each with the command that mends it."""
    settings = visit.dependency(Settings)
    diagnosis = await diagnose(visit.db, settings)
    wording = describe_wording(settings, diagnosis.answers)
    return visit.render("doctor.html", title="Doctor", diagnosis=diagnosis, wording=wording)


routes = [Page("GET", "/ui/doctor", get_doctor, scope="", is_for_operators=True)]
