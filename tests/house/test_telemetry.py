from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from cmserver.base.telemetry import EVENTS
from tests.house.logs_page import logs_page

PACKAGE = Path(__file__).parents[2] / "cmserver"
LEVELS = {"debug", "info", "warning", "error", "exception", "critical"}


def logged(source: str, filename: str = "example.py") -> Iterator[tuple[int, str | None]]:
    """Line and event name of each `log.<level>(...)`, `log.bind(...).<level>(...)` and `self.log.<level>(...)`; a name
    that is no literal, or has more beside it than keywords, is None."""
    for node in ast.walk(ast.parse(source, filename)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LEVELS:
            if not is_log(node.func.value):
                continue
            match node.args:
                case [ast.Constant(value=str(name))]:
                    yield node.lineno, name
                case _:
                    yield node.lineno, None


def is_log(node: ast.expr) -> bool:
    match node:
        case ast.Name(id="log") | ast.Attribute(attr="log"):
            return True
        case ast.Call(func=ast.Attribute(value=inner, attr="bind" | "new" | "unbind")):
            return is_log(inner)
        case _:
            return False


def all_logged() -> list[tuple[str, str | None]]:
    return [
        (f"{file.relative_to(PACKAGE.parent)}:{line}", name)
        for file in sorted(PACKAGE.rglob("*.py"))
        for line, name in logged(file.read_text(encoding="utf-8"), str(file))
    ]


def test_every_logged_event_stands_in_the_catalogue():
    strangers = [f"{place}: {name or 'the event is no literal name'}" for place, name in all_logged() if name not in EVENTS]

    assert strangers == [], "add a line for each to EVENTS in cmserver/base/telemetry.py"


def test_every_event_of_the_catalogue_is_logged_somewhere():
    unused = sorted(EVENTS.keys() - {name for _, name in all_logged()})

    assert unused == [], "log them, or take them out of EVENTS in cmserver/base/telemetry.py"


def test_the_two_tests_above_see_what_they_should():
    source = """
log.info("a.b", port=1)
self.log.bind(x=1).exception("c.d")
log.warning(name)
log.error("e.f %s", x)
math.log.debug
other.info("not ours")
"""

    assert list(logged(source)) == [(2, "a.b"), (3, "c.d"), (4, None), (5, None)]


def test_the_catalogue_is_in_order_and_each_event_is_one_sentence():
    assert list(EVENTS) == sorted(EVENTS)
    for name, sentence in EVENTS.items():
        assert name.count(".") == 1
        assert sentence.endswith(".")
        assert f"| `{name}` | {sentence} |" in logs_page()
