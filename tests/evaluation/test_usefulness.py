"""The labelled sessions, how facts are recognized, and how much the server of this tree remembers of those that may be read."""

from __future__ import annotations

import msgspec
import pytest

from tests.evaluation.short_form import Agent
from tests.evaluation.usefulness.command import make_report, measure_half, render
from tests.evaluation.usefulness.corpus import (
    HALVES,
    STRANGERS,
    CorpusProject,
    Fact,
    FalseStatement,
    Half,
    LabelledSession,
    LaterPrompt,
    Question,
    SessionEvent,
    load_projects,
    session_hooks,
)
from tests.evaluation.usefulness.figures import Share, UsefulnessFigures, describe, measure
from tests.evaluation.usefulness.playback import ProjectMemory, PromptContext, QuestionHits, SessionMemory
from tests.evaluation.usefulness.recognize import RememberedItem, find_wrong, has_words, keeps, read_numbers, simplify
from tests.table import try_rows

MIN_FACTS_KEPT = 0.85
MIN_OBSERVATIONS_WITH_A_FACT = 0.6
MIN_QUESTIONS_ANSWERED = 0.6
MIN_PROMPTS_WITH_THEIR_FACT = 0.6
MIN_UNRELATED_LEFT_ALONE = 0.85
MAX_WRONG = 8

COUNTS = ((20, 60), (4, 9), (1, 5), (10, 10), (2, 3))
"""Of events, facts, false statements, questions and later prompts, at least and at most."""

SESSIONS = {session.id: session for half in HALVES for project in load_projects(half) for session in project.sessions}
of_each_session = pytest.mark.parametrize("session_id", SESSIONS)
"""By its id: a test that fails must not print a session that nobody may read."""


# ------------------------------------------------------------------------------------------------------ the corpus


def test_each_half_has_its_projects_and_their_sessions():
    assert [[len(project.sessions) for project in load_projects(half)] for half in HALVES] == [[4] * 5, [4] * 4]
    assert {session.agent for session in SESSIONS.values()} == {"claude-code", "codex", "gemini"}
    assert {session.language for session in SESSIONS.values()} == {"en", "de", "fr"}


@of_each_session
def test_there_is_as_much_of_everything_as_the_readme_says(session_id: str):
    session = SESSIONS[session_id]
    counts = [len(items) for items in (session.events, session.facts, session.misleading, session.questions, session.later_prompts)]

    assert [low <= count <= high for count, (low, high) in zip(counts, COUNTS, strict=True)] == [True] * len(COUNTS), counts
    assert [fact.id for fact in session.facts if not 2 <= len(fact.words) <= 4] == []
    assert [place for place, statement in enumerate(session.misleading) if not 1 <= len(statement.words) <= 4] == []


@of_each_session
def test_every_fact_that_is_named_is_there(session_id: str):
    session = SESSIONS[session_id]
    ids = [fact.id for fact in session.facts]
    named = [fact_id for question in session.questions for fact_id in question.facts]
    named += [prompt.fact for prompt in session.later_prompts if prompt.fact]

    assert len(set(ids)) == len(ids)
    assert set(named) - set(ids) == set()
    assert [place for place, question in enumerate(session.questions) if not question.facts] == []


@of_each_session
def test_each_event_is_one_thing_and_becomes_a_hook(session_id: str):
    session = SESSIONS[session_id]
    kinds = ("prompt", "reply", "ran", "edited", "wrote", "read", "searched", "found", "task", "tool")
    hooks = len(list(session_hooks(session)))

    counts = [sum(bool(getattr(event, kind)) for kind in kinds) for event in session.events]

    assert counts == [1] * len(counts)
    assert hooks == len(counts) + 2


@of_each_session
def test_each_fact_is_said_in_one_event_or_two_neighbouring_ones(session_id: str):
    session = SESSIONS[session_id]
    texts = [event.text for event in session.events]
    places = [simplify(f"{text}\n{following}") for text, following in zip(texts, [*texts[1:], ""], strict=True)]

    unsaid = [fact.id for fact in session.facts if not any(has_words(place, fact.words) for place in places)]

    assert unsaid == []


# ------------------------------------------------------------------------------------------------- the hooks' shapes


def sent(agent: Agent, *events: SessionEvent) -> list[dict[str, object]]:
    session = LabelledSession(
        project="orders", cwd="/srv/orders", agent=agent, language="en", events=list(events), facts=[], name="01"
    )
    return [hook.payload for hook in session_hooks(session)]


