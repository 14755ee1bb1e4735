"""Answers of a megabyte that were made to be slow to read."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from types import FrameType

import pytest

from cmserver.models.providers.model import ProviderError
from cmserver.observations.model import ITEM_MOST, ITEMS_MOST, TEXT_MOST, TITLE_MOST
from tests.answers.read import read_answer
from tests.table import try_rows

MEGABYTE = 1_000_000
EVENTS = 20

REPEATED = {
    "brackets": "<",
    "openings without an end": "<observation",
    "openings": "<observation>",
    "open texts": "<observation><narrative>",
    "open titles": "<title>",
    "open items": "<facts><fact>a",
    "whole observations": "<observation><title>a</title>",
    "closings": "</observation>",
    "half values": '<observation a="',
    "two kinds of quotes": "<skip a='\"<file b='\"",
    "thoughts": "<think>",
    "skip marks": "<skip>",
    "skip marks of ranges": '<skip event="e1-e20"/>',
    "comments": "<!--",
    "sections": "<observation><![CDATA[ ]]",
    "entities": "&amp;",
    "ampersands": "&",
    "spaces": " ",
    "a bracket and spaces": "<          ",
    "names": "<a-",
    "quotes": '"',
    "backslashes": "\\",
    "braces": "{",
    "objects in objects": '{"a":',
    "observations in observations": '{"observations":[',
    "arrays": "[",
    "arrays and objects": "[{",
    "open strings": '{"title":"',
    "tags in strings": '{"title":"<observation>"}',
    "digits": "9",
    "NUL": "\0",
    "surrogates": "\ud800",
    "quoted tags": "`<title>`",
    "bullets": "- a\n",
    "ranges": "e1-e20 ",
    "fences": "```\n",
    "escapes": "\\u00",
    "quotes and commas": '", ',
    "envelopes": "<a><b></b></a>",
}
AROUND: dict[str, tuple[str, str]] = {
    "alone": ("", ""),
    "in a narrative": ("<observation><narrative>", "</narrative></observation>"),
    "in facts": ("<observation><facts>", "</facts></observation>"),
    "in an observation": ("<observation>", "</observation>"),
    "in an attribute": ('<observation events="', '"><title>x</title></observation>'),
    "in a JSON string": ('{"observations": [{"title": "', '"}]}'),
    "in a JSON list": ('{"observations": [{"facts": [', "]}]}"),
}
NESTED: dict[str, Callable[[int], str]] = {
    "observations": lambda size: "<observation>" * (size // 27) + "</observation>" * (size // 27),
    "lists in texts": lambda size: "<narrative><facts><fact>" * (size // 51) + "</fact></facts></narrative>" * (size // 51),
    "objects": lambda size: '{"observations":' * (size // 17) + "}" * (size // 17),
    "arrays": lambda size: "[{" + "[" * (size // 2) + "]" * (size // 2),
}


def repeat(name: str, context: str, size: int) -> str:
    before, behind = AROUND[context]
    piece = REPEATED[name]
    return before + piece * (size // len(piece)) + behind


HOSTILE: dict[str, Callable[[int], str]] = {
    **{f"{name} {context}": partial(repeat, name, context) for name in REPEATED for context in AROUND},
    **{f"{name} in each other": make for name, make in NESTED.items()},
}
"""By name: an answer of about so many characters."""


def check_bounds(answer: str) -> None:
    try:
        parsed = read_answer(answer, EVENTS)
    except ProviderError:
        return
    for draft in parsed.observations:
        assert len(draft.title or "") <= TITLE_MOST
        assert max(len(draft.narrative or ""), len(draft.subtitle or "")) <= TEXT_MOST
        assert max(map(len, (draft.facts, draft.concepts, draft.files_read, draft.files_modified))) <= ITEMS_MOST
        assert max(map(len, draft.facts), default=0) <= ITEM_MOST


@try_rows("name", list(HOSTILE))
def test_a_hostile_answer_stays_within_bounds_and_work_grows_no_faster_than_it(name: str):
    small, large = (steps(HOSTILE[name](size)) for size in (2_000, 8_000))

    assert large <= 5 * small + 200


def steps(answer: str) -> int:
    """How many functions are called, ours and Python's."""
    counted = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal counted
        counted += event in {"call", "c_call"}

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        check_bounds(answer)
    finally:
        sys.setprofile(before)
    return counted


def test_a_flood_of_observations_is_cut_and_the_rest_counted():
    parsed = read_answer("".join(f"<observation><title>{number}</title></observation>" for number in range(1_200)), EVENTS)

    assert [draft.title for draft in parsed.observations] == [str(number) for number in range(1_000)]
    assert parsed.dropped == 200


def test_what_comes_behind_more_tags_than_any_answer_has_is_not_read():
    answer = f"<observation><title>Kept</title><facts>{'<fact>x</fact>' * 100}</facts></observation>"

    parsed = read_answer(answer * 200, EVENTS)

    assert 140 < len(parsed.observations) < 160
    assert {draft.title for draft in parsed.observations} == {"Kept"}


HONEST = """\
<observation><type>bugfix</type><title>The limit of an order is checked</title>
<narrative>The limit was read from the file and compared with the order. The test for it passes.</narrative>
<facts><fact>limit = 5</fact></facts><files_read><file>src/orders.py</file></files_read></observation>
"""


@pytest.mark.speed
@try_rows("name", list(HOSTILE))
def test_a_hostile_megabyte_takes_no_more_than_fifteen_times_as_long_as_an_honest_one(name: str):
    """Counting calls does not see what a regular expression does inside, so this compares the CPU time of both, taken one after the
    other. Noise only makes a try slower, so one good try of several is enough; quadratic time would be a thousand times as long."""
    hostile, honest = HOSTILE[name](MEGABYTE), HONEST * (MEGABYTE // 8 // len(HONEST))

    assert any(cpu_seconds(hostile) <= 15 * 8 * cpu_seconds(honest) for _ in range(10))


def cpu_seconds(answer: str) -> float:
    began = time.thread_time()
    check_bounds(answer)
    return time.thread_time() - began
