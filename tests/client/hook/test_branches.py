"""What was said on a branch is told with its name until it is merged: by real repositories, and the hook client's own git."""

from __future__ import annotations

import shutil
from base64 import b64decode
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pytest

from cmserver.git.clones.branches import BranchMarks, place_commits, read_report
from cmserver.git.clones.model import HASH_CHARS, CommitPlace, SaidAt
from tests.client.hook.agent import Agent
from tests.client.hook.recorder import Recorder, Reply, Sent
from tests.repositories import Repository

CODE = "/v1/code"


class Memory:
    """What a server knows of each clone, and the turns of the project, by a name."""

    def __init__(self, server: Recorder) -> None:
        self.said: dict[str, SaidAt] = {}
        self.requests: list[dict[str, Any]] = []
        self._places: dict[str, dict[str, CommitPlace]] = {}
        self._clones: dict[str, str] = {}
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
        clone, branches = payload["cloneId"], payload.get("branches")
        asked: list[str] = []
        self._places.setdefault(clone, {})
        if branches is None:
            self._places[clone] = {}
        else:
            texts = {name: b64decode(branches[name]) for name in ("unmerged", "gone", "patches")}
            report = read_report(**texts, compared=branches["compared"])
            head = sent.headers.get("x-cmserver-git-branch", "")
            self._places[clone], unknown = place_commits(self._places[clone], report, head)
            said = {it.commit[:HASH_CHARS] for it in self.said.values()}
            asked = [tip for commit, tip in unknown.items() if commit in said]
        return Reply(body=msgspec.json.encode({"known": True, "asked": asked}))


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
    "squash after more work": (
        "echo 'a = 1' >src/queue2.py; git add .; git commit -q -m Other; git merge -q --squash retry; git commit -q -m Squash;"
        " echo 'limit = 9' >src/retry1.py; git commit -qam More"
    ),
    "rebase": "git commit -q --allow-empty -m Other; git -c user.name=A cherry-pick retry~2..retry",
    "pick of its commit": "git commit -q --allow-empty -m Other; git -c user.name=A cherry-pick retry~1 retry",
}


@pytest.mark.parametrize("is_deleted", [False, True])
@pytest.mark.parametrize("how", MERGES)
def test_what_was_merged_is_told_without_a_mark(agent: Agent, memory: Memory, told: Repository, how: str, is_deleted: bool):
    run(told, MERGES[how])
    if is_deleted:
        told.git("branch", "-q", "-D", "retry")

    assert memory.start(agent, told.folder) == {}
    told.commit("Later")
    assert memory.start(agent, told.folder) == {}


def test_a_part_that_was_picked_merges_no_more_than_that(agent: Agent, memory: Memory, told: Repository):
    told.git("checkout", "-q", "retry~1")
    memory.say("first", told)
    told.git("checkout", "-q", "main")
    run(told, "git commit -q --allow-empty -m Other; git -c user.name=A cherry-pick retry~1")

    assert memory.start(agent, told.folder) == {"turn": " (on branch retry)"}


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


def test_a_branch_that_is_gone_says_so_until_its_name_is_there_again(agent: Agent, memory: Memory, told: Repository):
    commit = memory.said["turn"].commit
    told.git("branch", "-q", "-D", "retry")
    assert memory.start(agent, told.folder) == {"turn": " (its branch retry is gone)"}
    told.commit("Later")
    assert memory.start(agent, told.folder) == {"turn": " (its branch retry is gone)"}

    work(told)
    told.git("checkout", "-q", "main")
    assert memory.start(agent, told.folder)["turn"] == f" (its commit {commit[:7]} is no longer in history)"

    told.git("branch", "-q", "-f", "retry", commit)
    assert memory.start(agent, told.folder) == {"turn": " (on branch retry)"}


def test_a_branch_that_went_and_was_squashed_later_is_merged(agent: Agent, memory: Memory, told: Repository):
    commit = memory.said["turn"].commit
    told.git("branch", "-q", "-D", "retry")
    assert memory.start(agent, told.folder)

    told.git("merge", "-q", "--squash", commit)
    told.commit("Squash")

    assert memory.start(agent, told.folder) == {}


def test_after_a_rebase_the_branch_is_found_again(agent: Agent, memory: Memory, told: Repository):
    told.write("src/other.py", "a = 1\n")
    told.commit("Other")
    told.git("rebase", "-q", "main", "retry")
    told.git("checkout", "-q", "main")

    assert memory.start(agent, told.folder) == {"turn": " (on branch retry)"}


def test_a_force_push_that_throws_the_commit_away_says_so(agent: Agent, memory: Memory, told: Repository):
    commit = memory.said["turn"].commit
    told.git("branch", "-q", "-f", "retry", "retry~1")

    assert memory.start(agent, told.folder) == {"turn": f" (its commit {commit[:7]} is no longer in history)"}


