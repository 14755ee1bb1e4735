"""Paths as they are kept: from the root of the repository."""

from __future__ import annotations

from cmserver.tooluse.model import WorkingFolder
from tests.table import try_rows


@try_rows(
    ("path", "folder", "expected"),
    [
        ("/src/shop/app.py", WorkingFolder("/src/shop"), "app.py"),
        ("/src/shop/app.py", WorkingFolder("/src/shop/"), "app.py"),
        ("/src/shopping/app.py", WorkingFolder("/src/shop"), "/src/shopping/app.py"),
        ("./app.py", WorkingFolder("/src/shop"), "app.py"),
        ("app.py", WorkingFolder(), "app.py"),
        ("/src/shop/packages/api/app.py", WorkingFolder("/src/shop", "/src/shop/packages/api"), "packages/api/app.py"),
        ("/src/shop/app.py", WorkingFolder("/src/shop", "/src/shop/packages/api"), "app.py"),
        ("app.py", WorkingFolder("/src/shop", "/src/shop/packages/api"), "packages/api/app.py"),
        ("./app.py", WorkingFolder("/src/shop", "/src/shop/packages/api"), "packages/api/app.py"),
        ("../web/app.ts", WorkingFolder("/src/shop", "/src/shop/packages/api"), "packages/web/app.ts"),
        ("/etc/hosts", WorkingFolder("/src/shop", "/src/shop/packages/api"), "/etc/hosts"),
        ("~/notes.md", WorkingFolder("/src/shop", "/src/shop/packages/api"), "~/notes.md"),
        ("", WorkingFolder("/src/shop", "/src/shop/packages/api"), ""),
    ],
)
def test_a_path_is_seen_from_the_root(path: str, folder: WorkingFolder, expected: str):
    assert folder.relative(path) == expected
