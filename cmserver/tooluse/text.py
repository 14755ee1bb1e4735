"""The text of a tool call: what an output says, and how a path looks from the agent's working folder."""

from __future__ import annotations

import posixpath
import re
from typing import cast

from cmserver.base.tolerant_json import array, field, number, record

FOLDER_MARK = "/./"
_MAX_BLOCKS = 50
_MAX_DEPTH = 8
_GEMINI_TROUBLE = re.compile(r"^(?:Error|Signal): ", re.MULTILINE)
_EXIT_LINE = re.compile(r"^(?:Exit Code:|Process exited with code) (\d{1,9})$", re.MULTILINE)


def prose(value: object, depth: int = 0) -> str:
    """The readable text of a tool's output: plain text, `content` blocks, or the usual text fields of an object."""
    if depth > _MAX_DEPTH:
        return ""
    if isinstance(value, str) and value.lstrip()[:1] != "{":
        return value
    if isinstance(value, list):
        return "\n".join(filter(None, (prose(block, depth + 1) for block in array(cast("object", value))[:_MAX_BLOCKS])))
    source = record(value)
    plain = field(source, "text", "result", "output", "stdout", "llmContent", "content")
    return plain or prose(array(source.get("content")) or array(source.get("results")) or "", depth + 1)


def relative(path: str, root: str | None) -> str:
    """The path as seen from the root; paths outside it stay as they are.

    `/./` in the root, as in rsync, stands before the folder in it where the agent works: relative paths are from there.
    """
    base, _, folder = (root or "").partition(FOLDER_MARK)
    base = base.rstrip("/\\")
    if base and path.startswith((base + "/", base + "\\")):
        return path[len(base) + 1 :]
    is_absolute = path.startswith(("/", "\\", "~")) or path[1:2] == ":"
    return posixpath.normpath(f"{folder}/{path}") if folder and path and not is_absolute else path.removeprefix("./")


def join_root(root: str | None, folder: str | None) -> str | None:
    """What paths are relative to, see `relative`: the root of the repository, with the folder in it where the agent works.

    Where no root is known, or the agent works elsewhere, it is the agent's working folder.
    """
    root = (root or "").rstrip("/")
    if not root or folder is None:
        return folder or root or None
    return f"{root}{FOLDER_MARK}{folder[len(root) + 1 :].rstrip('/')}" if folder.startswith(f"{root}/") else folder


def printed_text(output: object) -> str:
    """What a command printed: its output and its errors, else the readable text."""
    answer = record(output)
    both = [field(answer, "stdout", "output"), field(answer, "stderr", "error")]
    return "\n".join(filter(None, both)) or prose(output)


def reported_exit_code(output: object) -> int | None:
    """The exit code that an output names, in a field of its own or as Gemini CLI and Codex do; None where nothing says it.

    Claude Code, which gives both channels apart, reports a command that fails as an error. Gemini CLI does not name the code 0.
    """
    answer = record(output)
    for source in (answer, record(answer.get("metadata"))):
        for name in ("exit_code", "exitCode", "exit", "code", "returncode"):
            if type(source.get(name)) is int:
                return number(source[name])
    text = prose(output)
    if codes := _EXIT_LINE.findall(text):
        return int(codes[-1])
    is_error_apart = isinstance(answer.get("stdout"), str) and isinstance(answer.get("stderr"), str)
    is_gemini = "llmContent" in answer and text.startswith("Output:") and not _GEMINI_TROUBLE.search(text)
    return 0 if is_error_apart or is_gemini else None


def shorten(text: str, limit: int) -> str:
    """One line of at most `limit` characters, cut between words."""
    line = " ".join(text[: limit * 8].split())
    if len(line) <= limit:
        return line
    cut = line[: limit - 1]
    space = cut.rfind(" ")
    return (cut[:space] if space > limit // 2 else cut).rstrip(" ,;:-") + "…"
