"""Nobody can read, change, count or infer anything that belongs to another team, or to a project that his key is not for: tried out
on every route and every command, by naming it in every way there is."""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager
from typing import Annotated, Any
from uuid import UUID

import httpx
import msgspec
import pytest
from starlette.requests import Request
from starlette.responses import Response

from cmserver.access.model import SCOPES
from cmserver.access.verb import Verb
from cmserver.app import ROUTES
from cmserver.base.db import Db
from cmserver.base.http.operation import Operation
from cmserver.base.sql import Conn, Query
from cmserver.base.tenant_role import REQUEST_ROLE, TENANT_ROLE
from tests.conftest import Cast, mint
from tests.house import walk
from tests.house.house import queries
from tests.house.test_forgotten_team import with_team, without_team
from tests.house.walk import MARK, UNREAD, Things, Walker
from tests.make import Make
from tests.personal.people import make_two
from tests.rows import rows


class World(msgspec.Struct, frozen=True, kw_only=True):
    """Alice's things, and those who want to see them."""

    db: Db
    team_id: UUID
    alices: Things
    charlie: Walker
    bound: Walker
    """With a key of Alice's team, for another project."""
    bound_to: UUID
    before: dict[str, dict[str, walk.Answered]]
    """What the two could list when Alice had nothing yet."""


@pytest.fixture
async def world(client: httpx.AsyncClient, db: Db, cast: Cast, make: Make) -> World:
    await walk.set_apart(db, cast.alice.team_id)
    other = await walk.furnish(client, db, make, cast.alice, "ledger")
    charlies = await walk.furnish(client, db, make, cast.charlie, "private")
    await walk.set_apart(db, cast.alice.team_id)
    charlie, bound = Walker(client, cast.charlie.key, charlies.own), Walker(client, other.key, other.own)
    every = walk.stops()
    before = {"charlie": await walk.seen_in_lists(charlie, every), "bound": await walk.seen_in_lists(bound, every)}
    alices = await walk.furnish(client, db, make, cast.alice, MARK)
    await walk.set_apart(db, cast.alice.team_id)
    return World(
        db=db, team_id=cast.alice.team_id, alices=alices, charlie=charlie, bound=bound, bound_to=other.project_id, before=before
    )


def told(said: list[str]) -> str:
    return "\n".join(said)


async def test_a_stranger_can_do_nothing_with_what_he_can_name(world: World):
    said = await walk.complaints(world.charlie, world.alices, walk.stops(), world.db, world.team_id)

    assert not said, told(said)


async def test_a_key_for_another_project_of_the_team_can_do_no_more(world: World):
    said = await walk.complaints(world.bound, world.alices, walk.stops(), world.db, world.team_id, but_project=world.bound_to)

    assert not said, told(said)


@pytest.mark.parametrize("who", ["charlie", "bound"])
async def test_no_list_and_no_count_changes_with_what_alice_has(world: World, who: str):
    walker = world.charlie if who == "charlie" else world.bound

    after = await walk.seen_in_lists(walker, walk.stops())

    assert after.keys() == world.before[who].keys()
    assert after.keys() - UNREAD.keys(), "it compares something"
    for name, answered in after.items():
        expected = 403 if who == "bound" and name in walk.FOR_WHOLE_TEAMS else 200
        assert answered.status == expected, f"{name}: {answered.body}"
        assert MARK not in answered.body, name
        assert str(world.alices.project_id) not in answered.body, name
        if name not in UNREAD:
            assert answered == world.before[who][name], f"{name} tells that Alice has something"


async def test_a_key_with_every_other_scope_is_refused_by_every_route_by_hand(
    client: httpx.AsyncClient, db: Db, cast: Cast, make: Make
):
    """Those of rows are walked in tests/cli/test_verbs.py, with their commands."""
    hand = [route for route in ROUTES if route.scope and not isinstance(route, Verb)]
    stops = {stop.name: stop for stop in walk.stops(hand) if stop.tool is None}
    things = await walk.furnish(client, db, make, cast.alice, MARK)
    keys = {scope: await mint(db, cast.alice.team_id, "mallory", scopes=_others(scope)) for scope in {one.scope for one in hand}}
    await walk.set_apart(db, cast.alice.team_id)

    answers = {
        name: await Walker(client, keys[route.scope][1], things.own).send(stops[name])
        for route in hand
        if (name := f"{route.method} {route.path.replace(':path', '')}") in stops
    }

    assert {name: answered for name, answered in answers.items() if answered.status != 403} == {}
    assert len(answers) > 60


