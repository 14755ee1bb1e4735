"""What an answer must look like, as a value that looks like it: a class for any value of it, a value for exactly that one, a tuple
for one of several, a list for a list of such, a dict for an object with at least these fields."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

Shape = object


def differences(value: object, shape: Shape, at: str = "$") -> Iterator[str]:
    """A sentence for each place where the value is not as it must be. More fields are welcome."""
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            yield f"{at} is {value!r}, not an object"
            return
        members = cast("dict[str, object]", value)
        for name, inner in cast("dict[str, Shape]", shape).items():
            if name in members:
                yield from differences(members[name], inner, f"{at}.{name}")
            else:
                yield f"{at}.{name} is missing"
    elif isinstance(shape, list) and shape:
        if not isinstance(value, list):
            yield f"{at} is {value!r}, not a list"
            return
        (inner,) = cast("list[Shape]", shape)
        for place, one in enumerate(cast("list[object]", value)):
            yield from differences(one, inner, f"{at}[{place}]")
    elif isinstance(shape, tuple):
        if all(list(differences(value, one, at)) for one in cast("tuple[Shape, ...]", shape)):
            yield f"{at} is {value!r}, none of {shape!r}"
    elif isinstance(shape, type):
        if not isinstance(value, shape) or (shape is int and isinstance(value, bool)):
            yield f"{at} is {value!r}, not {shape.__name__}"
    elif value != shape:
        yield f"{at} is {value!r}, not {shape!r}"
