"""Makes the Python and the TypeScript client of the table of routes, and their packages in a folder, see bin/build."""

from __future__ import annotations

import gzip
import json
import keyword
import re
import subprocess
import sys
import tarfile
import tempfile
import textwrap
import tomllib
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec

from cmserver import __version__
from cmserver.app import ROUTES
from cmserver.base.http.operation import Operation, TextAnswer
from cmserver.ops.openapi.document import JSON, build_document
from cmserver.ops.openapi.schemas import PREFIX
from tests.house.examples import blocks
from tests.house.house import ROOT

_HERE = Path(__file__).parent
_TYPES = {"integer": "number", "array": "Array<{}>", "object": "Record<string, {}>", "any": "unknown"}
_TYPESCRIPT = _TYPES | {"words": "{}", "or": " | "}
_PLAIN = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None", "any": "Any"}
_PYTHON = {**_PLAIN, "array": "list[{}]", "object": "dict[str, {}]", "words": "Literal[{}]", "or": ", "}
_ANSWERED = _PYTHON | {"words": "str"}  # a newer server may know more words
_ASYNC = [
    (r"^class Client", "class AsyncClient"),
    (r"^    def (?!__init__)", "    async def "),
    (r"__(enter|exit)__", r"__a\1__"),
    (r"httpx\.(Client|BaseTransport)", r"httpx.Async\1"),
    (r"self\._http\.close", "await self._http.aclose"),
    (r"(self\._http\.request|self\._send|(?<== )method)\(", r"await \1("),
    (r"Callable\[P, T\](.*) Iterator", r"Callable[P, Awaitable[T]]\1 AsyncIterator"),
    (r"`(client\.pages)", r"`async for page in \1"),
]
"""What makes the asynchronous class of the other one."""
_IMPORTS = "from collections.abc import AsyncIterator, Awaitable\nfrom typing import Literal\nfrom msgspec import UnsetType\n"
_PROJECT = '[build-system]\nrequires = ["hatchling>=1.27"]\nbuild-backend = "hatchling.build"\n\n[project]\n'
Fields = list[tuple[str, bool, Any]]
"""Name on the wire, whether it is required, and the schema."""


class ClientMethod(msgspec.Struct, frozen=True):
    """A route as a method: what it takes in `path`, `query`, and `body` or, where that is no object, `whole`; answers by status."""

    name: str
    route: str
    text: str
    places: dict[str, Fields]
    answers: dict[str, Any]

    @property
    def arguments(self) -> Fields:
        return [row for rows in self.places.values() for row in rows]

    def write_answer(self, speech: dict[str, str]) -> str:
        return " | ".join(dict.fromkeys(write_type(schema, speech) for schema in self.answers.values()))


def describe_routes() -> Any:
    return msgspec.to_builtins(build_document([operation for operation in ROUTES if is_native(operation)]))


def is_native(operation: Operation) -> bool:
    """Whether the route is no door for hooks, MCP or another system, and answers in JSON."""
    own = operation.path.startswith("/v1/") and not operation.endpoint.__module__.startswith("cmserver.doors.")
    return own and not any(isinstance(form, TextAnswer) for form in operation.answers.values())


def name_method(method: str, path: str) -> str:
    """POST /v1/entities/{id}/merge is post_entity_merge: the word before a name in braces is in the singular."""
    words = re.sub(r"(ies|s)?/\{\w+\}", lambda end: "y" if end[1] == "ies" else "", path.removeprefix("/v1/"))
    return f"{method}_{re.sub(r'[/-]', '_', words)}"


def list_methods(document: Any) -> Iterator[ClientMethod]:
    for path, method, operation in ((path, *item) for path, operations in document["paths"].items() for item in operations.items()):
        answers = {status: form["content"] for status, form in operation["responses"].items() if "$ref" not in form}
        places: dict[str, Fields] = {"path": [], "query": []}
        for row in operation.get("parameters", []):
            places[row["in"]].append((row["name"], row["required"], row["schema"]))
        if "requestBody" in operation:
            body = operation["requestBody"]["content"][JSON]["schema"]
            places |= {"body": list_fields(document, body["$ref"])} if "$ref" in body else {"whole": [("body", True, body)]}
        if any(len(forms) > 1 or "anyOf" in forms[JSON]["schema"] for forms in answers.values()):  # a method has one type
            places = {place: [row for row in rows if row[0] != "format"] for place, rows in places.items()}
        schemas = {status: forms[JSON]["schema"].get("anyOf", [forms[JSON]["schema"]])[0] for status, forms in answers.items()}
        yield ClientMethod(name_method(method, path), f"{method.upper()} {path}", operation["summary"], places, schemas)


