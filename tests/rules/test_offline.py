"""The offline provider: what its rules make of two recorded sessions, of single tool uses, and of any JSON at all."""

from __future__ import annotations

from itertools import count
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cmserver.models.providers.model import Answer, DraftObservation, DraftSummary, PriorObservation, event_tag
from cmserver.reading.model import EventReading
from cmserver.reading.read import read_event
from tests.rules.offline import edit, failed_run, note, observe, record, run, summarise, tool_use
from tests.rules.session_orders import (
    LAST_MESSAGE,
    RECORDED,
    REQUESTS,
    ROOT,
    long_session,
    read_payloads,
)
from tests.table import try_rows

# ------------------------------------------------------------------------------------------- the recorded session


async def test_the_recorded_session_gives_one_change_and_one_failure():
    answer = await observe(*read_payloads(RECORDED), requests=["MARKER-ONE please echo and write"])

    assert answer.observations == [
        DraftObservation(
            type="change",
            title="Added note.txt; changed big.txt",
            facts=[
                "note.txt (+1/-0): added `written by the fake model`",
                "big.txt (+1/-1): `line 5` → `line five`",
            ],
            concepts=["what-changed"],
            files_modified=["note.txt", "big.txt"],
            events=["e2", "e3"],
        ),
        DraftObservation(
            type="discovery",
            title="`echo oops >&2; exit 3` failed: oops",
            facts=["Command: `echo oops >&2; exit 3` (exit code 3)", "Error: oops"],
            concepts=["gotcha"],
            events=["e8"],
            state="open",
        ),
    ]
    assert {skip.event: skip.reason for skip in answer.skipped} == {
        "e1": "trivial look-up: echo",
        "e4": "trivial look-up: Read",
        "e5": "trivial look-up: mcp__cm__search",
        "e6": "nothing reported: Agent",
        "e7": "trivial look-up: echo",
        "e9": "look-up failed: Read",
    }


async def test_the_recorded_session_is_summed_up():
    batch = await observe(*read_payloads(RECORDED))

    end = await summarise(
        requests=["MARKER-ONE please echo and write"],
        recorded=record(batch, read_payloads(RECORDED), count(1)),
        last_message="All done: echoed and wrote note.txt.",
    )

    assert end.summary == DraftSummary(
        request="MARKER-ONE please echo and write",
        completed="2 files changed: note.txt and big.txt.",
    )


# ---------------------------------------------------------------------------------------------- the longer session

LONG_TITLES: list[list[tuple[str, str, list[str]]]] = [
    [
        ("bugfix", "fix: round totals and coupons half up", ["orders/pricing.py", "orders/coupons.py"]),
    ],
    [
        (
            "discovery",
            "Find callers of PaymentClient.charge: `PaymentClient.charge` is called from…",
            [],
        ),
        (
            "change",
            "Added dependency tenacity>=9 (pip); changed pyproject.toml; 2 more files",
            ["pyproject.toml", "orders/retry.py", "orders/payments.py"],
        ),
        (
            "change",
            "Added tests/test_retry.py; changed orders/retry.py",
            ["tests/test_retry.py", "orders/retry.py"],
        ),
    ],
    [
        (
            "feature",
            "feat: retry charges on timeouts",
            ["pyproject.toml", "orders/retry.py", "orders/payments.py", "tests/test_retry.py"],
        ),
        (
            "refactor",
            "refactor: compute_total is order_total",
            ["orders/pricing.py", "orders/payments.py", "tests/test_pricing.py", "orders/api.py"],
        ),
        (
            "change",
            "Changed README.md; added docs/retries.md",
            ["README.md", "docs/retries.md"],
        ),
    ],
    [
        ("change", "Describe retries", ["README.md", "docs/retries.md"]),
        ("change", "Added migrations/0007_refunds.sql (refunds)", ["migrations/0007_refunds.sql"]),
        (
            "discovery",
            'test_refund_is_stored fails: relation "refunds" does not exist',
            [],
        ),
    ],
]
LONG_SKIPS = [
    {
        "e1": "trivial look-up: git status",
        "e2": "trivial look-up: Read",
        "e3": "trivial look-up: Read",
        "e4": "trivial look-up: Grep",
        "e6": "trivial look-up: Read",
        "e7": "repeats e2",
        "e15": "trivial look-up: git diff",
        "e17": "the agent's own plan",
        "e18": "trivial look-up: Read",
        "e19": "trivial look-up: Grep",
        "e20": "trivial look-up: Glob",
    },
    {"e2": "no rule for this tool: WebFetch", "e9": "trivial look-up: Read", "e20": "trivial look-up: git diff"},
    {
        "e3": "trivial look-up: Grep",
        "e4": "trivial look-up: Read",
        "e5": "trivial look-up: wc",
        "e17": "trivial look-up: Read",
        "e20": "trivial look-up: ls",
    },
    {
        "e1": "our own memory: mcp__cmserver__search",
        "e2": "a retry that passed: pytest",
        "e3": "trivial look-up: Read",
        "e4": "a retry that passed: pytest",
        "e6": "look-up failed: Read",
        "e7": "routine command: docker compose",
        "e9": "trivial look-up: git status",
    },
]