def test_claude_code_sends_a_turn_with_a_sub_agent():
    start, prompt, task, reply, end = sent(
        "claude-code",
        SessionEvent(prompt="Find it."),
        SessionEvent(task="Explore", ask="Where?", answer="\nHere.\n"),
        SessionEvent(reply="Found."),
    )

    names = [hook["hook_event_name"] for hook in (start, prompt, task, reply, end)]
    assert names == ["SessionStart", "UserPromptSubmit", "PostToolUse", "Stop", "SessionEnd"]
    assert (task["tool_name"], task["tool_input"]) == (
        "Agent",
        {"description": "Explore", "prompt": "Where?", "subagent_type": "Explore"},
    )
    assert task["tool_response"] == {"status": "completed", "content": [{"type": "text", "text": "Here."}], "totalToolUseCount": 5}
    assert reply["last_assistant_message"] == "Found."
    assert prompt["prompt_id"] == task["prompt_id"] == reply["prompt_id"]


def test_gemini_has_names_of_its_own():
    _, prompt, command, failed, reply, _ = sent(
        "gemini",
        SessionEvent(prompt="Test it."),
        SessionEvent(ran="pytest", output="1 passed\n"),
        SessionEvent(ran="pytest", failed="1 failed\n"),
        SessionEvent(reply="Done."),
    )

    assert [hook["hook_event_name"] for hook in (prompt, command, reply)] == ["BeforeAgent", "AfterTool", "AfterAgent"]
    assert (command["tool_name"], command["tool_input"]) == ("run_shell_command", {"command": "pytest"})
    assert "Output: 1 passed" in str(command["tool_response"])
    assert "Exit Code: 1" in str(failed["tool_response"])
    assert (reply["prompt"], reply["prompt_response"]) == ("Test it.", "Done.")


def test_codex_sends_what_a_failed_command_printed():
    _, failed, _ = sent("codex", SessionEvent(ran="pytest", failed="1 failed\n"))

    assert (failed["hook_event_name"], failed["tool_name"], failed["tool_response"]) == ("PostToolUse", "Bash", "1 failed\n")


# ------------------------------------------------------------------------------------------------------ recognition


def item(title: str, type_: str = "discovery", **fields: object) -> RememberedItem:
    return RememberedItem(id="1", number=1, title=title, type=type_, **fields)  # pyright: ignore[reportArgumentType]


FACT = Fact(id="f1", kind="cause", text="", words=[["order.status"], ["never checks", "does not check"]], anchors=["webhook.py"])
STILL_FAILS = FalseStatement(text="", words=[["test_refund"], ["fail"]], wrong_when="open")


@pytest.mark.parametrize(
    ("remembered", "is_kept"),
    [
        (item("It NEVER\n checks Order.Status", files_read=["src/webhook.py"]), True),
        (item("It never checks", facts=["webhook.py: order.status"]), True),
        (item("It never checks order.status"), False),
        (item("It checks order.status", files_read=["src/webhook.py"]), False),
    ],
    ids=["another case", "in a fact", "no anchor", "no word"],
)
def test_a_fact_is_kept_with_a_word_of_each_group_and_an_anchor(remembered: RememberedItem, is_kept: bool):
    assert keeps(remembered, FACT) is is_kept


@try_rows(
    ("remembered", "is_wrong"),
    [
        (item("test_refund fails"), True),
        (item("test_refund failed, and passes now"), False),
        (item("Fixed: test_refund failed", "bugfix"), False),
        (item("test_refund fails", "bugfix", state="open"), True),
        (item("test_refund fails", state="done"), False),
        (item("", observation_kind="summary", summary={"nextSteps": "Still open: test_refund fails"}), True),
        (item("", observation_kind="summary", summary={"completed": "test_refund, which failed"}), False),
    ],
    ids=["without a state", "it passes", "another type", "open", "done", "a summary's next steps", "a summary's work"],
)
def test_what_is_over_is_wrong_as_open(remembered: RememberedItem, is_wrong: bool):
    assert bool(find_wrong(remembered, STILL_FAILS)) is is_wrong


@pytest.mark.parametrize(
    ("remembered", "is_wrong"),
    [(item("Rows deleted", "change"), True), (item("Rows deleted", "change", state="open"), False), (item("Rows deleted"), False)],
    ids=["a change", "open", "another type"],
)
def test_what_is_open_is_wrong_as_done(remembered: RememberedItem, is_wrong: bool):
    statement = FalseStatement(text="", words=[["rows"], ["deleted"]], wrong_when="done")

    assert bool(find_wrong(remembered, statement)) is is_wrong


def test_only_the_beginning_of_a_line_stands_for_an_observation():
    assert read_numbers("<cmserver-context>\n#12 10:00 bugfix Close #7 ~40\n  - see #8\n- #13 open\n") == [12, 13]


def test_figures_add_up():
    first = UsefulnessFigures(wrong=1, facts_kept=Share(count=1, of=2), facts_kept_by_kind={"fix": Share(count=1, of=2)})
    second = UsefulnessFigures(wrong=2, facts_kept=Share(count=2, of=2), facts_kept_by_kind={"next": Share(count=2, of=2)})

    both = first + second

    assert (both.wrong, both.facts_kept.ratio, sorted(both.facts_kept_by_kind)) == (3, 0.75, ["fix", "next"])


