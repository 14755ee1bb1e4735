"""What a shell command is for: a look-up, a test run, a commit, an install ... read from its words."""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import IntEnum
from itertools import pairwise
from pathlib import PurePosixPath

import msgspec

from cmserver.providers.rules.text import shorten

MAX_COMMAND = 4_000


class Sort(IntEnum):
    """What a command is for. Of a line with several commands the highest counts."""

    LOOK = 0
    ROUTINE = 1
    OTHER = 2
    FILES = 3
    DEED = 4
    INSTALL = 5
    CHECK = 6
    TEST = 7
    COMMIT = 8


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One simple command of a line. `label` names its program and purpose (`pytest`, `git push`, `npm test`)."""

    sort: Sort
    label: str
    words: list[str]
    writes: str | None = None
    """The file its output is redirected to."""
    appends: bool = False


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """A command line, understood by its most telling part."""

    shown: str
    """Short enough for a title, without `cd` and redirections where one part tells it all."""
    chief: Part
    parts: list[Part]
    heredocs: list[str]

    @property
    def key(self) -> str:
        """Two runs with the same key try the same thing: test runs by their runner, other commands by their words."""
        return self.chief.label if self.chief.sort in {Sort.TEST, Sort.CHECK, Sort.COMMIT} else self.shown


_TOKEN = re.compile(
    r"""(?P<quote>'[^']*'|"(?:\\.|[^"\\])*")|(?P<escape>\\.)|(?P<redirect>\d?(?:>>|>\||>|<<<|<<-?|<)(?:&\d)?|&>)"""
    r"""|(?P<end>\n|;|\|\|?|&&?)|(?P<blank>[^\S\n]+)|(?P<plain>[^\s'"\\;&|<>]+|.)""",
    re.DOTALL,
)
_HEREDOC = re.compile(r"<<-?[ \t]*(['\"]?)(\w++)\1([^\n]*+)\n(.*?)\n?^[ \t]*\2[ \t]*$", re.DOTALL | re.MULTILINE)
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")

_SKIPPED_WRAPPERS = {"sudo", "time", "env", "command", "exec", "nohup", "nice", "npx", "bunx", "then", "do", "else", "!"}
_RUN_WRAPPERS = {
    ("uv", "run"), ("poetry", "run"), ("pipenv", "run"), ("hatch", "run"), ("pdm", "run"), ("rye", "run"),
    ("bundle", "exec"), ("pnpm", "exec"), ("npm", "exec"), ("pnpm", "dlx"), ("yarn", "dlx"),
}  # fmt: skip
_SHELLS = {"bash", "sh", "zsh", "dash"}

