"""Any observations, written down in any of the ways a model may, then damaged: what is still readable comes back, word for word."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Sequence

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from cmserver.models.providers.model import SUMMARY_FIELDS, DraftObservation, DraftSummary, FailureKind, ProviderError
from cmserver.observations.model import ITEM_MOST, ITEMS_MOST, TEXT_MOST, TITLE_MOST, TYPES
from tests.answers.read import ReadAnswer, read_answer

EVENTS = 6
LISTS = {"facts": "fact", "concepts": "concept", "files_read": "file", "files_modified": "file"}
TEXTS = ("title", "subtitle", "narrative")
SPELLINGS: list[Callable[[str], str]] = [
    str,
    str,
    str.upper,
    str.title,
    lambda name: name.replace("_", "-"),
    lambda name: name.replace("_", ""),
]
CLOSING = re.compile(r"</[\w-]+>")

thorough = settings(deadline=None, max_examples=60)

words = st.sampled_from(
    [
        "login", "3", "tries", "List<T>", "Map<String, List<T>>", "a < b", "c > d", "&", "A&B", "&copy", "<b>bold</b>",
        "<br/>", "x && y", '"quoted"', "it's", "{braces}", "[1]", "Grüße", "ログイン", "🚀", "`code`", "50%", "e1", "--",
        "path/to.py:12", "</p>", "<!", "]]",
    ]
)  # fmt: skip
# An answer that ends with `<!` looks like one that was cut within a tag.
text = st.lists(words, min_size=1, max_size=8).filter(lambda parts: parts[-1] != "<!").map(lambda parts: "It " + " ".join(parts))
slug = st.from_regex(r"[a-z]{3,8}-[a-z]{3,8}", fullmatch=True)
path = st.from_regex(r"[a-z]{1,6}/[a-z]{1,6}\.(?:py|ts|md)", fullmatch=True)
events = st.lists(st.integers(1, EVENTS), min_size=1, max_size=3, unique=True).map(
    lambda numbers: [f"e{number}" for number in sorted(numbers)]
)


@st.composite
def observations(draw: st.DrawFn) -> DraftObservation:
    return DraftObservation(
        type=draw(st.sampled_from(sorted(TYPES))),
        title=draw(st.none() | text),
        subtitle=draw(st.none() | text),
        narrative=draw(text),
        facts=draw(st.lists(text, max_size=3, unique=True)),
        concepts=draw(st.lists(slug, max_size=3, unique=True)),
        files_read=draw(st.lists(path, max_size=3, unique=True)),
        files_modified=draw(st.lists(path, max_size=3, unique=True)),
        events=draw(events),
    )


summaries = st.builds(DraftSummary, **(dict.fromkeys(SUMMARY_FIELDS, st.none() | text) | {"request": text}))


class Batch(msgspec.Struct):
    """What an answer holds. A skip mark is an event and a reason."""

    observations: list[DraftObservation]
    summary: DraftSummary | None
    skipped: dict[str, str]


batches = st.builds(
    Batch,
    observations=st.lists(observations(), min_size=1, max_size=4),
    summary=st.none() | summaries,
    skipped=st.dictionaries(st.sampled_from([f"e{place}" for place in range(1, 7)]), slug, max_size=3),
)


class TaggedAnswer(msgspec.Struct):
    """An answer, and where each field of it ends: (block, field, value so far) by the place behind its closing tag."""

    text: str
    fields: list[tuple[int, int, str, str]]


def write_as_tags(batch: Batch, style: random.Random) -> TaggedAnswer:
    """In tags. The style decides on order, case, spacing, and how texts are escaped."""
    blocks: list[DraftObservation | DraftSummary | tuple[str, str]] = [*batch.observations, *batch.skipped.items()]
    if batch.summary:
        blocks.append(batch.summary)
    order = list(range(len(blocks)))
    style.shuffle(order)
    pieces: list[str] = []
    fields: list[tuple[int, int, str, str]] = []
    gap = style.choice(["", "\n", "\n  "])
    spelled = style.choice(SPELLINGS)

    def add(piece: str) -> None:
        pieces.append(piece)

    def field(block: int, name: str, tag: str, value: str) -> None:
        add(f"<{spelled(tag)}>{escape(value, style)}</{spelled(tag)}>")
        fields.append((sum(map(len, pieces)), block, name, value))
        add(gap)

    for place in order:
        block = blocks[place]
        if isinstance(block, tuple):
            add(f'<skip event="{block[0]}" reason="{block[1]}"/>')
            fields.append((sum(map(len, pieces)), place, "skip", block[1]))
        elif isinstance(block, DraftSummary):
            add(f"<{spelled('summary')}>{gap}")
            for name in SUMMARY_FIELDS:
                if value := getattr(block, name):
                    field(place, name, name, value)
            add(f"</{spelled('summary')}>")
        else:
            add(f'<{spelled("observation")} events="{style.choice([" ", ",", ", "]).join(block.events)}">{gap}')
            field(place, "type", "type", block.type)
            for name in TEXTS:
                if value := getattr(block, name):
                    field(place, name, name, value)
            for name, item in LISTS.items():
                values: list[str] = getattr(block, name)
                if values:
                    add(f"<{spelled(name)}>{gap}")
                    for value in values:
                        field(place, name, item, value)
                    add(f"</{spelled(name)}>{gap}")
            add(f"</{spelled('observation')}>")
        add(style.choice(["", "\n", "\n\n"]))
    return TaggedAnswer("".join(pieces), fields)


def escape(value: str, style: random.Random) -> str:
    kind = style.choice(["raw", "raw", "entities", "cdata"])
    if kind == "entities":
        return value.replace("&", "&amp;").replace("<", "&lt;").replace(">", style.choice([">", "&gt;"]))
    return f"<![CDATA[{value}]]>" if kind == "cdata" and "]]" not in value else value


def wrap(text: str, style: random.Random) -> str:
    for _ in range(style.randint(0, 3)):
        before, behind = style.choice(
            [
                ("<answer>", "</answer>"),
                ("<observations>\n", "\n</observations>"),
                ("```xml\n", "\n```"),
                ("Here is what I saw (a < b & c):\n", "\nThat is all."),
                ('<?xml version="1.0"?>\n<memory>', "</memory>"),
                ("<think>What of <observation> and <skip/>?</think>", ""),
                ("<!-- <observation><title>no</title></observation> -->", "<!-- end -->"),
            ]
        )
        text = before + text + behind
    return text


def expected(draft: DraftObservation) -> DraftObservation:
    concepts = [concept for concept in draft.concepts if concept.replace("-", "") != draft.type.replace("_", "")]
    line = draft.title[: TITLE_MOST - 1] + "…" if draft.title and len(draft.title) > TITLE_MOST else draft.title
    return msgspec.structs.replace(draft, title=line, concepts=concepts)


def assert_all_of_it(parsed: ReadAnswer, batch: Batch, *, ordered: bool = False) -> None:
    got, wanted = parsed.observations, [expected(draft) for draft in batch.observations]
    assert (got == wanted) if ordered else (sorted(got, key=msgspec.json.encode) == sorted(wanted, key=msgspec.json.encode))
    assert parsed.summary == batch.summary
    named = {event for draft in batch.observations for event in draft.events}
    assert parsed.reasons == {event: reason for event, reason in batch.skipped.items() if event not in named}
    assert parsed.dropped == 0


@given(batches, st.randoms(use_true_random=False))
@thorough
def test_what_was_written_down_in_any_style_and_wrapping_comes_back(batch: Batch, style: random.Random):
    answer = wrap(write_as_tags(batch, style).text, style)

    assert_all_of_it(read_answer(answer, EVENTS), batch)


@given(batches, st.randoms(use_true_random=False), st.floats(0, 1))
@thorough
def test_what_lost_its_closing_tags_comes_back(batch: Batch, style: random.Random, share: float):
    whole = write_as_tags(batch, style).text.rstrip()

    damaged = CLOSING.sub(lambda tag: tag[0] if tag[0][2:] in {"b>", "p>"} or style.random() > share else "", whole)

    assert_all_of_it(read_answer(damaged, EVENTS), batch)


@given(batches, st.randoms(use_true_random=False), st.floats(0, 1))
@thorough
def test_what_was_complete_before_the_answer_was_cut_off_comes_back(batch: Batch, style: random.Random, share: float):
    whole = write_as_tags(batch, style)
    end = int(len(whole.text) * share)
    complete: dict[int, dict[str, list[str]]] = {}
    for place, block, name, value in whole.fields:
        if place <= end and name != "type":
            complete.setdefault(block, {}).setdefault(name, []).append(value)

    try:
        parsed = read_answer(whole.text[:end], EVENTS)
    except ProviderError:
        parsed = ReadAnswer()

    for block, fields in complete.items():
        if block < len(batch.observations):
            wanted = expected(batch.observations[block])
            assert any(
                all(getattr(wanted, name)[: len(values)] == getattr(got, name)[: len(values)] if name in LISTS else
                    getattr(got, name) == getattr(wanted, name) for name, values in fields.items())
                for got in parsed.observations
            ), (fields, parsed.observations)  # fmt: skip
        elif "skip" not in fields:
            assert parsed.summary is not None
            assert {name: getattr(parsed.summary, name) for name in fields} == {name: values[0] for name, values in fields.items()}
    assert len(parsed.observations) <= len(batch.observations)


@given(batches, st.randoms(use_true_random=False), st.booleans())
@thorough
def test_what_was_written_down_as_json_comes_back(batch: Batch, style: random.Random, compact: bool):
    text = write_as_json(batch, style, compact=compact)

    answer = style.choice(["{}", "```json\n{}\n```", "Here you are (with {{braces}}):\n{}\nDone.", "<think>{{</think>{}"]).format(
        text
    )

    assert_all_of_it(read_answer(answer, EVENTS), batch, ordered=True)


@given(batches, st.randoms(use_true_random=False), st.floats(0, 1))
@thorough
def test_what_was_complete_before_json_was_cut_off_comes_back(batch: Batch, style: random.Random, share: float):
    whole = write_as_json(batch, style, compact=True)
    end = int(len(whole) * share)
    at, complete = len('{"observations":['), list[DraftObservation]()
    for draft in batch.observations:
        at += len(write_object(draft)) + 1
        if at - 1 <= end:
            complete.append(draft)

    try:
        parsed = read_answer(whole[:end], EVENTS)
    except ProviderError:
        parsed = ReadAnswer()

    assert parsed.observations[: len(complete)] == [expected(draft) for draft in complete]


def write_object(draft: DraftObservation) -> str:
    return json.dumps(
        {"events": draft.events, **{name: getattr(draft, name) for name in ("type", *TEXTS, *LISTS)}}, separators=(",", ":")
    )


def write_as_json(batch: Batch, style: random.Random, *, compact: bool) -> str:
    document: dict[str, object] = {"observations": [json.loads(write_object(draft)) for draft in batch.observations]}
    document["skipped"] = [{"event": event, "reason": reason} for event, reason in batch.skipped.items()]
    if batch.summary:
        document["summary"] = {name: getattr(batch.summary, name) or "" for name in SUMMARY_FIELDS}
    if compact:
        return json.dumps(document, separators=(",", ":"))
    return json.dumps(document, indent=style.choice([1, 2]), ensure_ascii=False)


pieces = st.sampled_from(
    [
        "<", ">", "</", "/>", "<observation>", "</observation>", '<observation events="e1">', "<summary>", "</summary>",
        "<title>", "</title>", "<narrative>", "</narrative>", "<facts>", "</facts>", "<fact>", "</fact>",
        "<file path='a'/>", "<type>", "</type>", "<skip", "<skip/>", "</skip>", "<think>", "</think>", "<answer>",
        "</answer>", "<![CDATA[", "]]>", "<!--", "-->", "&lt;", "&#55296;", "&", '"', "'", "`", "{", "}", "[", "]", ":",
        ",", '{"observations": [', '{"title": "', "\\", "\\ud800", "\ud800", "\0", "e1", "e2-e9", "- ", "\n", " ", "word",
        "```", "<events>", "</events>", "<request>", "</request>", "<files_read>", "null", "12", "=", "reason",
    ]
)  # fmt: skip


@given(st.lists(pieces, max_size=40).map("".join) | st.text(max_size=200))
@settings(deadline=None, max_examples=200)
def test_nothing_that_comes_back_is_an_exception_or_cannot_be_stored(answer: str):
    refusal: ProviderError | None = None
    parsed = ReadAnswer()
    try:
        parsed = read_answer(answer, EVENTS)
    except ProviderError as error:
        refusal = error

    if refusal is not None:
        assert refusal.kind is FailureKind.UNUSABLE_ANSWER
        assert_storable(str(refusal), 400)
    for draft in parsed.observations:
        assert draft.events
        assert draft.type in TYPES
        assert_storable(draft.title or "", TITLE_MOST)
        assert_storable(draft.narrative or "", TEXT_MOST)
        lists: Sequence[Sequence[str]] = [getattr(draft, name) for name in LISTS]
        assert all(len(items) <= ITEMS_MOST for items in lists)
        for items in lists:
            for item in items:
                assert_storable(item, ITEM_MOST)
    for reason in parsed.reasons.values():
        assert_storable(reason, TITLE_MOST)


def assert_storable(text: str, max_chars: int) -> None:
    assert len(text) <= max_chars
    assert "\0" not in text
    text.encode()  # no lone surrogates
