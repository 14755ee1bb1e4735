"""What cannot be sent waits in the spool, in order and within bounds, and comes with a later call."""

from __future__ import annotations

import os
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cmserver.client import connections
from tests.client.hook.agent import Agent
from tests.client.hook.recorder import Recorder, Reply, Sent
from tests.faults.plan import can_mount
from tests.timeouts import ENOUGH_SECONDS


def test_what_waited_comes_in_order_with_its_own_time_and_headers(agent: Agent, server: Recorder):
    server.stop()
    (agent.work / ".cmserver.toml").write_text("project = 'then'")
    agent.use(1, 2)
    (agent.work / ".cmserver.toml").write_text("project = 'later'")
    agent.use(3)
    agent.until_idle()
    heads = [file.read_text() for file in sorted((agent.folder / "spool").glob("*.head"))]

    _back(agent, server)
    (said,) = agent.use(4)
    agent.until_drained()

    assert said == {}
    assert server.numbers() == [1, 2, 3, 4]
    assert [sent.headers["x-cmserver-project"] for sent in server.sent] == ["then", "then", "later", "later"]
    assert {sent.headers["x-cmserver-late"] for sent in server.sent} == {"1"}
    for head, sent in zip(heads, server.sent, strict=False):
        assert f"X-Cmserver-Sent-At: {sent.headers['x-cmserver-sent-at']}\n" in head
        assert f"X-Cmserver-Delivery: {sent.headers['x-cmserver-delivery']}\n" in head
    assert list((agent.folder / "spool").iterdir()) == []


def test_a_session_s_start_goes_at_once_and_sends_what_waits_behind_it(agent: Agent, server: Recorder):
    server.stop()
    agent.use(1, 2)
    _back(agent, server)

    said = agent.hook("SessionStart", {"number": 3})
    agent.until_drained()

    assert said == {"answer": True}
    assert server.numbers() == [3, 1, 2]
    assert "x-cmserver-late" not in server.sent[0].headers
    assert agent.left.trouble is None


def test_more_than_one_group_of_payloads_comes_in_order(agent: Agent, server: Recorder):
    server.stop()
    agent.use(0)
    agent.until_idle()
    _copies(agent, 250)
    _back(agent, server)

    agent.use(250)
    agent.until_drained()

    assert server.numbers() == list(range(251))
    assert len(server.sent) == 251


def _back(agent: Agent, server: Recorder) -> None:
    """The server is there again, and the next call will find that out."""
    agent.until_idle()
    agent.end_pause()
    server.start()


def _copies(agent: Agent, count: int) -> None:
    """As if so many calls had come since the one that waits."""
    folder = agent.folder / "spool"
    (body,) = folder.glob("*.body")
    now, pid, _ = body.stem.split("-")
    stamp = int(now) - 10_000_000
    head = body.with_suffix(".head").read_text()
    for file in list(folder.iterdir()):
        file.rename(file.with_name(file.name.replace(now, str(stamp))))
    for number in range(1, count):
        name = f"{stamp + number}-{pid}-{number:08x}"
        (folder / f"{name}.body").write_text(f'{{"number":{number}}}')
        (folder / f"{name}.head").write_text(
            "".join(
                f"X-Cmserver-Delivery: copy-{number}\n" if line.startswith("X-Cmserver-Delivery") else line
                for line in head.splitlines(keepends=True)
            )
        )
        (folder / f"{name}.mark").write_text("waits\n")


def test_a_server_that_fails_in_the_middle_gets_the_rest_later_in_order(agent: Agent, server: Recorder):
    server.stop()
    agent.use(0)
    agent.until_idle()
    _copies(agent, 20)
    server.reply = lambda sent: Reply(status=200 if sent.payload["number"] != 7 or len(server.sent) > 8 else 503)
    _back(agent, server)

    agent.use(20)
    agent.until_idle()
    tried = len(server.sent)
    agent.use(21)
    agent.until_drained()

    assert tried == 8
    assert server.numbers() == list(range(22))


