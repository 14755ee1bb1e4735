"""The real Claude Code looks things up in the real server: what its model is told of the tools, and what these answer it.

Its model is played. What is asserted here of the program itself, and not of cmserver, is what the documentation tells its users.
"""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Generator, Mapping
from pathlib import Path
from subprocess import TimeoutExpired
from typing import cast

import pytest

from cmserver.doors.mcp.server import HOW_TO_WRITE, INSTRUCTIONS
from cmserver.observations.model import estimate_tokens
from tests.models.providers.fake.server import Asked, Reply, fake_in_a_thread
from tests.process.conftest import passable_folder
from tests.process.program import Program
from tests.real_agents.coder import PROJECT, Coder, Model, Result, Session, uses, words
from tests.real_agents.desk import Sit, command_lines, files_with
from tests.real_agents.noting import noting
from tests.timeouts import scaled

pytestmark = pytest.mark.slow

STOP_SECONDS = 10
OTHER = "billing"
OBSERVATIONS = [
    {
        "projectId": PROJECT,
        "type": "decision",
        "title": "Refunds are queued, never sent at once",
        "narrative": "The bank answers slowly on Mondays, so refunds wait in the table refund_queue until the job at four.",
        "facts": ["The job takes 500 at most", "What the bank refuses stays for a person"],
        "filesModified": ["orders/refunds.py", "orders/jobs/refund_queue.py"],
        "createdAtEpoch": 1_788_264_000_000,
    },
    {
        "projectId": PROJECT,
        "type": "bugfix",
        "title": "Vouchers were taken twice when a page was loaded again",
        "narrative": "The form had no token of its own. It has one now, and the second try is answered as the first.",
        "filesModified": ["orders/vouchers.py"],
        "createdAtEpoch": 1_788_350_400_000,
    },
    {
        "projectId": OTHER,
        "type": "discovery",
        "title": "Refunds of invoices need a second signature",
        "narrative": "Above 10,000 nothing leaves before two people have signed.",
        "createdAtEpoch": 1_788_436_800_000,
    },
]
FOUND = """\
<cmserver-context>
#1 2026-09-01 decision Refunds are queued, never sent at once ~54 0.50
</cmserver-context>
1 of 1. Whole, these take ~86 tokens."""
READ = """\
<cmserver-context>
#1 2026-09-01 decision Refunds are queued, never sent at once ~54
The bank answers slowly on Mondays, so refunds wait in the table refund_queue until the job at four.
- The job takes 500 at most
- What the bank refuses stays for a person
Modified: orders/refunds.py, orders/jobs/refund_queue.py
By owner
</cmserver-context>
"""
"""What the model reads, letter by letter."""

SEARCH, GET, ADD = "observation_search", "observation_get", "observation_add"
TOOLS = [
    ADD,
    "observation_context",
    "observation_correct",
    "observation_generation_status",
    GET,
    "observation_record_event",
    SEARCH,
    "observation_timeline",
    "observation_why",
]
"""In the order of their names, as Claude Code has them."""


def mcp(tool: str, server: str = "cmserver") -> str:
    """What Claude Code calls it."""
    return f"mcp__{server}__{tool}"


@pytest.fixture(scope="module")
def server() -> Generator[Program]:
    """For all tests of this file that only read. Nothing is embedded, so that scores are the same each time."""
    with passable_folder() as data:
        program = Program(data, "server", settings={"CMSERVER_EMBEDDER": "none"})
        try:
            program.wait_until_ready()
            remember(program)
            yield program
        finally:
            program.end()


@pytest.fixture
def coder(claude_program: Path, folder: Path) -> Generator[Coder]:
    model = Model()
    with fake_in_a_thread(model) as api:
        yield Coder(folder, claude_program, api, model)


def remember(server: Program) -> None:
    with server.http() as client:
        for project in (PROJECT, OTHER):
            client.post("/v1/projects", json={"canonicalId": project}).raise_for_status()
        for one in OBSERVATIONS:
            client.post("/v1/observations", json=one).raise_for_status()


def connected(
    coder: Coder, url: str, key: str, *, allowed: bool = True, headers: Mapping[str, str] | None = None, **more: object
) -> tuple[str, ...]:
    """The words by which a session has the server, as the documentation has them."""
    file = coder.home / "mcp.json"
    entry = {"type": "http", "url": f"{url}/mcp", "headers": {"Authorization": f"Bearer {key}", **(headers or {})}, **more}
    file.write_text(json.dumps({"mcpServers": {"cmserver": entry}}))
    leave = ("--allowedTools", "mcp__cmserver") if allowed else ()
    return ("--mcp-config", str(file), "--strict-mcp-config", *leave)


