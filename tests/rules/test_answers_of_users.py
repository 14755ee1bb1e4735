"""What a user answers to an agent's question or plan is a decision that quotes both."""

from __future__ import annotations

from cmserver.models.providers.model import DraftObservation, PriorObservation
from cmserver.reading.model import EventReading
from tests.rules.offline import edit, note, observe, tool_use

QUESTION = "Which key should refunds have?"
OPTIONS = [{"label": "Intent and sequence"}, {"label": "A queue with a dedupe table"}]
ASKED = {"questions": [{"question": QUESTION, "options": OPTIONS}]}
PLAN = "1. Add a unique constraint on (room, starts_at)\n2. Lock the calendar table"


async def decisions(tool: str, tool_input: object, response: object) -> list[DraftObservation]:
    reply = note("assistant_message", {"last_assistant_message": "The float was the cause of the double refunds in `refund_key`."})
    answer = await observe(tool_use(tool, tool_input, response), edit("a.py"), reply)
    return [draft for draft in answer.observations if draft.type == "decision"]


async def test_an_answer_to_a_question_is_a_decision():
    shapes: list[object] = [
        {"questions": ASKED["questions"], "answers": {QUESTION: "Intent and sequence"}},
        {"answers": {QUESTION: ["Intent and sequence"]}},
        f'User has answered your questions: "{QUESTION}"="Intent and sequence". You can now continue.',
    ]

    for shape in shapes:
        (decision,) = await decisions("AskUserQuestion", ASKED, shape)

        assert decision.title == f"Intent and sequence ({QUESTION})"
        assert decision.narrative == f'Asked: "{QUESTION}" The user: "Intent and sequence"'
        assert decision.state is None
        assert "dedupe" not in str(decision)


async def test_an_accepted_plan_is_a_decision_with_what_the_user_changed():
    (accepted,) = await decisions("ExitPlanMode", {"plan": PLAN}, {"plan": PLAN, "isAgent": False})
    (changed,) = await decisions("ExitPlanMode", {"plan": PLAN}, "Approved with changes: no table lock, reception books all day.")

    assert accepted.title == "Accepted plan: 1. Add a unique constraint on (room, starts_at); 2. Lock the calendar table"
    assert changed.title is not None
    assert changed.title.startswith("Accepted plan: Approved with changes: no table lock, reception books")
    assert changed.narrative is not None
    assert "reception books all day" in changed.narrative
    assert "unique constraint" in changed.narrative


async def test_what_was_not_answered_decides_nothing():
    refused = tool_use("ExitPlanMode", {"plan": PLAN}, error="The user doesn't want to proceed with this tool use.")

    assert await decisions("AskUserQuestion", ASKED, {}) == []
    assert (await observe(refused)).observations == []


async def test_unfinished_items_of_the_agents_list_are_open_until_they_are_done():
    def todos(status: str) -> EventReading:
        items = [{"content": "Write the docs", "status": status}, {"content": "Add the cap", "status": "completed"}]
        return tool_use("TodoWrite", {"todos": items}, {})

    def stop() -> EventReading:
        return note("assistant_message", {"last_assistant_message": "Paused here, more tomorrow."})

    first = await observe(edit("a.py"), todos("pending"), stop())
    (item,) = [draft for draft in first.observations if draft.state == "open"]
    known = PriorObservation(number=7, type="discovery", title=item.title or "", state="open")
    second = await observe(edit("a.py"), todos("completed"), stop(), recorded=[known])

    assert item.title == "Write the docs"
    assert [number for draft in second.observations for number in draft.closes] == [7]


async def test_a_user_closes_an_open_end_by_its_number():
    end = PriorObservation(number=7, type="discovery", title="The importer is not tested yet", state="open")

    answer = await observe(note("user_prompt", {"text": "#7 is done, and #8 too. What is next"}), open_ends=[end])

    (report,) = answer.observations
    assert (report.title, report.closes) == ("#7 is done, and #8 too.", [7])


async def test_shared_words_close_nothing():
    end = PriorObservation(number=7, type="discovery", title="Nothing purges `webhook_events` yet", state="open")
    said = "Added purge_webhook_events: it purges the `webhook_events` after 30 days."

    answer = await observe(edit("worker.py"), note("assistant_message", {"last_assistant_message": said}), open_ends=[end])

    assert [draft.closes for draft in answer.observations] == [[]]
