"""Calibrates a new embedding model by itself, for each team once it has enough documents."""

from __future__ import annotations

from collections.abc import Callable

from cmserver.access.model import Principal
from cmserver.base.db import Db
from cmserver.base.errors import Conflict, Unavailable
from cmserver.base.logs import get_logger
from cmserver.base.settings import Settings
from cmserver.embeddings import repository as embeddings
from cmserver.embeddings.calibration import repository
from cmserver.embeddings.calibration.calibrate import MIN_TITLES, calibrate_team
from cmserver.embeddings.calibration.model import is_built_in
from cmserver.models.providers.embedding import registry as embedders
from cmserver.models.providers.embedding.model import Embedder, EmbedderSettings

log = get_logger(__name__)


async def calibrate_teams(db: Db, settings: Settings, make: Callable[[EmbedderSettings], Embedder] = embedders.make) -> None:
    """Calibrate the current model for each team with enough documents and no calibration. Failures are tried again later."""
    async with db.system() as conn:
        model = await embeddings.CURRENT.first(conn)
        if model is None or is_built_in(model.provider, model.model, model.dimensions):
            return
        teams = await repository.list_uncalibrated(conn, model.id, MIN_TITLES)
    for team in teams:
        try:
            await calibrate_team(db, settings, Principal.of_server(team.team_id, actor_id="calibration"), make)
        except Conflict as error:
            log.debug("embedder.not_calibrated", embedder=model.provider, model=model.model, reason=str(error))
        except Unavailable as error:
            log.warning("embedder.not_calibrated", embedder=model.provider, model=model.model, reason=str(error))
            return
