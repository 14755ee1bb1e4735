"""What a hook sends, and what its agent hears."""

from __future__ import annotations

import os
import signal
import stat
import uuid
from pathlib import Path

import pytest

from cmserver.recall.index.layout import TOOLS
from tests.client.hook.agent import KEY, Agent, command_lines
from tests.client.hook.recorder import Recorder, Reply, Sent
from tests.timeouts import ENOUGH_SECONDS

GATEWAY = Reply(status=404, body=b"<html>", content_type="text/html")


def test_a_payload_goes_to_the_server_as_it_is_and_its_answer_to_the_agent(agent: Agent, server: Recorder):
    payload = b'{"session_id": "s",  "text": "\xc3\xbc\\u0000 $(true) \'"}\n\n'

    said = agent.hook("PostToolUse", payload)

    (sent,) = server.sent
    assert said == {"answer": True}
    assert (sent.method, sent.path, sent.body) == ("POST", "/v1/hooks/claude-code", payload)
    assert sent.headers["authorization"] == KEY.partition(": ")[2]
    assert sent.headers["content-type"] == "application/json"
    assert uuid.UUID(sent.headers["x-cmserver-delivery"])
    assert len(sent.headers["x-cmserver-sent-at"]) == 13
    assert "x-cmserver-late" not in sent.headers
    assert list((agent.folder / "spool").iterdir()) == []


def test_it_says_by_what_its_agent_reads_more(agent: Agent, server: Recorder):
    agent.hook("Stop")
    agent.configure(URL=server.url, TOOLS=TOOLS)
    agent.hook("Stop")

    assert [sent.headers["x-cmserver-hook"] for sent in server.sent] == [str(agent.folder / "hook"), TOOLS]


def test_an_empty_answer_is_an_empty_object(agent: Agent, server: Recorder):
    server.reply = lambda _: Reply(body=b"")

    assert agent.hook("Stop") == {}


@pytest.mark.parametrize("event", ["SessionStart", "Nonsense; true", ""])
def test_any_event_is_sent(agent: Agent, server: Recorder, event: str):
    assert agent.hook(event) == {"answer": True}
    assert len(server.sent) == 1


def test_nothing_on_stdin_is_nothing_to_send(agent: Agent, server: Recorder):
    assert agent.hook("Stop", b"") == {}
    assert server.sent == []
    assert agent.left.waiting == 0


def test_a_server_that_is_down_is_told_once_a_session(agent: Agent, server: Recorder):
    server.stop()

    first, second = agent.use(1, 2)
    agent.session = "session-2"
    (third,) = agent.use(3)
    started = agent.hook("SessionStart")
    (fourth,) = agent.use(4)

    assert str(first["systemMessage"]).startswith(f"cmserver: no answer from {server.url}.")
    assert (second, fourth) == ({}, {})
    assert third == started == first
    assert agent.left.waiting == 5
    assert agent.left.trouble == "down"


def test_the_session_is_read_from_the_payload_when_the_agent_does_not_name_it(tmp_path: Path, shell: Path, server: Recorder):
    codex = Agent(tmp_path, shell, server.url, "codex")
    server.stop()

    said = [codex.hook("PostToolUse", {"session_id": one}) for one in ("a", "a", "b", "../b", 'a"')]

    assert ["systemMessage" in one for one in said] == [True, False, True, False, False]
    codex.until_idle()


def test_a_wrong_key_is_told_and_the_payload_waits_for_the_right_one(agent: Agent, server: Recorder):
    server.reply = lambda sent: Reply(status=200 if sent.headers["authorization"] == "Bearer new" else 401)

    (first, second) = agent.use(1, 2)
    agent.until_idle()
    trouble = agent.left.trouble
    (agent.folder / "authorization").write_text("Authorization: Bearer new\n")
    agent.use(3)
    agent.until_drained()

    assert "refuses the key" in str(first["systemMessage"])
    assert second == {}
    assert trouble == "key"
    assert server.numbers() == [1, 2, 3]
    assert agent.left.trouble is None


