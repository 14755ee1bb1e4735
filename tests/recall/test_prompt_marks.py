"""What became of the files of a line that is told at a prompt, and when that is news to the session."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID, uuid4

import pytest

from cmserver.base.db import Db
from cmserver.embeddings.turn_sentences import write_due_sentences
from cmserver.git.clones import repository as clones
from cmserver.git.clones.model import ChangeKind, CommittedChange
from cmserver.recall.model import ContextRequest
from cmserver.recall.prompt_context import build_prompt_context
from cmserver.sessions.model import NewSession
from cmserver.sessions.write import find_or_make
from tests.conftest import Cast, Person
from tests.make import Make
from tests.table import try_rows

PROMPT = "why does the giraffe eat the walrus labels?"
LINE = "The giraffe printer eats the walrus labels"
CLONE, HEAD = uuid4(), "b" * 40
LATER = int(datetime(2099, 1, 1, tzinfo=UTC).timestamp())
PAY, QUEUE = "src/pay.py", "src/queue.py"


async def commit(db: Db, person: Person, *kinds: ChangeKind, first_at: int = LATER) -> None:
    """These commits, 0000000 and so on, are all that the clone has told of one file."""
    done = [CommittedChange(kind, str(place) * 12, "Ann", LATER if place else first_at) for place, kind in enumerate(kinds)]
    async with db.tenant(person.team_id) as conn:
        await clones.keep(conn, person.team_id, person.project.id, CLONE, HEAD, {PAY: done}, {})


async def get_told(db: Db, person: Person, session_id: UUID | None = None) -> str:
    request = ContextRequest(reason="prompt", session_id=session_id, clone_id=CLONE, head=HEAD)
    async with db.tenant(person.team_id) as conn:
        context = await build_prompt_context(conn, person.principal, person.project, request, PROMPT)
    return context.text if context else ""


@try_rows(
    ("modified", "read", "title", "is_marked"),
    [
        ([PAY], [], LINE, True),
        ([], [PAY], LINE, True),
        ([PAY], [PAY], LINE, True),
        ([PAY], [QUEUE], LINE, False),
        ([QUEUE], [PAY], LINE, False),
        ([PAY, QUEUE], [PAY], f"{LINE} of {PAY}", True),
        ([], [], f"{LINE} of {PAY}", True),
        ([], [], LINE, False),
    ],
)
async def test_an_observation_is_marked_by_its_only_file_or_by_those_in_its_words(
    db: Db, cast: Cast, make: Make, modified: list[str], read: list[str], title: str, is_marked: bool
):
    made = await make.observation(project=cast.alice.project, title=title, files_modified=modified, files_read=read)
    await commit(db, cast.alice, "D")

    told = await get_told(db, cast.alice)

    line = next(line for line in told.splitlines() if line.startswith(f"#{made.number} "))
    assert line.endswith(f" ({PAY} was removed in 0000000, by Ann)") is is_marked


@pytest.mark.parametrize(
    ("files", "reply", "kinds", "mark"),
    [
        ([PAY], f"{LINE}.", "D", f" ({PAY} was removed in 0000000, by Ann)"),
        ([PAY, QUEUE], f"{LINE}.", "D", ""),
        ([PAY, QUEUE], f"{LINE} of {PAY}.", "D", f" ({PAY} was removed in 0000000, by Ann)"),
        ([PAY], f"{LINE}.", "M", ""),
        ([PAY], f"{LINE}.", "MM", ""),
        ([PAY], f"{LINE}.", "MMM", f" ({PAY} was changed since, last in 2222222, by Ann)"),
    ],
    ids=["one file", "two files", "in its words", "one change", "one of before", "two changes"],
)
async def test_a_turn_is_marked_by_its_only_file_or_by_those_in_its_words(
    db: Db, cast: Cast, make: Make, files: list[str], reply: str, kinds: Sequence[ChangeKind], mark: str
):
    turn = await make.turn(project=cast.alice.project, prompt="Why is it slow?", reply=reply)
    async with db.system() as conn:
        await conn.execute("UPDATE turns SET files = %s", [files])
    while await write_due_sentences(db, None, 0):
        pass
    await commit(db, cast.alice, *kinds, first_at=LATER if len(kinds) == 1 else 1)

    told = await get_told(db, cast.alice)

    assert f"#{turn.number} " in told
    assert told.count(" (src/") == bool(mark)
    assert f'{reply}"{mark}\n' in told


@try_rows(
    ("before", "after", "told"),
    [
        ("", "D", "was removed"),
        ("", "MM", "was changed"),
        ("MM", "MMD", "was removed"),
        ("MM", "R", "was moved"),
        ("R", "D", "was removed"),
        ("D", "R", None),
        ("D", "MM", None),
        ("MM", "MMM", None),
        ("D", "DAD", None),
        ("D", "", None),
        ("", "M", None),
    ],
)
async def test_what_was_told_is_told_once_more_with_a_mark_that_says_more(
    db: Db, cast: Cast, make: Make, before: Sequence[ChangeKind], after: Sequence[ChangeKind], told: str | None
):
    """A further commit only is no reason."""
    person = cast.alice
    await make.observation(project=person.project, title=LINE, files_modified=[PAY])
    async with db.tenant(person.team_id) as conn:
        session, _ = await find_or_make(conn, person.team_id, person.project.id, NewSession(external_session_id=str(uuid4())))
    await commit(db, person, *before)
    assert LINE in await get_told(db, person, session.id)
    assert await get_told(db, person, session.id) == ""

    await commit(db, person, *after)
    once, again = [await get_told(db, person, session.id) for _ in range(2)]

    assert (told in once) if told else once == ""
    assert again == ""
