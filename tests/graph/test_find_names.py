"""What the rules find in the texts of an observation."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from cmserver.graph.find_names import MAX_NAMES, find_names
from cmserver.graph.model import NAME_MOST, ReadableText
from tests.evaluation.entities.evaluate import HALVES, measure


def names_in(**texts: Any) -> set[str]:
    observation = ReadableText(id=UUID(int=0), number=1, project_id=UUID(int=0), is_live=True, **texts)
    return {f"{name.type}:{name.name}" for name in find_names(observation)}


CASES: list[tuple[dict[str, Any], set[str]]] = [
    ({"files_modified": ["src/queue.py"], "title": "Changed queue.py"}, {"file:src/queue.py"}),
    ({"narrative": "see pool.ts:12 and https://example.com/a.html"}, {"file:pool.ts"}),
    ({"files_read": ["de_DE.UTF", "raw.shipments", "internal/scheduler"]}, set()),
    ({"facts": ["Passes: `uv run pytest -q tests/test_a.py`"]}, {"command:pytest", "file:tests/test_a.py"}),
    ({"facts": ["Command: `gitleaks detect -v` (exit code 1)"]}, {"command:gitleaks"}),
    ({"narrative": "We deploy with `make deploy-eu`, look with `ls -l`."}, set()),
    ({"narrative": "Run `cargo test --quiet` first."}, {"command:cargo test"}),
    (
        {"title": "`CartStore::total()` and `retry_after` are wrong, `plan` is not"},
        {"symbol:CartStore::total", "symbol:retry_after"},
    ),
    ({"anchors": ["MAX_RETRIES=3", "3d21c9a", "set(wait: 2.seconds)", "--timeout"]}, {"symbol:MAX_RETRIES", "symbol:--timeout"}),
    ({"facts": ["Failing: test_total, TestLeave"]}, {"symbol:test_total", "symbol:TestLeave"}),
    ({"facts": ["a/b.rs (+9/-0): Address, is_postcode and parse"]}, {"file:a/b.rs", "symbol:Address", "symbol:is_postcode"}),
    ({"narrative": "locale.Error, then TS2304 and ECONNREFUSED"}, {"error:locale.Error", "error:TS2304", "error:ECONNREFUSED"}),
    ({"title": "Added dev dependency hypothesis (uv)"}, {"technology:hypothesis"}),
    ({"title": "Added dependencies multer@2.0.4 and @types/node (npm)"}, {"technology:multer", "technology:@types/node"}),
    ({"facts": ['package.json (+1/-0): added `"zod": "^3.22"`']}, {"file:package.json", "technology:zod"}),
    ({"facts": ["a.py (+1/-0): added `from sqlalchemy.orm import Session`"]}, {"file:a.py", "technology:sqlalchemy"}),
    ({"facts": ["shop/a.py (+1/-0): added `from shop import b`"], "files_modified": ["shop/a.py"]}, {"file:shop/a.py"}),
    ({"narrative": "Postgres allows 100; Redis keeps the cache"}, {"technology:PostgreSQL", "technology:Redis"}),
    ({"narrative": "thanks, see you on Monday"}, set()),
    ({"content": "Only a content: `retry_queue` it is"}, {"symbol:retry_queue"}),
]


def test_names_of_each_kind():
    wrong = [(texts, found, wanted) for texts, wanted in CASES if (found := names_in(**texts)) != wanted]

    assert wrong == []


def test_of_the_labelled_mentions_nine_in_ten_are_right():
    figures = {half: measure(half) for half in HALVES}

    assert sum(figure.labelled for figure in figures.values()) >= 300
    assert {half: figure.wrong for half, figure in figures.items() if figure.precision < 0.9} == {}
    assert sum(figure.right for figure in figures.values()) >= 200


@given(st.text(max_size=400), st.lists(st.text(max_size=60), max_size=5))
def test_any_text_gives_a_bounded_list_of_short_names(text: str, items: list[str]):
    observation = ReadableText(
        id=UUID(int=0), number=1, project_id=UUID(int=0), is_live=True, narrative=f"`{text}` {text}", facts=items, anchors=items
    )

    names = find_names(observation)

    assert len(names) <= MAX_NAMES
    assert all(0 < len(name.name) <= NAME_MOST and "\n" not in name.name for name in names)
