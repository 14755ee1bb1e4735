"""Project ids as clients of Contextify send them: what each becomes, in a table."""

from __future__ import annotations

from cmserver.access.projects import canonical_id
from tests.table import try_rows

URLS = {
    "github.com/user/repo": "github.com/user/repo",
    "gitlab.com/group/sub/repo": "gitlab.com/group/sub/repo",
    "bitbucket.org/user/repo": "bitbucket.org/user/repo",
    "codeberg.org/user/repo": "codeberg.org/user/repo",
    "sr.ht/~user/repo": "sr.ht/~user/repo",
    "dev.azure.com/org/project/_git/repo": "dev.azure.com/org/project/_git/repo",
    "https://github.com/user/repo.git": "github.com/user/repo",
    "https://github.com/user/repo": "github.com/user/repo",
    "https://github.com/user/repo/": "github.com/user/repo",
    "https://github.com/user/repo.git/": "github.com/user/repo",
    "http://github.com/user/repo.git": "github.com/user/repo",
    "git://github.com/user/repo.git": "github.com/user/repo",
    "ssh://git@github.com/user/repo.git": "github.com/user/repo",
    "git+ssh://git@github.com/user/repo.git": "github.com/user/repo",
    "ssh://git@git.example.org:2222/team/repo.git": "git.example.org/team/repo",
    "git@github.com:user/repo.git": "github.com/user/repo",
    "git@github.com:user/repo": "github.com/user/repo",
    "git@gitlab.com:group/sub/repo.git": "gitlab.com/group/sub/repo",
    "deploy@git.example.org:team/repo.git": "git.example.org/team/repo",
    "git@ssh.dev.azure.com:v3/org/project/repo": "ssh.dev.azure.com/v3/org/project/repo",
    "https://org@dev.azure.com/org/project/_git/repo": "dev.azure.com/org/project/_git/repo",
    "https://user:secret@github.com/user/repo.git": "github.com/user/repo",
    "https://oauth2:token@gitlab.com/group/repo.git": "gitlab.com/group/repo",
    "  git@github.com:user/repo.git\n": "github.com/user/repo",
}
OTHER_CASE = {
    "https://GitHub.com/user/repo.git": "github.com/user/repo",
    "github.com/User/Repo": "github.com/user/repo",
    "git@Git.Example.org:Team/Repo.git": "git.example.org/Team/Repo",
}
"""Where ours differs: a host has no case, nor has a path where its host knows none."""
PATHS = {
    "/home/alice/work/orders": "/home/alice/work/orders",
    "/home/alice/work/orders/": "/home/alice/work/orders",
    "/home/alice/orders/.claude/worktrees/fix-1": "/home/alice/orders",
    "/home/alice/orders/.claude/worktrees/fix-1/": "/home/alice/orders",
    "/home/alice/orders/.claude/worktrees/fix-1/src": "/home/alice/orders/.claude/worktrees/fix-1/src",
    "/home/alice/orders/.claude/worktrees": "/home/alice/orders/.claude/worktrees",
    "/": "/",
    "file:///srv/git/orders": "/srv/git/orders",
}
NAMES = {
    "orders": "orders",
    "my orders": "my orders",
    "@acme/widgets": "@acme/widgets",
}
CASES = {**URLS, **OTHER_CASE, **PATHS, **NAMES}


@try_rows(("sent", "canonical"), CASES.items())
def test_one_project_has_one_id(sent: str, canonical: str):
    assert canonical_id(sent) == canonical


@try_rows("sent", CASES)
def test_an_id_is_its_own(sent: str):
    assert canonical_id(canonical_id(sent)) == canonical_id(sent)
