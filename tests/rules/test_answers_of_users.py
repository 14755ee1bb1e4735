"""What a user answers to an agent's question or plan is a decision that quotes both."""

from __future__ import annotations

from cmserver.providers.model import DraftObservation
from tests.rules.offline import edit, note, observe, tool_use

QUESTION = "Which key should refunds have?"
OPTIONS = [{"label": "Intent and sequence"}, {"label": "A queue with a dedupe table"}]
ASKED = {"questions": [{"question": QUESTION, "options": OPTIONS}]}
PLAN = "1. Add a unique constraint on (room, starts_at)\n2. Lock the calendar table"


async def decisions(tool: str, tool_input: object, response: object) -> list[DraftObservation]:
    reply = note(
        "e3", "assistant_message", {"last_assistant_message": "The float was the cause of the double refunds in `refund_key`."}
    )
    answer = await observe(tool_use("e1", tool, tool_input, response), edit("e2", "a.py"), reply)
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

    assert accepted.title == "Accepted plan: 1. Add a unique constraint on (room, starts_at)"
    assert changed.title is not None
    assert changed.title.startswith("Accepted plan: Approved with changes: no table lock, reception books")
    assert changed.narrative is not None
    assert "reception books all day" in changed.narrative
    assert "unique constraint" in changed.narrative


async def test_what_was_not_answered_decides_nothing():
    refused = tool_use("e1", "ExitPlanMode", {"plan": PLAN}, error="The user doesn't want to proceed with this tool use.")

    assert await decisions("AskUserQuestion", ASKED, {}) == []
    assert (await observe(refused)).observations == []