def _others(scope: str | None) -> list[str]:
    return ["admin"] if scope == "*" else [one for one in SCOPES if one not in {scope, "admin", "*"}]


SHOWS_ISOLATED = {
    "GET /v1/projects": "whoever runs the team opens it again from here",
    "GET /projects": "as above, for clients of the memory-service",
    "GET /v1/keys": "its keys are named by their owners",
    **dict.fromkeys(["GET /v1/jobs", "GET /v1/lanes"], "whoever runs the team sees what waits and fails, without a text"),
    **dict.fromkeys(["GET /v1/usage", "GET /v1/budgets"], "whoever pays sees what for"),
    "GET /v1/info": "its budgets, as those",
    "GET /v1/pins": "whoever runs the team sees what people have it asked",
    "GET /v1/audit": "it tells who did what, without a text",
    "GET /sessions/{sessionDbId}/status": "it names a session",
    **dict.fromkeys(
        ["GET /v1/personal-observations", "GET /v1/personal-memory", "GET /v1/context"], "what is hers alone is of no project"
    ),
}
"""Lists of the team that name an isolated project, and why."""


async def test_no_list_of_the_team_shows_what_is_isolated(client: httpx.AsyncClient, world: World, cast: Cast):
    team = Walker(client, cast.alice.key, world.bound.own)
    isolated = await client.patch(f"/v1/projects/{world.alices.project_id}", json={"isolated": True}, headers=cast.alice.headers)
    assert isolated.status_code == 200, isolated.text

    seen = await walk.seen_in_lists(team, walk.stops())
    found = await client.get("/v1/observations", params={"project": world.alices.own["project"]}, headers=cast.alice.headers)

    assert MARK in found.text, "who names it finds it"
    assert {name for name, answered in seen.items() if MARK in answered.body} == SHOWS_ISOLATED.keys()


async def test_alice_herself_finds_it_all_in_every_way(client: httpx.AsyncClient, world: World, cast: Cast):
    """Else the walk would show nothing: everything is missing for who asks in a wrong way."""
    alice = Walker(client, cast.alice.key, world.alices.own)
    reads = [stop for stop in walk.stops() if stop.reads and stop.slots and stop.path not in walk.ENDLESS]

    for stop in reads:
        for slot in stop.slots:
            for way in world.alices.ways[slot.kind]:
                answered = await alice.send(stop, slot, way.hers)
                uuid_only = stop.path.startswith("/projects/") or (
                    slot.kind == "observation" and stop.path != "/v1/observations/{id}"
                )
                assert answered.status == 200 or uuid_only, f"{stop.name} with {slot.name}={way.hers}: {answered.body}"


# ---- two people of one team


class Teammates(msgspec.Struct, frozen=True, kw_only=True):
    """Ann and Ben may do everything in one team. Ann has things that are hers alone: `anns`, of which `slots` name one."""

    db: Db
    ben: Walker
    anns: Things
    before: dict[str, walk.Answered]
    """What Ben could list when Ann had nothing of her own."""


@pytest.fixture
async def teammates(client: httpx.AsyncClient, db: Db, cast: Cast, make: Make) -> Teammates:
    ann, ben = await make_two(db, cast.alice.team_id)
    shared = await walk.furnish(client, db, make, cast.alice, "shared")
    mine = await walk.remember_personally(client, db, ben, "Call me Ben.")
    await walk.set_apart(db, cast.alice.team_id)
    walker = Walker(client, ben.key, {**shared.own, "personal": mine["id"]})
    before = await walk.seen_in_lists(walker, walk.stops())
    made = [await walk.remember_personally(client, db, ann, f"{MARK} {word}, at {MARK}.") for word in ("one", "two")]
    hers = [walk.Way(name) for row in made for name in (row["id"], row["name"])]
    anns = Things(key=ann.key, project_id=shared.project_id, own={"personal": made[0]["id"]}, ways={"personal": hers})
    return Teammates(db=db, ben=walker, anns=anns, before=before)


