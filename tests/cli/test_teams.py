from __future__ import annotations

from cmserver.access.wire import NewTeamOut, OneTeamOut, TeamsOut
from tests.cli.conftest import Cms
from tests.conftest import Cast


async def test_a_key_sees_its_own_team_only(cms: Cms, cast: Cast):
    said = await cms("teams", "list", key=cast.alice.key)

    assert said.column("name") == ["blue"]
    assert said.column("id") == [str(cast.alice.team_id)]


async def test_the_operator_sees_all_teams(cms: Cms, cast: Cast):
    said = await cms("teams", "list", "--operator")
    as_json = await cms("teams", "list", "--operator", "--json")

    assert set(said.column("name")) == {"blue", "red"}
    assert {team.name for team in as_json.read(TeamsOut).teams} == {"blue", "red"}


async def test_the_operator_of_one_team_sees_that_one(cms: Cms, cast: Cast):
    assert (await cms("teams", "list", "--operator", "--team", "red")).column("name") == ["red"]


async def test_the_operator_makes_a_team_with_a_key_that_works(cms: Cms, cast: Cast):
    made = await cms("teams", "create", "green", "--operator")
    key = made.out.splitlines()[-1]

    assert made.code == 0
    assert (await cms("teams", "list", key=key)).column("name") == ["green"]
    assert set((await cms("teams", "list", "--operator")).column("name")) == {"blue", "red", "green"}


async def test_only_the_first_key_is_printed_when_it_is_quiet(cms: Cms, cast: Cast):
    made = await cms("teams", "create", "green", "--operator", "--quiet")

    assert made.out.count("\n") == 1
    assert (await cms("teams", "show", key=made.out.strip())).code == 0


async def test_a_key_that_may_everything_makes_a_team_too(cms: Cms, cast: Cast):
    made = await cms("teams", "create", "green", "--json", key=cast.alice.key)

    assert made.read(NewTeamOut).team.name == "green"


async def test_two_teams_cannot_have_one_name(cms: Cms, cast: Cast):
    said = await cms("teams", "create", "red", "--operator")

    assert said.code == 1
    assert "red" in said.err


async def test_the_own_team_need_not_be_named(cms: Cms, cast: Cast):
    own = await cms("teams", "show", "--json", key=cast.alice.key)
    named = await cms("teams", "show", "blue", "--json", key=cast.alice.key)

    assert own.read(OneTeamOut).team == named.read(OneTeamOut).team


async def test_the_operator_sets_a_teams_limits_and_takes_them_away(cms: Cms, cast: Cast):
    def limits(said: OneTeamOut) -> tuple[int | None, int | None]:
        return said.team.requests_per_minute, said.team.events_per_month

    both = await cms("teams", "limits", "blue", "--requests-per-minute", "60", "--events-per-month", "9", "--operator", "--json")
    one = await cms("teams", "limits", "blue", "--requests-per-minute", "70", "--operator", "--json")
    none = await cms("teams", "limits", "blue", "--clear", "--operator", "--json")

    assert [limits(said.read(OneTeamOut)) for said in (both, one, none)] == [(60, 9), (70, 9), (None, None)]


async def test_limits_need_to_be_said(cms: Cms, cast: Cast):
    assert (await cms("teams", "limits", "blue", "--operator")).code == 2


async def test_the_policy_of_a_team_is_set_changed_and_cleared(cms: Cms, cast: Cast):
    await cms("teams", "policy", "blue", "--mode", "at_end", "--skip-tool", "Read", "--skip-tool", "Glob", key=cast.alice.key)
    await cms("teams", "policy", "blue", "--debounce-seconds", "7.5", key=cast.alice.key)
    shown = await cms("teams", "policy", "blue", key=cast.alice.key)
    cleared = await cms("teams", "policy", "blue", "--clear", key=cast.alice.key)

    assert shown.out.splitlines() == [
        "team                 blue",
        "mode                 at_end",
        "debounce seconds     7.5",
        "skipped event types  -",
        "skipped tools        Read, Glob",
        "verbosity            -",
        "language             -",
        "skip rules           -",
    ]
    assert "at_end" not in cleared.out


async def test_an_archived_team_is_closed_until_the_operator_opens_it(cms: Cms, cast: Cast):
    archived = await cms("teams", "archive", "blue", "--yes", key=cast.alice.key)
    closed = await cms("teams", "show", key=cast.alice.key)
    opened = await cms("teams", "unarchive", "blue", "--operator")

    assert archived.code == 0
    assert closed.code == 1
    assert opened.code == 0
    assert (await cms("teams", "show", key=cast.alice.key)).code == 0


async def test_a_deleted_team_is_gone(cms: Cms, cast: Cast):
    said = await cms("teams", "delete", "blue", "--yes", "--operator")

    assert said.code == 0, said.err
    assert (await cms("teams", "list", "--operator")).column("name") == ["red"]


async def test_members_come_change_and_go(cms: Cms, cast: Cast):
    async def alice(*words: str) -> str:
        said = await cms("teams", "members", *words, key=cast.alice.key)
        assert said.code == 0, said.err
        return said.out

    await alice("set", "alice", "--role", "owner")
    await alice("set", "dora@example.com")
    listed = await cms("teams", "members", "list", key=cast.alice.key)

    assert dict(zip(listed.column("user"), listed.column("role"), strict=True)) == {"alice": "owner", "dora@example.com": "member"}
    assert await alice("remove", "dora@example.com", "--yes") == "dora@example.com is out of the team. Keys revoked: 0.\n"
    assert (await cms("teams", "members", "list", key=cast.alice.key)).column("user") == ["alice"]


async def test_the_last_owner_stays(cms: Cms, cast: Cast):
    await cms("teams", "members", "set", "alice", "--role", "owner", "--operator", "--team", "blue")

    said = await cms("teams", "members", "remove", "alice", "--yes", "--operator", "--team", "blue")

    assert said.code == 1
    assert "owner" in said.err
