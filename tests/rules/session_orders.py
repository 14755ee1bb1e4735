"""Two sessions in the orders project as Claude Code's hooks report them: one of recorded payloads, one longer story."""

from __future__ import annotations

import difflib

from cmserver.reading.model import EventReading
from cmserver.reading.read import read_event
from tests.reading.events import ROOT

Payload = dict[str, object]


def read_payloads(payloads: list[Payload]) -> list[EventReading]:
    """Hook payloads as they are read."""
    return [
        read_event("tool_use", payload, ROOT, occurred_at_epoch=1_790_000_000_000 + place * 1000)
        for place, payload in enumerate(payloads, start=1)
    ]


# ----------------------------------------------------------------------------------------------- recorded payloads

RECORDED: list[Payload] = [
    {
        "hook_event_name": "PostToolUse",
        "tool_name": "Bash",
        "tool_input": {"command": "echo hello-from-bash", "description": "Echo"},
        "tool_response": {
            "stdout": "hello-from-bash",
            "stderr": "",
            "interrupted": False,
            "isImage": False,
            "noOutputExpected": False,
        },
    },
    {
        "hook_event_name": "PostToolUse",
        "tool_name": "Write",
        "tool_input": {"file_path": f"{ROOT}/note.txt", "content": "written by the fake model\n"},
        "tool_response": {
            "type": "create",
            "filePath": f"{ROOT}/note.txt",
            "content": "written by the fake model\n",
            "structuredPatch": [],
            "originalFile": None,
            "userModified": False,
        },
    },
    {
        "hook_event_name": "PostToolUse",
        "tool_name": "Edit",
        "tool_input": {
            "file_path": f"{ROOT}/big.txt",
            "old_string": "line 5\n",
            "new_string": "line five\n",
            "replace_all": False,
        },
        "tool_response": {
            "filePath": f"{ROOT}/big.txt",
            "oldString": "line 5\n",
            "newString": "line five\n",
            "originalFile": "".join(f"line {number}\n" for number in range(12)),
            "structuredPatch": [
                {
                    "oldStart": 3,
                    "oldLines": 7,
                    "newStart": 3,
                    "newLines": 7,
                    "lines": [
                        " line 2",
                        " line 3",
                        " line 4",
                        "-line 5",
                        "+line five",
                        " line 6",
                        " line 7",
                        " line 8",
                    ],
                }
            ],
            "userModified": False,
            "replaceAll": False,
        },
    },
    {
        "hook_event_name": "PostToolUse",
        "tool_name": "Read",
        "tool_input": {"file_path": f"{ROOT}/big.txt"},
        "tool_response": {
            "type": "text",
            "file": {
                "filePath": f"{ROOT}/big.txt",
                "content": "".join(f"line {number}\n" for number in range(12)),
                "numLines": 13,
                "startLine": 1,
                "totalLines": 13,
            },
        },
    },
    {
        "hook_event_name": "PostToolUse",
        "tool_name": "mcp__cm__search",
        "tool_input": {"query": "needle", "limit": 2},
        "tool_response": '{"hits":[{"id":1,"title":"QUOKKA-7F3A needle for user-1 / state=user-1","score":1}],"total":1}',
        "mcp_server": {"name": "cm", "source": "dynamic"},
    },
    {
        "hook_event_name": "PostToolUse",
        "tool_name": "Agent",
        "tool_input": {
            "description": "sub",
            "prompt": "SUBTASK please",
            "subagent_type": "general-purpose",
            "run_in_background": False,
        },
        "tool_response": {
            "status": "completed",
            "prompt": "SUBTASK please",
            "agentId": "acc07184075037b79",
            "agentType": "general-purpose",
            "toolsUsed": ["Bash"],
            "content": [
                {"type": "text", "text": "<tools-used-before-summary>Bash</tools-used-before-summary>\n"},
                {"type": "text", "text": "sub finished"},
            ],
            "totalDurationMs": 674,
            "totalTokens": 8752,
            "totalToolUseCount": 1,
            "toolStats": {
                "readCount": 0,
                "searchCount": 0,
                "bashCount": 1,
                "editFileCount": 0,
                "linesAdded": 0,
                "linesRemoved": 0,
                "otherToolCount": 0,
            },
        },
    },
    {
        "hook_event_name": "PostToolUse",
        "agent_id": "acc07184075037b79",
        "agent_type": "general-purpose",
        "tool_name": "Bash",
        "tool_input": {"command": "echo in-sub", "description": "x"},
        "tool_response": {
            "stdout": "in-sub",
            "stderr": "",
            "interrupted": False,
            "isImage": False,
            "noOutputExpected": False,
        },
    },
    {
        "hook_event_name": "PostToolUseFailure",
        "tool_name": "Bash",
        "tool_input": {"command": "echo oops >&2; exit 3", "description": "fail"},
        "error": "Exit code 3\noops",
        "is_interrupt": False,
    },
    {
        "hook_event_name": "PostToolUseFailure",
        "tool_name": "Read",
        "tool_input": {"file_path": f"{ROOT}/nope.txt"},
        "error": f"File does not exist. Note: your current working directory is {ROOT}.",
        "is_interrupt": False,
    },
]