def list_fields(document: Any, name: str) -> Fields:
    component = document["components"]["schemas"][name.removeprefix(PREFIX)]
    return [(field, field in component.get("required", []), schema) for field, schema in component["properties"].items()]


def find_components(document: Any, schemas: object, known: frozenset[str] = frozenset()) -> set[str]:
    """Names of the components that the schemas refer to, at any depth."""
    names = set(re.findall(rf"{PREFIX}(\w+)", str(schemas))) - known
    inner = [document["components"]["schemas"][name] for name in names]
    return names | find_components(document, inner, known | names) if names else names


def write_type(schema: Any, speech: dict[str, str]) -> str:
    kind, inner = str(schema.get("type", "any")), schema.get("items", schema.get("additionalProperties"))
    if "$ref" in schema:
        return schema["$ref"].removeprefix(PREFIX)
    if "enum" in schema:
        return speech["words"].format(speech["or"].join(map(json.dumps, schema["enum"])))
    if "anyOf" in schema:
        return " | ".join(dict.fromkeys(write_type(variant, speech) for variant in schema["anyOf"]))
    type_ = speech.get(kind, kind)
    return type_.format(write_type(inner or {}, speech)) if "{}" in type_ else type_


def write_text(text: str, indent: str = "") -> str:
    """A text of a docstring or comment, in lines."""
    plain = text.replace("*/", "* /").replace("\\", "\\\\").replace('"""', "'''")
    paragraphs = [textwrap.fill(" ".join(part.split()), 110, subsequent_indent=indent) for part in plain.split("\n\n")]
    return f"\n\n{indent}".join(paragraphs) + (" " if plain.endswith('"') else "")


def write_call(method: ClientMethod, argument: Callable[[str], str], path_form: str, nothing: str) -> str:
    """Method, path, query and body of a request. Both languages write an object in the same way."""
    verb, _, path = method.route.partition(" ")
    objects = {place: ", ".join(f'"{row[0]}": {argument(row[0])}' for row in rows) for place, rows in method.places.items()}
    body = f"{{{objects['body']}}}" if "body" in objects else argument("body") if "whole" in objects else nothing
    start = "${" if path_form[0] == "`" else "{"
    segments = re.sub(r"\{(\w+)\}", lambda name: f"{start}segment({argument(name[1])})}}", path)
    return f'"{verb}", {path_form.format(segments)}, {{{objects["query"]}}}, {body}'


def to_snake(name: str) -> str:
    snake = re.sub(r"(?<=[a-z0-9])[A-Z]", lambda letter: f"_{letter[0].lower()}", name)
    return f"{snake}_" if keyword.iskeyword(snake) else snake


def write_method(method: ClientMethod) -> str:
    rows = [(to_snake(name), must, schema) for name, must, schema in method.arguments]
    takes = [f", {name}: {write_type(schema, _PYTHON)}{'' if must else ' | UnsetType = UNSET'}" for name, must, schema in rows]
    told = [f"{name}: {schema['description']}" for name, _, schema in rows if "description" in schema]
    text = write_text("\n\n".join([method.text, method.route, *told]), " " * 8)
    answers = ", ".join(f"{status}: {write_type(schema, _ANSWERED)}" for status, schema in method.answers.items())
    return f'''
    def {method.name}(self{", *" if takes else ""}{"".join(takes)}) -> {method.write_answer(_ANSWERED)}:
        """{text}"""
        return self._send({{{answers}}}, {write_call(method, to_snake, 'f"{}"', "None")})
'''


def write_struct(name: str, document: Any, speech: dict[str, str]) -> str:
    text = write_text(document["components"]["schemas"][name].get("description", name), "    ")
    lines = [f'class {name}(msgspec.Struct, frozen=True, kw_only=True):\n    """{text}"""\n']
    for field, must, schema in list_fields(document, name):
        default, unset = ("", "") if must else ("default=UNSET, ", " | UnsetType")
        lines.append(f'    {to_snake(field)}: {write_type(schema, speech)}{unset} = msgspec.field({default}name="{field}")')
        lines.append(f'    """{write_text(schema.get("description", field), "    ")}"""')
    return "\n".join([*lines, ""])