async def long_story() -> tuple[list[Answer], list[PriorObservation]]:
    payloads, recorded, numbers = long_session(), list[PriorObservation](), count(1)
    answers: list[Answer] = []
    for batch, first in enumerate(range(0, len(payloads), 20)):
        events = read_payloads(payloads[first : first + 20])
        answers.append(await observe(*events, recorded=recorded, requests=REQUESTS[: batch + 1]))
        recorded += record(answers[-1], events, numbers)
    return answers, recorded


async def test_a_long_session_gives_these_observations_and_skips():
    answers, _ = await long_story()

    titles = [[(draft.type, draft.title, draft.files_modified) for draft in batch.observations] for batch in answers]
    skips = [{skip.event: skip.reason for skip in batch.skipped} for batch in answers]
    assert titles == LONG_TITLES
    assert skips == LONG_SKIPS


async def test_at_most_one_observation_comes_of_three_events():
    answers, recorded = await long_story()

    events = len(long_session())
    assert events >= 60
    assert len(recorded) * 3 <= events
    assert sum(len(batch.skipped) for batch in answers) < events / 2


async def test_a_commit_tells_why_what_failed_before_and_what_passes_now():
    answers, _ = await long_story()

    assert answers[0].observations == [
        DraftObservation(
            type="bugfix",
            title="fix: round totals and coupons half up",
            narrative=(
                "Python's round() rounds half to even, the payment provider rounds half up; one cent was missing on some orders."
            ),
            facts=[
                "Commit 3f9c2ab",
                (
                    "orders/pricing.py (+7/-2): round_money and compute_total; "
                    'added `"""To whole cents, half up, as the payment provider does."""`'
                ),
                (
                    "orders/coupons.py (+3/-1): apply; `return round(total * (100 - self.percent) / 100, 2)` "
                    "→ `return round_money(total * (100 - self.percent) / 100)`"
                ),
                "Failed before: `pytest -q`: AssertionError: assert Decimal('0.59') == Decimal('0.60')",
                "Failing: test_total_rounds_half_up and test_coupon_rounds_half_up",
                "Reports: `pytest -q` (42 passed)",
            ],
            concepts=["problem-solution", "what-changed"],
            files_read=["orders/pricing.py", "orders/coupons.py", "tests/test_pricing.py"],
            files_modified=["orders/pricing.py", "orders/coupons.py"],
            events=["e5", "e8", "e9", "e10", "e11", "e12", "e13", "e14", "e16"],
        )
    ]


