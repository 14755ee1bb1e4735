"""`cmserver remember --for me` and `cmserver mine`: what is remembered for one person alone."""

from __future__ import annotations

import pytest

from cmserver.base.db import Db
from cmserver.cli.exit_codes import ExitCode
from tests.cli.conftest import Cms
from tests.conftest import Cast, Person
from tests.personal.people import make_two
from tests.table import try_rows


@pytest.fixture
async def two(db: Db, cast: Cast) -> tuple[Person, Person]:
    """Ann and Ben of Alice's team."""
    return await make_two(db, cast.alice.team_id)


async def test_the_commands_remember_list_and_move_what_is_ones_own(cms: Cms, two: tuple[Person, Person]):
    ann, ben = two

    said = [
        await cms(*words, key=ann.key)
        for words in (
            ["remember", "--for", "me", "Answer me in German."],
            ["mine", "list"],
            ["mine", "show", "m1"],
            ["mine", "edit", "m1", "--content", "Answer me in French."],
            ["mine", "undo", "m1"],
            ["mine", "give", "m1", "--project", "orders"],
            ["mine", "undo", "m1"],
            ["mine", "take", "1"],
            ["mine", "forget", "m1"],
        )
    ]

    codes = [one.code for one in said]
    assert codes == [0, 0, 0, 0, 0, 0, 0, ExitCode.FAILURE, 0], said
    assert said[0].out == "m1 Answer me in German.\n"
    assert "Answer me in German." in said[1].out
    assert "Answer me in French." in said[3].out
    assert "#1" in said[5].out
    assert (await cms("mine", "list", key=ben.key)).out.startswith("Nothing is remembered for you alone.")


@try_rows(
    ("option", "value"),
    [("--title", "x"), ("--project", "orders"), ("--on-duplicate", "suggest"), ("--importance", "0.5"), ("--expires-after", "3")],
)
async def test_an_option_without_a_meaning_is_refused(cms: Cms, cast: Cast, option: str, value: str):
    said = await cms("remember", "--for", "me", option, value, "Answer me in German.", key=cast.alice.key)

    assert said.code == ExitCode.USAGE
    assert f"{option} has no meaning with --for me" in said.err


async def test_a_key_of_nobodys_says_how_to_get_one(cms: Cms, cast: Cast):
    said = await cms("remember", "--for", "me", "Answer me in German.", key=cast.alice.key)

    assert said.code == ExitCode.FAILURE
    assert "belongs to no person" in said.err


async def test_one_of_ones_own_is_shown_and_undone_by_its_name_beside_the_teams(cms: Cms, two: tuple[Person, Person]):
    ann, ben = two
    await cms("remember", "--for", "me", "Answer me in German.", key=ann.key)
    await cms("remember", "--project", "orders", "Deploy with make.", key=ann.key)
    await cms("mine", "edit", "m1", "--content", "Answer me in French.", key=ann.key)

    shown = await cms("show", "m1", "1", "m9", key=ann.key)
    undone = await cms("undo", "#m1", key=ann.key)
    found = await cms("mine", "list", "--query", "answer German", key=ann.key)
    others = await cms("show", "m1", key=ben.key)

    assert shown.code == ExitCode.FAILURE
    assert "There is no observation m9." in shown.err
    assert shown.out.index("Answer me in French.") < shown.out.index("Deploy with make.")
    assert undone.out == "As it was before: m1 Answer me in German.\n"
    assert "Answer me in German." in found.out
    assert (others.code, others.out) == (ExitCode.FAILURE, "")
