from __future__ import annotations

import asyncio
import contextlib
import json
import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cmserver.base.errors import Invalid
from cmserver.base.json_text import MAX_DEPTH, decode_json
from cmserver.redaction.clean import LARGE_BYTES, clean, clean_aside
from cmserver.redaction.redact import redact
from tests.table import try_rows

TOKEN = "ghp_" + "a1B2c3D4e5" * 4
PASSWORD = "hunter" + "2Xy!"
EDGE = "-----"
KEY_LINES = [
    f"{EDGE}BEGIN PRIVATE KEY{EDGE}",
    "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC" * 2,
    "Zm9vYmFy+/==",
    f"{EDGE}END PRIVATE KEY{EDGE}",
]

PIECES = st.sampled_from(
    [TOKEN, "<private>", "</private>", "<system-reminder>", "</system-reminder>", "\x00", "\ud800", "\udfff", "\ufffd",
     'password = "', '"', "é", "😀", "\n", *KEY_LINES, "https://a:", "@b", "[redacted:jwt]", "token="]
)  # fmt: skip
TEXT = st.text(st.characters(), max_size=20) | st.lists(PIECES | st.text(st.characters(), max_size=20), max_size=8).map("".join)
NAME = TEXT | st.sampled_from(["password", "api_key", "command", "DB_PASSWORD", "token"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(NAME, inner, max_size=4),
    max_leaves=12,
)


def nested(levels: int) -> object:
    value: object = 1
    for level in range(levels):
        value = {"a": value} if level % 2 else [value]
    return value


def texts_in(value: object) -> list[str]:
    texts: list[str] = []

    def keep(members: list[tuple[str, object]]) -> None:
        texts.extend(name for name, _ in members)
        texts.extend(inner for _, inner in members if isinstance(inner, str))

    json.loads(json.dumps({"": value}), object_pairs_hook=keep)
    return texts


def test_a_value_without_anything_suspicious_is_given_back_as_it_is() -> None:
    value = {"tool_name": "Bash", "n": [1, 1.5, None, True, 10**30], "tool_input": {"command": "ls é 😀", "input_tokens": 5}}

    cleaned = clean(value, field_max_chars=16_000)

    assert cleaned.value is value
    assert (cleaned.replaced, cleaned.redactions, cleaned.trimmed) == (0, {}, 0)


def test_what_jsonb_cannot_take_is_replaced_and_counted() -> None:
    cleaned = clean({"a\x00": ["b\ud800\udc00c", "\udfff😀"]}, field_max_chars=16_000)

    assert cleaned.value == {"a\ufffd": ["b\ufffd\ufffdc", "\ufffd😀"]}
    assert cleaned.replaced == 4


def test_names_that_become_equal_stay_two_names() -> None:
    cleaned = clean(dict(zip(["\ud800", "\udfff", "\ufffd (3)", "\x00"], [1, 2, 3, 4], strict=True)), field_max_chars=1000)

    assert cleaned.value == {"\ufffd": 1, "\ufffd (2)": 2, "\ufffd (3)": 3, "\ufffd (4)": 4}


def test_private_text_contexts_and_secrets_go_wherever_they_stand() -> None:
    value = {
        "prompt": "do <private>this</private> now<system-reminder>x</system-reminder>",
        f"key {TOKEN}": [[{"command": f"curl -H 'Authorization: Bearer {TOKEN}'"}]],
        "env": {"DB_PASSWORD": "correct horse battery", "api_key": TOKEN[4:], "Authorization": f"Token {TOKEN[4:]}"},
    }

    cleaned = clean(value, field_max_chars=16_000)

    assert cleaned.value == {
        "prompt": "do [redacted:private] now",
        "key [redacted:github_token]": [[{"command": "curl -H 'Authorization: Bearer [redacted:github_token]'"}]],
        "env": {
            "DB_PASSWORD": "[redacted:password]",
            "api_key": "[redacted:api_key]",
            "Authorization": "[redacted:authorization]",
        },
    }
    assert cleaned.redactions == {
        "private": 1, "context": 1, "github_token": 2, "password": 1, "api_key": 1, "authorization": 1,
    }  # fmt: skip


def test_a_secret_that_a_context_had_cut_in_two_goes() -> None:
    cleaned = clean([f"{TOKEN[:2]}<system-reminder>x</system-reminder>{TOKEN[2:]}"], field_max_chars=16_000)

    assert cleaned.value == ["[redacted:github_token]"]


@try_rows("name", ["password", "DB_PASSWORD", "dbPassword", "client-secret", "accessToken", "X-Api-Key"])
def test_a_member_is_known_by_its_name_alone(name: str) -> None:
    cleaned = clean([{name: TOKEN[4:]}], field_max_chars=16_000)

    assert TOKEN[4:] not in json.dumps(cleaned.value)
    assert sum(cleaned.redactions.values()) == 1


def test_members_that_are_named_like_secrets_but_hold_none_stay() -> None:
    value = {
        "password": "${DB_PASSWORD}",
        "token": "identifier",
        "secret": "orders-tls-cert",
        "api_key": "<your key>",
        "pwd": "/home/alice/src",
        "password_hint": "the usual one",
        "tokens": "1024",
        "next": {"token": 12, "password": None},
    }

    assert clean(value, field_max_chars=16_000).value == value


def test_a_private_span_over_several_lines_of_a_patch_goes() -> None:
    lines = [" shown", "+a <private>", "+hidden", "", "+hidden</private> b", " shown"]

    cleaned = clean({"structuredPatch": [{"lines": lines}]}, field_max_chars=16_000)

    assert cleaned.value == {"structuredPatch": [{"lines": [" shown", "+a [redacted:private]", "", "", " b", " shown"]}]}
    assert cleaned.redactions == {"private": 1}


def test_a_private_key_over_several_lines_of_a_patch_goes() -> None:
    lines = [" shown", *(f"+{line}" for line in KEY_LINES), " shown"]

    cleaned = clean({"lines": lines}, field_max_chars=16_000)

    assert cleaned.value == {"lines": [" shown", "+[redacted:private_key]", "", "", "", " shown"]}


def test_an_unclosed_private_span_goes_to_the_end_of_its_lines_but_not_beyond() -> None:
    cleaned = clean({"a": ["x <private>", "hidden", 1, "shown"], "b": "shown"}, field_max_chars=16_000)

    assert cleaned.value == {"a": ["x [redacted:private]", "", 1, "shown"], "b": "shown"}


def test_a_long_text_keeps_its_head_and_tail() -> None:
    cleaned = clean({"a": "h" * 5000 + "m" * 900_000 + "t" * 5000}, field_max_chars=1000)

    assert cleaned.value == {"a": "h" * 600 + "\n[... 909,100 characters left out ...]\n" + "t" * 300}
    assert cleaned.trimmed == 1


def test_a_text_of_just_the_limit_is_not_trimmed() -> None:
    value = {"a": "x" * 1000}

    assert clean(value, field_max_chars=1000).value is value


@try_rows("at", [0, 560, 590, 598, 600, 50_000, 99_650, 99_698, 99_700, 99_900])
@try_rows(
    ("opening", "hidden", "closing"),
    [
        ("", TOKEN, ""),
        ("<private>", "hidden " * 400, "</private>"),
        ("<private>", "hidden " * 12_000, "</private>"),
        ("", "\n".join([KEY_LINES[0], *["QUJDhiddenERUZHSElK" * 3] * 400, KEY_LINES[3]]), ""),
        (' password = "', PASSWORD, '"'),
        (" https://alice:", PASSWORD, "@db/x"),
        (" eyJ", ("hidden" * 200 + "." + "hidden" * 100 + ".hidden"), " "),
    ],
)
def test_what_lies_across_a_cut_does_not_show(at: int, opening: str, hidden: str, closing: str) -> None:
    around = "some line of text\n" * 6000
    text = (around[:at] + opening + hidden + closing + around)[: max(100_000, at + len(opening + hidden + closing))]

    cleaned = clean({"a": text}, field_max_chars=1000).value

    shown = json.dumps(cleaned)
    assert len(shown) < 1100
    for piece in (hidden[:12], hidden[-12:], hidden[2:14], hidden[-14:-2], "hidden"):
        assert piece not in shown


def test_a_private_span_that_opens_in_the_dropped_middle_hides_the_tail() -> None:
    cleaned = clean({"a": "x" * 50_000 + "<private>" + "hidden" * 50_000}, field_max_chars=1000)

    assert "hidden" not in json.dumps(cleaned.value)


def test_a_text_full_of_short_secrets_stays_within_the_limit() -> None:
    cleaned = clean("PASSWORD=abc4\n" * 5000, field_max_chars=1000)

    assert isinstance(cleaned.value, str)
    assert len(cleaned.value) <= 1000
    assert "abc4" not in cleaned.value


def test_depth_64_is_accepted_and_65_is_not() -> None:
    assert clean(nested(MAX_DEPTH), field_max_chars=1000).value == nested(MAX_DEPTH)

    with pytest.raises(Invalid, match="64 levels") as refused:
        clean({"a": [1, nested(MAX_DEPTH - 1)]}, field_max_chars=1000)

    assert refused.value.issues[0].path.startswith("$.a[1][0].a[0].a")


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_none_are_refused_with_their_path(number: float) -> None:
    with pytest.raises(Invalid) as refused:
        clean({"a": {"b": [1, 2, 3, number]}}, field_max_chars=1000)

    assert refused.value.issues[0].path == "$.a.b[3]"
    assert "$.a.b[3]" in str(refused.value)


@try_rows("value", ["a\x00", 5, None, 1.5, [], {}])
def test_any_json_value_may_be_cleaned_not_only_objects(value: object) -> None:
    expected = "a\ufffd" if value == "a\x00" else value

    assert clean(value, field_max_chars=1000).value == expected


@given(JSON, st.sampled_from([100, 200, 16_000]))
@example([{"password": "[redacted:" + "x" * 300}], 100)
@example("<private " + "x" * 300 + "<" + ">" * 50, 100)
@example({"\\u0000": None}, 100)  # a backslash and five characters: no NUL
def test_whatever_comes_can_be_stored_and_cleaning_it_again_changes_nothing(value: object, limit: int) -> None:
    once = clean(value, field_max_chars=limit)

    assert "\\u0000" not in json.dumps(once.value).replace("\\\\", "")
    json.dumps(once.value, ensure_ascii=False).encode()
    assert all(redact(text) == (text, {}) for text in texts_in(once.value))
    again = clean(once.value, field_max_chars=limit)
    assert again.value == once.value
    assert (again.replaced, again.redactions, again.trimmed) == (0, {}, 0)


@given(TEXT, TEXT, st.integers(0, 3000), st.sampled_from([100, 1000]))
def test_a_planted_secret_never_shows(before: str, after: str, at: int, limit: int) -> None:
    filler = "text \n" * 500
    value = {"a": [before, f"{filler[:at]}{before}{TOKEN}{after}{filler}"], "b": f"{before}<private>hidden</private>{after}"}

    cleaned = json.dumps(clean(value, field_max_chars=limit).value)

    assert TOKEN[4:16] not in cleaned
    assert "hidden" not in cleaned


# decode_json


@try_rows(
    ("body", "expected"),
    [
        (b'{"a": [1, 2.5, null]}', {"a": [1, 2.5, None]}),
        (b'\xef\xbb\xbf{"a": 1}', {"a": 1}),
        (b'"\\ud83d\\ude00"', "😀"),
        (b'"\\ud800x"', "\ud800x"),
        (b'{"\\udc00": 1}', {"\udc00": 1}),
        (b'"caf\xe9"', "caf\udce9"),
        (b"123456789012345678901234567890", 123456789012345678901234567890),
    ],
)
def test_json_is_decoded_also_when_its_texts_are_broken(body: bytes, expected: object) -> None:
    assert decode_json(body) == expected


def test_broken_texts_are_accepted_and_cleaned() -> None:
    cleaned = clean(decode_json(b'{"a": "x\\ud800y\\u0000", "b": "caf\xe9"}'), field_max_chars=1000)

    assert cleaned.value == {"a": "x\ufffdy\ufffd", "b": "caf\ufffd"}
    assert cleaned.replaced == 3


@try_rows(
    ("body", "message"),
    [
        (b"", "empty"),
        (b" \n", "empty"),
        (b'{"a": 1,}', "line 1, column"),
        (b'{"a": 1}\n{"b": 2}', "line 2, column 1"),
        (b'{"a": "x\ny"}', "line 1, column"),
        (b'{"a": "x', "line 1, column"),
        (b'[NaN, "\\ud800"]', "NaN"),
        (b"[1, -Infinity]", "-Infinity"),
        (b"[1e999]", "1e999"),
        (b"[" + b"9" * 5000 + b"]", "digits"),
        (b"[" * 100_000, "64 levels"),
        (b'{"a":' * 100_000, "64 levels"),
        (b'["\\ud800",' + b"[" * 100_000, "64 levels"),
    ],
)
def test_what_is_no_json_is_refused_with_a_sentence(body: bytes, message: str) -> None:
    with pytest.raises(Invalid, match=message):
        decode_json(body)


@given(st.binary(max_size=40) | JSON.map(lambda value: json.dumps(value).encode()))
def test_what_is_decoded_can_be_cleaned_and_what_is_not_is_refused(body: bytes) -> None:
    with contextlib.suppress(Invalid):
        clean(decode_json(body), field_max_chars=1000)


@pytest.mark.parametrize(("size_bytes", "others_are_served"), [(LARGE_BYTES - 1, False), (LARGE_BYTES, True)])
async def test_what_is_large_is_cleaned_while_others_are_served(size_bytes: int, *, others_are_served: bool):
    served: list[bool] = []
    asyncio.get_running_loop().call_soon(served.append, True)

    cleaned = await clean_aside({"password": PASSWORD}, field_max_chars=100, size_bytes=size_bytes)

    assert cleaned.value == {"password": "[redacted:password]"}
    assert bool(served) is others_are_served
