"""Nobody reads, changes or infers by a tool what belongs to another team, or to a project that his key is not for."""

from __future__ import annotations

import re
from typing import Any

import httpx
import pytest

from cmserver.base.db import Db
from cmserver.base.http.frame import AsgiFrame
from cmserver.base.ids import new_id
from tests.access.tools import Api
from tests.conftest import Cast, Person, bound_to
from tests.doors.mcp.tools import MODES, Mode, call, called, connected, numbers
from tests.make import Make
from tests.rows import rows

SECRET = "zanzibar"
NOBODYS_NUMBER = 987_654


@pytest.fixture
async def hers(db: Db, cast: Cast, make: Make) -> Person:
    """Alice, with a project and observations that have numbers of their own. `project` is the one to look for."""
    owner = await bound_to(db, cast.alice, f"github.com/acme/{SECRET}")
    await rows(db, "INSERT INTO observation_counters (team_id, last_number) VALUES (%s, 5000)", owner.team_id)
    for title in ("was fixed", "was broken"):
        await make.observation(project=owner.project, title=f"{SECRET} {title}", narrative=f"The {SECRET} is a secret.")
    return owner


async def ids_of(db: Db, who: Person) -> dict[str, Any]:
    """What can be named: a number, an id, a project, a session and a job."""
    (found,) = await rows(
        db,
        """
        SELECT o.number, o.id::text, o.project_id::text AS project, j.id::text AS job, s.id::text AS session
          FROM observations o
          JOIN observation_generation_jobs j ON j.project_id = o.project_id
          JOIN server_sessions s ON s.project_id = o.project_id
         WHERE o.project_id = %s ORDER BY o.number LIMIT 1
        """,
        who.project.id,
    )
    return found


def tries(names: list[object], project: str, session: str, job: str) -> list[tuple[str, dict[str, object]]]:
    """Every way in which a tool can be told what belongs to somebody; `names` are those of an observation."""
    return [
        *[("observation_get", {"ids": [name]}) for name in names],
        *[("observation_timeline", {"anchor": name}) for name in names],
        ("observation_timeline", {"query": SECRET, "projectId": project}),
        ("observation_timeline", {"query": SECRET, "session": session}),
        ("observation_search", {"query": SECRET, "projectId": project}),
        ("observation_search", {"query": SECRET, "project": project}),
        ("observation_search", {"query": SECRET, "projects": [project]}),
        ("observation_search", {"query": SECRET, "session": session}),
        ("observation_search", {"query": SECRET, "projectId": "*", "format": "full"}),
        ("observation_context", {"projectId": project}),
        ("observation_context", {"projectId": project, "query": SECRET}),
        ("observation_add", {"projectId": project, "title": "mine"}),
        ("observation_record_event", {"projectId": project, "eventType": "x"}),
        ("observation_record_event", {"serverSessionId": session, "eventType": "x", "projectId": "own"}),
        ("observation_generation_status", {"jobId": job}),
    ]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("who", ["charlie", "bound"])
async def test_what_is_hers_is_answered_as_what_does_not_exist(
    app: AsgiFrame, client: httpx.AsyncClient, db: Db, cast: Cast, hers: Person, mode: Mode, who: str
):
    stranger = await bound_to(db, cast.charlie if who == "charlie" else cast.alice, "github.com/acme/other")
    await call(client, hers, "observation_record_event", eventType="x", contentSessionId=f"{SECRET}-session")
    its = await ids_of(db, hers)
    before = await everything_of(db, hers)

    nobodys = str(new_id())
    there = tries(ways(its["number"], its["id"]), its["project"], its["session"], its["job"])
    nowhere = tries(ways(NOBODYS_NUMBER, nobodys), str(new_id()), str(new_id()), str(new_id()))

    async with connected(app, stranger, mode=mode) as agent:
        for (tool, named), (_, made_up) in zip(there, nowhere, strict=True):
            known, is_refused = await called(agent, tool, **with_own(named, stranger))
            unknown, is_refused_too = await called(agent, tool, **with_own(made_up, stranger))

            assert _without(known, its["number"], its["id"]) == _without(unknown, NOBODYS_NUMBER, nobodys), (tool, named)
            assert is_refused == is_refused_too, (tool, named)
            assert SECRET not in known, (tool, named)

    assert await everything_of(db, hers) == before


def ways(number: int, observation_id: str) -> list[object]:
    """In which an observation can be named."""
    return [number, f"#{number}", f"S{number}", observation_id]


def _without(text: str, *names: object) -> str:
    for name in names:
        # A random id may hold the digits of a number.
        text = re.sub(rf"(?<![\da-f-]){re.escape(str(name))}(?![\da-f-])", "…", text)
    return text


def with_own(arguments: dict[str, object], person: Person) -> dict[str, object]:
    return {name: str(person.project.id) if value == "own" else value for name, value in arguments.items()}


async def everything_of(db: Db, person: Person) -> list[dict[str, Any]]:
    """All that the project has."""
    return await rows(
        db,
        """
        SELECT to_jsonb(o) AS it FROM observations o WHERE o.project_id = %(project)s
        UNION ALL SELECT to_jsonb(e) FROM agent_events e WHERE e.project_id = %(project)s
        UNION ALL SELECT to_jsonb(s) FROM server_sessions s WHERE s.project_id = %(project)s
        UNION ALL SELECT to_jsonb(j) FROM observation_generation_jobs j WHERE j.project_id = %(project)s ORDER BY 1
        """.replace("%(project)s", f"'{person.project.id}'"),
    )