@pytest.mark.parametrize(
    ("by_plugin", "status", "told"),
    [
        (False, 401, "until you run: cmserver connect claude-code."),
        (True, 401, "until you run: claude plugin configure cmserver@cmserver."),
        (False, 413, "is not kept: cmserver status."),
        (True, 413, "is not kept."),
        (False, 503, "when it answers again. See: cmserver status."),
        (True, 503, "when it answers again."),
    ],
)
def test_who_has_only_the_plugin_is_told_of_no_command_of_cmserver(
    agent: Agent, server: Recorder, by_plugin: bool, status: int, told: str
):
    server.reply = lambda _: Reply(status=status)
    if by_plugin:
        (agent.folder / "from").write_text("/plugin\n")

    said = agent.hook("SessionStart")

    assert str(said["systemMessage"]).endswith(told)


@pytest.mark.parametrize("status", [400, 409, 413])
def test_what_the_server_will_never_take_is_dropped_and_counted(agent: Agent, server: Recorder, status: int):
    server.reply = lambda _: Reply(status=status)

    said = agent.hook("SessionStart")

    assert f"HTTP {status}" in str(said["systemMessage"])
    assert (agent.left.waiting, agent.left.refused, agent.left.trouble) == (0, 1, None)


def test_the_user_is_told_of_a_refusal_by_the_session_that_the_payload_names(agent: Agent, server: Recorder):
    agent.configure(URL=server.url)
    server.reply = lambda _: Reply(status=413)
    payload = b'{"session_id":"c1","tool_response":"yyy"}'

    said = [agent.hook("PostToolUse", payload), agent.hook("PostToolUse", payload)]

    assert "HTTP 413" in str(said[0].get("systemMessage"))
    assert (said[1], agent.left.waiting, agent.left.refused) == ({}, 0, 2)


@pytest.mark.parametrize(
    "reply",
    [
        GATEWAY,
        Reply(body=b"<html>", content_type="text/html"),
        Reply(status=404, body=b'{"detail":"Not Found"}'),
        Reply(status=302, headers={"location": "/elsewhere"}),
        Reply(status=503),
        Reply(status=402),
        Reply(body=b"hello\nworld"),
        Reply(body=b"[]"),
        Reply(body=b"{}\n{}"),
        Reply(body=b'{"a":"' + b"x" * 2_000_000 + b'"}'),
        Reply(body=b"a\n" * 450_000),
        Reply(body=b'{"a":"' + b"x" * 300_000 + b'"}'),
    ],
    ids=[
        "404 of another server",
        "404 in JSON",
        "200 of another server",
        "302",
        "503",
        "402",
        "no JSON",
        "a list",
        "two objects",
        "endless",
        "endless lines",
        "longer than any of ours",
    ],
)
def test_what_no_cmserver_has_refused_for_good_is_kept(agent: Agent, server: Recorder, reply: Reply):
    server.reply = lambda _: reply

    said = agent.hook("PostToolUse", {"number": 1})

    assert "systemMessage" in said
    assert (agent.left.waiting, agent.left.refused, len(server.sent)) == (1, 0, 1)


def test_a_server_that_takes_no_more_in_this_minute_is_not_away(agent: Agent, server: Recorder):
    server.reply = lambda _: Reply(status=429)

    (use,) = agent.use(1)
    start = agent.hook("SessionStart")

    assert use == {}
    assert "takes no more calls of this key in this minute" in str(start["systemMessage"])
    assert (agent.left.trouble, agent.left.breaker_open_until) == (None, None)


@pytest.mark.slow  # a drain rests for five seconds
def test_a_drain_goes_on_when_the_server_takes_more_again(agent: Agent, server: Recorder):
    refused: list[int] = []

    def reply(_: Sent) -> Reply:
        if len(server.sent) == 2:
            refused.append(len(server.sent))
            return Reply(status=429)
        return Reply()

    server.stop()
    agent.use(1, 2, 3)
    agent.until_idle()  # else what still runs could begin another pause
    server.reply = reply
    server.start()
    agent.end_pause()
    agent.use(4)
    agent.until_drained()

    assert refused != []
    assert list(dict.fromkeys(server.numbers())) == [1, 2, 3, 4]
    assert agent.left.dropped == 0