async def test_the_long_session_is_summed_up():
    _, recorded = await long_story()

    end = await summarise(requests=REQUESTS, recorded=recorded, last_message=LAST_MESSAGE)

    assert end.summary == DraftSummary(
        request="Some orders are charged one cent too little, please find out why and fix it.",
        completed=(
            "11 files changed: orders/pricing.py, orders/coupons.py, pyproject.toml, orders/retry.py, "
            "orders/payments.py, tests/test_retry.py and 5 more."
        ),
    )


async def test_the_same_events_give_the_same_answer():
    first, second = [await observe(*read_payloads(long_session())) for _ in range(2)]

    assert first == second


# --------------------------------------------------------------------------------------------------- single rules


@try_rows(
    ("path", "old", "new", "title"),
    [
        ("a.py", "def a(x):\n    return x\n", "def a(x):\n    return x + 1\n", "Changed a in a.py: `return x` → `return x + 1`"),
        (
            "a.py",
            "def old_name(x):\n",
            "def new_name(x):\n",
            "Changed old_name and new_name in a.py: `def old_name(x):` → `def new_name(x):`",
        ),
        ("a.py", "", "class Box:\n    def open(self): ...\n", "Changed Box and open in a.py: added `class Box:`"),
        ("a.py", "def gone():\n    pass\n", "", "Changed gone in a.py: removed `pass`"),
        ("a.py", "TIMEOUT = 3\n", "TIMEOUT = 5\n", "Changed a.py: `TIMEOUT = 3` → `TIMEOUT = 5`"),
        ("a.py", "import os\n", "import os\nimport sys\n", "Changed a.py: added `import sys`"),
        ("conf.yaml", "retries: 3\n", "retries: 5\n", "Changed conf.yaml: `retries: 3` → `retries: 5`"),
        (
            "cart.ts",
            "class Cart {\n  total() {\n    return 1\n",
            "class Cart {\n  total() {\n    return 2\n",
            "Changed total in cart.ts: `return 1` → `return 2`",
        ),
        (
            "x.go",
            "func (c *Cart) Total() int {\n\treturn 1\n",
            "func (c *Cart) Total() int {\n\treturn 2\n",
            "Changed Total in x.go: `return 1` → `return 2`",
        ),
        (
            "README.md",
            "## Setup\n\nold words\n",
            "## Setup\n\nnew words\n",
            'Changed "Setup" in README.md: `old words` → `new words`',
        ),
    ],
)
async def test_a_title_says_what_an_edit_changed(path: str, old: str, new: str, title: str):
    answer = await observe(edit(path, old, new))

    assert [draft.title for draft in answer.observations] == [title]


@try_rows(
    ("command", "output", "title"),
    [
        (
            "pytest -q",
            "ERROR tests/test_a.py - ImportError: cannot import name 'x'\n1 error in 0.1s",
            "`pytest -q` failed: ImportError: cannot import name 'x'",
        ),
        (
            "go test ./...",
            "--- FAIL: TestTotal (0.00s)\n    total_test.go:12: got 3, want 4\nFAIL",
            "TestTotal fails: got 3, want 4",
        ),
        (
            "cargo build",
            "   Compiling orders v0.1\nerror[E0425]: cannot find value `x` in this scope",
            "`cargo build` failed: cannot find value `x` in this scope",
        ),
        (
            "(cd web && npm test)",
            "  ● Cart adds tax\n\n    expect(received).toBe(expected)\nTests: 1 failed, 6 total",
            "Cart adds tax fails: expect(received).toBe(expected)",
        ),
        (
            "npm i left-pad",
            "npm error code E404\nnpm error 404 Not Found - GET https://registry.example.org/left-pad",
            "`npm i left-pad` failed: 404 Not Found - GET…",
        ),
        (
            "python run.py",
            "Traceback (most recent call last):\n  File \"run.py\", line 3, in <module>\nKeyError: 'id'",
            "`python run.py` failed: KeyError: 'id'",
        ),
    ],
)
async def test_a_failure_is_told_by_the_line_that_says_most(command: str, output: str, title: str):
    answer = await observe(failed_run(command, output))

    assert [(draft.type, draft.title) for draft in answer.observations] == [("discovery", title)]


