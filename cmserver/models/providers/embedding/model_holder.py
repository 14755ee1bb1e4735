"""Holds an embedder's model, which is loaded once per process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

Model = TypeVar("Model")


class ModelHolder(Generic[Model]):
    """Loads the model when it is first needed, in whichever thread that is."""

    def __init__(self, load: Callable[[], Model]) -> None:
        self._lock = threading.Lock()
        self._load = load
        self.model: Model | None = None

    def load(self) -> Model:
        """The model; raises what loading it raises, and loads it again the next time."""
        with self._lock:
            if self.model is None:
                self.model = self._load()
            return self.model
