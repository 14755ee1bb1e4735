"""A long session, whole: two hundred tool uses over HTTP, through the real worker, to each provider's address and back."""

from __future__ import annotations

import json
from collections.abc import Mapping

import msgspec
import pytest

from tests.bench.session import requests, tool_use
from tests.models.providers.fake import anthropic, gemini, openai
from tests.models.providers.fake.answers import answer_to
from tests.models.providers.fake.server import Asked, Play, Reply, fake_in_a_thread
from tests.process.conftest import Run
from tests.process.program import QUICK_LEASE, Program, number, rows, wait_until_settled
from tests.real_agents import install
from tests.real_agents.messages_api import failed, is_for_the_model, streamed
from tests.real_agents.messages_api import tool_use as tool_call

pytestmark = pytest.mark.slow

TOOL_USES = 200


class Case(msgspec.Struct, frozen=True):
    """A provider, its settings, and the fake that answers for it."""

    name: str
    play: Play
    settings: Mapping[str, str]


CASES = [
    Case("anthropic", anthropic.play, {"ANTHROPIC_API_KEY": "sk-ant-of-a-test"}),
    Case("gemini", gemini.play, {"GEMINI_API_KEY": "AIza-of-a-test"}),
    Case("openai", openai.play, {"OPENAI_API_KEY": "sk-of-a-test", "CMSERVER_MODEL": "gpt-of-a-test"}),
    Case("openrouter", openai.play, {"OPENROUTER_API_KEY": "sk-or-of-a-test", "CMSERVER_MODEL": "some/model"}),
    Case("ollama", openai.play, {"CMSERVER_MODEL": "llama3.1"}),
]


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_two_hundred_tool_uses_come_to_their_observations_and_a_summary(run: Run, database: str, case: Case):
    with fake_in_a_thread(case.play) as fake:
        settings = {**QUICK_LEASE, "CMSERVER_DATABASE_URL": database, "CMSERVER_PROVIDER": case.name, **case.settings}
        address = f"{fake.url}/v1" if case.play is openai.play else fake.url
        program = run("server", settings={**settings, "CMSERVER_BASE_URL": address})
        program.wait_until_ready()

        work_through_a_session(program)
        wait_until_settled(database)

        assert fake.asked
    check(database, case.name)
    assert number(database, "SELECT sum(input_tokens)::bigint FROM generation_runs WHERE kind = 'observations'") > 10_000


def test_the_same_by_the_claude_program(run: Run, database: str):
    """The real program against a fake API."""

    def play(request: Asked) -> Reply:
        if not is_for_the_model(request):
            return failed(404, "not_found_error", "Not found")
        return streamed(tool_call("StructuredOutput", json.loads(answer_to(request.body.decode(), "json"))))

    with fake_in_a_thread(play) as fake:
        settings = {
            **QUICK_LEASE,
            "CMSERVER_DATABASE_URL": database,
            "CMSERVER_PROVIDER": "claude-cli",
            "CLAUDE_CODE_PATH": str(install.claude()),
            "ANTHROPIC_BASE_URL": fake.url,
            "CLAUDE_CODE_OAUTH_TOKEN": "sk-ant-oat01-of-a-test",
        }
        program = run("server", settings=settings)
        program.wait_until_ready()

        work_through_a_session(program)
        wait_until_settled(database)

    check(database, "claude-cli")
    assert number(database, "SELECT count(*) FROM generation_runs WHERE cost_usd IS NOT NULL") == 0, (
        "a plan is not paid by the call"
    )


def test_the_same_by_rules(run: Run, database: str):
    program = run("server", settings={**QUICK_LEASE, "CMSERVER_DATABASE_URL": database})
    program.wait_until_ready()

    work_through_a_session(program)
    wait_until_settled(database)

    check(database, "offline", observations=20)


def work_through_a_session(program: Program) -> None:
    prompts = requests(TOOL_USES)
    events: list[dict[str, object]] = []
    with program.http() as client:
        started = client.post("/v1/sessions/start", json={"projectId": "orders", "externalSessionId": "long"}).raise_for_status()
        session_id = started.json()["session"]["id"]
        common = {"projectId": "orders", "serverSessionId": session_id, "sourceType": "hook"}
        for place in range(TOOL_USES):
            if place in prompts:
                prompt = {"prompt": prompts[place]}
                events.append({**common, "eventType": "user_prompt", "sourceEventId": f"p{place}", "payload": prompt})
            events.append({**common, "eventType": "PostToolUse", "sourceEventId": f"t{place}", "payload": tool_use(place)})
        for first in range(0, len(events), 50):
            client.post("/v1/events/batch", json=events[first : first + 50]).raise_for_status()
        client.post(f"/v1/sessions/{session_id}/end", json={}).raise_for_status()


def check(url: str, provider: str, *, observations: int = TOOL_USES // 3) -> None:
    """Every event is completed, every call of a model is applied and recorded, and each observation has its source."""
    jobs = rows(url, "SELECT source_type, status, count(*) AS n FROM observation_generation_jobs GROUP BY 1, 2 ORDER BY 1, 2")
    assert [(job["source_type"], job["status"]) for job in jobs] == [("agent_event", "completed"), ("session_summary", "completed")]
    assert number(url, "SELECT count(*) FROM observation_generation_jobs WHERE source_type = 'agent_event'") >= TOOL_USES
    runs = [] if provider == "offline" else [{"provider": provider, "status": "applied"}]
    assert rows(url, "SELECT DISTINCT provider, status FROM generation_runs") == runs
    assert number(url, "SELECT count(*) FROM observations WHERE kind = 'observation'") >= observations
    assert rows(url, "SELECT kind, metadata ->> 'provider' AS provider FROM observations WHERE kind = 'summary'") == [
        {"kind": "summary", "provider": provider}
    ]
    without_source = """
        SELECT count(*) FROM observations o
         WHERE NOT EXISTS (SELECT FROM observation_sources s WHERE s.observation_id = o.id)
    """
    assert number(url, without_source) == 0
