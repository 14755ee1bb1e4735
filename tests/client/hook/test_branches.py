"""What was said on a branch is told with its name until it is merged: by real repositories, and the hook client's own git."""

from __future__ import annotations

import shutil
from base64 import b64decode
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pytest

from cmserver.git.clones.branches import BranchMarks, place_commits, read_commits
from cmserver.git.clones.model import CommitPlaces, SaidAt
from tests.client.hook.agent import Agent
from tests.client.hook.recorder import Recorder, Reply, Sent
from tests.repositories import Repository

CODE = "/v1/code"


class Memory:
    """What a server knows of each clone, and the turns of the project, by a name."""

    def __init__(self, server: Recorder) -> None:
        self.said: dict[str, SaidAt] = {}
        self.requests: list[dict[str, Any]] = []
        self._places: dict[str, CommitPlaces] = {}
        self._server = server
        server.reply = self._reply

    def say(self, name: str, repository: Repository) -> str:
        """A turn that ends at what is checked out there."""
        branch = repository.git("branch", "--show-current")
        commit = repository.git("rev-parse", "HEAD")
        self.said[name] = SaidAt(turn_id=UUID(int=len(self.said)), branch=branch, commit=commit)
        return commit

    def start(self, agent: Agent, folder: Path) -> dict[str, str]:
        """A session starts in that clone: the marks of all turns that have one."""
        self.requests.clear()
        agent.hook("SessionStart", cwd=folder)
        clone = self._server.sent[-1].headers.get("x-cmserver-clone", "")
        marks = BranchMarks(self._places.get(clone, {}), {said.turn_id: said for said in self.said.values()})
        return {name: mark for name, said in self.said.items() if (mark := marks.describe(said.turn_id))}

    def _reply(self, sent: Sent) -> Reply:
        if sent.path != CODE:
            return Reply()
        payload: dict[str, Any] = sent.payload
        self.requests.append(payload)
        branches, places = payload.get("branches"), {}
        if branches is not None:
            unmerged, others = (read_commits(b64decode(branches[name])) for name in ("unmerged", "others"))
            places = place_commits(unmerged, others, sent.headers.get("x-cmserver-git-branch", ""))
        self._places[payload["cloneId"]] = places
        return Reply(body=msgspec.json.encode({"known": True}))


@pytest.fixture
def memory(server: Recorder) -> Memory:
    return Memory(server)


@pytest.fixture
def repository(agent: Agent) -> Repository:
    made = Repository(agent.home / "clone")
    for name in ("pay", "queue"):
        made.write(f"src/{name}.py", "".join(f"{name}_{line} = {line}\n" for line in range(30)))
    made.commit("First")
    return made


def work(repository: Repository, branch: str = "retry") -> None:
    """Two commits on a branch of that name."""
    repository.git("checkout", "-q", "-b", branch)
    for number in (1, 2):
        repository.write(f"src/{branch}{number}.py", f"limit = {number}\n")
        repository.commit(f"{branch} {number}")


@pytest.fixture
def told(agent: Agent, memory: Memory, repository: Repository) -> Repository:
    """A branch of which a turn spoke, and main is checked out; its mark was told."""
    memory.start(agent, repository.folder)
    work(repository)
    memory.say("turn", repository)
    memory.start(agent, repository.folder)
    repository.git("checkout", "-q", "main")
    assert memory.start(agent, repository.folder) == {"turn": " (on branch retry)"}
    return repository


def test_what_was_said_on_a_branch_is_marked_elsewhere_and_not_there(agent: Agent, memory: Memory, told: Repository):
    assert memory.start(agent, told.folder) == {"turn": " (on branch retry)"}
    assert memory.requests == []  # nothing has changed

    told.git("checkout", "-q", "retry")

    assert memory.start(agent, told.folder) == {}


MERGES = {
    "merge commit": "git merge -q --no-ff -m Merge retry",
    "fast-forward": "git merge -q --ff-only retry",
    "squash": "git commit -q --allow-empty -m Other; git merge -q --squash retry; git commit -q -m Squash",
    "squash of which a line was changed": "git merge -q --squash retry; echo 'limit = 9' >src/retry1.py; git commit -qam Squash",
    "squash after more work": (
        "echo 'a = 1' >src/queue2.py; git add .; git commit -q -m Other; git merge -q --squash retry; git commit -q -m Squash;"
        " echo 'limit = 9' >src/retry1.py; git commit -qam More"
    ),
    "rebase": "git commit -q --allow-empty -m Other; git -c user.name=A cherry-pick retry~2..retry",
    "pick of its commit": "git commit -q --allow-empty -m Other; git -c user.name=A cherry-pick retry~1 retry",
    "develop that takes squashes": "git checkout -q -b develop; git merge -q --squash retry; git commit -q -m Squash",
    "branch of a develop that takes squashes": (
        "git checkout -q -b develop; git merge -q --squash retry; git commit -q -m Squash; git checkout -q -b other;"
        " git commit -q --allow-empty -m Other"
    ),
    "squash that is in main and not in what is checked out": (
        "git branch -q other; git merge -q --squash retry; git commit -q -m Squash; git checkout -q other"
    ),
}


