"""No text makes redaction slow: eight times as much takes about eight times as long, whatever it repeats."""

from __future__ import annotations

import re
from collections.abc import Iterator
from random import Random
from typing import cast

import pytest

from cmserver.redaction.clean import clean
from cmserver.redaction.rule import REACH, WINDOW, scan
from tests import growth
from tests.growth import FACTOR, SMALL, grows_too_fast
from tests.table import try_rows

pytestmark = pytest.mark.speed

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
    '"\n"', '" +\n  "', '"+"', "\\\n", '\\"\\n\\"', "\\\\\\n", "a" * 60 + "\n" + "a" * 8, "= (\n 'aaa'\n", ": |\n a",
    "kty", '"kty": "d": "',
]  # fmt: skip
TRIGGERS = [
    "kind: secret\n---\n", "kind: Secret\ndata:\n  a: aaaaaaaa\n", "data:\n  a: data:\n", "kind: secret\ndata:" + "\n" * 200,
    "apiVersion: v1\nkind: Secret\nmetadata:\n  name: a\ndata:\n  a: bb\n---\n", "alter user a password 'aaaaaaaa'; ",
    "create user a identified by 'aaaaaaa1' ", "machine a login b password c12345678 ", "a:5432:b:c:d12345678\n",
    "mysql -pfoobar1 ",
    "docker login -p abcd1234 ", "echo abcd1234 | sudo -S ", "htpasswd -b a b abcd1234 ", "openssl -passin pass:abcd1234 ",
    "curl -u a:abcd1234 ", "curl -b 'sid=abcd1234abcd1234' ", "cookie: sid=abcd1234abcd1234; ", "Bearer abcd1234abcd1234 ",
    "https://a:abcd1234@b ", "?sig=abcd1234abcd1234abcd&", "password = 'abcd1234' ", '"name": "password", "value": "abcd1234", ',
    "my api key is aB3dE5fG7hJ9kL2mN4pQ ", "--token aB3dE5fG7hJ9 ", "config set token aB3dE5fG7hJ9 ", "ENV TOKEN aB3dE5fG7hJ9\n",
    'variable "db_password" { default = "abcd1234" }\n', "sk-aB3dE5fG7hJ9kL2mN4pQ ", "1234567:A" + "a1" * 17 + " ",
    "-----BEGIN PRIVATE KEY-----\n" + "aB1/" * 16 + "\n", "aB1/" * 16 + "\n-----END PRIVATE KEY-----\n", "<private>a</private>",
    '{"kty": "oct", "k": "aB3dE5fG7hJ9kL2mN4pQ"}', 'password = "abcd" \\\n "1234"\n', 'token: "aB3dE5fG7hJ9" +\n "kL2mN4pQ"\n',
    "\x1b[0m", "pass\u200bword=abcd1234 ",
]  # fmt: skip
"""Whole secrets, one of each rule: the pieces above come no further than its beginning."""


def redact(value: object) -> object:
    return clean(value, field_max_chars=10_000_000)


def is_slow(small: object, large: object) -> bool:
    return growth.is_slow(lambda: redact(small), lambda: redact(large))


def test_pieces_together_are_no_slower_than_each() -> None:
    """Some rules are slow only where several pieces alternate: `configure set --pwd` was."""
    random = Random(20261122)
    mixed = ["configure set --pwd", "configure --a set ", "7z[", "7z[ -p ", "|su", '|su -p "']
    mixed += ["".join(random.choices(UNITS + TRIGGERS, k=random.randint(2, 3))) for _ in range(150)]

    slow = [unit for unit in mixed if grows_too_fast(redact, unit)]

    assert [unit for unit in slow if grows_too_fast(redact, unit) and grows_too_fast(redact, unit)] == []


def test_many_fields_are_no_slower_than_one() -> None:
    """The texts of a value are searched together."""

    def is_slow_in(unit: str) -> bool:
        rows = [{"text": unit, "kind": "Secret", "data": [unit]}]
        small, large = (rows * (size // len(unit) // 8 + 1) for size in (SMALL, SMALL * FACTOR))
        return is_slow(small, large)

    slow = [unit for unit in TRIGGERS if is_slow_in(unit)]

    assert [unit for unit in slow if is_slow_in(unit) and is_slow_in(unit)] == []


def test_names_that_become_equal_are_numbered_once_each() -> None:
    def names(count: int) -> dict[str, object]:
        return {name: 1 for place in range(count) for name in ("a" + "\x00" * (place + 1), f"password=abcd{place}1234")}

    assert not is_slow(names(60), names(60 * FACTOR)) or not is_slow(names(60), names(60 * FACTOR))


def test_a_search_reads_a_bounded_part_of_the_text_in_one_step() -> None:
    """A step of the regex engine holds the interpreter, and so the event loop, also from another thread."""

    class CountingPattern:
        def __init__(self, pattern: str) -> None:
            self.pattern, self.longest = re.compile(pattern), 0

        def finditer(self, text: str, start: int, end: int) -> Iterator[re.Match[str]]:
            self.longest = max(self.longest, end - start)
            return self.pattern.finditer(text, start, end)

        def match(self, text: str, start: int, end: int) -> re.Match[str] | None:
            return self.pattern.match(text, start, end)

    text = f"{'-' * 100_000}secret={'a' * 50_000} {'-' * (WINDOW - 8)}secret={'b' * 9}{'-' * 100_000}secret=c"
    counting = CountingPattern(r"secret=\w+")

    found = [match[0] for match in scan(cast("re.Pattern[str]", counting), text)]

    assert found == re.findall(r"secret=\w+", text)
    assert counting.longest <= WINDOW + REACH


@try_rows("unit", [*UNITS, *TRIGGERS])
def test_the_time_grows_with_the_text_and_no_faster(unit: str) -> None:
    assert not grows_too_fast(redact, unit)
