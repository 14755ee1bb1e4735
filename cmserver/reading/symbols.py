"""Which function, class, table or heading a line of a file defines, judged by its look."""

from __future__ import annotations

import re
from functools import lru_cache

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
    r'(?:concurrently\s+)?(?:if\s+not\s+exists\s+)?"?([\w."]*\w)',
    re.IGNORECASE,
)
_HEADING = re.compile(r"#{1,6}\s+(\S.*?)\s*#*$")
_IMPORT = re.compile(r"\s*(?:import\b|from\s+\S+\s+import\b|use\s+\w|#include\b|require\b|const .*=\s*require\()")

_NO_METHOD = {"if", "for", "while", "switch", "catch", "function", "return", "else", "with", "match"}
_PROSE = {".md", ".mdx", ".rst", ".adoc"}
_NO_CODE = {".toml", ".ini", ".cfg", ".json", ".yml", ".yaml", ".env", ".txt", ".log", ".csv", ".html", ".css", ".svg", ".lock", ""}


def is_import(line: str) -> bool:
    return _IMPORT.match(line[:_MAX_LINE]) is not None


def defined(path: str, line: str) -> str | None:
    """The name a line defines in a file of this kind: a function, a class, a table, a heading in quotes."""
    return _find_definition(_suffix(path[-_MAX_NAME:]), line[:_MAX_LINE])


# A file is often changed in the same place again, and each changed line is asked for twice.
@lru_cache(maxsize=4096)
def _find_definition(kind: str, line: str) -> str | None:
    if kind in _PROSE:
        return f'"{match[1]}"' if (match := _HEADING.match(line)) else None
    if kind in _NO_CODE:
        return None
    if kind == ".sql":
        return match[1] if (match := _SQL.match(line)) else None
    match = _DEFINITION.match(line) or _ARROW.match(line) or (_METHOD.match(line) if line.rstrip().endswith("{") else None)
    return match[1] if match and match[1] not in _NO_METHOD else None


@lru_cache(maxsize=512)
def _suffix(path: str) -> str:
    stem, _, ending = path.replace("\\", "/").rstrip("/").rpartition("/")[2].rpartition(".")
    return f".{ending}".lower() if stem and ending else ""