async def test_a_failure_hidden_by_a_pipe_is_seen_in_the_output():
    answer = await observe(run("pytest -q 2>&1 | tail -3", "FAILED tests/test_a.py::test_b - KeyError: 1\n1 failed in 0.1s"))

    assert [draft.title for draft in answer.observations] == ["test_b fails: KeyError: 1"]


async def test_an_edit_between_a_failing_and_a_passing_run_is_a_bugfix_that_names_all_three():
    answer = await observe(
        failed_run("npm test", "FAIL src/cart.test.ts > adds tax\nTests:       1 failed, 1 total"),
        edit("src/cart.ts", "const TAX = 0.1\n", "const TAX = 0.19\n"),
        run("npm test", "Tests:       1 passed, 1 total"),
    )

    (fix,) = answer.observations
    assert (fix.type, fix.title) == ("bugfix", "Fixed adds tax: changed src/cart.ts: `const TAX = 0.1` → `const TAX = 0.19`")
    assert fix.events == ["e1", "e2", "e3"]


async def test_a_run_that_passes_after_a_recorded_failure_is_a_bugfix_with_the_files_changed_since():
    failure = failed_run("pytest -q", "FAILED tests/test_a.py::test_b - KeyError: 1\n1 failed in 0.1s")
    change, passing = edit("a.py", "x = 1\n", "x = 2\n"), run("pytest -q", "9 passed in 0.1s")
    numbers = count(1)
    recorded = record(await observe(failure), [failure], numbers)
    recorded += record(await observe(change, recorded=recorded), [change], numbers)

    after = await observe(passing, recorded=recorded)
    recorded += record(after, [passing], numbers)
    later = await observe(passing, recorded=recorded)

    (fix,) = after.observations
    assert (fix.type, fix.title, fix.files_modified) == ("bugfix", "Passes again: test_b", ["a.py"])
    assert later.observations == []
    assert [skip.reason for skip in later.skipped] == ["passes, nothing changed: pytest"]


async def test_a_failure_already_recorded_is_not_recorded_again():
    failing = failed_run("pytest -q", "FAILED tests/test_a.py::test_b - KeyError: 1\n1 failed in 0.1s")
    first = await observe(failing)

    again = await observe(failing, recorded=record(first, [failing], count(7)))

    assert again.observations == []
    assert [skip.reason for skip in again.skipped] == ["repeats #7"]


@try_rows(
    ("event", "reason"),
    [
        (run("npm ci"), "routine command: npm ci"),
        (run("pip install -r requirements.txt"), "routine command: pip install"),
        (run("pip install httpx", "Requirement already satisfied: httpx"), "no effect: pip install"),
        (run("git push", "Everything up-to-date"), "no effect: git push"),
        (failed_run("git commit -m x", "nothing to commit, working tree clean"), "no effect: git commit"),
        (failed_run("grep -rn needle .", ""), "look-up failed: grep"),
        (tool_use("Edit", {"file_path": "a.py"}, error="String to replace not found in file."), "edit did not apply: Edit"),
        (tool_use("Edit", {"file_path": "a.py", "old_string": "a", "new_string": "a"}), "no effect: Edit"),
        (
            tool_use("Bash", {"command": "rm x"}, error="The user doesn't want to proceed with this tool use."),
            "refused by the user: Bash",
        ),
        (
            tool_use("Bash", {"command": "pytest", "run_in_background": True}, {"stdout": ""}),
            "started in the background: pytest",
        ),
        (tool_use("mcp__claude-mem__timeline", {"anchor": 4}, "[]"), "our own memory: mcp__claude-mem__timeline"),
        (tool_use("HoloDeck", {"program": 4}, "ok"), "no rule for this tool: HoloDeck"),
        (note("user_prompt", {"text": "please fix the totals of all orders now"}), "kept with the session: user_prompt"),
        (
            note("assistant_message", {"text": "I will now run the tests to see what fails."}),
            "nothing to keep: assistant_message",
        ),
    ],
)
async def test_what_is_not_worth_keeping_is_skipped_with_its_reason(event: EventReading, reason: str):
    answer = await observe(event)

    assert answer.observations == []
    assert [(skip.event, skip.reason) for skip in answer.skipped] == [("e1", reason)]


