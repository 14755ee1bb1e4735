"""Calibrating an embedder over HTTP."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from cmserver.access.model import Principal
from cmserver.base.errors import Forbidden
from cmserver.base.http.operation import post
from cmserver.base.http.wire import answer, caller, db, dependency
from cmserver.base.settings import Settings
from cmserver.embeddings.calibration.calibrate import calibrate_team
from cmserver.embeddings.calibration.wire import CalibrationOut


async def post_calibrate(request: Request) -> Response:
    """Measure anew, with titles of the team's documents, what the embedder's cosines mean; its searches go by that from then on."""
    principal = await caller(request, Principal)
    if principal.project_id is not None:
        raise Forbidden("This key is bound to a project, and a calibration is the team's. Use a key of the whole team.")
    calibrated = await calibrate_team(db(request), dependency(request, Settings), principal)
    model, calibration = calibrated.model, calibrated.calibration
    return answer(
        CalibrationOut(
            embedder=model.provider,
            model=model.model,
            titles=calibration.titles,
            intercept=round(calibration.intercept, 3),
            slope=round(calibration.slope, 3),
            even_cosine=round(-calibration.intercept / calibration.slope, 3),
        )
    )


routes = [
    post("/v1/embeddings/calibrate", post_calibrate, "jobs:write", CalibrationOut),
]
