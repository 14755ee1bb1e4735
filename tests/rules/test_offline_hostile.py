"""The offline provider under events made to keep it busy: the answer stays right, and heartbeats go on meanwhile.

Nothing here looks at a clock: a rule that reads a long run over and over makes this file take minutes instead of a second.
"""

from __future__ import annotations

from cmserver.models.providers.model import Answer
from cmserver.reading.model import EventReading
from cmserver.rules.batch import observe
from cmserver.rules.model import SessionRecord
from tests.reading.events import read_call
from tests.table import try_rows

_RUNS = {
    "digits": "1",
    "spaces": " ",
    "double quotes": '"',
    "single quotes": "'",
    "backticks": "`",
    "newlines": "\n",
    "blank lines": " \n",
    "path pieces": "a/",
    "identifiers": "a",
    "capitals": "A",
    "dots": "a.",
    "parentheses": "(",
    "brackets": "[",
    "here-documents": "<<a",
    "totals": "Tests: 1, ",
    "eslint's totals": "1 problem (1 error",
    "commits": "[a (\n",
    "definitions": "def f():\n",
    "manifests": "requirements",
}


def _event(tool: str, tool_input: object, tool_response: object = None, error: str | None = None) -> EventReading:
    return read_call(tool, tool_input, tool_response, error, root="/srv/orders")


async def _draft(event: EventReading) -> Answer:
    return observe([event], SessionRecord())


async def _facts(event: EventReading) -> list[str]:
    return (await _draft(event)).observations[0].facts


def _hostile(text: str) -> list[EventReading]:
    """The same text wherever an event may hold one."""
    commands = ("pytest -q", "git commit -m x", "git push", "npm run build", "cat <<a")
    leads = ("", "Tests:", "FAILED ", "E ", "Exit code ", " 1 ")
    return [
        *(_event("Bash", {"command": command}, {"stdout": lead + text}) for command in commands for lead in leads),
        *(_event("Bash", {"command": command}, error=lead + text) for command in commands for lead in leads),
        _event("Bash", {"command": text}, {"stdout": ""}),
        *(
            _event("Edit", {"file_path": path, "old_string": "z", "new_string": text})
            for path in ("a.py", "a.ts", "a.md", "a.toml")
        ),
        _event("Write", {"file_path": "a.py", "content": text}),
        _event("Edit", {"file_path": f"{text}/a.py", "old_string": "z", "new_string": "def f():\n" * 1_000}),
        _event("apply_patch", {"patch": f"*** Begin Patch\n*** Update File: a.py\n+{text}"}),
        _event("WebFetch", {"url": text, "prompt": text}, f"<a>{text}"),
        _event("Agent", {"prompt": text}, text),
    ]


@try_rows("unit", _RUNS.values(), ids=_RUNS)
async def test_long_runs_of_the_same_are_told_or_skipped_wherever_they_stand(unit: str):
    events = _hostile((unit * 6_000)[:6_000])

    answers = [await _draft(event) for event in events]

    assert all(
        [*(observation.events for observation in draft.observations), *([skip.event] for skip in draft.skipped)] == [["e1"]]
        for draft in answers
    )


async def test_a_number_too_long_to_be_one_is_no_exit_code():
    draft = await _draft(_event("Bash", {"command": "make deploy"}, error="Exit code " + "1" * 15_000))

    assert draft.observations[0].facts[0] == "Command: `make deploy`"


async def test_a_commit_of_more_files_than_a_number_has_digits_for_is_still_a_commit():
    output = f"[main 1a2b3c4] Add prices\n {'9' * 15_000} files changed"

    draft = await _draft(_event("Bash", {"command": "git commit -m 'Add prices'"}, {"stdout": output}))

    assert draft.observations[0].facts == ["Commit 1a2b3c4"]


async def test_the_totals_behind_a_long_run_of_digits_are_found():
    output = "1" * 7_000 + "\n2 failed, 31 passed in 1.2s"

    draft = await _draft(_event("Bash", {"command": "pytest -q"}, error=output))

    assert draft.observations[0].facts[0] == "Command: `pytest -q` (2 failed, 31 passed)"


