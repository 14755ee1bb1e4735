"""What makes an observation useful to a session, part by part."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

from cmserver.recall.index.relevance import WEIGHTS, SessionFocus, score_row
from cmserver.recall.model import IndexRow
from tests.table import try_rows

NOW = datetime(2026, 3, 5, tzinfo=UTC)
SESSION = uuid4()


def row(
    *, files: list[str] | None = None, ago: int = 0, kind: str = "observation", type_: str = "change", session: UUID | None = None
) -> IndexRow:
    return IndexRow(
        number=1,
        project_id=uuid4(),
        server_session_id=session,
        scope="project",
        kind=kind,
        type=type_,
        title="t",
        files=files or [],
        read_tokens=1,
        discovery_tokens=0,
        created_at=NOW - timedelta(minutes=ago),
    )


def situation(*changed: str) -> SessionFocus:
    return SessionFocus([NOW - timedelta(minutes=ago) for ago in range(100)], changed, SESSION)


@try_rows(
    ("path", "changed", "is_about_it"),
    [
        ("src/a.py", "src/a.py", True),
        ("/home/dev/orders/src/a.py", "src/a.py", True),
        ("C:\\dev\\orders\\src\\a.py", "src/a.py", True),
        ("src/a.py", "packages/orders/src/a.py", True),
        ("./src/a.py", "src/a.py", True),
        ("lib/a.py", "src/a.py", False),
        ("a.py", "src/a.py", False),
        ("/home/dev/orders/README.md", "README.md", True),
        ("src/aa.py", "src/a.py", False),
        ("", "src/a.py", False),
    ],
)
def test_files_are_compared_by_how_their_paths_end(path: str, changed: str, is_about_it: bool):
    judged = score_row(row(files=["other.py", path]), situation(changed))

    assert judged.file == (changed if is_about_it else None)
    assert ("files" in judged.parts) is is_about_it


def test_a_neighbour_of_a_file_under_change_counts_less_than_the_file():
    about, beside, elsewhere = (
        score_row(row(files=[path]), situation("src/orders/a.py"))
        for path in ("src/orders/a.py", "src/orders/b.py", "src/users/b.py")
    )

    assert about.score > beside.score > elsewhere.score
    assert "folders" not in about.parts
    assert beside.parts["folders"] == WEIGHTS.folders


def test_recency_halves_with_as_many_younger_ones():
    newest, later = score_row(row(ago=0), situation()), score_row(row(ago=WEIGHTS.half), situation())

    assert (newest.parts["recency"], later.parts["recency"]) == (WEIGHTS.recency, WEIGHTS.recency / 2)


def test_the_sum_is_that_of_the_parts():
    judged = score_row(row(files=["src/a.py"], type_="decision", session=SESSION), situation("src/a.py"))

    assert judged.parts == {
        "recency": WEIGHTS.recency,
        "type": WEIGHTS.type["decision"],
        "files": WEIGHTS.files,
        "session": WEIGHTS.session,
    }
    assert judged.score == round(sum(judged.parts.values()), 3)


def test_what_a_person_wrote_down_counts_by_that_and_not_by_its_type():
    by_hand = score_row(row(kind="manual", type_="change"), situation()).parts
    assert (by_hand["type"], by_hand["by hand"]) == (WEIGHTS.type["change"], WEIGHTS.by_hand)