def test_the_key_is_in_no_process_list(agent: Agent, server: Recorder):
    server.free.clear()

    process = agent.start("SessionStart")
    assert process.stdin
    process.stdin.write(b"{}")
    process.stdin.close()
    process.stdin = None
    assert server.came.acquire(timeout=ENOUGH_SECONDS)
    lines = command_lines()
    server.free.set()
    agent.finish(process)

    assert any(server.url.encode() in line for line in lines)
    assert not any(b"verysecret" in line for line in lines)


def test_files_are_for_their_owner_only(agent: Agent, server: Recorder):
    server.stop()

    agent.use(1)

    files = [one for name in ("spool", "state") for one in (agent.folder / name).rglob("*")]
    assert files
    assert {stat.S_IMODE(one.stat().st_mode) for one in files} == {0o600}


def test_proxies_and_the_settings_of_curl_have_no_say(agent: Agent, server: Recorder):
    (agent.home / ".curlrc").write_text('header = "X-Mine: 1"\nmax-time = 0.001\n')
    nobody = "http://127.0.0.1:1"
    proxies = {"http_proxy": nobody, "HTTP_PROXY": nobody, "ALL_PROXY": nobody, "all_proxy": nobody}

    said = agent.hook("Stop", env=proxies)

    assert said == {"answer": True}
    assert "x-mine" not in server.sent[0].headers


def test_no_proxy_hears_of_a_server_on_this_machine(agent: Agent, server: Recorder):
    agent.configure(URL="http://localhost")

    agent.hook("PostToolUse", env={"http_proxy": server.url, "no_proxy": ""})

    assert server.sent == []


def test_a_payload_of_six_megabytes(agent: Agent, server: Recorder):
    payload = b'{"number":1,"text":"' + b"x" * 6_500_000 + b'"}'

    agent.hook("PostToolUse", payload)
    agent.until_drained()

    assert {sent.body == payload for sent in server.sent} == {True}


@pytest.mark.slow
@pytest.mark.parametrize("event", ["Stop", "SessionStart"])
def test_a_server_that_never_answers_holds_no_agent(agent: Agent, server: Recorder, event: str):
    agent.keep_limits()
    server.free.clear()

    said = agent.hook(event)  # it returns though nobody answered

    assert "systemMessage" in said
    assert agent.left.waiting == 1
    assert len(server.sent) == 1


def test_an_agent_that_ends_its_hook_gets_an_answer_and_loses_nothing(agent: Agent, server: Recorder):
    agent.limit(3)  # it heeds the signal when curl has ended
    server.free.clear()

    process = agent.start("Stop")
    assert process.stdin
    process.stdin.write(b'{"number":1}')
    process.stdin.close()
    process.stdin = None
    assert server.came.acquire(timeout=ENOUGH_SECONDS)
    process.send_signal(signal.SIGTERM)
    said = agent.finish(process)
    server.free.set()
    agent.use(2)
    agent.until_drained()

    assert said == {}
    assert server.numbers() == [1, 2]


def test_an_agent_that_is_gone_does_not_stop_the_hook(agent: Agent, server: Recorder):
    process = agent.start("Stop")
    assert process.stdout
    process.stdout.close()
    process.stdout = open(os.devnull, "rb")  # noqa: PTH123, SIM115
    process.communicate(b'{"number":1}', timeout=ENOUGH_SECONDS)

    assert process.returncode == 0
    assert server.numbers() == [1]
    assert agent.left.waiting == 0


