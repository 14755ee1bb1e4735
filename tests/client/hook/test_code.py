"""Where an event stood, and what commits did to a clone's files: told by the hook client, which runs nothing of the repository."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from base64 import b64decode
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from cmserver.client.agents import AGENTS
from tests.client.hook.agent import Agent
from tests.client.hook.recorder import Recorder, Reply, Sent
from tests.repositories import Repository

CODE = "/v1/code"


@pytest.fixture
def repository(agent: Agent) -> Repository:
    made = Repository(agent.home / "clone")
    made.write("src/pay.py", "a = 1\n")
    made.commit("First")
    return made


@pytest.fixture
def start(agent: Agent, server: Recorder) -> Callable[[Path], list[Sent]]:
    """A session starts there; what the server was sent, in its order."""

    def run(folder: Path) -> list[Sent]:
        before = len(server.sent)
        agent.hook("SessionStart", cwd=folder)
        return server.sent[before:]

    return run


def said_commit(agent: Agent, server: Recorder, folder: Path) -> str | None:
    agent.hook("PostToolUse", cwd=folder)
    return server.sent[-1].headers.get("x-cmserver-git-commit")


def test_each_call_says_which_commit_is_checked_out(agent: Agent, server: Recorder, repository: Repository):
    git = repository.git
    commit = git("rev-parse", "HEAD")
    assert said_commit(agent, server, repository.folder / "src") == commit
    git("pack-refs", "--all")
    assert said_commit(agent, server, repository.folder) == commit
    git("worktree", "add", "-q", str(agent.home / "other"), "-b", "side")
    assert said_commit(agent, server, agent.home / "other") == commit
    git("checkout", "-q", "--detach")
    assert said_commit(agent, server, repository.folder) == commit


@pytest.mark.parametrize(
    "head",
    [
        "ref: refs/heads/../../../secret\n",
        "ref: refs/heads/.invalid\n",
        "ref: refs/heads/none\n",
        "xyz\n",
        "a" * 41 + "\n",
        "",
        "ref: \n",
    ],
)
def test_a_head_that_names_no_commit_is_unknown(agent: Agent, server: Recorder, repository: Repository, head: str):
    (agent.home / "secret").write_text("b" * 40)
    (repository.folder / ".git" / "HEAD").write_text(head)

    assert said_commit(agent, server, repository.folder) is None


def test_a_clone_tells_how_it_came_from_the_commit_that_was_told_last(
    server: Recorder, repository: Repository, start: Callable[[Path], list[Sent]]
):
    before = repository.git("rev-parse", "HEAD")
    (first,) = start(repository.folder)
    *_, again = start(repository.folder)
    repository.git("rm", "-q", "src/pay.py")
    head = repository.commit("Remove it", author="Bob")
    server.reply = lambda sent: Reply(body=b'{"known":true}') if sent.path == CODE else Reply()
    code, started = start(repository.folder)
    *_, after = start(repository.folder)

    assert code.path == CODE
    assert code.headers["x-cmserver-root"] == str(repository.folder)
    assert (code.payload["before"], code.payload["head"]) == (before, head)
    assert code.payload["cloneId"] == first.headers["x-cmserver-clone"]
    log, diff = (b64decode(str(code.payload[name])) for name in ("log", "diff"))
    assert log.startswith(f">\0{head}\0Bob\0".encode())
    assert log.endswith(b" D\0src/pay.py\0")
    assert diff == b"D\0src/pay.py\0"
    clones = {sent.headers["x-cmserver-clone"] for sent in (first, again, started, after)}
    assert len(clones) == 1


def test_what_the_server_did_not_take_is_told_again_and_nothing_is_marked_meanwhile(
    server: Recorder, repository: Repository, start: Callable[[Path], list[Sent]]
):
    start(repository.folder)
    repository.commit("Second")
    server.reply = lambda sent: Reply(status=500) if sent.path == CODE else Reply()
    _, started = start(repository.folder)
    repository.commit("Third")
    server.reply = lambda sent: Reply(body=b'{"known":true}') if sent.path == CODE else Reply()
    code, _ = start(repository.folder)

    assert "x-cmserver-clone" not in started.headers
    assert b64decode(str(code.payload["log"])).count(b">\0") == 2


def test_a_commit_that_is_gone_is_said_to_the_user_once(
    agent: Agent, server: Recorder, repository: Repository, start: Callable[[Path], list[Sent]]
):
    start(repository.folder)
    (note,) = (agent.folder / "state").glob("clone-*")
    lines = note.read_text().splitlines()
    note.write_text("\n".join([*lines[:2], "f" * 40]) + "\n")
    server.reply = lambda sent: Reply(body=b'{"known":false}') if sent.path == CODE else Reply(body=b"{}")

    answers = [agent.hook("SessionStart", cwd=repository.folder) for _ in range(2)]

    (code,) = [sent for sent in server.sent if sent.path == CODE]
    assert code.payload.keys() == {"cloneId", "before", "head", "branches"}
    assert ["is not known" in str(answer.get("systemMessage")) for answer in answers] == [True, False]


def test_a_damaged_note_begins_a_clone_anew(agent: Agent, repository: Repository, start: Callable[[Path], list[Sent]]):
    (first,) = start(repository.folder)
    (note,) = (agent.folder / "state").glob("clone-*")
    for text in (
        "",
        "x\ny\nz\n",
        f"{repository.folder}\n$(touch evil)\n{'a' * 40}\n",
        f"{repository.folder}\n{'a' * 36}\n--help\n",
    ):
        note.write_text(text)
        (sent,) = start(repository.folder)
        assert sent.headers["x-cmserver-clone"] != first.headers["x-cmserver-clone"]


def test_a_prompt_says_the_clone_of_its_own_work_tree(agent: Agent, server: Recorder, repository: Repository):
    repository.git("worktree", "add", "-q", str(agent.home / "other"), "-b", "side")
    agent.hook("SessionStart", cwd=repository.folder)
    clone = server.sent[-1].headers["x-cmserver-clone"]

    agent.hook("UserPromptSubmit", {"number": 1, "prompt": "x"}, cwd=repository.folder)
    own = server.sent[-1].headers.get("x-cmserver-clone")
    agent.hook("UserPromptSubmit", {"number": 1, "prompt": "x"}, cwd=agent.home / "other")

    assert own == clone
    assert "x-cmserver-clone" not in server.sent[-1].headers


@pytest.mark.parametrize("name", [row.name for row in AGENTS.values() if row.prompt_event])
def test_every_agent_whose_model_is_told_at_a_prompt_says_its_clone_there(
    tmp_path: Path, shell: Path, server: Recorder, repository: Repository, name: str
):
    agent = Agent(tmp_path / "other", shell, server.url, name)
    server.reply = lambda sent: Reply(body=b'{"known":true}') if sent.path == CODE else Reply()
    row = AGENTS[name]
    session = {row.session_variable: "s-1"} if row.session_variable else {}
    for event in ("SessionStart", row.prompt_event):  # of Gemini CLI it is the first prompt that begins
        agent.hook(event, {"prompt": "x"}, cwd=repository.folder, env=session)
    head = repository.commit("Second")

    agent.hook(row.prompt_event, {"prompt": "y"}, cwd=repository.folder, env=session)

    code, asked = server.sent[-2:]
    assert (code.path, code.payload["head"]) == (CODE, head)
    assert asked.headers["x-cmserver-clone"] == code.payload["cloneId"]


@pytest.fixture
def prompt(agent: Agent, server: Recorder, repository: Repository) -> Callable[[], tuple[list[Sent], dict[str, object]]]:
    """A prompt of the session; what the server was sent, in its order, and the agent's answer."""

    def run() -> tuple[list[Sent], dict[str, object]]:
        before = len(server.sent)
        answer = agent.hook("UserPromptSubmit", {"number": before, "prompt": "x"}, cwd=repository.folder)
        return server.sent[before:], answer

    return run


