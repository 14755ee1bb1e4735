"""One reading of any agent's tool call: kind, command, paths, patch; and that a skip rule sees every path that a reader sees."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cmserver.generation.skip_rules import find_skip_rule
from cmserver.tooluse.model import ToolKind, WorkingFolder
from cmserver.tooluse.read import PATH_FIELDS, PATH_LIST_FIELDS, TOOL_KINDS, read_tool_use
from tests.table import try_rows

ROOT = "/home/alice/src/orders"
SECRET = f"{ROOT}/secrets/key.pem"
RULE = "path:secrets/**"
PATCH = "*** Begin Patch\n*** Update File: secrets/key.pem\n+x\n*** Move to: secrets/old.pem\n*** End Patch"
DIFF = "diff --git a/secrets/key.pem b/secrets/key.pem\n--- a/secrets/key.pem\n+++ b/secrets/key.pem\n@@ -1 +1 @@\n-x\n+y\n"


@try_rows("tool", [*TOOL_KINDS, "mcp__files__read_file", "mcp__files__anything", "a_tool_of_tomorrow"])
def test_a_path_rule_applies_to_every_field_that_names_a_file(tool: str):
    for field in PATH_FIELDS:
        use = read_tool_use(tool, {field: SECRET})

        if use.kind is ToolKind.SHELL:
            assert use.paths == []
        else:
            assert use.paths == [SECRET], field
            assert find_skip_rule([RULE], read_tool_use(tool, {field: SECRET}), WorkingFolder(ROOT)) == RULE, field


@try_rows("field", PATH_LIST_FIELDS)
@try_rows("shape", [[SECRET], [{"file_path": SECRET, "new": "x"}], {SECRET: "its content"}], ids=str)
def test_a_path_rule_applies_to_every_field_that_names_several_files(field: str, shape: object):
    assert find_skip_rule([RULE], read_tool_use("Read", {field: shape}), WorkingFolder(ROOT)) == RULE


@try_rows(
    ("tool", "tool_input"),
    [
        ("apply_patch", {"input": PATCH}),
        ("apply_patch", {"command": PATCH}),
        ("apply_patch", {"command": ["apply_patch", PATCH]}),
        ("apply_patch", PATCH),
        ("shell", {"command": ["bash", "-lc", f"apply_patch <<'E'\n{PATCH}\nE"]}),
        ("edit_file", {"diff": DIFF}),
        ("Read", f'{{"file_path": "{SECRET}"}}'),
        ("str_replace_editor", {"command": "view", "path": SECRET}),
        ("str_replace_editor", {"command": "create", "path": SECRET, "file_text": "x"}),
        ("mcp__files__get", {"uri": "file:///home/alice/src/orders/secrets/a%20key.pem"}),
        # What is written may look like a patch of other files: the file that is named decides.
        ("Write", {"file_path": SECRET, "content": "*** Begin Patch\n*** Update File: src/a.py\n+x\n*** End Patch"}),
        ("Write", {"file_path": SECRET, "content": "--- a/src/a.py\n+++ b/src/a.py\n"}),
        ("Edit", {"file_path": SECRET, "diff": DIFF.replace("secrets/key.pem", "src/a.py")}),
    ],
)
def test_a_path_rule_applies_whatever_shape_the_input_has(tool: str, tool_input: object):
    assert find_skip_rule([RULE], read_tool_use(tool, tool_input), WorkingFolder(ROOT)) == RULE


def test_a_path_rule_applies_to_a_file_that_only_the_answer_names():
    read = read_tool_use("Read", None, {"type": "text", "file": {"filePath": SECRET, "content": "-----BEGIN"}})

    assert find_skip_rule([RULE], read, WorkingFolder(ROOT)) == RULE


@try_rows("tool", ["shell_command", "run_terminal_cmd", "exec_command", "Bash"])
@try_rows("field", ["command", "cmd", "script"])
def test_a_command_rule_applies_to_every_shell(tool: str, field: str):
    assert find_skip_rule(
        ["command:kubectl get secrets"], read_tool_use(tool, {field: "kubectl get secrets -o yaml"}), WorkingFolder(ROOT)
    )


@try_rows(
    ("tool", "tool_input", "command"),
    [
        ("shell", {"command": ["bash", "-lc", "npm ci && npm test"]}, "npm ci && npm test"),
        ("shell", {"command": ["git", "commit", "-m", "two words"]}, "git commit -m 'two words'"),
        ("local_shell", ["ls", "-l"], "ls -l"),
        ("Bash", "pytest -q", "pytest -q"),
        ("Bash", {"command": {"no": "text"}}, ""),
        ("apply_patch", {"command": PATCH}, ""),
        ("Read", {"file_path": "a", "command": "ls"}, ""),
    ],
)
def test_a_command_is_one_line(tool: str, tool_input: object, command: str):
    assert read_tool_use(tool, tool_input).command == command


@try_rows(
    ("tool", "tool_input", "kind"),
    [
        ("shell_command", {"command": "ls"}, ToolKind.SHELL),
        ("str_replace_editor", {"command": "view", "path": "a"}, ToolKind.READ),
        ("str_replace_editor", {"command": "str_replace", "path": "a"}, ToolKind.EDIT),
        ("mcp__files__write_file", {"path": "a", "content": "x"}, ToolKind.WRITE),
        ("mcp__notes__write_file", {"title": "a"}, ToolKind.MCP),
        ("mcp__host__execute", {"command": "ls"}, ToolKind.MCP),
        ("anything", None, ToolKind.OTHER),
        (None, None, ToolKind.OTHER),
    ],
)
def test_a_tool_is_of_the_kind_that_it_is_for(tool: str | None, tool_input: object, kind: ToolKind):
    assert read_tool_use(tool, tool_input).kind is kind


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from([*PATH_FIELDS, *PATH_LIST_FIELDS, "command"]), inner)
    ),
    max_leaves=20,
)


@given(tool=st.sampled_from(sorted(TOOL_KINDS)) | st.text(), tool_input=JSON)
def test_no_input_breaks_the_reading(tool: str, tool_input: object):
    use = read_tool_use(tool, tool_input, tool_input)

    assert all(use.paths)
    assert len(use.paths) == len(set(use.paths))
    assert isinstance(use.answer, dict)


@given(others=st.dictionaries(st.text(max_size=12), JSON, max_size=4), field=st.sampled_from(PATH_FIELDS))
def test_a_reader_never_sees_a_path_that_a_rule_does_not_see(others: dict[str, object], field: str):
    named = {key: value for key, value in others.items() if key not in {*PATH_FIELDS, *PATH_LIST_FIELDS, "uri", "url"}}

    assert find_skip_rule([RULE], read_tool_use("Read", {**named, field: SECRET}), WorkingFolder(ROOT)) == RULE
