"""Secrets recognized by the name before them: `password = "..."`, `"api_key": "..."`, `TOKEN=...`, `--token ...`."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from cmserver.redaction.plausible import is_assigned_secret, is_mixed, is_passphrase, is_scrambled, is_token_like
from cmserver.redaction.rule import Rule, scan
from cmserver.redaction.spans import Span

_KEY_QUALIFIERS = "|".join(
    f"(?<={qualifier}{hyphen}key)"
    for qualifier in ("api", "access", "private", "account", "auth", "signing", "encryption", "master", "shared", "hmac")
    for hyphen in ("", "[ _-]")
)
# Kind, needle, pattern. All are for lower case, and each begins with a literal, which makes the search fast.
_NAMES = (
    ("authorization", "auth", r"authorization"),
    ("password", "pass", r"pass(?:w(?:or)?d|phrase|(?<=[_-]pass))"),
    ("password", "pwd", r"pwd"),
    ("aws_secret_key", "secret", r"secret[_-]?access[_-]?key"),
    ("secret", "secret", r"secret(?:[_-]?key)?"),
    ("token", "token", r"token(?!s)"),  # `tokens` are counted, not kept
    ("credential", "credential", r"credential"),
    ("api_key", "key", f"key(?:{_KEY_QUALIFIERS})"),
)
_TAIL = r"s?(?>(?:[_-]?\d{1,3}|[_-](?:base|prod|production|dev|staging|live|test|main|old|new|value|string))?)"
_SPACE = r"(?:\s|\\[nrt])"
_ASSIGNMENT = (
    r"(?:(?:\\{0,3}[\"'`])?[\])]?[ \t]{0,8}(?::[ \t]?[a-z][\w.\[\]| ,]{0,30}=|!?={1,3}>?|:=?|>(?!@))[ \t]{0,8}"
    # The name is itself a value: `"name": "DB_PASSWORD", "value": "..."`, also over two lines, as YAML, and as XML.
    rf"|\\{{0,3}}[\"']?,?{_SPACE}{{0,40}}(?:[\d:|→>+-]{{1,8}}{_SPACE}{{1,40}})?(?:\\{{0,3}}[\"'])?(?:parameter)?value"
    r"(?:\\{0,3}[\"'])?[ \t]{0,4}[:=][ \t]{0,4}"
    # An argument of its own: `"--password", "..."`, `define('DB_PASSWORD', '...')`.
    r"|(?P<argument>\\{0,3}[\"'],[ \t]{0,4}(?=\\{0,3}[\"']))"
    # Terraform: `variable "db_password" { default = "..." }`.
    rf"|\\{{0,3}}[\"'][ \t]{{0,4}}\{{[^{{}}]{{0,300}}?{_SPACE}default[ \t]{{0,40}}=[ \t]{{0,4}}(?=\\{{0,3}}\")"
    # Prose: `my api key is ...`, `use the password ... for it`. Commands that take a name and a value: `setx API_TOKEN ...`.
    r"|(?:(?P<stated>(?:[ \t](?:for|of|to|on|in)[ \t][\w.@/-]{1,40})?[ \t](?:is|was)[ \t:]{1,3})|(?P<named>[ \t]{1,2}))"
    r"(?=\\?[\"'`]?[^\s=:\"'`\\]{4,512}(?:[\s\"'`\\]|\Z)))"
)
_SCHEME = r"(?:\\{0,3}[\"'])?(?:(?:bearer|basic|token|apikey|digest|key|bot)[ \t]{1,8})?"
_VALUE = (
    r"(?:[bruf]{0,2}(?P<open>\\{0,3}[\"'`])(?P<quoted>"
    r"(?>(?:(?!(?P=open))(?:\\.|\S)){3,})(?=(?P=open)|[\r\n]|\Z)"
    r"|(?>(?:(?!(?P=open))(?:\\.|[^\r\n\"'`])){8,200})(?=(?P=open)))"
    r"|(?P<bare>[^\s\"'`,;<>(){}\[\]|&\\-][^\s\"'`,;<>(){}\[\]|&\\]{3,}+)(?P<after>[(\[{]?))"
)


_SETTING = re.compile(
    r"(?<![\w$./-])(?:ENV|ARG|setx(?:[ \t]{1,4}/[mM])?|setenv|set[ \t]-[a-zU]{1,6})[ \t]{1,4}(?:[A-Z][A-Z0-9_]*)?\Z", re.ASCII
)
_SETTING_REACH_CHARS = 100
_STORING = re.compile(r"secret[ \t]{1,4}set[ \t][^\n|;]{1,200}\Z")
_MIN_LONG_CHARS = 20
"""Names of only letters and digits are shorter."""


def _name_rule(kind: str, needle: str, name: str) -> Rule:
    scheme = _SCHEME if kind == "authorization" else ""
    compiled = re.compile(f"{name}{_TAIL}{_ASSIGNMENT}{scheme}{_VALUE}", re.ASCII)

    def find(text: str, low: str) -> Iterator[Span]:
        for match in scan(compiled, low):
            if span := _find_value(kind, text, match, in_capitals=text[match.start() : match.start() + 3].isupper()):
                yield span

    return Rule((needle,), True, find)


def _find_value(kind: str, text: str, match: re.Match[str], *, in_capitals: bool) -> Span | None:
    """The secret that the match assigns to a name of this kind, if there is one."""
    quoted = match["quoted"] is not None
    if not quoted and match["after"]:
        return None  # a call or an index: code
    start, end = match.span("quoted" if quoted else "bare")
    value = text[start:end]
    groups = match.groupdict()
    if groups.get("stated") or groups.get("named"):
        return Span(start, end, kind) if _is_stated(kind, text, match, (start, end), in_capitals=in_capitals) else None
    if quoted and " " in value:
        in_shell = in_capitals and text[start - 2] == "="
        is_passphrase_like = kind in {"password", "secret"} and is_passphrase(value, in_shell=in_shell)
        return Span(start, end, kind) if is_passphrase_like else _find_last_word(kind, value, start)
    if groups.get("argument") and not is_mixed(value):
        return None  # lists contain names, too: `["password", "email"]`
    if is_assigned_secret(kind, value, explicit=quoted or in_capitals):
        return Span(start, end, kind)
    return None


def _is_stated(kind: str, text: str, match: re.Match[str], place: tuple[int, int], *, in_capitals: bool) -> bool:
    """Whether the text after a name and a space is a secret, not a word."""
    (begin, (start, end)), is_stated = (match.start(), place), match["stated"] is not None
    if not is_stated and in_capitals and _SETTING.search(text[max(0, begin - _SETTING_REACH_CHARS) : begin]):
        return is_assigned_secret(kind, text[start:end], explicit=True)
    if not is_stated and kind == "token" and begin == 0 and end == len(text):
        return False  # the value of a header, `token ...`: the header's name decides
    value = text[start:end].rstrip(".!?")
    if not is_token_like(value):
        return False
    if is_stated and value.isalnum() and len(value) >= _MIN_LONG_CHARS:
        return True
    return is_scrambled(value) and (is_mixed(value) or value.isalpha())


def _find_last_word(kind: str, value: str, start: int) -> Span | None:
    """The credentials after any scheme: `"authorization": "Custom abc..."`."""
    before, _, word = value.rpartition(" ")
    if kind == "authorization" and before.isalpha() and is_assigned_secret(kind, word, explicit=True):
        return Span(start + len(before) + 1, start + len(value), kind)
    return None


_FLAG = re.compile(rf"--([a-z][a-z-]{{0,40}}+)[ \t]{{1,4}}{_VALUE}", re.ASCII)
_SET = re.compile(
    r"config(?:ure)?[ \t]{1,8}+(?>(?:(?:set|add|--[a-z]{1,40}+)[ \t]{1,8}+){1,4})"
    rf"([\w./:@-]{{1,200}}+)[ \t=]{{1,4}}{_VALUE}",
    re.ASCII,
)
_NAME_ENDS = tuple((kind, needle, re.compile(f"{name}{_TAIL}\\Z", re.ASCII)) for kind, needle, name in _NAMES)


def classify_name(name: str) -> str | None:
    """The kind of secret that a name like `dbPassword` or `X-Api-Key` stands for; None for other names."""
    low = name.lower()
    return next((kind for kind, needle, end in _NAME_ENDS if needle in low and end.search(low)), None)


def _find_arguments(text: str, low: str) -> Iterator[Span]:
    """Values after a named option and a space: `--token ...`, `config set x.password ...`."""
    for match in itertools.chain(scan(_FLAG, low), scan(_SET, low)):
        kind = classify_name(match[1])
        if match[1] == "body" and _STORING.search(low, max(0, match.start() - 2 * _SETTING_REACH_CHARS), match.start()):
            kind = "secret"  # gh secret set DEPLOY_KEY --body ...
        if kind and (span := _find_value(kind, text, match, in_capitals=False)):
            yield span


_NEEDLES = tuple(dict.fromkeys(needle for _, needle, _ in _NAMES))

NAME_RULES = (*(_name_rule(*name) for name in _NAMES), Rule(_NEEDLES, True, _find_arguments))