def test_a_prompt_tells_first_which_commit_is_checked_out_since_the_start(
    agent: Agent,
    server: Recorder,
    repository: Repository,
    start: Callable[[Path], list[Sent]],
    prompt: Callable[[], tuple[list[Sent], dict[str, object]]],
):
    (started,) = start(repository.folder)
    server.reply = lambda sent: Reply(body=b'{"known":true}') if sent.path == CODE else Reply()
    repository.git("checkout", "-q", "-b", "side")
    (same,), _ = prompt()
    before = repository.git("rev-parse", "HEAD")
    repository.git("rm", "-q", "src/pay.py")
    head = repository.commit("Remove it")
    agent.hook("PostToolUse", cwd=repository.folder)
    used = server.sent[-1]
    (code, asked), _ = prompt()
    (again,), _ = prompt()
    at_start, _ = start(repository.folder)

    assert used.path != CODE
    assert "x-cmserver-clone" not in used.headers
    assert code.path == CODE
    assert (code.payload["before"], code.payload["head"]) == (before, head)
    assert "branches" not in code.payload  # prompts have no such marks; the next start asks
    assert "branches" in at_start.payload
    clones = {sent.headers["x-cmserver-clone"] for sent in (started, same, asked, again)}
    assert len(clones) == 1


def test_what_the_server_did_not_take_at_a_prompt_is_told_at_the_next_start(
    server: Recorder,
    repository: Repository,
    start: Callable[[Path], list[Sent]],
    prompt: Callable[[], tuple[list[Sent], dict[str, object]]],
):
    start(repository.folder)
    repository.commit("Second")
    server.reply = lambda sent: Reply(status=500) if sent.path == CODE else Reply()
    (_, asked), _ = prompt()
    (again,), _ = prompt()
    server.reply = lambda sent: Reply(body=b'{"known":true}') if sent.path == CODE else Reply()
    code, started = start(repository.folder)

    assert "x-cmserver-clone" not in asked.headers
    assert "x-cmserver-clone" not in again.headers
    assert b64decode(str(code.payload["log"])).count(b">\0") == 1
    assert started.headers["x-cmserver-clone"] == code.payload["cloneId"]


