"""What agents concluded and users laid down, from the hook to the table, and back into the next session."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import httpx
import pytest

from cmserver.base.settings import Settings
from cmserver.generation import repository
from cmserver.generation.record import find_quoted_job
from cmserver.ingest.door import gathers_turns
from cmserver.ingest.model import EventSubmission
from cmserver.models.providers.model import Answer, Completion, DraftObservation, FailureKind, Prompt, ProviderError, Rules, Skip
from cmserver.reading.model import REPLY_TYPE
from cmserver.tooluse.read import read_tool_use
from tests.conftest import Cast
from tests.generation.tools import Outbox, Scripted, all_skipped, completion

ROOT_CAUSE = "Customers were charged twice because `handle_payment` never checks `order.status` before it retries."
NOT_DONE = "Not done: the refund path does not yet increase `order.attempt`."
REPLY = f"All done! {ROOT_CAUSE}\n\n{NOT_DONE}\n\nLet me know if you want more."
MONEY = "never use floats for money, we agreed on integer cents"
DEPLOY = "we deploy with `make deploy-eu`, never with the github action, remember that"


class Agent:
    """Claude Code in the folder of a project, as the server hears of it; each turn is worked on when it ends."""

    def __init__(self, client: httpx.AsyncClient, cast: Cast, outbox: Outbox) -> None:
        self.client = client
        self.outbox = outbox
        self.headers = {**cast.alice.headers, "X-Cmserver-Project": cast.alice.project.canonical_id}
        self.session = "s1"

    async def send(self, hook: str, **fields: object) -> dict[str, object]:
        body = {"hook_event_name": hook, "session_id": self.session, "cwd": "/src", **fields}
        response = await self.client.post("/v1/hooks/claude-code", json=body, headers=self.headers)
        assert response.status_code == 200, response.text
        return cast("dict[str, object]", response.json())

    async def prompt(self, text: str) -> str:
        """Send a prompt; the context that the agent is given with it."""
        answered = await self.send("UserPromptSubmit", prompt=text)
        output = cast("dict[str, str]", answered.get("hookSpecificOutput") or {})
        return output.get("additionalContext", "")

    async def edit(self, path: str, old: str, new: str) -> None:
        tool_input = {"file_path": f"/src/{path}", "old_string": old, "new_string": new}
        lines = [f"-{line}" for line in old.splitlines()] + [f"+{line}" for line in new.splitlines()]
        patch = {"oldStart": 1, "oldLines": 1, "newStart": 1, "newLines": 1, "lines": lines}
        response = {"filePath": f"/src/{path}", "oldString": old, "newString": new, "structuredPatch": [patch]}
        await self.send("PostToolUse", tool_name="Edit", tool_use_id=f"{path}{new}", tool_input=tool_input, tool_response=response)

    async def run(self, command: str, output: str, *, failed: bool = False) -> None:
        use = {"tool_name": "Bash", "tool_use_id": f"{command}{output}", "tool_input": {"command": command}}
        if failed:
            await self.send("PostToolUseFailure", **use, error=output)
        else:
            await self.send("PostToolUse", **use, tool_response={"stdout": output, "stderr": "", "interrupted": False})

    async def stop(self, message: str) -> None:
        await self.send("Stop", last_assistant_message=message)
        await (await self.outbox.hand(Rules())).work(max_events=500)

    async def search(self, query: str) -> int:
        """The number of the best hit."""
        body = {"query": query, "projectId": self.headers["X-Cmserver-Project"], "kinds": ["observation"]}
        answer = await self.client.post("/v1/search", json=body, headers=self.headers)
        return answer.json()["observations"][0]["number"]

    async def observations(self) -> list[dict[str, object]]:
        return await self.outbox.rows(
            "SELECT number, type, origin, title, narrative, quote, anchors, state, closed_by, importance, superseded_by, metadata"
            " FROM observations WHERE kind = 'observation' ORDER BY number"
        )


@pytest.fixture
def agent(client: httpx.AsyncClient, cast: Cast, outbox: Outbox) -> Agent:
    return Agent(client, cast, outbox)


async def test_a_turn_is_one_observation_with_its_cause_and_one_for_what_is_open(agent: Agent):
    await agent.prompt("customers are charged twice, please look")
    await agent.edit("pay.py", "retry(order)\n", "if order.status != 'paid':\n    retry(order)\n")
    await agent.run("pytest -q", "5 passed in 0.10s")
    await agent.stop(REPLY)

    work, open_end = await agent.observations()

    assert ROOT_CAUSE in str(work["narrative"])
    assert (work["origin"], work["state"], work["quote"]) == ("rules", None, None)
    assert (open_end["state"], open_end["anchors"]) == ("open", ["order.attempt"])
    assert str(open_end["quote"]) in NOT_DONE


async def test_causes_rules_and_open_ends_are_found_by_a_plain_search(agent: Agent):
    await agent.prompt(DEPLOY)
    await agent.edit("pay.py", "retry(order)\n", "if order.status != 'paid':\n    retry(order)\n")
    await agent.stop(REPLY)
    rule, work, open_end = await agent.observations()

    assert rule["quote"] == DEPLOY
    assert await agent.search("does anything check the status of an order?") == work["number"]
    assert await agent.search("what is left to do for refunds?") == open_end["number"]
    assert await agent.search("how do we deploy to the EU?") == rule["number"]


async def test_what_a_user_says_is_over_is_closed_by_its_number_and_by_no_shared_words(agent: Agent):
    await agent.prompt("look")
    await agent.stop(REPLY)
    (open_end,) = await agent.observations()
    agent.session = "s2"
    await agent.prompt("now the refunds")
    await agent.edit("refund.py", "pay_back(order)\n", "order.attempt += 1\npay_back(order)\n")
    await agent.stop("The refund path increases `order.attempt` now, so a second refund is refused.")
    assert (await agent.observations())[0]["state"] == "open"

    await agent.prompt(f"#{open_end['number']} is done")
    await agent.stop("Noted.")

    observations = await agent.observations()
    assert (observations[0]["state"], observations[0]["closed_by"]) == ("done", observations[-1]["number"])
    index = await agent.send("SessionStart", source="startup")
    assert "Still open" not in str(index)


async def test_what_the_user_lays_down_is_a_decision_in_their_words_and_is_shown_when_it_is_touched(agent: Agent):
    assert await agent.prompt(DEPLOY) == ""
    await agent.prompt(MONEY)
    await agent.prompt("hello")
    await agent.stop("Noted.")

    decisions = await agent.observations()

    assert [(row["type"], row["quote"]) for row in decisions] == [("decision", DEPLOY), ("decision", MONEY)]
    assert all(cast("float", row["importance"]) > 0.8 for row in decisions)
    agent.session = "s2"
    assert "make deploy-eu" in await agent.prompt("deploy this with the github action please")
    assert await agent.prompt("hello again") == ""


async def test_a_failure_that_passes_in_a_later_turn_is_no_longer_open(agent: Agent):
    await agent.run("pytest -q", "FAILED tests/test_a.py::test_total - KeyError: 'id'\n1 failed in 0.10s", failed=True)
    await agent.stop("Let me look at that next.")
    await agent.edit("a.py", "row['id']\n", "row.get('id')\n")
    await agent.run("pytest -q", "1 passed in 0.10s")
    await agent.stop("It passes now.")

    failure, fix = await agent.observations()

    assert (failure["title"], failure["state"]) == ("test_total fails: KeyError: 'id'", "done")
    assert failure["closed_by"] == fix["number"]


async def test_a_check_that_still_fails_stays_open_whatever_the_agent_says(agent: Agent):
    await agent.edit("a.py", "x = 1\n", "x = 2\n")
    await agent.run("pytest -q", "FAILED tests/test_a.py::test_total - KeyError: 'id'\n1 failed in 0.10s", failed=True)
    await agent.stop("I changed `x` in a.py. All green including test_total.")

    assert [row["title"] for row in await agent.observations() if row["state"] == "open"] == ["test_total fails: KeyError: 'id'"]


async def test_work_on_the_same_file_closes_no_open_end_about_something_else(agent: Agent):
    await agent.stop("orders.py is not yet tested.")
    await agent.edit("orders.py", "round(x)\n", "round(x, 2)\n")
    await agent.stop("I fixed the rounding in orders.py because it lost cents.")

    assert [row["state"] for row in await agent.observations()] == ["open", None]


async def test_every_prompt_and_last_message_reaches_the_model(agent: Agent):
    seen: list[Prompt] = []

    def reply(prompt: Prompt) -> Answer:
        seen.append(prompt)
        return Answer(skipped=[Skip(event=tag, reason="nothing in it") for tag in prompt.tags])

    worker = await agent.outbox.hand(Scripted(lambda prompt: completion(reply(prompt))))
    await agent.prompt("ok")
    await agent.send("Stop", last_assistant_message="Mam użyć puli 20 czy 40 połączeń?")
    await worker.work()
    await agent.prompt("20, pooler nie da więcej")
    await worker.work()

    assert [event.event_type for prompt in seen for event in prompt.events] == ["user_prompt", REPLY_TYPE, "user_prompt"]
    assert [prompt.last_message for prompt in seen] == [None, "Mam użyć puli 20 czy 40 połączeń?"]


async def test_a_quote_that_nobody_said_is_not_stored_as_one(agent: Agent):
    def reply(prompt: Prompt) -> Answer:
        said, invented = (DraftObservation(title=text, quote=text, events=["e1"]) for text in (ROOT_CAUSE, "Nobody said this."))
        return Answer(observations=[said, invented])

    await agent.send("Stop", last_assistant_message=REPLY)
    await (await agent.outbox.hand(Scripted(lambda prompt: completion(reply(prompt))))).work()

    assert [(row["origin"], row["quote"]) for row in await agent.observations()] == [("model", ROOT_CAUSE), ("model", None)]
    assert find_quoted_job(None, []) is None


@pytest.mark.parametrize("quote", ["**", "…", "a"])
async def test_a_quote_too_short_to_be_told_from_chance_is_not_stored(agent: Agent, quote: str):
    answer = Answer(observations=[DraftObservation(title="A title", quote=quote, events=["e1"])])
    await agent.send("Stop", last_assistant_message=REPLY)
    await (await agent.outbox.hand(Scripted(lambda _: completion(answer)))).work()

    assert [row["quote"] for row in await agent.observations()] == [None]


def test_only_rules_gather_whole_turns(tmp_path: Path):
    settings = Settings(data_dir=tmp_path, generation_debounce_seconds=2)
    assert gathers_turns(settings)
    assert not gathers_turns(Settings(data_dir=tmp_path, provider="anthropic,offline", generation_debounce_seconds=2))
    assert not gathers_turns(Settings(data_dir=tmp_path, provider="offline,anthropic", generation_debounce_seconds=2))
    assert not gathers_turns(Settings(data_dir=tmp_path, generation_debounce_seconds=2, generation_gather_seconds=0))


@pytest.mark.parametrize(
    ("event_type", "payload", "at_most"),
    [
        ("tool_use", {"tool_name": "Edit", "tool_input": {"file_path": "a.py"}}, 600),
        ("tool_use", {"tool_name": "Bash", "tool_input": {"command": "git add . && git commit -m x"}}, 60),
        (REPLY_TYPE, {"last_assistant_message": ROOT_CAUSE}, 2),
    ],
)
async def test_an_event_waits_for_the_end_of_its_turn_and_then_no_longer(
    outbox: Outbox, event_type: str, payload: dict[str, object], at_most: float
):
    outbox.recorder._debounce_seconds, outbox.recorder._gather_seconds = 2, 600  # pyright: ignore[reportPrivateUsage]
    tool = read_tool_use("Bash", payload.get("tool_input")) if event_type == "tool_use" else None
    submission = EventSubmission(
        event_type=event_type,
        source_adapter="hook",
        payload=payload,
        content_session_id="s1",
        project=outbox.project,
        origin="hook",
        tool=tool,
        occurred_at=datetime.now(UTC),
    )
    (recorded,) = await outbox.recorder.record(outbox.principal, [submission])

    seconds = cast("float", await outbox.value("SELECT extract(epoch FROM due_at - now())::float8 FROM generation_lanes"))
    assert at_most * 0.5 < seconds <= at_most
    assert recorded.job is not None
    lane = recorded.job.lane
    await outbox.db.in_tenant(outbox.principal.team_id, lambda conn: repository.make_waiting_lane_due(conn, lane))
    assert await outbox.value("SELECT due_at <= now() FROM generation_lanes") is True


async def test_jobs_that_are_tried_again_add_their_checks_to_the_turn_once(agent: Agent, outbox: Outbox):
    failures = [ProviderError(FailureKind.RATE_LIMITED, "Slow down.", retry_after_seconds=60)]

    def reply(prompt: Prompt) -> Completion:
        if failures:
            raise failures.pop()
        return completion(all_skipped(prompt))

    await agent.prompt("run the tests")
    await agent.run("pytest -q tests/orders", "5 passed in 0.10s")
    await agent.send("Stop", last_assistant_message="They pass.")
    checks: list[object] = []
    for _ in range(2):
        await (await outbox.hand(Scripted(reply))).work(max_events=500)
        checks.append(await outbox.value("SELECT checks FROM turns"))
        await outbox.rows("UPDATE generation_lanes SET held_until = NULL, due_at = now()")

    assert checks[0] == []
    assert len(cast("list[str]", checks[1])) == 1