_LOOKS = {
    "cat", "ls", "cd", "pwd", "echo", "find", "head", "tail", "which", "whereis", "grep", "egrep", "rg", "ag", "wc",
    "tree", "less", "more", "stat", "file", "du", "df", "printenv", "ps", "top", "whoami", "date", "id", "type",
    "true", ":", "sleep", "jq", "yq", "sort", "uniq", "cut", "diff", "cmp", "printf", "test", "[", "[[", "bat", "fd",
    "history", "clear", "uname", "hostname", "lsof", "netstat", "ss", "man", "basename", "dirname", "realpath",
    "readlink", "md5sum", "sha256sum", "xxd", "od", "strings", "awk", "column", "nl", "tr", "wait", "jobs", "pgrep",
}  # fmt: skip
_WRITERS = {"cat", "echo", "printf"}
_ROUTINES = {
    "mkdir", "touch", "chmod", "chown", "cp", "ln", "export", "source", ".", "set", "unset", "kill", "pkill", "black",
    "isort", "prettier", "gofmt", "rustfmt", "tar", "unzip", "zip", "for", "while", "if", "done", "fi", "esac", "tee",
    "fg", "bg", "ssh-add", "direnv", "nvm", "pyenv", "pushd", "popd", "alias",
}  # fmt: skip
_TESTS = {
    "pytest", "py.test", "jest", "vitest", "tox", "nox", "rspec", "phpunit", "ctest", "mocha", "ava", "behave",
    "playwright", "cypress",
}  # fmt: skip
_CHECKS = {
    "mypy", "pyright", "basedpyright", "eslint", "tsc", "flake8", "pylint", "golangci-lint", "staticcheck",
    "shellcheck", "pre-commit", "bandit", "lint-imports", "stylelint", "vulture", "import-linter",
}  # fmt: skip
_SCRIPTS = {  # a word in the name of a make target or package script, and what that makes of it
    "test": Sort.TEST, "tests": Sort.TEST, "spec": Sort.TEST, "e2e": Sort.TEST, "lint": Sort.CHECK,
    "check": Sort.CHECK, "typecheck": Sort.CHECK, "types": Sort.CHECK, "build": Sort.CHECK, "compile": Sort.CHECK,
}  # fmt: skip
_SUBCOMMANDS: dict[str, dict[str, Sort]] = {
    "cargo": {"test": Sort.TEST, "nextest": Sort.TEST, "check": Sort.CHECK, "clippy": Sort.CHECK, "build": Sort.CHECK,
              "add": Sort.INSTALL, "fmt": Sort.ROUTINE, "publish": Sort.DEED},
    "go": {"test": Sort.TEST, "vet": Sort.CHECK, "build": Sort.CHECK, "get": Sort.INSTALL, "fmt": Sort.ROUTINE,
           "mod": Sort.ROUTINE, "list": Sort.LOOK},
    "ruff": {"check": Sort.CHECK, "format": Sort.ROUTINE},
    "biome": {"check": Sort.CHECK, "lint": Sort.CHECK},
    "dotnet": {"test": Sort.TEST, "build": Sort.CHECK, "add": Sort.INSTALL},
    "mvn": {"test": Sort.TEST, "verify": Sort.TEST, "package": Sort.CHECK, "compile": Sort.CHECK},
    "gradle": {"test": Sort.TEST, "check": Sort.TEST, "build": Sort.CHECK},
    "gradlew": {"test": Sort.TEST, "check": Sort.TEST, "build": Sort.CHECK},
    "mix": {"test": Sort.TEST, "compile": Sort.CHECK},
    "swift": {"test": Sort.TEST, "build": Sort.CHECK},
    "deno": {"test": Sort.TEST, "check": Sort.CHECK, "lint": Sort.CHECK},
    "alembic": {"upgrade": Sort.DEED, "downgrade": Sort.DEED},
    "terraform": {"apply": Sort.DEED, "plan": Sort.LOOK},
    "kubectl": {"apply": Sort.DEED, "get": Sort.LOOK, "describe": Sort.LOOK, "logs": Sort.LOOK},
    "helm": {"install": Sort.DEED, "upgrade": Sort.DEED},
    "twine": {"upload": Sort.DEED},
    "docker": {"push": Sort.DEED, "ps": Sort.LOOK, "logs": Sort.LOOK, "images": Sort.LOOK, "inspect": Sort.LOOK},
    "brew": {"install": Sort.INSTALL}, "gem": {"install": Sort.INSTALL}, "composer": {"require": Sort.INSTALL},
    "apt-get": {"install": Sort.INSTALL}, "apt": {"install": Sort.INSTALL}, "conda": {"install": Sort.INSTALL},
    "apk": {"add": Sort.INSTALL}, "dnf": {"install": Sort.INSTALL},
    "pip": {"install": Sort.INSTALL, "list": Sort.LOOK, "show": Sort.LOOK, "freeze": Sort.LOOK},
    "poetry": {"add": Sort.INSTALL}, "pipenv": {"install": Sort.INSTALL}, "pdm": {"add": Sort.INSTALL},
}  # fmt: skip
_GIT = {
    "commit": Sort.COMMIT, "push": Sort.DEED, "merge": Sort.DEED, "revert": Sort.DEED, "tag": Sort.DEED,
    "rebase": Sort.DEED, "cherry-pick": Sort.DEED, "rm": Sort.FILES, "mv": Sort.FILES,
    "add": Sort.ROUTINE, "checkout": Sort.ROUTINE, "switch": Sort.ROUTINE, "stash": Sort.ROUTINE,
    "pull": Sort.ROUTINE, "restore": Sort.ROUTINE, "clean": Sort.ROUTINE, "init": Sort.ROUTINE,
    "clone": Sort.ROUTINE, "worktree": Sort.ROUTINE, "reset": Sort.ROUTINE, "config": Sort.ROUTINE,
}  # fmt: skip
_INSTALL_NOTHING_NEW = {"-r", "--requirement", "-e", "--editable", "-c"}


