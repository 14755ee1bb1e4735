"""Folders, names and environments that are made to hang or confuse a hook: its payload is stored first, and it ends in time.

Nothing here goes by the clock but the tests of speed, and the patience of `Agent`, which only notices what hangs.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from tests.client.hook.agent import Agent
from tests.client.hook.recorder import Recorder, Reply
from tests.client.hook.test_folders import HTTPS, MAIN, URL, build, origin, repo
from tests.timeouts import ENOUGH_SECONDS

MB = 1_000_000


def toml(text: str | bytes) -> Callable[[Path], None]:
    return written(".cmserver.toml", text)


def config(text: str | bytes) -> Callable[[Path], None]:
    return written(".git/config", text)


def written(name: str, text: str | bytes) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())

    return make


def linked(name: str, target: str) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.symlink_to(target)

    return make


def pipe(name: str) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        os.mkfifo(path)

    return make


def pipes(folder: Path) -> None:
    for name in (".cmserver.toml", ".git/HEAD", ".git/config"):
        pipe(name)(folder)


def pointing(target: str) -> Callable[[Path], None]:
    """A work tree whose repository is said to be there."""

    def make(folder: Path) -> None:
        for name in ("HEAD", "config"):
            (folder / ".git" / name).unlink()
        (folder / ".git").rmdir()
        (folder / ".git").write_text(f"gitdir: {target}\n")

    return make


def unreadable(folder: Path) -> None:
    for name in (".cmserver.toml", ".git/config"):
        (folder / name).write_text("x")
        (folder / name).chmod(0)


def pointer_to_pipes(folder: Path) -> None:
    elsewhere = folder.parent / "elsewhere"
    elsewhere.mkdir()
    for name in ("HEAD", "config", "commondir"):
        os.mkfifo(elsewhere / name)
    pointing(str(elsewhere))(folder)


STRING = 'project = "{}"\n'
FOLDERS: dict[str, Callable[[Path], None]] = {
    "controls in a name": toml(STRING.format("\x01\r" * 200)),
    "code in a name": toml("project = '$(touch evil)`touch evil`;touch evil'"),
    "a toml of the kernel": linked(".cmserver.toml", "/proc/kmsg"),
    "a toml without an end": linked(".cmserver.toml", "/dev/zero"),
    "a toml that is itself": linked(".cmserver.toml", ".cmserver.toml"),
    "a url of 20 MB": config(origin("x" * (20 * MB))),
    "a url of quotes": config(origin('"' * 60_000)),
    "urls of escapes": config('[remote "origin"]\n' + ("url = " + "\\\\\\n" * 160 + '"#;\n') * 500),
    "a url that goes on": config(origin("\\\n" * 30_000)),
    "blanks in a url": config('[remote "origin"]\n' + ("url" + " " * 900 + "x\n") * 70),
    "sections": config('[remote "origin"]' * 200_000),
    "many sections": config('[branch "a"]\n' * 100_000),
    "a config of noise": config(Random(1).randbytes(200_000)),
    "a config of the kernel": linked(".git/config", "/proc/kmsg"),
    "a head without an end": written(".git/HEAD", "ref: refs/heads/" + "a" * (20 * MB)),
    "a head of blanks": written(".git/HEAD", "ref: refs/heads/" + " " * 900),
    "pipes": pipes,
    "work tree of zeros": pointing("/dev/zero"),
    "work tree of pipes": pointer_to_pipes,
    "work tree of itself": pointing(".git"),
    "work tree without an end": pointing("/a" * (10 * MB)),
    "work tree of a code": pointing("$(touch evil)\n\"'"),
    "work tree above": pointing("/.."),
}
NOT_UNDERSTOOD: dict[str, Callable[[Path], None]] = {
    "a name of 20 MB": toml(STRING.format("a" * (20 * MB))),
    **{f"a name of {size} bytes": toml(STRING.format("a" * size)) for size in (1_000, 4_000, 64_000)},
    "a name of quotes": toml(STRING.format('\\"' * 30_000)),
    "a name of backslashes": toml(STRING.format("\\" * 60_000)),
    "names without an end": toml(('project = "' + "\\\\a" * 160 + "\n") * 1000),
    "blanks before a name": toml("project" + " " * 60_000 + '= "a"'),
    "blanks everywhere": toml((" " * 900 + "project" + " " * 60 + "=\n") * 70),
    "short blanks everywhere": toml((" " * 30 + "project" + " " * 30 + "=" + " " * 30 + "'a" + " " * 30 + "\n") * 700),
    "a million lines": toml("project =\n" * 1_000_000),
    "a million empty lines": toml("\n" * 1_000_000),
    "noise": toml(Random(1).randbytes(200_000)),
    "not UTF-8": toml(b'project = "\xff\xfe"\xff'),
    "a pattern for a name": toml("* \n?\n[a-\nproject='*'"),
    "lines that look like ours": toml("==> .git/config <==\n==> ../../.cmserver.toml <==\n==> x <==\n" * 5000),
    "unreadable": unreadable,
}
ALWAYS_STORED = {"X-Cmserver-Delivery", "X-Cmserver-Sent-At", "X-Cmserver-Hook"}


@pytest.mark.parametrize("make", FOLDERS.values(), ids=list(FOLDERS))
def test_no_folder_holds_a_hook_or_loses_its_payload(agent: Agent, server: Recorder, make: Callable[[Path], None]):
    agent.keep_limits()
    build(agent.home, repo())
    place = agent.home / "repo"
    make(place)

    said = agent.hook("PostToolUse", {"number": 1}, cwd=place)
    agent.until_drained()

    assert said in ({"answer": True}, {})
    assert server.numbers() == [1]
    assert server.sent[0].headers["x-cmserver-root"]
    assert not list(agent.home.rglob("evil"))
    agent.until("nobody works there", lambda: not any(_is_link_to(process, place) for process in Path("/proc").glob("[0-9]*/cwd")))


@pytest.mark.parametrize("make", NOT_UNDERSTOOD.values(), ids=list(NOT_UNDERSTOOD))
def test_a_toml_that_nobody_understands_holds_no_hook_and_lets_nothing_through(
    agent: Agent, server: Recorder, make: Callable[[Path], None]
):
    agent.keep_limits()
    build(agent.home, repo())
    place = agent.home / "repo"
    make(place)

    agent.hook("PostToolUse", {"number": 1}, cwd=place)
    agent.until_drained()

    assert server.sent == []
    assert not list(agent.home.rglob("evil"))
    agent.until("nobody works there", lambda: not any(_is_link_to(process, place) for process in Path("/proc").glob("[0-9]*/cwd")))


def test_a_toml_of_zeros_holds_no_hook(agent: Agent, server: Recorder, shell: Path):
    """zsh alone sees them, and does not understand them."""
    agent.keep_limits()
    build(agent.home, repo())
    toml(b"\0" * 100_000)(agent.home / "repo")

    agent.hook("PostToolUse", {"number": 1}, cwd=agent.home / "repo")
    agent.until_drained()

    assert server.numbers() == ([] if shell.name == "zsh" else [1])


def _is_link_to(link: Path, folder: Path) -> bool:
    with suppress(OSError):
        return link.readlink() == folder
    return False


@pytest.mark.parametrize(
    "name", ['a"b', "a'b", "a\\b", "$(touch evil)", "; touch evil", "`touch evil`", "-n", "*", "a\nb", " a ", "\x7f", "ü" * 60]
)
def test_the_name_of_a_folder_is_only_a_name(agent: Agent, server: Recorder, name: str):
    build(agent.home, repo(name))

    agent.hook("Stop", cwd=agent.home / name)

    assert server.sent[0].headers["x-cmserver-git-remote"] == URL
    assert not list(agent.home.rglob("evil"))


PLACES = [
    "foo",
    ".",
    "..",
    "/",
    "//",
    "///",
    "/..",
    "//a//b//",
    "foo\nbar",
    "/foo\nbar",
    "-",
    "~",
    "",
    " ",
    "/a" * 30_000,
    "/" * 4096,
    "a" * 100_000,
    "\x01\x7f",
]


@pytest.mark.parametrize("name", ["claude-code", "gemini"])
def test_no_environment_holds_a_hook(tmp_path: Path, shell: Path, server: Recorder, name: str):
    agent = Agent(tmp_path, shell, server.url, name)
    variable = "CLAUDE_PROJECT_DIR" if name == "claude-code" else "GEMINI_PROJECT_DIR"

    for number, place in enumerate(PLACES):
        assert agent.hook("Stop", {"number": number}, env={variable: place}) == {"answer": True}, place[:20]

    assert server.numbers() == list(range(len(PLACES)))
    relative = [
        sent.headers["x-cmserver-root"] for sent, place in zip(server.sent, PLACES, strict=True) if not place.startswith("/")
    ]
    assert set(relative) == {str(agent.work)}


def test_a_big_environment_without_a_home_is_survived(agent: Agent, server: Recorder):
    env = {"HOME": "", **{f"X{number}": "y" * 100_000 for number in range(10)}, "CLAUDE_CODE_SESSION_ID": "z" * 100_000}

    assert agent.hook("Stop", {"number": 1}, env=env) == {"answer": True}
    server.stop()
    agent.hook("Stop", {"number": 2}, env=env)

    assert agent.left.waiting == 1


def test_a_very_deep_folder_is_survived(agent: Agent, server: Recorder):
    place = agent.home / "/".join(["d" * 3] * 800)
    place.mkdir(parents=True)

    assert agent.hook("Stop", {"number": 1}, cwd=place) == {"answer": True}
    assert server.sent[0].headers["x-cmserver-root"] == str(place)


def test_a_folder_deeper_than_a_path_can_be_is_survived(agent: Agent, server: Recorder):
    """Two of them have two names, as short as a header can be."""
    deeper = "os.makedirs('d' * 200, exist_ok=True); os.chdir('d' * 200)"
    script = f"import os, sys\nfor _ in range(25): {deeper}\nos.makedirs(sys.argv[1], exist_ok=True); os.chdir(sys.argv[1])\n"
    for last in "ab":
        done = subprocess.run(
            [
                sys.executable,
                "-c",
                f"{script}os.execv(sys.argv[2], sys.argv[2:])",
                last,
                agent.bin / "sh",
                agent.folder / "hook",
                "Stop",
            ],
            cwd=agent.work,
            input=b'{"number":1}',
            capture_output=True,
            env={"PATH": agent.path, "HOME": str(agent.home)},
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, b"")
    agent.until_drained()

    roots = [sent.headers.get("x-cmserver-root", "") for sent in server.sent]
    assert len(roots) == 2
    assert all(len(root) < 500 for root in roots)


def test_a_long_config_is_read(agent: Agent, server: Recorder):
    build(agent.home, repo())
    excluded = "'\\''" * 4_000 + f"x\n{agent.home}/repo"
    agent.configure(URL=server.url, EXCLUDE=excluded)

    agent.hook("Stop", {"number": 1}, cwd=agent.home / "repo")
    agent.use(2)

    assert server.numbers() == [2]


@pytest.mark.parametrize("rest", ["TOOLS='" + "t" * 100_000 + "'\n", "X='" + "y\n" * 500_000, "\n" * 500_000], ids=len)
def test_a_config_without_an_end_holds_nobody_and_sends_nothing(agent: Agent, server: Recorder, rest: str):
    """What it excludes is not known."""
    agent.configure(URL=server.url)
    with (agent.folder / "config").open("a") as file:
        file.write(rest)

    assert agent.use(1) == [{}]
    assert server.sent == []


def test_a_long_state_is_survived_and_goes(agent: Agent, server: Recorder):
    state = agent.folder / "state"
    state.mkdir()
    for name in ("place", "breaker", "stuck", "bytes", "waiting"):
        (state / name).write_text("9" * 100_000)

    agent.use(1)
    agent.until_drained()

    assert server.numbers() == [1]
    assert [file.name for file in state.iterdir() if file.stat().st_size > 65_536] == []


def hung(agent: Agent, place: Path) -> None:
    """From now on this folder cannot be read in any time, until it has another .cmserver.toml, or none."""
    with (place / ".cmserver.toml").open("wb") as file:
        file.truncate(100_000 * MB)
    (agent.bin / "find").write_text("#!/bin/sh\nexit 0\n")  # which tells that it is long
    (agent.bin / "find").chmod(0o755)


def killed_while_looking(agent: Agent, place: Path) -> None:
    agent.keep_limits()  # what has begun to look ends after its time
    process = agent.start("PostToolUse", cwd=place)
    assert process.stdin
    process.stdin.write(b'{"number":1}')
    process.stdin.close()
    process.stdin = None
    agent_is_there = time.monotonic() + ENOUGH_SECONDS
    while not list((agent.folder / "spool").glob("*.mark")) or not any(
        _is_link_to(one, place) for one in Path("/proc").glob("[0-9]*/cwd")
    ):
        assert time.monotonic() < agent_is_there
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait(ENOUGH_SECONDS)


def test_a_hook_that_is_killed_while_it_looks_at_a_folder_has_stored_its_payload(agent: Agent, server: Recorder):
    build(agent.home, repo())
    place = agent.home / "repo"
    hung(agent, place)

    killed_while_looking(agent, place)
    (body,) = (agent.folder / "spool").glob("*.body")
    stored = body.read_bytes()
    (place / ".cmserver.toml").unlink()
    agent.hook("PostToolUse", {"number": 2}, cwd=place)
    agent.until_drained()

    assert stored == b'{"number":1}'
    assert server.numbers() == [1, 2]
    assert [sent.headers["x-cmserver-git-remote"] for sent in server.sent] == [URL, URL]
    assert {name.title() for name in server.sent[0].headers} >= ALWAYS_STORED


@pytest.mark.slow
def test_a_folder_that_is_not_read_in_time_waits_until_it_is(agent: Agent, server: Recorder):
    agent.keep_limits()
    build(agent.home, repo())
    place = agent.home / "repo"
    hung(agent, place)
    server.stop()

    said = agent.hook("SessionStart", {"number": 1}, cwd=place)
    head = list((agent.folder / "spool").glob("*.head"))
    build(agent.home, {"repo/.git/config": origin(HTTPS)})
    server.start()
    (place / ".cmserver.toml").unlink()
    agent.hook("PostToolUse", {"number": 2}, cwd=place)
    agent.until_drained()

    assert "takes too long" in str(said["systemMessage"])
    assert head == []
    assert sorted(map(str, server.numbers())) == ["1", "2"]
    assert {sent.headers["x-cmserver-git-remote"] for sent in server.sent} == {HTTPS}


@pytest.mark.slow  # who drains waits for five seconds
def test_a_folder_that_is_never_read_is_called_by_its_path(agent: Agent, server: Recorder):
    agent.keep_limits()
    build(agent.home, repo())
    hung(agent, agent.home / "repo")

    assert agent.hook("PostToolUse", {"number": 1}, cwd=agent.home / "repo") == {}
    agent.until_drained()

    assert server.sent[0].headers["x-cmserver-root"] == str(agent.home / "repo")
    assert "x-cmserver-git-remote" not in server.sent[0].headers


def test_what_was_stored_in_an_excluded_folder_is_never_sent(agent: Agent, server: Recorder):
    """Also when its hook was killed before it knew that."""
    place = agent.home / "repo"
    build(agent.home, repo())
    hung(agent, place)

    killed_while_looking(agent, place)
    toml("enabled = false\n")(place)
    agent.use(2)
    agent.until_drained()

    assert server.numbers() == [2]
    assert list((agent.folder / "spool").iterdir()) == []


NOTES = "notes = '''\n{}\n'''\n"
FORGED: dict[str, Callable[[Path], None]] = {
    "a heading in a toml": toml(NOTES.format("==> x.cmserver.toml <==")),
    "a heading with a path": toml(NOTES.format("==> /etc/.cmserver.toml <==")),
    "a heading far above": toml(NOTES.format("==> " + "../" * 300 + ".cmserver.toml <==")),
    "a heading in a config": config("[core]\n==> x.cmserver.toml <==\n" + origin(URL)),
    "a config in a toml": toml(NOTES.format("==> .git/config <==\n" + origin(HTTPS))),
    "a config of our own kind": config(f"kind=hg\nroot=/evil\nremote={HTTPS}\nend=\n" + origin(URL)),
    "a toml of our own kind": toml(NOTES.format(f"\nroot=/evil\nremote={HTTPS}\nenabled=no\nend=")),
    "a head of our own kind": written(".git/HEAD", "end=\nroot=/evil\n"),
}


@pytest.mark.parametrize("make", FORGED.values(), ids=list(FORGED))
def test_no_line_of_a_file_is_taken_for_another_file(agent: Agent, server: Recorder, make: Callable[[Path], None]):
    build(agent.home, repo())
    place = agent.home / "repo"
    make(place)

    assert agent.hook("PostToolUse", {"number": 1}, cwd=place) == {"answer": True}

    assert server.sent[0].headers["x-cmserver-git-remote"] == URL
    assert server.sent[0].headers["x-cmserver-root"] == str(place)


def test_no_line_of_a_value_is_taken_for_another_value(agent: Agent, server: Recorder):
    name = f"a\nremote={HTTPS}\nend="
    build(agent.home, repo(name))
    config(f'[remote "origin"]\n\turl = "{URL}\\nroot=/evil\\nend=\\nnamed=evil"\n')(agent.home / name)

    assert agent.hook("PostToolUse", {"number": 1}, cwd=agent.home / name) == {"answer": True}

    headers = server.sent[0].headers
    assert headers["x-cmserver-git-remote"] == f"{URL}?root=/evil?end=?named=evil"
    assert headers["x-cmserver-root"] == str(agent.home / name).replace("\n", "?")
    assert "x-cmserver-project" not in headers


def many_levels(folder: Path) -> Path:
    for _ in range(190):
        folder /= "d"
        folder.mkdir()
        toml("a\n" * 32_768)(folder)
    return folder


def a_value_of_many_lines(folder: Path) -> Path:
    config('[remote "origin"]\n\turl =' + '\\n"\\t\\n"\\t\\n"\\t\\\n' * 3_900)(folder)
    return folder


@pytest.mark.speed
@pytest.mark.parametrize("make", [many_levels, a_value_of_many_lines])
def test_what_is_read_of_a_folder_is_worked_on_within_its_time(agent: Agent, make: Callable[[Path], Path]):
    """Processor time, of which there is no more than of the other."""
    build(agent.home, repo())

    assert _seconds(agent, make(agent.home / "repo")) < 2


def test_a_git_that_hangs_leaves_nothing_behind(agent: Agent, server: Recorder):
    agent.keep_limits()
    build(agent.home, repo())
    (agent.bin / "git").write_text("#!/bin/sh\nexec sleep 601\n")
    (agent.bin / "git").chmod(0o755)

    agent.hook("SessionStart", cwd=agent.home / "repo")
    agent.until_idle()

    assert len(server.sent) == 1


def test_a_long_answer_or_type_holds_nobody(agent: Agent, server: Recorder):
    for reply in (
        Reply(body=b"{" + b"\n" * 500_000 + b"}"),
        Reply(content_type="application/json" + "x" * 60_000, body=b'{"a":"' + b"x" * 900_000 + b'"}'),
    ):
        server.reply = lambda _, reply=reply: reply
        agent.hook("SessionStart", {"number": 1})


def test_words_to_search_for_may_be_many(agent: Agent, server: Recorder):
    words = 'a"\\\t' * 20_000

    process = agent.start("recall", "search", words)
    _, err = process.communicate(timeout=ENOUGH_SECONDS)

    assert (process.returncode, err) == (0, b"")
    assert server.sent[0].payload["query"] == words.replace("\t", " ")


@pytest.mark.speed
def test_work_grows_no_faster_than_what_is_read(agent: Agent):
    """What a file costs has an end: four megabytes of the worst are no more than 64 kB of them."""
    place = agent.home / "repo"
    build(agent.home, {"repo/.git/HEAD": MAIN})
    worst = 'project = "' + '\\"' * 240 + "\n"
    spent: list[float] = []
    for size in (65_536, 4 * MB):
        (place / ".cmserver.toml").write_text(worst * (size // len(worst)))
        spent.append(min(_seconds(agent, place) for _ in range(3)))

    assert spent[1] < 3 * spent[0]


def _seconds(agent: Agent, place: Path) -> float:
    """Of processor time."""
    process = subprocess.Popen(
        [agent.bin / "sh", agent.folder / "hook", "project"],
        cwd=place,
        stdout=subprocess.DEVNULL,
        env={"PATH": agent.path, "HOME": str(agent.home)},
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return usage.ru_utime + usage.ru_stime