@try_rows(
    ("command", "output", "title"),
    [
        ("uv add --dev hypothesis", "", "Added dependency hypothesis (uv)"),
        ("sudo apt-get install -y libpq-dev", "", "Installed libpq-dev (apt-get)"),
        ("git push -u origin feat/x", "", "Ran `git push -u origin feat/x`"),
        ("git merge feat/x", "Merge made by the 'ort' strategy.", "Ran `git merge feat/x`"),
        ("git tag v1.2", "", "Ran `git tag v1.2`"),
        ("alembic upgrade head", "Running upgrade 6 -> 7", "Ran `alembic upgrade head`"),
        ("gh pr create --title 'Round money' --body x", "", "Ran `gh pr create --title 'Round money' --body x`"),
        ("cat > app/tax.py <<'EOF'\ndef tax(net):\n    return net\nEOF", "", "Wrote app/tax.py (tax)"),
        ("git mv a.py b.py", "", "Moved a.py to b.py"),
    ],
)
async def test_commands_with_a_lasting_effect_are_changes(command: str, output: str, title: str):
    answer = await observe(run(command, output))

    assert [(draft.type, draft.title) for draft in answer.observations] == [("change", title)]


async def test_a_sub_agents_report_is_kept():
    report = {"content": [{"type": "text", "text": "charge() is called twice. Only the worker catches timeouts."}]}

    answer = await observe(tool_use("Task", {"description": "Find callers", "subagent_type": "Explore"}, report))

    (observation,) = answer.observations
    assert (observation.type, observation.title) == ("discovery", "Find callers: charge() is called twice.")
    assert observation.narrative == "charge() is called twice. Only the worker catches timeouts."


async def test_a_note_sent_by_a_rest_client_is_kept():
    text = "We decided to use Postgres for the queue instead of Redis because one system is easier to run than two."

    answer = await observe(note("note", {"text": text}), note("finding", {"content": "The staging host has no swap."}))

    assert [(draft.type, draft.narrative) for draft in answer.observations] == [
        ("discovery", text),
        ("discovery", "The staging host has no swap."),
    ]


async def test_the_last_of_a_turns_work_says_what_the_agent_said():
    said = "The cap is 60 now, because the pooler has no more.\n```sh\nmake deploy\n```"

    answer = await observe(edit("a.py"), edit("b.py"), note("assistant_message", {"last_assistant_message": said}))

    assert [draft.narrative for draft in answer.observations] == [
        "The cap is 60 now, because the pooler has no more. ```sh make deploy ```"
    ]


async def test_an_open_end_about_a_failure_is_told_by_the_failure():
    failure = failed_run("pytest -q", "FAILED tests/test_a.py::test_b - KeyError: 1\n1 failed in 0.1s")
    said = "One test still fails. The importer is not tested yet."

    answer = await observe(failure, note("assistant_message", {"last_assistant_message": said}))

    assert [draft.title for draft in answer.observations] == ["test_b fails: KeyError: 1", "The importer is not tested yet"]


