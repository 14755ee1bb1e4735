from __future__ import annotations

from cmserver.sessions.turns.choose_sentences import MAX_SENTENCES, SENTENCE_CHARS, agent_sentences, user_sentences
from tests.table import try_rows


@try_rows(
    ("prompt", "before", "expected"),
    [
        ("We use pnpm here. Never npm!", None, ["We use pnpm here.", "Never npm!"]),
        ("why is it slow?", "It is fixed.", []),
        ("great, thanks!", "Done.", []),
        ("yes", "Shall I drop the old table?", ["yes (Shall I drop the old table?)"]),
        ("b", "Two ways:\n- a) a lock\n- b) a queue\n\nWhich one?", ["b (Which one? a queue)"]),
        (
            "Option 2. And keep the shim for billing until the first quarter of next year, they do still need it.",
            "1. a lock\n2. a queue\n\nWhich one?",
            [
                "Option 2. (Which one? a queue)",
                "And keep the shim for billing until the first quarter of next year, they do still need it.",
            ],
        ),
        ("Before we start:\nuse uv", None, ["use uv"]),
        (
            "看日志\uff1a\n```\nfatal: x\n```\n缓存时间改为三十分钟。以后都用这个值。",
            None,
            ["缓存时间改为三十分钟。", "以后都用这个值。"],
        ),
    ],
)
def test_the_user_s_sentences_are_his_own_without_questions_and_remarks(prompt: str, before: str | None, expected: list[str]):
    assert user_sentences(prompt, before) == expected


def test_of_a_long_reply_the_sentences_that_say_most_are_kept_in_their_order():
    reply = "\n".join(
        ["Let me explain:", *(f"This is some plain sentence number {n}." for n in range(20)), "`cache.py` holds it for 30 s."]
    )

    kept = agent_sentences(reply, 3)

    assert kept == [
        "This is some plain sentence number 0.",
        "This is some plain sentence number 10.",
        "`cache.py` holds it for 30 s.",
    ]


def test_neither_side_takes_more_than_its_room():
    text = "\n".join(f"{n} {'word ' * 500}." for n in range(50))

    user, agent = user_sentences(text, None), agent_sentences(text, MAX_SENTENCES)

    assert len(user) == MAX_SENTENCES // 2
    assert len(agent) == MAX_SENTENCES
    assert max(map(len, [*user, *agent])) <= SENTENCE_CHARS