async def test_a_hundred_large_edits_are_counted_to_the_last_line():
    body = "".join(f"    x{line} = {line}\n" for line in range(800))
    edits = [{"old_string": f"def f{place}():\n    pass\n", "new_string": f"def f{place}():\n{body}"} for place in range(100)]

    facts = await _facts(_event("MultiEdit", {"file_path": "/srv/orders/a.py", "edits": edits}))

    assert facts[0].startswith("a.py (+80000/-100): f0")


async def test_a_hundred_edits_full_of_definitions_are_counted_and_the_first_are_named():
    edits = [
        {"old_string": f"a{place}", "new_string": "\n".join(f"    def f{place}_{line}():" for line in range(700))}
        for place in range(100)
    ]

    facts = await _facts(_event("MultiEdit", {"file_path": "/srv/orders/a.py", "edits": edits}))

    assert facts[0].startswith("a.py (+70000/-100): f0_0, f0_1, f0_2, f0_3 and ")


async def test_many_small_edits_are_counted_to_the_last():
    edits = [{"old_string": f"x = {place}", "new_string": f"x = -{place}"} for place in range(30_000)]

    facts = await _facts(_event("MultiEdit", {"file_path": "/srv/orders/a.py", "edits": edits}))

    assert facts[0].startswith("a.py (+30000/-30000)")


async def test_a_patch_of_thousands_of_lines_is_counted_to_the_last():
    patch = "*** Begin Patch\n*** Update File: a.py\n" + "+ x = 1\n" * 5_000 + "- y = 1\n" * 7

    facts = await _facts(_event("apply_patch", {"patch": patch}))

    assert facts[0].startswith("a.py (+5000/-7)")


async def test_thousands_of_hunks_far_down_a_file_are_counted_to_the_last():
    hunks = [{"oldStart": 3_000, "lines": [" x y", "+  a", "-  b"]} for _ in range(5_000)]

    facts = await _facts(
        _event("Edit", {"file_path": "/srv/orders/a.py"}, {"originalFile": "x y\n" * 4_000, "structuredPatch": hunks})
    )

    assert facts[0].startswith("a.py (+5000/-5000)")


async def test_a_run_of_more_lines_than_are_read_is_counted_to_the_last():
    facts = await _facts(
        _event("Edit", {"file_path": "a.py", "old_string": "z", "new_string": "z\n" + "\n".join(f"x({n})" for n in range(6_000))})
    )

    assert facts == ["a.py (+6000/-0): added `x(0)`"]


async def test_a_line_far_below_its_function_still_stands_in_it():
    above = ["class Order:", "    def total(self):", *(f"        x{line} = 1" for line in range(500))]
    old, new = "\n".join([*above, "        y = 1"]), "\n".join([*above, "        y = 2"])

    facts = await _facts(_event("Edit", {"file_path": "a.py", "old_string": old, "new_string": new}))

    assert facts == ["a.py (+1/-1): total; `y = 1` → `y = 2`"]


async def test_a_batch_that_touches_one_file_a_thousand_times_tells_it_once():
    patch = "*** Begin Patch\n" + "".join(f"*** Update File: a.py\n+def f{place}():\n" for place in range(1_000))

    draft = await _draft(_event("apply_patch", {"patch": patch}))

    assert draft.observations[0].files_modified == ["a.py"]
    assert draft.observations[0].facts == ["a.py (+1000/-0): f0, f1, f2, f3 and 996 more; added `def f0():`"]


async def test_the_title_of_a_thousand_removed_files_says_how_many_there_are():
    patch = "*** Begin Patch\n" + "".join(f"*** Delete File: f{place}.py\n" for place in range(1_000))

    draft = await _draft(_event("apply_patch", {"patch": patch}))

    assert len(draft.observations[0].files_modified) == 1_000
    assert (draft.observations[0].title or "").endswith(" more files")
