"""Each tool, asked by the protocol's own client over a real socket, and beside REST: the same work, sentences and traces."""

from __future__ import annotations

import re
from typing import Any

import httpx
import pytest

from cmserver.base.db import Db
from cmserver.base.http.frame import AsgiFrame
from cmserver.base.notifications import NotificationListener
from cmserver.base.settings import Settings
from cmserver.generation.job_notifier import JobNotifier
from cmserver.ingest import intake
from cmserver.observations.model import estimate_tokens
from cmserver.observations.plain import render_observations
from tests.conftest import Cast, mint
from tests.doors.mcp.tools import MODES, Mode, call, called, client_at, connected, lines, numbers, serving
from tests.generation.test_turns import Agent
from tests.generation.test_worker import working
from tests.generation.tools import Outbox, Scripted
from tests.make import Make
from tests.rows import rows

pytestmark = pytest.mark.parametrize("mode", MODES)
NOBODYS = "01a1f13e-ee62-7321-a456-6dd14e27cb57"


# ---- what each does


async def test_a_search_gives_lines_of_what_fits(app: AsgiFrame, cast: Cast, make: Make, mode: Mode):
    wombat = await make.observation(project=cast.alice.project, title="The wombat is fed at noon", type="decision")
    await make.observation(project=cast.alice.project, title="The parser knows dates")

    async with connected(app, cast.alice, mode=mode) as client:
        found = await called(client, "observation_search", query="wombat")
        nothing = await called(client, "observation_search", query="platypus")

    line = rf"#{wombat.number} \d{{4}}-\d\d-\d\d decision The wombat is fed at noon ~{wombat.cost} \d\.\d\d github\.com/acme/orders"
    assert re.fullmatch(line, lines(found[0])[0])
    assert found[0].endswith(f"1 of 1. Whole, these take ~{estimate_tokens(render_observations([wombat]))} tokens.")
    assert not found[1]
    assert nothing == ("Nothing fits.", False)


async def test_a_line_says_which_turn_wrote_it(app: AsgiFrame, client: httpx.AsyncClient, cast: Cast, outbox: Outbox, mode: Mode):
    agent = Agent(client, cast, outbox)
    await agent.prompt("Raise the limit, says the bank.")
    await agent.edit("src/pay.py", "LIMIT = 10", "LIMIT = 30")
    await agent.run("git commit -am x", "[main 4c1e2f3] x")
    await agent.stop("It is 30 now.")
    project = cast.alice.project.canonical_id

    async with connected(app, cast.alice, mode=mode) as model:
        asked = {"file": "src/pay.py", "projectId": project}
        written = await called(model, "observation_why", **asked, text="LIMIT = 30")
        committed = await called(model, "observation_why", **asked, text="other(line)", commit="4c1e2f3" + "0" * 33)
        nobody = await called(model, "observation_why", **asked, text="other(line)")

    assert re.search(r"Written in #\d+ \d{4}-\d\d-\d\d .*Raise the limit, says the bank\.", written[0])
    assert "Who wrote it is not known. Committed in #" in committed[0]
    assert nobody == ("No turn is known that wrote it.", False)


async def test_a_search_takes_what_rest_takes(app: AsgiFrame, cast: Cast, make: Make, mode: Mode):
    one = await make.observation(project=cast.alice.project, title="wombat one", type="bugfix", files_modified=["src/a.py"])
    other = await make.observation(project=cast.alice.project, title="wombat two", narrative="It sleeps.", concepts=["Zoo"])

    async with connected(app, cast.alice, mode=mode) as client:
        of = {
            name: numbers((await called(client, "observation_search", **{"query": "wombat", **more}))[0])
            for name, more in {
                "types": {"types": ["bugfix"]},
                "files": {"files": ["src/a.py"]},
                "concepts": {"concepts": ["zoo"]},
                "since": {"since": "2000-01-01"},
                "not": {"query": "wombat -one"},
            }.items()
        }
        late = await called(client, "observation_search", query="wombat", since="2200-01-01")
        whole, _ = await called(client, "observation_search", query='"wombat two"', format="full")

    assert of == {
        "types": [one.number],
        "files": [one.number],
        "concepts": [other.number],
        "since": [other.number, one.number],
        "not": [other.number],
    }
    assert late == ("Nothing fits.", False)
    assert "It sleeps." in lines(whole)


async def test_a_timeline_shows_what_happened_around(app: AsgiFrame, cast: Cast, make: Make, mode: Mode):
    made = [await make.observation(project=cast.alice.project, title=f"step {word}") for word in ("one", "two", "three", "four")]

    async with connected(app, cast.alice, mode=mode) as client:
        around, _ = await called(client, "observation_timeline", anchor=made[1].number, before=1, after=1)
        by_query, _ = await called(client, "observation_timeline", query="four", before=1, after=1)
        nothing = await called(client, "observation_timeline", query="platypus")
        lonely = await called(client, "observation_timeline", anchor="2000-01-01", after=0)

    assert numbers(around) == [one.number for one in made[:3]]
    assert [line for line in lines(around) if line.startswith("→ ")] == [line for line in lines(around) if "step two" in line]
    assert numbers(by_query) == [made[2].number, made[3].number]
    assert nothing == ("Nothing fits.", False)
    assert lonely == ("There is nothing around it.", False)


