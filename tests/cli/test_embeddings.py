"""`cmserver embeddings`."""

from __future__ import annotations

from cmserver.base.db import Db
from cmserver.embeddings.calibration.calibrate import MIN_TITLES
from cmserver.embeddings.calibration.model import BUILT_IN
from cmserver.embeddings.calibration.wire import CalibrationOut
from cmserver.embeddings.wire import EmbeddingStateOut, RetriedEmbeddingsOut
from tests.cli.conftest import Cms
from tests.conftest import Cast
from tests.embeddings.calibration.conftest import Calibrated, calibrated, room, vectors
from tests.embeddings.calibration.test_calibrate import make_local
from tests.make import Make

__all__ = ["calibrated", "room", "vectors"]  # fixtures


async def fail(db: Db, make: Make, cast: Cast) -> None:
    async with db.system() as conn:
        await conn.execute("INSERT INTO embedding_models (provider, model, state) VALUES ('ollama', 'nomic', 'current')")
    await make.observation(project=cast.alice.project)
    async with db.system() as conn:
        await conn.execute("UPDATE observation_embeddings SET last_error = 'refused', next_at = 'infinity'")


async def test_the_model_and_what_keeps_it_are_shown(cms: Cms, cast: Cast, db: Db, make: Make):
    await fail(db, make, cast)

    said = await cms("embeddings", "status", "--wait", key=cast.alice.key)  # what fails is not waited for

    assert said.code == 0, said.err
    assert "nomic" in said.out
    assert "refused to answer" in said.out


async def test_what_failed_is_tried_again(cms: Cms, cast: Cast, db: Db, make: Make):
    await fail(db, make, cast)

    first = await cms("embeddings", "retry", key=cast.alice.key)
    again = await cms("embeddings", "retry", "--operator", "--team", "red", "--json")

    assert (first.code, first.out) == (0, "Failed embeddings that are tried again now: 1.\n")
    assert again.read(RetriedEmbeddingsOut).retried == 0
    assert (await cms("embeddings", "status", "--json", key=cast.alice.key)).read(EmbeddingStateOut).reasons[0].given_up == 0


async def test_what_an_embedder_s_cosines_mean_is_measured_and_shown(cms: Cms, cast: Cast, calibrated: Calibrated):
    model = calibrated.use("local", BUILT_IN[1], 128)
    await calibrated.fill(cast.alice.project, MIN_TITLES, model, make_local(128))

    said = await cms("embeddings", "calibrate", key=cast.alice.key)
    as_json = (await cms("embeddings", "calibrate", "--json", key=cast.alice.key)).read(CalibrationOut)

    assert said.code == 0, said.err
    assert f"{as_json.even_cosine:.3f}" in said.out
    assert as_json.titles == MIN_TITLES
    calibrated.room.ask("UPDATE embedding_models SET dimensions = 256, asked_dimensions = NULL")
    refused = await cms("embeddings", "calibrate", key=cast.alice.key)
    assert (refused.code, "needs no calibration" in refused.err) == (1, True)
