"""Finds by rules what an observation names: files, symbols, commands, errors and technologies."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.resources import files

import msgspec

from cmserver.graph.model import NAME_MOST, NAMED_TYPES, EntityName, EntityType, ReadableText, fold_name
from cmserver.tooluse.commands import read_command_line
from cmserver.tooluse.model import Purpose

MAX_NAMES = 40
_MAX_TEXT = 20_000
_TOLD_PURPOSES = {Purpose.DEED, Purpose.INSTALL, Purpose.CHECK, Purpose.TEST, Purpose.COMMIT}

_URL = re.compile(r"\b[a-z][a-z0-9+.-]{1,9}://\S+")
_CODE = re.compile(r"`([^`\n]{1,200})`")
_COMMAND_FACT = re.compile(r"^(?:Command|Passes|Failed before): `([^`\n]{1,400})`|^`([^`\n]{1,400})` failed\b", re.MULTILINE)
_CHANGE_FACT = re.compile(r"^\S{1,300} \(\+\d+/-\d+\): ([^`;\n]{1,300})", re.MULTILINE)
_FAILING_FACT = re.compile(r"^Failing: ([^\n]{1,500})", re.MULTILINE)
_BETWEEN_NAMES = re.compile(r",\s*| and ")

_PATH = re.compile(r"[\w/.@+$-]+")
_SHAPED = re.compile(
    r"[A-Za-z]\w*_\w+|_\w*[A-Za-z]\w*|[A-Z][a-z0-9]+(?:[A-Z]+[a-z0-9]*)+|[a-z]+[a-z0-9]*(?:[A-Z]+[a-z0-9]+)+|[A-Z]{2,}[a-z]+\w*"
)
"""Words that only code has: with an underscore or a capital inside."""
_WORD = r"[A-Za-z_$][\w$]{0,99}[!?]?"
_SYMBOL = re.compile(rf"{_WORD}(?:(?:::|\.|#|->){_WORD}){{0,8}}")
_CAPITAL = re.compile(r"[A-Z][a-z0-9]+[a-z]")
_ASSIGNED = re.compile(r"([A-Z][A-Z0-9]*_[A-Z0-9_]+)=\S*")
_FLAG = re.compile(r"--[a-z][a-z0-9-]{2,40}")
_WORDS = re.compile(r"[A-Za-z]\w*")
_CALL = re.compile(r"\((?:…|\.\.\.)?\)$")
_COMMIT = re.compile(r"[0-9a-f]{7,40}")
_DOMAIN = re.compile(r"\.(?:com|org|net|io|dev|eu|de|fr)$", re.IGNORECASE)

_ERROR_CLASS = re.compile(r"\b(?:[a-z]\w{0,50}\.){0,4}[A-Z]\w{0,80}(?:Error|Exception)\b|\b[a-z]\w{1,50}\.(?:Error|Exception)\b")
_ERROR_CODE = re.compile(
    r"\bTS\d{4,5}\b|(?<=error\[)E\d{4}\b"
    r"|\bE(?:CONN[A-Z]+|NOENT|ACCES|PERM|ADDRINUSE|PIPE|TIMEDOUT|EXIST|MFILE|INVAL|NOTFOUND|NOMEM|AI_AGAIN)\b"
)

_INSTALLED = re.compile(
    r"\b[Aa]dded (?:dev )?dependenc(?:y|ies) ([^();\n]{1,300}) \(|\b[Ii]nstalled ([^();\n]{1,300}) \((?:apt|brew)"
)
_VERSION = re.compile(r"(?<=.)(?:@[^/]*|[\[=<>~^!;].*)$")
_PACKAGE = re.compile(r"@?[A-Za-z0-9][\w.-]*(?:/[\w.-]+){0,4}")
_MANIFEST_FACT = re.compile(
    r"^\S*(?:pyproject\.toml|package\.json|Cargo\.toml|requirements[\w-]*\.txt|go\.mod|Gemfile|composer\.json)"
    r" \(\+\d+/-\d+\): (.*)",
    re.MULTILINE,
)
_LISTED_PACKAGE = re.compile(
    r"""added\ `(?:"(?P<json>@?[\w./-]+)":\ "[~^<>=]*\d
    |"(?P<python>[\w.-]+)(?:\[[\w,-]+\])?[<>=~!]=?
    |(?P<cargo>[\w-]+)\ =\ (?:"\d|\{\ version)
    |(?P<plain>[\w.-]+)==\d
    |gem\ ['"](?P<gem>[\w-]+)
    |(?:require\ )?(?P<go>[\w.-]+\.[a-z]+/[\w./-]+)\ v\d)""",
    re.VERBOSE,
)
_IMPORTED = re.compile(
    r"""`(?:import\s(?:[^`;]{0,150}\sfrom\s)?["'](?P<script>[^"'`]{1,100})["']
    |(?:const|let|var)\s[^`=]{1,100}=\s*require\(["'](?P<node>[^"'`]{1,100})
    |from\s+(?P<python_from>[A-Za-z]\w*)[\w.]*\s+import\b
    |import\s+(?P<python>[a-z]\w*)(?:[.\s][\w. ]*)?`)""",
    re.VERBOSE,
)
_NODE_MODULES = frozenset(
    [
        "assert",
        "buffer",
        "child_process",
        "cluster",
        "crypto",
        "dns",
        "events",
        "fs",
        "http",
        "http2",
        "https",
        "net",
        "os",
        "path",
        "process",
        "stream",
        "tls",
        "url",
        "util",
        "zlib",
    ]
)


class _Names(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The tables of names.toml."""

    ignored: frozenset[str]
    suffixes: str
    file_names: frozenset[str]
    technologies: dict[str, list[str]]


@cache
def _names() -> _Names:
    return msgspec.convert(tomllib.loads(files("cmserver.graph").joinpath("names.toml").read_text("utf-8")), _Names)


@cache
def _suffixes() -> frozenset[str]:
    return frozenset(_names().suffixes.split())


@cache
def _technologies() -> tuple[re.Pattern[str], dict[str, str], frozenset[str]]:
    """The pattern of all technologies, what each spelling is called, and the first words of the spellings."""
    spellings = {spelling: name for name, others in _names().technologies.items() for spelling in (name, *others)}
    longest_first = sorted(map(re.escape, spellings), key=len, reverse=True)
    pattern = re.compile(rf"(?<![\w./@#-])(?:{'|'.join(longest_first)})(?![\w/@-]|\.\w|\()")
    return pattern, spellings, frozenset(_WORDS.findall(" ".join(spellings)))


@cache
def _technology_names() -> frozenset[str]:
    _, spellings, _ = _technologies()
    return frozenset(map(fold_name, spellings))


def is_ignored(name: str) -> bool:
    """Whether the name says nothing, whatever found it: a greeting, a month, a single letter."""
    folded = fold_name(name)
    return len(folded) < 2 or folded in _names().ignored or folded.isdigit()


_NAMED: dict[str, EntityType] = {type_: type_ for type_ in NAMED_TYPES}


def read_names(entities: Iterable[object]) -> list[EntityName]:
    """The names that a model gives as "technology: Redis", without those of another form or type, and those that say nothing."""
    found: dict[tuple[EntityType, str], EntityName] = {}
    for text in entities:
        type_, _, name = text.partition(":") if isinstance(text, str) else ("", "", "")
        named = _NAMED.get(type_.strip().lower())
        name = " ".join(name.split())
        if named is not None and 0 < len(name) <= NAME_MOST and not is_ignored(name):
            entity = EntityName(named, name)
            found.setdefault(entity.key, entity)
    return list(found.values())


def find_names(observation: ReadableText) -> list[EntityName]:
    """What the observation names, at most MAX_NAMES, files first."""
    parts = [observation.title, observation.subtitle, observation.narrative, *(observation.facts or ())]
    text = "\n".join(part for part in parts if part)[:_MAX_TEXT] or observation.content[:_MAX_TEXT]
    text = _URL.sub(" ", text)
    found: dict[tuple[EntityType, str], EntityName] = {}

    def add(type_: EntityType, names: Iterable[str]) -> None:
        for name in names:
            if len(name) <= NAME_MOST and not is_ignored(name):
                entity = EntityName(type_, name)
                found.setdefault(entity.key, entity)

    listed = [*(observation.files_modified or ()), *(observation.files_read or ())]
    add("file", _find_files(listed, text))
    add("technology", _find_technologies(text, listed))
    if "Error" in text or "Exception" in text:  # else the pattern costs a third of all
        add("error", _ERROR_CLASS.findall(text))
    add("error", _ERROR_CODE.findall(text))
    add("command", _find_commands(text))
    others = {key for _, key in found}
    symbols = [name for name in _find_symbols(text, observation.anchors or []) if fold_name(name) not in others]
    add("symbol", symbols)
    return list(found.values())[:MAX_NAMES]


def _find_files(listed: Iterable[str], text: str) -> list[str]:
    """The listed paths that are files, and those of the text. The bare name of a listed file is not another one."""
    paths = list(dict.fromkeys(path.removeprefix("./") for path in listed if _is_file(path)))
    named = [name for word in set(_PATH.findall(text)) if _may_be_path(word) and _is_file(name := word.rstrip("."))]
    for name in sorted({name.removeprefix("./") for name in named}, key=lambda name: (-len(name), name)):
        if not any(path == name or path.endswith(f"/{name}") for path in paths):
            paths.append(name)
    return [path for path in paths if not any(other != path and other.endswith(f"/{path}") for other in paths)]


def _may_be_path(word: str) -> bool:
    return ("." in word or word in _names().file_names) and "$" not in word and len(word) <= NAME_MOST and not word.startswith("-")


def _is_file(path: str) -> bool:
    name = path.rstrip("/").rpartition("/")[2]
    stem, _, suffix = name.rpartition(".")
    return name in _names().file_names or (bool(stem) and suffix in _suffixes() and not name.startswith("."))


def _find_technologies(text: str, files_named: Iterable[str]) -> Iterator[str]:
    for match in _INSTALLED.finditer(text):
        for name in _BETWEEN_NAMES.split(match[1] or match[2]):
            if _PACKAGE.fullmatch(plain := _VERSION.sub("", name.strip())):
                yield plain
    for fact in _MANIFEST_FACT.finditer(text):
        for match in _LISTED_PACKAGE.finditer(fact[1]):
            yield str(match[match.lastgroup or 0])
    own = {part.removesuffix(".py") for path in files_named for part in path.split("/")}
    for match in _IMPORTED.finditer(text):
        if name := _imported_package(match, own):
            yield name
    pattern, spellings, first_words = _technologies()
    if not first_words.isdisjoint(_WORDS.findall(text)):
        for match in pattern.finditer(text):
            yield spellings[match[0]]


def _imported_package(match: re.Match[str], own: set[str]) -> str | None:
    """The package that an import names; None for what belongs to the language or to the project."""
    name = str(match[match.lastgroup or 0])
    if match.lastgroup in {"python", "python_from"}:
        return None if name in own or name in sys.stdlib_module_names or name == "tests" else name
    if name.startswith((".", "/", "~", "#", "@/", "$", "node:")) or name.partition("/")[0] in _NODE_MODULES:
        return None
    name = "/".join(name.split("/")[: 2 if name.startswith("@") else 1])
    return name if _PACKAGE.fullmatch(name) and name not in own else None


def _find_commands(text: str) -> Iterator[str]:
    """Programs with their subcommands. What a fact calls a command is one, other code only when its program is known."""
    for match in _COMMAND_FACT.finditer(text):
        command = read_command_line(match[1] or match[2]).main
        if command.purpose in {*_TOLD_PURPOSES, Purpose.OTHER} and _is_program(command.label):
            yield command.label
    for code in dict.fromkeys(code for code in _CODE.findall(text) if " " in code):
        command = read_command_line(code).main
        if command.purpose in _TOLD_PURPOSES and len(command.words) > 1 and _is_program(command.label):
            yield command.label


def _is_program(label: str) -> bool:
    return re.fullmatch(r"[\w./-]*[a-z][\w.+-]*(?: [\w:.-]+){0,2}", label) is not None and label != "nothing"


def _find_symbols(text: str, anchors: Iterable[str]) -> Iterator[str]:
    code = [match[1] for match in _CODE.finditer(text)]
    for name in dict.fromkeys([*code, *anchors]):
        yield from _read_symbol(name, is_code=name in code)
    for match in _FAILING_FACT.finditer(text):
        for name in _BETWEEN_NAMES.split(match[1]):
            if _SYMBOL.fullmatch(name) and _has_shape(name):
                yield name
    for match in _CHANGE_FACT.finditer(text):
        for name in _BETWEEN_NAMES.split(match[1].strip()):
            if _SYMBOL.fullmatch(name) and (_has_shape(name) or _CAPITAL.fullmatch(name)):
                yield name


def _read_symbol(text: str, *, is_code: bool) -> Iterator[str]:
    """The symbol that a piece of code or an anchor is, if it is one."""
    if _FLAG.fullmatch(text):
        yield text
        return
    if match := _ASSIGNED.fullmatch(text):
        yield match[1]
        return
    name = _CALL.sub("", text)
    if not _SYMBOL.fullmatch(name) or _COMMIT.fullmatch(name) or _is_file(name) or _DOMAIN.search(name):
        return
    if fold_name(name) in _technology_names():
        return
    is_called = name != text
    is_joined = any(sign in name for sign in ("::", ".", "#", "->"))
    if _has_shape(name) or (is_code and (is_called or is_joined or _CAPITAL.fullmatch(name))):
        yield name


def _has_shape(name: str) -> bool:
    """Whether a part of it is a word that only code has."""
    return any(_SHAPED.fullmatch(part) for part in re.split(r"::|\.|#|->", name))
