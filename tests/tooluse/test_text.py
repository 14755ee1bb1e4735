"""Paths as they are kept: from the root of the repository."""

from __future__ import annotations

from cmserver.tooluse.text import relative
from tests.table import try_rows


@try_rows(
    ("path", "root", "expected"),
    [
        ("/src/shop/app.py", "/src/shop", "app.py"),
        ("/src/shop/app.py", "/src/shop/", "app.py"),
        ("/src/shopping/app.py", "/src/shop", "/src/shopping/app.py"),
        ("./app.py", "/src/shop", "app.py"),
        ("app.py", None, "app.py"),
        ("/src/shop/packages/api/app.py", "/src/shop/./packages/api", "packages/api/app.py"),
        ("/src/shop/app.py", "/src/shop/./packages/api", "app.py"),
        ("app.py", "/src/shop/./packages/api", "packages/api/app.py"),
        ("./app.py", "/src/shop/./packages/api", "packages/api/app.py"),
        ("../web/app.ts", "/src/shop/./packages/api", "packages/web/app.ts"),
        ("/etc/hosts", "/src/shop/./packages/api", "/etc/hosts"),
        ("~/notes.md", "/src/shop/./packages/api", "~/notes.md"),
        ("", "/src/shop/./packages/api", ""),
    ],
)
def test_a_path_is_seen_from_the_root(path: str, root: str | None, expected: str):
    assert relative(path, root) == expected
