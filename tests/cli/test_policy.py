"""`cmserver projects policy` and `cmserver teams policy`: how observations are worded."""

from __future__ import annotations

import pytest

from cmserver.access.model import GenerationPolicy
from cmserver.access.wire import OneProjectOut
from tests.cli.conftest import Cms, Said
from tests.conftest import Cast

ORDERS = "github.com/acme/orders"


def policy(said: Said) -> GenerationPolicy:
    assert said.code == 0, said.err
    return said.read(OneProjectOut).project.generation_policy


async def test_how_observations_are_worded_is_said_and_shown(cms: Cms, cast: Cast):
    said = [
        "--verbosity",
        "minimal",
        "--language",
        "German",
        "--skip-rule",
        "path:**/*.lock",
        "--skip-rule",
        "Moved, renamed files.",
    ]

    shown = await cms("projects", "policy", ORDERS, *said, key=cast.alice.key)

    lines = [line.split(maxsplit=1) for line in shown.out.splitlines()]
    assert ["verbosity", "minimal"] in lines
    assert ["language", "German"] in lines
    assert [rest for name, rest in lines if name == "skip"] == [
        "rule            path:**/*.lock",
        "rule            Moved, renamed files.",
    ]


async def test_what_is_not_said_stays_until_it_is_cleared(cms: Cms, cast: Cast):
    await cms("projects", "policy", ORDERS, "--language", "German", "--skip-rule", "Typos.", key=cast.alice.key)

    both = policy(await cms("projects", "policy", ORDERS, "--verbosity", "verbose", "--json", key=cast.alice.key))
    none = policy(await cms("projects", "policy", ORDERS, "--clear", "--json", key=cast.alice.key))

    assert (both.verbosity, both.language, both.skip_rules) == ("verbose", "German", ["Typos."])
    assert none == GenerationPolicy()


async def test_a_team_says_it_for_all_its_projects(cms: Cms, cast: Cast):
    said = await cms("teams", "policy", "blue", "--skip-rule", "Typos.", key=cast.alice.key)

    assert said.code == 0, said.err
    assert "Typos." in said.out


@pytest.mark.parametrize("words", [["--verbosity", "chatty"], ["--skip-rule", "no"], ["--skip-rule", "path:"]], ids=str)
async def test_a_wrong_value_is_refused_in_a_sentence(cms: Cms, cast: Cast, words: list[str]):
    refused = await cms("projects", "policy", ORDERS, *words, key=cast.alice.key)

    assert refused.code in {1, 2}
    assert refused.err
    assert policy(await cms("projects", "policy", ORDERS, "--json", key=cast.alice.key)) == GenerationPolicy()
