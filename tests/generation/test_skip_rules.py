"""Skip rules that are law: which events they keep from every model, and which rules are refused when they are given."""

from __future__ import annotations

import pytest

from cmserver.access.model import find_rule_error
from cmserver.generation.skip_rules import find_skip_rule
from cmserver.tooluse.model import ToolUse, WorkingFolder
from cmserver.tooluse.read import read_tool_use
from tests.table import try_rows

ROOT = "/home/alice/src/orders"


def used(tool: str, tool_input: object) -> ToolUse:
    return read_tool_use(tool, tool_input)


def read(path: str) -> ToolUse:
    return used("Read", {"file_path": path})


def ran(command: object) -> ToolUse:
    return used("Bash", {"command": command})


@try_rows(
    ("glob", "path", "is_skipped"),
    [
        ("*.lock", f"{ROOT}/web/yarn.lock", True),
        ("*.lock", f"{ROOT}/web/yarn.lock.md", False),
        ("dist", f"{ROOT}/web/dist/app.js", True),
        ("dist/", f"{ROOT}/dist/app.js", True),
        ("dist", f"{ROOT}/src/distance.py", False),
        ("docs/**", f"{ROOT}/docs/a/b.md", True),
        ("docs/**", f"{ROOT}/web/docs/a.md", False),
        ("docs/*.md", f"{ROOT}/docs/a/b.md", False),
        ("/docs", f"{ROOT}/docs/a.md", True),
        ("/docs", f"{ROOT}/web/docs/a.md", False),
        ("**/docs/*.md", f"{ROOT}/web/docs/a.md", True),
        ("**/docs/*.md", f"{ROOT}/docs/a.md", True),
        ("src/**/gen", f"{ROOT}/src/gen/a.py", True),
        ("src/**/gen", f"{ROOT}/src/a/b/gen/a.py", True),
        ("src/**/gen", f"{ROOT}/src/a/b/generic.py", False),
        ("v?.[0-9].*", f"{ROOT}/v1.2.txt", True),
        ("v?.[!0-9].*", f"{ROOT}/v1.2.txt", False),
        ("a[z-a]b", f"{ROOT}/azb", False),
        ("secrets/**", "secrets/key.pem", True),
        ("secrets/**", f"{ROOT}/src/../secrets/key.pem", True),
        ("secrets/**", f"{ROOT}-old/secrets/key.pem", False),
        ("**", f"{ROOT}/anything.py", True),
        ("/etc/**", "/etc/hosts", True),
        ("src/**", r"src\a.py", True),
    ],
)
def test_a_path_rule_is_read_as_in_a_gitignore(glob: str, path: str, is_skipped: bool):
    rule = f"path:{glob}"

    assert find_skip_rule([rule], read(path), WorkingFolder(ROOT)) == (rule if is_skipped else None)


@try_rows(
    "event",
    [
        used("NotebookEdit", {"notebook_path": f"{ROOT}/vendor/a.ipynb"}),
        used("read_file", {"absolute_path": f"{ROOT}/vendor/a.py"}),
        used("Grep", {"pattern": "x", "path": f"{ROOT}/vendor"}),
        used("read_many_files", {"paths": ["vendor/a.py", "vendor/b.py"]}),
        used("apply_patch", {"input": "*** Begin Patch\n*** Update File: vendor/a.py\n+x\n*** End Patch"}),
        used("shell", {"command": "apply_patch <<'E'\n*** Begin Patch\n*** Delete File: vendor/a.py\n*** End Patch\nE"}),
    ],
    ids=["notebook", "gemini", "search in a folder", "several", "patch", "patch by shell"],
)
def test_a_path_rule_knows_the_files_of_many_tools(event: ToolUse):
    assert find_skip_rule(["path:vendor"], event, WorkingFolder(ROOT)) == "path:vendor"


def test_a_path_rule_is_about_paths_from_the_root_wherever_in_it_the_agent_works():
    assert find_skip_rule(["path:/web/vendor"], read("vendor/a.py"), WorkingFolder(ROOT, f"{ROOT}/web")) == "path:/web/vendor"
    assert find_skip_rule(["path:/web/vendor"], read(f"{ROOT}/vendor/a.py"), WorkingFolder(ROOT, f"{ROOT}/web")) is None


@try_rows(
    ("root", "path", "is_skipped"),
    [
        (r"C:\repo", r"secret\keys.txt", True),
        ("C:/repo", r"secret\keys.txt", True),
        ("C:/repo", r"c:\repo\secret\keys.txt", True),
        ("C:/repo", "src/secret/keys.txt", False),
        ("C:/repo", r"D:\secret\keys.txt", False),
    ],
)
def test_a_path_rule_matches_on_windows(root: str, path: str, is_skipped: bool):
    folder = WorkingFolder(root, r"C:\repo")

    assert find_skip_rule(["path:secret/**"], read(path), folder) == ("path:secret/**" if is_skipped else None)


