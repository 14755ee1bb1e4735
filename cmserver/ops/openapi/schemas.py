"""Turns wire Structs into JSON Schema that OpenAPI tools understand."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib.resources import files
from typing import cast

import msgspec
from msgspec import UNSET, inspect

from cmserver.base.text import STORABLE_PATTERN

Schema = dict[str, object]

PREFIX = "#/components/schemas/"
_GENERAL = {"api", "wire", "model"}
NO_NUL = r"^[^\u0000]*$"
ABOUT_NO_NUL = "No NUL, and no half of a surrogate pair."
_JSON: dict[type, str] = {str: "string", int: "integer", bool: "boolean", type(None): "null"}
ANYTHING = "Any JSON value."
_REFERENCE = re.compile(rf"{PREFIX}(\w+)")
_FIRST_SENTENCE = re.compile(r".+?(?=[.;] |: `|$)")
_FIELD_SENTENCE = re.compile(r"(?:^|[.;:] )`(\w+)` (?:is|are) (.+?)(?=[.;] |$)")
"""Name and meaning in a sentence that begins with the name: "`limit` is how many are listed."."""


class Schemas:
    """One component per Struct, named for its class, with the room's name before it where two rooms have that class."""

    def __init__(self, inputs: Iterable[object], answers: Iterable[object]) -> None:
        input_types, answer_types = list(inputs), list(answers)
        self._types = [*input_types, *answer_types]
        input_classes = _collect_classes(input_types)
        self._classes = input_classes | _collect_classes(answer_types)
        schemas, components = msgspec.json.schema_components(
            self._types, schema_hook=_describe_object, ref_template=PREFIX + "{name}"
        )
        self._names = _name_components(self._classes)
        self._schemas = [self._convert(schema) for schema in schemas]
        self.components: dict[str, Schema] = {
            self._names[name]: {**self._convert(schema), "title": self._names[name]} for name, schema in components.items()
        }
        for class_ in self._classes:
            if isinstance(class_, type) and issubclass(class_, msgspec.Struct):
                _add_meanings(class_, self.components, self.component_name(class_))
        for class_ in self._classes - input_classes:
            if isinstance(class_, type) and issubclass(class_, msgspec.Struct):
                self.components[self.component_name(class_)]["required"] = _list_required(class_)

    def schema_for(self, type_: object) -> Schema:
        """Return the type's schema: a reference when it is a component."""
        return next(schema for known_type, schema in zip(self._types, self._schemas, strict=True) if known_type is type_)

    def component_name(self, class_: object) -> str:
        """Return the name of the class's component."""
        return self._names[_find_msgspec_name(class_, Counter(map(_read_class_name, self._classes)))]

    def parameters(self, query: type[msgspec.Struct]) -> Iterator[tuple[str, bool, Schema]]:
        """Yield each parameter of the query string: name, whether it is required, and schema without null."""
        component = self.components[self.component_name(query)]
        required = cast("list[str]", component.get("required", []))
        for name, schema in cast("dict[str, Schema]", component["properties"]).items():
            yield name, name in required, strip_null(schema)

    def _convert(self, schema: Schema) -> Schema:
        return cast("Schema", _walk(schema, self._change))

    def _change(self, schema: Schema) -> Schema:
        """Adapt one schema of msgspec: our names in references, a type beside choices, and a pattern that tools can read."""
        reference = schema.get("$ref")
        if isinstance(reference, str):
            schema["$ref"] = PREFIX + self._names[reference.removeprefix(PREFIX)]
        if "type" not in schema and isinstance(choices := schema.get("enum"), list):
            schema = {"type": _find_json_type(cast("list[object]", choices)), **schema}
        if schema.get("pattern") == STORABLE_PATTERN:  # most tools cannot read the surrogates and the NUL in it
            description = schema.get("description")
            schema |= {"pattern": NO_NUL, "description": f"{description} {ABOUT_NO_NUL}" if description else ABOUT_NO_NUL}
        return schema


def _add_meanings(struct: type[msgspec.Struct], components: dict[str, Schema], name: str) -> None:
    """Describe each field: by the sentence of the class's docstring that begins with its name, else by what its name means
    everywhere, or by the first sentence on the record that it holds.
    """
    sentences: dict[str, str] = {}
    for class_ in reversed(struct.__mro__):
        sentences |= dict(_FIELD_SENTENCE.findall(_join_lines(class_.__dict__.get("__doc__"))))
    for field, schema in cast("dict[str, Schema]", components[name]["properties"]).items():
        record = _REFERENCE.search(str(schema))  # a name may be a text here and a record elsewhere, which has a text of its own
        found = _FIRST_SENTENCE.search(_join_lines(components[record[1]].get("description"))) if record else None
        shared = found[0] if found else None if record else _read_meanings().get(field)
        kinds = [schema[key] for key in ("type", "anyOf") if key in schema]
        if shared and kinds and "null" not in str(kinds):
            shared = shared.partition("; null")[0]
        if meaning := sentences.get(field) or shared:
            limits = str(schema.get("description", ""))
            schema["description"] = f"{meaning[0].upper()}{meaning[1:].removesuffix('.')}. {limits}".strip()


