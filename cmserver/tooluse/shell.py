"""Splits a shell command line into its simple commands. Never raises, whatever the line is."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import PurePosixPath

import msgspec

MAX_COMMAND = 4_000
"""Longer lines are not read."""
SHELLS = {"bash", "sh", "zsh", "dash"}

_TOKEN = re.compile(
    r"""(?P<quote>'[^']*'|"(?:\\.|[^"\\])*")|(?P<escape>\\.)|(?P<redirect>\d?(?:>>|>\||>|<<<|<<-?|<)(?:&\d)?|&>)"""
    r"""|(?P<end>\n|;|\|\|?|&&?)|(?P<blank>[^\S\n]+)|(?P<plain>[^\s'"\\;&|<>]+|.)""",
    re.DOTALL,
)
_HEREDOC = re.compile(r"<<-?[ \t]*(['\"]?)(\w++)\1([^\n]*+)\n(.*?)\n?^[ \t]*\2[ \t]*$", re.DOTALL | re.MULTILINE)
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_OUTPUT_REDIRECTS = {">", ">>", "1>", "1>>"}
_SKIPPED_WRAPPERS = {"sudo", "time", "env", "exec", "nohup", "nice", "npx", "bunx", "then", "do", "else", "!"}
_RUN_WRAPPERS = {
    ("uv", "run"), ("poetry", "run"), ("pipenv", "run"), ("hatch", "run"), ("pdm", "run"), ("rye", "run"),
    ("bundle", "exec"), ("pnpm", "exec"), ("npm", "exec"), ("pnpm", "dlx"), ("yarn", "dlx"), ("bun", "x"),
}  # fmt: skip

_WRAPPER_VALUES = {"--with", "--python", "--extra", "--group", "--env-file", "--index-url"}
"""Options of `uv run` and the like whose value is the next word."""


class ShellCommand(msgspec.Struct):
    """One simple command: its words, and the same with their quotes."""

    words: list[str] = []
    quoted_words: list[str] = []
    output_path: str | None = None
    """The file its output is redirected to."""
    appends: bool = False
    operator: str = ""
    """What stands behind it: `;`, `&&`, `||`, `|`, `&` or a line's end."""

    @property
    def opens(self) -> int:
        """How many groups begin with it."""
        return len(self.words[0]) - len(self.words[0].lstrip("({"))

    @property
    def closes(self) -> int:
        """How many groups end with it."""
        last = self.words[-1]
        return 0 if "(" in last[1:] else len(last) - len(last.rstrip(")}"))

    @property
    def source(self) -> str:
        """As it was written, without redirections and the parentheses around a group."""
        return " ".join(without_parentheses(" ".join(self.quoted_words).split(" ")))


def split_heredocs(line: str) -> tuple[str, list[str]]:
    """The line without its here-documents, and their texts."""
    line = line.replace("\\\n", " ")
    heredocs = [match[4] for match in _HEREDOC.finditer(line)]
    return (_HEREDOC.sub(r"\3", line) if heredocs else line), heredocs


def split_commands(line: str) -> list[ShellCommand]:
    """The simple commands of a line without here-documents."""
    commands = [ShellCommand()]
    is_glued, redirect = False, ""
    for token in _TOKEN.finditer(line):
        kind, text, command = token.lastgroup, token[0], commands[-1]
        is_word = kind in {"quote", "escape", "plain"} and not redirect
        if kind == "end":
            command.operator = command.operator or text
            commands.append(ShellCommand())
            redirect = ""
        elif kind == "redirect":
            redirect = "" if "&" in text and text != "&>" else text
        elif is_word and is_glued:
            command.words[-1] += _unquote(text)
            command.quoted_words[-1] += text
        elif is_word:
            command.words.append(_unquote(text))
            command.quoted_words.append(text)
        elif kind != "blank":
            if redirect in _OUTPUT_REDIRECTS and text != "/dev/null":
                command.output_path, command.appends = _unquote(text), redirect.endswith(">>")
            redirect = ""
        is_glued = is_word
    return [command for command in commands if command.words]


def simple_commands(line: str) -> list[tuple[list[str], list[str]]]:
    """The commands of a line, in words: as they are written, and without `sudo`, `npx` and the like in front.

    Empty for a line longer than MAX_COMMAND: half of it would say nothing of the whole.
    """
    if len(line) > MAX_COMMAND:
        return []
    commands: list[tuple[list[str], list[str]]] = []
    for command in split_commands(split_heredocs(line)[0]):
        written = without_parentheses(command.words)
        unwrapped = unwrap(written)
        script = script_of(unwrapped) if unwrapped and PurePosixPath(unwrapped[0]).name in SHELLS else ""
        if script:
            commands += simple_commands(script)
        elif written:
            commands.append((written, unwrapped))
    return commands


def script_of(words: list[str]) -> str:
    """What `bash -lc "..."` runs."""
    return next((script for flag, script in pairwise(words) if flag in {"-c", "-lc"}), "")


def without_parentheses(words: list[str]) -> list[str]:
    """`(cd web && npm test)` is split into `(cd web` and `npm test)`."""
    if words[0][:1] in {"(", "{"}:
        words = [words[0][1:], *words[1:]]
    if words[-1].endswith(")") and "(" not in words[-1]:
        words = [*words[:-1], words[-1][:-1]]
    return [word for word in words if word]


def without_assignments(words: list[str]) -> list[str]:
    """`CI=1 npm test` is `npm test`."""
    while words and _ASSIGNMENT.match(words[0]):
        words = words[1:]
    return words


def unwrap(words: list[str], strip: Callable[[list[str]], list[str]] = list) -> list[str]:
    """The command that assignments, `sudo`, `npx`, `uv run` and the like wrap.

    `strip` takes out of each layer, and of the command itself, what is to be read by itself.
    """
    while (inner := _unwrap_once(words := strip(without_assignments(words)))) != words:
        words = inner
    return words


def _unwrap_once(words: list[str]) -> list[str]:
    """The command without its outermost wrapper; as it is where it has none."""
    name = PurePosixPath(words[0]).name if words else ""
    inner = words
    if name in _SKIPPED_WRAPPERS or words[:2] == ["uv", "pip"] or (name == "command" and words[1:2] not in (["-v"], ["-V"])):
        inner = words[1:]
    elif tuple(words[:2]) in _RUN_WRAPPERS:
        inner = _without_options(words[2:])
    elif name == "timeout":
        inner = _without_options(words[1:])[1:]
    elif name == "xargs":
        inner = _without_options([word for word in words[1:] if not word.isdigit()])
    elif re.fullmatch(r"python[\d.]*", name) and words[1:2] == ["-m"]:
        inner = words[2:]
    return inner


def _without_options(words: list[str]) -> list[str]:
    while words and words[0].startswith("-"):
        words = words[2:] if words[0] in _WRAPPER_VALUES else words[1:]
    return words


def _unquote(text: str) -> str:
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    return text[1:] if text[0] == "\\" and len(text) > 1 else text
