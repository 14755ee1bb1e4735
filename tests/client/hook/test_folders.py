"""Which project a folder is: what hooks find in real folders, without git and without another process."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from cmserver.access.projects import canonical_id
from tests.client.hook.agent import Agent
from tests.client.hook.recorder import Recorder


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """Files under the agent's home, the folder where it works, and what the hook should say of it. `~` is the home."""

    files: dict[str, str]
    """A path that ends in `/` is a folder; `-> path` makes a link."""
    at: str = "repo"
    project: str | None = None
    remote: str | None = None
    root: str | None = "~/repo"
    branch: str | None = None


MAIN = "ref: refs/heads/main\n"
URL = "git@github.com:acme/orders.git"
HTTPS = "https://github.com/acme/orders.git"


def origin(url: str) -> str:
    return f'[core]\n\tbare = false\n[remote "origin"]\n\turl = {url}\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n'


def repo(place: str = "repo", url: str = URL) -> dict[str, str]:
    return {f"{place}/.git/HEAD": MAIN, f"{place}/.git/config": origin(url)}


def config(text: str) -> dict[str, str]:
    return {"repo/.git/HEAD": MAIN, "repo/.git/config": text}


WORKTREE = {
    **repo(),
    "repo/.git/worktrees/fix/HEAD": "ref: refs/heads/fix\n",
    "repo/.git/worktrees/fix/commondir": "../..\n",
}
INNER = "repo/.claude/worktrees/fix"

