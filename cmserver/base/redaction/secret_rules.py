"""The secrets that are known by their form or by the name they are given to, and how placeholders are told from them.

A pattern is tried only on a text that has one of its keywords. Each pattern either consumes what it has looked at or
looks at a bounded part of it: no text makes it slow.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from cmserver.base.redaction.spans import Span

REACH = 8192
"""So many characters around a place are enough to know whether a secret lies there."""


Find = Callable[[str, str], Iterator[Span]]


class Rule(NamedTuple):
    """One form of secret. `find` gets the text, and the text in lower case with all characters where they were."""

    needles: tuple[str, ...]
    """Without one of them in the text (in lower case if `lowered`) there is nothing to find."""
    lowered: bool
    find: Find


# --- What is a secret, and what only stands where one will be


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

_MADE_UP = frozenset({"password", "secret"})
"""Kinds that people make up: even a simple word may be one."""


def is_token_like(value: str) -> bool:
    """Whether a machine seems to have made it: long, letters and digits mixed, no name, path or placeholder."""
    if len(value) < 12 or _PLACEHOLDER.fullmatch(value) or _looks_like_words(value) or _PATH.fullmatch(value):
        return False
    has_digit = any(map(str.isdigit, value))
    return has_digit and any(map(str.isalpha, value)) and _entropy(value) >= 2.5


def is_assigned_secret(kind: str, value: str, *, explicit: bool) -> bool:
    """Whether a value given to something of this kind is a secret.

    `explicit`: it is certainly a literal (quoted, a JSON value, a line of an .env file), not a piece of code.
    """
    if _PLACEHOLDER.fullmatch(value):
        return False
    if kind == "url_password":
        return True
    if not explicit and _EXPRESSION.fullmatch(value):
        return False
    if kind in _MADE_UP:
        return _may_be_made_up(value, plain_words=kind == "password", explicit=explicit)
    return is_token_like(value.rpartition(" ")[2] if kind == "authorization" else value)


def _may_be_made_up(value: str, *, plain_words: bool, explicit: bool) -> bool:
    if _PATH.fullmatch(value) or (not plain_words and _looks_like_words(value) and not value.isalnum()):
        return False
    if explicit:
        return len(value) >= 4
    mixed = any(map(str.isdigit, value)) or _SPECIAL.search(value) is not None
    return len(value) >= 6 and mixed and any(map(str.isalpha, value))


def _looks_like_words(value: str) -> bool:
    if not _WORDS.fullmatch(value):
        return False
    upper = sum(map(str.isupper, value))
    return upper * 4 <= len(value) or not any(map(str.islower, value))


def _entropy(value: str) -> float:
    """Bits per character (Shannon)."""
    size = len(value)
    return -sum(n / size * math.log2(n / size) for n in Counter(value).values())


def _is_jwt(run: str) -> bool:
    return "." in run and len(run) >= 40


def _is_basic(value: str) -> bool:
    try:
        return b":" in base64.b64decode(value + "=" * (-len(value) % 4))
    except binascii.Error:
        return False


def _is_url_password(value: str) -> bool:
    return is_assigned_secret("url_password", value, explicit=True)


# --- Secrets known by their form


def _rule(kind: str, needles: str, pattern: str, check: Callable[[str], bool] | None = None, *, lowered: bool = False) -> Rule:
    """The secret is group 1 of the pattern, or else the whole match and what is glued to it, if `check` agrees to it."""
    compiled = re.compile(pattern, re.ASCII)
    group = 1 if compiled.groups else 0
    if not group:
        compiled = re.compile(pattern + r"[\w-]*+", re.ASCII)

    def find(text: str, low: str) -> Iterator[Span]:
        for match in compiled.finditer(low if lowered else text):
            start, end = match.span(group)
            if check is None or check(text[start:end]):
                yield Span(start, end, kind)

    return Rule(tuple(needles.split("|")), lowered, find)


# The left of a short prefix: no letter or digit, or the escaped line break of a text within a text.
_EDGE = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt]))"

_AFTER_UNDERSCORE = (
    _rule("github_token", "ghp_|gho_|ghu_|ghs_|ghr_", r"gh[pousr]_[A-Za-z0-9]{30,}"),
    _rule("github_token", "github_pat_", r"github_pat_[A-Za-z0-9_]{36,}"),
    _rule("stripe_key", "k_live_|k_test_", _EDGE + r"[sr]k_(?:live|test)_[A-Za-z0-9]{16,}"),
    _rule("npm_token", "npm_", r"npm_[A-Za-z0-9]{36,}"),
    _rule("huggingface_token", "hf_", r"hf_[A-Za-z0-9]{30,}"),
    _rule("digitalocean_token", "_v1_", r"do[opr]_v1_[a-f0-9]{64,}"),
    _rule("cmserver_key", "cms_", r"cms_[A-Za-z0-9]{8,}_[A-Za-z0-9]{16,}"),
    _rule("claude_mem_key", "cm_", r"cm_[0-9a-f]{40,}"),
)
"""Of the form prefix, underscore, many letters and digits: one look for that saves looking for each prefix."""

_LONG_AFTER_UNDERSCORE = re.compile(r"_(?<!toolu_)[A-Za-z0-9]{16}")

_BY_FORM = (
    _rule("aws_access_key", "AKIA|ASIA", r"A[KS]IA[A-Z0-9]{16,}"),
    _rule("aws_secret_key", "AKIA|ASIA", r"A[KS]IA[A-Z0-9]{16}[\s,:;|\"']{1,5}([A-Za-z0-9/+]{40,})"),
    _rule("gitlab_token", "glpat-|glrt-|gldt-", r"gl(?:pa|r|d)t-[\w-]{16,}"),
    _rule("slack_token", "xox|xapp-", r"(?:xox[abeoprs]|xapp)-[A-Za-z0-9-]{10,}"),
    _rule("slack_webhook", "hooks.slack.com", r"hooks\.slack\.com/[a-z]{1,20}/([A-Za-z0-9/_+-]{16,})"),
    _rule("anthropic_key", "sk-", r"sk-ant-[\w-]{16,}"),
    _rule("openrouter_key", "sk-", r"sk-or-[\w-]{16,}"),
    _rule("openai_key", "sk-", r"sk-(?:proj|svcacct|admin)-[\w-]{16,}"),
    _rule("openai_key", "sk-", _EDGE + r"sk-([A-Za-z0-9]{20,})", is_token_like),
    _rule("google_api_key", "AIza", r"AIza[\w-]{35,}"),
    _rule("google_oauth", "ya29.|GOCSPX-", r"(?:ya29\.|GOCSPX-)[\w.-]{20,}"),
    _rule("pypi_token", "pypi-", r"pypi-AgE[\w-]{40,}"),
    _rule("sendgrid_key", "SG.", r"SG\.[\w-]{16,64}\.[\w-]{16,}(?:\.[\w-]++)*+"),
    _rule("twilio_key", "SK", r"SK[0-9a-f]{32,}"),
    _rule("claude_mem_key", "cmem_", r"cmem_[\w-]{24,}"),
    _rule("jwt", "eyJ", r"eyJ[\w-]*+(?:\.[\w-]++)*+", _is_jwt),
    _rule("bearer_token", "bearer", r"bearer[ \t]{1,8}([a-z0-9._~+/=-]{12,})", is_token_like, lowered=True),
    _rule("basic_auth", "basic", r"basic[ \t]{1,8}([a-z0-9+/]{6,}={0,2})", _is_basic, lowered=True),
    _rule("url_password", "://", r"://[^\s/:@\"'<>\\]{0,512}:([^\s/\"'<>\\]{1,1024})@", _is_url_password),
    _rule(
        "password",
        "curl",
        r"(?<![\w-])(?:-u|--user|--proxy-user)[ =]{0,3}\\?[\"']?[^\s:\"'\\]{1,256}:([^\s\"'\\]{1,512})",
        _is_url_password,
        lowered=True,
    ),
)


# --- Secrets known by the name they are given to: `password = "..."`, `"api_key": "..."`, `TOKEN=...`, `--token ...`

_KEY_OF = "|".join(
    f"(?<={of}{hyphen}key)"
    for of in ("api", "access", "private", "account", "auth", "signing", "encryption")
    for hyphen in ("", "[_-]")
)
# Kind, needle, pattern. All are for lower case, and each begins with a literal: so looking for it is fast.
_NAMES = (
    ("password", "pass", r"pass(?:w(?:or)?d|phrase|(?<=[_-]pass))"),
    ("password", "pwd", r"pwd"),
    ("aws_secret_key", "secret", r"secret[_-]?access[_-]?key"),
    ("secret", "secret", r"secret(?:[_-]?key)?"),
    ("token", "token", r"token(?!s)"),  # `tokens` are counted, not kept
    ("credential", "credential", r"credential"),
    ("api_key", "key", f"key(?:{_KEY_OF})"),
    ("authorization", "authorization", r"authorization"),
)
_TAIL = r"s?(?:[_-]?\d{1,3}|[_-](?:base|prod|production|dev|staging|live|test|main|old|new|value))?+"
_GIVEN = r"(?:\\{0,3}[\"'`])?[\])]?[ \t]{0,8}(?::[ \t]?[a-z][\w.\[\]| ,]{0,30}=|!?={1,3}>?|:=?|>(?!@))[ \t]{0,8}"
_SCHEME = r"(?:\\{0,3}[\"'])?(?:(?:bearer|basic|token|apikey|digest|key|bot)[ \t]{1,8})?"
_VALUE = (
    r"(?:[bruf]{0,2}(?P<open>\\{0,3}[\"'`])(?P<quoted>(?:(?!(?P=open))(?:\\.|\S)){3,}+)(?=(?P=open)|[\r\n]|\Z)"
    r"|(?P<bare>[^\s\"'`,;<>(){}\[\]|&\\-][^\s\"'`,;<>(){}\[\]|&\\]{3,}+)(?P<after>[(\[{]?))"
)


def _naming(kind: str, needle: str, name: str) -> Rule:
    scheme = _SCHEME if kind == "authorization" else ""
    compiled = re.compile(f"{name}{_TAIL}{_GIVEN}{scheme}{_VALUE}", re.ASCII)

    def find(text: str, low: str) -> Iterator[Span]:
        for match in compiled.finditer(low):
            if span := _given(kind, text, match, in_capitals=text[match.start() : match.start() + 3].isupper()):
                yield span

    return Rule((needle,), True, find)


def _given(kind: str, text: str, match: re.Match[str], *, in_capitals: bool) -> Span | None:
    quoted = match["quoted"] is not None
    if not quoted and match["after"]:
        return None  # a call or an index: code
    start, end = match.span("quoted" if quoted else "bare")
    if is_assigned_secret(kind, text[start:end], explicit=quoted or in_capitals):
        return Span(start, end, kind)
    return None


_FLAG = re.compile(rf"--([a-z][a-z-]{{0,40}}+)[ \t]{{1,4}}{_VALUE}", re.ASCII)
_NAME_ENDS = tuple((kind, needle, re.compile(f"{name}{_TAIL}\\Z", re.ASCII)) for kind, needle, name in _NAMES)


def kind_of_name(name: str) -> str | None:
    """The kind of secret that is kept under this name (`dbPassword`, `X-Api-Key`), or None for any other name."""
    low = name.lower()
    return next((kind for kind, needle, end in _NAME_ENDS if needle in low and end.search(low)), None)


def _flags(text: str, low: str) -> Iterator[Span]:
    for match in _FLAG.finditer(low):
        kind = kind_of_name(match[1])
        if kind and (span := _given(kind, text, match, in_capitals=False)):
            yield span


_ALWAYS = (*_BY_FORM, *(_naming(*name) for name in _NAMES), Rule(("--",), True, _flags))
RULES = (*_AFTER_UNDERSCORE, *_ALWAYS)


def _by_needle(rules: Iterable[Rule], *, lowered: bool) -> list[tuple[str, list[Rule]]]:
    index: dict[str, list[Rule]] = {}
    for rule in rules:
        for needle in rule.needles if rule.lowered == lowered else ():
            index.setdefault(needle, []).append(rule)
    return list(index.items())


_AS_WRITTEN = _by_needle(_BY_FORM, lowered=False)
_AS_WRITTEN_AFTER_UNDERSCORE = _by_needle(_AFTER_UNDERSCORE, lowered=False)
_IN_LOWER_CASE = _by_needle(RULES, lowered=True)


def suspects(text: str) -> list[Rule]:
    """The rules that could find something in the text, most often none."""
    low = _lower(text)
    touched = [rules for needle, rules in _AS_WRITTEN if needle in text]
    touched += [rules for needle, rules in _IN_LOWER_CASE if needle in low]
    if _LONG_AFTER_UNDERSCORE.search(text):
        touched += [rules for needle, rules in _AS_WRITTEN_AFTER_UNDERSCORE if needle in text]
    wanted = {rule for rules in touched for rule in rules}
    return [rule for rule in RULES if rule in wanted] if wanted else []


def may_find(text: str, rules: Iterable[Rule]) -> bool:
    """Whether `find` could find something; much cheaper than to look."""
    low = _lower(text)
    for rule in rules:
        hay = low if rule.lowered else text
        for needle in rule.needles:
            if needle in hay:
                return True
    return False


def find(text: str, rules: Iterable[Rule]) -> Iterator[Span]:
    """Spans of secrets, unsorted; they may overlap. The more telling kind comes first."""
    low = _lower(text)
    for rule in rules:
        hay = low if rule.lowered else text
        if any(needle in hay for needle in rule.needles):
            yield from rule.find(text, low)


def _lower(text: str) -> str:
    """In lower case, of the same length: only U+0130 becomes two characters."""
    return text.lower() if text.isascii() else text.replace("\u0130", "i").lower()
