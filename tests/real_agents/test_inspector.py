"""The MCP Inspector, as its makers publish it, without its web page: somebody looks at what the real server offers, and uses it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import cast

import msgspec
import pytest

from tests.process.program import Program
from tests.real_agents.conftest import REMEMBERED
from tests.real_agents.install import Command
from tests.timeouts import scaled

pytestmark = pytest.mark.slow

CALL_SECONDS = 60.0
TITLE, NARRATIVE = REMEMBERED["title"], REMEMBERED["narrative"]
TOOLS = [
    "observation_search",
    "observation_timeline",
    "observation_get",
    "observation_why",
    "observation_context",
    "observation_add",
    "observation_correct",
    "observation_record_event",
    "observation_generation_status",
]
TEMPLATES = {
    "cmserver://observations/{number}",
    "cmserver://sessions/{id}/summary",
    "cmserver://projects/{project}/context",
}
CONTEXT = f"cmserver://projects/{REMEMBERED['projectId']}/context"

SIGN_IN = 3
"""The Inspector's exit code where it would have to sign in first."""

Json = Mapping[str, object]


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """What the Inspector did: its exit code, its answer, and what it complains of."""

    code: int
    answer: str
    complaint: str


Look = Callable[..., Ended]


@pytest.fixture(params=["legacy", "modern"])
def look(inspector: Command, remembering: Program, tmp_path: Path, request: pytest.FixtureRequest) -> Look:
    """Asks the server with the Inspector, in each era of the protocol. The key is the server's own, unless another is named."""
    era = cast("str", request.param)

    def looked(method: str, *words: str, key: str = remembering.key) -> Ended:
        at = (f"{remembering.url}/mcp", "--transport", "http", "--header", f"Authorization: Bearer {key}")
        how = ("--protocol-era", era, "--stored-auth-only", "--format", "json")
        done = subprocess.run(
            [*inspector, *at, *how, "--method", method, *words],
            env={"HOME": str(tmp_path)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=scaled(CALL_SECONDS),
            check=False,
        )
        return Ended(code=done.returncode, answer=done.stdout, complaint=done.stderr)

    return looked


def result(ended: Ended) -> Json:
    assert ended.code == 0, ended.complaint + ended.answer
    return cast("dict[str, Json]", json.loads(ended.answer))["result"]


def listed(ended: Ended, what: str) -> Sequence[Json]:
    return cast("Sequence[Json]", result(ended)[what])


def text(ended: Ended) -> str:
    """Of a tool's result, which is one text."""
    (content,) = listed(ended, "content")
    assert content["type"] == "text"
    return str(content["text"])


def call(tool: str, arguments: Json) -> tuple[str, ...]:
    return ("tools/call", "--tool-name", tool, "--tool-args-json", json.dumps(arguments))


def test_the_tools_are_listed_in_schemas_that_every_client_can_read(look: Look):
    ended = look("tools/list", "--strict")

    assert [tool["name"] for tool in listed(ended, "tools")] == TOOLS
    assert "Path: " not in ended.complaint


def test_what_is_searched_is_found_in_a_line_and_read_by_its_number(look: Look):
    found = text(look(*call("observation_search", {"query": "why are refunds slow", "projectId": "orders"})))
    read = text(look(*call("observation_get", {"ids": [1]})))

    assert any(line.startswith("#1 ") and TITLE in line for line in found.splitlines())
    assert NARRATIVE not in found
    assert NARRATIVE in read


def test_a_bad_argument_is_answered_with_a_sentence(look: Look):
    ended = look(*call("observation_search", {"query": "refunds", "limit": 1_000}))

    assert "$.limit" in ended.answer + ended.complaint


def test_of_resources_the_projects_are_listed_and_how_others_are_called(look: Look):
    resources = listed(look("resources/list"), "resources")
    templates = listed(look("resources/templates/list"), "resourceTemplates")

    assert [resource["uri"] for resource in resources] == [CONTEXT]
    assert {template["uriTemplate"] for template in templates} == TEMPLATES


def test_an_observation_is_read_as_a_resource(look: Look):
    ended = look("resources/read", "--uri", "cmserver://observations/1")

    (content,) = listed(ended, "contents")
    assert content["uri"] == "cmserver://observations/1"
    assert NARRATIVE in str(content["text"])


def test_a_project_is_read_as_a_resource(look: Look):
    ended = look("resources/read", "--uri", CONTEXT)

    (content,) = listed(ended, "contents")
    assert TITLE in str(content["text"])


def test_a_resource_that_does_not_exist_is_an_error(look: Look):
    ended = look("resources/read", "--uri", "cmserver://observations/999")

    assert ended.code == 1
    assert "There is no such observation." in ended.complaint


def test_the_prompt_is_listed_and_tells_what_is_known(look: Look):
    (prompt,) = listed(look("prompts/list"), "prompts")
    messages = listed(look("prompts/get", "--prompt-name", "what_do_we_know", "--prompt-args", "topic=refunds"), "messages")

    assert prompt["name"] == "what_do_we_know"
    assert "refunds" in json.dumps(messages)
    assert TITLE in json.dumps(messages)


@pytest.mark.parametrize("key", ["cms_wrong", ""])
def test_with_a_wrong_key_nothing_is_told(look: Look, key: str):
    ended = look("tools/list", key=key)

    assert ended.code == SIGN_IN
    assert ended.answer == ""
    assert "auth_required" in ended.complaint