async def bens_walk(teammates: Teammates) -> list[str]:
    """What Ben is shown of Ann's, wherever he names it: her own things, also where observations of the team are named."""
    said: list[str] = []
    for stop in walk.stops():
        for slot in stop.slots:
            if slot.kind not in {"personal", "observation"} or stop.path in walk.ENDLESS:
                continue
            for way in teammates.anns.ways["personal"]:
                answered = (await teammates.ben.send(stop, slot, way.hers)).without(way.hers)
                said += [f"{stop.name} shows {MARK}"] * (MARK in answered.body)
                if slot.kind == "personal" and answered.status != 404:
                    said.append(f"{stop.name} answers {answered.status} {answered.body[:200]}")
    return said


async def personal_rows(db: Db) -> list[dict[str, Any]]:
    return await rows(db, "SELECT to_jsonb(p) AS row FROM personal_observations p WHERE content LIKE %s ORDER BY 1", f"%{MARK}%")


async def test_a_teammate_sees_and_changes_nothing_that_is_anns_alone(teammates: Teammates):
    before = await personal_rows(teammates.db)

    after = await walk.seen_in_lists(teammates.ben, walk.stops())
    said = await bens_walk(teammates)

    assert not said, told(said)
    assert await personal_rows(teammates.db) == before
    for name, answered in after.items():
        assert MARK not in answered.body, name
        if name not in UNREAD:
            assert answered == teammates.before[name], f"{name} tells that Ann has something of her own"


WITHOUT_PERSON = re.compile(r"\bp?\.?user_id = %\(user_id\)s")


@contextmanager
def forgetting_the_person() -> Generator[int]:
    """The queries on what is personal as they would be had somebody forgotten the person; how many there are."""
    forgetful = [one for name, one in queries() if name.startswith("cmserver.personal.") and WITHOUT_PERSON.search(one.text)]
    texts = {id(one): one.text for one in forgetful}
    try:
        for one in forgetful:
            object.__setattr__(one, "text", WITHOUT_PERSON.sub("TRUE", one.text))
        yield len(forgetful)
    finally:
        for one in forgetful:
            object.__setattr__(one, "text", texts[id(one)])


async def test_the_policy_alone_keeps_it_where_a_query_forgets_the_person(teammates: Teammates):
    """And the walk notices where the policy is gone, too."""
    with forgetting_the_person() as forgetful:
        behind_policy = await bens_walk(teammates)
        listed = await teammates.ben.send(next(one for one in walk.stops() if one.name == "GET /v1/personal-observations"))
        async with walk.removed_policy(teammates.db, "personal_observations"):
            leaked = await teammates.ben.send(next(one for one in walk.stops() if one.name == "GET /v1/personal-observations"))
            without_policy = await bens_walk(teammates)

    assert forgetful >= 6
    assert not behind_policy, told(behind_policy)
    assert MARK not in listed.body
    assert MARK in leaked.body
    assert f"GET /v1/personal-observations/{{id}} shows {MARK}" in without_policy


# ---- a private session of one of them


class Privacy(msgspec.Struct, frozen=True, kw_only=True):
    """Ann has a private session. Ben, and Alice who owns the team, name what is in it, in the team and in places of their own."""

    db: Db
    place: UUID
    ways: dict[walk.Kind, list[walk.Way]]
    walkers: list[Walker]
    before: list[dict[str, walk.Answered]]
    """What each could list when there was no private session."""


