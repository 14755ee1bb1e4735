"""Decides whether a value is a secret, or a placeholder, word, path or expression in the place of one."""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections import Counter

_PLACEHOLDER = re.compile(
    r"\[redacted:.*"
    r"|\$\{.*|\$\(.*|\$[A-Z_][A-Z0-9_]*|\$[a-z_]+(?:->\w+)?|%\w*%?|%\(\w+\)s|<.*>|\{.*\}"
    r"|(?:[*x.#_?:@-]|%s)+|(\w)\1*"
    r"|(?:.*[^a-z])?(?:your|example|sample|placeholder|dummy|redacted|todo|fixme)(?:[^a-z].*)?"
    r"|change.?(?:me|this|it).{0,4}|replace.?(?:me|with|this).*|(?:foo|bar|baz|test|testing|demo|fake|mock)\d{0,3}"
    r"|(?:none|null|nil|undefined|true|false|str|string|text|bytes|bool(?:ean)?|int(?:eger)?|number|any|object|optional"
    r"|unknown|void|required|hidden|missing|invalid|empty|disabled|enabled|default|secretstr|varchar)(?:[^a-z].*)?"
    r"|(?:[a-z]*[_ -])?(?:password|passwd|passphrase|pass|pwd|pw|secret|token|api.?key|key|credentials?)\d?"
    r"|(?:process|os|env|environ|import|settings|config|self|this|args|opts|options|params|request|req|ctx|data|user|props"
    r"|state|secrets|vault|var|local|inputs|github)(?:\?*\.|::|->|\[).*",
    re.IGNORECASE | re.DOTALL,
)
_WORDS = re.compile(r"[A-Za-z]{3,}\d{0,3}(?:[-_.:/ ][A-Za-z]{2,}\d{0,3})*|[A-Za-z]+")
_EXPRESSION = re.compile(r"[A-Za-z_]\w{0,23}(?:(?:\?*\.|::|->)[A-Za-z_]\w{0,23})+")
_PATH = re.compile(r"(?:\.{0,2}|~|[A-Za-z]:)[/\\].*|(?:[\w.-]+/)+[\w-]*\.[a-z]{1,5}|[\w-]+\.[a-z]{2,5}|.*://.*")
_SPECIAL = re.compile(r"[!@#$%^*?~+]")

_SENTENCE = re.compile(
    r"\b(?:an?|the|is|are|was|be|must|should|can(?:not)?|may|please|enter|type|required|for|of|in|on|by|to|from|at|as|and|or|not|no|with|without"
    r"|your|my|this|that|it|wrong|incorrect|invalid|missing|forgot|forgotten|reset|change|new|old|current|confirm|repeat|show|hide"
    r"|passwords?|passphrase|secrets?|tokens?|keys?|fields?|values?|user|users|username|login|use|used|set|if|when|string)\b",
    re.IGNORECASE,
)
"""Words of labels and messages. Text with one of them is no passphrase, or the texts of forms would be redacted."""

_PIECES = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_WORD_PIECE = re.compile(r"(?=[^aeiouy]*[aeiouy])(?!.*[^aeiouy]{4})[a-z]{3,}", re.IGNORECASE)
_SCHEME_NAME = re.compile(r"(?:oauth|ipv|argon|pbkdf|sha|md|rsa|aes|base|utf|es|ed|tls|ssl)\d.*", re.IGNORECASE)
_MIN_LETTERS = 16

_LABEL = re.compile(
    r"\b(?:must|should|can(?:not)?|may|please|enter|type|required|your|wrong|incorrect|invalid|missing|forgot|forgotten|reset|change"
    r"|new|old|current|confirm|repeat|show|hide|passwords?|passphrase|fields?|values?|user|users|username|login|set|string)\b",
    re.IGNORECASE,
)
"""The words of `_SENTENCE` that also rule out a passphrase set in a shell."""


_INVENTED_KINDS = frozenset({"password", "secret"})
"""Kinds that people invent, so that even a simple word may be one."""


def is_token_like(value: str) -> bool:
    """Whether a machine seems to have made the value: long, letters and digits mixed, no name, path or placeholder."""
    if len(value) < 12 or _PLACEHOLDER.fullmatch(value) or _looks_like_words(value) or _PATH.fullmatch(value):
        return False
    has_both = any(map(str.isdigit, value)) and any(map(str.isalpha, value))
    return (has_both and _entropy(value) >= 2.5) or _is_random_letters(value)


