"""Whatever a user can name is named in docs/reference/. That its generated pages are what the code says is seen by bin/check."""

from __future__ import annotations

import inspect
import re
from functools import cache
from pathlib import Path

from cmserver.app import ROUTES
from cmserver.base.http.operation import Operation
from cmserver.base.settings import fields
from cmserver.base.telemetry import EVENTS
from cmserver.cli.exit_codes import MEANINGS
from cmserver.cli.main import cli
from cmserver.models.providers.model import FailureKind
from tests.house.house import declared
from tests.house.pages import OPS, REFERENCE, commands, present
from tests.house.test_tenancy_catalogue import VIEWS
from tests.house.web_page import page_routes
from tests.table import try_rows


@cache
def names() -> dict[str, list[str]]:
    """Page -> what must be named there."""
    return {
        "http.md": [f"| `{one.method} {one.path}` |" for one in ROUTES],
        "web.md": [f"| `{page.method} {page.path}` |" for page in page_routes()],
        "settings.md": [f"`{field.environment}`" for field in fields()],
        "cli.md": [f"| `{path}` |" for path, _ in commands(cli, "cmserver")],
        "logs.md": [f"| `{name}` |" for name in EVENTS],
        "exit-codes.md": [f"| {code.value} |" for code in MEANINGS],
        "provider-errors.md": [f"| `{kind.value}` |" for kind in FailureKind],
        "sql.md": [f"`{file.name}`" for file in OPS],
        "tables.md": [f"| `{name}` |" for name in [*VIEWS, *(table for owned in declared("OWNS").values() for table in owned)]],
    }


def missing(page: str, text: str) -> list[str]:
    return [f"docs/reference/{page} needs a line with {name}" for name in names()[page] if name not in text]


@try_rows("page", names())
def test_whatever_a_user_can_name_is_in_the_reference(page: str):
    assert missing(page, present(REFERENCE / page)) == []


def test_a_name_that_is_not_there_is_told_with_its_page():
    page = "exit-codes.md"
    text = present(REFERENCE / page)
    name = names()[page][0]

    found = missing(page, text.replace(name, ""))

    assert found == [f"docs/reference/{page} needs a line with {name}"]


@try_rows("route", ROUTES, ids=lambda route: f"{route.endpoint.__name__}")
def test_every_handler_says_in_a_sentence_what_it_does(route: Operation):
    doc = inspect.getdoc(route.endpoint) or ""

    assert doc.partition("\n\n")[0].endswith("."), (
        f"{route.endpoint.__name__} needs a docstring: it stands in docs/reference/http.md"
    )


@try_rows("file", OPS, ids=lambda file: file.name)
def test_every_file_of_sql_says_what_it_answers(file: Path):
    assert re.match(r"(-- [^\n]+\n)+", file.read_text(encoding="utf-8"))