@pytest.mark.parametrize("with_remote", [False, True])
@pytest.mark.parametrize("how", MERGES)
def test_what_was_merged_has_no_mark(agent: Agent, memory: Memory, told: Repository, how: str, with_remote: bool):
    if with_remote:  # whose trunk does not have it
        publish(agent, told)
    run(told, MERGES[how])

    assert memory.start(agent, told.folder) == {}


def test_a_part_that_was_picked_merges_no_more_than_that(agent: Agent, memory: Memory, told: Repository):
    told.git("checkout", "-q", "retry~1")
    memory.say("first", told)
    told.git("checkout", "-q", "main")
    run(told, "git commit -q --allow-empty -m Other; git -c user.name=A cherry-pick retry~1")

    assert memory.start(agent, told.folder) == {"turn": " (on branch retry)"}


def test_a_branch_that_was_built_on_a_change_of_the_same_file_is_none_of_it(agent: Agent, memory: Memory, repository: Repository):
    memory.start(agent, repository.folder)
    repository.write("src/pay.py", "a = 1\n")
    repository.commit("On main")
    repository.git("checkout", "-q", "-b", "retry")
    repository.write("src/pay.py", "a = 2\n")
    repository.commit("On retry")
    memory.say("turn", repository)
    repository.git("checkout", "-q", "main")
    assert memory.start(agent, repository.folder) == {"turn": " (on branch retry)"}

    repository.write("src/pay.py", "a = 2  # squashed, in other words\n")
    repository.commit("Squash")
    assert memory.start(agent, repository.folder) == {}


def test_a_squash_of_which_a_pull_tells_merges_what_was_told(agent: Agent, memory: Memory, told: Repository):
    other = agent.home / "other"
    told.git("clone", "-q", str(told.folder), str(other))
    theirs = Repository(other)
    theirs.git("merge", "-q", "--squash", "origin/retry")
    theirs.commit("Squash")
    told.git("remote", "add", "origin", str(other))
    told.git("fetch", "-q", "origin", "main")
    told.git("fetch", "-q", "origin")

    assert memory.start(agent, told.folder) == {}


MOVES = {
    "gone": ("git branch -q -D retry", ""),
    "gone, and one of its name elsewhere": ("git branch -q -f retry main", ""),
    "gone, and one below its name": ("git branch -q -D retry; git branch -q retry/2 main", ""),
    "gone, with a tag": ("git tag v1 retry; git branch -q -D retry", ""),
    "forced": ("git branch -q -f retry retry~1", ""),
    "rebased": ("git commit -q --allow-empty -m Other; git rebase -q main retry; git checkout -q main", ""),
    "rebased and checked out": ("git commit -q --allow-empty -m Other; git rebase -q main retry", ""),
    "rebased, and one that was made of it": (
        "git commit -q --allow-empty -m Other; git rebase -q main retry; git checkout -q -b more", ""
    ),
    "reset, with a copy": ("git branch -q backup retry; git branch -q -f retry retry~1", " (on branch backup)"),
    "there, with a copy": ("git branch -q backup retry", " (on branch retry)"),
    "renamed": ("git branch -q -m retry a/b/c/d", " (on branch a/b/c/d)"),
    "packed": ("git pack-refs --all", " (on branch retry)"),
    "another one at its commit checked out": ("git checkout -q -b more retry", ""),
    "a detached head at its commit": ("git checkout -q --detach retry", ""),
    "a detached head": ("git checkout -q --detach main", " (on branch retry)"),
    "another name for what is checked out": ("git checkout -q -b more", " (on branch retry)"),
    "trunk that is gone": ("git symbolic-ref refs/remotes/origin/HEAD refs/remotes/origin/nothing", " (on branch retry)"),
}  # fmt: skip


@pytest.mark.parametrize("how", MOVES)
def test_a_place_is_that_of_now(agent: Agent, memory: Memory, told: Repository, how: str):
    commands, mark = MOVES[how]
    run(told, commands)

    expected = {"turn": mark} if mark else {}
    assert [memory.start(agent, told.folder) for _ in range(2)] == [expected] * 2


def test_a_branch_with_a_deep_name_is_seen_to_move(agent: Agent, memory: Memory, repository: Repository):
    memory.start(agent, repository.folder)
    repository.git("checkout", "-q", "-b", "a/b/c/d")
    repository.write("src/new.py", "a = 1\n")
    repository.commit("Second")
    memory.say("turn", repository)
    repository.git("checkout", "-q", "main")
    assert memory.start(agent, repository.folder) == {"turn": " (on branch a/b/c/d)"}

    repository.git("branch", "-q", "-f", "a/b/c/d", "main")

    assert memory.start(agent, repository.folder) == {}


