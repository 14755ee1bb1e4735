"""cmserver attached to the real Claude Code, whose model is played: what is sent to the model, and what is kept, whatever happens.

Every hook here is called by the real program, and runs the hook client that `cmserver connect` has installed.
"""

from __future__ import annotations

import json
import re
import signal
from concurrent.futures import ThreadPoolExecutor
from typing import cast

import pytest

from tests.models.providers.fake.server import Reply
from tests.process import program
from tests.process.program import wait_for
from tests.real_agents.coder import PROJECT, Coder, Session, call, uses
from tests.real_agents.desk import Desk, Sit, Stored, command_lines, files_with
from tests.real_agents.messages_api import streamed, text
from tests.timeouts import scaled

pytestmark = pytest.mark.slow

START_SECONDS, OTHER_SECONDS = 3, 1
"""The deadlines of the hooks."""

FILE = "retry.py"
"""In the titles of what the offline provider makes of `works`, whether it sees the two tool uses on it at once or not."""

OTHERS = ["refund", "voucher", "parcel", "discount", "receipt", "warehouse", "currency", "deposit", "invoice", "customer"]
FIRST_TURN = ["session_start", "user_prompt", "tool_use", "tool_use_failure", "tool_use", "assistant_message", "session_end"]
NEXT_TURN = ["session_start", "user_prompt", "assistant_message", "session_end"]


def works(coder: Coder, *, name: str = "retry.py") -> list[Reply]:
    """What the model says in a session in which something happens: it writes, fails, and corrects."""
    return [
        coder.writes(name, "LIMIT = 3\n"),
        streamed(call("Bash", command="echo oops; exit 3", description="Run the tests"), coder.edit(name, "3", "5")),
        streamed(text("The limit is five now.")),
    ]


def lines(said: str) -> list[str]:
    """Those with an observation, of all that cmserver added to what the model was sent."""
    return re.findall(r"^#\d+ .*", said, re.MULTILINE)


def lines_on(file: str, said: str) -> list[str]:
    return [line for line in lines(said) if file in line]


def numbers(said: str) -> list[str]:
    return [line.partition(" ")[0] for line in lines(said)]


def on_the_prompt(run: Session) -> str:
    """What the hook of the last prompt added, empty when it was silent; the index of the session's start is not of it."""
    _, found, added = run.of_the_session[0].rpartition("UserPromptSubmit hook additional context: ")
    return added if found else ""


def numbers_by_hook(said: str) -> dict[str, list[str]]:
    """The numbers that the hooks of starts, and those of prompts, added."""
    _, *parts = re.split(r"(SessionStart|UserPromptSubmit) hook additional context: ", said)
    told: dict[str, list[str]] = {"SessionStart": [], "UserPromptSubmit": []}
    for hook, added in zip(parts[::2], parts[1::2], strict=True):
        told[hook] += numbers(added)
    return told


def check_once_and_in_order(stored: list[Stored]) -> None:
    """That no event is there twice, and that those of each session arrived in the order in which they happened."""
    assert len({one.source_event_id for one in stored}) == len(stored)
    for whose in {(one.session, one.agent) for one in stored}:  # a sub-agent works beside the session
        times = [one.occurred_at for one in stored if (one.session, one.agent) == whose]
        assert times == sorted(times)


def check_undisturbed(session: Session) -> None:
    """That no hook failed, was cut, or said anything but what is for the program; and that the user was told at most one thing."""
    assert {(hook.exit_code, hook.outcome, hook.stderr) for hook in session.hooks} == {(0, "success", "")}
    assert len(session.notices) <= 1


def most_seconds(hooks: list[str], ordinary: Session) -> float:
    """What a session may take when every hook of it waits until its deadline."""
    waits = sum(START_SECONDS if hook == "SessionStart" else OTHER_SECONDS for hook in hooks)
    return waits + 2 * ordinary.seconds + scaled(2)


