"""The examples of the README and the quickstart, sent to the real program, answer what the pages say."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from typing import cast

import httpx
import msgspec
import pytest

from tests.house.examples import Block, Curl, blocks, commands, curl
from tests.house.house import ROOT
from tests.process.conftest import Run
from tests.process.program import Program, command, wait_for
from tests.timeouts import scaled

pytestmark = pytest.mark.slow

SHOWN_URL = "http://127.0.0.1:37877"
COMPARED = {"README.md": 1, "docs/quickstart.md": 5}
"""How many answers each page shows."""


def ask(program: Program, words: list[str]) -> Callable[[], str] | None:
    """What asks the question that the command is; None when it is something else."""
    if words[0] == "curl":
        ask_it = begin if "-N" in words else send  # what it shows as it comes may have no end
        return lambda: ask_it(program, curl(words))
    if words[0] == "bin/cmserver" and words[1] in {"status", "verify"}:
        return lambda: command(program.data_dir.parent, *words[1:]).stdout
    return None


def send(program: Program, example: Curl) -> str:
    url, headers = there(program, example)
    answer = httpx.request(example.method, url, headers=headers, content=example.body, timeout=scaled(40), trust_env=False)
    assert answer.is_success, answer.text
    return answer.text


def begin(program: Program, example: Curl) -> str:
    """The beginning of a stream."""
    url, headers = there(program, example)
    with httpx.stream(example.method, url, headers=headers, timeout=scaled(40), trust_env=False) as answer:
        assert answer.is_success
        return next(answer.iter_text())


def there(program: Program, example: Curl) -> tuple[str, dict[str, str]]:
    headers = {header: value.replace("$KEY", program.key) for header, value in example.headers.items()}
    return example.url.replace(SHOWN_URL, program.url), headers


def fits(shown: Block, answer_text: str) -> bool:
    """Whether all that the page shows was said; it may show less. Numbers of a text may differ."""
    if shown.language == "json":
        return is_part_of(msgspec.json.decode(shown.text), msgspec.json.decode(answer_text))
    return set(lines(shown.text)) <= set(lines(answer_text))


def lines(text: str) -> Iterator[str]:
    for line in text.splitlines():
        yield re.sub(r"\d+", "0", " ".join(line.split()))


def is_part_of(shown: object, answer_text: object) -> bool:
    match shown, answer_text:
        case dict(), dict():
            there = cast("dict[str, object]", answer_text)
            return all(key in there and is_part_of(value, there[key]) for key, value in cast("dict[str, object]", shown).items())
        case list(), list():
            pairs = zip(cast("list[object]", shown), cast("list[object]", answer_text), strict=False)
            return len(cast("list[object]", shown)) == len(cast("list[object]", answer_text)) and all(
                is_part_of(*pair) for pair in pairs
            )
        case _:
            return shown == answer_text


@pytest.mark.parametrize("page", [pytest.param("README.md", marks=pytest.mark.smoke), "docs/quickstart.md"])
def test_the_examples_answer_what_the_page_says(run: Run, page: str):
    program = run("server")
    program.wait_until_ready()

    compared, answer_text = 0, ""
    last: Callable[[], str] | None = None
    searches: list[tuple[Callable[[], str], Block]] = []
    is_search = False
    for block in blocks((ROOT / page).read_text(encoding="utf-8")):
        if block.language == "sh":
            for words in commands(block.text):
                last = ask(program, words)
                is_search = any(word.endswith("/v1/search") for word in words)
                if last is not None:
                    answer_text = last()
        elif last is not None:
            again, shown = last, block
            if not fits(shown, answer_text):
                wait_for(f"the answer of {page}:\n{shown.text}", lambda again=again, shown=shown: fits(shown, again()))
            searches += [(again, shown)] if is_search else []
            compared += 1
            last = None

    for again, shown in searches:  # whoever reads slowly searches when all is made of the session that will be made of it
        assert fits(shown, again())
    assert compared == COMPARED[page]


@pytest.mark.parametrize("page", ["README.md", "docs/quickstart.md"])
def test_the_key_is_found_as_the_page_says(run: Run, page: str):
    program = run("server")
    program.wait_until_ready()
    line = next(line for line in (ROOT / page).read_text(encoding="utf-8").splitlines() if line.startswith("KEY="))

    home = program.data_dir.parent / "home"
    (home / ".local" / "share").mkdir(parents=True)
    (home / ".local" / "share" / "cmserver").symlink_to(program.data_dir)
    for variables in ({"CMSERVER_DATA_DIR": str(program.data_dir)}, {"HOME": str(home)}):
        script = f'{line}\nprintf %s "$KEY"'
        done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True, env=os.environ | variables)

        assert done.stdout == program.key


def test_an_answer_that_says_less_or_something_else_does_not_fit():
    text, answer = Block("text", "#7 22:53 change Added a.py\n"), Block("json", '{"a": [{"b": 1}]}')

    assert fits(text, "Memory\n#12 01:10  change Added a.py\n")
    assert not fits(text, "#7 22:53 change Added b.py\n")
    assert fits(answer, '{"a": [{"b": 1, "c": 2}], "d": 3}')
    assert not fits(answer, '{"a": []}')
    assert not fits(answer, '{"a": [{"b": 2}]}')