def test_another_work_tree_has_its_commit_on_no_branch(agent: Agent, memory: Memory, repository: Repository):
    memory.start(agent, repository.folder)
    repository.git("worktree", "add", "-q", "--detach", str(agent.home / "tree"))
    tree = Repository.at(agent.home / "tree")
    tree.write("src/new.py", "a = 1\n")
    tree.commit("Second")
    memory.say("turn", tree)
    assert memory.start(agent, repository.folder) == {}

    tree.git("checkout", "-q", "-b", "kept")
    assert memory.start(agent, repository.folder) == {"turn": " (on branch kept)"}
    assert [memory.start(agent, tree.folder) for _ in range(2)] == [{}, {}]


def test_the_trunk_of_a_remote_of_any_name_is_no_branch(agent: Agent, memory: Memory, told: Repository):
    other = agent.home / "other"
    told.git("clone", "-q", "-o", "team/fork", str(told.folder), str(other))
    theirs = Repository(other)
    memory.start(agent, other)
    told.write("src/later.py", "a = 1\n")
    told.commit("Later")
    memory.say("later", told)
    theirs.git("fetch", "-q")

    assert memory.start(agent, other) == {"turn": " (on branch team/fork/retry)"}
    theirs.git("checkout", "-q", "-b", "more")
    assert memory.start(agent, other) == {"turn": " (on branch team/fork/retry)"}


def test_a_clone_in_the_place_of_another_knows_nothing_of_that(agent: Agent, memory: Memory, told: Repository):
    bare = agent.home / "bare"
    told.git("clone", "-q", "--bare", str(told.folder), str(bare))
    shutil.rmtree(told.folder)
    Repository.at(bare).git("clone", "-q", "--single-branch", str(bare), str(told.folder))

    assert [memory.start(agent, told.folder) for _ in range(2)] == [{}, {}]


def test_two_clones_on_two_branches_see_each_their_own(agent: Agent, memory: Memory, told: Repository):
    other = agent.home / "other"
    told.git("clone", "-q", "--single-branch", str(told.folder), str(other))
    theirs = Repository(other)
    memory.start(agent, other)
    work(theirs, "cache")
    memory.say("theirs", theirs)
    theirs.git("checkout", "-q", "main")

    assert [memory.start(agent, other) for _ in range(2)] == [{"theirs": " (on branch cache)"}] * 2
    told.commit("Later")
    assert memory.start(agent, told.folder) == {"turn": " (on branch retry)"}


def test_a_colleague_s_branch_is_known_by_a_fetch(agent: Agent, memory: Memory, told: Repository):
    other = agent.home / "other"
    told.git("clone", "-q", str(told.folder), str(other))
    theirs = Repository(other)
    memory.start(agent, other)

    assert memory.start(agent, other) == {"turn": " (on branch origin/retry)"}
    told.git("checkout", "-q", "-b", "more/of", "retry")
    told.write("src/more.py", "a = 1\n")
    told.commit("More")
    memory.say("more", told)
    theirs.git("fetch", "-q")
    assert memory.start(agent, other) == {"turn": " (on branch origin/retry)", "more": " (on branch origin/more/of)"}
    theirs.git("checkout", "-q", "retry")
    assert memory.start(agent, other) == {"more": " (on branch origin/more/of)"}
    theirs.git("reset", "-q", "--hard", "retry~1")
    assert memory.start(agent, other) == {"more": " (on branch origin/more/of)"}


def test_a_shallow_clone_says_nothing_of_branches(agent: Agent, memory: Memory, told: Repository):
    other = agent.home / "other"
    told.git("clone", "-q", "--depth=1", "--no-single-branch", f"file://{told.folder}", str(other))
    memory.start(agent, other)

    assert memory.start(agent, other) == {}
    assert memory.requests == []


@pytest.mark.parametrize("words", ["for-each-ref", "--not", "--max-age", ""])
def test_what_git_does_not_say_in_time_is_not_marked_and_asked_again(agent: Agent, memory: Memory, told: Repository, words: str):
    told.git("branch", "-q", "other", "retry~1")
    slow = agent.bin / "git"
    slow.write_text(f'#!/bin/sh\ncase " $* " in *"{words}"*) exec sleep 60 ;; esac\nexec {git_path()} "$@"\n')
    slow.chmod(0o755)
    agent.limit(1)
    assert memory.start(agent, told.folder) == {}
    assert memory.start(agent, told.folder) == {}

    slow.unlink()
    agent.limit(30)
    assert memory.start(agent, told.folder) == {"turn": " (on branch retry)"}


