"""Project ids as clients of Contextify send them: what each becomes, in a table."""

from __future__ import annotations

from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from cmserver.access.projects import canonical_id, display_name
from cmserver.base.errors import Invalid
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
SECOND_ADDRESSES = {
    "ssh://git@ssh.github.com:443/acme/orders.git": "github.com/acme/orders",
    "https://www.github.com/acme/orders": "github.com/acme/orders",
    "www.github.com/acme/orders?tab=readme": "github.com/acme/orders",
    "ssh://git@altssh.gitlab.com:443/g/sub/app.git": "gitlab.com/g/sub/app",
    "https://www.gitlab.com/g/sub/app/": "gitlab.com/g/sub/app",
    "ssh://git@altssh.bitbucket.org:443/acme/orders.git": "bitbucket.org/acme/orders",
    "https://www.bitbucket.org/acme/orders.git": "bitbucket.org/acme/orders",
    "git@ssh.dev.azure.com:v3/org/Proj/repo": "dev.azure.com/org/proj/_git/repo",
    "https://dev.azure.com/org/repo/_git/repo": "dev.azure.com/org/repo/_git/repo",
    "https://dev.azure.com/org/_git/repo": "dev.azure.com/org/repo/_git/repo",
    "https://org.visualstudio.com/proj/_git/repo": "dev.azure.com/org/proj/_git/repo",
    "https://org.visualstudio.com/DefaultCollection/proj/_git/repo": "dev.azure.com/org/proj/_git/repo",
    "https://org.visualstudio.com/_git/repo": "dev.azure.com/org/repo/_git/repo",
    "org@vs-ssh.visualstudio.com:v3/org/proj/repo": "dev.azure.com/org/proj/_git/repo",
    "https://www.example.org/acme/orders": "www.example.org/acme/orders",
}
HASHES = {
    "git@nas:/srv/git/C#/app.git": "nas/srv/git/C#/app",
    "git@nas.corp:/srv/git/C#/app.git": "nas.corp/srv/git/C#/app",
    "nas.corp:git/why?/app.git": "nas.corp/git/why?/app",
    "ssh://git@nas2/srv/git/F#/app.git": "nas2/srv/git/F#/app",
    "ssh://git@nas2:22/srv/git/F#/app.git": "nas2/srv/git/F#/app",
    "git://nas2/srv/git/F#/why?.git": "nas2/srv/git/F#/why?",
    "git+ssh://git@nas2/F#/app": "nas2/F#/app",
    "file:///srv/git/C#/app.git": "/srv/git/C#/app.git",
    "/srv/git/C#/app?": "/srv/git/C#/app?",
    "https://git.example.org/team/app.git?ref=main#readme": "git.example.org/team/app",
    "https://git.example.org?a=b": "git.example.org",
    "https://github.com/acme/orders#readme": "github.com/acme/orders",
    "github.com/acme/orders#readme": "github.com/acme/orders",
}
WINDOWS = {
    "C:\\Users\\me\\proj": "C:/Users/me/proj",
    "c:\\Users\\me\\proj": "C:/Users/me/proj",
    "C:/Users/me/proj": "C:/Users/me/proj",
    "C:\\Users\\me\\proj\\": "C:/Users/me/proj",
    "c:/Users\\me/proj//": "C:/Users/me/proj",
    "file:///c:/Users/me/proj": "C:/Users/me/proj",
    "C:\\Users\\me\\proj\\.claude\\worktrees\\fix-1": "C:/Users/me/proj",
    "d:\\": "D:/",
    "D:/": "D:/",
    "d:": "D:/",
    "\\\\server\\share\\proj\\": "//server/share/proj",
    "//server/share/proj": "//server/share/proj",
}
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
DOUBLED = {
    "C:\\\\Users\\\\me\\\\repo": "C:/Users/me/repo",
    "/home/me/a/.claude/worktrees/x/.claude/worktrees/y": "/home/me/a",
    "/home/me/a/.claude/worktrees/x//": "/home/me/a",
}
NAMES = {
    "orders": "orders",
    "my orders": "my orders",
    "@acme/widgets": "@acme/widgets",
}
CASES = {**URLS, **OTHER_CASE, **SECOND_ADDRESSES, **HASHES, **WINDOWS, **PATHS, **DOUBLED, **NAMES}


@try_rows(("sent", "canonical"), CASES.items())
def test_one_project_has_one_id(sent: str, canonical: str):
    assert canonical_id(sent) == canonical


@try_rows("sent", CASES)
def test_an_id_is_its_own(sent: str):
    assert canonical_id(canonical_id(sent)) == canonical_id(sent)


PARTS = [
    *("/", "//", "\\", "\\\\", "C:", "c:", ".claude/worktrees/x", "/.claude/worktrees/", "acme", "@", ":", "github.com", ".git"),
    *("WWW.github.com", "ssh://", "https://", "file://", "?", "#", "22", ".", "_git", "dev.azure.com", "..", "-", "~"),
]


@given(st.lists(st.sampled_from(PARTS), min_size=1, max_size=8))
def test_any_id_is_its_own(parts: list[str]):
    with suppress(Invalid):
        canonical = canonical_id("".join(parts))
        assert canonical_id(canonical) == canonical


@try_rows(
    ("canonical", "shown"),
    [
        ("/srv/git/app.git", "app"),
        ("/home/alice/app/.bare", "app"),
        ("/home/alice/app/.git", "app"),
        ("/.git", ".git"),
        ("C:/Users/me/proj", "proj"),
        ("github.com/acme/orders", "orders"),
        ("/", "/"),
    ],
)
def test_a_project_is_shown_by_its_last_part_and_a_bare_repository_by_its_folder(canonical: str, shown: str):
    assert display_name(canonical) == shown
