"""Finds the files and identifiers that a sentence names, by which it is found."""

from __future__ import annotations

import re

_FILE = re.compile(r"(?<![\w/.-])(?:[\w.@-]+/)*[\w@-][\w.@-]*\.[A-Za-z]{1,10}\b(?!\()|(?<![\w/.-])(?:[\w.@-]+/)+[\w.@-]+")
_CODE = re.compile(r"`(?!(?:main|master)`)([^`\n]{1,120})`")
_IDENTIFIER = re.compile(
    r"\b(?:[A-Za-z]\w*(?:::|\.|->))*[A-Za-z]\w*_\w+\b|\b[A-Z][a-z0-9]+(?:[A-Z][a-z0-9]+)+\b|\b[a-z]+(?:[A-Z][a-z0-9]+)+\b|#\d{1,6}\b"
)
_NO_FILE = re.compile(r"^(?:e\.g|i\.e|z\.B|p\.ex|d\.h|u\.a|\d[\d.]*[a-z%]*|\w+\.\w+\(.*)$", re.IGNORECASE)


def find_names(text: str) -> list[str]:
    """The files that the text names, and then the code and the identifiers, each once."""
    files = [name.rstrip(".") for name in _FILE.findall(text) if not _NO_FILE.match(name)]
    return list(dict.fromkeys([*files, *_CODE.findall(text), *_IDENTIFIER.findall(text)]))
