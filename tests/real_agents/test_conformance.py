"""The MCP conformance suite, as its makers publish it, against the real server.

Most of its scenarios call tools, prompts and resources of the suite's own example server (`test_...`, `test://...`), which no
other server has. Those are left out here, each with what it wants. The suite runs them all the same: a scenario that is new is
seen, and so is one that has come to pass.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Final

import msgspec
import pytest

from tests.process.program import Program
from tests.real_agents.install import Command
from tests.real_agents.keyed import keyed
from tests.timeouts import scaled

pytestmark = pytest.mark.slow

SUITE_SECONDS = 120.0

PASSES: Final = frozenset(
    {
        "caching",
        "dns-rebinding-protection",
        "http-header-validation",
        "input-required-result-unsupported-methods",
        "input-required-result-validate-input",  # wants a refusal, and gets one, if only for there being no such tool
        "ping",
        "prompts-list",
        "resources-list",
        "sep-2164-resource-not-found",
        "server-initialize",
        "server-sse-multiple-streams",
        "server-stateless",
        "tools-list",
    }
)

LEFT_OUT: Final = {
    # is about what only the example server has
    "completion-complete": "completes an argument of the prompt test_prompt_with_arguments",
    "elicitation-sep1034-defaults": "calls test_client_elicitation_defaults, which asks the user something",
    "elicitation-sep1330-enums": "calls test_elicitation_sep1330_enums, which asks the user something",
    "http-custom-header-server-validation": "calls a tool whose arguments go into headers of their own; ours have none of these",
    "input-required-result-basic-elicitation": "calls test_input_required_result_elicitation",
    "input-required-result-basic-list-roots": "calls test_input_required_result_list_roots",
    "input-required-result-basic-sampling": "calls test_input_required_result_sampling",
    "input-required-result-capability-check": "calls test_input_required_result_capabilities",
    "input-required-result-ignore-extra-params": "calls test_input_required_result_elicitation",
    "input-required-result-missing-input-response": "calls test_input_required_result_elicitation",
    "input-required-result-multi-round": "calls test_input_required_result_multi_round",
    "input-required-result-multiple-input-requests": "calls test_input_required_result_multiple_inputs",
    "input-required-result-non-tool-request": "gets the prompt test_input_required_result_prompt",
    "input-required-result-request-state": "calls test_input_required_result_request_state",
    "input-required-result-result-type": "calls test_input_required_result_elicitation",
    "input-required-result-tampered-state": "calls test_input_required_result_tampered_state",
    "json-schema-2020-12": "looks for json_schema_2020_12_tool",
    "prompts-get-embedded-resource": "gets the prompt test_prompt_with_embedded_resource",
    "prompts-get-simple": "gets the prompt test_simple_prompt",
    "prompts-get-with-args": "gets the prompt test_prompt_with_arguments",
    "prompts-get-with-image": "gets the prompt test_prompt_with_image",
    "resources-read-binary": "reads test://static-binary",
    "resources-read-text": "reads test://static-text",
    "resources-templates-read": "reads test://template/123/data",
    "server-sse-polling": "calls test_reconnection, in a session",
    "tools-call-audio": "calls test_audio_content",
    "tools-call-elicitation": "calls test_elicitation, which asks the user something",
    "tools-call-embedded-resource": "calls test_embedded_resource",
    "tools-call-error": "calls test_error_handling",
    "tools-call-image": "calls test_image_content",
    "tools-call-mixed-content": "calls test_multiple_content_types",
    "tools-call-sampling": "calls test_sampling, which asks the client's model something",
    "tools-call-simple-text": "calls test_simple_text",
    "tools-call-with-logging": "calls test_tool_with_logging",
    "tools-call-with-progress": "calls test_tool_with_progress",
    # is about what a server need not have, and ours says that it has not
    "logging-set-level": "the server sends no logs to clients",
    "resources-subscribe": "there are no subscriptions: nothing is held open, so that the server can stop",
    "resources-unsubscribe": "there are no subscriptions",
    "server-session-lifecycle": "there are no sessions: each request stands for itself",
    "sep-2640-skills-directory": "an extension that the server has not",
    "sep-2640-skills-enumeration": "an extension that the server has not",
    "sep-2640-skills-manifest": "an extension that the server has not",
    "tasks-capability-negotiation": "an extension that the server has not",
    "tasks-dispatch-and-envelope": "an extension that the server has not",
    "tasks-lifecycle": "an extension that the server has not",
    "tasks-mrtr-composition": "an extension that the server has not",
    "tasks-mrtr-input": "an extension that the server has not",
    "tasks-request-headers": "an extension that the server has not",
    "tasks-request-state-removal": "an extension that the server has not",
    "tasks-required-task-error": "an extension that the server has not",
    "tasks-status-notifications": "an extension that the server has not",
    "tasks-wire-fields": "an extension that the server has not",
}

NOT_IN_SESSIONS: Final = {"server-sse-multiple-streams": "before 2026-07-28 it opens its streams in a session, and there are none"}

PARTS_LEFT_OUT: Final = {
    "sep-2575-http-server-no-independent-requests-on-stream": "calls test_streaming_elicitation",
    "sep-2575-server-no-log-without-loglevel": "calls test_logging_tool",
    "sep-2575-server-rejects-undeclared-capability": "calls test_missing_capability",
    "sep-2575-missing-capability-http-400": "calls test_missing_capability",
}
"""Single checks of scenarios that pass else."""


Suites = dict[str, Command]


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """Which of the published suites, and what it is told."""

    package: str
    words: tuple[str, ...] = ()
    left_out: dict[str, str] = {}


RUNS: Final = {
    "released": Run(package="conformance", left_out=NOT_IN_SESSIONS),
    "next": Run(package="conformance-next", left_out=NOT_IN_SESSIONS),  # each by the oldest version that it is about
    "next-2026-07-28": Run(package="conformance-next", words=("--spec-version", "2026-07-28")),
}


class Check(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """One thing that a scenario looked at, and what it says of it."""

    id: str
    status: str
    error_message: str = ""

    @property
    def went_well(self) -> bool:
        """Not that the answer has a form that can be read, which is asked in every scenario."""
        return self.status == "SUCCESS" and self.id != "wire-schema-valid"

    @property
    def went_wrong(self) -> bool:
        return self.status not in {"SUCCESS", "INFO", "SKIPPED"}


def failures(checks: list[Check]) -> list[str]:
    """Why a scenario does not pass: what went wrong, or that nothing was looked at."""
    wrong = [one for one in checks if one.went_wrong and one.id not in PARTS_LEFT_OUT]
    if not wrong and not any(one.went_well for one in checks):
        return ["nothing was looked at"]
    return [f"{one.id}: {one.error_message}" for one in wrong]


async def said(command: Command, *words: str, home: Path) -> str:
    """What the suite prints, once it has ended."""
    suite = await asyncio.create_subprocess_exec(
        *command,
        *words,
        env={"HOME": str(home)},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        out, _ = await asyncio.wait_for(suite.communicate(), scaled(SUITE_SECONDS))
    finally:
        if suite.returncode is None:
            suite.kill()
            await suite.wait()
    return out.decode()


async def listed(suites: Suites, run: Run, home: Path) -> set[str]:
    """The scenarios that there are."""
    out = await said(suites[run.package], "list", "--server", *run.words, home=home)
    return set(re.findall(r"^ +- (\S+) \[", out, re.MULTILINE))


async def results(suites: Suites, run: Run, server: Program, folder: Path) -> dict[str, list[Check]]:
    """The checks of each scenario."""
    results = folder / "results"
    async with keyed(server.url, server.key) as door:
        words = ("server", "--url", f"{door}/mcp", "--suite", "all", *run.words, "--output-dir", str(results))
        out = await said(suites[run.package], *words, home=folder)
    found: dict[str, list[Check]] = {}
    for written in results.glob("*/checks.json"):
        name = re.fullmatch(r"server-(.+)-\d{4}-\d\d-\d\dT.+", written.parent.name)
        assert name, written
        found[name[1]] = msgspec.json.decode(written.read_bytes(), type=list[Check])
    assert found, out
    return found


@pytest.mark.parametrize("name", RUNS)
async def test_every_scenario_that_applies_passes_and_those_left_out_do_not(
    suites: Suites, remembering: Program, tmp_path: Path, name: str
):
    run = RUNS[name]

    found = await results(suites, run, remembering, tmp_path)

    assert found.keys() == await listed(suites, run, tmp_path)
    left_out = LEFT_OUT.keys() | run.left_out.keys()
    passed = {scenario for scenario, checks in found.items() if not failures(checks)}
    failed = [f"{scenario}: {why}" for scenario in sorted(found.keys() - left_out) for why in failures(found[scenario])]
    assert not failed, "\n".join(failed)
    assert passed & left_out == set()
    assert passed <= PASSES


async def test_single_checks_that_are_left_out_do_not_go_well(suites: Suites, remembering: Program, tmp_path: Path):
    found = await results(suites, RUNS["next-2026-07-28"], remembering, tmp_path)

    assert {one.id for checks in found.values() for one in checks if one.went_wrong} >= PARTS_LEFT_OUT.keys()


async def test_every_scenario_that_is_named_exists(suites: Suites, tmp_path: Path):
    found = await listed(suites, RUNS["next"], tmp_path)

    assert found == PASSES | LEFT_OUT.keys()


async def test_without_the_key_nothing_passes(suites: Suites, remembering: Program, tmp_path: Path):
    words = ("server", "--url", f"{remembering.url}/mcp", "--scenario", "ping", "--verbose")

    out = await said(suites["conformance"], *words, home=tmp_path)

    assert "Passed: 0/1" in out
    assert "Unauthorized" in out