async def test_several_are_read_whole_and_what_is_missing_is_named(app: AsgiFrame, cast: Cast, make: Make, mode: Mode):
    one = await make.observation(project=cast.alice.project, title="One", narrative="First.\nSecond.", facts=["a fact"])
    other = await make.observation(project=cast.alice.project, title="Other", files_read=["src/b.py"])

    async with connected(app, cast.alice, mode=mode) as client:
        text, is_error = await called(client, "observation_get", ids=[other.number, f"#{one.number}", str(one.id), 99, "nonsense"])
        none = await called(client, "observation_get", ids=[98, NOBODYS])

    assert not is_error
    assert numbers(text) == [other.number, one.number]
    assert {"First.", "  Second.", "- a fact", "Read: src/b.py"} <= set(lines(text))
    assert text.endswith("There is no observation 99, nonsense.")
    assert none == (f"There is no observation 98, {NOBODYS}.", False)


async def test_the_context_is_the_index_or_what_fits_whole(app: AsgiFrame, cast: Cast, make: Make, mode: Mode):
    one = await make.observation(project=cast.alice.project, title="The wombat is fed", narrative="At noon.")
    await make.observation(project=cast.alice.project, title="The parser knows dates")
    project = cast.alice.project.canonical_id

    async with connected(app, cast.alice, mode=mode) as client:
        index, _ = await called(client, "observation_context", projectId=project)
        fitting, _ = await called(client, "observation_context", projectId=project, query="wombat")
        nothing = await called(client, "observation_context", projectId=project, query="platypus")

    assert len(numbers(index)) == 2
    assert "observation_get" in index
    assert "GET /v1" not in index
    assert numbers(fitting) == [one.number]
    assert "At noon." in lines(fitting)
    assert nothing == ("Nothing fits.", False)


async def test_a_project_without_anything_has_no_context_yet(app: AsgiFrame, cast: Cast, mode: Mode):
    async with connected(app, cast.alice, mode=mode) as client:
        told = await called(client, "observation_context", projectId=cast.alice.project.canonical_id)

    assert "nothing has been recorded yet" in told[0]
    assert not told[1]


async def test_what_is_added_is_stored_as_somebody_wrote_it_here(app: AsgiFrame, db: Db, cast: Cast, mode: Mode):
    async with connected(app, cast.alice, mode=mode) as client:
        text, is_error = await called(
            client,
            "observation_add",
            projectId=cast.alice.project.canonical_id,
            title="The wombat is fed at noon",
            narrative="It sleeps before.",
            facts=["It eats grass"],
            type="decision",
            concepts=["zoo"],
            filesModified=["src/zoo.py"],
        )
        (number,) = numbers(text)
        again, _ = await called(client, "observation_get", ids=[number])

    assert not is_error
    assert text.startswith("Stored:\n")
    assert {"It sleeps before.", "- It eats grass", "Modified: src/zoo.py"} <= set(lines(again))
    assert await rows(db, "SELECT origin, kind, type, concepts FROM observations") == [
        {"origin": "mcp", "kind": "manual", "type": "decision", "concepts": ["zoo"]}
    ]


async def test_what_is_corrected_is_closed_and_can_be_undone(app: AsgiFrame, cast: Cast, make: Make, mode: Mode):
    await make.observation(project=cast.alice.project, title="Feed the wombat")
    async with connected(app, cast.alice, mode=mode) as client:
        text, is_error = await called(client, "observation_correct", id=1, state="dropped", title="Feed no wombat")
        unknown, is_unknown = await called(client, "observation_correct", id=7, state="done")

    assert (is_error, text.startswith("Corrected:\n")) == (False, True)
    assert "Feed no wombat (dropped)" in text
    assert is_unknown, unknown


async def test_an_event_is_recorded_and_its_job_can_be_followed(app: AsgiFrame, db: Db, cast: Cast, mode: Mode):
    async with connected(app, cast.alice, mode=mode) as client:
        text, is_error = await called(
            client,
            "observation_record_event",
            projectId=cast.alice.project.canonical_id,
            eventType="tool_use",
            payload={"says": "hello"},
            contentSessionId="a-session",
        )
        found = re.fullmatch(r"Recorded event (\S+)\. Job (\S+) is queued\.", text)
        assert found
        told = await called(client, "observation_generation_status", jobId=found[2])
        none = await called(client, "observation_generation_status", jobId=NOBODYS)

    assert not is_error
    assert told == (f"Job {found[2]}: queued, 0 of 3 attempts used\n", False)
    assert none == ("There is no such job.", True)
    stored = await rows(db, "SELECT id::text, origin, source_adapter, payload FROM agent_events")
    assert stored == [{"id": found[1], "origin": "mcp", "source_adapter": "api", "payload": {"says": "hello"}}]


