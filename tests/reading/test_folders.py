"""Paths are shown from one root; each event's relative paths are written from the folder that its agent was in."""

from __future__ import annotations

from cmserver.reading.read import read_event

ROOT = "/src/shop"


def test_a_relative_path_is_read_from_the_folder_of_its_event():
    """As after `cd ..`: the first event of a batch says nothing of the folder of the next."""
    files = {
        folder: read_event("tool_use", {"cwd": folder, "tool_name": "Bash", "tool_input": {"command": "rm src/legacy.py"}}, ROOT)
        for folder in (f"{ROOT}/billing", ROOT, "/tmp/else", "")
    }

    assert [reading.changed_files for reading in files.values()] == [
        ["billing/src/legacy.py"],
        ["src/legacy.py"],
        [],
        ["src/legacy.py"],
    ]


def test_an_absolute_path_is_shown_from_the_root_wherever_the_agent_is():
    edit = {"file_path": f"{ROOT}/billing/tax.py", "old_string": "a", "new_string": "b"}
    payload = {"cwd": f"{ROOT}/web", "tool_name": "Edit", "tool_input": edit}

    assert read_event("tool_use", payload, ROOT).changed_files == ["billing/tax.py"]
