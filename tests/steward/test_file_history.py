"""What tool calls did to which files, from the root of the repository, wherever in it the agent works."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import uuid4

from cmserver.events.model import RecordedToolUse
from cmserver.steward.executors.file_history import read_path_changes
from tests.table import try_rows

PATCH = """*** Begin Patch
*** Delete File: src/queue.py
*** Update File: src/old.py
*** Move to: src/new.py
@@
-a
+b
*** End Patch"""


def bash(command: str) -> dict[str, object]:
    return {"tool_name": "Bash", "tool_input": {"command": command}, "tool_response": {"stdout": "", "stderr": ""}}


@try_rows(
    ("root", "cwd", "payload", "changes"),
    [
        ("/r", "/r", bash("rm src/queue.py"), [("deleted", "src/queue.py", "")]),
        ("/r", "/r/billing", bash("rm src/queue.py"), [("deleted", "billing/src/queue.py", "")]),
        ("/r", "/r/billing", bash("cd .. && rm src/queue.py"), [("deleted", "src/queue.py", "")]),
        ("/r", "/r/billing", bash("cd /r/shop && rm queue.py"), [("deleted", "shop/queue.py", "")]),
        (None, "/r/billing", bash("rm src/queue.py"), [("deleted", "src/queue.py", "")]),
        ("/r", "/elsewhere", bash("rm src/queue.py /r/a.py"), [("deleted", "src/queue.py", ""), ("deleted", "/r/a.py", "")]),
        ("/r", None, bash("rm ./src/queue.py"), [("deleted", "src/queue.py", "")]),
        ("C:/r", r"C:\r\billing", bash("cd .. && rm 'src\\queue.py'"), [("deleted", "src/queue.py", "")]),
        (
            "C:/r",
            r"C:\r\billing",
            {"tool_name": "Edit", "tool_input": {"file_path": r"C:\r\billing\a.py", "old_string": "x", "new_string": "y"}},
            [("edited", "billing/a.py", "")],
        ),
        (
            "/r",
            "/r/billing",
            bash("mv a.py src/"),
            [("moved", "billing/a.py", "billing/src/a.py"), ("restored", "billing/src/a.py", "")],
        ),
        (
            "/r",
            "/r/billing",
            {"tool_name": "apply_patch", "tool_input": {"input": PATCH}},
            [
                ("deleted", "billing/src/queue.py", ""),
                ("moved", "billing/src/old.py", "billing/src/new.py"),
                ("restored", "billing/src/new.py", ""),
            ],
        ),
        (
            "/r",
            "/r/billing",
            {"tool_name": "Edit", "tool_input": {"file_path": "/r/billing/a.py", "old_string": "x", "new_string": "y"}},
            [("edited", "billing/a.py", "")],
        ),
    ],
)
def test_paths_are_from_the_root(
    root: str | None, cwd: str | None, payload: dict[str, object], changes: list[tuple[str, str, str]]
):
    now = datetime.now(UTC)
    call = RecordedToolUse(id=uuid4(), payload={**payload, "cwd": cwd}, occurred_at=now, received_at=now, root=root)

    assert [(change.act, change.path, change.name) for change in read_path_changes([call])] == changes
