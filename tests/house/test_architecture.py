"""The stairs between the rooms. import-linter keeps them ([tool.importlinter] in pyproject.toml) in bin/check; here each of its
contracts is seen to bite, and what it cannot say is said."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.house.house import PACKAGE, ROOT, Source, source, sources
from tests.table import try_rows

Rule = Callable[[Source], Iterator[str]]

PLANTS = [
    # contract, file, what is added to it, what lint-imports says
    ("floors", "events/read.py", "from cmserver.recall.model import Hit", "cmserver.events.read -> cmserver.recall.model"),
    ("floors", "models/calls/model.py", "import cmserver.rules.model", "cmserver.models.calls.model -> cmserver.rules.model"),
    ("floors", "service.py", "", "The following modules are not listed as layers:\n\n- cmserver.service\n"),
    ("room", "sessions/model.py", "from . import repository", "cmserver.sessions.model -> cmserver.sessions.repository"),
    ("wing", "doors/mcp/call.py", "import cmserver.doors.web.page", "cmserver.doors.mcp.call -> cmserver.doors.web.page"),
    ("doors", "doors/hooks/claude_code.py", "import cmserver.ingest.api", "hooks.claude_code -> cmserver.ingest.api"),
    ("http", "sessions/write.py", "import starlette.requests", "cmserver.sessions.write -> starlette"),
    ("models", "models/budgets/model.py", "import cmserver.models.calls.model", "budgets.model -> cmserver.models.calls.model"),
    ("providers", "models/providers/registry.py", "import psycopg", "cmserver.models.providers.registry -> psycopg"),
    ("cycles", "base/errors.py", "from cmserver.base import db", "No cycles are allowed in cmserver.base."),
]


def lint_imports(folder: Path) -> str:
    program = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([program, "--no-cache", "--no-logo"], cwd=folder, capture_output=True, text=True, check=False)
    return done.stdout


@pytest.fixture(scope="module")
def said_of_plants(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What lint-imports says of a copy of the package with all the plants in it."""
    folder = tmp_path_factory.mktemp("planted")
    shutil.copytree(PACKAGE, folder / "cmserver", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    for _, file, text, _ in PLANTS:
        with (folder / "cmserver" / file).open("a", encoding="utf-8") as opened:
            opened.write(f"\n{text}\n")
    return lint_imports(folder)


@try_rows(("contract", "words"), [(contract, words) for contract, _, _, words in PLANTS])
def test_every_contract_bites(said_of_plants: str, contract: str, words: str):
    names = contracts()

    _, _, section = said_of_plants.partition(f"\n{names[contract]}\n---")  # of the details, not the overview

    assert words in section


def test_every_contract_has_a_plant():
    assert contracts().keys() == {contract for contract, _, _, _ in PLANTS}


def contracts() -> dict[str, str]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        return {one["id"]: one["name"] for one in tomllib.load(file)["tool"]["importlinter"]["contracts"]}


# ---- what import-linter cannot say: it sees modules, not names


OTHER_PROGRAMS = {"cmserver.ops.transfer.claude_mem", "cmserver.ops.transfer.contextify"}


def sql_outside(one: Source) -> Iterator[str]:
    """Queries made or statements executed outside of repositories.

    `embedded` makes roles and databases, and owns no table; imports read the databases of other programs.
    """
    if one.last == "repository" or one.room in {"base", "embedded"} or one.module in OTHER_PROGRAMS:
        return
    for node in ast.walk(one.tree):
        match node:
            case ast.ImportFrom(module="cmserver.base.sql", names=names) if {name.name for name in names} - {"Conn"}:
                yield f"{one.module}:{node.lineno} takes more than Conn from base.sql; SQL stands in repositories"
            case ast.Import(names=names) if "cmserver.base.sql" in {name.name for name in names}:
                yield f"{one.module}:{node.lineno} imports base.sql whole; SQL stands in repositories"
            case ast.Call(func=ast.Attribute(attr="execute" | "executemany" | "copy")):
                yield f"{one.module}:{node.lineno} executes a statement; SQL stands in repositories"
            case _:
                pass


def climbing(one: Source) -> Iterator[str]:
    """What a repository or a model imports from a room besides models (and from its own, besides the model)."""
    if one.last not in {"repository", "model"} or one.room == "base":
        return
    for node in ast.walk(one.tree):
        match node:
            case ast.ImportFrom(module=str(name), names=names) if name.startswith("cmserver.") and not name.startswith(
                "cmserver.base"
            ):
                if not name.endswith(".model") and {alias.name for alias in names} != {"model"}:
                    yield f"{one.module}:{node.lineno} imports {name}; a {one.last} knows models, and base"
            case _:
                pass


@pytest.mark.parametrize("rule", [sql_outside, climbing])
def test_sql_stands_in_repositories_and_they_know_only_models(rule: Rule):
    assert [said for one in sources() for said in rule(one)] == []


def test_no_room_has_a_service():
    assert [one.module for one in sources() if one.last in {"service", "utils", "helpers", "common"} and one.room != "cli"] == []


@try_rows(
    ("rule", "module", "text"),
    [
        (sql_outside, "cmserver.events.read", "from cmserver.base.sql import Conn, Query"),
        (sql_outside, "cmserver.events.read", "import cmserver.base.sql"),
        (sql_outside, "cmserver.events.read", "async def f(conn):\n    await conn.execute('SELECT 1')"),
        (climbing, "cmserver.events.repository", "from cmserver.events.read import one"),
        (climbing, "cmserver.events.repository", "from cmserver.sessions import repository"),
        (climbing, "cmserver.sessions.model", "from cmserver.sessions.write import find_or_make"),
    ],
)
def test_the_two_rules_see_what_they_should(rule: Rule, module: str, text: str):
    assert len(list(rule(source(text, module)))) == 1
