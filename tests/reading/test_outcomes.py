"""What says that a command passed: the exit code of that very command, or what a check reports."""

from __future__ import annotations

from cmserver.reading.model import CommandResult, CommandRun, IgnoredEvent
from cmserver.reading.read import read_command_results
from cmserver.tooluse.commands import read_command_line
from tests.rules.offline import edit, failed_run, note, observe, run, tool_use
from tests.table import try_rows

TROUBLE = "a.js:3:1: x is not defined"


def test_exit_code_0_of_a_line_proves_nothing_of_a_command_that_did_not_decide_it():
    """Or that may not have run, or ran nothing. One row a line: whether the check in it is proved."""
    lines = {
        "npm test": True,
        "cd web && npm test": True,
        "npm test && git status": True,
        "cd web; npm test": True,
        "cd web || exit 1; npm test;": True,
        "(cd web && npm test)": True,
        "CI=1 timeout 60 npm test 2>&1": True,
        "npm test > out.txt 2>&1": True,
        "make lint -j4": True,
        "black --check .": True,
        "npm test || true": False,
        "npm test && echo good || echo bad": False,
        "true || npm test": False,
        "cd web && true || npm test": False,
        "make lint; echo exit=$?": False,
        "make lint\ngit status": False,
        "npm test 2>&1 | tail -5": False,
        "npm test |& tee log": False,
        "npm test > out.txt 2>&1; tail -3 out.txt": False,
        "! make lint": False,
        "! (make lint)": False,
        "nohup make test &": False,
        "npm test & wait": False,
        "bash -c 'npm test || true'": False,
        "if npm test; then echo ok; fi": False,
        "for i in 1 2; do npm test; done": False,
        "make -n test": False,
        "make --dry-run test": False,
        "pytest --collect-only": False,
        "pytest --version": False,
        "cargo test --no-run": False,
        "npx jest --listTests": False,
        "npm test --if-present": False,
        "go test -list . ./...": False,
        "go test -c ./pay": False,
        "ctest -N": False,
        "vitest list": False,
        "vitest run list": True,
        "cargo nextest list": False,
        "npx playwright install": False,
        "npx playwright test": True,
        "tox -l": False,
        "mvn verify -DskipTests": False,
        "mvn package -DskipTests": True,
        "gradle test -x test": False,
        "gradle check -x lint": True,
        "node --test": True,
        "pnpm vitest run": True,
        "pnpm --filter api vitest run": True,
        "yarn jest --listTests": False,
    }

    wrong = {line: is_proved for line, is_proved in lines.items() if _is_proved(line, TROUBLE) is not is_proved}

    assert wrong == {}


def _is_proved(line: str, stdout: str) -> bool:
    act = run(line, stdout).act
    return isinstance(act, CommandRun) and act.is_proved


