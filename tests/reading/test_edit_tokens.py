"""Which sentences name what an edit took out: numbers by their leading digits, names in code, and words that were replaced."""

from __future__ import annotations

from cmserver.reading.edit_tokens import find_tokens, read_place
from tests.table import try_rows


def names(old: str, new: str, sentence: str, *, before: str = "", after: str = "") -> bool:
    place = read_place(old.splitlines(), new.splitlines(), before=before, after=after)
    return bool(place.took_out & find_tokens(sentence))


@try_rows(
    ("old", "new", "sentence"),
    [
        ("MAX_ROWS = 2000", "MAX_ROWS = 5000", "I raised `MAX_ROWS` from 500 to 2000."),
        ("TIMEOUT_MS = 8000", "TIMEOUT_MS = 5000", "The timeout is 8 s now."),
        ("timeout: 8000", "timeout: 5000", "Das Timeout beträgt jetzt 8 Sekunden."),
        ("timeout: 8000", "timeout: 5000", "El tiempo de espera es de 8 segundos."),
        ("timeout: 8000", "timeout: 5000", "超时现在是8秒。"),
        ("limit = 10_000", "limit = 20_000", "The limit is 10,000 rows."),
        ("vat: 25.5", "vat: 24", "Finland's rate is 25.5 %."),
        ("rate_per_mille: 255", "rate_per_mille: 240", "Finland's rate is 25.5 %."),
        ("line-length = 100", "line-length = 120", "Changed `line-length` to 100."),
        ("return formatMinor(total)", "return formatMoney(total)", "Checkout uses `formatMinor` now."),
        ("def get_session():", "def open_session():", "Endpoints depend on get_session."),
        ('BACKEND = "redis"', 'BACKEND = "postgres"', "We will use Redis Streams."),
        ("queue: kafka", "queue: nats", "Events go over Kafka."),
        ("deploy-us:\n\t./deploy.sh us", "", "I found `make deploy-us`."),
        ('"next-auth": "^4.24.0"', '"next-auth": "^5.0.0"', "It stays on 4.24.0."),
        ('  "url": "https://api.example.org/v1"', '  "url": "https://api.example.org/v2"', "It calls api.example.org/v1."),
        ("CRON = '0 14:00'", "CRON = '0 16:00'", "It runs at 14:00."),
        ("PRÜFUNG_AN = 17", "PRÜFUNG_AN = 18", "PRÜFUNG_AN steht auf 17."),
        ("max-age=3600", "max-age=600", "Pages are kept for 3600 seconds."),
        ("KEEP_DAYS = 30", "KEEP_DAYS = 90", "Rows are kept 30 days."),
    ],
)
def test_a_sentence_names_what_was_taken_out(old: str, new: str, sentence: str):
    assert names(old, new, sentence)


@try_rows(
    ("old", "new", "sentence"),
    [
        ("MAX_ROWS = 2000", "MAX_ROWS = 5000", "`MAX_ROWS` is checked at the door."),
        ("MAX_ROWS = 2000", "MAX_ROWS = 5000", "All 2000 tests pass."),
        ("TIMEOUT_MS = 8000", "TIMEOUT_MS = 5000", "8 tests pass."),
        ("TIMEOUT_MS = 8000", "TIMEOUT_MS = 5000", "I looked at 8 of them."),
        ("retries = 3", "retries = 5", "3 places call it."),
        ("return self.value", "return None", "The function returns its value."),
        ("# we retry the request when it fails", "# the caller tries once more, and then gives up", "We retry the request."),
        ("x = compute(a, b)", "x = compute(a, b, c)", "It calls compute with a."),
        ("const total = sum(lines)", "const total = sum(items)\nlog(total)", "The total is a sum."),
        ("if user is None:", "if user is not None:", "The user is None here."),
        ("import os", "", "It works on each os."),
        ("TIMEOUT = 30", "TIMEOUT = 30  # seconds", "The timeout is 30 seconds."),
    ],
)
def test_other_sentences_do_not(old: str, new: str, sentence: str):
    assert not names(old, new, sentence)


def test_what_stands_elsewhere_in_the_file_is_neither_put_in_nor_taken_out():
    sentence = "It calls get_session."

    assert not names("a = get_session()", "a = None", sentence, after="a = None\nb = get_session()")
    assert names("a = get_session()", "a = None", sentence, after="a = None\nb = get_session_of(x)")
    assert not read_place([], ["a = get_session()"], before="b = get_session()").put_in & find_tokens("get_session")
