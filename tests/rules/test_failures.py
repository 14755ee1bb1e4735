"""A failure is over when the same check passes: its program, settings, folder or package, branch, and all that had failed."""

from __future__ import annotations

from cmserver.models.providers.model import PriorObservation
from cmserver.reading.model import UNKNOWN_BRANCH, Branch, CommandResult, CommandRun
from cmserver.reading.read import read_event
from cmserver.rules.failures import RecordedFailures
from tests.reading.events import ROOT
from tests.table import try_rows


def results(command: str, *, failed: bool, cwd: str = "", branch: str = "", output: str = "", **fields: str) -> list[CommandResult]:
    """What a shell's call says; `cwd` is below the root, `fields` are further ones of its input."""
    code = 1 if failed else 0
    payload = {
        "tool_name": "Bash",
        "tool_input": {"command": command, **fields},
        "cwd": f"{ROOT}/{cwd}".rstrip("/"),
        "tool_response": {"output": output, "exit_code": code},
    }
    known = Branch(branch, is_told=True) if branch else UNKNOWN_BRANCH
    act = read_event("tool_use", payload, ROOT, branch=known).act
    assert isinstance(act, CommandRun)
    return act.results


def is_over(failed: list[CommandResult], *runs: list[CommandResult]) -> bool:
    line = PriorObservation(number=1, type="discovery", title="fails", state="open", commands=failed)
    failures = RecordedFailures([], [line])
    for run in runs:
        for result in run:
            failures.add(result)
    return not failures.lines


@try_rows(
    ("failed", "passed"),
    [
        ("npm test", "npm test"),
        ("npm test", "npm run lint && npm test"),
        ("npm run lint && npm run build", "npm run lint && npm run build && npm publish"),
        ("cd packages/api && npm test", "npm --prefix packages/api test"),
        ("cd packages/api && npm test", "(cd packages/api && npm run build && npm test)"),
        ("cd packages/api && pnpm test", "pnpm --filter @shop/api test"),
        ("yarn workspace api test", "cd packages/api; yarn test"),
        ("npm test -w packages/api", "npm test --workspaces"),
        ("pnpm --filter api test", "pnpm -r test"),
        ("make -C api test", "make --directory=api test"),
        ("cd api && go test ./...", "go -C api test ./..."),
        ("cargo test -p api", "cargo test --workspace"),
        ("cargo test -p api", "cargo test --package api"),
        ("./gradlew :api:test", "cd api && ../gradlew test"),
        ("mvn -pl api test", "mvn -pl api test -q"),
        ("cd services/api && pytest", "pytest services/api"),
        ("pytest api/tests", "cd api && pytest"),
        ("cd api && pytest tests/test_a.py", "pytest api/tests/test_a.py -q"),
        ("uv run --directory api pytest", "cd api && uv run pytest -x"),
        ("docker compose exec -T api pytest", "docker compose run --rm api pytest -q"),
        ("bash -lc 'cd api && make test'", "make -C api test"),
        ("DB=postgres pytest", "DB=postgres pytest -q"),
        ("pytest", "STRIPE_MOCK=1 pytest"),
        ("pytest -m slow", "pytest -m slow -q"),
        ("npm run test:api", "npm run test:api"),
        ("./migrate.sh && echo done", "cd db; cd ..; ./migrate.sh"),
        ("npm test | tail -20", "npm test"),
        ("npm test && git commit -m x", "npm test && git commit -m y"),
    ],
)
def test_a_failure_is_over_when_the_same_check_passes(failed: str, passed: str):
    output = "2 failed, 1 passed in 0.1s" if "|" in failed else ""

    assert is_over(results(failed, failed=True, output=output), results(passed, failed=False))


