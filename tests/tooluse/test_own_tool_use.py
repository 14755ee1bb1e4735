"""Reading our own memory is recognised, by tool or by command line, and nothing else is taken for it."""

from __future__ import annotations

from cmserver.tooluse.own_tool_use import reads_own_memory
from cmserver.tooluse.read import read_tool_use
from cmserver.tooluse.shell import MAX_COMMAND
from tests.table import try_rows

HOOK = "/home/alice/.config/cmserver/clients/claude-code/hook"
SPACED_HOOK = "/Users/Al B/.config/cmserver/clients/codex/hook"
CURL = 'curl -s -H "Authorization: Bearer cms_abc" '


def reads(command: object, tool: str = "Bash") -> bool:
    return reads_own_memory(read_tool_use(tool, {"command": command}))


@try_rows(
    "tool",
    [
        "mcp__cmserver__search",
        "mcp__cmserver__get_observations",
        "mcp_cmserver_search",
        "mcp__plugin_cmserver_cmserver__search",
        "mcp__claude-mem__search",
        "mcp__plugin_claude-mem_mcp-search__timeline",
    ],
)
def test_our_own_mcp_tools_read_our_memory_in_every_agents_spelling(tool: str):
    assert reads_own_memory(read_tool_use(tool, {"query": "retry"}))


@try_rows(
    "tool",
    [
        "mcp__github__search",
        "mcp__cmserverless__search",
        "mcp__files__cmserver_search",
        "mcp__plugin_files_cmserver__search",
        "cmserver_search",
        "search",
        "",
    ],
)
def test_tools_of_other_servers_do_not(tool: str):
    assert not reads_own_memory(read_tool_use(tool, {"query": "cmserver"}))


@try_rows(("server", "expected"), [("cmserver", True), ("claude-mem", True), ("github", False), (None, False), (3, False)])
def test_a_tool_is_ours_by_the_server_that_its_agent_names(server: object, expected: bool):
    assert reads_own_memory(read_tool_use("search", {"query": "retry"}), server) is expected


@try_rows(
    "command",
    [
        "cmserver context",
        "cmserver context --project orders",
        "cmserver sessions",
        "cmserver search retry",
        "cmserver mine list",
        "cmserver mine show m1",
        "cmserver show m1 12",
        "cmserver undo '#m1'",
        "cmserver mine edit m1 --content 'Answer me in German.'",
        "cmserver remember --for me 'Answer me in German.'",
        "cmserver remember 'Answer me in German.' --for=me",
        f"{CURL}http://localhost:37777/v1/personal-observations",
        "'cmserver' context",
        '"cmserver" "context"',
        "cmserver con'text'",
        "/usr/local/bin/cmserver context",
        "'/opt/my tools/cmserver' context",
        "CMSERVER_URL=http://localhost:37777 cmserver context",
        f"{HOOK} recall 12",
        f"{HOOK} recall 12 13 14",
        f'"{HOOK}" recall 12',
        f"'{SPACED_HOOK}' recall 12",
        "/Users/Al\\ B/.config/cmserver/clients/codex/hook recall 12",
        f"{HOOK} \\\n  recall 12",
        f"{CURL}http://localhost:37777/v1/observations/12",
        f"{CURL}'http://localhost:37777/v1/observations?numbers=1,2'",
        f'{CURL}-X POST -d \'{{"query": "a > b; c & d"}}\' http://localhost:37777/v1/search',
    ],
)
def test_command_lines_that_read_our_memory_do_in_every_quoting(command: str):
    assert reads(command)


@try_rows(
    "command",
    [
        f"cd /home/alice/src/orders && {HOOK} recall 12",
        f"{HOOK} recall 12 && {HOOK} recall 13",
        f"{HOOK} recall 12 | head -n 20",
        f"{HOOK} recall 12 2>/dev/null | grep -i 'retry && backoff' | wc -l",
        f"{HOOK} recall 12 2>&1 | tail -5",
        f"echo '#12:' && '{SPACED_HOOK}' recall 12 | cat",
        "cmserver context|head",
        "cmserver context&&cmserver sessions",
        f"{HOOK} recall search '`make` costs $(5)'",
        f'{HOOK} recall search "the price is \\$(5)"',
        f"{CURL}http://localhost:37777/v1/context | jq '.observations[] | .title'",
    ],
)
def test_pipes_and_chains_that_only_shorten_what_is_read_still_read(command: str):
    assert reads(command)


def test_a_command_that_comes_as_words_is_read_too():
    assert reads(["bash", "-lc", f"{HOOK} recall 12 | head"], "shell")
    assert reads([SPACED_HOOK, "recall", "12", "13"], "shell")
    assert not reads(["bash", "-lc", f"{HOOK} recall 12 && make deploy"], "shell")


@try_rows(
    "command",
    [
        "",
        "make",
        "cmserver",
        "cmserver serve",
        "cmserver keys revoke context",
        "cmserver remember 'Use tabs.'",
        "cmserverless context",
        "./my-cmserver context",
        "grep -r cmserver src",
        "cat cmserver context",
        "echo cmserver context",
        "echo 'cmserver context && done'",
        f"echo {HOOK} recall 12",
        HOOK,
        f"{HOOK} session-start",
        f"{HOOK} 'recall 12'",
        "hook recall 12",
        "/home/alice/.git/hook recall 12",
        "/srv/claude-code/hooks recall 12",
        f"{HOOK}.py recall 12",
        f'{HOOK} recall "$(make deploy)"',
        f"{HOOK} recall `make deploy`",
        f'{HOOK} recall "`make deploy`"',
        f"{HOOK} recall $(make deploy)",
        "curl http://localhost:8000/v1/observations/12",
        "curl https://example.com/v1/search -d cmserver=1 -o out && make",
        f"{CURL}http://localhost:37777/v1/teams",
        f"{CURL}http://localhost:37777/v1/observations/12/sources",
        f"{CURL}-X DELETE http://localhost:37777/v1/observations/12",
        f"{CURL}--request=PATCH http://localhost:37777/v1/observations/12",
        "wget http://cmserver.test/v1/observations/12",
    ],
)
def test_what_only_looks_like_it_does_not(command: str):
    assert not reads(command)


@try_rows(
    "command",
    [
        "cmserver context && make deploy",
        f"make deploy && {HOOK} recall 12",
        f"{HOOK} recall 12 | sh",
        f"{HOOK} recall 12 | tee notes.md",
        f"{HOOK} recall 12 > notes.md",
        f"{HOOK} recall 12 2> errors.log",
        f"{HOOK} recall 12\nmake deploy",
        f"{HOOK} recall 12 &",
        f"{HOOK} recall $(make number)",
        f"({HOOK} recall 12)",
        f"{HOOK} recall 12 'unclosed",
        f"{HOOK} recall 12 && python3 <<EOF\nprint(1)\nEOF",
    ],
)
def test_a_line_that_does_more_than_read_our_memory_is_recorded(command: str):
    assert not reads(command)


def test_a_line_that_is_too_long_is_recorded():
    longest = f"{HOOK} recall ".ljust(MAX_COMMAND, "1")

    assert reads(longest)
    assert not reads(f"{longest}1")


def test_the_same_text_in_a_tool_that_runs_nothing_does_not_count():
    assert not reads_own_memory(read_tool_use("Write", {"file_path": "notes.md", "content": f"{HOOK} recall 12"}))
    assert not reads_own_memory(read_tool_use("Grep", {"pattern": "cmserver context"}))