# ------------------------------------------------------------------------------------------------- the longer story


class Agent:
    """Works on a project in memory and writes down the payloads that the hooks would report."""

    def __init__(self, files: dict[str, str]) -> None:
        self.files = files
        self.payloads: list[Payload] = []

    def _used(self, tool: str, tool_input: Payload, tool_response: object) -> None:
        self.payloads.append(
            {
                "hook_event_name": "PostToolUse",
                "tool_name": tool,
                "tool_input": tool_input,
                "tool_response": tool_response,
            }
        )

    def _failed(self, tool: str, tool_input: Payload, error: str) -> None:
        self.payloads.append({"hook_event_name": "PostToolUseFailure", "tool_name": tool, "tool_input": tool_input, "error": error})

    def read(self, path: str) -> None:
        tool_input: Payload = {"file_path": f"{ROOT}/{path}"}
        if path not in self.files:
            self._failed("Read", tool_input, f"File does not exist. Note: your current working directory is {ROOT}.")
            return
        content = self.files[path]
        file: Payload = {"filePath": f"{ROOT}/{path}", "content": content, "numLines": len(content.splitlines())}
        self._used("Read", tool_input, {"type": "text", "file": file})

    def grep(self, pattern: str, *matches: str) -> None:
        names = [f"{ROOT}/{path}" for path in matches]
        self._used("Grep", {"pattern": pattern}, {"mode": "files_with_matches", "filenames": names})

    def glob(self, pattern: str, *matches: str) -> None:
        self._used("Glob", {"pattern": pattern}, {"filenames": list(matches), "numFiles": len(matches)})

    def write(self, path: str, content: str) -> None:
        self.files[path] = content
        full = f"{ROOT}/{path}"
        answer: Payload = {"type": "create", "filePath": full, "content": content, "structuredPatch": []}
        self._used("Write", {"file_path": full, "content": content}, answer | {"originalFile": None})

    def edit(self, path: str, old: str, new: str) -> None:
        before = self.files[path]
        assert before.count(old) == 1, (path, old)
        after = self.files[path] = before.replace(old, new)
        full = f"{ROOT}/{path}"
        self._used(
            "Edit",
            {"file_path": full, "old_string": old, "new_string": new, "replace_all": False},
            {
                "filePath": full,
                "oldString": old,
                "newString": new,
                "originalFile": before,
                "structuredPatch": _patch(before, after),
                "userModified": False,
                "replaceAll": False,
            },
        )

    def bash(self, command: str, stdout: str = "", stderr: str = "") -> None:
        answer: Payload = {"stdout": stdout, "stderr": stderr, "interrupted": False, "isImage": False}
        self._used("Bash", {"command": command, "description": "Run a command"}, answer)

    def bash_fails(self, command: str, output: str, code: int = 1) -> None:
        self._failed("Bash", {"command": command, "description": "Run a command"}, f"Exit code {code}\n{output}")

    def todo(self, *tasks: str) -> None:
        todos = [{"content": task, "status": "pending", "activeForm": task} for task in tasks]
        self._used("TodoWrite", {"todos": todos}, {"oldTodos": [], "newTodos": todos})

    def sub_agent(self, description: str, report: str, uses: int) -> None:
        tool_input: Payload = {"description": description, "prompt": f"{description}.", "subagent_type": "Explore"}
        answer: Payload = {
            "status": "completed",
            "content": [{"type": "text", "text": report}],
            "totalToolUseCount": uses,
            "toolStats": {"readCount": uses, "editFileCount": 0, "linesAdded": 0, "linesRemoved": 0},
        }
        self._used("Agent", tool_input, answer)

    def fetch(self, url: str, question: str, result: str) -> None:
        self._used("WebFetch", {"url": url, "prompt": question}, {"code": 200, "result": result, "url": url})

    def mcp(self, tool: str, tool_input: Payload, answer: str) -> None:
        self._used(tool, tool_input, answer)


