"""How a command in the background ended is told by the tool that looks at it later."""

from __future__ import annotations

from cmserver.reading.background import BackgroundShells
from cmserver.reading.model import CommandRun
from cmserver.reading.read import read_event
from tests.reading.events import ROOT
from tests.table import try_rows

FAILED = " FAIL src/pay.test.ts\nAssertionError: expected 1 to be 2\nTests  1 failed | 3 passed (4)"
PASSED = "Tests  4 passed (4)"
STARTED = {"stdout": "", "stderr": "", "interrupted": False, "backgroundTaskId": "b1"}


def look(start: dict[str, object] | None, tool: str, tool_input: object, answer: object) -> tuple[str, bool, bool] | None:
    """The command, whether it failed, and whether it is known to have passed; None where the look says nothing."""
    shells = BackgroundShells()
    if start is not None:
        read_event("tool_use", {"tool_name": "Bash", **start}, ROOT, shells=shells)
    act = read_event("tool_use", {"tool_name": tool, "tool_input": tool_input, "tool_response": answer}, ROOT, shells=shells).act
    return (act.command.text, act.outcome.failed, act.is_proved) if isinstance(act, CommandRun) else None


def start(command: str, answer: object) -> dict[str, object]:
    return {"tool_input": {"command": command, "run_in_background": True}, "tool_response": answer}


NPM = start("cd web && npm test", STARTED)


@try_rows(
    ("started", "tool", "tool_input", "answer", "end"),
    [
        (
            None,
            "BashOutput",
            {"bash_id": "b1"},
            {"shellId": "b1", "command": "npm test", "status": "completed", "exitCode": 1, "stdout": FAILED, "stderr": ""},
            ("npm test", True, False),
        ),
        (NPM, "BashOutput", {"bash_id": "b1"}, {"status": "completed", "exitCode": 0, "stdout": PASSED}, ("npm test", False, True)),
        (NPM, "BashOutput", {"bash_id": "b1"}, {"status": "failed", "exitCode": 1, "stdout": FAILED}, ("npm test", True, False)),
        (
            NPM,
            "BashOutput",
            {"bash_id": "b1"},
            f"<status>failed</status>\n\n<exit_code>1</exit_code>\n\n<stdout>\n{FAILED}\n</stdout>",
            ("npm test", True, False),
        ),
        (
            NPM,
            "TaskOutput",
            {"task_id": "b1", "block": True},
            {"retrieval_status": "success", "task": {"task_id": "b1", "status": "completed", "output": FAILED, "exitCode": 1}},
            ("npm test", True, False),
        ),
        (
            NPM,
            "TaskOutput",
            {"task_id": "b1"},
            {"retrieval_status": "success", "task": {"task_id": "b1", "status": "completed", "output": PASSED, "exitCode": 0}},
            ("npm test", False, True),
        ),
        (
            start("pytest -q", "Command running in background with ID: 4f2. Output is being written."),
            "BashOutput",
            {"bash_id": "4f2"},
            {"status": "completed", "output": "1 failed in 0.1s", "exit_code": 1},
            ("pytest -q", True, False),
        ),
        (
            start("cargo test", "Process running with session ID 7"),
            "write_stdin",
            {"session_id": 7, "chars": ""},
            "Wall time: 9.0 seconds\nProcess exited with code 101\nOutput:\ntest result: FAILED. 1 passed; 2 failed",
            ("cargo test", True, False),
        ),
        (
            start("cargo test", "Process running with session ID 7"),
            "write_stdin",
            {"session_id": 7},
            "Process exited with code 0\nOutput:\ntest result: ok. 3 passed; 0 failed",
            ("cargo test", False, True),
        ),
        (NPM, "BashOutput", {"bash_id": "b1"}, {"status": "completed", "stdout": PASSED}, ("npm test", False, True)),
        (NPM, "BashOutput", {"bash_id": "b1"}, {"status": "running", "stdout": "Tests  1 failed"}, None),
        (NPM, "BashOutput", {"bash_id": "b1"}, {"status": "killed", "exitCode": 137, "stdout": ""}, None),
        (NPM, "KillShell", {"shell_id": "b1"}, {"message": "Successfully killed shell: b1"}, None),
        (NPM, "BashOutput", {"bash_id": "other"}, {"status": "failed", "exitCode": 1, "stdout": FAILED}, None),
        (None, "BashOutput", {"bash_id": "b1"}, {"status": "failed", "exitCode": 1, "stdout": FAILED}, None),
        (NPM, "Read", {"file_path": "b1"}, {"status": "failed", "exitCode": 1}, None),
    ],
)
def test_the_look_tells_the_end(
    started: dict[str, object] | None, tool: str, tool_input: object, answer: object, end: tuple[str, bool, bool] | None
):
    assert look(started, tool, tool_input, answer) == end
