"""What the hooks of Claude Code send in one short session, in the order in which they are called."""

from __future__ import annotations

SESSION = "fb927459-ad56-45c4-b02a-57879f789c4e"
PROJECT = "/home/alice/src/orders"
FIRST_PROMPT = "e7437e41-8d6d-40c1-9ce8-09a00b2f9f88"

_COMMON: dict[str, object] = {
    "session_id": SESSION,
    "transcript_path": f"/home/alice/.claude/projects/-home-alice-src-orders/{SESSION}.jsonl",
    "cwd": PROJECT,
}
_IN_PROMPT: dict[str, object] = {**_COMMON, "prompt_id": FIRST_PROMPT, "permission_mode": "default"}
_TOOL: dict[str, object] = {**_IN_PROMPT, "effort": {"level": "medium"}, "hook_event_name": "PostToolUse"}

SESSION_START: dict[str, object] = {**_COMMON, "hook_event_name": "SessionStart", "source": "startup"}
USER_PROMPT_SUBMIT: dict[str, object] = {
    **_IN_PROMPT,
    "hook_event_name": "UserPromptSubmit",
    "prompt": "Write a note about the import, and rename line 5 of big.txt",
}
BASH: dict[str, object] = {
    **_TOOL,
    "tool_name": "Bash",
    "tool_input": {"command": "echo hello-from-bash", "description": "Echo"},
    "tool_response": {
        "stdout": "hello-from-bash",
        "stderr": "",
        "interrupted": False,
        "isImage": False,
        "noOutputExpected": False,
    },
    "tool_use_id": "toolu_e53f63ceb6234eae85709e8e",
    "duration_ms": 93,
}
WRITE: dict[str, object] = {
    **_TOOL,
    "tool_name": "Write",
    "tool_input": {"file_path": f"{PROJECT}/note.txt", "content": "written by the fake model\n"},
    "tool_response": {
        "type": "create",
        "filePath": f"{PROJECT}/note.txt",
        "content": "written by the fake model\n",
        "structuredPatch": [],
        "originalFile": None,
        "userModified": False,
    },
    "tool_use_id": "toolu_312748186f9542d7968d6e72",
    "duration_ms": 7,
}
READ: dict[str, object] = {
    **_TOOL,
    "tool_name": "Read",
    "tool_input": {"file_path": f"{PROJECT}/big.txt"},
    "tool_response": {
        "type": "text",
        "file": {
            "filePath": f"{PROJECT}/big.txt",
            "content": "line 3\nline 4\nline 5\nline 6\n",
            "numLines": 5,
            "startLine": 1,
            "totalLines": 5,
        },
    },
    "tool_use_id": "toolu_a713844b65854181beab106e",
    "duration_ms": 7,
}
EDIT: dict[str, object] = {
    **_TOOL,
    "tool_name": "Edit",
    "tool_input": {
        "file_path": f"{PROJECT}/big.txt",
        "old_string": "line 5\n",
        "new_string": "line five\n",
        "replace_all": False,
    },
    "tool_response": {
        "filePath": f"{PROJECT}/big.txt",
        "oldString": "line 5\n",
        "newString": "line five\n",
        "originalFile": "line 3\nline 4\nline 5\nline 6\n",
        "structuredPatch": [
            {
                "oldStart": 1,
                "oldLines": 4,
                "newStart": 1,
                "newLines": 4,
                "lines": [" line 3", " line 4", "-line 5", "+line five", " line 6"],
            }
        ],
        "userModified": False,
        "replaceAll": False,
    },
    "tool_use_id": "toolu_07ac04c773764602a8500d2b",
    "duration_ms": 10,
}
BASH_FAILURE: dict[str, object] = {
    **_TOOL,
    "hook_event_name": "PostToolUseFailure",
    "tool_name": "Bash",
    "tool_input": {"command": "echo oops >&2; exit 3", "description": "fail"},
    "tool_use_id": "toolu_3be94b678164408eab9b1134",
    "error": "Exit code 3\noops",
    "is_interrupt": False,
    "duration_ms": 75,
}
STOP: dict[str, object] = {
    **_IN_PROMPT,
    "effort": {"level": "medium"},
    "hook_event_name": "Stop",
    "stop_hook_active": False,
    "last_assistant_message": "All done: echoed and wrote note.txt.",
    "background_tasks": [],
    "session_crons": [],
}
SESSION_END: dict[str, object] = {**_COMMON, "prompt_id": FIRST_PROMPT, "hook_event_name": "SessionEnd", "reason": "other"}

WHOLE_SESSION = [SESSION_START, USER_PROMPT_SUBMIT, BASH, WRITE, READ, EDIT, BASH_FAILURE, STOP, SESSION_END]