def _patch(before: str, after: str) -> list[Payload]:
    old, new = before.splitlines(), after.splitlines()
    hunks: list[Payload] = []
    for group in difflib.SequenceMatcher(None, old, new).get_grouped_opcodes(3):
        lines: list[str] = []
        for kind, from_old, to_old, from_new, to_new in group:
            if kind == "equal":
                lines += [" " + line for line in old[from_old:to_old]]
            else:
                lines += ["-" + line for line in old[from_old:to_old]]
                lines += ["+" + line for line in new[from_new:to_new]]
        hunks.append({"oldStart": group[0][1] + 1, "oldLines": group[-1][2] - group[0][1], "lines": lines})
    return hunks


PRICING = '''\
"""What an order costs."""

from __future__ import annotations

from decimal import Decimal

from orders.model import Order

VAT = Decimal("0.19")


def line_total(quantity: int, unit_price: Decimal) -> Decimal:
    return quantity * unit_price


def compute_total(order: Order) -> Decimal:
    """The gross total of an order, as it is charged."""
    net = sum((line_total(line.quantity, line.unit_price) for line in order.lines), Decimal())
    gross = net * (1 + VAT)
    return round(gross, 2)
'''

COUPONS = '''\
"""Coupons and what they take off a total."""

from __future__ import annotations

from decimal import Decimal


class Coupon:
    def __init__(self, code: str, percent: int) -> None:
        self.code = code
        self.percent = percent

    def apply(self, total: Decimal) -> Decimal:
        return round(total * (100 - self.percent) / 100, 2)
'''

PAYMENTS = '''\
"""Charging a card at the payment provider."""

from __future__ import annotations

import httpx

from orders.model import Order
from orders.pricing import compute_total

TIMEOUT_SECONDS = 30


class PaymentClient:
    def __init__(self, base_url: str) -> None:
        self.client = httpx.Client(base_url=base_url, timeout=TIMEOUT_SECONDS)

    def charge(self, order: Order) -> str:
        amount = compute_total(order)
        response = self.client.post("/charges", json={"order": order.id, "amount": str(amount)})
        response.raise_for_status()
        return response.json()["id"]
'''

API = '''\
"""The HTTP door of the orders service."""

from __future__ import annotations

from fastapi import FastAPI

from orders.pricing import compute_total
from orders.store import find

app = FastAPI()


@app.get("/orders/{order_id}/total")
def get_total(order_id: str) -> dict[str, str]:
    order = find(order_id)
    return {"total": str(compute_total(order))}
'''

TEST_PRICING = """\
from decimal import Decimal

from orders.pricing import compute_total


def test_total_of_one_line(make_order):
    assert compute_total(make_order((1, "10.00"))) == Decimal("11.90")


def test_total_rounds_half_up(make_order):
    assert compute_total(make_order((1, "0.50"))) == Decimal("0.60")
"""

PYPROJECT = """\
[project]
name = "orders"
version = "1.4.0"
dependencies = [
  "fastapi>=0.115",
  "httpx>=0.27",
]
"""

README = """\
# orders

Takes orders and charges cards.

## Running

    uvicorn orders.api:app

## Settings

ORDERS_PAYMENT_URL is the payment provider's address.
"""

RETRY = '''\
"""Trying again when the payment provider is away."""

from __future__ import annotations

from collections.abc import Callable

from tenacity import Retrying, stop_after_attempt, wait_exponential

from orders.payments import PaymentClient


class RetryPolicy:
    attempts = 3


def call_with_retry(call: Callable[[], str], policy: type[RetryPolicy] = RetryPolicy) -> str:
    retrying = Retrying(stop=stop_after_attempt(policy.attempts), wait=wait_exponential(max=4))
    return retrying(call)
'''

TEST_RETRY = """\
from orders.retry import call_with_retry


def test_a_refused_card_is_not_tried_again(refusing_client, order):
    assert refusing_client.charge(order) is None
    assert refusing_client.calls == 1


def test_a_timeout_is_tried_three_times(slow_client, order):
    slow_client.charge(order)
    assert slow_client.calls == 3
"""