def test_a_prompt_says_its_clone_whatever_other_sessions_of_the_agent_do(
    agent: Agent,
    server: Recorder,
    repository: Repository,
    start: Callable[[Path], list[Sent]],
    prompt: Callable[[], tuple[list[Sent], dict[str, object]]],
):
    repository.git("worktree", "add", "-q", str(agent.home / "other"), "-b", "side")
    (started,) = start(repository.folder)
    start(agent.home / "other")
    start(agent.work)
    repository.commit("Second")
    server.reply = lambda sent: Reply(body=b'{"known":true}') if sent.path == CODE else Reply()

    (code, asked), _ = prompt()

    assert code.payload["cloneId"] == started.headers["x-cmserver-clone"] == asked.headers["x-cmserver-clone"]


def test_what_git_does_not_say_at_a_prompt_is_left_to_the_next_start(
    agent: Agent,
    server: Recorder,
    repository: Repository,
    start: Callable[[Path], list[Sent]],
    prompt: Callable[[], tuple[list[Sent], dict[str, object]]],
):
    start(repository.folder)
    repository.commit("Second")
    (agent.bin / "git").write_text("#!/bin/sh\nexit 1\n")
    (agent.bin / "git").chmod(0o755)
    (asked,), _ = prompt()
    (agent.bin / "git").unlink()
    (again,), _ = prompt()
    server.reply = lambda sent: Reply(body=b'{"known":true}') if sent.path == CODE else Reply()
    code, _ = start(repository.folder)

    assert [sent.path == CODE or "x-cmserver-clone" in sent.headers for sent in (asked, again)] == [False, False]
    assert b64decode(str(code.payload["log"])).count(b">\0") == 1


@pytest.mark.parametrize("at", ["start", "prompt"])
def test_after_an_answer_that_was_lost_the_next_way_begins_where_the_server_is(
    agent: Agent,
    server: Recorder,
    repository: Repository,
    start: Callable[[Path], list[Sent]],
    prompt: Callable[[], tuple[list[Sent], dict[str, object]]],
    at: str,
):
    start(repository.folder)
    there = repository.commit("Second")
    server.reply = lambda sent: Reply(status=500) if sent.path == CODE else Reply()
    start(repository.folder)
    repository.commit("Third")
    elsewhere = b'{"known":false,"head":"%s"}' % there.encode()
    server.reply = lambda sent: Reply(body=elsewhere) if sent.path == CODE else Reply(body=b"{}")

    answer = agent.hook("SessionStart", cwd=repository.folder) if at == "start" else prompt()[1]
    code, _ = start(repository.folder) if at == "start" else prompt()[0]

    assert "systemMessage" not in answer  # nothing is lost
    assert code.payload["before"] == there
    assert b64decode(str(code.payload["log"])).count(b">\0") == 1
    assert ("branches" in code.payload) is (at == "start")


