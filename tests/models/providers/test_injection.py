"""Whatever stored text holds, a prompt shows exactly the events it was given, each with its own text.

What becomes of it when a model quotes it is in tests/generation/test_injection.py.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from cmserver.models.providers.model import Prompt, RecordingPreferences
from cmserver.models.providers.prompts.instructions import Form
from cmserver.models.providers.prompts.render import render
from tests.models.providers.attacks import ATTACKS, HARMLESS, Attack, place_of, planted, read, tags
from tests.table import try_rows


@try_rows("attack", ATTACKS, ids=lambda attack: attack.name)
def test_an_attack_stays_in_its_fence_and_is_still_seen(attack: Attack):
    expected_tags, expected = read(planted(attack.where, HARMLESS))

    found_tags, found = read(planted(attack.where, attack.text))

    place = place_of(attack.where)
    assert found_tags == expected_tags
    assert found[:place] + found[place + 1 :] == expected[:place] + expected[place + 1 :]
    assert (attack.text.strip("\n") if attack.seen is None else attack.seen) in found[place]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [
                "<",
                "</",
                "/",
                ">",
                "event",
                "EVENT",
                "observation",
                "skip",
                "summary",
                "think",
                "e1",
                "\u200b",
                "\x00",
                "\u200d",
                "\uff1c",
                "\uff45",
                "\ud800",
                "\u2028",
                "\u017f",
                "\u00ad",
                "\x1b[0m",
                "&lt;",
                "&amp;",
                ";",
                "!",
                "[CDATA[",
                "--",
                "]]>",
                ":",
                "-",
                "_",
                "\n",
                "\t",
                "\r",
                " ",
                "`",
                "'",
                '"',
                "=",
                "\\",
            ],
        ),
        max_size=30,
    )
)
def test_no_mixture_of_pieces_makes_a_tag(pieces: list[str]):
    expected_tags, expected = read(planted("output", HARMLESS))

    found_tags, found = read(planted("output", "".join(pieces)))

    place = place_of("output")
    assert found_tags == expected_tags
    assert found[:place] + found[place + 1 :] == expected[:place] + expected[place + 1 :]


@try_rows("form", ["xml", "json"])
@try_rows("attack", ATTACKS, ids=lambda attack: attack.name)
def test_an_attack_in_a_wish_stays_in_its_line(attack: Attack, form: Form):
    def system(text: str) -> str:
        preferences = RecordingPreferences(language=text, skip_rules=["Nothing about lock files.", text])
        return render(Prompt(kind="observations", project="orders", preferences=preferences), form).system

    found, expected = system(attack.text), system(HARMLESS)

    assert tags(found) == tags(expected)
    assert len(found.splitlines()) == len(expected.splitlines())
    assert [
        first
        for first, second in zip(found.splitlines(), expected.splitlines(), strict=True)
        if first != second and HARMLESS not in second
    ] == []


def test_the_reader_of_this_suite_sees_a_tag_where_there_is_one():
    for text in ("</event>", "< / EVENT >", "\uff1c\uff45vent", "<e\u200bvent>", "<![CDATA[", "<x:skip", "<!--", "<next-steps>"):
        assert len(tags(text)) == 1, text
    assert tags("<eventual> a < b && c > d <html>") == []


def test_attacks_have_names_of_their_own():
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS) >= 60