def is_scrambled(value: str) -> bool:
    """Whether letters and digits alternate as in no name: `getUserPassword` consists of words, `rRFslKBbsDLu` does not."""
    pieces = _PIECES.findall(value)
    in_words = sum(len(piece) for piece in pieces if _WORD_PIECE.fullmatch(piece))
    return 2 * len(value) < 9 * len(pieces) and 10 * in_words < 7 * len(value)


def _is_random_letters(value: str) -> bool:
    """Whether the value is base64 without a digit by chance."""
    letters = value.rstrip("=")
    is_long = len(letters) >= _MIN_LETTERS and letters.isascii() and letters.isalpha()
    return is_long and letters.lower() != letters and letters.upper() != letters and is_scrambled(letters)


def is_assigned_secret(kind: str, value: str, *, explicit: bool) -> bool:
    """Whether a value assigned to a name of this kind is a secret; `explicit`: it is quoted, JSON or of .env, not code."""
    if _PLACEHOLDER.fullmatch(value):
        return False
    if kind == "url_password":
        return True
    if not explicit and _EXPRESSION.fullmatch(value):
        return False
    if kind in _INVENTED_KINDS:
        return _may_be_invented(value, plain_words=kind == "password", explicit=explicit)
    return is_token_like(value.rpartition(" ")[2] if kind == "authorization" else value)


def is_passphrase(value: str, *, in_shell: bool = False) -> bool:
    """Whether quoted words assigned to a password are one, not a label; `in_shell`: to a name such as PGPASSWORD."""
    if len(value) < 8 or value[-1] in ".!?:," or _PLACEHOLDER.fullmatch(value):
        return False
    return _SENTENCE.search(value) is None or _ends_in_no_word(value) or (in_shell and _is_spoken(value))


def _ends_in_no_word(value: str) -> bool:
    """Whether words of a sentence end in something that is no word: `let me in 60W4Y`."""
    words = value.split(" ")
    last = words[-1]
    if not (2 < len(words) < 8 and value[0].islower() and len(last) > 4 and last.isalnum()) or _SCHEME_NAME.fullmatch(last):
        return False
    pieces = _PIECES.findall(last)
    is_cut = len(pieces) > 2 if any(map(str.isdigit, last)) else len(pieces) > 1 and not pieces[-1].isupper()
    return is_cut and is_scrambled(last)


def _is_spoken(value: str) -> bool:
    """Whether a person may have strung the words together, unlike a label or message: `my secret pass again`."""
    return value[0].islower() and value.count(" ") > 1 and _LABEL.search(value) is None


def is_mixed(value: str) -> bool:
    """Whether a value where names are usual may be a password: it has digits, and letters of both cases or signs."""
    if not is_assigned_secret("password", value, explicit=False) or not any(map(str.isdigit, value)):
        return False
    return _SPECIAL.search(value) is not None or (value.lower() != value and value.upper() != value)


def _may_be_invented(value: str, *, plain_words: bool, explicit: bool) -> bool:
    """Whether a person may have chosen the value as a secret. `plain_words`: also one that consists of words."""
    if _PATH.fullmatch(value) or (not plain_words and _looks_like_words(value) and not value.isalnum()):
        return False
    if explicit:
        return len(value) >= 4
    mixed = any(map(str.isdigit, value)) or _SPECIAL.search(value) is not None
    return (len(value) >= 6 and mixed and any(map(str.isalpha, value))) or _is_random_letters(value)


def _looks_like_words(value: str) -> bool:
    """Whether the value has only words, in usual capitalization."""
    if not _WORDS.fullmatch(value):
        return False
    upper = sum(map(str.isupper, value))
    return upper * 4 <= len(value) or not any(map(str.islower, value))


def _entropy(value: str) -> float:
    """Bits per character (Shannon)."""
    size = len(value)
    return -sum(count / size * math.log2(count / size) for count in Counter(value).values())


def is_jwt(run: str) -> bool:
    return "." in run and len(run) >= 40


def is_basic(value: str) -> bool:
    """Whether the value is base64 of bytes with a colon."""
    try:
        return b":" in base64.b64decode(value + "=" * (-len(value) % 4))
    except binascii.Error:
        return False


def is_login(value: str) -> bool:
    """Whether the value is printable `user:password` in base64."""
    try:
        text = base64.b64decode(value + "=" * (-len(value) % 4)).decode()
    except (binascii.Error, UnicodeDecodeError):
        return False
    return ":" in text[1:-1] and text.isprintable()


def is_url_password(value: str) -> bool:
    return is_assigned_secret("url_password", value, explicit=True)