def test_one_that_is_refused_does_not_hold_the_others(agent: Agent, server: Recorder):
    server.stop()
    agent.use(1, 2, 3)
    agent.until_idle()
    server.reply = lambda sent: Reply(status=400 if sent.payload["number"] == 2 else 200)
    _back(agent, server)

    agent.use(4)
    agent.until_drained()

    assert server.numbers() == [1, 2, 3, 4]
    assert agent.left.refused == 1


def test_one_that_the_server_fails_at_again_and_again_does_not_hold_the_others_for_ever(agent: Agent, server: Recorder):
    server.reply = lambda sent: Reply(status=500 if sent.payload["number"] == 1 else 200)
    agent.use(1)
    for number in range(2, 12):
        agent.use(number)
        agent.until_idle()
        agent.end_pause()
    agent.until_drained()

    assert server.numbers() == list(range(1, 12))
    assert (agent.left.refused, agent.left.dropped) == (1, 0)


def test_a_hook_that_was_killed_before_anything_came_leaves_nothing_to_send(agent: Agent, server: Recorder):
    agent.use(1)
    name = "1600000000000000-0099999-abcdef01"
    for kind in ("head", "body"):
        (agent.folder / "spool" / f"{name}.{kind}").touch()

    agent.use(2)
    agent.until_idle()

    assert server.numbers() == [1, 2]
    assert (agent.left.waiting, agent.left.refused, agent.left.dropped) == (0, 0, 0)


def test_what_cannot_be_removed_is_not_sent_for_ever(agent: Agent, server: Recorder):
    server.stop()
    agent.use(1, 2)
    (agent.bin / "rm").write_text("#!/bin/sh\nexit 1\n")
    (agent.bin / "rm").chmod(0o755)
    server.start()
    agent.end_pause()

    agent.use(3)
    agent.until_idle()

    numbers = [sent.payload["number"] for sent in server.sent]
    assert numbers[:2] == [1, 2]
    assert len(numbers) == len(set(numbers))


def test_after_three_failures_nothing_is_asked_until_one_call_tries_again(agent: Agent, server: Recorder):
    server.reply = lambda _: Reply(status=503)
    for number in (1, 2, 3):
        agent.use(number)
        agent.until_idle()
    assert len(server.sent) == 3
    agent.hold_pause()
    assert agent.left.breaker_open_until

    agent.use(4, 5)
    agent.until_idle()
    paused = len(server.sent)
    agent.end_pause()
    agent.use(6)
    agent.until_idle()
    tried = len(server.sent)
    pause = (agent.folder / "state" / "breaker").read_text().split()[2]
    agent.hold_pause()
    agent.use(7)
    agent.until_idle()
    again = len(server.sent)
    agent.end_pause()
    server.reply = lambda _: Reply()
    agent.use(8)
    agent.until_drained()

    assert (paused, tried, again, pause) == (3, 4, 4, "10")
    assert agent.left.breaker_open_until is None
    assert server.numbers() == [1, 2, 3, 4, 5, 6, 7, 8]
    assert agent.use(9) == [{"answer": True}]


def test_a_server_that_is_back_is_found_within_a_minute_however_long_it_was_away(agent: Agent, server: Recorder):
    server.stop()
    pauses: list[str] = []
    for number in range(1, 10):
        agent.use(number)
        agent.until_idle()
        if (file := agent.folder / "state" / "breaker").exists():
            pauses.append(file.read_text().split()[2])
        agent.end_pause()

    assert list(dict.fromkeys(pauses)) == ["0", "5", "10", "20", "40", "60"]


def test_a_session_s_start_tries_in_spite_of_the_pause(agent: Agent, server: Recorder):
    server.stop()
    for number in (1, 2, 3):
        agent.use(number)
        agent.until_idle()
    agent.hold_pause()
    assert agent.left.breaker_open_until
    _back(agent, server)

    assert agent.hook("SessionStart", {"number": 4}) == {"answer": True}
    agent.until_drained()
    assert server.numbers() == [4, 1, 2, 3]


def test_the_oldest_go_when_the_spool_is_full(agent: Agent, server: Recorder):
    agent.configure(URL=server.url, SPOOL_MAX_BYTES="10000")
    server.stop()
    for number in range(20):
        agent.hook("PostToolUse", {"number": number, "text": "x" * 980})
        agent.until_idle()

    left = agent.left
    _back(agent, server)
    agent.use(20)
    agent.until_drained()

    assert left.waiting_bytes <= 10000
    assert left.waiting >= 8
    assert left.dropped == 20 - left.waiting
    assert server.numbers() == list(range(left.dropped, 21))