def test_what_the_environment_says_of_git_is_not_said_of_the_clone_at_a_prompt(
    agent: Agent, server: Recorder, repository: Repository, start: Callable[[Path], list[Sent]]
):
    start(repository.folder)
    head = repository.commit("Second")
    other = Repository(agent.home / "other")
    other.commit("Other")
    trace = agent.home / "trace"

    env = {"GIT_DIR": str(other.folder / ".git"), "GIT_TRACE": str(trace)}
    agent.hook("UserPromptSubmit", {"number": 1, "prompt": "x"}, cwd=repository.folder, env=env)

    code, _ = server.sent[-2:]
    assert head.encode() in b64decode(str(code.payload["log"]))
    assert not trace.exists()


def test_a_commit_that_is_gone_at_a_prompt_is_said_to_the_user_once(
    server: Recorder,
    repository: Repository,
    start: Callable[[Path], list[Sent]],
    prompt: Callable[[], tuple[list[Sent], dict[str, object]]],
):
    start(repository.folder)
    repository.commit("Second")
    server.reply = lambda sent: Reply(body=b'{"known":false}') if sent.path == CODE else Reply(body=b"{}")

    answers = [prompt()[1] for _ in range(2)]

    assert ["is not known" in str(answer.get("systemMessage")) for answer in answers] == [True, False]


def test_a_server_that_knows_no_clones_is_asked_once_of_a_commit(
    server: Recorder, repository: Repository, start: Callable[[Path], list[Sent]]
):
    start(repository.folder)
    repository.commit("Second")
    server.reply = lambda sent: Reply(status=404) if sent.path == CODE else Reply()

    asked = [[sent.path for sent in start(repository.folder)].count(CODE) for _ in range(3)]

    assert asked == [1, 0, 0]


def test_a_project_in_a_folder_of_the_repository_says_no_clone(repository: Repository, start: Callable[[Path], list[Sent]]):
    """Its files are known by other paths than git's."""
    repository.write("packages/x/.cmserver.toml", 'project = "acme/x"\n')
    repository.commit("Second")

    (sent,) = start(repository.folder / "packages" / "x")

    assert "x-cmserver-clone" not in sent.headers


def test_what_the_environment_says_of_git_is_not_said_of_the_clone(
    agent: Agent, server: Recorder, repository: Repository, start: Callable[[Path], list[Sent]]
):
    start(repository.folder)
    repository.write(".mailmap.other", "Bob <ann@example.com>\n")
    repository.git("config", "mailmap.file", str(repository.folder / ".mailmap.other"))
    repository.commit("Second")
    repository.write("src/pay.py", "a = 300\n")
    other = Repository(agent.home / "other")
    other.commit("Other")
    trace = agent.home / "trace"
    env = {"GIT_DIR": str(other.folder / ".git"), "GIT_WORK_TREE": str(other.folder), "GIT_TRACE": str(trace)}

    agent.hook("SessionStart", cwd=repository.folder, env=env)

    code, started = server.sent[-2:]
    assert b64decode(str(code.payload["log"])).split(b"\0")[2] == b"Ann"
    assert started.headers["x-cmserver-changed-files"] == "src/pay.py"
    assert not trace.exists()


def test_what_killed_hooks_left_goes_at_a_start(agent: Agent, repository: Repository, start: Callable[[Path], list[Sent]]):
    start(repository.folder)
    left = [agent.folder / "state" / name for name in ("index-4194303", "code-4194303")]
    for file in left:
        file.write_text("x")

    start(repository.folder)

    assert not any(file.exists() for file in left)


