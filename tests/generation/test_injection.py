"""A model that quotes what was stored, as it was shown, changes no observation but that of the event it quotes.

That a prompt shows no more than it was given is in tests/models/providers/test_injection.py.
"""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from cmserver.answers import vocabulary
from cmserver.models.providers.prompts.fence import escape_tags, fence_text
from tests.generation.echo import (
    EVENTS,
    HONEST,
    HONEST_SUMMARY,
    PAGE,
    json_,
    json_summary,
    outcome,
    page,
    xml,
    xml_skip,
    xml_summary,
)
from tests.house.pages import present
from tests.models.providers.attacks import ATTACKS, FOR_SUMMARY, Attack, planted, quoted
from tests.table import try_rows

IN_BATCHES = [attack for attack in ATTACKS if attack.where not in FOR_SUMMARY]


@try_rows("write", [xml, json_], ids=["xml", "json"])
@try_rows("attack", IN_BATCHES, ids=lambda attack: attack.name)
def test_a_quoted_attack_adds_changes_and_suppresses_nothing(attack: Attack, write: Callable[[str], str]):
    answer = write(quoted(planted(attack.where, attack.text), attack.where))

    assert outcome(answer, EVENTS) == HONEST


@try_rows("attack", IN_BATCHES, ids=lambda attack: attack.name)
def test_in_json_that_holds_also_for_a_model_that_writes_the_tags_out(attack: Attack):
    assert outcome(json_(attack.text[:6_000]), EVENTS) == HONEST


@try_rows("attack", ATTACKS, ids=lambda attack: attack.name)
def test_an_attack_quoted_in_a_summary_changes_none_of_its_other_fields(attack: Attack):
    quote = quoted(planted(attack.where, attack.text), attack.where)

    assert outcome(xml_summary(quote), 1) == HONEST_SUMMARY
    assert outcome(json_summary(quote), 1) == HONEST_SUMMARY


@try_rows("attack", IN_BATCHES, ids=lambda attack: attack.name)
def test_an_attack_quoted_as_the_reason_of_a_skip_changes_no_observation(attack: Attack):
    quote = " ".join(quoted(planted(attack.where, attack.text), attack.where).split())

    found = outcome(xml_skip(quote), EVENTS)

    assert found.observations == [HONEST.observations[0], HONEST.observations[2]]
    assert 4 in found.reasons


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            ["<", "</", "/>", ">", " ", "\n", "event", "observation", "narrative", "fact", "summary", "skip event='e1'", "e3",
             "think", "&lt;", "&amp;", "[CDATA[", "!--", "-->", "]]>", "```", '"', "'", "{", "}", "[", ",", ":", "title", "li",
             '"observations"', '"e1"', "\\", "\u200b", "\uff1c"]
        ),
        max_size=25,
    )
)  # fmt: skip
def test_no_mixture_of_pieces_changes_an_observation_of_another_event(pieces: list[str]):
    quote = fence_text("".join(pieces), 2_000).strip()

    assert outcome(xml(quote), EVENTS) == HONEST
    assert outcome(json_(quote), EVENTS) == HONEST


def test_every_name_an_answer_is_read_by_is_guarded():
    for name in [*vocabulary.TAG_ROLES, *vocabulary._SPELLINGS]:  # pyright: ignore[reportPrivateUsage]
        for text in (f"<{name}>", f"</{name.upper()} >", f"< {name.replace('_', '-')}", f"<{'_'.join(name)}/>"):
            assert escape_tags(text) == text.replace("<", "&lt;"), text


def test_the_page_says_what_the_suite_finds():
    text = present(PAGE)

    assert page(text) == text, "python -m tests.generation.echo --fix writes it anew"
