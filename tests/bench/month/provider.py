"""The provider of the simulated month: it says what agents say in the history that is kept beside it, unless it is away."""

from __future__ import annotations

import os
import random
from pathlib import Path

from cmserver.models.providers.model import Completion, DraftObservation, FailureKind, Prompt, ProviderError
from tests.bench.instant import Instant
from tests.bench.recall.corpora import history

AWAY = "BENCH_MONTH_AWAY"
"""The variable that names the file whose presence means that the provider is away."""


class Unsteady(Instant):
    """For CMSERVER_PROVIDER=tests.bench.month.provider:make."""

    def __init__(self, away: Path) -> None:
        super().__init__()
        self._away = away
        self._known = [document for document in history.load().documents if not document.is_summary]

    async def complete(self, prompt: Prompt) -> Completion:
        if self._away.exists():
            raise ProviderError(FailureKind.TRANSIENT, "The provider of the simulation is away.", 1.0, out_of_reach=True)
        return await super().complete(prompt)

    def draw(self, tag: str, number: int) -> DraftObservation:
        """A title, a narrative and facts of three observations of the history: real words, and hardly twice the same."""
        named, told, known = (random.choice(self._known) for _ in range(3))
        return DraftObservation(
            type="change",
            title=named.title,
            narrative=told.narrative,
            facts=list(known.facts),
            concepts=["how-it-works"],
            files_modified=list(named.files_modified),
            events=[tag],
        )


def make() -> Unsteady:
    return Unsteady(Path(os.environ[AWAY]))