def read(line: str) -> Command:
    """Understand a command line; anything that is no shell still gives a command of sort OTHER."""
    line = line[:MAX_COMMAND].replace("\\\n", " ")
    heredocs = [found[4] for found in _HEREDOC.finditer(line)]
    bare = _HEREDOC.sub(r"\3", line) if heredocs else line
    pieces = _split(bare)
    parts = [part for words, _, writes, appends in pieces for part in [_understand(words, writes, appends)]]
    spelled = [" ".join(_without_parentheses(text.split(" "))) for _, text, _, _ in pieces]
    if len(parts) == 1 and parts[0].label in _SHELLS and (script := _script(parts[0].words)):
        return read(script)
    if not parts:
        parts, spelled = [Part(sort=Sort.LOOK, label="nothing", words=[])], [""]
    chief = max(range(len(parts)), key=lambda place: parts[place].sort)
    shown = spelled[chief] if parts[chief].sort > Sort.OTHER else _without_cd(bare, parts)
    return Command(shown=shorten(shown, 60), chief=parts[chief], parts=parts, heredocs=heredocs)


def simple_commands(line: str) -> list[tuple[list[str], list[str]]]:
    """The commands of a line, in words: as they are written, and without `sudo`, `npx` and the like in front.

    None of a line that is longer than what is read: half of it would say nothing of the whole.
    """
    if len(line) > MAX_COMMAND:
        return []
    bare = _HEREDOC.sub(r"\3", line.replace("\\\n", " "))
    found: list[tuple[list[str], list[str]]] = []
    for words, _, _, _ in _split(bare):
        written = _without_parentheses(words)
        unwrapped = _unwrapped(written)
        script = _script(unwrapped) if unwrapped and PurePosixPath(unwrapped[0]).name in _SHELLS else ""
        if script:
            found += simple_commands(script)
        elif written:
            found.append((written, unwrapped))
    return found


def _without_cd(line: str, parts: list[Part]) -> str:
    line = line.strip().split("\n", 1)[0]
    if len(parts) > 1 and parts[0].label == "cd":
        return re.sub(r"^cd\s[^;&]*(?:&&|;)\s*", "", line)
    return line


def _split(line: str) -> list[tuple[list[str], str, str | None, bool]]:
    """The simple commands of a line: words, the text as written, the file written to, and whether that is appended."""
    found: list[tuple[list[str], str, str | None, bool]] = []
    words, spelled, writes, appends = list[str](), list[str](), None, False
    glued, redirect = False, ""
    for token in _TOKEN.finditer(line + "\n"):
        kind, text = token.lastgroup, token[0]
        if kind == "blank":
            glued = False
        elif kind == "end":
            if words:
                found.append((words, " ".join(spelled), writes, appends))
            words, spelled, writes, appends, glued, redirect = [], [], None, False, False, ""
        elif kind == "redirect":
            glued, redirect = False, "" if "&" in text and text != "&>" else text
        elif redirect:
            if redirect in {">", ">>", "1>", "1>>"} and text != "/dev/null":
                writes, appends = (writes or "") + _unquoted(text), redirect.endswith(">>")
            redirect = ""
        else:
            value = _unquoted(text)
            words, spelled = _add(words, value, glued=glued), _add(spelled, text, glued=glued)
            glued = True
    return found