async def test_an_event_can_be_only_stored(app: AsgiFrame, db: Db, cast: Cast, mode: Mode):
    project = cast.alice.project.canonical_id

    async with connected(app, cast.alice, mode=mode) as client:
        text, _ = await called(client, "observation_record_event", projectId=project, eventType="x", generate=False)

    assert re.fullmatch(r"Recorded event \S+\.", text)
    assert await rows(db, "SELECT id FROM observation_generation_jobs") == []


async def test_an_event_can_be_waited_for(
    app: AsgiFrame,
    cast: Cast,
    settings: Settings,
    hub: NotificationListener,
    notifier: JobNotifier,
    db: Db,
    mode: Mode,
    monkeypatch: pytest.MonkeyPatch,
):
    event: dict[str, Any] = {"projectId": cast.alice.project.canonical_id, "eventType": "tool_use", "payload": {"n": 1}}
    outbox = Outbox(db, notifier, cast.alice.principal, cast.alice.project)

    async with connected(app, cast.alice, mode=mode) as client:
        async with working(settings, outbox, hub, Scripted()):
            done, _ = await called(client, "observation_record_event", **event, wait=True)
        monkeypatch.setattr(intake, "WAIT_SECONDS", 0.05)
        not_yet, _ = await called(client, "observation_record_event", **{**event, "payload": {"n": 2}}, wait=True)

    assert re.fullmatch(r"Recorded event \S+\. Observations: #1\.", done)
    assert re.fullmatch(r"Recorded event \S+\. Job \S+ is queued\. The wait is over, the job goes on\.", not_yet)


# ---- refusals


async def test_a_refusal_is_an_answer_that_a_model_can_read(app: AsgiFrame, cast: Cast, mode: Mode):
    async with connected(app, cast.alice, mode=mode) as client:
        told = {tool: await called(client, tool, **arguments) for tool, arguments in WRONG.items()}

    assert told == {
        "observation_search": ("The number must be at most 100 at $.limit.", True),
        "observation_timeline": ("There is no such observation.", True),
        "observation_get": ("At most 100 items are allowed at $.ids.", True),
        "observation_context": ("Project not found.", True),
        "observation_add": ("Expected `str`, got `int` at $.facts[1].", True),
        "observation_record_event": ("Missing field at $.eventType.", True),
        "observation_generation_status": ("There is no such job.", True),
    }


WRONG: dict[str, dict[str, object]] = {
    "observation_search": {"query": "x", "limit": 101},
    "observation_timeline": {"anchor": 12345},
    "observation_get": {"ids": list(range(1, 102))},
    "observation_context": {"projectId": "nobody/knows"},
    "observation_add": {"title": "x", "facts": ["y", 1]},
    "observation_record_event": {"payload": 1},
    "observation_generation_status": {"jobId": NOBODYS},
}


# ---- scopes

SCOPES = {
    "observation_search": "observations:read",
    "observation_timeline": "observations:read",
    "observation_get": "observations:read",
    "observation_why": "observations:read",
    "observation_context": "observations:read",
    "observation_add": "observations:write",
    "observation_correct": "observations:write",
    "observation_record_event": "events:write",
    "observation_generation_status": "jobs:read",
}


async def test_a_key_is_told_of_the_tools_that_it_may_use(app: AsgiFrame, db: Db, cast: Cast, mode: Mode):
    async with serving(app) as url:
        for scope in ("*", "sessions:write", *sorted(set(SCOPES.values()))):
            _, key = await mint(db, cast.alice.team_id, "narrow", scopes=[scope])

            async with client_at(url, {"Authorization": f"Bearer {key}"}, mode=mode) as client:
                listed = await client.list_tools()

            assert [tool.name for tool in listed.tools] == [name for name, needs in SCOPES.items() if scope in {"*", needs}]


async def test_a_missing_scope_is_a_sentence(app: AsgiFrame, db: Db, cast: Cast, mode: Mode):
    async with serving(app) as url:
        for scope in sorted(set(SCOPES.values())):
            _, key = await mint(db, cast.alice.team_id, "narrow", scopes=sorted(set(SCOPES.values()) - {scope}))

            async with client_at(url, {"Authorization": f"Bearer {key}"}, mode=mode) as client:
                told = [await called(client, tool) for tool, needs in SCOPES.items() if needs == scope]

            assert all(is_error and scope in said for said, is_error in told), scope


async def test_a_call_without_a_socket_says_the_same(app: AsgiFrame, client: httpx.AsyncClient, cast: Cast, make: Make, mode: Mode):
    """So that other tests may go without."""
    await make.observation(project=cast.alice.project, title="The wombat is fed at noon")

    async with connected(app, cast.alice, mode=mode) as agent:
        over_http = await called(agent, "observation_search", query="wombat")

    assert over_http == await call(client, cast.alice, "observation_search", query="wombat")
