from __future__ import annotations

import re
import sys
import time
from collections.abc import Generator
from pathlib import Path

import msgspec
import pytest

from cmserver.base import columns
from cmserver.cli import output


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """40 columns wide."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")


def test_a_time_that_is_not_known_is_not_1970():
    assert (columns.format_time(0), columns.format_time(None)) == ("unknown", None)


@pytest.fixture
def in_vienna(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    monkeypatch.setenv("TZ", "Europe/Vienna")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_columns_are_aligned_and_numbers_are_flush_right():
    shown = columns.render_table(
        ("name", "events", "note"), [("orders", 7, None), ("a much longer name", 12_345, "x")], empty="none"
    )

    assert shown.splitlines() == [
        "name                events  note",
        "orders                   7  -",
        "a much longer name   12345  x",
    ]


def test_a_table_without_rows_is_its_sentence():
    assert columns.render_table(("id",), [], empty="There are no jobs.") == "There are no jobs."


def test_into_a_pipe_a_long_text_goes_whole():
    assert "x" * 300 in columns.render_table(("id", "error"), [("1", "x" * 300)], empty="none", shrink=("error",))


@pytest.mark.usefixtures("terminal")
def test_on_a_terminal_a_long_text_is_cut_and_an_id_is_not():
    identity = "019f1c00-0000-7000-8000-000000000001"[:24]
    shown = columns.render_table(("id", "error"), [(identity, "the provider said " * 9)], empty="none", shrink=("error",))

    assert shown.splitlines()[1] == f"{identity}  the provider …"


def test_wide_characters_take_two_columns_and_combining_ones_none():
    shown = columns.render_table(("name", "x"), [("記憶", "|"), ("e\u0301tat", "|"), ("four", "|")], empty="none")

    assert [line.index("|") for line in shown.splitlines()[1:]] == [4, 7, 6]


def test_what_others_have_written_cannot_steer_the_terminal():
    shown = columns.render_table(("name",), [("\x1b[2J\x1b]0;owned\x07\u202egpj.exe\nsecond line",)], empty="none")

    assert len(shown.splitlines()) == 2
    assert all(one.isprintable() or one == "\n" for one in shown)


@pytest.mark.usefixtures("in_vienna")
def test_times_are_local_and_to_the_second():
    assert columns.format_time(1_750_000_000_987) == "2025-06-15T17:06:40+02:00"
    assert columns.format_time(None) is None


def test_the_properties_of_one_thing_stand_under_each_other():
    assert columns.render_fields(("id", "7"), ("requests/min", None)) == "id            7\nrequests/min  -"


@pytest.mark.parametrize(
    ("called", "typed"),
    [
        (None, "cmserver"),
        ("bin/cmserver", "bin/cmserver"),
        ("/opt/my tools/bin/cmserver", "'/opt/my tools/bin/cmserver'"),
        ("/usr/local/bin/cmserver", "cmserver"),
    ],
)
def test_a_hint_is_typed_as_cmserver_was_called(monkeypatch: pytest.MonkeyPatch, called: str | None, typed: str):
    def which(_name: str) -> str:
        return "/usr/local/bin/cmserver"

    monkeypatch.setattr(output.shutil, "which", which)
    if called is None:
        monkeypatch.delenv("CMSERVER_COMMAND", raising=False)
    else:
        monkeypatch.setenv("CMSERVER_COMMAND", called)

    assert output.program_name() == typed
    assert output.as_called("Run `cmserver start` to start cmserver.") == f"Run `{typed} start` to start cmserver."


def test_json_controls_no_terminal_and_says_the_same():
    text = {"a": "x\x1b[2J\x7f\x9b31m\u202eevil\u2066\u200f\ufeff é 报 👩\u200d💻\u2028"}

    shown = output.render_json(msgspec.json.encode(text))

    assert all(char.isprintable() or char in "\n\u200d" for char in shown)
    assert "é 报 👩\u200d💻" in shown
    assert msgspec.json.decode(shown) == text


def test_what_commands_print_as_json_is_escaped_for_a_terminal():
    folder = Path(output.__file__).parent
    printed = re.compile(r"click\.echo\(\s*(?:msgspec\.json\.encode|json\.dumps)\(")

    assert [file.name for file in folder.glob("*.py") if printed.search(file.read_text())] == []