def _add(words: list[str], text: str, *, glued: bool) -> list[str]:
    if glued and words:
        words[-1] += text
    else:
        words.append(text)
    return words


def _unquoted(text: str) -> str:
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    return text[1:] if text[0] == "\\" and len(text) > 1 else text


def _script(words: list[str]) -> str:
    """What `bash -lc "..."` runs."""
    return next((after for flag, after in pairwise(words) if flag in {"-c", "-lc"}), "")


def _understand(words: list[str], writes: str | None, appends: bool) -> Part:
    words = _unwrapped(_without_parentheses(words))
    if not words:
        return Part(sort=Sort.LOOK, label="nothing", words=[])
    name = PurePosixPath(words[0]).name or words[0]
    sort, label = _recogniser(name)(name, words)
    if name in _WRITERS and writes:
        sort = Sort.FILES
    return Part(sort=sort, label=shorten(label, 40), words=words, writes=writes, appends=appends)


def _without_parentheses(words: list[str]) -> list[str]:
    """`(cd web && npm test)` is split into `(cd web` and `npm test)`."""
    if words[0][:1] in {"(", "{"}:
        words = [words[0][1:], *words[1:]]
    if words[-1].endswith(")") and "(" not in words[-1]:
        words = [*words[:-1], words[-1][:-1]]
    return [word for word in words if word]


def _unwrapped(words: list[str]) -> list[str]:
    while words:
        name = PurePosixPath(words[0]).name
        if _ASSIGNMENT.match(words[0]) or name in _SKIPPED_WRAPPERS:
            words = words[1:]
        elif tuple(words[:2]) in _RUN_WRAPPERS:
            words = _without_options(words[2:])
        elif name == "timeout":
            words = _without_options(words[1:])[1:]
        elif re.fullmatch(r"python[\d.]*", name) and words[1:2] == ["-m"]:
            words = words[2:]
        elif words[:2] == ["uv", "pip"]:
            words = words[1:]
        else:
            break
    return words


def _without_options(words: list[str]) -> list[str]:
    while words and words[0].startswith("-"):
        words = words[1:]
    return words


def _recogniser(name: str) -> Callable[[str, list[str]], tuple[Sort, str]]:
    return _RECOGNISERS.get(name, _by_name)


def _by_name(name: str, words: list[str]) -> tuple[Sort, str]:
    stem = name.rsplit(".", 1)[0]
    if stem in _SCRIPTS and "/" in words[0]:  # the project's own bin/test, scripts/lint.sh
        return _SCRIPTS[stem], words[0]
    for sort, names in _NAMES.items():
        if name in names:
            return sort, name
    if name in _SUBCOMMANDS:
        return _subcommand(name, words)
    return Sort.OTHER, name


def _subcommand(name: str, words: list[str]) -> tuple[Sort, str]:
    arguments = [word for word in words[1:] if not word.startswith("-")]
    chosen = arguments[0] if arguments else ""
    sort = _SUBCOMMANDS[name].get(chosen, Sort.OTHER)
    if sort is Sort.INSTALL and not packages(words):
        sort = Sort.ROUTINE
    return sort, f"{name} {chosen}".strip()


def _git(name: str, words: list[str]) -> tuple[Sort, str]:
    rest = words[1:]
    while rest and rest[0].startswith("-"):
        rest = rest[2:] if rest[0] in {"-C", "-c"} else rest[1:]
    chosen = rest[0] if rest else ""
    sort = _GIT.get(chosen, Sort.LOOK)
    if chosen == "tag" and not [word for word in rest[1:] if not word.startswith("-")]:
        sort = Sort.LOOK
    if any(word in {"--dry-run", "--abort", "-l", "--list", "--continue"} for word in rest):
        sort = Sort.ROUTINE
    return sort, f"{name} {chosen}".strip()


