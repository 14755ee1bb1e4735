"""`cmserver why`, on a real repository and with sessions whose hooks came over the API: five lines, and what is no line."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest

from cmserver.cli.exit_codes import ExitCode
from cmserver.cli.why import FileReasons
from cmserver.client.server_api import Api, ApiAnswer
from tests.cli.conftest import Cms
from tests.conftest import Cast
from tests.generation.test_turns import Agent
from tests.generation.tools import Outbox
from tests.repositories import Repository

PAY = "src/pay.py"
LINES = ["import ledger", "LIMIT = 30", "def pay(order):", "    with ledger.lock():", "        order.pay()"]


class Work:
    """A repository in which people and an agent work, by turns, from some hours ago on."""

    def __init__(self, folder: Path, agent: Agent) -> None:
        self.repository = Repository(folder)
        self.agent = agent
        self.at = datetime.now(UTC) - timedelta(hours=5)

    def change(self, old: str, new: str) -> None:
        file = self.repository.folder / PAY
        text = file.read_text("utf-8") if file.exists() else ""
        self.repository.write(PAY, text.replace(old, new) if old else new)

    def commit(self, subject: str, at: datetime | None = None) -> str:
        return self.repository.commit(subject, at=(at or datetime.now(UTC)).isoformat(timespec="seconds"))

    async def turn(self, words: str, old: str, new: str, *, subject: str = "") -> None:
        """The agent changes the file, and commits it if there is a subject."""
        await self.agent.prompt(words)
        self.change(old, new)
        await self.agent.edit(PAY, old, new)
        if subject:
            made = self.commit(subject)
            await self.agent.run(f"git commit -am '{subject}'", f"[main {made[:7]}] {subject}\n 1 file changed, 1 insertion(+)")
        await self.agent.stop(f"Done: {words}")


@pytest.fixture
async def work(client: httpx.AsyncClient, cast: Cast, outbox: Outbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Work:
    made = Work(tmp_path / "clone", Agent(client, cast, outbox))
    monkeypatch.chdir(made.repository.folder)
    return made


async def make_history(work: Work) -> None:
    """Each line of the file has another past."""
    work.change("", "import ledger\nLIMIT = 10\ndef pay(order):\n    order.pay()\n")
    work.commit("Begin by hand", work.at)
    await work.turn("No more than 20 at once, says the bank.", "LIMIT = 10", "LIMIT = 20", subject="Raise the limit")
    await work.turn("No more than 30 at once, says the bank.", "LIMIT = 20", "LIMIT = 30", subject="Raise the limit again")
    await work.turn("Lock the ledger: two writers lost money.", "    order.pay()", "    with ledger.lock():\n        order.pay()")
    work.commit("Lock the ledger")  # by a person, who renames it later
    work.repository.git("mv", PAY, "src/money.py")
    work.commit("Call it money")
    work.repository.write("src/money.py", "\n".join([*LINES, "    return order", ""]))


async def test_five_lines_lead_to_the_right_turn_or_commit_each(work: Work, cms: Cms, cast: Cast):
    await make_history(work)

    told: list[tuple[str | None, str | None, str | None]] = []
    for number in range(1, 7):
        said = await cms(
            "why", f"src/money.py:{number}", "--project", work.agent.headers["X-Cmserver-Project"], "--json", key=cast.alice.key
        )
        assert said.code == 0, said.err
        (reason,) = said.read(FileReasons).reasons
        told.append((reason.commit and reason.commit.subject, reason.why.how, reason.why.turn and reason.why.turn.prompt))

    assert told == [
        ("Begin by hand", None, None),
        ("Raise the limit again", "wrote", "No more than 30 at once, says the bank."),
        ("Begin by hand", None, None),
        ("Lock the ledger", "wrote", "Lock the ledger: two writers lost money."),
        ("Begin by hand", None, None),
        (None, None, None),
    ]


async def test_a_person_s_line_that_equals_one_of_an_agent_is_not_the_agent_s(work: Work, cms: Cms, cast: Cast):
    work.change("", "def pay():\n    pass\ndef log():\n    send()\n")
    work.commit("Begin", work.at)
    await work.turn("Stop when closed.", "    pass", "    ledger.release()")
    work.change("    send()", "    ledger.release()")
    work.commit("By hand")
    options = ("--project", work.agent.headers["X-Cmserver-Project"], "--json")

    said = await cms("why", f"{PAY}:4", *options, key=cast.alice.key)

    assert [reason.why.turn for reason in said.read(FileReasons).reasons] == [None]


async def test_it_is_told_in_few_lines_without_what_controls_a_terminal(work: Work, cms: Cms, cast: Cast):
    work.change("", "LIMIT = 10\n")
    work.commit("Begin")
    await work.turn("Say \x1b[31mred\u202e.", "LIMIT = 10", "LIMIT = 20\x1b[31m", subject="Turn \x1b[31mred")
    options = ("--project", work.agent.headers["X-Cmserver-Project"])

    of_line, of_file = [await cms("why", place, *options, key=cast.alice.key) for place in (f"{PAY}:1", PAY)]

    assert [of_line.code, of_file.code] == [0, 0]
    head, _, commit, turn = of_line.out.splitlines()
    assert head.startswith("src/pay.py:1  LIMIT = 20")
    assert " Ann: Turn " in commit
    assert turn.startswith("Written in #")
    assert "by hand" not in of_line.out
    assert [line.partition(" ")[0] for line in of_file.out.splitlines() if line.startswith("No turn")] == ["No"]
    assert not any(char in of_line.out + of_file.out for char in "\x1b\u202e")


async def test_what_cannot_be_answered_says_why(work: Work, cms: Cms, cast: Cast, tmp_path: Path):
    work.change("", "a = 1\n")
    work.commit("Begin")
    work.repository.write("new.py", "a = 1\n")
    work.repository.write("a:12", "a = 1\n")
    work.repository.write("\udcff.py", "a = 1\n")
    (tmp_path / "outside.py").write_text("a = 1\n", "utf-8")
    known = ("--project", work.agent.headers["X-Cmserver-Project"])
    rows = [
        ((PAY + ":0", *known), ExitCode.USAGE, "Lines are counted from 1."),
        ((PAY + ":2", *known), ExitCode.USAGE, "has 1 line, and no line 2"),
        (("none.py:1", *known), ExitCode.USAGE, "none.py is not there."),
        (("src:1", *known), ExitCode.USAGE, "is a folder"),
        (("\x1b[31m.py", *known), ExitCode.USAGE, "Error: .py is not there"),
        (("new.py", *known), ExitCode.FAILURE, "is in no commit yet"),
        (("a:12", *known), ExitCode.FAILURE, "is in no commit yet"),
        ((str(tmp_path / "outside.py"), *known), ExitCode.FAILURE, "is in no git repository"),
        (("a" * 5_000 + ":1", *known), ExitCode.USAGE, "File name too long"),
        (("\udcff.py:1", *known), ExitCode.USAGE, "name that is no UTF-8"),
        ((PAY + ":1", "--project", "nobody knows it"), ExitCode.FAILURE, "Project not found"),
    ]

    for words, code, says in rows:
        said = await cms("why", *words, key=cast.alice.key)
        assert (said.code, says in said.err) == (code, True), (words, said)
        assert "\x1b" not in said.err


async def test_an_older_server_is_told_of(work: Work, cms: Cms, cast: Cast, monkeypatch: pytest.MonkeyPatch):
    work.change("", "a = 1\n")
    work.commit("Begin")
    post = Api.post

    async def post_elsewhere(self: Api, path: str, body: object = None) -> ApiAnswer:
        return await post(self, path.replace("/v1/why", "/v1/never"), body)

    monkeypatch.setattr(Api, "post", post_elsewhere)

    said = await cms("why", f"{PAY}:1", "--project", work.agent.headers["X-Cmserver-Project"], key=cast.alice.key)

    assert (said.code, "The server is older" in said.err) == (ExitCode.FAILURE, True)
