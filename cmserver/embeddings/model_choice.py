"""Which model embeds: what the operator has chosen becomes what all use, at once or when it knows everything that is known."""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit

from psycopg.errors import LockNotAvailable

from cmserver.base.db import Db
from cmserver.base.errors import Invalid, Unavailable
from cmserver.base.logs import get_logger
from cmserver.base.settings import Settings
from cmserver.base.sql import Conn
from cmserver.embeddings import repository
from cmserver.embeddings.model import EmbeddingModel
from cmserver.models.providers.embedding import registry as embedders
from cmserver.models.providers.embedding.model import Embedder, EmbedderSettings
from cmserver.models.providers.embedding.prompt_styles import choose_style

log = get_logger(__name__)

LOCK_MILLISECONDS = 2000


class ModelsInUseError(Unavailable):
    """Another transaction, of a dump for instance, keeps the models locked. Waiting longer would block all writers."""


def settings_of_model(settings: Settings, model: EmbeddingModel) -> EmbedderSettings:
    """The settings of the model's embedder: the configured ones if they name this model, else those stored with it and a key."""
    chosen = embedders.embedder_settings(settings)
    if chosen is not None and is_same(chosen, chosen.model, model):
        return chosen
    return EmbedderSettings(
        provider=model.provider,
        model=model.model,
        base_url=model.base_url,
        dimensions=model.asked_dimensions,
        document_prefix=model.document_prefix,
        api_key=embedders.embedder_key(settings, model.provider, model.base_url),
        timeout_seconds=settings.provider_timeout_seconds,
    )


def is_same(embedder_settings: EmbedderSettings, named: str | None, model: EmbeddingModel) -> bool:
    """Whether that embedder, asked for the model of that name, makes the vectors of this one."""
    return (
        embedder_settings.provider == model.provider
        and named == model.model
        and without_user(embedder_settings.base_url) == model.base_url
        and embedder_settings.dimensions == model.asked_dimensions
        and choose_style(embedder_settings, model.model).document == model.document_prefix
    )


def without_user(url: str | None) -> str | None:
    """The address without a name and password: it is remembered, and they are not."""
    if url is None:
        return None
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


async def apply_choice(db: Db, settings: Settings) -> None:
    """Make the model that the settings name the wanted one, at the start of a worker. ModelsInUseError and Unavailable: try again.

    `none` retires what there is: nothing waits, and search goes by words. An embedder that cannot be made (`local` is not installed
    here, a key is missing) changes nothing, and neither does `auto` where that finds none: perhaps only this machine lacks it.
    """
    async with db.system() as conn:
        if not await repository.IS_POSSIBLE.one(conn):
            return
        known = await repository.MODELS.all(conn)
    embedder_settings = embedders.embedder_settings(settings)
    embedder: Embedder | None = None
    if embedder_settings is None and settings.embedder != "none":
        return
    if embedder_settings is not None:
        try:
            embedder = embedders.make(embedder_settings)
        except Invalid:
            return  # the embedding worker logs it
    try:
        if not _is_settled(known, embedder_settings, embedder):
            await db.in_system(lambda conn: _change(conn, embedder_settings, embedder))
    finally:
        if embedder is not None:
            await embedder.close()


def _is_settled(known: list[EmbeddingModel], embedder_settings: EmbedderSettings | None, embedder: Embedder | None) -> bool:
    wanted_models = [model for model in known if model.state != "retired"]
    if embedder_settings is None or embedder is None:
        return not wanted_models
    return bool(wanted_models) and is_same(embedder_settings, embedder.model, wanted_models[-1])


async def _change(conn: Conn, embedder_settings: EmbedderSettings | None, embedder: Embedder | None) -> None:
    await _lock(conn)
    known = {model.state: model for model in await repository.MODELS.all(conn)}
    current, building = known.get("current"), known.get("building")
    if embedder_settings is None or embedder is None:
        for model in filter(None, (current, building)):
            await repository.retire(conn, model.id)
        log.info("embeddings.ended")
        return
    if building is not None:
        if is_same(embedder_settings, embedder.model, building):
            return  # another worker was first
        await repository.retire(conn, building.id)
    if current is not None and is_same(embedder_settings, embedder.model, current):
        return
    added = await repository.add_model(
        conn,
        provider=embedder.provider,
        model=embedder.model,
        base_url=without_user(embedder_settings.base_url),
        asked_dimensions=embedder_settings.dimensions,
        dimensions=embedder.dimensions,
        document_prefix=choose_style(embedder_settings, embedder.model).document,
        state="current" if current is None else "building",
    )
    log.info("embeddings.began", model_id=added.id, embedder=added.provider, model=added.model, state=added.state)


async def _lock(conn: Conn) -> None:
    try:
        await repository.lock_models(conn, LOCK_MILLISECONDS)
    except LockNotAvailable as error:
        raise ModelsInUseError("Other transactions keep the embedding models from being changed; try again in a minute.") from error


async def switch(db: Db, building: EmbeddingModel) -> bool:
    """Make the building model the current one if its backfill is complete; whether it is now. ModelsInUseError: try again."""
    async with db.system() as conn:
        if await _lacks(conn, building.id):
            return False
    return await db.in_system(lambda conn: _switch(conn, building))


async def _lacks(conn: Conn, model_id: int) -> bool:
    """Whether it is not building any more, or anything is left to embed."""
    known = {model.id: model for model in await repository.MODELS.all(conn)}
    model = known.get(model_id)
    return model is None or model.state != "building" or not model.is_backfilled or await repository.has_waiting(conn, model_id)


async def _switch(conn: Conn, building: EmbeddingModel) -> bool:
    """Make the model that is building the current one; False while it lacks vectors."""
    await _lock(conn)
    if await _lacks(conn, building.id):
        return False
    current = await repository.CURRENT.first(conn)
    if current is not None:
        await repository.retire(conn, current.id)
    await repository.promote(conn, building.id)
    log.info("embeddings.switched", model_id=building.id, embedder=building.provider, model=building.model)
    return True
