"""Which function, class, heading or key a line of a file names or stands in, judged by its look and its indentation."""

from __future__ import annotations

import re
from collections.abc import Iterable

_MAX_LINE = 200
_MAX_NAME = 255
"""The longest name of a file that a file system takes."""

_DEFINITION = re.compile(
    r"\s*(?:(?:export|default|pub(?:\(\w+\))?|public|private|protected|static|async|abstract|final|unsafe)\s+)*"
    r"(?:def|class|function\*?|func(?:\s*\([^)]*\))?|fn|struct|enum|trait|interface|type|impl|module)\s+([A-Za-z_$][\w$]*)"
)
_ARROW = re.compile(r"\s*(?:export\s+)?const\s+([A-Za-z_$][\w$]*+)[^=]*=\s*(?:async\s*)?(?:\(|function|\w+\s*=>)")
_METHOD = re.compile(r"\s+(?:[\w<>\[\],.]+\s+){0,5}([A-Za-z_]\w*)\s*\([^;]*\)[^;{]*\{\s*$")
_SQL = re.compile(
    r"\s*(?:create|alter)\s+(?:or\s+replace\s+)?(?:unique\s+)?(?:table|index|view|function|type|trigger)\s+"
    r'(?:concurrently\s+)?(?:if\s+not\s+exists\s+)?([\w."]+)',
    re.IGNORECASE,
)
_CONSTANT = re.compile(r"([A-Z][A-Z0-9_]{2,})\s*(?::[^=]+)?=[^=]")
_HEADING = re.compile(r"#{1,6}\s+(\S.*?)\s*#*$")
_SECTION = re.compile(r"\[\[?([^\[\]]+)\]\]?\s*$")
_KEY = re.compile(r"""\s*(?:-\s+)?["']?([A-Za-z_][\w./-]*)["']?\s*[:=]""")
_IMPORT = re.compile(r"\s*(?:import\b|from\s+\S+\s+import\b|use\s+\w|#include\b|require\b|const .*=\s*require\()")
_TEST_FILE = re.compile(r"(?:^|/)(?:tests?|__tests__|spec)/|(?:^|/)test_|_test\.\w+$|\.(?:test|spec)\.\w+$", re.IGNORECASE)

_MANIFEST = re.compile(
    r"(?:^|/)(?:pyproject\.toml|package(?:-lock)?\.json|Cargo\.(?:toml|lock)|go\.(?:mod|sum)|Gemfile(?:\.lock)?|"
    r"composer\.json|[\w-]*requirements[\w-]*\.(?:txt|lock)|(?:uv|poetry|yarn)\.lock)$"
)

_NO_METHOD = {"if", "for", "while", "switch", "catch", "function", "return", "else", "with", "match"}
_BRACES = {".js", ".jsx", ".ts", ".tsx", ".mjs", ".java", ".cs", ".kt", ".cpp", ".cc", ".c", ".h", ".php", ".swift"}
_PROSE = {".md", ".mdx", ".rst", ".adoc"}
_SECTIONED = {".toml", ".ini", ".cfg"}
_KEYED = {".json", ".yml", ".yaml", ".env"}
_PLAIN = {".txt", ".log", ".csv", ".html", ".css", ".svg", ".lock", ""}


def suffix(path: str) -> str:
    stem, _, ending = path[-_MAX_NAME:].replace("\\", "/").rstrip("/").rpartition("/")[2].rpartition(".")
    return f".{ending}".lower() if stem and ending else ""


def is_test(path: str) -> bool:
    return _TEST_FILE.search(path.replace("\\", "/")) is not None


def is_manifest(path: str) -> bool:
    """True for files that list dependencies."""
    return _MANIFEST.search(path[-_MAX_NAME:].replace("\\", "/")) is not None


def is_code(path: str) -> bool:
    return suffix(path) not in _PROSE | _SECTIONED | _KEYED | _PLAIN


def is_import(line: str) -> bool:
    return _IMPORT.match(line[:_MAX_LINE]) is not None


def constant(line: str) -> str | None:
    return match[1] if (match := _CONSTANT.match(line[:_MAX_LINE])) else None


def key(path: str, line: str) -> str | None:
    """The key that a line of a settings file sets (`retries: 3`)."""
    return match[1] if suffix(path) in _KEYED | _SECTIONED and (match := _KEY.match(line[:_MAX_LINE])) else None


def indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def defined(path: str, line: str) -> str | None:
    """The name a line defines in a file of this kind: a function, a class, a table, a heading in quotes, a `[section]`."""
    line, kind = line[:_MAX_LINE], suffix(path)
    if kind in _PROSE:
        match = _HEADING.match(line)
        return f'"{match[1]}"' if match else None
    if kind in _SECTIONED:
        match = _SECTION.match(line)
        return f"[{match[1]}]" if match else None
    if kind in _KEYED | _PLAIN:
        return None
    if kind == ".sql":
        match = _SQL.match(line)
        return match[1].strip('"') if match else None
    return _code_name(line, kind)


def _code_name(line: str, kind: str) -> str | None:
    match = _DEFINITION.match(line) or _ARROW.match(line)
    if match is None and kind in _BRACES:
        match = _METHOD.match(line) if line.rstrip().endswith("{") else None
    return match[1] if match and match[1] not in _NO_METHOD else None


class Outline:
    """What the lines read so far leave open at the end: the functions, classes, heading or section the next line stands in."""

    def __init__(self, path: str, open_names: Iterable[tuple[int, str]] = ()) -> None:
        self._path = path
        self._nested = suffix(path) not in _PROSE | _SECTIONED
        self._open = list(open_names)
        """Indentation and name, each deeper than the one before; in a file without nesting only the latest, at -1."""

    def branch(self) -> Outline:
        return Outline(self._path, self._open)

    def read(self, lines: Iterable[str]) -> None:
        for line in lines:
            if name := defined(self._path, line):
                self.enter(line, name)

    def enter(self, line: str, name: str) -> None:
        """A line that defines a name: what is indented as far or further ends there."""
        depth = indent(line) if self._nested else -1
        while self._open and self._open[-1][0] >= depth:
            self._open.pop()
        self._open.append((depth, name))

    def around(self, depth: int) -> str | None:
        """What a line indented by `depth` stands in: `Order.total`, a heading, a section; None at top level."""
        return ".".join([name for at, name in self._open if at < depth][:2]) or None