PYTEST_ROUNDING = """\
....................................F....F                               [100%]
=================================== FAILURES ===================================
__________________________ test_total_rounds_half_up ___________________________
tests/test_pricing.py:11: in test_total_rounds_half_up
    assert compute_total(make_order((1, "0.50"))) == Decimal("0.60")
E   AssertionError: assert Decimal('0.59') == Decimal('0.60')
E    +  where Decimal('0.59') = compute_total(Order(id='o1'))
___________________________ test_coupon_rounds_half_up _________________________
tests/test_coupons.py:9: in test_coupon_rounds_half_up
    assert Coupon("SPRING", 5).apply(Decimal("0.10")) == Decimal("0.10")
E   AssertionError: assert Decimal('0.09') == Decimal('0.10')
=========================== short test summary info ============================
FAILED tests/test_pricing.py::test_total_rounds_half_up - AssertionError: assert Decimal('0.59') == ...
FAILED tests/test_coupons.py::test_coupon_rounds_half_up - AssertionError: assert Decimal('0.09') == ...
2 failed, 40 passed in 1.84s
"""

CIRCULAR = """\
Traceback (most recent call last):
  File "<string>", line 1, in <module>
  File "/home/alice/src/orders/orders/payments.py", line 9, in <module>
    from orders.retry import call_with_retry
  File "/home/alice/src/orders/orders/retry.py", line 9, in <module>
    from orders.payments import PaymentClient
ImportError: cannot import name 'PaymentClient' from partially initialized module 'orders.payments' (circular import)
"""

PYTEST_RETRY = """\
F.                                                                       [100%]
=================================== FAILURES ===================================
____________________ test_a_refused_card_is_not_tried_again ____________________
tests/test_retry.py:6: in test_a_refused_card_is_not_tried_again
    assert refusing_client.calls == 1
E   assert 3 == 1
=========================== short test summary info ============================
FAILED tests/test_retry.py::test_a_refused_card_is_not_tried_again - assert 3 == 1
1 failed, 1 passed in 0.41s
"""

MYPY = """\
orders/api.py:16: error: Name "compute_total" is not defined  [name-defined]
Found 1 error in 1 file (checked 9 source files)
"""

FLAKY = """\
...............................................F                         [100%]
=================================== FAILURES ===================================
___________________________ test_webhook_arrives_late __________________________
tests/test_webhooks.py:31: in test_webhook_arrives_late
    assert queue.get(timeout=0.1)
E   _queue.Empty
=========================== short test summary info ============================
FAILED tests/test_webhooks.py::test_webhook_arrives_late - _queue.Empty
1 failed, 47 passed in 2.10s
"""

PYTEST_MIGRATION = """\
E
==================================== ERRORS ====================================
____________________ ERROR at setup of test_refund_is_stored ___________________
E   sqlalchemy.exc.ProgrammingError: (psycopg.errors.UndefinedTable) relation "refunds" does not exist
=========================== short test summary info ============================
ERROR tests/test_refunds.py::test_refund_is_stored - sqlalchemy.exc.ProgrammingError: (psyco...
1 error in 0.62s
"""

COMMIT_FIX = """\
git add orders/pricing.py orders/coupons.py && git commit -m "$(cat <<'EOF'
fix: round totals and coupons half up

Python's round() rounds half to even, the payment provider rounds half up; one cent was missing on some orders.

Co-Authored-By: An Agent <noreply@example.org>
EOF
)\""""


def _rounding(agent: Agent) -> None:
    agent.bash("git status --short", "")
    agent.read("orders/pricing.py")
    agent.read("orders/coupons.py")
    agent.grep(r"round\(", "orders/pricing.py", "orders/coupons.py")
    agent.bash_fails("cd /home/alice/src/orders && pytest -q", PYTEST_ROUNDING)
    agent.read("tests/test_pricing.py")
    agent.read("orders/pricing.py")
    agent.edit("orders/pricing.py", "from decimal import Decimal\n", "from decimal import ROUND_HALF_UP, Decimal\n")
    agent.edit(
        "orders/pricing.py",
        "def compute_total(",
        "def round_money(amount: Decimal) -> Decimal:\n"
        '    """To whole cents, half up, as the payment provider does."""\n'
        '    return amount.quantize(Decimal("0.01"), rounding=ROUND_HALF_UP)\n\n\n'
        "def compute_total(",
    )
    agent.edit("orders/pricing.py", "    return round(gross, 2)\n", "    return round_money(gross)\n")
    agent.edit(
        "orders/coupons.py",
        "        return round(total * (100 - self.percent) / 100, 2)\n",
        "        return round_money(total * (100 - self.percent) / 100)\n",
    )
    agent.edit(
        "orders/coupons.py",
        "from decimal import Decimal\n",
        "from decimal import Decimal\n\nfrom orders.pricing import round_money\n",
    )
    agent.bash("pytest -q tests/test_pricing.py", "..                                     [100%]\n2 passed in 0.30s")
    agent.bash("pytest -q 2>&1 | tail -3", "..........................................\n42 passed in 1.79s")
    agent.bash("git diff --stat", " orders/coupons.py | 4 +++-\n orders/pricing.py | 9 +++++++--")
    agent.bash(
        COMMIT_FIX, "[main 3f9c2ab] fix: round totals and coupons half up\n 2 files changed, 10 insertions(+), 3 deletions(-)"
    )
    agent.todo("Retry charges when the payment provider times out", "Describe retries in the README")
    agent.read("orders/payments.py")
    agent.grep("PaymentClient", "orders/payments.py", "orders/worker.py")
    agent.glob("tests/**/*.py", "tests/test_pricing.py")


