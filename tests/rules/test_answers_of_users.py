"""What a user answers to an agent's question or plan is a decision that quotes both."""

from __future__ import annotations

from itertools import count

from cmserver.providers.model import DraftObservation, PriorObservation
from cmserver.reading.model import EventReading
from cmserver.reading.offers import read_answer, read_offer
from tests.rules.offline import edit, note, observe, record, tool_use

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

    assert accepted.title == "Accepted plan: 1. Add a unique constraint on (room, starts_at)"
    assert changed.title is not None
    assert changed.title.startswith("Accepted plan: Approved with changes: no table lock, reception books")
    assert changed.narrative is not None
    assert "reception books all day" in changed.narrative
    assert "unique constraint" in changed.narrative


async def test_what_was_not_answered_decides_nothing():
    refused = tool_use("ExitPlanMode", {"plan": PLAN}, error="The user doesn't want to proceed with this tool use.")

    assert await decisions("AskUserQuestion", ASKED, {}) == []
    assert (await observe(refused)).observations == []


OFFERED = """I see three ways:
1. Key on the payment intent id
2. Move refunds into an async queue with a dedupe table
3. Round the amount before hashing

Which one do you want?"""


def test_a_prompt_after_an_offer_decides():
    rows = [
        (
            OFFERED,
            "option 1, and no async: the pooler caps us at 60",
            "Key on the payment intent id; no async: the pooler caps us at 60",
        ),
        (OFFERED, "2", "Move refunds into an async queue with a dedupe table"),
        (OFFERED, "rounding, the others are too much", "Round the amount before hashing; rounding, the others are too much"),
        (
            "Should I also backfill the nine refunds?",
            "no, support does those",
            "No, support does those (Should I also backfill the nine refunds?)",
        ),
        ("Which port should it have?", "8443, nginx has 443", "8443, nginx has 443 (Which port should it have?)"),
        ("Proponuję `localdate()`. Mam to zrobić?", "tak, zrób to", "Tak, zrób to (Proponuję `localdate()`. Mam to zrobić?)"),
        ("1. 自動で締める\n2. 手動のまま\nどちらにしますか。", "1で、手動だと忘れる", "自動で締める; で、手動だと忘れる"),
        ("Should I also run the linter?", "ok thanks", None),
        ("Should I also run the linter?", "what does it check?", None),
        ("Should I also run the linter on the client?", "update the footer please", None),
        ("Fixed, the tests pass.", "now add the export", None),
    ]

    def decide(said: str, prompt: str) -> str | None:
        offer = read_offer(said)
        answer = read_answer(offer, prompt) if offer else None
        return answer.title if answer else None

    assert [(said, prompt, decide(said, prompt)) for said, prompt, _ in rows] == rows


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


async def test_work_closes_an_item_of_the_agents_list_in_a_later_session():
    names = ("Retry `send_invoice` after a timeout", "Cap the batch")
    items = [{"content": name, "status": "pending"} for name in names]
    stop = note("assistant_message", {"last_assistant_message": "Paused here, more tomorrow."})
    first = await observe(edit("a.py"), tool_use("TodoWrite", {"todos": items}, {}), stop)
    ends = record(first, [], count(1))
    said = "I added the retry to `send_invoice` in `invoices.py`, because the bank times out at night."

    reply = note("assistant_message", {"last_assistant_message": said})
    later = await observe(edit("invoices.py"), reply, open_ends=ends)

    closed = {number for draft in later.observations for number in draft.closes}
    assert [end.title for end in ends if end.number in closed] == [names[0]]