def test_an_amended_commit_is_found_again_by_its_patch_or_is_no_longer_there(agent: Agent, memory: Memory, repository: Repository):
    memory.start(agent, repository.folder)
    repository.write("src/pay.py", "a = 1\n")
    repository.commit("Second")
    commit = memory.say("turn", repository)
    memory.start(agent, repository.folder)

    repository.git("commit", "-q", "--amend", "-m", "Second, in other words")
    assert memory.start(agent, repository.folder) == {}
    second = memory.say("later", repository)
    repository.write("src/pay.py", "a = 2\n")
    repository.git("commit", "-q", "-a", "--amend", "-m", "Third")

    marks = memory.start(agent, repository.folder)
    assert marks["later"] == f" (its commit {second[:7]} is no longer in history)"
    assert commit != second


def test_a_detached_head_is_on_no_branch_and_may_be_gone(agent: Agent, memory: Memory, repository: Repository):
    memory.start(agent, repository.folder)
    repository.git("checkout", "-q", "--detach")
    repository.write("src/pay.py", "a = 1\n")
    commit = repository.commit("Second")
    memory.say("turn", repository)
    assert memory.start(agent, repository.folder) == {}

    repository.git("checkout", "-q", "main")
    assert memory.start(agent, repository.folder) == {"turn": f" (its commit {commit[:7]} is no longer in history)"}

    repository.git("branch", "kept", commit)
    assert memory.start(agent, repository.folder) == {"turn": " (on branch kept)"}


def test_a_tag_is_no_branch(agent: Agent, memory: Memory, told: Repository):
    told.git("tag", "retry", "retry")
    told.git("branch", "-q", "-D", "retry")

    assert memory.start(agent, told.folder) == {"turn": " (its branch retry is gone)"}


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

    assert memory.start(agent, other) == {"turn": " (on branch retry)"}
    told.git("checkout", "-q", "-b", "more/of", "retry")
    told.write("src/more.py", "a = 1\n")
    told.commit("More")
    memory.say("more", told)
    theirs.git("fetch", "-q")
    assert memory.start(agent, other) == {"turn": " (on branch retry)", "more": " (on branch more/of)"}
    theirs.git("checkout", "-q", "retry")
    assert memory.start(agent, other) == {"more": " (on branch more/of)"}


def test_a_shallow_clone_says_nothing_of_branches(agent: Agent, memory: Memory, told: Repository):
    other = agent.home / "other"
    told.git("clone", "-q", "--depth=1", "--no-single-branch", f"file://{told.folder}", str(other))
    memory.start(agent, other)

    assert memory.start(agent, other) == {}
    assert memory.requests == []


def test_what_git_does_not_say_in_time_is_not_marked_and_asked_again(agent: Agent, memory: Memory, told: Repository):
    told.git("branch", "-q", "-D", "retry")
    slow = agent.bin / "git"
    slow.write_text(f'#!/bin/sh\ncase " $* " in *\' patch-id \'*) sleep 60 ;; esac\nexec {git_path()} "$@"\n')
    slow.chmod(0o755)
    agent.limit(1)
    assert memory.start(agent, told.folder) == {}
    assert memory.start(agent, told.folder) == {}

    slow.write_text(f'#!/bin/sh\ncase " $* " in *\' --source \'*) sleep 60 ;; esac\nexec {git_path()} "$@"\n')
    assert memory.start(agent, told.folder) == {}
    slow.unlink()
    agent.limit(30)

    assert memory.start(agent, told.folder) == {"turn": " (its branch retry is gone)"}


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
    repository.git("merge", "-q", "--squash", "retry")
    repository.commit("Squash")
    for name, value in {
        "filter.trap.clean": program, "filter.trap.smudge": program, "filter.trap.process": program,
        "diff.trap.textconv": program, "diff.trap.command": program, "diff.external": program, "core.fsmonitor": program,
        "core.hooksPath": agent.home, "core.pager": program, "pager.log": program, "pager.for-each-ref": program,
        "gpg.program": program, "log.showSignature": "true", "core.sshCommand": program, "alias.patch-id": f"!{program}",
        "core.alternateRefsCommand": program, "diff.orderFile": program, "log.diffMerges": "on",
        "remote.origin.url": f"ext::{program}", "remote.origin.promisor": "true", "extensions.partialClone": "origin",
    }.items():  # fmt: skip
        repository.git("config", name, str(value))

    assert memory.start(agent, repository.folder) == {}
    assert any(request["branches"]["patches"] for request in memory.requests)
    assert not trap.exists()


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