def _retries(agent: Agent) -> None:
    agent.sub_agent(
        "Find callers of PaymentClient.charge",
        "`PaymentClient.charge` is called from two places: orders/worker.py:41 (the nightly run) and orders/api.py:58 "
        "(POST /orders). Only the worker catches httpx.TimeoutException; the API lets it become a 500.",
        9,
    )
    agent.fetch(
        "https://tenacity.readthedocs.io/en/latest/",
        "How are only some exceptions retried?",
        "Tenacity retries on every exception by default. Pass retry=retry_if_exception_type(...) to retry only on "
        "the named exception types.",
    )
    agent.bash(
        "pip install 'tenacity>=9'",
        "Collecting tenacity>=9\nInstalling collected packages: tenacity\nSuccessfully installed tenacity-9.1.2",
    )
    agent.edit("pyproject.toml", '  "httpx>=0.27",\n', '  "httpx>=0.27",\n  "tenacity>=9",\n')
    agent.write("orders/retry.py", RETRY)
    agent.edit(
        "orders/payments.py",
        "from orders.pricing import compute_total\n",
        "from orders.pricing import compute_total\nfrom orders.retry import call_with_retry\n",
    )
    agent.edit(
        "orders/payments.py",
        "        amount = compute_total(order)\n"
        '        response = self.client.post("/charges", json={"order": order.id, "amount": str(amount)})\n'
        "        response.raise_for_status()\n"
        '        return response.json()["id"]\n',
        "        return call_with_retry(lambda: self._charge_once(order))\n\n"
        "    def _charge_once(self, order: Order) -> str:\n"
        "        amount = compute_total(order)\n"
        '        response = self.client.post("/charges", json={"order": order.id, "amount": str(amount)})\n'
        "        response.raise_for_status()\n"
        '        return response.json()["id"]\n',
    )
    agent.bash_fails('python -c "import orders.payments"', CIRCULAR)
    agent.read("orders/retry.py")
    agent.edit("orders/retry.py", "\nfrom orders.payments import PaymentClient\n", "")
    agent.bash('python -c "import orders.payments"')
    agent.write("tests/test_retry.py", TEST_RETRY)
    agent.bash_fails("pytest -q tests/test_retry.py", PYTEST_RETRY)
    agent.edit(
        "orders/retry.py",
        "from tenacity import Retrying, stop_after_attempt, wait_exponential\n",
        "import httpx\nfrom tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_exponential\n",
    )
    agent.edit(
        "orders/retry.py",
        "    retrying = Retrying(stop=stop_after_attempt(policy.attempts), wait=wait_exponential(max=4))\n",
        "    retrying = Retrying(\n"
        "        stop=stop_after_attempt(policy.attempts),\n"
        "        wait=wait_exponential(max=4),\n"
        "        retry=retry_if_exception_type(httpx.TimeoutException),\n"
        "    )\n",
    )
    agent.bash("pytest -q tests/test_retry.py", "..                                     [100%]\n2 passed in 0.38s")
    agent.bash_fails(
        "ruff check .", "tests/test_retry.py:1:27: F401 [*] `orders.retry.call_with_retry` imported but unused\nFound 1 error."
    )
    agent.edit("tests/test_retry.py", "from orders.retry import call_with_retry\n\n\n", "")
    agent.bash("ruff check .", "All checks passed!")
    agent.bash("git diff --stat", " 4 files changed")


