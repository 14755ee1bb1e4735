"""Paths as they are kept: from the root of the repository."""

from __future__ import annotations

from cmserver.tooluse.model import WorkingFolder, find_working_folder
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
        ("/src/shop/", WorkingFolder("/src/shop"), "."),
        ("/etc/hosts", WorkingFolder("/", "/"), "/etc/hosts"),
        (r"C:\src\shop\web\app.ts", WorkingFolder("C:/src/shop", r"C:\src\shop\web"), "web/app.ts"),
        (r"c:\src\shop\app.ts", WorkingFolder("C:\\src\\shop\\"), "app.ts"),
        (r"lib\app.ts", WorkingFolder("C:/src/shop", r"C:\src\shop\web"), "web/lib/app.ts"),
        (r"..\app.ts", WorkingFolder(r"C:\src\shop", r"C:\src\shop\web"), "app.ts"),
        (r"D:\app.ts", WorkingFolder(r"C:\src\shop"), "D:/app.ts"),
    ],
)
def test_a_path_is_seen_from_the_root(path: str, folder: WorkingFolder, expected: str):
    assert folder.relative(path) == expected


@try_rows(
    ("root", "folder", "expected"),
    [
        ("/src/shop/", "/src/shop/web", "/src/shop"),
        ("/src/shop", "/src/shop", "/src/shop"),
        ("/src/shop", "/src/shopping", "/src/shopping"),
        ("/src/shop", None, "/src/shop"),
        (None, "/src/shop", "/src/shop"),
        ("C:/src/shop", r"C:\src\shop\web", "C:/src/shop"),
        (None, None, ""),
    ],
)
def test_the_root_is_the_repository_s_where_the_agent_works_in_it(root: str | None, folder: str | None, expected: str):
    assert find_working_folder(root, folder) == WorkingFolder(expected, folder or "")
