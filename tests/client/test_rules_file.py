"""The file of rules: what is written reads back, and what is damaged, hidden or not ours is refused by its line."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cmserver.base.errors import Invalid
from cmserver.client.rules_file import PATH, RuleEntry, find_mark, parse_file, render_entry, render_file, tidy
from tests.table import try_rows

HEAD = "# What this project laid down\n\n"


def rule(number: int, text: str) -> RuleEntry:
    return RuleEntry(section="rule", text=text, number=number)


def read(text: str) -> list[tuple[str, str, int | None]]:
    return [(entry.section, entry.text, entry.number) for entry in parse_file(text.encode())]


def test_the_file_is_a_paragraph_an_entry_by_number_with_who_said_it_and_a_mark():
    entries = [(rule(12, "Deploys are frozen on Fridays"), "ann"), (rule(3, "Use `task ship`"), "bob")]
    entries.append((RuleEntry(section="open", text="Which queue?", number=7), "ann"))

    text = render_file("p", entries)

    assert text == render_file("p", reversed(entries))
    assert [line for line in text.splitlines() if line and not line.startswith("<!--")] == [
        "# What this project laid down",
        "## Rules",
        f"Use `task ship` (#3, bob, {find_mark('rule', 'Use `task ship`')})",
        f"Deploys are frozen on Fridays (#12, ann, {find_mark('rule', 'Deploys are frozen on Fridays')})",
        "## Open",
        f"Which queue? (#7, ann, {find_mark('open', 'Which queue?')})",
    ]


@given(st.text(max_size=200), st.text(max_size=30))
@example("<!-- hide --> <br> <b>", "Bob)")
@example("\\<br>\\\n\\", "a, 12345678) (#9, x, 00000000")
@example("# Heading\n## Open\n- x\n\n\n1. y", "\x1b[31m")
@example("1. first", "x")
@example("=======", "<<<<<<< HEAD")
@example("a (#99, Bob, 12345678)", "x")
@example("[x]: http://example.com", "x")
@example("1.[x]: y", "x")
@example("_ _ _", "x")
@example("`<b>` ``<i>`` \\`<u>", "x")
@example("see &lt;b&gt; in C:\\new\\*.py", "x")
def test_whatever_is_written_reads_back_to_the_same_text(text: str, author: str):
    wanted = tidy(text)
    if not wanted:
        return
    entry = rule(5, wanted)

    paragraph = render_entry(entry, author)
    (back,) = parse_file(render_file("p", [(entry, author)]).encode())

    assert "\n" not in paragraph
    assert (back.text, back.number, back.mark) == (wanted, 5, entry.own_mark)


@try_rows(
    "body, entries",
    [
        ("## Rules\n\nNever on a Friday\n", [("rule", "Never on a Friday", None)]),
        ("## Rules\nNever on\n  a Friday\n\n## Open\n\nWhen?", [("rule", "Never on a Friday", None), ("open", "When?", None)]),
        ("## Open\n- One\n* Two\n", [("open", "One", None), ("open", "Two", None)]),
        ("## Rules\r\n\r\nA <br> B\r\n", [("rule", "A\n B", None)]),
        ("## Rules\nOne (#1, a, 12345678)\nTwo (#2, b, 12345678)\n", [("rule", "One", 1), ("rule", "Two", 2)]),
        ("## Rules\nSee the ticket (#34)\n", [("rule", "See the ticket (#34)", None)]),
        ("## Rules\nZero\u200b width\x1b[2J\n", [("rule", "Zero width", None)]),
        ("## Rules\n\n## Open\n", []),
        ("## Rules\nNever `<!-- x -->`\n", [("rule", "Never `<!-- x -->`", None)]),
        (f"## Rules\nA{' ' * 20_000}B\n", [("rule", f"A{' ' * 20_000}B", None)]),
    ],
)
def test_what_people_write_is_read(body: str, entries: list[tuple[str, str, int | None]]):
    assert read(HEAD + body) == entries


REFUSED: dict[str, tuple[str, str]] = {
    "conflict of git": ("## Rules\n<<<<<<< HEAD\nA\n=======\nB\n>>>>>>> other\n", "lines 4, 6, 8"),
    "a comment that hides": ("## Rules\nNever <!-- delete all --> on a Friday\n", "Line 4"),
    "a line that is a comment": ("## Rules\n<!-- Delete all -->\n", "Line 4"),
    "a comment beside code": ("## Rules\nNever `x` <!-- hide --> `y`\n", "Line 4"),
    "a comment after code of two backticks": ("## Rules\nNever ``a ` b`` <!-- hide --> ` c\n", "Line 4"),
    "a comment after an escaped backtick": ("## Rules\nNever \\` <!-- hide --> `\n", "Line 4"),
    "a tag": ("## Rules\n<details>Delete all</details>\n", "Line 4"),
    "a fence": ("## Rules\nNever\n```\nhide\n```\n", "Line 4"),
    "a fence of tildes": ("## Rules\n- ~~~ hide\n", "Line 4"),
    "the target of a link": ("## Rules\n[//]: # (Delete all)\n", "Line 4"),
    "the target of a link over two lines": ("## Rules\n[a\nb]: # (Delete all)\n", "Line 4"),
    "the target of a link in a quotation": ("## Rules\nNever\n> 1. [a]: # (Delete all)\n", "Line 4"),
    "a rule between paragraphs": ("## Rules\n* * *\n", "Line 4"),
    "the same text twice": ("## Rules\nA\n\nB\n\n## Open\n\nA\n", "Lines 4 and 10"),
    "another heading": ("## Rules\nA\n### Notes\nB\n", "Line 5"),
    "a text before": ("Read this first.\n## Rules\n", "Line 3"),
    "no section": ("", "neither"),
    "a damaged reference": ("## Rules\nNever on a Friday (#12, Ann)\n", "Line 4"),
    "no text": ("## Rules\n(#12, Ann, 12345678)\n", "Line 4"),
    "the same number twice": ("## Rules\nA (#1, a, 12345678)\n\nB (#1, b, 12345678)\n", "Lines 4 and 6"),
    "too large": ("## Rules\n" + "x" * 256_000, "256 kB"),
}


@try_rows("body, words", REFUSED.values(), ids=REFUSED)
def test_what_is_damaged_or_hides_is_refused_by_its_line(body: str, words: str):
    with pytest.raises(Invalid) as refused:
        read(HEAD + body)

    assert words in str(refused.value)
    assert PATH in str(refused.value)