def test_nothing_of_the_repository_is_run(
    agent: Agent, server: Recorder, repository: Repository, start: Callable[[Path], list[Sent]]
):
    trap, program = agent.home / "trap", agent.home / "program"
    program.write_text(f"#!/bin/sh\necho \"$0 $*\" >>'{trap}'\ncat\n")
    program.chmod(0o755)
    start(repository.folder)
    repository.write(".gitattributes", "* filter=trap diff=trap merge=trap\n")
    repository.write("src/pay.py", "a = 2\n")
    repository.commit("Second")
    for name, value in {
        "filter.trap.clean": program, "filter.trap.smudge": program, "filter.trap.process": program,
        "diff.trap.textconv": program, "diff.trap.command": program, "diff.external": program, "core.fsmonitor": program,
        "core.hooksPath": agent.home, "core.pager": program, "pager.log": program, "pager.diff-tree": program,
        "gpg.program": program, "log.showSignature": "true", "core.sshCommand": program, "alias.log": f"!{program}",
        "alias.diff-tree": f"!{program}", "core.alternateRefsCommand": program,
        "remote.origin.url": f"ext::{program}", "remote.origin.promisor": "true", "extensions.partialClone": "origin",
    }.items():  # fmt: skip
        repository.git("config", name, str(value))
    for hook in ("post-checkout", "pre-auto-gc", "post-index-change", "reference-transaction"):
        shutil.copy(program, repository.folder / ".git" / "hooks" / hook)
    repository.write("src/pay.py", "a = 3\n")

    code, _ = start(repository.folder)

    assert b"src/pay.py" in b64decode(str(code.payload["log"]))
    assert not trap.exists()


def wrap_git(agent: Agent, script: str) -> None:
    """From now on the hook's git is a program around it."""
    real = shutil.which("git")
    (agent.bin / "git").write_text(f'#!/bin/sh\n{script}\nexec {real} "$@"\n')
    (agent.bin / "git").chmod(0o755)


def test_a_clone_without_blobs_tells_what_was_moved_as_it_was_and_fetches_nothing(
    agent: Agent, server: Recorder, repository: Repository, start: Callable[[Path], list[Sent]]
):
    repository.git("config", "uploadpack.allowFilter", "true")
    repository.git("config", "uploadpack.allowAnySHA1InWant", "true")
    repository.write("src/a.py", "".join(f"a_{line} = {line}\n" for line in range(20)))
    repository.commit("Second")
    repository.git("clone", "-q", "--filter=blob:none", f"file://{repository.folder}", str(agent.home / "partial"))
    partial = Repository.at(agent.home / "partial")
    start(partial.folder)
    repository.git("mv", "src/pay.py", "src/core.py")
    repository.commit("Move")
    for number in range(2):
        repository.git("mv", f"src/{'ab'[number]}.py", f"src/{'bc'[number]}.py")
        repository.write(f"src/{'bc'[number]}.py", "".join(f"a_{line} = {line}\n" for line in range(number + 1, 20)))
        repository.commit("Move and change")
    partial.pull()
    lacking = partial.git("rev-list", "--objects", "--missing=print", "--all")
    server.reply = lambda sent: Reply(body=b'{"known":true}') if sent.path == CODE else Reply()

    code, _ = start(partial.folder)

    log, diff = (b64decode(str(code.payload[name])) for name in ("log", "diff"))
    assert b" R100\0src/pay.py\0src/core.py\0" in log
    assert b" D\0src/a.py\0" in log
    assert set(diff.split(b"\0")[1::2]) == {b"src/pay.py", b"src/core.py", b"src/a.py", b"src/c.py"}
    assert "?" in lacking
    assert partial.git("rev-list", "--objects", "--missing=print", "--all") == lacking


def test_a_commit_without_its_parents_in_a_shallow_clone_claims_no_files(
    agent: Agent, server: Recorder, repository: Repository, start: Callable[[Path], list[Sent]]
):
    repository.git("clone", "-q", "--depth=1", f"file://{repository.folder}", str(agent.home / "shallow"))
    shallow = Repository.at(agent.home / "shallow")
    start(shallow.folder)
    for number in range(2):
        repository.write("src/pay.py", f"a = {number}00\n")
        repository.commit()
    shallow.git("fetch", "-q", "--depth=1", "origin", "HEAD")
    shallow.git("reset", "-q", "--hard", "FETCH_HEAD")
    server.reply = lambda sent: Reply(body=b'{"known":true}') if sent.path == CODE else Reply()

    code, _ = start(shallow.folder)

    log, diff = (b64decode(str(code.payload[name])) for name in ("log", "diff"))
    assert b">\0" in log
    assert b"src/pay.py" not in log
    assert diff == b"M\0src/pay.py\0"