CASES: dict[str, Case] = {
    "top of a checkout": Case(files=repo(), remote=URL, branch="main"),
    "deep inside": Case(files={**repo(), "repo/a/b/c/": ""}, at="repo/a/b/c", remote=URL, branch="main"),
    "no remote": Case(files=config("[core]\n\tbare = false\n"), branch="main"),
    "no config": Case(files={"repo/.git/HEAD": MAIN}, branch="main"),
    "another remote than origin": Case(files=config(origin(URL).replace("origin", "upstream")), branch="main"),
    "origin behind others": Case(files=config(origin("x:y").replace("origin", "fork") + origin(URL)), remote=URL, branch="main"),
    "branch with slashes": Case(files={**repo(), "repo/.git/HEAD": "ref: refs/heads/a/b-ü\n"}, remote=URL, branch="a/b-ü"),
    "detached": Case(files={**repo(), "repo/.git/HEAD": "0123456789abcdef0123456789abcdef01234567\n"}, remote=URL),
    "reftable": Case(files={**repo(), "repo/.git/HEAD": "ref: refs/heads/.invalid\n"}, remote=URL),
    "quoted url": Case(files=config(origin(f'"{URL}"')), remote=URL, branch="main"),
    "half quoted with comment": Case(files=config(origin('https://"github.com"/acme/x ; why')), remote="https://github.com/acme/x"),
    "hash in quotes": Case(files=config(origin('"/srv/c#/x.git" # mine')), remote="/srv/c#/x.git", branch="main"),
    "escapes": Case(files=config(origin('"/srv/a\\\\b\\"c"')), remote='/srv/a\\b"c', branch="main"),
    "url over two lines": Case(files=config(origin("https://github.com/\\\nacme/x")), remote="https://github.com/acme/x"),
    "spaces in url": Case(files=config(origin("/srv/my code/x.git")), remote="/srv/my code/x.git", branch="main"),
    "words in other case": Case(files=config(f'[REMOTE "origin"]\nURL={URL}\n'), remote=URL, branch="main"),
    "all on one line": Case(files=config(f'[remote "origin"] url = {URL}'), remote=URL, branch="main"),
    "old section": Case(files=config(f"[remote.origin]\n  url = {URL}\n"), remote=URL, branch="main"),
    "windows line ends": Case(files=config(origin(URL).replace("\n", "\r\n")), remote=URL, branch="main"),
    "no space anywhere": Case(files=config(f'[remote"origin"]\nurl={URL}'), remote=URL, branch="main"),
    "pushurl is no url": Case(files=config(f'[remote "origin"]\npushurl = x:y\nurl = {URL}\n'), remote=URL, branch="main"),
    "commented": Case(files=config(f'[remote "origin"]\n# url = x:y\n;url = x:z\nurl = {URL}\n'), remote=URL, branch="main"),
    "first of two urls": Case(files=config(f'[remote "origin"]\nurl = {URL}\nurl = x:y\n'), remote=URL, branch="main"),
    "user and password": Case(files=config(origin("https://me:pa@ss@github.com/acme/x")), remote="https://github.com/acme/x"),
    "password with a slash": Case(files=config(origin("https://me:p/a@github.com/acme/x")), remote="https://github.com/acme/x"),
    "token in the query": Case(files=config(origin("https://github.com/acme/x?token=y")), remote="https://github.com/acme/x"),
    "port": Case(files=config(origin("ssh://git@host.org:2222/acme/x")), remote="ssh://host.org:2222/acme/x", branch="main"),
    "address in brackets": Case(files=config(origin("ssh://git@[::1]:22/x@y")), remote="ssh://[::1]:22/x@y", branch="main"),
    "remote beside it": Case(files=config(origin("../orders.git")), branch="main"),
    "file url": Case(files=config(origin("file:///srv/x.git")), remote="file:///srv/x.git", branch="main"),
    "spaces and umlauts": Case(files=repo("my repo ü 'x'"), at="my repo ü 'x'", root="~/my repo ü 'x'", remote=URL, branch="main"),
    "quotes and dollars": Case(files=repo('a"b$(id)`id`\\n*'), at='a"b$(id)`id`\\n*', root='~/a"b$(id)`id`\\n*', remote=URL),
    "a line break in the name": Case(
        files=repo("a\nX-Evil: 1"), at="a\nX-Evil: 1", root="~/a?X-Evil: 1", remote=URL, branch="main"
    ),
    "through a link": Case(files={**repo(), "link": "-> repo"}, at="link", remote=URL, branch="main"),
    "a link below": Case(files={**repo(), "repo/a/": "", "link": "-> repo/a"}, at="link", remote=URL, branch="main"),
    "worktree beside": Case(
        files={**WORKTREE, "fix/.git": "gitdir: ~/repo/.git/worktrees/fix\n"}, at="fix", remote=URL, branch="fix"
    ),
    "worktree by a relative path": Case(
        files={**WORKTREE, "fix/.git": "gitdir: ../repo/.git/worktrees/fix\n"}, at="fix", remote=URL, branch="fix"
    ),
    "worktree without its repository": Case(
        files={"fix/.git": "gitdir: /elsewhere/repo/.git/worktrees/fix\n"}, at="fix", root="/elsewhere/repo"
    ),
    "worktree of a worktree's folder": Case(
        files={**WORKTREE, f"{INNER}/.git": "gitdir: ~/repo/.git/worktrees/fix\n", f"{INNER}/a/": ""},
        at=f"{INNER}/a",
        remote=URL,
        branch="fix",
    ),
    "worktree folder without git": Case(files={**repo(), f"{INNER}/": ""}, at=INNER, remote=URL, branch="main"),
    "worktree folder that is a checkout": Case(
        files={**repo(), **{f"{INNER}/.git/{name}": "ref: refs/heads/x\n" for name in ("HEAD", "config")}},
        at=INNER,
        remote=URL,
        branch="x",
    ),
    "worktree of a bare repository": Case(
        files={
            "x.git/HEAD": MAIN,
            "x.git/config": origin(URL),
            "x.git/worktrees/fix/HEAD": "ref: refs/heads/fix\n",
            "x.git/worktrees/fix/commondir": "../..\n",
            "fix/.git": "gitdir: ../x.git/worktrees/fix",
        },
        at="fix",
        root="~/x.git",
        remote=URL,
        branch="fix",
    ),
    "project of the main worktree": Case(
        files={**WORKTREE, "repo/.cmserver.toml": 'project = "p"', "fix/.git": "gitdir: ../repo/.git/worktrees/fix\n"},
        at="fix",
        project="p",
        remote=URL,
        branch="fix",
    ),
    "submodule": Case(
        files={
            **repo(),
            "repo/.git/modules/sub/HEAD": MAIN,
            "repo/.git/modules/sub/config": origin("x:sub"),
            "repo/sub/.git": "gitdir: ../.git/modules/sub\n",
        },
        at="repo/sub",
        root="~/repo/sub",
        remote="x:sub",
        branch="main",
    ),
    "bare repository": Case(
        files={"x.git/HEAD": MAIN, "x.git/objects/": "", "x.git/refs/": "", "x.git/config": origin(URL)},
        at="x.git",
        root="~/x.git",
        remote=URL,
        branch="main",
    ),
    "inside the git folder": Case(
        files={**repo(), "repo/.git/objects/": "", "repo/.git/refs/": ""}, at="repo/.git/refs", remote=URL, branch="main"
    ),
    "nested": Case(
        files={**repo(), **repo("repo/inner", HTTPS)}, at="repo/inner", root="~/repo/inner", remote=HTTPS, branch="main"
    ),
    "an empty git folder is none": Case(files={**repo(), "repo/a/.git/": ""}, at="repo/a", remote=URL, branch="main"),
    "a git file that says nothing": Case(files={"repo/.git": "rubbish"}),
    "mercurial": Case(
        files={"repo/.hg/hgrc": "[ui]\ndefault = x\n[paths]\ndefault = https://me@hg.example.org/x\n"},
        remote="https://hg.example.org/x",
    ),
    "subversion": Case(files={"repo/.svn/": "", "repo/a/": ""}, at="repo/a"),
    "nothing": Case(files={"plain/a/": ""}, at="plain/a", root="~/plain/a"),
    "home": Case(files={}, at=".", root="~"),
    "home is a checkout": Case(files=repo("."), at=".", root="~", remote=URL, branch="main"),
    "project in a file": Case(files={**repo(), "repo/.cmserver.toml": 'project = "orders"\n'}, project="orders", remote=URL),
    "project without git": Case(
        files={"plain/.cmserver.toml": "# ours\n project='my orders' # x\n[x]\nother='no'", "plain/a/": ""},
        at="plain/a",
        root="~/plain",
        project="my orders",
    ),
    "project of a part": Case(
        files={**repo(), "repo/part/.cmserver.toml": 'enabled = true\nproject = "a \\"part\\""\r\n'},
        at="repo/part",
        root="~/repo/part",
        project='a "part"',
        remote=URL,
        branch="main",
    ),
    "project above the checkout is another's": Case(
        files={**repo(), ".cmserver.toml": "project = 'all'"}, remote=URL, branch="main"
    ),
    "name in a file of Contextify": Case(
        files={**repo(), "repo/.contextify.yml": "# ours\nversion: 1\nname: orders # the shop\n"},
        project="orders",
        remote=URL,
        branch="main",
    ),
    "quoted name of Contextify": Case(
        files={"plain/.contextify.yml": "name: 'my orders'\n", "plain/a/": ""}, at="plain/a", root="~/plain", project="my orders"
    ),
    "Contextify's name is below ours": Case(
        files={**repo(), "repo/.cmserver.toml": 'project = "ours"\n', "repo/part/.contextify.yml": "name: theirs\n"},
        at="repo/part",
        root="~/repo",
        project="ours",
        remote=URL,
        branch="main",
    ),
    "Contextify's name above the checkout is another's": Case(
        files={**repo(), ".contextify.yml": "name: all"}, remote=URL, branch="main"
    ),
    "Contextify's name of a part": Case(
        files={**repo(), "repo/part/.contextify.yml": 'name: "part"\n'},
        at="repo/part",
        root="~/repo/part",
        project="part",
        remote=URL,
        branch="main",
    ),
    "no name of Contextify": Case(files={**repo(), "repo/.contextify.yml": "name: # none\nnames: x\n"}, remote=URL, branch="main"),
    "project cannot forge headers": Case(files={"repo/.cmserver.toml": 'project = "a\rX-Evil: 1"'}, project="a?X-Evil: 1"),
}


