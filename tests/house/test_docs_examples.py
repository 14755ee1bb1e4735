"""What the pages for users name is there: links, files, settings, commands, paths. tests/process/test_examples.py runs them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import msgspec

from cmserver.base.configuration import CLIENT_NAMES, CONFIG_FILE, FOREIGN_NAMES, TEST_PREFIX
from cmserver.base.removed_settings import REMOVED
from cmserver.base.settings import fields
from cmserver.cli.main import cli
from tests.house.examples import PAGES, Curl, blocks, commands, curl, name
from tests.house.house import ROOT
from tests.table import try_rows

SETTINGS = {
    CONFIG_FILE,
    *FOREIGN_NAMES,
    *(field.environment for field in fields()),
    *(f"{field.environment}_FILE" for field in fields() if field.mask),
    *(f"CMSERVER_{removed.upper()}" for removed in REMOVED),  # CHANGELOG.md says that they are gone
}

_LINK = re.compile(r"\]\(([^)\s]+)\)")
_CODE = re.compile(r"`([^`\n]+)`")
_SETTING = re.compile(r"\bCMSERVER_[A-Z][A-Z0-9_]*")
_OTHERS = {"cd", "claude", "codex", "gemini"}
"""Programs that take `cmserver` for a name of theirs: a folder, an MCP server."""
_FILE = re.compile(r"(?:bin|cmserver|docs|sql|tests|\.ci)/[\w./-]*|test_\w+\.py|\w+\.sql|[A-Z]+\.md|Containerfile|compose\.yaml")


def dead_links(page: Path, text: str) -> Iterator[str]:
    for target in _LINK.findall(text):
        if "://" not in target and not (page.parent / target.partition("#")[0]).exists():
            yield f"{name(page)} links to {target}"


def missing_files(page: Path, text: str) -> Iterator[str]:
    for code in _CODE.findall(_without_blocks(text)):
        if _FILE.fullmatch(code) and not any((folder / code).exists() for folder in _places(page)):
            yield f"{name(page)} names {code}"


def _places(page: Path) -> list[Path]:
    return [ROOT, page.parent, ROOT / "tests" / "house", ROOT / "sql" / "ops", ROOT / "cmserver"]


def _without_blocks(text: str) -> str:
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def strange_settings(page: Path, text: str) -> Iterator[str]:
    for named in _SETTING.findall(text):
        if named not in SETTINGS | CLIENT_NAMES and not named.startswith(TEST_PREFIX):
            yield f"{name(page)} names {named}"


def strange_commands(page: Path, text: str) -> Iterator[str]:
    spans = [code for code in _CODE.findall(_without_blocks(text)) if re.match(r"(bin/)?cmserver [a-z-]", code)]
    for piece in [*spans, *(block.text for block in blocks(text) if block.language == "sh")]:
        for words in commands(piece):
            yield from (f"{name(page)}: {said}" for said in wrong_command(words))


def wrong_command(words: list[str]) -> Iterator[str]:
    """What cmserver would say against the command, if it is one of cmserver's."""
    at = next((place for place, word in enumerate(words) if word in {"cmserver", "bin/cmserver"}), None)
    if at is None or words[0] in _OTHERS:
        return
    command: click.Command | None = cli
    while isinstance(command, click.Group) and at + 1 < len(words):
        if command.invoke_without_command and words[at + 1].startswith("-"):
            break
        at += 1
        command = command.get_command(click.Context(command), "claude-code" if words[at] == "AGENT" else words[at])
    if command is None:
        yield f"there is no command {' '.join(words)}"
    if command is None or (isinstance(command, click.Group) and at + 1 == len(words)):  # a group may be named as a whole
        return
    try:
        command.make_context(words[at], words[at + 1 :], parent=click.Context(cli))
    except click.exceptions.Exit:  # --help
        return
    except click.UsageError as error:
        if isinstance(error, click.MissingParameter) and at + 1 == len(words):
            return  # a command is named, as in the table of all
        if isinstance(error, click.BadParameter) and error.param and isinstance(error.param.type, click.Path):
            return  # the file of an example is nowhere
        yield f"{' '.join(words)}: {error.format_message()}"


def strange_requests(page: Path, text: str) -> Iterator[str]:
    for one in requests(text):
        if not one.is_served:
            yield f"{name(page)} sends {one.method} {one.url}"


def requests(text: str) -> list[Curl]:
    shell = [block.text for block in blocks(text) if block.language == "sh"]
    return [curl(words) for piece in shell for words in commands(piece) if words[0] == "curl"]


def unreadable_json(page: Path, text: str) -> Iterator[str]:
    for block in blocks(text):
        if block.language == "json":
            try:
                msgspec.json.decode(block.text)
            except msgspec.DecodeError as error:
                yield f"{name(page)} has JSON that cannot be read: {error}"


def open_blocks(page: Path, text: str) -> Iterator[str]:
    if len(re.findall(r"^```", text, re.MULTILINE)) % 2:
        yield f"{name(page)} has a code block that is not closed"