def _join_lines(text: object) -> str:
    return " ".join(str(text or "").split())


@cache
def _read_meanings() -> dict[str, str]:
    """What a field of a name means everywhere."""
    return msgspec.toml.decode(files("cmserver.ops.openapi").joinpath("meanings.toml").read_bytes(), type=dict[str, str])


def strip_null(schema: Schema) -> Schema:
    """Return the schema without null."""
    stripped = {name: value for name, value in schema.items() if name != "anyOf" and not (name == "default" and value is None)}
    if isinstance(choices := schema.get("enum"), list):
        stripped["enum"] = values = [choice for choice in cast("list[object]", choices) if choice is not None]
        stripped["type"] = _find_json_type(values)
    variants = [variant for variant in cast("list[Schema]", schema.get("anyOf", [])) if variant != {"type": "null"}]
    if len(variants) == 1:
        return {**variants[0], **stripped}
    return {**stripped, "anyOf": variants} if variants else stripped


def _find_json_type(choices: list[object]) -> object:
    names = sorted({_JSON[type(choice)] for choice in choices})
    return names[0] if len(names) == 1 else names


def _describe_object(type_: type) -> Schema:
    if type_ is object:
        return {"description": ANYTHING}
    raise NotImplementedError


def _collect_classes(types: Iterable[object]) -> set[object]:
    """Return every Struct and enum among the types and inside them."""
    classes: set[object] = set()
    pending: list[inspect.Type] = [inspect.type_info(type_) for type_ in types]
    while pending:
        info = pending.pop()
        if isinstance(info, (inspect.StructType, inspect.EnumType)):
            if info.cls in classes:
                continue
            classes.add(info.cls)
        pending += _list_inner_types(info)
    return classes


def _list_inner_types(info: inspect.Type) -> Iterator[inspect.Type]:
    if isinstance(info, inspect.StructType):
        yield from (field.type for field in info.fields)
    for name in ("type", "item_type", "key_type", "value_type"):
        if isinstance(inner := getattr(info, name, None), inspect.Type):
            yield inner
    for name in ("types", "item_types"):
        yield from cast("Iterable[inspect.Type]", getattr(info, name, ()))


def _read_class_name(class_: object) -> str:
    return cast("type", class_).__name__


def _find_msgspec_name(class_: object, name_counts: Counter[str]) -> str:
    """Return msgspec's name of the class: with its module where the name is not unique."""
    type_ = cast("type", class_)
    return type_.__name__ if name_counts[type_.__name__] == 1 else f"{type_.__module__}.{type_.__qualname__}"


def _name_components(classes: set[object]) -> dict[str, str]:
    """Return the components' names by msgspec's names."""
    name_counts = Counter(map(_read_class_name, classes))
    paths = [_find_msgspec_name(class_, name_counts).split(".") for class_ in classes]
    short_names = {".".join(path): path[0] if len(path) == 1 else _prefix_rooms(path, 1) for path in paths}
    short_counts = Counter(short_names.values())
    return {
        name: short_name if short_counts[short_name] == 1 else _prefix_rooms(name.split("."), name.count(".") + 1)
        for name, short_name in short_names.items()
    }


def _prefix_rooms(path: list[str], max_rooms: int) -> str:
    """Return the class's name after up to `max_rooms` of its packages."""
    rooms = [part for part in path[1:-1] if part not in _GENERAL][-max_rooms:]
    return "".join(room.title().replace("_", "") for room in rooms) + path[-1]


def _list_required(struct: type[msgspec.Struct]) -> list[str]:
    """Return the fields that every answer has: all but those that may be UNSET or are omitted at their default."""
    info = cast("inspect.StructType", inspect.type_info(struct))
    tag = [info.tag_field] if info.tag_field else []
    omits = struct.__struct_config__.omit_defaults
    defaults = dict(zip(reversed(struct.__struct_encode_fields__), reversed(struct.__struct_defaults__), strict=False))
    return tag + [
        field.encode_name
        for field in info.fields
        if not (defaults.get(field.encode_name) is UNSET or (omits and not field.required))
    ]


def _walk(value: object, change: Callable[[Schema], Schema]) -> object:
    """Return a copy of the JSON with `change` applied to every object, the innermost first."""
    if isinstance(value, dict):
        return change({name: _walk(inner, change) for name, inner in cast("Schema", value).items()})
    return [_walk(inner, change) for inner in cast("list[object]", value)] if isinstance(value, list) else value