def build(home: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = home / name
        if name.endswith("/"):
            path.mkdir(parents=True, exist_ok=True)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        if text.startswith("-> "):
            path.symlink_to(home / text[3:])
        else:
            path.write_bytes(text.replace("~", str(home)).encode())


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_a_folder_belongs_to_a_project(agent: Agent, server: Recorder, case: Case):
    build(agent.home, case.files)

    agent.hook("Stop", cwd=agent.home / case.at)

    headers = {name: value.encode("latin-1").decode() for name, value in server.sent[0].headers.items()}
    assert headers.get("x-cmserver-project") == case.project
    assert headers.get("x-cmserver-git-remote") == case.remote
    assert headers.get("x-cmserver-root") == (case.root or "").replace("~", str(agent.home))
    if case.branch:
        assert headers.get("x-cmserver-git-branch") == case.branch
    assert "x-evil" not in headers


def test_the_root_folder(agent: Agent, server: Recorder):
    agent.hook("Stop", cwd=Path("/"))

    assert server.sent[0].headers["x-cmserver-root"] == "/"


def test_all_ways_to_name_a_remote_are_one_project(agent: Agent, server: Recorder):
    names = [URL, HTTPS, "ssh://git@github.com/acme/orders", "https://me:pw@GitHub.com/acme/orders/", "github.com:acme/orders"]
    for number, url in enumerate(names):
        build(agent.home, repo(f"repo-{number}", url))
        agent.hook("Stop", cwd=agent.home / f"repo-{number}")

    assert {canonical_id(sent.headers["x-cmserver-git-remote"]) for sent in server.sent} == {"github.com/acme/orders"}


NAMELESS = {
    "alice@git.corp:acme/x.git": "git@git.corp:acme/x.git",
    "alice@forge:acme/x": "git@forge:acme/x",
    "alice@corp.com@host:x": "git@host:x",
    "alice@corp.com@host:x@y/z": "git@host:x@y/z",
    "alice@host:x@y": "git@host:x@y",
    "me@host:a/b@c:d": "git@host:a/b@c:d",
    "[alice@host:22]:x": "git@host:22]:x",
    "git@host:x": "git@host:x",
}
"""What is sent of a remote."""


def test_the_name_of_a_remote_s_user_is_not_sent_and_its_project_is_the_same(agent: Agent, server: Recorder):
    for number, url in enumerate(NAMELESS):
        build(agent.home, repo(f"repo-{number}", url))
        agent.hook("Stop", cwd=agent.home / f"repo-{number}")

    sent = [sent.headers["x-cmserver-git-remote"] for sent in server.sent]
    assert dict(zip(NAMELESS, sent, strict=True)) == NAMELESS
    assert [canonical_id(url) for url in sent] == [canonical_id(url) for url in NAMELESS]


def test_the_folder_of_the_session_counts_for_the_agent_that_tells_it(tmp_path: Path, shell: Path, server: Recorder):
    (tmp_path / "here").mkdir()
    env = {"CLAUDE_PROJECT_DIR": str(tmp_path / "here")}
    for name in ("claude-code", "codex"):
        one = Agent(tmp_path / name, shell, server.url, name)
        one.hook("Stop", env=env)

    assert [sent.headers["x-cmserver-root"] for sent in server.sent] == [str(tmp_path / "here"), str(tmp_path / "codex/home/work")]


def test_a_folder_that_is_gone_is_named_as_it_was(agent: Agent, server: Recorder):
    agent.hook("Stop", env={"CLAUDE_PROJECT_DIR": "/nowhere/at all"})

    assert server.sent[0].headers["x-cmserver-root"] == "/nowhere/at all"


@pytest.mark.parametrize(
    ("files", "at"),
    [
        ({"repo/.cmserver.toml": "enabled = false\n"}, "repo"),
        ({**repo(), "repo/.cmserver.toml": "project = 'x'\nenabled=false # not this"}, "repo"),
        ({**repo("private/a"), "private/.cmserver.toml": "enabled = false"}, "private/a"),
    ],
    ids=["plain", "with a project", "above the checkout"],
)
def test_a_folder_can_say_that_it_is_nobody_s_business(agent: Agent, server: Recorder, files: dict[str, str], at: str):
    build(agent.home, files)

    assert agent.hook("SessionStart", cwd=agent.home / at) == {}
    assert (server.sent, agent.left.waiting) == ([], 0)


@pytest.mark.parametrize(
    ("files", "env", "is_private"),
    [
        ({"repo/.cmserver.toml": "private = true\n"}, {}, True),
        ({**repo(), ".cmserver.toml": "private = true", "repo/.cmserver.toml": "private = false\nproject = 'x'"}, {}, True),
        ({**repo(), "repo/.cmserver.toml": "private = false\n"}, {}, False),
        ({**repo(), "repo/.cmserver.toml": "private = false\n"}, {"CMSERVER_PRIVATE": "1"}, True),
        (repo(), {"CMSERVER_PRIVATE": "true"}, True),
        (repo(), {"CMSERVER_PRIVATE": "0"}, False),
        (repo(), {}, False),
    ],
    ids=["the folder", "a folder above", "not", "the environment before the folder", "the environment", "neither", "no word"],
)
def test_what_is_said_here_is_private(agent: Agent, server: Recorder, files: dict[str, str], env: dict[str, str], is_private: bool):
    build(agent.home, files)

    agent.hook("SessionStart", cwd=agent.home / "repo", env=env)
    agent.hook("UserPromptSubmit", cwd=agent.home / "repo", env=env)

    assert [sent.headers.get("x-cmserver-private") for sent in server.sent] == ["1" if is_private else None] * 2


def test_what_is_sent_late_is_as_private_as_it_was(agent: Agent, server: Recorder):
    build(agent.home, repo())
    server.stop()
    agent.hook("Stop", cwd=agent.home / "repo", env={"CMSERVER_PRIVATE": "1"})
    agent.until_idle()
    server.start()
    agent.end_pause()
    agent.hook("Stop", cwd=agent.home / "repo")
    agent.until_drained()

    assert sorted(str(sent.headers.get("x-cmserver-private")) for sent in server.sent) == ["1", "None"]


def test_the_nearest_word_counts(agent: Agent, server: Recorder):
    build(agent.home, {"private/.cmserver.toml": "enabled = false", "private/a/.cmserver.toml": "enabled = true"})

    assert agent.hook("Stop", cwd=agent.home / "private/a") == {"answer": True}


@pytest.mark.parametrize(
    ("pattern", "is_excluded"),
    [
        ("~/repo", True),
        ("~/repo/", True),
        ("~", True),
        ("*/repo", True),
        ("/nowhere:~/re*", True),
        ("/nowhere\n  ~/repo/a  \n", True),
        ("github.com/acme/*", True),
        ("github.com/acme", True),
        ("github.com/acme/orders", True),
        ("GitHub.com/ACME/*", True),
        ("~/Repo", False),
        ("~/rep", False),
        ("repo", False),
        ("github.com/other/*", False),
        ("", False),
        (":\n:", False),
        ("$(touch ~/evil)", False),
    ],
)
def test_folders_and_remotes_can_be_excluded(agent: Agent, server: Recorder, pattern: str, is_excluded: bool):
    build(agent.home, {**repo(), "repo/a/": ""})
    agent.configure(URL=server.url, EXCLUDE=pattern)

    agent.hook("SessionStart", cwd=agent.home / "repo" / "a")

    assert (server.sent == []) is is_excluded
    assert agent.left.waiting == 0


@pytest.mark.parametrize(
    ("remote", "pattern", "is_excluded"),
    [
        ("git@github.com:Acme/Orders.git", "github.com/acme/orders", True),
        ("https://GitLab.com/Acme/Sub/Orders", "gitlab.com/acme", True),
        ("ssh://git@ssh.github.com:443/Acme/Orders.git", "github.com/acme/*", True),
        ("ssh://git@altssh.gitlab.com:443/acme/orders.git", "gitlab.com/acme", True),
        ("https://www.bitbucket.org/acme/orders", "bitbucket.org/acme", True),
        ("ssh://git@stash.corp:7999/proj/repo.git", "stash.corp/proj", True),
        ("ssh://git@stash.corp:7999/proj/repo.git", "stash.corp:7999/proj", True),
        ("https://www.example.org/acme/orders", "example.org/acme", False),
        ("git@git.example.org:Acme/Orders.git", "git.example.org/acme/orders", False),
        ("git@git.example.org:Acme/Orders.git", "git.example.org/Acme/Orders", True),
        ("alice@git.example.org:Acme/Orders.git", "git.example.org/Acme/Orders", True),
        ("alice@corp.com@forge:acme/orders", "forge/acme", True),
    ],
)
def test_a_remote_is_excluded_in_any_case_where_its_host_ignores_it(
    agent: Agent, server: Recorder, remote: str, pattern: str, is_excluded: bool
):
    build(agent.home, {"repo/.git/HEAD": "ref: refs/heads/main\n", "repo/.git/config": f'[remote "origin"]\n\turl = {remote}\n'})
    agent.configure(URL=server.url, EXCLUDE=pattern)

    agent.hook("SessionStart", cwd=agent.home / "repo")

    assert (server.sent == []) is is_excluded


def test_a_folder_that_is_excluded_by_a_link_to_it_is_excluded(agent: Agent, server: Recorder):
    build(agent.home, repo("data/secret/x"))
    (agent.home / "link").symlink_to(agent.home / "data/secret")
    agent.configure(URL=server.url, EXCLUDE="~/link")

    agent.hook("Stop", {"number": 1}, cwd=agent.home / "data/secret")
    agent.hook("Stop", {"number": 2}, cwd=agent.home / "data/secret/x")
    agent.hook("Stop", {"number": 3}, cwd=agent.home / "data")

    assert server.numbers() == [3]


@pytest.mark.parametrize(
    "line", ['"enabled" = false', "'enabled'=false", "\ufeffenabled = false", " " * 40 + "enabled = false", "enabled = 'false'"]
)
def test_a_folder_that_says_so_in_another_way_is_excluded(agent: Agent, server: Recorder, line: str):
    build(agent.home, {"repo/.cmserver.toml": line + "\n"})

    agent.hook("Stop", {"number": 1}, cwd=agent.home / "repo")

    assert server.sent == []


def test_a_remote_that_was_another_is_told_once_by_the_next_call(agent: Agent, server: Recorder):
    place = agent.home / "repo"
    build(agent.home, {"repo/.git/description": ""})
    os.utime(place / ".git" / "description", (1, 1))
    for event, url in [("SessionStart", "x:old"), ("Stop", "x:new"), ("SessionStart", "x:new"), ("SessionStart", "x:new")]:
        build(agent.home, repo(url=url))
        agent.hook(event, cwd=place)

    assert [sent.headers.get("x-cmserver-name-before") for sent in server.sent] == [None, "x:old", None, None]


def test_another_repository_in_the_same_place_was_never_called_like_the_one_before(agent: Agent, server: Recorder):
    build(agent.home, {**repo(url="x:one"), "repo/.git/description": ""})
    agent.hook("SessionStart", cwd=agent.home / "repo")
    (note,) = (agent.folder / "state").glob("name-*")
    os.utime(note, (1, 1))
    build(agent.home, {**repo(url="x:other"), "repo/.git/description": ""})

    agent.hook("SessionStart", cwd=agent.home / "repo")

    assert [sent.headers["x-cmserver-git-remote"] for sent in server.sent] == ["x:one", "x:other"]
    assert "x-cmserver-name-before" not in server.sent[1].headers


REMOTE = {".git/config": '[remote "origin"]\n\turl = x:new\n'}
"""Files of a folder that has a remote."""


@pytest.mark.parametrize(
    ("later", "name"),
    [
        ({"repo/.git/HEAD": "ref: refs/heads/main\n", **{f"repo/{path}": text for path, text in REMOTE.items()}}, "repo"),
        ({"repo/.cmserver.toml": 'project = "the shop"'}, "repo"),
        ({".git/HEAD": "ref: refs/heads/main\n"}, "repo"),
        (REMOTE, "repo"),
    ],
    ids=["a remote", "a .cmserver.toml", "a repository above it", "a repository above it that has a remote"],
)
def test_a_folder_that_gets_a_name_says_how_it_was_called(agent: Agent, server: Recorder, later: dict[str, str], name: str):
    place = agent.home / name
    build(agent.home, {f"{name}/a.txt": ""})
    agent.hook("SessionStart", cwd=place)
    build(agent.home, later)

    agent.hook("SessionStart", cwd=place)

    before = [sent.headers.get("x-cmserver-name-before") for sent in server.sent]
    assert before == ([None, str(place)] if has_birth_times(place) else [None, None])


def test_a_repository_that_gets_its_first_remote_says_how_it_was_called(agent: Agent, server: Recorder):
    place = agent.home / "repo"
    build(agent.home, {"repo/.git/HEAD": "ref: refs/heads/main\n", "repo/.git/description": ""})
    os.utime(place / ".git" / "description", (1, 1))
    agent.hook("SessionStart", cwd=place)
    build(agent.home, {f"repo/{path}": text for path, text in REMOTE.items()})

    agent.hook("Stop", cwd=place)

    assert [sent.headers.get("x-cmserver-name-before") for sent in server.sent] == [None, str(place)]


def test_a_renamed_folder_says_how_it_was_called(agent: Agent, server: Recorder):
    build(agent.home, {"old/a.txt": ""})
    agent.hook("SessionStart", cwd=agent.home / "old")
    (agent.home / "old").rename(agent.home / "new")

    agent.hook("SessionStart", cwd=agent.home / "new")

    before = [sent.headers.get("x-cmserver-name-before") for sent in server.sent]
    assert before == ([None, str(agent.home / "old")] if has_birth_times(agent.home) else [None, None])


def test_another_folder_in_the_place_of_one_was_never_called_like_it(agent: Agent, server: Recorder):
    place = agent.home / "repo"
    build(agent.home, {"repo/a.txt": ""})
    agent.hook("SessionStart", cwd=place)
    place.rename(agent.home / "kept")
    build(agent.home, {f"repo/{path}": text for path, text in REMOTE.items()})

    agent.hook("SessionStart", cwd=place)

    assert [sent.headers.get("x-cmserver-name-before") for sent in server.sent] == [None, None]


def has_birth_times(place: Path) -> bool:
    """Whether the file system tells when a folder was made: else it is not known for the same one."""
    told = subprocess.run(["stat", "-c", "%W", str(place)], capture_output=True, text=True, check=False).stdout.strip()
    return told.isdigit() and int(told) > 0


@pytest.mark.parametrize("name", [".cmserver.toml", ".git/HEAD", ".git/commondir", ".hg/hgrc"])
@pytest.mark.parametrize("target", ["/dev/stdin", "pipe"])
def test_what_is_no_file_is_not_read(agent: Agent, server: Recorder, name: str, target: str):
    files = {"repo/.hg/": ""} if name.startswith(".hg") else repo()
    build(agent.home, {path: text for path, text in files.items() if path != f"repo/{name}"})
    place = agent.home / "repo" / name
    if target == "pipe":
        os.mkfifo(place)
    else:
        place.symlink_to(target)

    assert agent.hook("Stop", {"number": 1}, cwd=agent.home / "repo") == {"answer": True}
    assert server.numbers() == [1]


@pytest.mark.parametrize("packed", [False, True], ids=["loose", "packed"])
def test_a_session_s_start_tells_what_the_branch_has_changed(agent: Agent, server: Recorder, packed: bool):
    place = agent.home / "repo"
    place.mkdir()
    names = ["committed.py", "ümlaut und leer.py", "same.py", 'quote".py']
    _git(place, "init", "-q", "-b", "main")
    for name in names:
        (place / name).write_text("1")
    _git(place, "add", ".")
    _git(place, "commit", "-qm", "1")
    _git(place, "update-ref", "refs/remotes/origin/main", "HEAD")
    if packed:
        _git(place, "pack-refs", "--all")
    (place / "committed.py").write_text("2")
    _git(place, "commit", "-qam", "2")
    for name in names[1:2] + names[3:]:
        (place / name).write_text("another size, for git is not let look into files")

    agent.hook("Stop", cwd=place)
    told = None
    while not told and len(server.sent) < 30:  # git does not get long, and the machine may be busy
        agent.hook("SessionStart", cwd=place)
        told = server.sent[-1].headers.get("x-cmserver-changed-files")

    assert told
    assert told.encode("latin-1").decode().split("\t") == ["committed.py", "ümlaut und leer.py"]
    assert "x-cmserver-changed-files" not in server.sent[0].headers


def test_gemini_s_first_prompt_after_a_start_tells_what_the_branch_has_changed(tmp_path: Path, shell: Path, server: Recorder):
    agent = Agent(tmp_path, shell, server.url, "gemini")
    place = agent.home / "repo"
    place.mkdir()
    _git(place, "init", "-q", "-b", "main")
    (place / "file").write_text("1")
    _git(place, "add", ".")
    _git(place, "commit", "-qm", "1")
    (place / "file").write_text("22")
    session = {"GEMINI_SESSION_ID": "g-1"}

    told: list[str | None] = []
    while not any(told) and len(server.sent) < 30:  # git does not get long, and the machine may be busy
        agent.hook("SessionStart", cwd=place, env=session)
        agent.hook("BeforeAgent", cwd=place, env={"GEMINI_SESSION_ID": "../g-1"})
        agent.hook("BeforeAgent", cwd=place, env=session)
        agent.hook("BeforeAgent", cwd=place, env=session)
        told = [sent.headers.get("x-cmserver-changed-files") for sent in server.sent[-4:]]
    agent.until_idle()

    assert told == [None, None, "file", None]
    assert not (agent.folder / "state" / "begun-g-1").exists()


def test_programs_that_a_repository_brings_along_are_not_run(agent: Agent, server: Recorder):
    made, place = agent.home / "made", agent.home / "repo"
    made.mkdir()
    _git(made, "init", "-q")
    (made / ".gitattributes").write_text("* filter=evil\n")
    (made / "file").write_text("1")
    _git(made, "add", ".")
    _git(made, "commit", "-qm", "1")
    for name, value in [
        ("filter.evil.clean", f"touch '{agent.home}/evil'; cat"),
        ("core.fsmonitor", f"touch '{agent.home}/evil'"),
        ("core.trustctime", "false"),
        ("core.checkStat", "minimal"),
    ]:
        _git(made, "config", name, value)
    shutil.copytree(made, place)  # as an archive is unpacked: with the times that it says

    told = None
    while not told and len(server.sent) < 30:  # git does not get long, and the machine may be busy
        agent.hook("SessionStart", cwd=place)
        told = server.sent[-1].headers.get("x-cmserver-changed-files")

    assert told == ".gitattributes\tfile"
    assert not (agent.home / "evil").exists()


def test_a_git_that_never_ends_is_not_waited_for(agent: Agent, server: Recorder):
    build(agent.home, repo())
    (agent.home / "repo" / ".git" / "index").write_text("without it git is not asked")
    agent.keep_limits()
    pids = agent.home / "pids"
    (agent.bin / "git").write_text(f"#!/bin/sh\necho $$ >> '{pids}'\nexec sleep 600\n")
    (agent.bin / "git").chmod(0o755)

    agent.hook("SessionStart", cwd=agent.home / "repo")
    for pid in pids.read_text().split():
        with suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)

    assert "x-cmserver-changed-files" not in server.sent[0].headers


