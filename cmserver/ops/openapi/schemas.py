"""Wire Structs as JSON Schema, in words that tools for OpenAPI know."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import cast

import msgspec
from msgspec import UNSET, inspect

from cmserver.base.text import STORABLE_PATTERN

Schema = dict[str, object]

PREFIX = "#/components/schemas/"
_GENERAL = {"api", "wire", "model"}
NO_NUL = r"^[^\u0000]*$"
_ABOUT_NO_NUL = "No NUL, and no half of a surrogate pair."
_JSON: dict[type, str] = {str: "string", int: "integer", bool: "boolean", type(None): "null"}
_ANYTHING = "Any JSON value."


class Schemas:
    """The schemas of all these types: one component for each Struct, named by its class.

    Two classes of one name in different rooms are told apart by the room's name before it.
    """

    def __init__(self, inputs: Iterable[object], answers: Iterable[object]) -> None:
        taken, given = list(inputs), list(answers)
        self._types = [*taken, *given]
        read = _named(taken)
        self._classes = read | _named(given)
        found, components = msgspec.json.schema_components(self._types, schema_hook=_anything, ref_template=PREFIX + "{name}")
        self._renamed = _renamed(self._classes)
        self._schemas = [self._ours(schema) for schema in found]
        self.components: dict[str, Schema] = {
            self._renamed[name]: {**self._ours(schema), "title": self._renamed[name]} for name, schema in components.items()
        }
        for one in self._classes - read:
            if isinstance(one, type) and issubclass(one, msgspec.Struct):
                self.components[self.name(one)]["required"] = _always_there(one)

    def of(self, type_: object) -> Schema:
        """Where the type's schema is a component, a reference to it."""
        return self._schemas[next(place for place, each in enumerate(self._types) if each is type_)]

    def name(self, one: object) -> str:
        """The name of a class among the components."""
        return self._renamed[_msgspecs_name(one, Counter(map(_short, self._classes)))]

    def parameters(self, query: type[msgspec.Struct]) -> Iterator[tuple[str, bool, Schema]]:
        """Name, whether it is required, and schema of each parameter of a query string, where null cannot be said."""
        component = self.components[self.name(query)]
        required = cast("list[str]", component.get("required", []))
        for name, schema in cast("dict[str, Schema]", component["properties"]).items():
            yield name, name in required, without_null(schema)

    def _ours(self, schema: Schema) -> Schema:
        return cast("Schema", _walk(schema, self._change))

    def _change(self, schema: Schema) -> Schema:
        reference = schema.get("$ref")
        if isinstance(reference, str):
            schema["$ref"] = PREFIX + self._renamed[reference.removeprefix(PREFIX)]
        if "type" not in schema and isinstance(choices := schema.get("enum"), list):
            schema = {"type": _type_of(cast("list[object]", choices)), **schema}
        if schema.get("pattern") == STORABLE_PATTERN:  # surrogates and NUL as they are would be no text for most tools
            told = schema.get("description")
            schema |= {"pattern": NO_NUL, "description": f"{told} {_ABOUT_NO_NUL}" if told else _ABOUT_NO_NUL}
        return schema


def without_null(schema: Schema) -> Schema:
    """The schema of what it is when it is something."""
    kept = {name: value for name, value in schema.items() if name != "anyOf" and not (name == "default" and value is None)}
    if isinstance(choices := schema.get("enum"), list):
        kept["enum"] = some = [one for one in cast("list[object]", choices) if one is not None]
        kept["type"] = _type_of(some)
    variants = [one for one in cast("list[Schema]", schema.get("anyOf", [])) if one != {"type": "null"}]
    if len(variants) == 1:
        return {**variants[0], **kept}
    return {**kept, "anyOf": variants} if variants else kept


def _type_of(choices: list[object]) -> object:
    names = sorted({_JSON[type(one)] for one in choices})
    return names[0] if len(names) == 1 else names


def _anything(type_: type) -> Schema:
    if type_ is object:
        return {"description": _ANYTHING}
    raise NotImplementedError


def _named(types: Iterable[object]) -> set[object]:
    """Every class among the types and below them that has a name in the document."""
    found: set[object] = set()
    left: list[inspect.Type] = [inspect.type_info(type_) for type_ in types]
    while left:
        info = left.pop()
        if isinstance(info, (inspect.StructType, inspect.EnumType)):
            if info.cls in found:
                continue
            found.add(info.cls)
        left += _inside(info)
    return found


def _inside(info: inspect.Type) -> Iterator[inspect.Type]:
    if isinstance(info, inspect.StructType):
        yield from (field.type for field in info.fields)
    for name in ("type", "item_type", "key_type", "value_type"):
        if isinstance(inner := getattr(info, name, None), inspect.Type):
            yield inner
    for name in ("types", "item_types"):
        yield from cast("Iterable[inspect.Type]", getattr(info, name, ()))


def _short(one: object) -> str:
    return cast("type", one).__name__


def _msgspecs_name(one: object, count: Counter[str]) -> str:
    """What msgspec calls it: the class, and with its module where that is not enough."""
    named = cast("type", one)
    return named.__name__ if count[named.__name__] == 1 else f"{named.__module__}.{named.__qualname__}"


def _renamed(classes: set[object]) -> dict[str, str]:
    """From msgspec's names to ours."""
    count = Counter(map(_short, classes))
    rooms = {one: _msgspecs_name(one, count).split(".") for one in classes}
    with_room = {one: parts[0] if len(parts) == 1 else _with_room(parts, 1) for one, parts in rooms.items()}
    again = Counter(with_room.values())
    return {
        ".".join(parts): with_room[one] if again[with_room[one]] == 1 else _with_room(parts, len(parts))
        for one, parts in rooms.items()
    }


def _with_room(parts: list[str], most: int) -> str:
    rooms = [part for part in parts[1:-1] if part not in _GENERAL][-most:]
    return "".join(room.title().replace("_", "") for room in rooms) + parts[-1]


def _always_there(one: type[msgspec.Struct]) -> list[str]:
    """The fields that an answer always has: all but those that may be UNSET or are left out when they say nothing."""
    info = cast("inspect.StructType", inspect.type_info(one))
    tag = [info.tag_field] if info.tag_field else []
    omits = one.__struct_config__.omit_defaults
    defaults = dict(
        zip(
            one.__struct_encode_fields__[len(one.__struct_encode_fields__) - len(one.__struct_defaults__) :],
            one.__struct_defaults__,
            strict=True,
        )
    )
    return tag + [
        field.encode_name
        for field in info.fields
        if not (defaults.get(field.encode_name) is UNSET or (omits and not field.required))
    ]


def _walk(value: object, change: Callable[[Schema], Schema]) -> object:
    """A copy of the JSON, every object in it changed."""
    if isinstance(value, dict):
        return change({name: _walk(inner, change) for name, inner in cast("Schema", value).items()})
    return [_walk(inner, change) for inner in cast("list[object]", value)] if isinstance(value, list) else value