def tools_of(session: Session, request: int) -> dict[str, dict[str, object]]:
    """Ours among those whose arguments the model knows in that request, by name."""
    tools = cast("list[dict[str, object]]", session.asked[request].json["tools"])
    return {str(tool["name"]): tool for tool in tools if "cmserver" in str(tool["name"])}


def unscored(text: str) -> str:
    """With every score the same: how well something fits depends on how long ago it was."""
    return re.sub(r" [01]\.\d\d$", " 0.50", text, flags=re.MULTILINE)


def titles(result: Result) -> list[str]:
    return [str(one["title"]) for one in OBSERVATIONS if str(one["title"]) in result.text]


def test_the_model_is_told_what_the_tools_are_called_and_what_they_are_for(server: Program, coder: Coder):
    session = coder.session("Why are refunds slow?", words=connected(coder, server.url, server.key))

    told = words(session.asked[0])
    assert re.findall(r"^mcp__cmserver__(\w+)$", told, re.MULTILINE) == TOOLS
    assert tools_of(session, 0) == {}
    assert f"## cmserver\n{INSTRUCTIONS}{HOW_TO_WRITE}" in told


def test_tools_that_the_model_looks_for_are_there_with_their_arguments(server: Program, coder: Coder):
    looks = uses("ToolSearch", query=f"select:{mcp(SEARCH)},{mcp(GET)}", max_results=5)

    session = coder.session("Why are refunds slow?", looks, words=connected(coder, server.url, server.key))

    (looked,) = session.results
    assert looked.tools == [mcp(SEARCH), mcp(GET)]
    tools = tools_of(session, 1)
    assert set(tools) == {mcp(SEARCH), mcp(GET)}
    assert arguments(tools[mcp(GET)]) == {"ids"}
    assert "query" in arguments(tools[mcp(SEARCH)])


def test_a_session_may_begin_with_all_tools_for_less_than_1200_tokens(server: Program, coder: Coder):
    session = coder.session("Why are refunds slow?", words=connected(coder, server.url, server.key, alwaysLoad=True))

    tools = tools_of(session, 0)
    assert sorted(tools) == [mcp(tool) for tool in TOOLS]
    assert estimate_tokens(json.dumps(list(tools.values()), separators=(",", ":"))) < 1_200


def arguments(tool: Mapping[str, object]) -> set[str]:
    return set(cast("dict[str, dict[str, object]]", tool["input_schema"])["properties"])


def test_what_the_model_finds_and_reads_is_this_text_and_reading_adds_what_the_line_said(server: Program, coder: Coder):
    session = coder.session(
        "Why are refunds slow?",
        uses(mcp(SEARCH), query="why do refunds wait", projectId=PROJECT),
        uses(mcp(GET), ids=[1]),
        words=connected(coder, server.url, server.key),
    )

    found, read = session.results
    assert unscored(found.text) == FOUND
    assert read.text == READ
    assert (estimate_tokens(found.text), estimate_tokens(read.text)) == (37, 86)
    (line,) = re.findall(r"^#1 .*", read.text, re.MULTILINE)
    promised = int(line.rpartition("~")[2])
    added = below(line, read.text).replace("By owner\n", "")  # whose it is costs two tokens, which no line promises
    assert estimate_tokens(added) == pytest.approx(promised, rel=0.1)


def below(line: str, text: str) -> str:
    """What reading it adds to the line that was known."""
    return text.partition(f"{line}\n")[2].removesuffix("</cmserver-context>\n")


def test_structured_content_would_be_shown_instead_of_the_text(server: Program, coder: Coder):
    """So that there is none: what is made for programs takes half as much again to read."""

    def adds(asked: Asked, answer: bytes) -> bytes:
        message = cast("dict[str, dict[str, object]]", json.loads(answer))
        if asked.json["method"] == "tools/call":
            message["result"]["structuredContent"] = {"hits": [{"number": 1}]}
        return json.dumps(message).encode()

    with noting(server.url, adds) as door:
        session = coder.session(
            "Why are refunds slow?",
            uses(mcp(SEARCH), query="refunds", projectId=PROJECT),
            words=connected(coder, door.url, server.key),
        )

    assert [one.text for one in session.results] == ['{"hits":[{"number":1}]}']


