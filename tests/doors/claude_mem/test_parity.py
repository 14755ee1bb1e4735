"""docs/reference/compatibility.md says what is there, and what is not."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import msgspec

from cmserver.app import ROUTES
from tests.house.pages import REFERENCE
from tests.table import try_rows

PAGE = REFERENCE / "compatibility.md"
OURS = {"/metrics", "/healthz", "/livez", "/readyz", "/docs", "/openapi.json", "/mcp"}
"""Beside /v1, these have nothing to do with another system."""

_ROW = re.compile(r"^\| (GET|POST|PUT|PATCH|DELETE) \| `([^`]+)` \| (\w+) \| ?(.*?) ?\|$", re.MULTILINE)
_NAME = re.compile(r"\{[^}]+\}")


class Row(msgspec.Struct, frozen=True):
    route: str
    verdict: str
    why: str


def rows(text: str) -> list[Row]:
    return [Row(_plain(method, path), verdict, why) for method, path, verdict, why in _ROW.findall(text)]


def _plain(method: str, path: str) -> str:
    """Whatever a parameter is called."""
    return f"{method} {_NAME.sub('{}', path)}"


def routes() -> set[str]:
    return {_plain(one.method, one.path) for one in ROUTES}


def legacy() -> set[str]:
    """Those of our routes that are there for the clients of others."""
    return {
        _plain(one.method, one.path)
        for one in ROUTES
        if (not one.path.startswith("/v1/") and one.path not in OURS) or one.path.startswith("/v1/memories")
    }


def wrong(page: Sequence[Row]) -> list[str]:
    """What the page says and the program does not, and the other way round."""
    there = routes()
    said = [f"{route} is listed twice" for route, count in Counter(row.route for row in page).items() if count > 1]
    for row in page:
        is_there = row.route in there or (row.route.endswith("*") and any(one.startswith(row.route[:-1]) for one in there))
        if row.verdict not in {"native", "adapter", "unsupported"}:
            said.append(f"{row.route} is {row.verdict}")
        if is_there != (row.verdict in {"native", "adapter"}):
            said.append(f"{row.route} is listed as {row.verdict}, and is {'there' if is_there else 'not there'}")
        if row.verdict == "unsupported" and not row.why:
            said.append(f"{row.route} is unsupported without a reason")
    listed = {row.route for row in page}
    return said + [f"{route} is not listed" for route in sorted(legacy() - listed)]


def test_the_page_says_what_is_there():
    assert wrong(rows(PAGE.read_text(encoding="utf-8"))) == []


def test_every_line_of_a_route_is_read():
    text = PAGE.read_text(encoding="utf-8")

    assert len(rows(text)) == len(re.findall(r"^\| (?:GET|POST|PUT|PATCH|DELETE) \|", text, re.MULTILINE)) > 80


@try_rows(
    ("old", "new", "said"),
    [
        ("| GET | `/stream` | adapter |", "| GET | `/streams` | adapter |", "GET /streams is listed as adapter, and is not there"),
        ("| GET | `/stream` | adapter |", "| GET | `/streams` | adapter |", "GET /stream is not listed"),
        ("| GET | `/api/logs` | unsupp", "| GET | `/api/stats` | unsupp", "GET /api/stats is listed twice"),
        ("| GET | `/api/projects` | adapter |", "| GET | `/api/projects` | unsupported |", "and is there"),
        ("`/api/import` | unsupported | `cms", "`/api/import` | unsupported | |\n| `cms", "without a reason"),
        ("| GET | `/api/auth/*` |", "| GET | `/api/s*` |", "GET /api/s* is listed as unsupported, and is there"),
    ],
)
def test_a_page_that_says_something_else_is_noticed(old: str, new: str, said: str):
    text = PAGE.read_text(encoding="utf-8")
    assert old in text

    found = wrong(rows(text.replace(old, new, 1)))

    assert any(said in one for one in found), found