async def test_tools_of_other_agents_are_understood():
    patch = (
        "*** Begin Patch\n*** Update File: src/cart.ts\n@@ class Cart {\n   total() {\n-    return 1\n+    return 2\n   }\n"
        "*** Add File: src/tax.ts\n+export const tax = (net: number) => net * 0.19\n*** End Patch"
    )

    answer = await observe(
        tool_use("apply_patch", {"input": patch}, '{"output":"Done!"}'),
        tool_use(
            "shell",
            {"command": ["bash", "-lc", "npm test"]},
            '{"output":"Tests:  4 passed, 4 total","metadata":{"exit_code":0}}',
        ),
        tool_use("run_shell_command", {"command": "python run.py"}, {"output": "KeyError: 1", "exit_code": 1}),
        tool_use("read_file", {"absolute_path": f"{ROOT}/a.py"}, "x = 1"),
    )

    change, failure = answer.observations
    assert change.title == "Changed total in src/cart.ts; added src/tax.ts (tax)"
    assert change.events == ["e1", "e2"]
    assert failure.title == "`python run.py` failed: KeyError: 1"
    assert [skip.reason for skip in answer.skipped] == ["trivial look-up: read_file"]


async def test_a_patch_that_is_given_as_a_command_is_one():
    patch = "*** Begin Patch\n*** Update File: src/cart.py\n@@ def total():\n-    return 1\n+    return 2\n*** End Patch"

    answer = await observe(tool_use("apply_patch", {"command": patch}, {"output": "Success."}))

    assert [draft.files_modified for draft in answer.observations] == [["src/cart.py"]]


async def test_redaction_marks_stay_as_they_are():
    answer = await observe(
        edit("conf.yaml", "token: old\n", "token: [redacted:private]\n"), requests=["Use [redacted:private] please"]
    )

    (change,) = answer.observations
    assert change.title == "Changed conf.yaml: `token: old` → `token: [redacted:private]`"
    assert change.narrative is None


async def test_a_session_in_which_nothing_happened_has_no_summary():
    end = await summarise()

    assert end.summary is None
    assert [(skip.event, skip.reason) for skip in end.skipped] == [("", "nothing was changed, found or decided")]


# ------------------------------------------------------------------------------------------------ any JSON at all

_TEXTS = st.text(max_size=20) | st.sampled_from(
    ["pytest <<", "2 failed in 1s", "*** Begin Patch\n*** Update File: \n", "E   x", "((", "git -C", "cat >", "mv a",
     "{", "Exit code 1\n"]
)  # fmt: skip
_KEYS = st.sampled_from(
    ["command", "file_path", "old_string", "new_string", "edits", "structuredPatch", "lines", "oldStart", "originalFile",
     "content", "stdout", "interrupted", "exit_code", "text", "metadata", "patch", "new_source", "url", "toolStats"]
) | st.text(max_size=4)  # fmt: skip
_LEAVES = st.none() | st.booleans() | st.integers(-9, 2**40) | st.floats(allow_nan=False, allow_infinity=False) | _TEXTS


def _deeper(inner: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=5)


_JSON: st.SearchStrategy[object] = st.recursive(cast("st.SearchStrategy[object]", _LEAVES), _deeper, max_leaves=12)
_TOOLS = st.none() | st.text(max_size=6) | st.sampled_from(
    ["Write", "Edit", "NotebookEdit", "Read", "Bash", "WebFetch", "Agent", "TodoWrite", "mcp__x__create_y", "apply_patch", "shell"]
)  # fmt: skip


@st.composite
def _batches(draw: st.DrawFn) -> list[EventReading]:
    return [
        draw(
            st.builds(
                read_event,
                st.sampled_from(["tool_use", "note", "assistant_message", "user_prompt"]),
                _JSON
                | st.fixed_dictionaries(
                    {"tool_name": _TOOLS, "tool_input": _JSON, "tool_response": _JSON, "error": st.none() | _TEXTS}
                ),
                st.sampled_from([None, "", "/", ROOT]),
            )
        )
        for _ in range(draw(st.integers(0, 4)))
    ]


