"""What the pages for users show: their code blocks, and the commands and requests in them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from starlette.routing import Match

from cmserver.app import ROUTES
from tests.house.house import ROOT

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"(^|\s)#.*$", re.MULTILINE)
_BETWEEN = ";|&\n"


class Block(msgspec.Struct, frozen=True):
    """A fenced block of a page: its language, and what is in it."""

    language: str
    text: str


class Curl(msgspec.Struct, frozen=True, kw_only=True):
    """What a curl command would send."""

    method: str
    url: str
    headers: dict[str, str]
    body: str | None

    @property
    def is_served(self) -> bool:
        """Whether the program has that path with that method."""
        scope: dict[str, object] = {"type": "http", "method": self.method, "path": urlsplit(self.url).path, "headers": []}
        return any(route.matches(scope)[0] is Match.FULL for route in ROUTES)


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(text: str) -> list[Block]:
    return [Block(match[1], match[2]) for match in _BLOCK.finditer(text)]


def commands(text: str) -> Iterator[list[str]]:
    """The words of each command in a piece of shell, taken apart at pipes, too. Comments are left out."""
    plain = _COMMENT.sub("", text).replace("\\\n", " ")
    lexer = shlex.shlex(plain, posix=True, punctuation_chars=_BETWEEN)
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t", True, ""
    words: list[str] = []
    for word in lexer:
        if set(word) <= set(_BETWEEN):
            if words:
                yield words
            words = []
        else:
            words.append(word)
    if words:
        yield words


def curl(words: list[str]) -> Curl:
    """What `curl ...` would send. An option that is new here is to be added."""
    method, url, headers, body = None, "", dict[str, str](), None
    rest = iter(words[1:])
    for word in rest:
        match word:
            case "-s" | "-sS" | "-N":
                pass
            case "--max-time":
                next(rest)
            case "-X":
                method = next(rest)
            case "-H":
                header, _, value = next(rest).partition(":")
                headers[header] = value.strip()
            case "-d" | "--data-binary":
                body = next(rest)
            case _:
                assert word.startswith("http"), f"an example has {word}: teach it to {__name__}.curl"
                url = word
    return Curl(method=method or ("GET" if body is None else "POST"), url=url, headers=headers, body=body)