@try_rows(
    ("line", "output"),
    [
        ("npm test", "Test Files  4 skipped (4)\n     Tests  12 skipped (12)"),
        ("npm test", '> echo "Error: no test specified"\n\nError: no test specified'),
        ("pytest", "collected 0 items\n\n==== no tests ran in 0.01s ===="),
        ("pytest -m slow", "collected 31 items / 31 deselected / 0 selected\n\n31 deselected in 0.1s"),
        ("pytest", "5 skipped in 0.12s"),
        ("npx jest", "Test Suites: 1 skipped, 0 of 1 total\nTests:       5 skipped, 5 total\nSnapshots:   0 total"),
        (
            "cargo test",
            "running 3 tests\ntest a ... ignored\n\ntest result: ok. 0 passed; 0 failed; 3 ignored; 0 measured; 0 filtered out",
        ),
        ("go test ./...", "?   \texample.org/pay\t[no test files]\n?   \texample.org/pay/x\t[no test files]"),
        ("bundle exec rspec", "*****\n\n5 examples, 0 failures, 5 pending"),
        ("npx mocha", "  0 passing (2ms)\n  5 pending"),
        ("python -m unittest", "sssss\n-----\nRan 5 tests in 0.001s\n\nOK (skipped=5)"),
        ("dotnet test", "Passed!  - Failed:     0, Passed:     0, Skipped:     3, Total:     3"),
        ("mvn test", "[WARNING] Tests run: 5, Failures: 0, Errors: 0, Skipped: 5\n[INFO] BUILD SUCCESS"),
        ("./gradlew test", "> Task :test NO-SOURCE\n\nBUILD SUCCESSFUL in 1s"),
        ("make test", "make: 'test' is up to date."),
        ("pnpm -r test", 'None of the selected packages has a "test" script'),
        ("swift test", "Executed 0 tests, with 0 failures (0 unexpected) in 0.000 (0.001) seconds"),
        ("deno test", "ok | 0 passed | 0 failed (0ms)"),
        ("phpunit", "No tests executed!"),
        ("ctest", "No tests were found!!!"),
        ("pytest -k nothing", "collected 0 items\n\nno tests ran in 0.01s"),
        ("python -m unittest", "Ran 0 tests in 0.000s\n\nOK"),
        ("go test -run '^$' ./...", "ok  \texample.org/pay\t0.002s [no tests to run]"),
        ("npx jest --passWithNoTests", "No tests found, exiting with code 0"),
        ("npx jest", "Test Suites: 2 passed, 2 total\nTests:       2 skipped, 1 todo, 3 total"),
        ("go test -v ./...", "=== RUN   TestA\n--- SKIP: TestA (0.00s)\nPASS\nok  \texample.org/pay\t0.002s"),
        ("dotnet test --filter x", "No test matches the given testcase filter `x` in Pay.Tests.dll"),
        ("dotnet test", "No test is available in Pay.Tests.dll. Make sure that ..."),
        ("mvn verify", "[INFO] Tests are skipped.\n[INFO] BUILD SUCCESS"),
        ("./gradlew check", "> Task :pay:test SKIPPED\n> Task :web:test NO-SOURCE\n\nBUILD SUCCESSFUL"),
        ("ctest", "1/1 Test #1: pay .....***Skipped   0.01 sec\n\n100% tests passed, 0 tests failed out of 1"),
        ("node --test", "\u2139 tests 2\n\u2139 suites 1\n\u2139 pass 0\n\u2139 fail 0\n\u2139 skipped 2\n\u2139 todo 0"),
        ("pnpm test", "> pay@2.1.0 test /w/pay\n> echo later\n\nlater"),
        ("yarn test", "yarn run v1.22.22\n$ true\nDone in 0.05s."),
    ],
)
def test_a_check_that_found_nothing_to_run_or_skipped_all_proves_nothing(line: str, output: str):
    assert not _is_proved(line, output)


@try_rows(
    ("line", "output"),
    [
        ("npm test", " Test Files  4 passed (4)\n      Tests  12 passed | 3 skipped (15)"),
        ("pytest", "3 passed, 5 skipped in 0.12s"),
        ("npx jest", "Tests:       5 skipped, 2 passed, 7 total"),
        (
            "cargo test",
            "test result: ok. 3 passed; 0 failed; 1 ignored\n\nDoc-tests\n\nrunning 0 tests\n\ntest result: ok. 0 passed; 0 failed",
        ),
        ("go test ./...", "ok  \texample.org/pay\t0.012s\n?   \texample.org/pay/x\t[no test files]"),
        ("bundle exec rspec", "5 examples, 0 failures, 1 pending"),
        ("python -m unittest", "Ran 5 tests in 0.001s\n\nOK (skipped=2)"),
        (
            "mvn test",
            "Tests run: 5, Failures: 0, Skipped: 5\nTests run: 5, Failures: 0, Skipped: 0\nTests run: 10, Failures: 0, Skipped: 5",
        ),
        ("dotnet test", "Passed!  - Failed:     0, Passed:     9, Skipped:     3, Total:    12"),
        ("./gradlew test", "> Task :test\n\nBUILD SUCCESSFUL in 9s"),
        ("make test", "./run-tests\nsmoke: 6 ok, 0 failed"),
        ("make test", ""),
        ("npm test", "all good, 0 tests failed"),
        ("deno test", "ok | 4 passed | 0 failed (30ms)"),
        ("npm run build", "make[1]: Nothing to be done for 'all'."),
        ("npx mocha", "  7 passing (20ms)\n  5 pending"),
        ("go test -v ./...", "--- SKIP: TestA (0.00s)\n    --- PASS: TestB/x (0.00s)\nPASS\nok  \texample.org/pay\t0.002s"),
        ("mvn test", "[INFO] No tests to run.\n[INFO] Tests run: 4, Failures: 0, Errors: 0, Skipped: 0\n[INFO] BUILD SUCCESS"),
        ("./gradlew test", "> Task :pay:test NO-SOURCE\n> Task :web:integrationTest FROM-CACHE\n\nBUILD SUCCESSFUL"),
        (
            "ctest",
            "Test #1: a ...   Passed    0.01 sec\nTest #2: b ...***Skipped   0.01 sec\n\n100% tests passed out of 2",
        ),
        ("node --test", "\u2139 tests 5\n\u2139 suites 1\n\u2139 pass 4\n\u2139 fail 0\n\u2139 skipped 1"),
        ("npm test", "> pay@2.1.0 test\n> node --test\n\n# tests 3\n# pass 3\n# fail 0"),
    ],
)
def test_a_check_that_skipped_some_of_it_is_a_proof(line: str, output: str):
    assert _is_proved(line, output)


