"""The provider of the simulated month: as `instant`, unless it is away."""

from __future__ import annotations

import os
from pathlib import Path

from cmserver.providers.model import Completion, FailureKind, Prompt, ProviderError
from tests.bench.instant import Instant

AWAY = "BENCH_MONTH_AWAY"
"""The variable that names the file whose presence means that the provider is away."""


class Unsteady(Instant):
    """For CMSERVER_PROVIDER=tests.bench.month.provider:make."""

    def __init__(self, away: Path) -> None:
        super().__init__()
        self._away = away

    async def complete(self, prompt: Prompt) -> Completion:
        if self._away.exists():
            raise ProviderError(FailureKind.TRANSIENT, "The provider of the simulation is away.", 1.0, out_of_reach=True)
        return await super().complete(prompt)


def make() -> Unsteady:
    return Unsteady(Path(os.environ[AWAY]))
