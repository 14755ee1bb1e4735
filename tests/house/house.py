"""What the whole-house tests look at: the package's source, its queries, and who owns which table."""

from __future__ import annotations

import ast
import importlib
import pkgutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import psycopg

import cmserver
from cmserver.base.sql import Query, QueryFunction

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "cmserver"


class Source(msgspec.Struct, frozen=True):
    """One file of the package: its dotted name and its syntax tree."""

    module: str
    tree: ast.Module

    @property
    def last(self) -> str:
        return self.module.rpartition(".")[2]

    @property
    def room(self) -> str:
        return self.module.split(".")[1]


@cache
def sources() -> list[Source]:
    """Every file below cmserver/ but the bare __init__."""
    files = sorted(file for file in PACKAGE.rglob("*.py") if file.name != "__init__.py")
    return [source(file.read_text(encoding="utf-8"), _dotted(file)) for file in files]


def source(text: str, module: str = "cmserver.example.verb") -> Source:
    return Source(module, ast.parse(text))


def _dotted(file: Path) -> str:
    return ".".join(file.relative_to(ROOT).with_suffix("").parts)


@cache
def modules() -> list[ModuleType]:
    """Every module of the package, imported."""
    found = pkgutil.walk_packages(cmserver.__path__, "cmserver.")
    return [importlib.import_module(one.name) for one in found if not one.name.endswith("__main__")]


def queries_of(module: ModuleType) -> dict[str, Query[Any]]:
    """By name: its constants, and its functions that are queries."""
    found = {name: value.query if isinstance(value, QueryFunction) else value for name, value in vars(module).items()}
    return {name: value for name, value in found.items() if isinstance(value, Query)}


def queries() -> Iterator[tuple[str, Query[Any]]]:
    """Dotted name and query, each once, where it is defined (a query that is imported elsewhere is the same object)."""
    seen: set[int] = set()
    for module in modules():
        for name, query in queries_of(module).items():
            if id(query) not in seen:
                seen.add(id(query))
                yield f"{module.__name__}.{name}", query


def needs_vectors(query: Query[object]) -> bool:
    """Whether it speaks of a type that only pgvector brings."""
    return "halfvec" in query.text


def has_vectors(conn: psycopg.Connection) -> bool:
    return conn.execute("SELECT to_regtype('halfvec') IS NOT NULL").fetchone() == (True,)


@cache
def declared(name: str) -> dict[str, set[str]]:
    """Room -> its tables, from every module-level `OWNS` or `BORROWS`."""
    found: dict[str, set[str]] = {}
    for module in modules():
        if name in vars(module):
            room = module.__name__.split(".")[1]
            found[room] = found.get(room, set()) | vars(module)[name]
    return found


def owner_of(table: str) -> str | None:
    """The room that owns the table. What procrastinate brings belongs to base."""
    if table.startswith("procrastinate_"):
        return "base"
    return next((room for room, tables in declared("OWNS").items() if table in tables), None)