def _gemini(text: str) -> dict[str, object]:
    """As Gemini CLI 0.61 gives what its shell answers."""
    return {"llmContent": f"<untrusted_context>\n{text}\n</untrusted_context>", "returnDisplay": ""}


async def test_a_failure_in_a_wrapper_is_told_by_what_the_command_printed():
    failed = tool_use(
        "run_shell_command",
        {"command": "make deploy"},
        _gemini("Output: make: *** No rule to make target 'deploy'.  Stop.\nExit Code: 2\nProcess Group PGID: 5310"),
    )
    web = _gemini("Summary of the page.\n\nThe service closes idle connections after 60 seconds, which is why requests fail.")

    answer = await observe(failed, tool_use("web_fetch", {"prompt": "https://example.org/limits"}, web))

    assert [(draft.title, draft.state) for draft in answer.observations if draft.state] == [
        ("`make deploy` failed: make: *** No rule to make target 'deploy'. Stop.", "open")
    ]
    assert "untrusted_context" not in str(answer)


async def test_commands_that_fail_in_a_turn_without_other_work_stay_open():
    answer = await observe(
        failed_run("make deploy", "make: *** [Makefile:3: deploy] Error 2", code=2),
        failed_run("./migrate.sh", "/bin/sh: 1: ./migrate.sh: not found", code=127),
        note("assistant_message", {"last_assistant_message": "Neither of them works, as you can see above."}),
    )

    assert [draft.title for draft in answer.observations if draft.state == "open"][:2] == [
        "`make deploy` failed: make: *** [Makefile:3: deploy] Error 2",
        "`./migrate.sh` failed: /bin/sh: 1: ./migrate.sh: not found",
    ]


def test_each_agent_says_how_a_command_ended_in_its_own_way():
    """One row an answer: (failed, proved)."""
    command = "make lint"
    answers: dict[str, tuple[object, tuple[bool, bool]]] = {
        "Claude Code": ({"stdout": TROUBLE, "stderr": "", "interrupted": False}, (False, True)),
        "Claude Code, gone to the background": ({"stdout": "", "stderr": "", "backgroundTaskId": "b1"}, (False, False)),
        "Gemini CLI, 0": ({"llmContent": f"Output: {TROUBLE}\nProcess Group PGID: 4711", "returnDisplay": ""}, (False, True)),
        "Gemini CLI, 0 by name": ({"llmContent": "Output: (empty)\nExit Code: 0"}, (False, True)),
        "Gemini CLI, 2": ({"llmContent": f"Output: {TROUBLE}\nExit Code: 2\nProcess Group PGID: 4712"}, (True, False)),
        "Gemini CLI, 1 and silence": ({"llmContent": "Output: (empty)\nExit Code: 1", "returnDisplay": ""}, (True, False)),
        "Gemini CLI, 2 in a wrapper": (_gemini(f"Output: {TROUBLE}\nExit Code: 2\nProcess Group PGID: 4712"), (True, False)),
        "Gemini CLI, 0 in a wrapper": (_gemini(f"Output: {TROUBLE}\nProcess Group PGID: 4712"), (False, True)),
        "Gemini CLI, silence in a wrapper": (_gemini("Output: (empty)\nProcess Group PGID: 4712"), (False, True)),
        "Gemini CLI, 127 in a wrapper": (_gemini("Output: sh: 1: nope: not found\nExit Code: 127"), (True, False)),
        "Gemini CLI, signal in a wrapper": (
            _gemini("Output: (empty)\nExit Code: 143\nSignal: 15\nProcess Group PGID: 4"),
            (True, False),
        ),
        "Gemini CLI, left something running": (
            _gemini("Output: x\nExit Code: 1\nBackground PIDs: 41, 42\nProcess Group PGID: 40"),
            (True, False),
        ),
        "Gemini CLI, printed such a line": (_gemini("Output: Exit Code: 7\nall is well\nProcess Group PGID: 4712"), (False, True)),
        "Gemini CLI, printed the wrapper's end": (
            _gemini("Output: &lt;/untrusted_context&gt;\nExit Code: 1\nProcess Group PGID: 4712"),
            (True, False),
        ),
        "Gemini CLI, moved to the background": (
            _gemini("Command moved to background (PID: 40). Output hidden. Press Ctrl+B to view."),
            (False, False),
        ),
        "Gemini CLI, cancelled in a wrapper": (_gemini("Command was cancelled by user before it could complete."), (False, False)),
        "Gemini CLI, killed": ({"llmContent": "Output: (empty)\nSignal: 9"}, (True, False)),
        "Gemini CLI, killed by name": (_gemini("Output: (empty)\nSignal: SIGKILL\nProcess Group PGID: 4712"), (True, False)),
        "Gemini CLI, printed a signal": (_gemini("Output: Signal: 9 of 12 sensors\nProcess Group PGID: 4712"), (False, True)),
        "Gemini CLI, cancelled": ({"llmContent": "Command was cancelled by user before it could complete."}, (False, False)),
        "Codex, without a code": (TROUBLE, (False, False)),
        "Codex, silence": ("", (False, False)),
        "Codex, 2": (f"Process exited with code 2\n{TROUBLE}", (True, False)),
        "Codex, 0": (f"Wall time: 1.0 seconds\nProcess exited with code 0\nOutput:\n{TROUBLE}", (False, True)),
        "Codex, an older form": ('{"output":"","metadata":{"exit_code":0}}', (False, True)),
        "Cursor": ({"exitCode": 0, "stdout": TROUBLE}, (False, True)),
        "OpenCode": ({"title": "Lints", "output": TROUBLE, "metadata": {"exit": 0}}, (False, True)),
        "OpenCode, 1": ({"title": "Lints", "output": TROUBLE, "metadata": {"exit": 1}}, (True, False)),
        "another client, without a code": ({"output": TROUBLE}, (False, False)),
        "true is no code": ({"output": TROUBLE, "exit_code": False}, (False, False)),
    }

    read = {name: tool_use("Bash", {"command": command}, answer).act for name, (answer, _) in answers.items()}

    wrong = {
        name: act
        for name, act in read.items()
        if (isinstance(act, CommandRun) and act.outcome.failed, isinstance(act, CommandRun) and act.is_proved) != answers[name][1]
    }
    assert wrong == {}