@settings(max_examples=150, deadline=None)
@given(events=_batches())
async def test_whatever_comes_every_event_is_named_or_skipped(events: list[EventReading]):
    answer = await observe(*events)

    named = {tag for draft in answer.observations for tag in draft.events}
    skipped = {skip.event for skip in answer.skipped}
    assert named | skipped == {event_tag(place) for place in range(len(events))}
    assert not named & skipped
    assert all(draft.title and len(draft.title) <= 100 and len(draft.facts) <= 8 for draft in answer.observations)


@pytest.mark.parametrize("command", ["git checkout -q -- src/writer.rs", "git restore ./src/writer.rs", "git checkout src/io/"])
async def test_what_was_undone_before_the_commit_is_not_told(command: str):
    path = "src/io/writer.rs" if command.endswith("/") else "src/writer.rs"

    answer = await observe(
        edit(path, "let mut segment = lock();", "let shard = self.shards[0];"),
        edit("src/buffer.rs", "const SIZE: usize = 1;", "const SIZE: usize = 2;"),
        run(command, "Updated 1 path from the index\n"),
    )

    (draft,) = answer.observations
    assert draft.events == ["e2"]
    assert draft.files_modified == ["src/buffer.rs"]
    assert "shard" not in str(draft)
    assert {skip.event for skip in answer.skipped} == {"e1", "e3"}


@pytest.mark.parametrize(
    ("command", "files"),
    [
        ("git checkout -- src/writer.rs", ["src/writer.rs"]),
        ("git stash", ["src/writer.rs"]),
        ("git reset --hard", ["src/writer.rs"]),
    ],
)
async def test_what_is_done_again_after_it_was_taken_back_is_told(command: str, files: list[str]):
    answer = await observe(edit("src/writer.rs"), run(command), edit("src/writer.rs"))

    (draft,) = answer.observations
    assert (draft.files_modified, draft.events) == (files, ["e3"])


async def test_where_all_was_undone_nothing_is_told():
    answer = await observe(edit("src/writer.rs"), run("cargo test", "test result: ok. 3 passed; 0 failed"), run("git checkout ."))

    assert answer.observations == []
    assert {skip.event for skip in answer.skipped} == {"e1", "e2", "e3"}


@pytest.mark.parametrize("command", ["git checkout main", "git checkout -b src/writer.rs", "git restore --staged src/writer.rs"])
async def test_another_branch_or_an_emptied_index_undoes_nothing(command: str):
    answer = await observe(edit("src/writer.rs"), run(command))

    (draft,) = answer.observations
    assert draft.files_modified == ["src/writer.rs"]


@try_rows(
    ("first", "second", "is_skipped"),
    [
        (("Edit", "src/a.py"), ("Edit", "src/b.py"), False),  # another input
        (("Edit", "src/a.py"), ("Write", "src/a.py"), False),  # another tool
        (("Edit", "src/a.py"), ("Edit", "src/a.py"), True),
    ],
)
async def test_only_the_same_use_of_a_tool_is_told_by_a_later_event_of_its_id(
    first: tuple[str, str], second: tuple[str, str], is_skipped: bool
):
    events = [
        read_event(
            "tool_use",
            {"tool_use_id": "call_1", "tool_name": tool, "tool_input": {"file_path": f"{ROOT}/{path}", **EDITS[tool]}},
            ROOT,
            occurred_at_epoch=1_790_000_000_000,
        )
        for tool, path in (first, second)
    ]

    answer = await observe(*events)

    assert ("its end is told by e2" in [skip.reason for skip in answer.skipped]) == is_skipped
    assert {tag for draft in answer.observations for tag in draft.events} == ({"e2"} if is_skipped else {"e1", "e2"})


EDITS: dict[str, dict[str, str]] = {
    "Edit": {"old_string": "LIMIT = 3", "new_string": "LIMIT = 5"},
    "Write": {"content": "LIMIT = 7\n"},
}