# -- context


def test_what_one_session_did_stands_in_the_first_request_of_the_next(sit: Sit):
    desk = sit()

    first = desk.coder.session("Raise the limit.", *works(desk.coder))
    desk.settle()
    second = desk.coder.session("What is the limit?")

    assert [one.event_type for one in desk.stored(first)] == FIRST_TURN
    assert lines(first.of_the_session[0]) == []
    asked = second.of_the_session[0]
    told = asked[asked.index("SessionStart hook additional context: ") :]
    assert lines_on(FILE, told)
    assert PROJECT.rpartition("/")[2] in told
    assert asked.count("<cmserver-context>") == asked.count("</cmserver-context>") <= 2  # the prompt may point to a line, once
    for session in (first, second):
        check_undisturbed(session)
        assert session.notices == []


def test_a_session_that_goes_on_is_told_nothing_twice_and_sends_nothing_twice(sit: Sit):
    """What its index listed, a prompt may be told once: among many lines it says which one matters now."""
    desk = sit()
    desk.coder.session("Raise the limit.", *works(desk.coder))
    desk.settle()
    first = desk.coder.session("Raise the other one.", *works(desk.coder, name="other.py"))
    desk.settle()

    again = desk.coder.resume(first, "And now?")
    between = desk.coder.session("A third one.", *works(desk.coder, name="third.py"))
    desk.settle()
    at_last = desk.coder.resume(first, "What is new?")

    told = numbers(at_last.of_the_session[-1])
    assert lines_on(FILE, first.of_the_session[0])
    for by_hook in numbers_by_hook(at_last.of_the_session[-1]).values():
        assert sorted(set(by_hook)) == sorted(by_hook)
    assert lines_on("third.py", at_last.of_the_session[-1])
    assert len(numbers(again.of_the_session[-1])) < len(told)
    assert [one.event_type for one in desk.stored(first)] == FIRST_TURN + NEXT_TURN + NEXT_TURN
    assert [one.event_type for one in desk.stored(between)] == FIRST_TURN
    check_once_and_in_order(desk.stored())


def test_a_prompt_is_answered_with_what_belongs_to_it_and_only_once(sit: Sit):
    desk = sit()
    names = [f"{name}_{kind}.py" for name in OTHERS for kind in ("list", "form")]
    others = [call("Write", file_path=str(desk.coder.project / name), content=f"TITLE = {name!r}\n") for name in names]
    desk.coder.session("Begin.", streamed(*others), *works(desk.coder))
    desk.settle()

    asks = desk.coder.session("Why was the LIMIT in retry.py changed?")
    asks_again = desk.coder.resume(asks, "Why was the LIMIT in retry.py changed, again?")
    asks_else = desk.coder.session("What is the weather like in Oslo?")

    asked = asks.of_the_session[0]
    assert lines_on(FILE, asked[asked.index("UserPromptSubmit hook additional context: ") :])
    told = numbers(on_the_prompt(asks_again))
    assert 1 <= len(told) <= 3
    assert sorted(set(told)) == sorted(told)
    assert numbers(on_the_prompt(asks_else)) == []


def test_what_it_was_told_is_not_captured_again(sit: Sit):
    """Neither when it writes down its context, nor when it looks something up here."""
    desk = sit()
    desk.coder.session("Raise the limit.", *works(desk.coder))
    desk.settle()
    before = _observations_with(desk, FILE)
    looks_up = f'"{desk.client / "hook"}" recall search LIMIT'

    def copies() -> Reply:
        told = re.search(r"<cmserver-context>.*</cmserver-context>", desk.coder.model.heard, re.DOTALL)
        return desk.coder.writes("notes.md", f"before {told[0] if told else 'nothing'} after\n")

    session = desk.coder.session("Note what you know.", copies, uses("Bash", command=looks_up, description="Look it up"))
    desk.settle()

    assert FILE in (desk.coder.project / "notes.md").read_text()
    assert FILE in session.of_the_session[-1].rpartition("tool_result")[2]
    assert [one.tool for one in desk.stored(session) if one.tool] == ["Write"]
    assert _payloads_with(desk, "before ") == 1
    assert _payloads_with(desk, "cmserver-context") == 0
    assert _observations_with(desk, FILE) == before