def test_it_is_added_and_given_leave_as_the_documentation_says(server: Program, coder: Coder):
    coder.variables["CM_API_KEY"] = server.key
    add = ("mcp", "add", "--transport", "http", "--scope", "user", "cmserver", f"{server.url}/mcp")
    coder.claude(*add, "--header", "Authorization: Bearer ${CM_API_KEY}")
    coder.settings.write_text(json.dumps({"permissions": {"allow": [mcp(SEARCH), mcp(GET)]}}))

    session = coder.session(
        "Why are refunds slow?",
        uses(mcp(SEARCH), query="refunds"),
        uses(mcp(GET), ids=[1]),
        uses(mcp(ADD), title="Refunds are slow"),
    )

    assert "✔ Connected" in coder.claude("mcp", "list")
    assert [one.is_error for one in session.results] == [False, False, True]
    assert files_with(coder.home, server.key) == set()


def test_without_leave_nothing_is_called_not_even_what_only_reads(server: Program, coder: Coder):
    session = coder.session(
        "Why are refunds slow?",
        uses(mcp(SEARCH), query="refunds"),
        words=connected(coder, server.url, server.key, allowed=False),
    )

    (refused,) = session.results
    assert refused.is_error
    assert "haven't granted it" in refused.text


@pytest.mark.parametrize("by", ["header", "argument", "key"])
def test_a_search_stays_in_the_project_that_is_said(server: Program, coder: Coder, by: str):
    key = project_key(server, OTHER) if by == "key" else server.key
    headers = {"X-Cmserver-Project": OTHER} if by == "header" else None
    argument = {"projectId": OTHER} if by == "argument" else {}

    session = coder.session(
        "Why are refunds slow?",
        uses(mcp(SEARCH), query="refunds", **argument),
        uses(mcp(SEARCH), query="refunds", projectId="*"),
        words=connected(coder, server.url, key, headers=headers),
    )

    narrow, wide = session.results
    assert titles(narrow) == [OBSERVATIONS[2]["title"]]
    assert (OBSERVATIONS[0]["title"] in titles(wide)) == (by != "key")


def project_key(server: Program, project: str) -> str:
    with server.http() as client:
        made = client.post("/v1/keys", json={"projectId": project, "scopes": ["observations:read"]}).raise_for_status()
    return cast("str", made.json()["apiKey"])


def test_a_key_is_offered_only_the_tools_that_it_may_use(server: Program, coder: Coder):
    session = coder.session(
        "Remember this.", uses(mcp(ADD), title="x"), words=connected(coder, server.url, project_key(server, PROJECT))
    )

    assert re.findall(r"^mcp__cmserver__(\w+)$", words(session.asked[0]), re.MULTILINE) == [
        "observation_context",
        GET,
        SEARCH,
        "observation_timeline",
        "observation_why",
    ]
    (refused,) = session.results
    assert refused.is_error


def test_with_a_wrong_key_the_session_goes_on_without_the_tools_and_the_model_knows_why(server: Program, coder: Coder):
    session = coder.session(
        "Why are refunds slow?", uses(mcp(SEARCH), query="refunds"), words=connected(coder, server.url, "cms_wrong")
    )

    told = words(session.asked[0])
    assert mcp(SEARCH) not in told
    assert "This API key is wrong, expired or revoked." in told
    (refused,) = session.results
    assert refused.is_error
    assert len(session.asked) == 2


def test_nobody_sees_the_key(server: Program, coder: Coder):
    seen: list[str] = []

    def looks_around() -> Reply:
        seen.append(command_lines())
        return uses(mcp(GET), ids=[1])

    session = coder.session(
        "Why are refunds slow?",
        uses(mcp(SEARCH), query="refunds"),
        looks_around,
        words=connected(coder, server.url, server.key),
    )

    assert "--mcp-config" in seen[0]
    assert server.key not in seen[0]
    assert server.key.encode() not in b"".join(one.body for one in session.asked)
    assert files_with(coder.home, server.key) == {coder.home / "mcp.json"}


def test_it_speaks_the_newest_protocol_and_holds_nothing_open(server: Program, coder: Coder):
    with noting(server.url) as door:
        session = coder.session(
            "Why are refunds slow?", uses(mcp(SEARCH), query="refunds"), words=connected(coder, door.url, server.key)
        )

    assert not session.results[0].is_error
    methods = [one.json["method"] for one in door.asked]
    assert methods[0] == "server/discover"
    assert {"tools/list", "tools/call"} <= set(methods)
    assert "subscriptions/listen" not in methods
    assert {(one.method, one.headers["mcp-protocol-version"]) for one in door.asked} == {("POST", "2026-07-28")}


