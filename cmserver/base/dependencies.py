"""The instances that handlers, MCP tools and the server share, found by their class."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


class Dependencies:
    """One instance per class. `create_app` provides them."""

    def __init__(self, *instances: object) -> None:
        self._instances = {type(instance): instance for instance in instances}

    def get(self, class_: type[T]) -> T:
        """The instance of exactly this class; LookupError when none is provided."""
        instance = self._instances.get(class_)
        if isinstance(instance, class_):
            return instance
        raise LookupError(f"No {class_.__name__} is provided: pass one to Dependencies in cmserver/app.py.")

    def replace(self, instance: object) -> None:
        """Provide this instance in place of the one of its class; LookupError when there is none."""
        self.get(type(instance))
        self._instances[type(instance)] = instance

    @property
    def classes(self) -> set[type]:
        return set(self._instances)
