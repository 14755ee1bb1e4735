"""Calls a provider for what is no batch of events: recorded before it is made, within budgets, outside of transactions."""

from __future__ import annotations

import asyncio
import time
from uuid import UUID

import msgspec

from cmserver.base.db import Db
from cmserver.base.ids import new_id
from cmserver.base.metrics import metrics
from cmserver.base.settings import Settings
from cmserver.base.sql import Conn
from cmserver.models.calls import budget, repository
from cmserver.models.calls.complete import ANSWER_TOKENS, clamp_completion, complete_in_time, truncated_error
from cmserver.models.calls.provider_health import find_active_pause
from cmserver.models.providers import registry
from cmserver.models.providers.model import UNUSABLE_KINDS, Completion, FailureKind, Prompt, Provider, ProviderError
from cmserver.models.providers.prices import compute_cost
from cmserver.models.providers.prompts.render import estimate_tokens


class RecordedCaller:
    """Calls the configured providers. A provider is made when it is first needed."""

    def __init__(self, db: Db, settings: Settings) -> None:
        self._db = db
        self._settings = settings
        self._providers: dict[str, Provider] = {}

    @property
    def first_provider(self) -> str:
        """The name of the provider that is asked first; `offline` where none is."""
        return registry.provider_settings(self._settings)[0].name

    async def load_provider(self) -> Provider | None:
        """The first provider that is not paused; None when that is `offline`, or none is left. Invalid for wrong settings."""
        for entry in registry.provider_settings(self._settings):
            if entry.name == "offline":
                return None
            if entry.name not in self._providers:  # in a thread: a client library may take a second to load
                self._providers[entry.name] = await asyncio.to_thread(registry.load, entry)
            provider = self._providers[entry.name]
            async with self._db.system() as conn:
                pause = await find_active_pause(conn, provider.name)
            if pause is None:
                return provider
        return None

    async def call(
        self, team_id: UUID, project_id: UUID, provider: Provider, prompt: Prompt, *, seconds: float | None = None
    ) -> Completion | None:
        """Make the call, within `seconds`, and record it without its text; None when a budget is spent and nothing sent."""
        run_id = new_id()
        estimate = Completion(text="", model=provider.model, input_tokens=estimate_tokens(prompt), output_tokens=ANSWER_TOKENS)

        async def begin(conn: Conn) -> bool:
            if await budget.admit(conn, team_id=team_id, project_id=project_id):
                return False
            await repository.begin_run(
                conn,
                run_id=run_id,
                team_id=team_id,
                project_id=project_id,
                lane=run_id,
                claim=0,
                kind=prompt.kind,
                provider=provider.name,
                job_ids=[],
                estimate=estimate,
                cost_usd=compute_cost(provider.name, estimate),
            )
            return True

        if not await self._db.in_system(begin):
            return None
        started = time.monotonic()
        timeout_seconds = min(seconds or self._settings.provider_timeout_seconds, self._settings.provider_timeout_seconds)
        try:
            completion = clamp_completion(await complete_in_time(provider, prompt, timeout_seconds))
            error = truncated_error(completion) if completion.truncated else None
        except ProviderError as failure:
            completion, error = failure.completion and clamp_completion(failure.completion), failure
        except Exception as failure:  # noqa: BLE001 - a provider of the operator's own may raise anything
            completion, error = None, ProviderError(FailureKind.TRANSIENT, f"{failure!r}", perhaps_paid=True)
        status = "applied" if error is None else "failed" if completion is None else "unusable"
        recorded = completion and msgspec.structs.replace(completion, text="")
        latency_ms = round((time.monotonic() - started) * 1000)
        price = completion and compute_cost(provider.name, completion)

        async def finish(conn: Conn) -> None:
            await repository.finish_run(
                conn, run_id, status, latency_ms=latency_ms, completion=recorded, cost_usd=price, error=error
            )

        await self._db.in_system(finish)
        if error is None or error.kind in UNUSABLE_KINDS:
            metrics().answers.labels(provider.name, "yes" if error is None else "no").inc()
        if error is not None:
            raise error
        return completion