Rule = Callable[[Path, str], Iterator[str]]
RULES: list[Rule] = [dead_links, open_blocks, missing_files, strange_settings, strange_commands, strange_requests, unreadable_json]


@try_rows("rule", RULES, ids=lambda rule: rule.__name__)
@try_rows("page", PAGES, ids=name)
def test_what_a_page_names_is_there(page: Path, rule: Rule):
    assert list(rule(page, page.read_text(encoding="utf-8"))) == []


@try_rows(
    ("rule", "text"),
    [
        (dead_links, "See [the queue](docs/why/cue.md#how)."),
        (open_blocks, "Then:\n\n```sh\ncmserver run\n"),
        (missing_files, "Look into `cmserver/service.py`."),
        (missing_files, "The test `test_nothing_at_all.py` tells."),
        (strange_settings, "Set `CMSERVER_PROT=1`."),
        (strange_commands, "`cmserver migrate` does it."),
        (strange_commands, "`cmserver keys forge` does it."),
        (strange_commands, "```sh\ncmserver keys create --silent\n```\n"),
        (strange_commands, "```sh\nX=1 bin/cmserver run --roll api   # the server\n```\n"),
        (strange_commands, "```sh\ncd cmserver && cmserver run --role both\n```\n"),
        (strange_requests, "```sh\ncurl -s -H 'X-Api-Key: x' \\\n  http://127.0.0.1/v1/event -d '{\n}'\n```\n"),
        (strange_requests, "```sh\ncurl -s http://127.0.0.1/v1/search?query=x\n```\n"),
        (unreadable_json, "```json\n{'a': 1}\n```\n"),
    ],
)
def test_each_rule_bites(rule: Rule, text: str):
    assert len(list(rule(ROOT / "README.md", text))) == 1


def test_the_examples_are_found():
    shown = {name(page): len(requests(page.read_text(encoding="utf-8"))) for page in PAGES}

    assert shown["README.md"] >= 2
    assert shown["docs/quickstart.md"] >= 5
    assert shown["docs/howto/attach-claude-code.md"] >= 1


def test_every_page_can_be_reached_from_the_map():
    text = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")

    linked = {(ROOT / "docs" / target).resolve() for target in _LINK.findall(text) if "://" not in target}

    assert [name(page) for page in PAGES if page not in linked and page.name not in {"README.md", "index.md"}] == []


def test_the_readme_is_one_screen():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 80


def test_the_licence_is_the_one_that_pyproject_names():
    assert 'license = "Apache-2.0"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert "Apache License\n                           Version 2.0" in (ROOT / "LICENSE").read_text(encoding="utf-8")


class Hook(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """One handler in Claude Code's settings."""

    type: str
    url: str = ""
    headers: dict[str, str] = {}
    allowed_env_vars: list[str] = []
    command: str = ""


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """The handlers of one hook."""

    hooks: list[Hook]


class ClaudeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A settings.json of Claude Code."""

    hooks: dict[str, list[Group]]


def test_the_hooks_of_claude_code_reach_the_server_with_their_key():
    page = ROOT / "docs" / "howto" / "attach-claude-code.md"
    shown = next(block.text for block in blocks(page.read_text(encoding="utf-8")) if '"SessionStart": [{' in block.text)
    told = msgspec.json.decode(shown, type=ClaudeSettings)
    hooks = [(called, hook) for called, groups in told.hooks.items() for group in groups for hook in group.hooks]

    sent: list[Curl] = []
    for called, hook in hooks:
        if called == "SessionStart":  # Claude Code runs no http hooks there
            assert hook.type == "command"
            sent.append(curl(next(commands(hook.command))))
            assert "-H @$HOME/.cmserver-key" in hook.command
        else:
            assert hook.type == "http"
            assert hook.allowed_env_vars == ["CM_API_KEY"]
            assert hook.headers["Authorization"] == "Bearer $CM_API_KEY"
            sent.append(Curl(method="POST", url=hook.url, headers=hook.headers, body=""))

    assert told.hooks.keys() == {"SessionStart", "PostToolUse"}
    assert {one.url for one in sent} == {"http://127.0.0.1:37877/v1/hooks/claude-code"}
    assert all(one.is_served for one in sent)


def test_the_readme_shows_first_how_to_start_and_attach_and_ci_calls_what_it_names():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    first = [line.partition("#") for line in next(block for block in blocks(readme) if block.language == "sh").text.splitlines()]
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8")

    clone, start, attach = [command.strip() for command, _, _ in first]
    assert clone.startswith("git clone ")
    assert (start, attach) == ("bin/cmserver start", "bin/cmserver connect claude-code")
    assert "`bin/cmserver run`" in first[1][2]
    assert "`bin/test`" in readme
    assert re.findall(r"^timeout .*? (bin/\w+)", ci, re.MULTILINE) == ["bin/check", "bin/test"]
    assert sorted(re.findall(r"\|\| failed\+=\((bin/\w+)\)$", ci, re.MULTILINE)) == ["bin/check", "bin/test"]
    assert all(os.access(ROOT / name, os.X_OK) for name in ("bin/cmserver", "bin/test", ".ci/run"))