def _git(folder: Path, *words: str) -> None:
    env = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "HOME": str(folder)}
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run(["git", *who, *words], cwd=folder, env=env, check=True)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "URL=http://127.0.0.1:1\n",
        "URL='ftp://x'\n",
        "URL='http://x y'\n",
        "URL='$(touch evil)'\n",
        "URL='http://127.0.0.1:1/\"; upload-file = \"/etc/passwd'\n",
        "URL='http://",
        "\0\xff\n'''\n",
    ],
    ids=["empty", "bare", "ftp", "space", "command", "curl", "open", "rubbish"],
)
def test_a_config_without_a_server_sends_nothing(agent: Agent, server: Recorder, text: str):
    (agent.folder / "config").write_text(text, encoding="latin-1")

    started, later = agent.hook("SessionStart"), agent.hook("Stop")

    assert "cmserver connect claude-code" in str(started["systemMessage"])
    assert later == {}
    assert not list(agent.home.rglob("evil"))


def test_hostile_values_of_a_config_are_only_text(agent: Agent, server: Recorder):
    (agent.folder / "config").write_text(
        f"PATH='/evil'\nURL='{server.url}'\nIFS='x'\nEXCLUDE='$(touch evil)\n`touch evil`\nURL=\\'http://127.0.0.1:1\\'\nit'\\''s'\n"
        "SPOOL_MAX_BYTES='$(touch evil)'\nSPOOL_MAX_SECONDS='010; touch evil'\nnow='1'\n$(touch evil)\n"
    )

    assert agent.hook("Stop") == {"answer": True}
    assert not list(agent.home.rglob("evil"))


