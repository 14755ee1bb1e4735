from __future__ import annotations

from cmserver.access.wire import OneProjectOut, ProjectOut
from tests.cli.conftest import Cms, Said
from tests.conftest import Cast
from tests.make import Make

ORDERS = "github.com/acme/orders"


def project(said: Said) -> ProjectOut:
    assert said.code == 0, said.err
    return said.read(OneProjectOut).project


async def test_the_projects_of_the_team_are_listed(cms: Cms, cast: Cast):
    said = await cms("projects", "list", key=cast.alice.key)

    assert said.column("id") == [str(cast.alice.project.id)]
    assert said.column("project") == [ORDERS]


async def test_a_project_is_made_once(cms: Cms, cast: Cast):
    first = await cms("projects", "create", "git@github.com:acme/bills.git", "--name", "Bills", "--json", key=cast.alice.key)
    again = await cms("projects", "create", "github.com/acme/bills", "--json", key=cast.alice.key)

    assert project(first).id == project(again).id
    assert (project(first).canonical_id, project(first).name) == ("github.com/acme/bills", "Bills")


async def test_the_language_of_a_project_is_chosen_when_it_is_made_or_later(cms: Cms, cast: Cast):
    made = project(await cms("projects", "create", "bills", "--search-language", "french", "--json", key=cast.alice.key))
    changed = project(await cms("projects", "search-language", ORDERS, "german", "--json", key=cast.alice.key))
    unknown = await cms("projects", "search-language", ORDERS, "klingon", key=cast.alice.key)
    shown = await cms("projects", "show", ORDERS, key=cast.alice.key)

    assert (made.search_language, changed.search_language) == ("french", "german")
    assert (unknown.code, "simple, arabic" in unknown.err) == (1, True)
    assert "german" in shown.out


async def test_what_becomes_of_what_says_the_same_is_chosen_for_a_project(cms: Cms, cast: Cast):
    merging = project(await cms("projects", "consolidation", ORDERS, "merge", "--with-model", "--json", key=cast.alice.key))
    without = project(await cms("projects", "consolidation", ORDERS, "--without-model", "--json", key=cast.alice.key))
    nothing = await cms("projects", "consolidation", ORDERS, key=cast.alice.key)
    shown = await cms("projects", "show", ORDERS, key=cast.alice.key)

    assert (merging.consolidation, merging.merge_with_model) == ("merge", True)
    assert (without.consolidation, without.merge_with_model) == ("merge", False)
    assert (nothing.code, "--with-model" in nothing.err) == (2, True)
    assert "rules" in shown.out


async def test_a_project_is_found_by_an_alias_until_it_is_taken_away(cms: Cms, cast: Cast):
    await cms("projects", "alias", "add", ORDERS, "shop", key=cast.alice.key)
    both = project(await cms("projects", "alias", "add", ORDERS, "till", "--json", key=cast.alice.key))
    by_alias = await cms("projects", "show", "shop", key=cast.alice.key)
    one = project(await cms("projects", "alias", "remove", "till", "shop", "--json", key=cast.alice.key))

    assert sorted(both.aliases) == ["shop", "till"]
    assert by_alias.code == 0
    assert one.aliases == ["till"]
    assert (await cms("projects", "show", "shop", key=cast.alice.key)).code == 1


async def test_an_alias_is_added_in_the_form_in_which_it_is_removed(cms: Cms, cast: Cast):
    url = "https://github.com/acme/old-orders.git"
    added = await cms("projects", "alias", "add", ORDERS, url, "--json", key=cast.alice.key)
    removed = await cms("projects", "alias", "remove", ORDERS, url, "--json", key=cast.alice.key)

    assert project(added).aliases == ["github.com/acme/old-orders"]
    assert project(removed).aliases == []


async def test_an_alias_that_there_is_not_cannot_be_removed(cms: Cms, cast: Cast):
    said = await cms("projects", "alias", "remove", ORDERS, "shop", key=cast.alice.key)

    assert (said.code, "no alias of the project" in said.err) == (1, True)


async def test_an_archived_project_is_out_of_the_list_and_comes_back(cms: Cms, cast: Cast):
    known = str(cast.alice.project.id)
    await cms("projects", "archive", known, key=cast.alice.key)
    current = await cms("projects", "list", key=cast.alice.key)
    archived = await cms("projects", "list", "--archived", key=cast.alice.key)
    back = await cms("projects", "unarchive", known, key=cast.alice.key)

    assert current.out == "There are no projects.\n"
    assert archived.column("id") == [known]
    assert back.code == 0, back.err
    assert (await cms("projects", "list", key=cast.alice.key)).column("id") == [known]


async def test_the_policy_of_a_project_is_set_and_shown(cms: Cms, cast: Cast):
    await cms("projects", "policy", ORDERS, "--mode", "per_event", "--skip-event-type", "ping", key=cast.alice.key)

    policy = project(await cms("projects", "policy", ORDERS, "--json", key=cast.alice.key)).generation_policy

    assert (policy.mode, policy.skip_event_types, policy.skip_tools) == ("per_event", ["ping"], [])


async def test_what_is_said_of_a_policy_is_added_to_what_was_said(cms: Cms, cast: Cast):
    await cms("projects", "policy", ORDERS, "--mode", "per_event", key=cast.alice.key)
    await cms("projects", "policy", ORDERS, "--skip-tool", "Read", key=cast.alice.key)
    both = project(await cms("projects", "policy", ORDERS, "--json", key=cast.alice.key)).generation_policy
    await cms("projects", "policy", ORDERS, "--clear", "--skip-tool", "Bash", key=cast.alice.key)
    one = project(await cms("projects", "policy", ORDERS, "--json", key=cast.alice.key)).generation_policy

    assert (both.mode, both.skip_tools) == ("per_event", ["Read"])
    assert (one.mode, one.skip_tools) == (None, ["Bash"])


async def test_a_purged_project_remembers_nothing_and_stays(cms: Cms, cast: Cast, make: Make):
    await make.observation(project=cast.alice.project)

    said = await cms("projects", "purge", ORDERS, "--yes", key=cast.alice.key)

    assert said.code == 0, said.err
    assert "observations" in said.out
    assert (await cms("projects", "show", ORDERS, key=cast.alice.key)).code == 0


async def test_a_deleted_project_is_gone_and_nobody_elses(cms: Cms, cast: Cast):
    said = await cms("projects", "delete", ORDERS, "--yes", key=cast.alice.key)

    assert said.code == 0, said.err
    assert (await cms("projects", "show", ORDERS, key=cast.alice.key)).code == 1
    assert (await cms("projects", "show", ORDERS, key=cast.charlie.key)).code == 0