def test_a_server_that_dies_is_an_error_for_the_model_and_is_used_again_when_it_is_back(sit: Sit):
    desk = sit(attached=False)
    remember(desk.server)

    def dies() -> Reply:
        desk.kill()
        return uses(mcp(GET), ids=[1])

    def comes_back() -> Reply:
        desk.start()
        return uses(mcp(GET), ids=[2])

    session = desk.coder.session(
        "Why are refunds slow?",
        uses(mcp(SEARCH), query="refunds"),
        dies,
        comes_back,
        words=connected(desk.coder, desk.address, desk.server.key),
    )

    before, without, after = session.results
    assert [one.is_error for one in (before, without, after)] == [False, True, False]
    assert titles(after) == [OBSERVATIONS[1]["title"]]


def test_a_server_stops_while_a_session_is_connected(sit: Sit):
    desk = sit(attached=False)
    codes: list[int | None] = []

    def stops() -> Reply:
        desk.server.send(signal.SIGTERM)
        try:
            codes.append(desk.server.process.wait(scaled(STOP_SECONDS)))
        except TimeoutExpired:
            codes.append(None)
        return uses(mcp(GET), ids=[1])

    session = desk.coder.session(
        "Why are refunds slow?",
        uses(mcp(SEARCH), query="refunds"),
        stops,
        words=connected(desk.coder, desk.address, desk.server.key),
    )

    assert codes == [0]
    before, after = session.results
    assert [before.is_error, after.is_error] == [False, True]


# -- as a plugin


PLUGIN = "plugin_cmserver_cmserver"
FOLDERS = {
    "below the project": "orders/deep/er",
    "another": "invoices",
    "with a command in its name": """a"; touch taken; $(touch taken) `touch taken` ' b""",
    "with lines in its name": "a\nb\nEOF\ntouch taken\n",
}


def test_as_a_plugin_it_has_the_tools_with_a_key_that_nobody_sees(sit: Sit):
    desk = sit(attached=False)
    remember(desk.server)
    desk.cmserver("connect", "claude-code", "--plugin", "--yes")
    seen: list[str] = []

    def looks_around() -> Reply:
        seen.append(command_lines())
        return uses(mcp(GET, PLUGIN), ids=[1])

    session = desk.coder.session(
        "Why are refunds slow?",
        uses(mcp(SEARCH, PLUGIN), query="refunds"),
        looks_around,
        words=("--allowedTools", f"mcp__{PLUGIN}"),
    )

    told = words(session.asked[0])
    assert re.findall(rf"^mcp__{PLUGIN}__(\w+)$", told, re.MULTILINE) == [
        "observation_context",
        GET,
        "observation_record_event",
        SEARCH,
        "observation_timeline",
        "observation_why",
    ]
    assert f"## plugin:cmserver:cmserver\n{INSTRUCTIONS}" in told
    assert [titles(one) for one in session.results] == [[OBSERVATIONS[0]["title"]]] * 2
    assert f"mcp__{PLUGIN}" in seen[0]
    assert desk.key not in seen[0]
    assert desk.key.encode() not in b"".join(one.body for one in session.asked)
    assert files_with(desk.coder.home, desk.key) == {desk.authorization}


def test_as_a_plugin_it_searches_in_the_project_of_the_folder_where_it_is_started(sit: Sit):
    desk = sit(attached=False)
    remember(desk.server)
    desk.cmserver("connect", "claude-code", "--plugin", "--yes")
    found: dict[str, list[str]] = {}

    for name, path in FOLDERS.items():
        folder = desk.folder / path
        folder.mkdir(parents=True)
        if not folder.is_relative_to(desk.coder.project):
            (folder / ".cmserver.toml").write_text(f'project = "{OTHER}"\n')
        session = desk.coder.session(
            "Why are refunds slow?",
            uses(mcp(SEARCH, PLUGIN), query="refunds"),
            words=("--allowedTools", f"mcp__{PLUGIN}"),
            folder=folder,
        )
        found[name] = titles(session.results[0])

    orders, billing = OBSERVATIONS[0]["title"], OBSERVATIONS[2]["title"]
    assert found == {
        "below the project": [orders],
        "another": [billing],
        "with a command in its name": [billing],
        "with lines in its name": [billing],
    }
    assert list(desk.folder.rglob("taken")) == []
