"""Which model embeds: what the operator has chosen becomes what all use, at once or when it knows everything that is known."""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit

import structlog
from psycopg.errors import LockNotAvailable
from structlog.typing import FilteringBoundLogger

from cmserver.base.db import Db
from cmserver.base.errors import Invalid, Unavailable
from cmserver.base.settings import Settings
from cmserver.base.sql import Conn
from cmserver.observations.embedding import repository
from cmserver.observations.embedding.model import EmbeddingModel
from cmserver.providers.embedding import registry
from cmserver.providers.embedding.model import Embedder, EmbedderGiven

log: FilteringBoundLogger = structlog.get_logger(__name__)

LOCK_MILLISECONDS = 2000


class InUse(Unavailable):
    """Somebody has read the models for longer than one can wait for him, as a dump does: whoever writes would wait as well."""


async def current(conn: Conn) -> EmbeddingModel | None:
    """The model that search uses; None without one, or without pgvector."""
    return await repository.current(conn)


def given_of(settings: Settings, model: EmbeddingModel) -> EmbedderGiven:
    """How the model is asked: as the settings say where they mean it, else as the database remembers it, with the settings' key."""
    chosen = registry.chosen(settings)
    if chosen is not None and is_same(chosen, chosen.model, model):
        return chosen
    return EmbedderGiven(
        provider=model.provider,
        model=model.model,
        base_url=model.base_url,
        dimensions=model.asked_dimensions,
        api_key=registry.key_of(settings, model.provider, model.base_url),
        timeout_seconds=settings.provider_timeout_seconds,
    )


def is_same(given: EmbedderGiven, named: str | None, model: EmbeddingModel) -> bool:
    """Whether that embedder, asked for the model of that name, makes the vectors of this one."""
    lengths = {model.asked_dimensions} if given.dimensions is None else {model.asked_dimensions, model.dimensions}
    return (
        given.provider == model.provider
        and named == model.model
        and without_user(given.base_url) == model.base_url
        and given.dimensions in lengths
    )


def without_user(url: str | None) -> str | None:
    """The address without a name and password: it is remembered, and they are not."""
    if url is None:
        return None
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


async def settle(db: Db, settings: Settings) -> None:
    """Let the model that the settings name be the one that is wanted. At the start of a worker; InUse, Unavailable: try it again.

    `none` retires what there is: nothing waits, and search goes by words. An embedder that cannot be made (`local` is not installed
    here, a key is missing) changes nothing, and neither does `auto` where that finds none: perhaps only this machine lacks it.
    """
    async with db.system() as conn:
        if not await repository.is_possible(conn):
            return
        known = await repository.models(conn)
    given = registry.chosen(settings)
    embedder: Embedder | None = None
    if given is None and settings.embedder != "none":
        return
    if given is not None:
        try:
            embedder = registry.make(given)
        except Invalid:
            return  # whoever embeds says so, see keep.py
    try:
        if not _is_settled(known, given, embedder):
            await db.in_system(lambda conn: _change(conn, given, embedder))
    finally:
        if embedder is not None:
            await embedder.close()


def _is_settled(known: list[EmbeddingModel], given: EmbedderGiven | None, embedder: Embedder | None) -> bool:
    wanted = [one for one in known if one.state != "retired"]
    if given is None or embedder is None:
        return not wanted
    return bool(wanted) and is_same(given, embedder.model, wanted[-1])


async def _change(conn: Conn, given: EmbedderGiven | None, embedder: Embedder | None) -> None:
    await _lock(conn)
    known = {one.state: one for one in await repository.models(conn)}
    now, building = known.get("current"), known.get("building")
    if given is None or embedder is None:
        for one in filter(None, (now, building)):
            await repository.retire(conn, one.id)
        log.info("embeddings.ended")
        return
    if building is not None:
        if is_same(given, embedder.model, building):
            return  # another worker was first
        await repository.retire(conn, building.id)
    if now is not None and is_same(given, embedder.model, now):
        return
    added = await repository.add_model(
        conn,
        provider=embedder.provider,
        model=embedder.model,
        base_url=without_user(given.base_url),
        asked_dimensions=given.dimensions,
        dimensions=embedder.dimensions,
        state="current" if now is None else "building",
    )
    log.info("embeddings.began", model_id=added.id, embedder=added.provider, model=added.model, state=added.state)


async def _lock(conn: Conn) -> None:
    try:
        await repository.lock_models(conn, LOCK_MILLISECONDS)
    except LockNotAvailable as error:
        raise InUse("Other transactions keep the embedding models from being changed; try again in a minute.") from error


async def switch(db: Db, building: EmbeddingModel) -> bool:
    """Let the model that is building be the current one, if it has all that is known; whether it is now. InUse: try it again."""
    async with db.system() as conn:
        if await _lacks(conn, building.id):
            return False
    return await db.in_system(lambda conn: _switch(conn, building))


async def _lacks(conn: Conn, model_id: int) -> bool:
    """Whether it is not building any more, or anything is left to embed."""
    known = {one.id: one for one in await repository.models(conn)}
    model = known.get(model_id)
    return model is None or model.state != "building" or not model.is_backfilled or await repository.has_waiting(conn, model_id)


async def _switch(conn: Conn, building: EmbeddingModel) -> bool:
    await _lock(conn)
    if await _lacks(conn, building.id):
        return False
    now = await repository.current(conn)
    if now is not None:
        await repository.retire(conn, now.id)
    await repository.promote(conn, building.id)
    log.info("embeddings.switched", model_id=building.id, embedder=building.provider, model=building.model)
    return True