# -- Windows, whose paths Git's shell knows in a form of its own


@pytest.mark.parametrize(
    ("system", "folder", "root"),
    [
        ("MINGW64", "/c/Users/me/orders", "C:/Users/me/orders"),
        ("MSYS", "/d", "D:/"),
        ("MINGW64", "/c/My Work/a b", "C:/My Work/a b"),
        ("MINGW64", "/home/me/orders", "/home/me/orders"),
        ("", "/c/Users/me/orders", "/c/Users/me/orders"),
    ],
)
def test_a_folder_is_told_as_windows_names_it(agent: Agent, server: Recorder, system: str, folder: str, root: str):
    env = {"CLAUDE_PROJECT_DIR": folder, **({"MSYSTEM": system} if system else {})}

    agent.hook("SessionStart", env=env)
    named = subprocess.run(
        [agent.bin / "sh", agent.folder / "hook", "project"],
        env={"PATH": agent.path, **env},
        capture_output=True,
        text=True,
        check=False,
    )

    assert server.sent[-1].headers["x-cmserver-root"] == root
    assert named.stdout == f"{root}\n"


def test_a_folder_in_the_form_of_windows_is_the_one_that_the_shell_knows(agent: Agent, server: Recorder):
    """Git's shell knows it by its drive; here a folder of that name stands for it."""
    folder = agent.folder / r"C:\Users\me\my orders"
    folder.mkdir()

    for named in (folder.name, r"D:\nowhere"):
        agent.hook("SessionStart", env={"CLAUDE_PROJECT_DIR": named})

    assert [sent.headers["x-cmserver-root"] for sent in server.sent] == [str(folder), str(agent.work)]