def test_a_payload_larger_than_the_spool_takes_no_other_with_it_and_its_user_is_told(agent: Agent, server: Recorder):
    agent.configure(URL=server.url, SPOOL_MAX_BYTES="10000")
    server.stop()
    agent.use(1)
    agent.until_idle()

    answers = [agent.hook("PostToolUse", {"session_id": "s9", "number": 2, "text": "x" * 20_000}) for _ in range(2)]
    agent.until_idle()

    assert "too large" in str(answers[0]["systemMessage"])
    assert (answers[1], agent.left.waiting, agent.left.dropped) == ({}, 1, 2)


def test_the_next_start_of_a_session_tells_once_of_what_was_refused_late(agent: Agent, server: Recorder):
    server.stop()
    agent.use(1)
    agent.until_idle()
    _back(agent, server)
    server.reply = lambda sent: Reply(status=400 if sent.payload.get("number") == 1 else 200)
    agent.use(2)
    agent.until_drained()

    answers = [agent.hook("SessionStart", {"session_id": name}) for name in ("s8", "s9")]

    assert "refused events" in str(answers[0]["systemMessage"])
    assert "systemMessage" not in answers[1]


def test_what_is_too_old_goes(agent: Agent, server: Recorder):
    server.stop()
    agent.use(1)
    agent.until_idle()
    for file in list((agent.folder / "spool").iterdir()):
        stamp, _, rest = file.name.partition("-")
        file.rename(file.with_name(f"{int(stamp) - 8 * 86400 * 1_000_000}-{rest}"))
    _back(agent, server)

    agent.use(2)
    agent.until_drained()

    assert server.numbers() == [2]
    assert agent.left.dropped == 1


def test_a_hook_that_is_killed_leaves_its_payload_to_the_next(agent: Agent, server: Recorder):
    server.free.clear()
    process = _in_flight(agent, server, b'{"number":1}')

    process.kill()
    process.wait()
    server.free.set()
    agent.use(2)
    agent.until_drained()

    assert server.numbers() == [1, 2]


def _in_flight(agent: Agent, server: Recorder, payload: bytes) -> subprocess.Popen[bytes]:
    process = agent.start("Stop")
    assert process.stdin
    process.stdin.write(payload)
    process.stdin.close()
    process.stdin = None
    assert server.came.acquire(timeout=ENOUGH_SECONDS)
    return process


def test_what_another_hook_is_sending_is_left_to_it(agent: Agent, server: Recorder):
    server.free.clear()
    process = _in_flight(agent, server, b'{"number":1}')
    answer = agent.start("Stop")
    assert answer.stdin
    answer.stdin.write(b'{"number":2}')
    answer.stdin.close()
    answer.stdin = None
    assert server.came.acquire(timeout=ENOUGH_SECONDS)
    waiting = agent.left.waiting
    server.free.set()

    assert agent.finish(process) == agent.finish(answer) == {"answer": True}
    assert waiting == 0
    assert len(server.sent) == 2


def test_a_drain_that_was_killed_is_followed_by_another(agent: Agent, server: Recorder):
    server.stop()
    agent.use(1)
    agent.until_idle()
    ended = subprocess.Popen(["true"])
    ended.wait()
    (agent.folder / "state" / "lock").write_text(f"{ended.pid} 99999999999\n")
    _back(agent, server)

    agent.use(2)
    agent.until_drained()

    assert server.numbers() == [1, 2]


def test_many_hooks_at_once_lose_nothing_and_send_nothing_twice(agent: Agent, server: Recorder):
    def shaky(sent: Sent) -> Reply:
        return Reply(status=503 if len(server.sent) % 3 == 0 else 200)

    server.reply = shaky
    with ThreadPoolExecutor(20) as pool:
        said = [one.result() for one in [pool.submit(agent.use, number) for number in range(20)]]
    server.reply = lambda _: Reply()
    agent.until_idle()
    if (agent.folder / "state" / "breaker").exists():
        agent.end_pause()
    agent.use(20)
    agent.until_drained()

    assert all(one == {"answer": True} or one == {} or "systemMessage" in one for (one,) in said)
    assert sorted(map(str, server.numbers())) == sorted(map(str, range(21)))
    assert list((agent.folder / "spool").iterdir()) == []