@try_rows(
    ("failed", "passed"),
    [
        ("npm test", "npm run lint"),
        ("cd packages/api && npm test", "cd packages/web && npm test"),
        ("cd packages/api && npm test", "npm test"),
        ("cd packages/api && npm test", "(cd packages/api && npm ci) && npm test"),
        ("npm --prefix packages/api test", "npm --prefix packages/web test"),
        ("pnpm --filter api test", "pnpm --filter web test"),
        ("yarn workspace api test", "yarn workspace web test"),
        ("npm test -w packages/api", "npm test -w packages/web"),
        ("make -C api test", "make -C web test"),
        ("go -C api test ./...", "go -C web test ./..."),
        ("cargo test -p api", "cargo test -p web"),
        ("cargo test --workspace", "cargo test -p web"),
        ("./gradlew :api:test", "./gradlew :web:test"),
        ("mvn -pl api test", "mvn -pl web test"),
        ("turbo run test --filter=api", "turbo run test --filter=web"),
        ("pytest api", "pytest web"),
        ("pytest", "pytest web"),
        ("cd api && pytest tests/test_a.py", "cd web && pytest tests/test_a.py"),
        ("docker compose exec -T api pytest", "docker compose exec -T web pytest"),
        ("uv run --directory api pytest", "uv run --directory web pytest"),
        ("DB=postgres pytest", "DB=sqlite pytest"),
        ("make test PKG=api", "make test PKG=web"),
        ("pytest -m slow", "pytest -m fast"),
        ("pytest", "pytest --lf -k one"),
        ("npx jest", "npx jest --onlyChanged"),
        ("npm run test:api", "npm run test:web"),
        ("npm run lint && npm run build", "npm run build"),
        ("(cd api && npm test) && (cd web && npm test)", "cd web && npm test"),
        ("./migrate.sh", "./seed.sh"),
        ("npm test", "npm test || true"),
    ],
)
def test_another_check_ends_no_failure(failed: str, passed: str):
    run = results(passed, failed=False)

    assert not is_over(results(failed, failed=True), run if "||" not in passed else run[1:])


@try_rows(
    ("failed", "passed", "over"),
    [
        ({"cwd": "packages/api"}, {"cwd": "packages/api"}, True),
        ({"cwd": "packages/api"}, {"cwd": "packages/web"}, False),
        ({"workdir": "packages/api"}, {"cwd": "packages/api"}, True),
        ({"workdir": f"{ROOT}/packages/api"}, {"directory": "packages/api"}, True),
        ({"workdir": "packages/api"}, {"workdir": "packages/web"}, False),
        ({"branch": "fix"}, {"branch": "fix"}, True),
        ({"branch": "fix"}, {"branch": "main"}, False),
        ({"branch": "fix"}, {}, True),
        ({}, {"branch": "main"}, True),
    ],
)
def test_the_folder_and_the_branch_of_the_call_count(failed: dict[str, str], passed: dict[str, str], over: bool):
    assert is_over(results("npm test", failed=True, **failed), results("npm test", failed=False, **passed)) is over


def test_an_agent_that_tells_the_folder_after_cd_means_the_same_folder():
    failed = results("cd packages/api && npm test", failed=True, cwd="packages/api")

    assert is_over(failed, results("npm test", failed=False, cwd="packages/api"))
    assert not is_over(failed, results("npm test", failed=False))


def test_all_that_had_failed_has_to_pass_also_one_after_the_other():
    failed = results(
        "pytest", failed=True, output="FAILED tests/test_a.py::test_x - E\nFAILED tests/test_b.py::test_y - E\n2 failed in 1s"
    )
    first, second = (results(f"pytest tests/test_{name}.py", failed=False) for name in "ab")

    assert not is_over(failed, first)
    assert is_over(failed, first, second)
    assert not is_over(failed, first, results("pytest tests/test_a.py", failed=True), second)


def test_a_line_whose_tests_failed_says_that_the_check_before_them_passed():
    lint = results("npm run lint", failed=True)

    assert is_over(lint, results("npm run lint && npx vitest run", failed=True, output=" Tests  1 failed | 3 passed (4)"))
    assert not is_over(lint, results("npm run lint && npx vitest run", failed=True, output="✖ 3 problems (3 errors, 0 warnings)"))


@try_rows(
    ("before", "failed", "replaces"),
    [
        ("pytest", "pytest", True),
        ("pytest tests/test_b.py", "pytest", True),
        ("pytest tests/test_b.py", "pytest tests/test_b.py", True),
        ("pytest -k one", "pytest -k one", True),
        ("pytest", "pytest tests/test_b.py", False),
        ("pytest tests/test_a.py", "pytest tests/test_b.py", False),
    ],
)
def test_a_failure_takes_the_place_of_one_of_which_it_has_tried_all(before: str, failed: str, replaces: bool):
    line = PriorObservation(number=1, type="discovery", title="fails", state="open", commands=results(before, failed=True))

    assert RecordedFailures([], [line]).numbers(results(failed, failed=True)[0]) == [1] * replaces