@pytest.fixture
async def privacy(client: httpx.AsyncClient, db: Db, cast: Cast, make: Make) -> Privacy:
    ann, ben = await make_two(db, cast.alice.team_id)
    shared = await walk.furnish(client, db, make, cast.alice, "shared")
    await walk.set_apart(db, cast.alice.team_id)
    walkers = [
        Walker(client, ben.key, shared.own),
        Walker(client, cast.alice.key, shared.own),
        Walker(client, ben.key, shared.own, is_private=True),
    ]
    await walk.seen_in_lists(walkers[2], walk.stops())  # which makes Ben's own place
    before = [await walk.seen_in_lists(walker, walk.stops()) for walker in walkers]
    place, ways = await walk.furnish_privately(client, db, ann, shared.own["project"])
    return Privacy(db=db, place=place, ways=ways, walkers=walkers, before=before)


async def private_walk(privacy: Privacy, walker: Walker, every: list[walk.Stop]) -> list[str]:
    """What somebody finds of Ann's private session, wherever they name it, and where it is answered otherwise than nothing is."""
    said: list[str] = []
    for stop in every:
        for slot in stop.slots:
            for way in privacy.ways.get(slot.kind, []) if stop.path not in walk.ENDLESS else []:
                name = way.nobodys()
                nobodys = (await walker.send(stop, slot, name)).without(name)
                hers = (await walker.send(stop, slot, way.hers)).without(way.hers)
                what = f"{stop.name} with {slot.name}={way.hers}"
                said += [f"{what} shows {MARK}"] * (MARK in hers.body)
                if hers.status != nobodys.status or (stop.reads and hers != nobodys):
                    said.append(f"{what} answers {hers.status} {hers.body[:200]}, but for what does not exist {nobodys.body[:200]}")
    return said


async def test_nobody_else_of_the_team_finds_a_private_session_or_learns_of_it(privacy: Privacy):
    before = await walk.rows_of(privacy.db, privacy.place)

    said = [line for walker in privacy.walkers for line in await private_walk(privacy, walker, walk.stops())]

    assert not said, told(said)
    assert await walk.rows_of(privacy.db, privacy.place) == before
    assert {"session", "event", "job", "turn", "observation", "entity"} == {kind for kind, ways in privacy.ways.items() if ways}


async def test_no_list_and_no_count_of_the_team_changes_with_a_private_session(privacy: Privacy):
    for walker, before in zip(privacy.walkers, privacy.before, strict=True):
        for name, answered in (await walk.seen_in_lists(walker, walk.stops())).items():
            assert MARK not in answered.body, name
            if name not in UNREAD:
                assert answered == before[name], f"{name} tells of a private session"


async def test_where_the_policy_is_gone_a_private_session_is_seen(privacy: Privacy):
    (query,) = [query for name, query in with_team() if name == "cmserver.events.repository.by_id"]
    every = [stop for stop in walk.stops() if stop.name == "GET /v1/events/{id}"]

    with without_team_predicate(query):
        behind_policy = await private_walk(privacy, privacy.walkers[0], every)
        async with walk.removed_policy(privacy.db, "agent_events"):
            said = await private_walk(privacy, privacy.walkers[0], every)

    assert behind_policy == []
    assert any(line.endswith(f"shows {MARK}") for line in said)


# ---- the table that says what parameters name


async def _nothing(_request: Request) -> Response:
    raise NotImplementedError


class _New(msgspec.Struct, rename="camel"):
    favourite_session: str
    things: list[_Inner]


class _Inner(msgspec.Struct, rename="camel"):
    project_id: Annotated[str, msgspec.Meta(max_length=3)] | None = None


class _Done(msgspec.Struct):
    """Done."""


@pytest.mark.parametrize(
    ("operation", "said"),
    [
        (
            Operation("GET", "/v1/things/{thing}", _nothing, "admin", _Done),
            "GET /v1/things/{thing} has 'thing' in its path",
        ),
        (Operation("GET", "/v1/things/{id}", _nothing, "admin", _Done), "has '/things/{id}' in its path"),
        (
            Operation("POST", "/v1/things", _nothing, "admin", _Done, body=_New),
            "has 'favouriteSession' in its body",
        ),
    ],
    ids=["a path", "an id", "a field"],
)
def test_a_route_that_the_table_does_not_know_is_told_with_what_to_add(operation: Operation, said: str):
    with pytest.raises(AssertionError, match=r"say in WHAT of tests/house/walk\.py") as found:
        walk.stops([operation])

    assert said in str(found.value)