def write_python(document: Any, folder: Path) -> None:
    """The package `cmserver_client`."""
    methods = [*list_methods(document)]
    answered = find_components(document, [method.answers for method in methods])
    names = sorted(answered | find_components(document, [method.arguments for method in methods]))
    structs = [write_struct(name, document, _ANSWERED if name in answered else _PYTHON) for name in names]
    shared, start, class_ = (_HERE / "runtime.py").read_text(encoding="utf-8").partition("class Client")
    asynchronous = class_ = start + class_ + "".join(map(write_method, methods))
    for pattern, after in _ASYNC:
        asynchronous = re.sub(pattern, after, asynchronous, flags=re.MULTILINE)
    folder.mkdir(parents=True)
    (folder / "py.typed").touch()
    module = "\n\n".join([shared.replace("import httpx\n", f"import httpx\n{_IMPORTS}", 1), class_, asynchronous, *structs])
    (folder / "__init__.py").write_text(module, encoding="utf-8")
    for words in (["check", "--fix", "--select=I,D209,F541,RUF036"], ["format", "--line-length=132"]):
        subprocess.run([sys.executable, "-m", "ruff", *words, "--quiet", "--isolated", folder], check=True)


def write_members(fields: Fields) -> str:
    rows = ((name if must else f"{name}?", write_type(schema, _TYPESCRIPT), schema) for name, must, schema in fields)
    return "".join(f"  /** {write_text(schema.get('description', name))} */\n  {name}: {type_};\n" for name, type_, schema in rows)


def write_typescript(document: Any, folder: Path) -> None:
    """A module and its types."""
    methods = [*list_methods(document)]
    used = sorted(find_components(document, [(method.answers, method.arguments) for method in methods]))
    types, code = ((_HERE / name).read_text(encoding="utf-8").rstrip("}\n") + "\n" for name in ("runtime.d.ts", "runtime.js"))
    code += "  }\n"
    for method in methods:
        name = re.sub(r"_(\w)", lambda letter: letter[1].upper(), method.name)
        optional = "" if any(must for _, must, _ in method.arguments) else "?"
        takes = f"args{optional}: {{\n{write_members(method.arguments)}  }}" if method.arguments else ""
        types += f"\n  /** {write_text(method.text)} {method.route} */\n  {name}({takes})"
        types += f": Promise<{method.write_answer(_TYPESCRIPT)}>;\n"
        call = write_call(method, "args.{}".format, "`{}`", "undefined")
        code += f"\n  async {name}(args = {{}}) {{\n    return this._send([{', '.join(method.answers)}], {call});\n  }}\n"
    interfaces = [f"\nexport interface {name} {{\n{write_members(list_fields(document, name))}}}\n" for name in used]
    folder.mkdir(parents=True)
    (folder / "index.d.ts").write_text(f"{types}}}\n" + "".join(interfaces), encoding="utf-8")
    (folder / "index.js").write_text(f"{code}}}\n", encoding="utf-8")


def build(dist: Path) -> None:
    """Make the wheel, the source archive and npm's archive of the clients in a folder."""
    document = describe_routes()
    about = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needs = [need for need in about["dependencies"] if need.startswith(("httpx>", "msgspec>"))]
    text = f"The client of cmserver. {about['description']}"
    shared = {"name": "cmserver-client", "version": __version__, "description": text, "license": about["license"]}
    project = {**shared, "readme": "README.md", "dependencies": needs, "requires-python": about["requires-python"]}
    package = {**shared, "type": "module", "exports": "./index.js", "engines": {"node": ">=20"}}
    page = blocks((ROOT / "docs" / "howto" / "script-it.md").read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as made:
        python, npm = Path(made, "python"), Path(made, "npm")
        write_python(document, python / "cmserver_client")
        write_typescript(document, npm)
        lines = [f"{name} = {json.dumps(value)}\n" for name, value in project.items()]
        (python / "pyproject.toml").write_text(_PROJECT + "".join(lines), encoding="utf-8")
        (npm / "package.json").write_text(json.dumps(package, indent=2) + "\n", encoding="utf-8")
        for folder, language in ((python, "python"), (npm, "ts")):
            shown = "\n".join(f"```{language}\n{block.text}```\n" for block in page if block.language == language)
            (folder / "README.md").write_text(f"# cmserver-client\n\n{text}\n\n{shown}", encoding="utf-8")
            (folder / "LICENSE").write_bytes((ROOT / "LICENSE").read_bytes())
        subprocess.run([sys.executable, "-I", "-m", "hatchling", "build", "-d", dist.resolve()], cwd=python, check=True)
        archive = gzip.GzipFile(dist / f"cmserver-client-{__version__}.tgz", "wb", mtime=0)
        with archive, tarfile.open(fileobj=archive, mode="w") as tar:
            for file in sorted(npm.iterdir()):
                row = tarfile.TarInfo(f"package/{file.name}")
                row.size = file.stat().st_size
                tar.addfile(row, BytesIO(file.read_bytes()))


if __name__ == "__main__":
    build(Path(sys.argv[1]))