def _payloads_with(desk: Desk, words: str) -> int:
    return program.number(
        desk.database,
        "SELECT count(*) FROM agent_events WHERE strpos(payload->'tool_input'->>'content', %(words)s) > 0",
        words=words,
    )


def _observations_with(desk: Desk, words: str) -> int:
    return program.number(
        desk.database, "SELECT count(*) FROM observations WHERE kind <> 'summary' AND strpos(title, %(words)s) > 0", words=words
    )


def test_a_session_whose_words_are_summed_up_is_told_again_what_it_did(sit: Sit):
    desk = sit()
    first = desk.coder.session("Raise the limit.", *works(desk.coder))
    desk.settle()

    compacted = desk.coder.resume(first, "/compact", streamed(text("<summary>We raised it.</summary>")))
    after = desk.coder.resume(first, "Go on.")

    types = [one.event_type for one in desk.stored(compacted)][len(FIRST_TURN) :]
    assert {"pre_compact", "post_compact"} <= set(types)
    assert types.count("session_start") == 3
    told = numbers(after.of_the_session[0])
    assert lines_on(FILE, after.of_the_session[0])
    assert sorted(set(told)) == sorted(told)
    check_once_and_in_order(desk.stored())


# -- sub-agents


def test_what_a_sub_agent_does_is_told_apart(sit: Sit):
    desk = sit()

    session = desk.coder.session(
        "Have somebody raise the limit.",
        uses("Agent", description="Raise it", prompt="Raise the limit.", subagent_type="general-purpose"),
        agents=(desk.coder.writes("retry.py", "LIMIT = 5\n"), streamed(text("It is five."))),
    )

    assert session.of_agents
    stored = desk.stored(session)
    (written,) = [one for one in stored if one.tool == "Write"]
    (asked,) = [one for one in stored if one.tool == "Agent"]
    agents = {one.agent for one in stored if one.event_type in {"subagent_start", "subagent_stop"}}
    assert agents == {written.agent}
    assert written.agent is not None
    assert asked.agent is None
    # The program reports the agent's end to its model as if the user had said so.
    assert [one.event_type for one in stored].count("user_prompt") == 1
    check_once_and_in_order(stored)


# -- a server that is not there


@pytest.mark.speed
def test_a_server_that_is_down_costs_nothing_and_loses_nothing(sit: Sit):
    desk = sit()
    ordinary = desk.coder.session("Nothing yet.")
    before = len(desk.stored())
    desk.server.stop()

    down = desk.coder.session("Raise the limit.", *works(desk.coder))
    back = desk.start()
    after = desk.coder.session("And now?")
    desk.deliver()

    check_undisturbed(down)
    assert len(down.notices) == 1
    assert down.seconds < most_seconds([hook.hook_event for hook in down.hooks], ordinary)
    assert after.notices == []
    late = desk.stored(down)
    assert [one.event_type for one in late] == FIRST_TURN
    assert all(one.occurred_at < back < one.received_at for one in late)
    assert [one.event_type for one in desk.stored(after)] == NEXT_TURN
    assert len(desk.stored()) == before + len(FIRST_TURN) + len(NEXT_TURN)
    check_once_and_in_order(desk.stored())


