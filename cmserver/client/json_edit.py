"""Adds members and items to JSON text and takes them away again, at any depth, so that all other text stays byte for byte."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

import msgspec

from cmserver.client.json_settings import (
    UnusableSettings,
    find_indent,
    find_line_end,
    find_members,
    json_object,
    parse_settings,
    render_value,
)

_MISSING = object()

Pointer = tuple[str, ...]
"""The names on the way from the outermost object to a value."""


class Addition(msgspec.Struct, frozen=True, kw_only=True):
    """A value of ours in an object or a list of the file."""

    container: Pointer
    """The object or the list; it is made where it is missing."""
    name: str | None
    """The member's name; None for an item of a list."""
    value: object
    is_ours: Callable[[object], bool]
    """Recognises our value, also one that another version wrote."""
    yields: bool = False
    """Whether a member of that name with another value stays, and ours is left out."""
    joins: bool = False
    """Whether ours is left out where the file has no such container, or a member of that name with another value."""


def add_values(path: Path, text: str | None, additions: Sequence[Addition]) -> tuple[str, list[str]]:
    """The text with exactly these values of ours, and what was made for them: the containers, "" for the whole text.

    A value that is right stays in its place. Raises `UnusableSettings` when a container has another type or somebody else's value
    stands in our place.
    """
    is_new = text is None or not text.strip()
    text = "{}\n" if is_new else cast("str", text)
    parse_settings(path, text)
    made = [""] if is_new else []
    for container in dict.fromkeys(addition.container for addition in additions):
        wanted = [addition for addition in additions if addition.container == container]
        text = _remove_stale(path, text, wanted)
        for addition in wanted:
            text, new = _add(path, text, addition)
            made += [_encode(pointer) for pointer in new]
    return text, made


def remove_values(path: Path, text: str | None, additions: Sequence[Addition], made: Sequence[str]) -> str | None:
    """The text without our values, and without the containers that were made for them if they are empty; None for no file."""
    if text is None or not text.strip():
        return text
    parse_settings(path, text)
    for addition in additions:
        text = _remove_matching(
            path, text, addition, lambda value, addition=addition: addition.is_ours(value) and not addition.yields
        )
    yielding = {(*addition.container, addition.name or ""): addition.value for addition in additions if addition.yields}
    containers = {_decode(pointer) for pointer in made if pointer} - yielding.keys()
    for pointer in sorted(containers, key=len, reverse=True):
        if _value(path, text, pointer) in ({}, []):
            text = _remove_at(text, pointer[:-1], pointer[-1])
    if all(_value(path, text, pointer) is _MISSING for pointer in containers):  # else somebody uses what was made for us
        for pointer, value in yielding.items():
            if _encode(pointer) in made and _value(path, text, pointer) == value:
                text = _remove_at(text, pointer[:-1], pointer[-1])
    return None if "" in made and parse_settings(path, text) == {} else text


def _add(path: Path, text: str, addition: Addition) -> tuple[str, list[Pointer]]:
    """The text with the value, and the containers that were made for it."""
    container = _value(path, text, addition.container)
    if addition.joins and not isinstance(container, list if addition.name is None else dict):
        return text, []
    if container is _MISSING:
        return _add_containers(path, text, addition)
    if not isinstance(container, list if addition.name is None else dict):
        expected = "a list" if addition.name is None else "an object"
        raise UnusableSettings(f"In {path} {_describe(addition.container)} is not {expected}. The file is left as it is.")
    if addition.name is None:
        return (text, []) if addition.value in container else (_insert(text, addition.container, None, addition.value), [])
    members = cast("dict[str, object]", container)
    if addition.name not in members:
        made = [(*addition.container, addition.name)] if addition.yields else []
        return _insert(text, addition.container, addition.name, addition.value), made
    if addition.yields or addition.joins or members[addition.name] == addition.value:
        return text, []
    raise UnusableSettings(
        f"{path} has {_describe((*addition.container, addition.name))} already, which `cmserver connect` did not write. "
        "The file is left as it is. Remove that entry, then connect again."
    )


