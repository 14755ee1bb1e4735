"""The lines that a call put into files: none that it may not have put there."""

from __future__ import annotations

from cmserver.reading.edit_lines import read_added_lines, read_edit_lines
from cmserver.reading.read import read_event
from tests.table import try_rows

FIRST, SECOND = "cat > a.py <<'A'\nfirst = 1\nA\n", "cat > b.py <<'B'\nsecond = 2\nB\n"


@try_rows(
    ("command", "lines"),
    [
        (FIRST, {"a.py": ["first = 1"]}),
        (FIRST + SECOND, {"a.py": [], "b.py": []}),
        (FIRST + "echo second > b.py", {"a.py": [], "b.py": []}),
        ("echo first > a.py; echo second > b.py", {"a.py": ["first"], "b.py": ["second"]}),
    ],
)
def test_a_heredoc_is_of_one_file_only(command: str, lines: dict[str, list[str]]):
    fields = {"tool_name": "Bash", "tool_input": {"command": command}, "tool_response": {"stdout": ""}, "cwd": "/src"}
    reading = read_event("PostToolUse", fields, "/src")

    assert {added.path: added.lines for added in read_added_lines(reading)} == lines
    has_tokens = {file.path: any(place.put_in for place in file.places) for file in read_edit_lines(reading)}
    assert has_tokens == {path: bool(found) for path, found in lines.items()}