def test_a_server_that_is_killed_while_a_session_runs_loses_nothing(sit: Sit):
    desk = sit()
    writes, corrects, says = works(desk.coder)

    def dies() -> Reply:
        desk.kill()
        return corrects

    cut = desk.coder.session("Raise the limit.", writes, dies, says)
    back = desk.start()
    desk.coder.session("And now?")
    desk.deliver()

    check_undisturbed(cut)
    stored = desk.stored(cut)
    assert [one.event_type for one in stored] == FIRST_TURN
    assert [one.received_at < back for one in stored] == [True] * 3 + [False] * 4
    assert all(one.occurred_at < back for one in stored)
    check_once_and_in_order(desk.stored())


@pytest.mark.speed
def test_a_server_that_does_not_answer_costs_no_more_than_the_deadlines_and_loses_nothing(sit: Sit):
    """It stands still: connections are taken, and what was sent is read when it goes on, when the spool sends it as well."""
    desk = sit()
    ordinary = desk.coder.session("Nothing yet.")
    before = len(desk.stored())

    desk.server.send(signal.SIGSTOP)
    slow = desk.coder.session("Raise the limit.", *works(desk.coder))
    desk.server.send(signal.SIGCONT)
    desk.server.wait_until_ready()
    desk.coder.session("And now?")
    desk.deliver()

    check_undisturbed(slow)
    assert slow.seconds < most_seconds([*(hook.hook_event for hook in slow.hooks), "SessionEnd"], ordinary)
    assert sorted(one.event_type for one in desk.stored(slow)) == sorted(FIRST_TURN)
    assert len(desk.stored()) == before + len(FIRST_TURN) + len(NEXT_TURN)
    assert len({one.source_event_id for one in desk.stored()}) == len(desk.stored())


def test_a_key_that_was_revoked_is_told_to_the_user_once_in_a_session(sit: Sit):
    desk = sit()
    (of_the_hooks, *_) = cast("list[dict[str, str]]", json.loads(desk.cmserver("keys", "list", "--json"))["keys"])
    desk.cmserver("keys", "revoke", of_the_hooks["id"], "--yes")

    session = desk.coder.session("Raise the limit.", *works(desk.coder))

    check_undisturbed(session)
    (notice,) = session.notices
    assert "key" in notice
    assert desk.key not in notice


# -- how it is attached


def test_as_a_plugin_it_does_the_same(sit: Sit):
    desk = sit(attached=False)
    desk.cmserver("connect", "claude-code", "--plugin", "--yes")

    first = desk.coder.session("Raise the limit.", *works(desk.coder))
    desk.settle()
    second = desk.coder.session("What is the limit?")

    assert "cmserver" in desk.coder.claude("plugin", "list")
    assert [one.event_type for one in desk.stored(first)] == FIRST_TURN
    assert lines_on(FILE, second.of_the_session[0])
    check_undisturbed(second)
    assert files_with(desk.coder.home, desk.key) == {desk.authorization}


def test_the_key_shows_in_no_process_list_and_lies_in_one_file_of_its_owner(sit: Sit):
    desk = sit()

    desk.server.send(signal.SIGSTOP)  # so that the hooks can be looked at while they wait
    with ThreadPoolExecutor(1) as aside:
        running = aside.submit(desk.coder.session, "Raise the limit.", *works(desk.coder))
        seen = wait_for("a hook that waits", lambda: _processes(running="curl"))
        desk.server.send(signal.SIGCONT)
        running.result()

    assert desk.key not in seen
    assert files_with(desk.coder.home, desk.key) == {desk.authorization}
    assert desk.authorization.stat().st_mode & 0o777 == 0o600
    assert desk.client.stat().st_mode & 0o777 == 0o700


def _processes(running: str) -> str:
    """The command lines of all processes, if one is of that program."""
    listed = command_lines()
    return listed if re.search(rf"^(\S*/)?{running} ", listed, re.MULTILINE) else ""


def test_what_is_detached_is_called_no_more(sit: Sit):
    desk = sit()
    desk.cmserver("disconnect", "claude-code", "--yes")

    session = desk.coder.session("Raise the limit.", *works(desk.coder))

    assert session.hooks == []
    assert desk.stored() == []