def _add_containers(path: Path, text: str, addition: Addition) -> tuple[str, list[Pointer]]:
    known = 0
    while known < len(addition.container) and _value(path, text, addition.container[: known + 1]) is not _MISSING:
        known += 1
    if not isinstance(_value(path, text, addition.container[:known]), dict):
        raise UnusableSettings(f"In {path} {_describe(addition.container[:known])} is not an object. The file is left as it is.")
    value: object = [addition.value] if addition.name is None else {addition.name: addition.value}
    for name in reversed(addition.container[known + 1 :]):
        value = {name: value}
    made = [addition.container[:length] for length in range(known + 1, len(addition.container) + 1)]
    return _insert(text, addition.container[:known], addition.container[known], value), made


def _remove_stale(path: Path, text: str, wanted: Sequence[Addition]) -> str:
    """The text without values of ours that are not exactly those."""
    for addition in wanted:
        values = [other.value for other in wanted if other.name == addition.name]
        text = _remove_matching(
            path,
            text,
            addition,
            lambda value, addition=addition, values=values: not addition.yields and addition.is_ours(value) and value not in values,
        )
    return text


def _remove_matching(path: Path, text: str, addition: Addition, matches: Callable[[object], bool]) -> str:
    container = _value(path, text, addition.container)
    if addition.name is not None and isinstance(container, dict):
        members = cast("dict[str, object]", container)
        if addition.name in members and matches(members[addition.name]):
            return _remove_at(text, addition.container, addition.name)
    if addition.name is None and isinstance(container, list):
        items = cast("list[object]", container)
        for index in reversed(range(len(items))):
            if matches(items[index]):
                text = _remove_at(text, addition.container, index)
    return text


# -- text


def _insert(text: str, container: Pointer, name: str | None, value: object) -> str:
    """The text with a member or an item at the end of that container, which exists."""
    begin, end = _find_span(text, container)
    inner = text[begin:end]
    level = len(container) + 1
    indent, line_end = find_indent(text), find_line_end(text)
    label = "" if name is None else f"{json.dumps(name)}: "
    added = f"{line_end}{indent * level}{label}{render_value(text, value, None, indent, level)}"
    members = find_members(inner)
    if members:
        at = members[-1].end
        inner = f"{inner[:at]},{added}{inner[at:]}"
    else:
        at = inner.index("[" if name is None else "{") + 1
        inner = f"{inner[:at]}{added}{line_end}{indent * (level - 1)}{inner[at:]}"
    return text[:begin] + inner + text[end:]


def _remove_at(text: str, container: Pointer, place: str | int) -> str:
    """The text without that member or item: what `_insert` does, undone."""
    begin, end = _find_span(text, container)
    inner = text[begin:end]
    members = find_members(inner)
    index = place if isinstance(place, int) else [member.name for member in members].index(place)
    if index > 0:
        inner = inner[: members[index - 1].end] + inner[members[index].end :]
    elif len(members) > 1:
        inner = inner[: members[0].begin] + inner[members[1].begin :]
    else:
        at = inner.index(inner.lstrip()[0]) + 1
        rest = inner[members[0].end :].removeprefix(find_line_end(text) + find_indent(text) * len(container))
        inner = inner[:at] + rest
    return text[:begin] + inner + text[end:]


def _find_span(text: str, pointer: Pointer) -> tuple[int, int]:
    """Where the value stands in the text."""
    begin, end = 0, len(text)
    for name in pointer:
        member = next(member for member in find_members(text[begin:end]) if member.name == name)
        begin, end = begin + member.value, begin + member.end
    return begin, end


def _value(path: Path, text: str, pointer: Pointer) -> object:
    """The value, or `_MISSING`."""
    value: object = parse_settings(path, text)
    for name in pointer:
        value = json_object(value).get(name, _MISSING)
    return value


def _describe(pointer: Pointer) -> str:
    return ".".join(json.dumps(name) for name in pointer) or "the text"


def _encode(pointer: Pointer) -> str:
    return "/".join(("", *pointer))


def _decode(pointer: str) -> Pointer:
    return tuple(pointer.split("/")[1:])