def test_a_folder_that_cannot_be_written_still_sends(agent: Agent, server: Recorder):
    (agent.folder / "spool").write_text("no folder")

    started = agent.hook("SessionStart", {"number": 1})
    server.stop()
    down = agent.hook("SessionStart", {"number": 2})

    assert started == {"answer": True}
    assert server.numbers() == [1]
    assert "cannot be written" in str(down["systemMessage"])


def test_state_that_cannot_be_written_holds_nobody(agent: Agent, server: Recorder):
    (agent.folder / "state").write_text("no folder")

    assert agent.use(1) == [{"answer": True}]
    server.stop()
    assert agent.use(2) == [{}]
    agent.until_idle()
    assert agent.left.waiting == 1


@pytest.mark.parametrize("rubbish", ["", "garbage", "08 09 0x1 $(id)", "9" * 40, "-1 -1 -1 -1", "\0\xff\n\n"])
def test_rubbish_in_its_own_files_is_survived(agent: Agent, server: Recorder, rubbish: str):
    server.stop()
    agent.use(1)
    agent.until_idle()
    for name in ("breaker", "bytes", "dropped", "refused", "stuck", "lock"):
        (agent.folder / "state" / name).write_text(rubbish)
    for name in ("x.body", "08-1-a.body", "....body", "0000000000000000-1-zz.body"):
        (agent.folder / "spool" / name).write_text(rubbish)
    (agent.folder / "spool" / "a folder.body").mkdir()
    _back(agent, server)

    agent.use(2)
    agent.until_drained()

    assert server.numbers() == [1, 2]
    assert agent.use(3) == [{"answer": True}]


def test_without_curl_python_sends(agent: Agent, server: Recorder):
    agent.tools("cat", "date", "rm", "mkdir", "wc", "head", "python3", "find", "sleep", "cksum")

    assert agent.use(1) == [{"answer": True}]
    server.stop()
    (down,) = agent.use(2)
    agent.use(3)
    _back(agent, server)
    agent.hook("SessionStart", {"number": 4})
    agent.until_drained()

    assert "no answer" in str(down["systemMessage"])
    assert server.numbers() == [1, 4, 2, 3]
    assert [sent.headers.get("x-cmserver-late") for sent in server.sent] == [None, None, "1", "1"]
    assert {sent.headers["authorization"] for sent in server.sent} == {"Bearer cms_abc_verysecret"}


def test_with_neither_curl_nor_python_it_waits(agent: Agent, server: Recorder):
    agent.tools("cat", "date", "rm", "mkdir", "wc", "head")

    (said,) = agent.use(1)

    assert "curl" in str(said["systemMessage"])
    assert (agent.left.waiting, agent.left.trouble) == (1, "tools")


def test_what_is_not_there_is_an_empty_spool(tmp_path: Path):
    left = connections.read_spool(tmp_path / "nowhere")

    assert (left.waiting, left.waiting_bytes, left.oldest_epoch, left.dropped, left.refused) == (0, 0, None, 0, 0)
    assert (left.breaker_open_until, left.trouble) == (None, None)


def test_what_waits_is_counted(agent: Agent, server: Recorder):
    server.stop()

    agent.hook("Stop", b"12345")
    agent.until_idle()

    left = agent.left
    assert (left.waiting, left.waiting_bytes, left.trouble) == (1, 5, "down")
    assert left.oldest_epoch
    assert str(left.oldest_epoch) in (next((agent.folder / "spool").glob("*.head"))).read_text()