def test_no_call_of_git_may_fetch(
    agent: Agent,
    repository: Repository,
    start: Callable[[Path], list[Sent]],
    prompt: Callable[[], tuple[list[Sent], dict[str, object]]],
):
    asked = agent.home / "asked"
    wrap_git(agent, f"printf '%s\\n' \"${{GIT_NO_LAZY_FETCH:-}} ${{GIT_ALLOW_PROTOCOL:-}} $*\" >>{asked}")
    start(repository.folder)
    repository.git("branch", "side")
    repository.commit("Second")
    start(repository.folder)
    repository.commit("Third")
    prompt()

    calls = asked.read_text().splitlines()
    for word in ("for-each-ref", "diff-index", "log", "diff-tree"):
        assert [call for call in calls if f" {word} " in call]
    assert [call for call in calls if not call.startswith("1 none ")] == []


@pytest.mark.parametrize("word", ["for-each-ref", "diff-index", "log", "diff-tree", "--no-pager"])
def test_what_a_wrapper_of_git_leaves_behind_holds_no_start(
    agent: Agent, server: Recorder, repository: Repository, start: Callable[[Path], list[Sent]], word: str
):
    repository.git("checkout", "-q", "-b", "side")  # no ref of a usual name but a packed one
    repository.git("pack-refs", "--all")
    clone = start(repository.folder)[-1].headers["x-cmserver-clone"]
    repository.commit("Second")
    asked, pids = agent.home / "asked", agent.home / "pids"
    endless = f'while :; do echo x; done & echo "$!" >>{pids}; wait'
    wrap_git(agent, f'echo "$*" >>{asked}\ncase " $* " in *" {word} "*) {endless} ;; esac')
    agent.limit(1)
    try:
        *told, started = start(repository.folder)
    finally:
        for pid in pids.read_text().split():
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)

    assert started.path != CODE
    assert [code.payload["cloneId"] for code in told] == [clone] * len(told)  # whatever was written meanwhile
    assert "-M100%" not in asked.read_text()


@pytest.fixture
def begin_shell(agent: Agent, shell: Path) -> Callable[[str], None]:
    """From now on the hook's shell does this first, in Python; with nothing to do it is itself again."""

    def change(code: str) -> None:
        sh = agent.bin / "sh"
        sh.unlink()
        if not code:
            sh.symlink_to(shell)
            return
        sh.write_text(f"#!{sys.executable}\nimport os, resource, signal, sys\n{code}\nos.execv('{shell}', ['sh', *sys.argv[1:]])\n")
        sh.chmod(0o755)

    return change


def test_a_body_that_is_not_written_whole_is_not_sent_and_told_at_the_next_start(
    server: Recorder, repository: Repository, start: Callable[[Path], list[Sent]], begin_shell: Callable[[str], None]
):
    (first,) = start(repository.folder)
    for number in range(500):
        repository.write(f"src/{number:050}.py", "a = 1\n")
    repository.commit("Second")
    server.reply = lambda sent: Reply(body=b'{"known":true}') if sent.path == CODE else Reply()
    begin_shell("signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))")
    (cut,) = start(repository.folder)
    begin_shell("")
    code, _ = start(repository.folder)

    assert "x-cmserver-clone" not in cut.headers
    assert code.payload["cloneId"] == first.headers["x-cmserver-clone"]
    assert len(str(code.payload["log"])) + len(str(code.payload["diff"])) > 100_000


def test_a_start_is_sent_where_what_git_says_cannot_be_kept(
    repository: Repository, start: Callable[[Path], list[Sent]], begin_shell: Callable[[str], None]
):
    start(repository.folder)
    repository.git("pack-refs", "--all")
    repository.commit("Second")
    begin_shell("os.mkdir(f'{os.path.dirname(sys.argv[1])}/state/code-said-{os.getpid()}')")

    *_, started = start(repository.folder)

    assert started.path != CODE
    assert "x-cmserver-changed-files" not in started.headers
