"""Which files an event itself changed, and what that does to an observation."""

from __future__ import annotations

import pytest

from cmserver.reading.read import read_event
from tests.answers.read import read_answer

PATCH = "*** Begin Patch\n*** Update File: src/a.py\n@@\n-x\n+y\n*** Add File: src/b.py\n+z\n*** Delete File: c.py\n*** End Patch"


def use(name: str, tool_input: object, response: object = None, **more: object) -> dict[str, object]:
    return {"tool_name": name, "tool_input": tool_input, "tool_response": response, **more}


EDIT = {"file_path": "/code/src/a.py", "old_string": "x", "new_string": "y"}

CHANGES: list[tuple[str, object, list[str]]] = [
    ("an edit", use("Edit", EDIT), ["src/a.py"]),
    ("several edits", use("MultiEdit", {"file_path": "/code/a.py", "edits": [{"old_string": "x", "new_string": "y"}]}), ["a.py"]),
    ("a file written", use("Write", {"file_path": "/code/a.py", "content": "x"}), ["a.py"]),
    ("an empty file written", use("Write", {"file_path": "/code/pkg/__init__.py", "content": ""}), ["pkg/__init__.py"]),
    ("a notebook", use("NotebookEdit", {"notebook_path": "/code/n.ipynb", "new_source": "x"}), ["n.ipynb"]),
    ("a patch", use("apply_patch", {"input": PATCH}), ["src/a.py", "src/b.py", "c.py"]),
    ("a patch as text", use("apply_patch", PATCH), ["src/a.py", "src/b.py", "c.py"]),
    ("a patch in the shell", use("shell", {"command": ["apply_patch", PATCH]}), ["src/a.py", "src/b.py", "c.py"]),
    ("gemini's replace", use("replace", {"file_path": "/code/a.py", "old_string": "x", "new_string": "y"}), ["a.py"]),
    ("gemini's write_file", use("write_file", {"file_path": "/code/a.py", "content": "x"}), ["a.py"]),
    ("a file server", use("mcp__filesystem__write_file", {"path": "/code/a.py", "content": "x"}), ["a.py"]),
    ("the path in the response", use("Edit", {"old_string": "x", "new_string": "y"}, {"filePath": "/code/a.py"}), ["a.py"]),
    ("input as text", use("Edit", '{"file_path": "/code/a.py", "old_string": "x", "new_string": "y"}'), ["a.py"]),
    ("outside the folder", use("Edit", EDIT | {"file_path": "/etc/hosts"}), ["/etc/hosts"]),
    ("a folder that only begins alike", use("Edit", EDIT | {"file_path": "/workshop/a.py"}), ["/workshop/a.py"]),
    ("only the file's name was kept", use("Edit", {"file_path": "/code/a.py"}), ["a.py"]),
    ("no difference", use("Edit", EDIT | {"new_string": "x"}), []),
    ("written by the shell", use("Bash", {"command": "cat > notes.md <<'E'\nhello\nE"}), ["notes.md"]),
    ("an edit that failed", use("Edit", EDIT, error="String not found"), []),
    ("an edit whose event says it failed", use("Edit", EDIT, hook_event_name="PostToolUseFailure"), []),
    ("an edit whose response is an error", use("Edit", EDIT, "Error: String to replace not found"), []),
    ("an edit whose response says so", use("Edit", EDIT, {"is_error": True}), []),
    ("an edit without success", use("Edit", EDIT, {"success": False}), []),
    ("an edit the user refused", use("Edit", EDIT, error="The user doesn't want to proceed"), []),
    ("a read", use("Read", {"file_path": "/code/a.py"}), []),
    ("a test run", use("Bash", {"command": "pytest -q"}), []),
    ("no path", use("Edit", {"old_string": "x", "new_string": "y"}), []),
    ("no tool", {"text": "hello"}, []),
    ("no object", ["Edit", "a.py"], []),
    ("nothing", None, []),
]


@pytest.mark.parametrize(("payload", "files"), [pytest.param(payload, files, id=name) for name, payload, files in CHANGES])
def test_the_files_that_an_event_changed(payload: object, files: list[str]):
    assert read_event("tool_use", payload, "/code").changed_files == files


def test_without_a_folder_paths_stay_whole():
    assert read_event("tool_use", use("Edit", EDIT), None).changed_files == ["/code/src/a.py"]


def modified(answer: str, changed: dict[str, list[str]]) -> list[list[str]]:
    return [draft.files_modified for draft in read_answer(answer, changed).observations]


def test_an_observation_has_the_files_that_its_events_changed_behind_those_it_names():
    answer = (
        '<observation events="e1 e3"><title>A</title><files_modified><file>own.py</file><file>a.py</file></files_modified>'
        '</observation><observation events="e2"><title>B</title></observation>'
    )

    files = modified(answer, {"e1": ["a.py"], "e2": ["b.py"], "e3": ["c.py", "a.py"]})

    assert files == [["own.py", "a.py", "c.py"], ["b.py"]]


def test_an_observation_that_names_no_event_of_several_has_only_its_own_files():
    answer = "<observation><title>A</title><files_modified><file>own.py</file></files_modified></observation>"

    assert modified(answer, {"e1": ["a.py"], "e2": ["b.py"]}) == [["own.py"]]
    assert modified(answer, {"e1": ["a.py"]}) == [["own.py", "a.py"]]


def test_a_file_named_by_its_whole_path_is_the_one_that_was_changed():
    answer = (
        '{"observations": [{"title": "A", "events": ["e1"], "files_read": ["/code/src/a.py", "/code/b.py"],'
        ' "files_modified": ["/code/src/a.py", "lib/src/a.py"]}]}'
    )

    (observation,) = read_answer(answer, {"e1": ["src/a.py"]}).observations

    assert observation.files_modified == ["src/a.py", "lib/src/a.py"]
    assert observation.files_read == ["src/a.py", "/code/b.py"]


def test_files_alone_are_no_observation():
    parsed = read_answer('<observation events="e1"><title></title></observation>', {"e1": ["a.py"]})

    assert (parsed.observations, parsed.dropped) == ([], 1)


def test_a_mark_without_a_number_of_lines_is_a_text_like_any_other():
    written = read_event("tool_use", use("Write", {"file_path": "a.txt", "content": "[... 5 characters in , lines left out"}), None)

    assert written.changed_files == ["a.txt"]