def _refactor(agent: Agent) -> None:
    agent.bash(
        'git add -A && git commit -m "feat: retry charges on timeouts"',
        "[main 81d0e44] feat: retry charges on timeouts\n 4 files changed, 51 insertions(+), 5 deletions(-)\n"
        " create mode 100644 orders/retry.py\n create mode 100644 tests/test_retry.py",
    )
    agent.bash("git push", stderr="To github.com:alice/orders.git\n   3f9c2ab..81d0e44  main -> main")
    agent.grep("compute_total", "orders/pricing.py", "orders/payments.py", "orders/api.py", "tests/test_pricing.py")
    agent.read("orders/api.py")
    agent.bash("wc -l orders/*.py", "  20 orders/api.py\n  31 orders/pricing.py")
    agent.edit("orders/pricing.py", "def compute_total(order", "def order_total(order")
    agent.edit("orders/payments.py", "from orders.pricing import compute_total\n", "from orders.pricing import order_total\n")
    agent.edit("orders/payments.py", "        amount = compute_total(order)\n", "        amount = order_total(order)\n")
    agent.edit("tests/test_pricing.py", "import compute_total\n", "import order_total\n")
    agent.bash("sed -i 's/compute_total(/order_total(/' tests/test_pricing.py")
    agent.edit("orders/api.py", "from orders.pricing import compute_total\n", "from orders.pricing import order_total\n")
    agent.bash_fails("mypy orders", MYPY)
    agent.edit("orders/api.py", "str(compute_total(order))", "str(order_total(order))")
    agent.bash("mypy orders", "Success: no issues found in 9 source files")
    agent.bash("pytest -q", "............................................\n44 passed in 1.88s")
    agent.bash(
        'git commit -am "refactor: compute_total is order_total"',
        "[main b71aa90] refactor: compute_total is order_total\n 4 files changed, 8 insertions(+), 8 deletions(-)",
    )
    agent.read("README.md")
    agent.edit(
        "README.md",
        "ORDERS_PAYMENT_URL is the payment provider's address.\n",
        "ORDERS_PAYMENT_URL is the payment provider's address.\n\n## Retries\n\n"
        "A charge that times out is tried three times; a refused card is never tried again.\n",
    )
    agent.write("docs/retries.md", "# Why charges are retried\n\nThe provider times out about once in 2,000 calls.\n")
    agent.bash("ls docs", "retries.md")


def _refunds(agent: Agent) -> None:
    agent.mcp("mcp__cmserver__search", {"query": "refunds table"}, '{"hits":[],"total":0}')
    agent.bash_fails("pytest -q", FLAKY)
    agent.read("tests/test_webhooks.py")
    agent.bash("pytest -q", "................................................\n48 passed in 2.02s")
    agent.bash(
        'git add README.md docs/retries.md && git commit -m "Describe retries"',
        "[main 5c6d7e8] Describe retries\n 2 files changed, 7 insertions(+)\n create mode 100644 docs/retries.md",
    )
    agent.read("orders/refunds.py")
    agent.bash("docker compose up -d db", stderr=" Container orders-db-1  Started")
    agent.write(
        "migrations/0007_refunds.sql",
        "CREATE TABLE IF NOT EXISTS refunds (\n    id uuid PRIMARY KEY,\n    order_id uuid NOT NULL\n);\n",
    )
    agent.bash("git status --short", "?? migrations/0007_refunds.sql")
    agent.bash_fails("pytest -q tests/test_refunds.py", PYTEST_MIGRATION)


def long_session() -> list[Payload]:
    """About seventy tool uses: a rounding bug, retries with a new dependency, a rename, docs, and a test left failing."""
    agent = Agent(
        {
            "orders/pricing.py": PRICING,
            "orders/coupons.py": COUPONS,
            "orders/payments.py": PAYMENTS,
            "orders/api.py": API,
            "tests/test_pricing.py": TEST_PRICING,
            "tests/test_webhooks.py": "def test_webhook_arrives_late(queue): ...\n",
            "pyproject.toml": PYPROJECT,
            "README.md": README,
        }
    )
    for chapter in (_rounding, _retries, _refactor, _refunds):
        chapter(agent)
    return agent.payloads


REQUESTS = [
    "Some orders are charged one cent too little, please find out why and fix it.",
    "Charges should be retried when the payment provider times out.",
    "compute_total is a bad name, call it order_total. Then describe the retries.",
    "Start with the refunds table.",
]
"""One request for each batch of twenty."""

LAST_MESSAGE = "The retries are in and documented. Next: apply migration 0007 so that test_refund_is_stored can pass."