def test_more_than_a_server_takes_is_not_marked_unless_it_is_newer(agent: Agent, memory: Memory, told: Repository):
    stream = ""
    for number in range(200):
        stream += f"commit refs/heads/main\ncommitter A <a@b> {told.now + 2 * 86_400 + number} +0000\ndata 1\nx\n"
        stream += f"{'' if number else 'from refs/heads/main^0'}\nM 644 inline src/other.py\ndata 3\n{number:03}\n\n".lstrip("\n")
    told.git("fast-import", "--quiet", "--force", stdin=stream.encode())
    told.git("reset", "-q", "--hard")
    assert memory.start(agent, told.folder) == {}

    told.git("checkout", "-q", "-b", "newer")
    told.write("src/newer.py", "a = 1\n")
    told.commit(at="2026-02-01T00:00:00+00:00")
    memory.say("newer", told)
    told.git("checkout", "-q", "main")
    assert memory.start(agent, told.folder) == {"newer": " (on branch newer)"}


@pytest.mark.parametrize(
    ("branch", "shown"),
    [
        ("x)_ignore_all_(now", "x__ignore_all__now"),
        ("</cmserver>\u202e`$(touch${IFS}evil)`\"'", "_/cmserver_____touch__IFS_evil____"),
        ("-rf", "-rf"),
        ("größe/日本", "größe/日本"),
    ],
)
def test_a_hostile_name_of_a_branch_stays_a_name(agent: Agent, memory: Memory, repository: Repository, branch: str, shown: str):
    memory.start(agent, repository.folder)
    repository.git("checkout", "-q", "-b", "side")
    repository.write("src/new.py", "a = 1\n")
    repository.commit("Second")
    memory.say("turn", repository)
    repository.git("checkout", "-q", "main")
    repository.git("update-ref", f"refs/heads/{branch}", "side")
    repository.git("update-ref", "-d", "refs/heads/side")

    assert memory.start(agent, repository.folder) == {"turn": f" (on branch {shown})"}
    assert not list(agent.home.rglob("evil"))


def test_branches_are_told_once_and_what_did_not_change_costs_no_request(agent: Agent, memory: Memory, told: Repository):
    told.git("pack-refs", "--all")
    memory.start(agent, told.folder)
    for _ in range(2):
        memory.start(agent, told.folder)
        assert memory.requests == []
    told.commit("Later")
    memory.start(agent, told.folder)
    memory.start(agent, told.folder)
    assert memory.requests == []


def test_nothing_of_the_repository_is_run(agent: Agent, memory: Memory, repository: Repository):
    trap, program = agent.home / "trap", agent.home / "program"
    program.write_text(f"#!/bin/sh\necho \"$0 $*\" >>'{trap}'\ncat\n")
    program.chmod(0o755)
    repository.write(".gitattributes", "* filter=trap diff=trap merge=trap\n")
    repository.commit("Attributes")
    memory.start(agent, repository.folder)
    work(repository)
    memory.say("turn", repository)
    memory.start(agent, repository.folder)
    repository.git("checkout", "-q", "main")
    repository.write("src/other.py", "a = 1\n")
    repository.commit("Other")
    for name, value in {
        "filter.trap.clean": program, "filter.trap.smudge": program, "filter.trap.process": program,
        "diff.trap.textconv": program, "diff.trap.command": program, "diff.external": program, "core.fsmonitor": program,
        "core.hooksPath": agent.home, "core.pager": program, "pager.log": program, "pager.for-each-ref": program,
        "gpg.program": program, "log.showSignature": "true", "core.sshCommand": program, "alias.patch-id": f"!{program}",
        "core.alternateRefsCommand": program, "log.excludeDecoration": "refs/*", "diff.orderFile": program, "log.diffMerges": "on",
        "remote.origin.url": f"ext::{program}", "remote.origin.promisor": "true", "extensions.partialClone": "origin",
    }.items():  # fmt: skip
        repository.git("config", name, str(value))

    assert memory.start(agent, repository.folder) == {"turn": " (on branch retry)"}
    assert not trap.exists()


def publish(agent: Agent, repository: Repository) -> None:
    """With a remote that has main alone, as its trunk."""
    bare = agent.home / "bare"
    repository.git("clone", "-q", "--bare", "--single-branch", str(repository.folder), str(bare))
    repository.git("remote", "add", "origin", str(bare))
    repository.git("fetch", "-q", "origin")
    repository.git("remote", "set-head", "origin", "main")


def run(repository: Repository, commands: str) -> None:
    for command in commands.split("; "):
        if command.lstrip().startswith("git "):
            repository.git(*command.split()[1:])
        elif command.startswith("echo"):
            text, _, path = command.removeprefix("echo '").partition("' >")
            repository.write(path, text + "\n")


def git_path() -> str:
    found = shutil.which("git")
    assert found
    return found
