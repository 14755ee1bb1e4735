"""A long session of a coding agent: tool uses of about two kilobytes each, in the shapes and the mixture that hooks report."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

ROOT = "/home/dev/orders"
BYTES = 2048
REQUESTS = 10
"""The user says something new before every so many-th part of the session."""

_MODULES = ("orders", "payments", "stock", "customers", "invoices", "shipping", "returns", "prices")
_NOUNS = ("refund", "voucher", "address", "parcel", "discount", "reminder", "receipt", "warehouse", "currency", "deposit")


def requests(tool_uses: int) -> dict[int, str]:
    """What the user says, by the number of the tool use before which it is said."""
    every = max(1, tool_uses // REQUESTS)
    return {
        place: f"Now take the {_noun(place)} of {_module(place)}: it must be possible to change it after the order was sent. "
        f"Keep the public functions as they are, write a test first, and say in the end what is left to be done."
        for place in range(0, tool_uses, every)
    }


def tool_use(number: int) -> dict[str, object]:
    """The payload of the hook for this tool use; the same number, the same payload."""
    name, given, answered = _KINDS[number % len(_KINDS)](number)
    return {
        "session_id": "long-session",
        "cwd": ROOT,
        "hook_event_name": "PostToolUse",
        "tool_name": name,
        "tool_input": given,
        "tool_response": answered,
        "tool_use_id": f"toolu_{number:024x}",
        "duration_ms": 10 + number % 90,
    }


Use = tuple[str, Mapping[str, object], Mapping[str, object]]


def _read(number: int) -> Use:
    path, text = _path(number), _code(number, BYTES - 330)
    lines = text.count("\n") + 1
    file = {"filePath": path, "content": text, "numLines": lines, "startLine": 1 + number % 40, "totalLines": lines + 400}
    return "Read", {"file_path": path, "offset": 1 + number % 40, "limit": lines}, {"type": "text", "file": file}


def _edit(number: int) -> Use:
    path, whole = _path(number), _code(number, 900)
    old = f"    limit = {number % 7 + 1}\n"
    new = f"    limit = settings.{_noun(number)}_limit\n    if limit < 1:\n        raise ValueError('{_noun(number)}: no limit')\n"
    patch = {
        "oldStart": 12,
        "oldLines": 4,
        "newStart": 12,
        "newLines": 6,
        "lines": ["     total = 0", f"-{old[:-1]}", *(f"+{line}" for line in new.splitlines()), "     for item in items:"],
    }
    answered = {
        "filePath": path,
        "oldString": old,
        "newString": new,
        "originalFile": whole,
        "structuredPatch": [patch],
        "userModified": False,
        "replaceAll": False,
    }
    return "Edit", {"file_path": path, "old_string": old, "new_string": new}, answered


def _write(number: int) -> Use:
    path = f"{ROOT}/tests/{_module(number)}/test_{_noun(number)}_{number}.py"
    text = _code(number, BYTES // 2 - 260)
    answered = {"type": "create", "filePath": path, "content": text, "originalFile": None}
    return "Write", {"file_path": path, "content": text}, answered


def _test(number: int) -> Use:
    failed = number % 2 == 0
    lines = [f"tests/{_module(number)}/test_{noun}.py::test_{noun}_{n} PASSED" for n in range(4) for noun in _NOUNS]
    if failed:
        lines.append(f"E   AssertionError: assert {number} == {number + 1}\nFAILED tests/{_module(number)}/test_{_noun(number)}.py")
    text = "\n".join(lines) + f"\n{1 if failed else 0} failed, {len(lines)} passed in 2.31s"
    return "Bash", _command(f"pytest -q tests/{_module(number)}"), _output(text)


def _grep(number: int) -> Use:
    lines = [f"{_path(number + n)}:{10 + n}:    return {_noun(number + n)}_limit(order, {n})" for n in range(19)]
    answered = {"mode": "content", "numFiles": 8, "content": "\n".join(lines), "numLines": len(lines)}
    return "Grep", {"pattern": f"{_noun(number)}_limit", "output_mode": "content"}, answered


def _git(number: int) -> Use:
    stat = "\n".join(f" src/{_module(number + n)}/{_noun(number + n)}.py | {n + 2} ++--" for n in range(60))
    text = f"[main {number:07x}] Let the {_noun(number)} be changed after the order was sent\n{stat}\n 60 files changed"
    return "Bash", _command(f"git commit -am 'Let the {_noun(number)} be changed after the order was sent'"), _output(text)


_KINDS: tuple[Callable[[int], Use], ...] = (_read, _grep, _read, _edit, _test, _edit, _test, _write, _read, _git)


def _command(text: str) -> dict[str, object]:
    return {"command": text, "description": "Run it"}


def _output(text: str) -> dict[str, object]:
    return {"stdout": text[: BYTES - 330], "stderr": "", "interrupted": False, "isImage": False, "noOutputExpected": False}


def _module(number: int) -> str:
    return _MODULES[number // 10 % len(_MODULES)]


def _noun(number: int) -> str:
    return _NOUNS[number // 3 % len(_NOUNS)]


def _path(number: int) -> str:
    return f"{ROOT}/src/{_module(number)}/{_noun(number)}.py"


def _code(number: int, length: int) -> str:
    """Of so many characters as JSON, about."""
    lines: list[str] = []
    while len(json.dumps("".join(lines))) < length:
        n = len(lines)
        noun = _NOUNS[(number + n) % len(_NOUNS)]
        lines.append(f"    {noun}_{n} = await self.{noun}s.find(order.{noun}_id, since={number + n})  # as agreed with {noun}s\n")
    return "".join(lines)[:length]
