"""Reads what a shell command line is for: a look-up, a test run, a commit, an install ..."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import PurePosixPath

from cmserver.base.text import shorten
from cmserver.tooluse import shell
from cmserver.tooluse.model import CommandLine, CommandPlace, Purpose, SimpleCommand
from cmserver.tooluse.places import entered_folder, join, place_below, take_place

_RUNS_NOTHING = {
    "--help", "--version", "--collect-only", "--co", "--list", "--listTests", "--list-tests", "-list", "--no-run", "--if-present",
    "--dry-run", "--just-print", "--recon", "--show-config", "--showConfig", "--print-config", "--fixtures", "--markers", "--init",
}  # fmt: skip
"""Flags by which a check does not check."""
_ITS_RUNS_NOTHING = {
    "go": {"-c"},
    "ctest": {"-N", "--show-only"},
    "tox": {"-l", "-a", "--listenvs", "--listenvs-all"},
    "nox": {"-l", "--list-sessions"},
    "phpunit": {"--list-groups", "--list-suites", "--list-test-files"},
    "jest": {"--clearCache"},
    "playwright": {"install", "install-deps", "codegen", "show-report", "show-trace", "open"},
    "cypress": {"install", "verify", "open", "info", "cache"},
    "vitest": {"list", "init"},
    "cargo nextest": {"list", "archive"},
    "swift test": {"list"},
    "gradle": {"-m"},
    "gradlew": {"-m"},
}
"""Flags, and first words, of one program by which it does not check."""
_LEAVES_TESTS_OUT = {"-DskipTests", "-DskipTests=true", "-Dmaven.test.skip", "-Dmaven.test.skip=true"}
"""With these Maven only builds."""
_RUN_PROGRAMS = {"pnpm", "yarn", "bun"}
"""They run an installed program by its name alone."""
_CHECKS = {Purpose.CHECK, Purpose.TEST}
_MAX_SOURCE, _MAX_SETTINGS, _MAX_SETTING = 200, 4, 60
_SWITCH = re.compile(r"\d|true|false|yes|no|on|off|full|\.", re.IGNORECASE)
_SECRET = re.compile(r"key|token|secret|pass|auth|credential", re.IGNORECASE)
_WRITERS = {"cat", "echo", "printf"}
_GITHUB_DEEDS = {("pr", "create"), ("pr", "merge"), ("release", "create"), ("issue", "create"), ("issue", "close")}
_INSTALL_NOTHING_NEW = {"-r", "--requirement", "-e", "--editable", "-c"}

_PROGRAMS: dict[Purpose, str] = {
    Purpose.LOOK: "cat ls cd pwd echo find head tail which whereis grep egrep rg ag wc tree less more stat file du df printenv ps "
    "top whoami date id type true : sleep jq yq sort uniq cut diff cmp printf test [ [[ bat fd history clear uname hostname lsof "
    "netstat ss man command basename dirname realpath readlink md5sum sha256sum xxd od strings awk column nl tr wait jobs pgrep",
    Purpose.ROUTINE: "mkdir touch chmod chown cp ln export source . set unset kill pkill black isort prettier gofmt rustfmt tar "
    "unzip zip for while if done fi esac tee fg bg ssh-add direnv nvm pyenv pushd popd alias",
    Purpose.TEST: "pytest py.test jest vitest tox nox rspec phpunit ctest mocha ava behave playwright cypress unittest",
    Purpose.CHECK: "mypy pyright basedpyright eslint tsc flake8 pylint golangci-lint staticcheck shellcheck pre-commit bandit "
    "lint-imports stylelint vulture import-linter",
}
_SUBCOMMANDS: dict[Purpose, str] = {
    Purpose.LOOK: "go list, terraform plan, kubectl get, kubectl describe, kubectl logs, docker ps, docker logs, docker images, "
    "docker inspect, pip list, pip show, pip freeze",
    Purpose.ROUTINE: "cargo fmt, go fmt, go mod, ruff format, uv sync, uv lock, uv venv, git add, git checkout, git switch, "
    "git stash, git pull, git restore, git clean, git init, git clone, git worktree, git reset, git config",
    Purpose.FILES: "git rm, git mv",
    Purpose.DEED: "git push, git merge, git revert, git tag, git rebase, git cherry-pick, cargo publish, alembic upgrade, "
    "alembic downgrade, terraform apply, kubectl apply, helm install, helm upgrade, twine upload, docker push",
    Purpose.INSTALL: "cargo add, go get, dotnet add, brew install, gem install, apt-get install, apt install, "
    "conda install, apk add, uv add, dnf install, pip install, poetry add, pipenv install, pdm add",
    Purpose.CHECK: "cargo check, cargo clippy, cargo build, go vet, go build, ruff check, biome check, biome lint, dotnet build, "
    "mvn package, mvn compile, gradle build, mix compile, swift build, deno check, deno lint",
    Purpose.TEST: "cargo test, cargo nextest, go test, dotnet test, mvn test, mvn verify, mvn install, gradle test, gradle check, "
    "mix test, swift test, deno test, rails test, sbt test, lein test",
    Purpose.COMMIT: "git commit",
}
_SCRIPTS: dict[Purpose, str] = {
    Purpose.TEST: "test tests spec e2e",
    Purpose.CHECK: "lint check typecheck types build compile",
}
"""Words in the names of make targets and package scripts."""

_WRAPPERS = {"mvnw": "mvn", "gradlew": "gradle"}
"""Scripts of a project that run the program, whose commands they take."""
_NO_GOALS = {"-x", "--exclude-task", "-P", "--activate-profiles", "--tests"}
"""What follows is nothing that Maven or Gradle shall do."""
_FORMATTERS = {"black", "isort", "prettier", "rustfmt", "cargo fmt", "ruff format"}
"""With `--check` they change nothing, and are checks."""

_PROGRAM_PURPOSES = {name: purpose for purpose, names in _PROGRAMS.items() for name in names.split()}
_SUBCOMMAND_PURPOSES = {name: purpose for purpose, names in _SUBCOMMANDS.items() for name in names.split(", ")}
_SCRIPT_PURPOSES = {word: purpose for purpose, words in _SCRIPTS.items() for word in words.split()}
_WITH_SUBCOMMANDS = {name.split()[0] for name in _SUBCOMMAND_PURPOSES}


def read_command_line(line: str) -> CommandLine:
    """Understand a command line; what is no shell still gives a command of purpose OTHER."""
    bare, heredocs = shell.split_heredocs(line[: shell.MAX_COMMAND])
    pieces = shell.split_commands(bare)
    commands = _understand_all(pieces)
    if len(commands) == 1 and commands[0].label in shell.SHELLS and (script := shell.script_of(commands[0].words)):
        return read_command_line(script)
    if not commands:
        return CommandLine(text="", main=_NOTHING, commands=[_NOTHING], heredocs=heredocs)
    # Of several checks the last one prints its totals last.
    place = max(
        range(len(commands)),
        key=lambda place: (commands[place].purpose, place if commands[place].purpose >= Purpose.CHECK else -place),
    )
    text = pieces[place].source if commands[place].purpose > Purpose.OTHER else _without_cd(bare, commands)
    return CommandLine(text=shorten(text, 60), main=commands[place], commands=commands, heredocs=heredocs)


def packages(words: Sequence[str]) -> list[str]:
    """The packages that an install names, without options; none for `-r file`, `.` and lock-file installs."""
    arguments = [word for word in words[1:] if word]
    if any(word in _INSTALL_NOTHING_NEW for word in arguments):
        return []
    names = [word for word in arguments if not word.startswith("-")][1:]
    return [name for name in names if not name.startswith((".", "/")) and not name.endswith((".txt", ".whl"))]


def arguments_of(words: Sequence[str]) -> list[str]:
    """The words behind the program that are no options."""
    return [word for word in words[1:] if not word.startswith("-")]


def _without_cd(line: str, commands: list[SimpleCommand]) -> str:
    line = line.strip().split("\n", 1)[0]
    return re.sub(r"^cd\s[^;&]*(?:&&|;)\s*", "", line) if len(commands) > 1 and commands[0].label == "cd" else line


def _understand_all(pieces: Sequence[shell.ShellCommand]) -> list[SimpleCommand]:
    """The commands, each in the folder that `cd` has entered before it; what a group in parentheses enters ends with it."""
    commands: list[SimpleCommand] = []
    folder, outer = "", list[str]()
    for piece in pieces:
        outer += [folder] * piece.opens
        command = _understand(piece, CommandPlace(folder))
        commands.append(command)
        folder = join(folder, entered_folder(command.words) or "")
        for _ in range(min(piece.closes, len(outer))):
            folder = outer.pop()
    return commands


def _understand(piece: shell.ShellCommand, place: CommandPlace) -> SimpleCommand:
    """The command with its purpose and label, by the words of its program. `place` is where the line has led to."""
    words = shell.without_parentheses(piece.words)
    settings = [setting for word in words[: len(words) - len(shell.without_assignments(words))] if (setting := _setting(word))]

    def strip(layer: list[str]) -> list[str]:
        nonlocal place
        bare, inner = take_place(layer)
        place = place_below(inner, place)
        return bare[1:] if bare[:1] and bare[0] in _RUN_PROGRAMS and _is_checker(bare[1:]) else bare

    words = shell.unwrap(words, strip)
    if not words:
        return _NOTHING
    name = PurePosixPath(words[0]).name or words[0]
    purpose, label = _READERS.get(name, _read_by_name)(name, words)
    if name in _WRITERS and piece.output_path:
        purpose = Purpose.FILES
    if purpose in _CHECKS and _runs_nothing(name, label, words, purpose):
        purpose = Purpose.LOOK
    return SimpleCommand(
        purpose=purpose,
        label=shorten(label, 40),
        words=words,
        output_path=piece.output_path,
        appends=piece.appends,
        operator=piece.operator,
        is_negated=piece.words[0] == "!",
        source=shorten(piece.source, _MAX_SOURCE),
        place=place,
        settings=settings[:_MAX_SETTINGS],
    )


def _is_checker(words: list[str]) -> bool:
    return bool(words) and _PROGRAM_PURPOSES.get(words[0]) in _CHECKS


def _runs_nothing(name: str, label: str, words: list[str], purpose: Purpose) -> bool:
    """Whether its words say that a check only lists, compiles, or leaves out what there is to check."""
    behind = words[len(label.split()) :]
    its = _ITS_RUNS_NOTHING.get(label) or _ITS_RUNS_NOTHING.get(name, set())
    return (
        not _RUNS_NOTHING.isdisjoint(words)
        or any(word in its and (place == 0 or word.startswith("-")) for place, word in enumerate(behind))
        or (purpose is Purpose.TEST and not _LEAVES_TESTS_OUT.isdisjoint(words))
        or (name in {"gradle", "gradlew"} and ("-x", label.rpartition(" ")[2]) in pairwise(words))
    )


def _setting(word: str) -> str:
    """An assignment that chooses what is checked (`DB=postgres`), "" for a switch, a path, or what may be a secret."""
    name, _, value = word.partition("=")
    is_choice = value and len(word) <= _MAX_SETTING and not _SWITCH.fullmatch(value) and "/" not in value
    return word if is_choice and not _SECRET.search(name) else ""


def _read_by_name(name: str, words: list[str]) -> tuple[Purpose, str]:
    stem = name.rsplit(".", 1)[0]
    if stem in _SCRIPT_PURPOSES and "/" in words[0]:  # the project's own bin/test, scripts/lint.sh
        return _SCRIPT_PURPOSES[stem], words[0]
    if name in _PROGRAM_PURPOSES:
        is_check = name in _FORMATTERS and "--check" in words
        return (Purpose.CHECK if is_check else _PROGRAM_PURPOSES[name]), name
    return _read_subcommand(name, words) if name in _WITH_SUBCOMMANDS else (Purpose.OTHER, name)


def _read_subcommand(name: str, words: list[str]) -> tuple[Purpose, str]:
    label = " ".join([name, *arguments_of(words)[:1]])
    purpose = Purpose.CHECK if label in _FORMATTERS and "--check" in words else _SUBCOMMAND_PURPOSES.get(label, Purpose.OTHER)
    return (Purpose.ROUTINE if purpose is Purpose.INSTALL and not packages(words) else purpose), label


def _read_git(name: str, words: list[str]) -> tuple[Purpose, str]:
    """The purpose and the label of a git command."""
    rest = words[1:]
    while rest and rest[0].startswith("-"):
        rest = rest[2:] if rest[0] in {"-C", "-c"} else rest[1:]
    label = " ".join([name, *rest[:1]])
    purpose = _SUBCOMMAND_PURPOSES.get(label, Purpose.LOOK)
    if any(word in {"--dry-run", "--abort", "-l", "--list", "--continue"} for word in rest):
        purpose = Purpose.ROUTINE
    elif label == "git tag" and not arguments_of(rest):
        purpose = Purpose.LOOK
    return purpose, label


def _read_package_manager(name: str, words: list[str]) -> tuple[Purpose, str]:
    chosen, *rest = arguments_of(words) or [""]
    if chosen in {"install", "i", "add", "require"}:
        return (Purpose.INSTALL if packages(words) else Purpose.ROUTINE), f"{name} {chosen}"
    script = "".join(rest[:1]) if chosen in {"run", "run-script"} else chosen
    purpose = Purpose.DEED if chosen == "publish" else Purpose.TEST if script == "t" else _script_purpose(script)
    return purpose, f"{name} {chosen} {script}" if script != chosen else f"{name} {chosen}"


def _script_purpose(script: str) -> Purpose:
    purposes = (_SCRIPT_PURPOSES[word] for word in re.split(r"[:_.-]", script.lower()) if word in _SCRIPT_PURPOSES)
    return next(purposes, Purpose.OTHER)


def _read_make(name: str, words: list[str]) -> tuple[Purpose, str]:
    """Of several targets the one that says most: `make clean test` is a test."""
    targets = [word for word in arguments_of(words) if "=" not in word and not word.isdigit()]
    target = max(targets, key=_script_purpose, default="")
    purpose = Purpose.LOOK if "-n" in words else _script_purpose(target) if target else Purpose.CHECK
    return purpose, f"{name} {target}".rstrip()


def _read_goals(name: str, words: list[str]) -> tuple[Purpose, str]:
    """Of several goals the one that says most: `mvn clean verify` is a test."""
    goals = [word for before, word in pairwise(words) if not word.startswith("-") and before not in _NO_GOALS]
    program = _WRAPPERS.get(name, name)
    purposes = {goal: _SUBCOMMAND_PURPOSES.get(f"{program} {goal}", Purpose.OTHER) for goal in goals}
    goal = max(goals, key=purposes.__getitem__, default="")
    return purposes.get(goal, Purpose.OTHER), f"{name} {goal}".rstrip()


def _read_interpreter(name: str, words: list[str]) -> tuple[Purpose, str]:
    """`python manage.py test`, and other scripts run by an interpreter."""
    script = PurePosixPath(words[1]).name if len(words) > 1 else ""
    purposes = {"test": Purpose.TEST, "check": Purpose.CHECK, "migrate": Purpose.DEED}
    if name == "node" and "--test" in words[1:]:
        return Purpose.TEST, "node --test"
    if script in {"manage.py", "artisan"} and len(words) > 2:
        return purposes.get(words[2], Purpose.OTHER), f"{script} {words[2]}"
    if words[1:2] in (["--version"], ["-V"]):
        return Purpose.LOOK, name
    return Purpose.OTHER, f"{name} {script}".strip()


def _read_sed(name: str, words: list[str]) -> tuple[Purpose, str]:
    in_place = any(word.startswith(("-i", "--in-place")) for word in words[1:])
    return (Purpose.FILES if in_place else Purpose.LOOK), name


def _read_gh(name: str, words: list[str]) -> tuple[Purpose, str]:
    return (Purpose.DEED if tuple(words[1:3]) in _GITHUB_DEEDS else Purpose.LOOK), " ".join([name, *words[1:3]])


def _read_file_command(name: str, words: list[str]) -> tuple[Purpose, str]:
    """Whole folders are mostly build results: removing them is routine."""
    recursive = any(re.match(r"-\w*[rR]|--recursive", word) for word in words[1:])
    return (Purpose.ROUTINE if recursive else Purpose.FILES), name


_NOTHING = SimpleCommand(purpose=Purpose.LOOK, label="nothing", words=[])
_READERS: dict[str, Callable[[str, list[str]], tuple[Purpose, str]]] = {
    "git": _read_git,
    **dict.fromkeys(("npm", "pnpm", "yarn", "bun", "composer"), _read_package_manager),
    **dict.fromkeys(("make", "just", "task", "rake", "ant"), _read_make),
    **dict.fromkeys(("mvn", "mvnw", "gradle", "gradlew"), _read_goals),
    **dict.fromkeys(("python", "python3", "node", "ruby", "php"), _read_interpreter),
    **dict.fromkeys(("rm", "mv"), _read_file_command),
    "pip3": lambda _name, words: _read_subcommand("pip", words),
    "sed": _read_sed,
    "gh": _read_gh,
}
