"""Finds what a field may be, where it is one of a few texts."""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import inspect

_STEP = re.compile(r"\.(\w+)|\[")
"""A step of msgspec's paths: `.field`, `[3]`, or `[...]` for a value of a dict."""


def list_allowed_values(type_: object, path: str) -> list[str]:
    """The texts that the type allows at the path (`$.kinds[1]`), in alphabetical order; empty where it is not limited to some."""
    found = list(_members(inspect.type_info(type_)))
    for step in _STEP.finditer(path):
        found = [member for outer in found for inner in _inner(outer, step[1]) for member in _members(inner)]
    values: list[str] = []
    for member in found:
        if isinstance(member, inspect.LiteralType):
            values += [value for value in member.values if isinstance(value, str)]
        elif isinstance(member, inspect.EnumType):
            values += [str(one.value) for one in member.cls]
    return sorted(set(values))


def _members(type_: inspect.Type) -> Iterator[inspect.Type]:
    """The types of a union, without what is annotated to them."""
    if isinstance(type_, inspect.Metadata):
        yield from _members(type_.type)
    elif isinstance(type_, inspect.UnionType):
        for member in type_.types:
            yield from _members(member)
    else:
        yield type_


def _inner(type_: inspect.Type, field: str | None) -> Iterator[inspect.Type]:
    """The type of the field, or of the items where it is None."""
    if isinstance(type_, inspect.StructType):
        yield from (member.type for member in type_.fields if member.encode_name == field)
    elif isinstance(type_, inspect.CollectionType) and field is None:
        yield type_.item_type
    elif isinstance(type_, inspect.DictType) and field is None:
        yield type_.value_type