# ----------------------------------------------------------------------------------------------------- the figures


def memory(half: Half, items: list[RememberedItem], context: str, numbers: list[int]) -> ProjectMemory:
    """Of one session with one fact, two events and a question."""
    events = [SessionEvent(ran="make", output="done"), SessionEvent(ran="ls", output="a")]
    session = LabelledSession(
        project="orders", cwd="/srv", agent="codex", language="en", events=events, facts=[FACT], misleading=[STILL_FAILS], name="01"
    )
    remembered = SessionMemory(
        session=session,
        items=items,
        next_index="#1 10:00 discovery It never checks order.status ~9\n",
        hits=[QuestionHits(question=Question(ask="Why?", facts=["f1"]), numbers=numbers)],
        contexts=[
            PromptContext(prompt=LaterPrompt(prompt="Change it.", fact="f1"), index="", text=context),
            PromptContext(prompt=LaterPrompt(prompt="Hello."), index="", text=context),
        ],
    )
    return ProjectMemory(
        project=CorpusProject(half=half, name="orders", sessions=[session]), items=items, turns=[], sessions=[remembered]
    )


KEEPER = item("webhook.py never checks order.status", state="open")
FALSE = RememberedItem(id="2", number=2, title="test_refund fails", type="discovery")


def test_the_figures_of_what_was_remembered():
    figures = measure([memory("dev", [KEEPER, FALSE], "<x>\n#1 discovery\n", [2, 1])])

    assert (figures.facts_kept, figures.observations_with_a_fact) == (Share(count=1, of=1), Share(count=1, of=2))
    assert figures.facts_kept_by_kind == {"cause": Share(count=1, of=1)}
    assert figures.observations_per_tool_use == Share(count=2, of=2)
    assert figures.plain_observations_per_tool_use == Share(count=1, of=2)
    assert (figures.wrong, figures.index_lines, figures.questions_answered) == (1, Share(count=1, of=1), Share(count=1, of=1))
    assert (figures.prompts_with_their_fact, figures.unrelated_prompts_left_alone) == (Share(count=1, of=1), Share(count=0, of=1))


def test_a_summary_keeps_no_fact_but_answers_a_question():
    summary = msgspec.structs.replace(KEEPER, observation_kind="summary")

    figures = measure([memory("dev", [summary], "", [1])])

    assert (figures.facts_kept.count, figures.observations_with_a_fact.of, figures.questions_answered.count) == (0, 0, 1)


def test_details_say_what_went_wrong():
    (details,) = describe(memory("dev", [FALSE], "#2 discovery\n", [2]))

    assert details.observations == ["  #2 discovery: test_refund fails"]
    assert [line.split(":")[0] for line in details.lost_facts] == ["cause"]
    assert ["#2" in line for line in details.wrong] == [True]
    assert details.failed_questions == ["Why? (f1; found #2)"]
    assert details.failed_prompts == ["Change it. (f1; shown #2)", "Hello. (unrelated; shown #2)"]


def test_nothing_but_figures_is_said_of_what_is_held_back():
    memories = [memory("dev", [FALSE], "", []), memory("held_back", [KEEPER], "", [])]

    report = make_report("this tree", HALVES, memories)

    assert {half: figures.sessions for half, figures in report.figures.items()} == {"dev": 1, "held_back": 1, "all": 2}
    assert [details.observations for details in report.details] == [["  #2 discovery: test_refund fails"]]
    assert "facts kept" in render([report, report])


@pytest.mark.slow
def test_what_matters_is_remembered_and_found():
    figures = measure_half("dev")

    assert figures.facts_kept.ratio >= MIN_FACTS_KEPT
    assert figures.observations_with_a_fact.ratio >= MIN_OBSERVATIONS_WITH_A_FACT
    assert figures.questions_answered.ratio >= MIN_QUESTIONS_ANSWERED
    assert figures.prompts_with_their_fact.ratio >= MIN_PROMPTS_WITH_THEIR_FACT
    assert figures.unrelated_prompts_left_alone.ratio >= MIN_UNRELATED_LEFT_ALONE
    assert figures.wrong <= MAX_WRONG
    assert figures.questions_answered.of > 0


def test_the_labels_of_strangers_sessions_are_of_what_was_said():
    sessions = [session for half in STRANGERS for project in load_projects(half) for session in project.sessions]
    missing = {
        f"{session.id} {fact.id}"
        for project in (project for half in STRANGERS for project in load_projects(half))
        for session in project.sessions
        for fact in session.facts
        for group in fact.words
        if not any(word.casefold() in event.text.casefold() for word in group for said in project.sessions for event in said.events)
    }

    assert [len(list(session_hooks(session))) > len(session.events) for session in sessions] == [True] * 12
    assert missing == set()
    assert {fact for session in sessions for question in session.questions for fact in question.facts} <= {
        fact.id for session in sessions for fact in session.facts
    }
