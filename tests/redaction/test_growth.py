"""No text makes redaction slow: eight times as much takes about eight times as long, whatever it repeats."""

from __future__ import annotations

import time
from random import Random

import pytest

from cmserver.redaction.clean import clean
from tests.table import try_rows

pytestmark = pytest.mark.speed

SMALL, FACTOR = 6_000, 8
MOST = 3 * FACTOR
"""Squared work would be 64."""
TOO_SHORT_SECONDS = 0.0005

UNITS = [
    "password", "password=", 'password="', "password = 'a ", "password: x ", '"password", "', '"name": "password",\n"value": ',
    "token=token=", "secret value", "authorization: ", "api_key ", "--password ", "--a-", "config set token ", "config set a ",
    "auth=", "auth: 'aaaaaaaa", "bearer ", "basic ", "cookie: ", "cookie: a=", "a=", "curl ", "curl -b ", "curl -u a:",
    "mysql ", "mysql -p", "login ", "login -p ", " -p ", "sshpass -p", "zip ", "http ", "http -a ", "echo ", "| ", "| sudo ",
    "| docker login ", "echo a| a -stdin", "htpasswd -b ", "-passin ", "machine ", "machine a ", "login a password ",
    "password a ", ":5432:", ":5432:a:", "1:A", "kind: secret\n", "data:\n", "kind: secret\ndata:\n", "data:\n  a: ",
    "  a: aaa\n", "://", "://a", "://a:", "://a:b@", "?sig=", "signature=", "eyJ", "eyJ.", "a.", "sk-", "ghp_", "A", "AKIA",
    "SK", "a-", "a_", ".", "~", "Q~", "M.", "Maaaaaaaaaaaaaaaaaaaaaaa.", "hooks.slack.com/", "LS0tLS1CRUdJTi",
    "-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----", "-----BEGIN PRIVATE KEY-----\n1\t", "-----BEGIN ",
    "PRIVATE KEY", "-----", "---- ", "Private-Lines: 1\n", "private", "<private", "<private>", "</private>", "< private >",
    "&lt;private&gt;", "\\u003cprivate\\u003e", "<", "&lt;", "\\", "\\n", "\\\\n", "\n", "\n+", "1\t", "a" * 64 + "\n",
    "aB1/" * 16 + "\n", "1:" + "aB1/" * 16 + "\n", "\n  12→", "0123456789", "{", "[", '"', "'", "%", "$", " ", "\t", "\u0130",
    "é", "password is ", "password for a is ", "my token ", "api key ", "api key is aaaaaaaaaaaa", "ENV TOKEN ", "setx API_TOKEN a",
    'password" {', 'password" {\n default', "secret set ", "secret set --body ", "--body a", "identified by ", "identified by '",
    "identified with a ", "alter user ", "alter user password '", "set password for ", "PASSWORD='a b ", "passwordaA", "token aAbB",
]  # fmt: skip


def cpu_seconds(text: str) -> float:
    """The least of several: other processes only add to it."""
    times: list[float] = []
    for _ in range(3):
        began = time.process_time()
        clean({"text": text}, field_max_chars=10_000_000)
        times.append(time.process_time() - began)
    return min(times)


def test_pieces_together_are_no_slower_than_each() -> None:
    """Some rules are slow only where several pieces alternate: `configure set --pwd` was."""
    random = Random(20261122)
    mixed = ["configure set --pwd", "configure --a set ", "7z[", "7z[ -p ", "|su", '|su -p "']
    mixed += ["".join(random.choices(UNITS, k=random.randint(2, 3))) for _ in range(150)]

    slow = [unit for unit in mixed if grows_too_fast(unit)]

    assert [unit for unit in slow if grows_too_fast(unit) and grows_too_fast(unit)] == []


def grows_too_fast(unit: str) -> bool:
    small, large = unit * (SMALL // len(unit)), unit * (SMALL * FACTOR // len(unit))
    return cpu_seconds(large) >= MOST * max(cpu_seconds(small), TOO_SHORT_SECONDS)


@try_rows("unit", UNITS)
def test_the_time_grows_with_the_text_and_no_faster(unit: str) -> None:
    small, large = unit * (SMALL // len(unit)), unit * (SMALL * FACTOR // len(unit))

    assert cpu_seconds(large) < MOST * max(cpu_seconds(small), TOO_SHORT_SECONDS)