@pytest.mark.parametrize("mode", MODES)
async def test_she_herself_finds_it_in_all_these_ways(app: AsgiFrame, client: httpx.AsyncClient, db: Db, hers: Person, mode: Mode):
    """Else the test before would show nothing."""
    await call(client, hers, "observation_record_event", eventType="x", contentSessionId=f"{SECRET}-session")
    its = await ids_of(db, hers)

    async with connected(app, hers, mode=mode) as agent:
        for tool, named in tries(ways(its["number"], its["id"]), its["project"], its["session"], its["job"]):
            text, is_error = await called(agent, tool, **with_own(named, hers))

            assert not is_error, (tool, named, text)
            if tool in {"observation_get", "observation_context"} or "anchor" in named:
                assert SECRET in text, (tool, named)


@pytest.mark.parametrize("mode", MODES)
async def test_the_same_number_is_each_teams_own(app: AsgiFrame, cast: Cast, make: Make, mode: Mode):
    for person, word in ((cast.alice, "ledger"), (cast.charlie, "wombat")):
        one = await make.observation(project=person.project, title=f"the {word} is counted")
        assert one.number == 1

    async with connected(app, cast.alice, mode=mode) as alice, connected(app, cast.charlie, mode=mode) as charlie:
        for tool, arguments in (("observation_get", {"ids": [1]}), ("observation_search", {"query": "counted"})):
            for agent, word, others in ((alice, "ledger", "wombat"), (charlie, "wombat", "ledger")):
                text, _ = await called(agent, tool, **arguments)

                assert numbers(text) == [1]
                assert word in text
                assert others not in text


@pytest.mark.parametrize("named", ["id", "name"])
async def test_a_project_in_a_header_is_never_another_teams(
    client: httpx.AsyncClient, db: Db, cast: Cast, hers: Person, named: str
):
    """Neither by its id nor by its name."""
    project = str(hers.project.id) if named == "id" else hers.project.canonical_id
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    headers = {"Host": "localhost", "Accept": "application/json", "X-Cmserver-Project": project, **cast.charlie.headers}
    answers: list[str] = []

    for tool, arguments in (
        ("observation_search", {"query": SECRET}),
        ("observation_context", {}),
        ("observation_add", {"title": "mine"}),
    ):
        sent = {**message, "params": {"name": tool, "arguments": arguments}}
        answers.append((await client.post("/mcp", json=sent, headers=headers)).text)

    *read, written = answers
    assert all("Nothing is known of this project yet." in text for text in read), answers
    assert "Project not found." in written
    assert await rows(db, "SELECT id FROM observations WHERE team_id = %s", cast.charlie.team_id) == []


async def test_an_event_for_a_name_of_hers_makes_a_project_of_ones_own(client: httpx.AsyncClient, db: Db, cast: Cast, hers: Person):
    named = hers.project.canonical_id

    said, is_error = await call(client, cast.charlie, "observation_record_event", projectId=named, eventType="x")

    assert not is_error, said
    (event,) = await rows(db, "SELECT team_id, project_id FROM agent_events")
    assert event["team_id"] == cast.charlie.team_id
    assert event["project_id"] != hers.project.id


class TestBound:
    """With a key that is for one project."""

    async def test_no_argument_and_no_header_leads_out_of_it(
        self, client: httpx.AsyncClient, db: Db, cast: Cast, make: Make, hers: Person
    ):
        bound = await bound_to(db, cast.alice, "github.com/acme/other")
        own = await make.observation(project=bound.project, title=f"{SECRET} is mentioned here, too")
        headers = {"Host": "localhost", "Accept": "application/json", **bound.headers}
        for arguments in ({"query": SECRET}, {"query": SECRET, "projectId": "*"}):
            params = {"name": "observation_search", "arguments": arguments}
            sent = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
            for project in (str(hers.project.id), hers.project.canonical_id, "*"):
                answered = await client.post("/mcp", json=sent, headers={**headers, "X-Cmserver-Project": project})

                assert numbers(answered.json()["result"]["content"][0]["text"]) == [own.number]

    async def test_what_is_shared_with_the_team_is_read_there_too(
        self, client: httpx.AsyncClient, db: Db, cast: Cast, make: Make, hers: Person
    ):
        bound = await bound_to(db, cast.alice, "github.com/acme/other")
        shared = await make.observation(project=hers.project, title=f"All know {SECRET}", scope="team")

        read, _ = await call(client, bound, "observation_get", ids=[shared.number])
        found, _ = await call(client, bound, "observation_search", query=SECRET)

        assert numbers(read) == [shared.number]
        assert numbers(found) == [shared.number]
        assert "(of the whole team)" in found

    async def test_the_same_is_found_as_by_rest(self, client: httpx.AsyncClient, db: Db, cast: Cast, make: Make, hers: Person):
        """A key of the whole team finds all, unless the call or its client says which project."""
        bound = await bound_to(db, cast.alice, "github.com/acme/other")
        await make.observation(project=bound.project, title=f"{SECRET} is mentioned here, too")
        whole = cast.alice

        for person, arguments, body in (
            (bound, {}, {}),
            (hers, {}, {}),
            (whole, {}, {}),
            (whole, {"projectId": "*"}, {}),
            (whole, {"projectId": hers.project.canonical_id}, {"projectId": hers.project.canonical_id}),
        ):
            text, _ = await call(client, person, "observation_search", query=SECRET, **arguments)
            rest = await Api(client, person.key).post("/search", query=SECRET, format="index", **body)

            assert numbers(text) == [one["number"] for one in rest.json()["observations"]]
            assert re.search(rf"^{len(numbers(text))} of {rest.json()['total']}\.", text, re.MULTILINE)