def test_the_drain_outlives_the_agent(agent: Agent, server: Recorder):
    """It is in no process group of the agent, and holds none of its pipes."""
    server.stop()
    agent.use(1)
    agent.until_idle()
    server.free.clear()
    _back(agent, server)

    agent.use(2)  # returns, though the drain cannot go on
    assert server.came.acquire(timeout=ENOUGH_SECONDS)
    drain = int((agent.folder / "state" / "lock").read_text().split()[0])
    sessions = {int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[3]) for pid in (drain,)}
    server.free.set()
    agent.until_drained()

    assert sessions == {drain}
    assert server.numbers() == [1, 2]


def test_a_late_payload_of_an_excluded_folder_stops_no_drain(agent: Agent, server: Recorder):
    """Not even behind one that is too old."""
    agent.configure(URL=server.url, EXCLUDE=f"{agent.home}/secret")
    (agent.home / "secret").mkdir()
    spool = agent.folder / "spool"
    spool.mkdir()
    (agent.folder / "state").mkdir()
    now = int(time.time())
    for seconds, files in ((8 * 86_400, "head"), (3_600, "from"), (3_500, "head")):
        name = f"{now - seconds}000000-0000001-{seconds:08x}"
        (spool / f"{name}.body").write_text(f'{{"number":{seconds}}}')
        place = f"\n{agent.home}/secret/." if files == "from" else ""
        (spool / f"{name}.{files}").write_text(f"X-Cmserver-Delivery: {seconds}\n{place}")
        (spool / f"{name}.mark").write_text("waits\n")

    agent.use(1)
    agent.until_drained()

    assert server.numbers() == [3_500, 1]
    assert (agent.folder / "state" / "dropped").read_text() == "1\n"
    assert list(spool.iterdir()) == []


def test_without_stdin_nothing_is_lost_and_nothing_told(agent: Agent, server: Recorder):
    command = [agent.bin / "sh", "-c", 'exec sh "$0" PostToolUse <&-', agent.folder / "hook"]
    env = {"PATH": agent.path, "HOME": str(agent.home)}

    done = subprocess.run(command, capture_output=True, check=False, cwd=agent.work, env=env)

    assert (done.returncode, done.stdout, done.stderr) == (0, b"{}\n", b"")
    assert (agent.left.waiting, agent.left.dropped) == (0, 0)


def test_of_a_hook_that_was_killed_before_it_read_nothing_is_sent(agent: Agent, server: Recorder):
    spool = agent.folder / "spool"
    spool.mkdir()
    (agent.folder / "state").mkdir()
    name = f"{int(time.time()) - 60}000000-0000001-0000000a"
    (spool / f"{name}.from").write_text("X-Cmserver-Delivery: 1\n/.")
    (spool / f"{name}.body").write_text(".")

    agent.use(1)
    agent.until_drained()

    assert server.numbers() == [1]
    assert (agent.left.waiting, agent.left.refused) == (0, 0)


@pytest.mark.skipif(not can_mount(), reason="only root makes small disks")
@pytest.mark.parametrize("blocks", range(4))
def test_on_a_disk_with_room_for_little_a_payload_is_sent(agent: Agent, server: Recorder, blocks: int):
    spool = agent.folder / "spool"
    spool.mkdir()
    (agent.folder / "state").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", spool], check=True)
    try:
        (spool / "filler").write_bytes(b"0" * (os.statvfs(spool).f_bavail - blocks) * os.statvfs(spool).f_frsize)

        said = agent.use(1)
        (spool / "filler").unlink()
        said += agent.use(2)
        agent.until_drained()
    finally:
        subprocess.run(["umount", spool], check=True)

    assert not any("systemMessage" in one for one in said)
    assert {*server.numbers()} == {1, 2}
    assert len(server.sent) == 2


@pytest.mark.parametrize("room", [0, 5])
def test_a_payload_that_there_is_no_room_for_is_told_each_time_and_leaves_nothing(agent: Agent, server: Recorder, room: int):
    (agent.bin / "cat").write_text(f"#!/bin/sh\nhead -c {room}\nexit 1\n")
    (agent.bin / "cat").chmod(0o755)

    said = agent.use(1, 2)

    assert ["lost" in str(one.get("systemMessage")) for one in said] == [True, True]
    assert server.sent == []
    assert list((agent.folder / "spool").iterdir()) == []
    assert (agent.folder / "state" / "dropped").read_text() == "2\n"
