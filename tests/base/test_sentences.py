"""Sentences: what ends one, and what does not."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cmserver.base.sentences import split_line, split_sentences
from tests.table import try_rows


@try_rows(
    ("text", "sentences"),
    [
        ("The pool is full. Workers wait.", ["The pool is full.", "Workers wait."]),
        ("Pinned to 1.2.3 in a.b.c since then.", ["Pinned to 1.2.3 in a.b.c since then."]),
        ("Some hosts, e.g. Alpha, wait.", ["Some hosts, e.g. Alpha, wait."]),
        ("Das gilt z. B. montags. Über Nacht nicht.", ["Das gilt z. B. montags.", "Über Nacht nicht."]),
        ("It calls `a. Bee`. Then it ends.", ["It calls `a. Bee`.", "Then it ends."]),
        ('He wrote "Stop." Nobody did.', ['He wrote "Stop."', "Nobody did."]),
        ("¿Por qué? ¡Ya! Así.", ["¿Por qué?", "¡Ya!", "Así."]),
        ("Сервер упал. Его подняли.", ["Сервер упал.", "Его подняли."]),  # noqa: RUF001 - Russian
        ("東京です。大阪です。", ["東京です。", "大阪です。"]),
        ("It waits... for nothing. 16 MB are free.", ["It waits... for nothing.", "16 MB are free."]),
    ],
)
def test_a_line_is_split_at_the_ends_of_its_sentences(text: str, sentences: list[str]):
    assert split_line(text) == sentences


def test_items_of_lists_and_blocks_of_code_stand_for_themselves():
    text = "Two steps:\n- build it. Then wait.\n2. run it\n```sh\nmake. Run\n\nmake\n```\nDone.\n```\nnever closed"

    assert split_sentences(text) == [
        "Two steps:",
        "- build it.",
        "Then wait.",
        "2. run it",
        "```sh\nmake. Run\n\nmake\n```",
        "Done.",
        "```\nnever closed",
    ]


@given(st.text(alphabet=st.sampled_from("aB .!`\n-1\"'。é"), max_size=80))
def test_nothing_but_space_is_lost(text: str):
    assert "".join("".join(split_sentences(text)).split()) == "".join(text.split())