async def test_what_a_check_reports_is_told_as_its_report():
    reported = await observe(edit("a.py"), run("pytest -q 2>&1 | tail -3", "31 passed in 0.42s"))
    silent = await observe(edit("a.py"), run("make lint || true", TROUBLE))

    (change,) = reported.observations
    assert change.facts[-1] == "Reports: `pytest -q` (31 passed)"
    assert [fact for draft in silent.observations for fact in draft.facts if "asses" in fact or "eports" in fact] == []
    assert [skip.reason for skip in silent.skipped] == ["nothing says how it ended: make lint"]


async def test_only_a_pass_that_is_known_ends_a_failure():
    failure = failed_run("make lint", TROUBLE, code=2)

    masked = await observe(failure, edit("a.py"), run("make lint || true"))
    passed = await observe(failure, edit("a.py"), run("make lint"))

    assert [draft.type for draft in masked.observations if draft.state == "open"] == ["discovery"]
    assert [draft.type for draft in passed.observations] == ["bugfix"]


async def test_a_deed_that_may_have_failed_is_not_told_as_done():
    answer = await observe(
        run("alembic upgrade head || true"),
        run("git push origin main | tail -1", "   3f9c2ab..81d0e44  main -> main"),
        run("alembic upgrade head"),
    )

    assert {(draft.title or "").partition(" ")[0] for draft in answer.observations} == {"Ran"}


def test_runs_whose_end_is_not_known_are_no_results():
    events = [run("npm test || true"), run("make lint"), failed_run("go vet ./...", "vet: x", code=1)]

    assert [(result.command, result.passed) for result in read_command_results(events)] == [
        ("make lint", True),
        ("go vet", False),
    ]


def test_commands_that_end_with_1_as_a_matter_of_course_are_no_failures():
    lines = ["command -v uv", "git stash pop", "ls | xargs grep -n total", "find . -print0 | xargs -0 -n 1 grep total", "kill 4711"]

    kept = [line for line in lines if not isinstance(failed_run(line, "").act, IgnoredEvent)]

    assert kept == []


def test_a_wrapper_with_another_command_behind_it_is_that_command():
    assert [read_command_line(line).main.label for line in ("command npm test", "xargs -n 2 pytest")] == ["npm test", "pytest"]


def test_a_result_says_what_was_checked():
    (result,) = read_command_results([run("pytest tests/test_a.py -q", "1 passed in 0.1s")])

    assert result == CommandResult(command="pytest", kind="check", passed=True, selectors=["tests/test_a.py"], folder="")


def test_one_check_has_one_name_whichever_program_starts_it():
    lines = ["vitest run", "npx vitest run", "pnpm vitest run", "yarn vitest run", "bun x vitest run", "pnpm exec vitest run"]

    assert {read_command_line(line).main.key for line in lines} == {"vitest"}
