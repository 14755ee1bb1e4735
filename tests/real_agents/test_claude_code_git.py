"""The real Claude Code in a git repository in which colleagues work, too: what its next session is told of that."""

from __future__ import annotations

import subprocess

import pytest

from tests.real_agents.coder import Coder
from tests.real_agents.desk import Desk, Sit
from tests.real_agents.messages_api import streamed, text

pytestmark = pytest.mark.slow

SAID = "Pay() in pay.py takes the lock first now."


def git(coder: Coder, *words: str) -> str:
    who = {f"GIT_{role}_{what}": value for role in ("AUTHOR", "COMMITTER") for what, value in (("NAME", "Ann"), ("EMAIL", "a@b.c"))}
    done = subprocess.run(["git", *words], cwd=coder.project, env=coder.env(**who), check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def desk(sit: Sit) -> Desk:
    """A session has written pay.py and said so, and it is committed."""
    desk = sit()
    desk.coder.session("Lock before paying.", desk.coder.writes("pay.py", "lock()\npay()\n"), streamed(text(SAID)))
    desk.settle()
    git(desk.coder, "add", "-A")
    git(desk.coder, "commit", "-q", "-m", "Lock before paying")
    return desk


def test_what_a_colleague_removed_is_marked_in_the_next_session(desk: Desk):
    before = desk.coder.session("What is new?")
    git(desk.coder, "rm", "-q", "pay.py")
    git(desk.coder, "commit", "-q", "-m", "Pay elsewhere")
    commit = git(desk.coder, "rev-parse", "--short=7", "HEAD")

    after = desk.coder.session("What is new?")

    assert SAID in before.of_the_session[0]
    assert "was removed in" not in before.of_the_session[0]
    assert f"(pay.py was removed in {commit}, by Ann)" in after.of_the_session[0]


def test_why_leads_from_a_line_to_what_was_said(desk: Desk):
    commit = git(desk.coder, "rev-parse", "--short=7", "HEAD")

    said = desk.cmserver("why", str(desk.coder.project / "pay.py:1"))

    assert said.startswith(f"pay.py:1  lock()\n\n{commit} ")
    assert "Written in #" in said
    assert "Lock before paying." in said


def test_history_is_the_first_memory(sit: Sit):
    desk = sit()
    (desk.coder.project / "retry.py").write_text("LIMIT = 5\n", "utf-8")
    git(desk.coder, "add", "-A")
    git(desk.coder, "commit", "-q", "-m", "Try five times\n\nThe bank needs four on Mondays.")

    desk.cmserver("import", "git", str(desk.coder.project))

    assert "Try five times" in desk.coder.session("Hello.").of_the_session[0]
