"""Converts Structs: rows into wire Structs, and back."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TypeVar

import msgspec

from cmserver.base.ids import epoch_ms_or_none, from_epoch_ms

S = TypeVar("S", bound=msgspec.Struct)


def reshape(source: msgspec.Struct, target: type[S], /, **others: object) -> S:
    """The source as a `target`: fields have the values of the same name, or those in `others`.

    Times are epoch milliseconds where the name says so: `created_at_epoch` is made of `created_at`, and the other way round.
    TypeError when a field without a default gets no value, or `others` has a name that is no field.
    """
    return _constructor(type(source), target, tuple(others))(source, others)


@lru_cache(maxsize=512)
def _constructor(
    source: type[msgspec.Struct], target: type[S], others: tuple[str, ...]
) -> Callable[[msgspec.Struct, dict[str, object]], S]:
    """Compiled once per pair of types, as dataclasses do with their methods, for speed."""
    if unknown := set(others) - set(target.__struct_fields__):
        raise TypeError(f"{target.__name__} has no {', '.join(sorted(unknown))}")
    source_fields = set(source.__struct_fields__)
    values: list[str] = []
    for name in target.__struct_fields__:
        time_name, epoch_name = name.removesuffix("_epoch"), f"{name}_epoch"
        if name in others:
            values.append(f"{name}=others['{name}']")
        elif name in source_fields:
            values.append(f"{name}=source.{name}")
        elif time_name in source_fields:
            values.append(f"{name}=epoch_ms_or_none(source.{time_name})")
        elif epoch_name in source_fields:
            values.append(f"{name}=None if source.{epoch_name} is None else from_epoch_ms(source.{epoch_name})")
    names = {"target": target, "epoch_ms_or_none": epoch_ms_or_none, "from_epoch_ms": from_epoch_ms}
    return eval(f"lambda source, others: target({', '.join(values)})", names)  # noqa: S307 - of field names
