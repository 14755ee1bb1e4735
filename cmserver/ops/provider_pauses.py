"""Lists the providers with their pauses, and ends a pause."""

from __future__ import annotations

from cmserver.access import audit
from cmserver.access.model import Principal
from cmserver.base.db import Db
from cmserver.base.errors import Forbidden, NotFound
from cmserver.base.logs import get_logger
from cmserver.base.settings import Settings
from cmserver.base.sql import Conn
from cmserver.generation.job_notifier import JobNotifier
from cmserver.generation.operate.manage import resume_provider
from cmserver.models.calls import repository as calls
from cmserver.models.calls.provider_health import find_active_pause
from cmserver.models.providers.registry import chain_models
from cmserver.ops.wire import KnownProviderOut, pause_out

log = get_logger(__name__)


async def list_providers(db: Db, principal: Principal, settings: Settings) -> list[KnownProviderOut]:
    """The configured providers in the order in which they are tried, then others that are paused."""
    async with db.system() as conn:
        pauses = {pause.provider: pause for pause in await calls.PAUSES.all(conn) if pause.seconds_left > 0}
    models = {model.name: model.model for model in chain_models(settings)}
    return [
        KnownProviderOut(
            name=name,
            model=models.get(name),
            state="paused" if name in pauses else "ready",
            pause=pause_out(pauses[name], principal) if name in pauses else None,
        )
        for name in dict.fromkeys([*models, *pauses])
    ]


async def resume_paused_provider(db: Db, notifier: JobNotifier, principal: Principal, provider: str, settings: Settings) -> bool:
    """End the provider's pause; False when not paused. NotFound when not configured, Forbidden for a key of a project."""
    if principal.project_id is not None:
        raise Forbidden("This key is bound to a project; a provider's pause is one for the whole server.")

    async def resume(conn: Conn) -> bool:
        if await find_active_pause(conn, provider) is None:
            return False
        await resume_provider(conn, provider)
        await audit.record(conn, principal, "provider.resumed", "provider", provider)
        return True

    if await db.in_system(resume):
        log.info("provider.resumed", provider=provider)
        notifier.notify_due()
        return True
    names = [model.name for model in chain_models(settings)]
    if provider not in names:
        raise NotFound(f"There is no provider of that name here. CMSERVER_PROVIDER names: {', '.join(names)}.")
    return False