def test_a_search_in_the_root_is_under_no_rule_about_names():
    assert (
        find_skip_rule(["path:orders", "path:.*"], used("Grep", {"pattern": "x", "path": ROOT}), WorkingFolder(ROOT, ROOT)) is None
    )


def test_an_event_that_touches_another_file_as_well_is_not_skipped():
    patch = "*** Begin Patch\n*** Update File: vendor/a.py\n+x\n*** Update File: src/b.py\n+y\n*** End Patch"

    both = used("apply_patch", {"input": patch})

    assert find_skip_rule(["path:vendor"], both, WorkingFolder(ROOT)) is None
    assert find_skip_rule(["path:vendor", "path:src/*.py"], both, WorkingFolder(ROOT)) == "path:vendor"


@pytest.mark.parametrize(
    "event",
    [used("WebFetch", {"url": "https://vendor.example"}), used("Bash", {"command": "cat vendor/a.py"}), used("Read", None)],
    ids=["no files", "shell", "nothing"],
)
def test_an_event_that_names_no_file_is_not_skipped_by_a_path_rule(event: ToolUse):
    assert find_skip_rule(["path:**"], event, WorkingFolder(ROOT)) is None


@try_rows(
    ("beginning", "command", "is_skipped"),
    [
        ("npm ci", "npm ci", True),
        ("npm ci", "npm ci --ignore-scripts > /dev/null 2>&1", True),
        ("npm ci", "npm cite", False),
        ("npm ci", "npm install ci", False),
        ("npm ci", "NODE_ENV=test sudo npm ci", True),
        ("npm ci", "cd web && npm ci", True),
        ("npm ci", "npm ci && npm test", False),
        ("npm ci", "npm test; npm ci", False),
        ("npm ci", "npm ci | tee log", False),
        ("npm ci", 'echo "npm ci"', False),
        ("npm ci", "bash -lc 'npm ci && npm ci'", True),
        ("npm ci", "bash -lc 'npm ci && npm test'", False),
        ("uv run", "uv run pytest -q", True),
        ("pytest", "uv run pytest -q", True),
        ('git commit -m "wip"', "git commit -m 'wip' -a", True),
        ("cd", "cd web", True),
        ("cat", "cat <<E\nnpm test\nE", True),
    ],
)
def test_a_command_rule_is_how_every_command_of_a_line_begins(beginning: str, command: str, is_skipped: bool):
    rule = f"command:{beginning}"

    assert find_skip_rule([rule], ran(command), WorkingFolder(ROOT)) == (rule if is_skipped else None)


def test_a_chain_may_fall_under_several_rules_and_the_first_command_tells_which():
    rules = ["command:npm ci", "command:git status"]

    assert find_skip_rule(rules, ran("git status && npm ci"), WorkingFolder(ROOT)) == "command:git status"
    assert find_skip_rule(rules, ran(["bash", "-lc", "npm ci"]), WorkingFolder(ROOT)) == "command:npm ci"


def test_a_line_too_long_to_be_read_whole_is_not_skipped():
    assert find_skip_rule(["command:echo"], ran("echo a; " * 400 + "echo a"), WorkingFolder(ROOT)) == "command:echo"
    assert find_skip_rule(["command:echo"], ran("echo a; " * 4_000 + "echo a"), WorkingFolder(ROOT)) is None


def test_a_sentence_is_for_the_model_and_skips_nothing():
    assert (
        find_skip_rule(["Changes of the changelog", "pathological: **"], read(f"{ROOT}/CHANGELOG.md"), WorkingFolder(ROOT)) is None
    )


def test_a_rule_made_to_keep_a_worker_busy_does_not():
    deep = read("/a" * 3_000 + "/b")
    long = read("a" * 4_000)

    assert find_skip_rule(["path:" + "/".join(["**", "a"] * 30) + "/c"], deep, WorkingFolder()) is None
    assert find_skip_rule(["path:" + "*a" * 60 + "c"], long, WorkingFolder()) is None


@try_rows(
    ("rule", "word"),
    [
        ("path:", "after path:"),
        ("path: / ", "after path:"),
        ("command: ", "after command:"),
        ("path:!docs", "exceptions"),
        ("path:../other", "`..`"),
        ("command:a && b", "single command"),
    ],
)
def test_a_malformed_rule_is_refused_with_the_reason(rule: str, word: str):
    assert word in (find_rule_error(rule) or "")


@try_rows("rule", ["path:**", "path:docs/**", "path:/etc", "command:npm ci", "Anything: about!", "path rules are fine"])
def test_a_rule_that_can_be_followed_is_not_refused(rule: str):
    assert find_rule_error(rule) is None