def test_observations_are_recalled_by_number(agent: Agent, server: Recorder):
    server.reply = lambda sent: Reply(body=b'{"observation":{}}') if sent.path.endswith("/12") else Reply(status=404)

    found = agent.start("recall", "12", "#12")
    out, err = found.communicate()
    missing = agent.start("recall", "13")
    no_out, why = missing.communicate()

    assert (found.returncode, out, err) == (0, b'{"observation":{}}\n' * 2, b"")
    assert [sent.method + sent.path for sent in server.sent[:2]] == ["GET/v1/observations/12"] * 2
    assert (missing.returncode, no_out) == (1, b"")
    assert why == b"cmserver: the server says 404.\n"


def test_what_is_its_persons_alone_is_recalled_by_name(agent: Agent, server: Recorder):
    server.reply = lambda _: Reply(body=b"m12 rule Answer me in German.")

    process = agent.start("recall", "m12", "#M3")
    out, err = process.communicate()

    assert (process.returncode, out, err) == (0, b"m12 rule Answer me in German.\n" * 2, b"")
    assert [sent.path for sent in server.sent] == ["/v1/personal-observations/m12", "/v1/personal-observations/m3"]


def test_a_refusal_is_told_in_the_server_s_sentence(agent: Agent, server: Recorder):
    server.reply = lambda _: Reply(
        status=404, body=b'{"error":"NotFound","message":"There is no such observation.","requestId":"1"}'
    )

    process = agent.start("recall", "13")
    out, why = process.communicate()

    assert (process.returncode, out, why) == (1, b"", b"cmserver: There is no such observation.\n")


@pytest.mark.parametrize("words", [[], ["search"], ["--help"]], ids=" ".join)
def test_what_can_be_recalled_is_said_when_nothing_was_named(agent: Agent, words: list[str]):
    process = agent.start("recall", *words)
    _, why = process.communicate()

    assert (process.returncode, why) == (1, b"cmserver: usage: recall NUMBER... or recall search WORDS...\n")


def test_what_is_known_is_searched_by_words(agent: Agent, server: Recorder):
    (agent.work / ".cmserver.toml").write_text('project = "orders"\n')

    process = agent.start("recall", "search", 'the "cart"', "back\\slash")
    _, err = process.communicate()

    assert (process.returncode, err) == (0, b"")
    assert server.sent[0].path == "/v1/search"
    assert server.sent[0].payload == {"query": 'the "cart" back\\slash', "projectId": "orders"}


def test_a_branch_is_handed_over_by_its_name(agent: Agent, server: Recorder):
    server.reply = lambda _: Reply(body=b"The page.")
    (agent.work / ".git").mkdir()
    (agent.work / ".git" / "HEAD").write_text('ref: refs/heads/a"b\n')
    (agent.work / ".cmserver.toml").write_text('project = "orders"\n')

    shown, handed = agent.start("handoff"), agent.start("handoff", "--to", 'Ben "B"', "Smith")
    said = [process.communicate() for process in (shown, handed)]

    assert said == [(b"The page.\n", b"")] * 2
    assert [sent.path for sent in server.sent] == ["/v1/handoff"] * 2
    assert sorted((sent.payload for sent in server.sent), key=len) == [
        {"projectId": "orders", "branch": 'a"b'},
        {"projectId": "orders", "branch": 'a"b', "member": 'Ben "B" Smith'},
    ]


@pytest.mark.parametrize("words", [["--to"], ["ben"], ["--help"]], ids=" ".join)
def test_how_a_branch_is_handed_over_is_said(agent: Agent, server: Recorder, words: list[str]):
    process = agent.start("handoff", *words)
    _, why = process.communicate()

    assert (process.returncode, why) == (1, b"cmserver: usage: handoff [--to NAME]\n")
    assert server.sent == []


@pytest.mark.parametrize("words", [["recall"], ["recall", "x"], ["recall", "m"], ["recall", "m1/undo"], ["recall", "../keys"]])
def test_what_cannot_be_recalled_is_said(agent: Agent, server: Recorder, words: list[str]):
    process = agent.start(*words)
    _, err = process.communicate()

    assert process.returncode == 1
    assert err.startswith(b"cmserver: ")
    assert server.sent == []