def test_fields_are_found_in_the_items_of_lists(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(walk.WHAT, "favouriteSession", "session")

    (stop,) = walk.stops([Operation("POST", "/v1/things", _nothing, "admin", _Done, body=_New)])

    assert [(slot.kind, slot.steps) for slot in stop.slots] == [
        ("session", ("favouriteSession",)),
        ("project", ("things", 0, "projectId")),
    ]


# ---- row-level security alone


@contextmanager
def noted() -> Generator[set[int]]:
    """The queries (by identity) that run on a tenant's connection meanwhile."""
    found: set[int] = set()
    kept = {name: getattr(Query, name) for name in ("all", "first", "run")}

    def noting(name: str) -> Any:
        async def act(query: Query[Any], conn: Conn, **params: object) -> object:
            if conn.info.user == REQUEST_ROLE or TENANT_ROLE in conn.info.get_parameters().get("options", ""):
                found.add(id(query))
            return await kept[name](query, conn, **params)

        return act

    with pytest.MonkeyPatch.context() as patch:
        for name in kept:
            patch.setattr(Query, name, noting(name))
        yield found


@contextmanager
def without_team_predicate(query: Query[Any]) -> Generator[None]:
    """The query as it would be had somebody forgotten the team."""
    text = query.text
    object.__setattr__(query, "text", without_team(query))
    try:
        yield
    finally:
        object.__setattr__(query, "text", text)


async def strangers_walk(world: World, slots: list[tuple[walk.Stop, walk.Slot | None]]) -> list[str]:
    """What a stranger finds or changes on these places only: hers by their ids, and his own."""
    before = await walk.rows_of(world.db, world.team_id)
    said: list[str] = []
    for stop, slot in slots:
        answered = await walk.ask(world.charlie, stop, slot, world.alices)
        said += [f"{stop.name} shows {one}" for one in walk.shown(answered, world.alices)]
    after = await walk.rows_of(world.db, world.team_id)
    return [*said, *(f"{table} has changed" for table in after if after[table] != before[table])]


async def reached(world: World, every: list[walk.Stop]) -> dict[int, list[tuple[walk.Stop, walk.Slot | None]]]:
    """For each query that a stranger's requests run as a tenant: the requests."""
    found: dict[int, list[tuple[walk.Stop, walk.Slot | None]]] = {}
    for stop in every:
        own = [] if stop.method == "DELETE" or stop.path in walk.ENDLESS else [None]
        named = [
            slot for slot in stop.slots if slot.kind != "user" or stop.method == "GET"
        ]  # one may call one's own people anything
        for slot in [*own, *named]:
            with noted() as used:
                await walk.ask(world.charlie, stop, slot, world.alices)
            for one in used:
                found.setdefault(one, []).append((stop, slot))
    return found


@pytest.mark.slow
async def test_row_level_security_holds_where_a_query_forgets_the_team(world: World):
    every = walk.stops()
    requests = await reached(world, every)
    said: list[str] = []
    tried = 0

    for name, query in with_team():
        if id(query) in requests:
            tried += 1
            with without_team_predicate(query):
                said += [f"without its team, {name}: {one}" for one in await strangers_walk(world, requests[id(query)])]

    assert not said, told(said)
    assert tried > 20, "the walk reaches the repositories"


@pytest.mark.slow
async def test_where_the_policy_is_gone_too_the_walk_notices(world: World):
    every = walk.stops()
    requests = await reached(world, every)
    (query,) = [query for name, query in with_team() if name == "cmserver.events.repository.by_id"]

    async with walk.removed_policy(world.db, "agent_events"):
        with_predicate = await strangers_walk(world, requests[id(query)])
        with without_team_predicate(query):
            said = await strangers_walk(world, requests[id(query)])

    assert with_predicate == []
    assert f"GET /v1/events/{{id}} shows {MARK}" in said