def _package_manager(name: str, words: list[str]) -> tuple[Sort, str]:
    arguments = [word for word in words[1:] if not word.startswith("-")]
    chosen = arguments[0] if arguments else ""
    if chosen in {"install", "i", "add"}:
        return (Sort.INSTALL if packages(words) else Sort.ROUTINE), f"{name} {chosen}"
    if chosen in {"run", "run-script"}:
        arguments = arguments[1:]
    script = arguments[0] if arguments else ""
    sort = Sort.TEST if script == "t" else _script_sort(script)
    return (Sort.DEED if chosen == "publish" else sort), f"{name} {chosen} {script}" if script != chosen else f"{name} {chosen}"


def _script_sort(script: str) -> Sort:
    found = (_SCRIPTS[word] for word in re.split(r"[:_.-]", script.lower()) if word in _SCRIPTS)
    return next(found, Sort.OTHER)


def _make(name: str, words: list[str]) -> tuple[Sort, str]:
    targets = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
    target = targets[0] if targets else ""
    return (_script_sort(target) if target else Sort.CHECK), f"{name} {target}".strip()


def _uv(name: str, words: list[str]) -> tuple[Sort, str]:
    chosen = words[1] if len(words) > 1 else ""
    return (Sort.INSTALL if chosen == "add" and packages(words) else Sort.ROUTINE), f"{name} {chosen}".strip()


def _manage(name: str, words: list[str]) -> tuple[Sort, str]:
    """`python manage.py test`, and other scripts run by an interpreter."""
    script = PurePosixPath(words[1]).name if len(words) > 1 else ""
    sorts = {"test": Sort.TEST, "check": Sort.CHECK, "migrate": Sort.DEED}
    if script == "manage.py" and len(words) > 2:
        return sorts.get(words[2], Sort.OTHER), f"manage.py {words[2]}"
    if any(word in {"--version", "-V"} for word in words[1:2]):
        return Sort.LOOK, name
    return Sort.OTHER, f"{name} {script}".strip()


def _sed(name: str, words: list[str]) -> tuple[Sort, str]:
    in_place = any(word.startswith(("-i", "--in-place")) for word in words[1:])
    return (Sort.FILES if in_place else Sort.LOOK), name


def _gh(name: str, words: list[str]) -> tuple[Sort, str]:
    kept = {("pr", "create"), ("pr", "merge"), ("release", "create"), ("issue", "create"), ("issue", "close")}
    return (Sort.DEED if tuple(words[1:3]) in kept else Sort.LOOK), " ".join([name, *words[1:3]])


def _files(name: str, words: list[str]) -> tuple[Sort, str]:
    """Whole folders are mostly build results: removing them is routine."""
    recursive = any(re.match(r"-\w*[rR]|--recursive", word) for word in words[1:])
    return (Sort.ROUTINE if recursive else Sort.FILES), name


def _unittest(_name: str, _words: list[str]) -> tuple[Sort, str]:
    return Sort.TEST, "unittest"


_NAMES = {Sort.LOOK: _LOOKS, Sort.ROUTINE: _ROUTINES, Sort.TEST: _TESTS, Sort.CHECK: _CHECKS}
_RECOGNISERS: dict[str, Callable[[str, list[str]], tuple[Sort, str]]] = {
    "git": _git,
    **dict.fromkeys(("npm", "pnpm", "yarn", "bun"), _package_manager),
    **dict.fromkeys(("make", "just", "task"), _make),
    **dict.fromkeys(("python", "python3", "node", "ruby", "php"), _manage),
    **dict.fromkeys(("rm", "mv"), _files),
    "uv": _uv,
    "pip3": lambda _name, words: _subcommand("pip", words),
    "sed": _sed,
    "gh": _gh,
    "unittest": _unittest,
}


def packages(words: list[str]) -> list[str]:
    """The packages that an install names, without options; none for `-r file`, `.` and lock-file installs."""
    rest = [word for word in words[1:] if word]
    if any(word in _INSTALL_NOTHING_NEW for word in rest):
        return []
    names = [word for word in rest if not word.startswith("-")][1:]
    return [name for name in names if not name.startswith((".", "/")) and not name.endswith((".txt", ".whl"))]
