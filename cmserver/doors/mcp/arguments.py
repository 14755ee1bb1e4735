"""Reads a tool's arguments as clients write them: by the tool's Struct, whatever form a model has given its values."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import cast

import msgspec
from msgspec import inspect

from cmserver.base.errors import Invalid
from cmserver.base.json_text import decode_json
from cmserver.base.text import split_commas

_WHOLE = re.compile(r"[+-]?\d{1,18}(?:\.0{1,18})?", re.ASCII)
_NUMBER = re.compile(r"[+-]?\d{1,18}(?:\.\d{1,18})?", re.ASCII)
_EPOCH_MS = re.compile(r"\d{12,15}", re.ASCII)
"""Beside texts: a time. Shorter ones are numbers of observations, and dates."""
_ANY = (inspect.AnyType, inspect.CustomType)
_COUNTABLE = (inspect.IntType, inspect.FloatType, inspect.LiteralType, inspect.UUIDType)
"""Of these no value has a comma in it."""

Members = tuple[inspect.Type, ...]


def read_arguments(arguments: Mapping[str, object], struct: type[msgspec.Struct]) -> tuple[dict[str, object], list[str]]:
    """The arguments that the Struct has, each in a form that it takes where that is clear, and the names that it does not have.

    Null, and an empty text or list where the argument is optional, are as if it were left out. What is wrong stays so.
    """
    fields = _fields(struct)
    read: dict[str, object] = {}
    for name, value in arguments.items():
        field = fields.get(name)
        if field is None or value is None:
            continue
        members = _members(field.type)
        read_value = _read_value(value, members)
        is_empty = _is_empty(value, members) or _is_empty(read_value, members)
        if field.required or not is_empty:
            read[name] = read_value
    return read, [name for name in arguments if name not in fields]


@cache
def _fields(struct: type[msgspec.Struct]) -> dict[str, inspect.Field]:
    return {field.encode_name: field for field in cast("inspect.StructType", inspect.type_info(struct)).fields}


def _members(type_: inspect.Type) -> Members:
    """The types that a value may have, without what is left out when it is sent."""
    if isinstance(type_, inspect.Metadata):
        return _members(type_.type)
    if isinstance(type_, inspect.UnionType):
        return tuple(member for part in type_.types for member in _members(part))
    return () if isinstance(type_, inspect.NoneType) else (type_,)


def _is_empty(value: object, members: Members) -> bool:
    if isinstance(value, str):
        return not value.strip() and not _has(members, *_ANY)
    return value == [] and any(isinstance(member, inspect.ListType) and member.min_length for member in members)


def _has(members: Members, *kinds: type[inspect.Type]) -> bool:
    return any(isinstance(member, kinds) for member in members)


def _read_value(value: object, members: Members) -> object:
    if _has(members, *_ANY):
        return value
    lists = next((member for member in members if isinstance(member, inspect.ListType)), None)
    if lists is not None:
        items = _read_items(value, lists, is_text=_has(members, inspect.StrType))
        if items is not None:
            return [_read_value(item, _members(lists.item_type)) for item in items if item is not None]
    if isinstance(value, float) and value.is_integer() and _has(members, inspect.IntType):
        return int(value)
    return _read_text(value, members) if isinstance(value, str) else value


def _read_items(value: object, lists: inspect.ListType, *, is_text: bool) -> Sequence[object] | None:
    """The items of a list, of a list that was written as text, or of one thing for a list of one; None where it is a text."""
    if isinstance(value, list):
        return cast("list[object]", value)
    if not isinstance(value, str):
        return [value]
    if value.lstrip().startswith("["):
        items = _decode(value)
        if isinstance(items, list):
            return cast("list[object]", items)
    if is_text:
        return None
    if not value.strip():
        return []
    has_commas = _has(_members(lists.item_type), *_COUNTABLE) and not value.lstrip().startswith("[")
    return split_commas(value) if has_commas else [value]


def _read_text(text: str, members: Members) -> object:
    """A number, a truth value, a word of a list or an object that was written as text."""
    word = text.strip()
    words = [value for member in members if isinstance(member, inspect.LiteralType) for value in member.values]
    if words:
        return next((value for value in words if str(value).casefold() == word.casefold()), text)
    if _has(members, inspect.StrType):
        return int(word) if _has(members, inspect.IntType) and _EPOCH_MS.fullmatch(word) else text
    for kind, read in _READERS.items():
        if _has(members, kind) and (value := read(word)) is not None:
            return value
    return text


def _read_object(word: str) -> object:
    value = _decode(word) if word.startswith("{") else None
    return cast("object", value) if isinstance(value, dict) else None


_READERS: dict[type[inspect.Type], Callable[[str], object]] = {
    inspect.BoolType: lambda word: {"true": True, "false": False}.get(word.casefold()),
    inspect.IntType: lambda word: int(word.partition(".")[0]) if _WHOLE.fullmatch(word) else None,
    inspect.FloatType: lambda word: float(word) if _NUMBER.fullmatch(word) else None,
    inspect.DictType: _read_object,
}


def _decode(text: str) -> object:
    try:
        return decode_json(text.encode("utf-8", "surrogateescape"))
    except (Invalid, UnicodeEncodeError):
        return None
