"""Answers of a run that was interrupted: they were paid for, so the next run of the same prompts does not ask again."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

from cmserver.models.providers.model import Completion, Prompt, Provider


class KeptAnswers:
    """A provider that asks another one, and keeps each answer in the file until `forget`. `place` says where that one is."""

    def __init__(self, provider: Provider, place: str | None, file: Path) -> None:
        self._provider, self._file = provider, file
        self.name, self.model = provider.name, provider.model
        self._place = place
        try:
            self._answers = msgspec.json.decode(file.read_bytes(), type=dict[str, Completion])
        except (OSError, msgspec.MsgspecError):
            self._answers = {}

    async def complete(self, prompt: Prompt) -> Completion:
        """The kept answer to this prompt, or a new one."""
        asked = msgspec.json.encode((self.name, self.model, self._place, prompt))
        digest = hashlib.sha256(asked).hexdigest()
        if digest not in self._answers:
            self._answers[digest] = await self._provider.complete(prompt)
            self._file.parent.mkdir(exist_ok=True)
            self._file.write_bytes(msgspec.json.encode(self._answers))
        return self._answers[digest]

    def forget(self) -> None:
        """The run is complete: the next one asks for everything."""
        self._file.unlink(missing_ok=True)
