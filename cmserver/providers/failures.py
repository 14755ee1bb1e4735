"""What a failed call means: one table for every provider's status codes, bodies and exceptions.

Read by all providers' files, and by generation for answers that say in prose, with status 200, that there is none. After what the
providers say themselves: platform.claude.com/docs/en/api/errors, developers.openai.com/api/docs/guides/error-codes,
ai.google.dev/gemini-api/docs/troubleshooting, openrouter.ai/docs/api/reference/errors-and-debugging.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import msgspec

from cmserver.providers.model import Completion, FailureKind, ProviderError

_LONGEST_QUOTE = 300
_LONGEST_PROSE = 1_500
"""An answer that says that there is none is short."""
_LONGEST_SEARCH = 20_000
"""How much of an error's body is read."""


class Sign(msgspec.Struct, frozen=True):
    """One row of the table: the first that fits decides. `words` are searched in the body, in any case."""

    kind: FailureKind
    statuses: frozenset[int] | None
    words: re.Pattern[str] | None
    out_of_reach: bool = False
    doubtful: bool = False
    """A gateway may say the same of what stands in one request."""


def _sign(
    kind: FailureKind,
    statuses: tuple[int, ...] | None,
    words: str | None = None,
    *,
    out_of_reach: bool = False,
    doubtful: bool = False,
) -> Sign:
    return Sign(
        kind,
        frozenset(statuses) if statuses is not None else None,
        re.compile(words, re.IGNORECASE) if words else None,
        out_of_reach,
        doubtful,
    )


_SPAN = r"(?:spend(?:ing)?|usage|weekly|monthly|daily|hourly|session|subscription|plan|5-hour)"
_QUOTA = (
    r"insufficient[_ ](?:quota|credits?|balance|funds)|credit balance is too low|credit_balance_exhausted|billing_error|"
    r"billing_(?:hard_limit_reached|not_active)|account is not active|(?:spend|usage)_limit_(?:exceeded|reached)|"
    r"exceeded your current quota|(?:api usage limits|key limit exceeded|free-models-per-day)|"
    rf"{_SPAN} (?:limit|cap|quota)[^.]{{0,60}}?(?:reached|exceeded|hit|used up|will reset|resets?)|"
    rf"(?:reached|exceeded|hit|used up)[^.]{{0,40}}?{_SPAN} (?:limit|cap|quota)|"
    r"out of (?:extra )?(?:usage|credits)|quota[^.]{0,40}per ?day"
)
_DAILY = r'"quotaId":\s*"[^"]*PerDay|\blimit: 0\b'
"""Gemini's quota of a day, and a model that the plan does not have at all. Its words are the same as for one of a minute."""
_MINUTELY = r'"quotaId":\s*"[^"]*PerMinute|"retryDelay"'
_AUTH = (
    r"invalid[_ ](?:x-)?api[_ -]?key|incorrect api key|api[_ ]key[_ ](?:not valid|invalid|expired)|API_KEY_INVALID|"
    r"authentication_error|invalid bearer token|oauth token (?:has )?(?:expired|been revoked)|please run /login|not logged in|"
    r"no auth credentials|organization has been disabled"
)
_TOO_LONG = (
    r"prompt (?:is )?too long|context[_ ](?:length|window|size)|maximum context|too many tokens|input token count[^.]*exceeds|"
    r"request_too_large|exceeds? the (?:model's )?(?:maximum|available) (?:context|input)|string[_ ](?:is )?too[_ ]long|"
    r"string_above_max_length|exceeds? context limit"
)
_REFUSED = (
    r"content_filter|content management policy|content_policy_violation|PROHIBITED_CONTENT|requires moderation|moderation flag|"
    r"(?:input|prompt|request|message|content)s? (?:was|were|has been|is|may be) (?:\w+ )?(?:flagged|blocked)|"
    r"blocked by (?:a |your )?guardrail"
)
_NO_MODEL = (
    r"model_not_found|not_found_error|model[^.]{0,80}(?:not found|does not exist|is not available|is not a valid)|"
    r"pull(?:ing)? it first|unexpected endpoint"
)
_NOT_HERE = (
    r"unsupported_country|(?:country|region|territory|location)[^.]{0,40} (?:is )?not supported|SERVICE_DISABLED|"
    r"has not been used in project|requires more system memory"
)
_OVERLOADED = r"overloaded|over capacity|temporarily unavailable|server busy"

SIGNS: tuple[Sign, ...] = (
    _sign(FailureKind.CONTEXT_TOO_LONG, (413,)),
    _sign(FailureKind.CONTEXT_TOO_LONG, (400, 422, 500), _TOO_LONG),
    # OpenAI: more tokens in one request than a minute may have; waiting never heals that.
    _sign(FailureKind.CONTEXT_TOO_LONG, (429,), r"request too large for"),
    _sign(FailureKind.REFUSED, (400, 403, 422), _REFUSED),
    # OpenRouter: what is in flight would pass the credits; some of it is done soon.
    _sign(FailureKind.RATE_LIMITED, (402,), r"in_flight_budget", out_of_reach=True),
    _sign(FailureKind.QUOTA_EXHAUSTED, (402,)),
    _sign(FailureKind.QUOTA_EXHAUSTED, (429,), _DAILY),
    _sign(FailureKind.RATE_LIMITED, (429,), _MINUTELY, out_of_reach=True),
    _sign(FailureKind.QUOTA_EXHAUSTED, (400, 403, 429), _QUOTA),
    _sign(FailureKind.SETUP_REQUIRED, (400, 403, 500), _NOT_HERE),
    _sign(FailureKind.AUTH_INVALID, (400, 403), _AUTH),
    _sign(FailureKind.AUTH_INVALID, (401,)),
    _sign(FailureKind.AUTH_INVALID, (403,), doubtful=True),
    _sign(FailureKind.RATE_LIMITED, (429,), out_of_reach=True),
    _sign(FailureKind.TRANSIENT, (503, 529), out_of_reach=True),
    _sign(FailureKind.TRANSIENT, (500,), _OVERLOADED, out_of_reach=True),
    _sign(FailureKind.TRANSIENT, (408, 409, 425, 499)),
    _sign(FailureKind.TRANSIENT, (400,), r"request_body_timeout"),
    _sign(FailureKind.SETUP_REQUIRED, (404,)),
    _sign(FailureKind.SETUP_REQUIRED, tuple(range(300, 400))),
    _sign(FailureKind.SETUP_REQUIRED, tuple(range(400, 500)), doubtful=True),
    _sign(FailureKind.TRANSIENT, None),
)
"""By status and body; the last fits all. Another 4xx and a redirection, which is not followed, are for the operator: no event is
the cause of what is wrong with every request."""

_NAMED: tuple[tuple[re.Pattern[str], int], ...] = tuple(
    (re.compile(words, re.IGNORECASE), status)
    for words, status in (
        (_TOO_LONG, 400),
        (_QUOTA, 402),
        (_AUTH, 401),
        (_REFUSED, 403),
        (_NO_MODEL, 404),
        (r"rate[_ ]limit|too[_ ]many[_ ]requests|RESOURCE_EXHAUSTED", 429),
        (_OVERLOADED, 503),
    )
)
"""The status of an error that comes with status 200 and no code of its own."""

_LIMIT = r"(?:limit|quota|cap)s?"
_STOP = r"(?=\s*(?:[.,;:!|(\u00b7\u2022\u2219\u2014\u2013-]|$|\n|for |resets?\b|please |try ))"
"""What follows when it is the whole message, and no sentence about something else."""


def _begins(kind: FailureKind, *beginnings: str, out_of_reach: bool = False) -> Sign:
    return _sign(kind, None, "|".join(beginnings), out_of_reach=out_of_reach)


_PROSE: tuple[Sign, ...] = (
    _begins(
        FailureKind.RATE_LIMITED,
        rf"(?:[\w'-]+ ){{0,3}}rate limit (?:has been )?(?:reached|exceeded|hit){_STOP}",
        rf"too many requests{_STOP}",
        r"rate_limit_error",
        out_of_reach=True,
    ),
    _begins(
        FailureKind.QUOTA_EXHAUSTED,
        rf"you(?:'ve| have)? (?:just )?(?:hit|reached|used up|exceeded) (?:your|the) (?:[\w$'.-]+ ){{0,5}}?{_LIMIT}{_STOP}",
        rf"(?:[\w'-]+ ){{0,5}}?{_LIMIT} (?:has been |was )?(?:reached|exceeded|used up){_STOP}",
        r"you(?:'re| are| have run|'ve run) out of (?:extra )?(?:usage|credits)",
        r"(?:your )?credit balance (?:is )?too low",
        r"insufficient (?:credits|balance|quota)",
    ),
    _begins(
        FailureKind.AUTH_INVALID,
        r"(?:invalid|incorrect) (?:x-)?api key",
        r"invalid bearer token",
        r"(?:your )?oauth token (?:has |was )?(?:been )?(?:expired|revoked)",
        r"(?:you are |you're )?not logged in",
        r"please run /login",
        r"failed to authenticate",
        r"(?:your|this) organization has been disabled",
        r"authentication_error",
    ),
    _begins(FailureKind.CONTEXT_TOO_LONG, rf"prompt is too long{_STOP}"),
    _begins(
        FailureKind.TRANSIENT,
        rf"overloaded(?:_error)?{_STOP}",
        r"(?:the |this )?(?:[\w-]+ )?(?:model|server|service|engine) is (?:currently |temporarily )?"
        rf"(?:overloaded|unavailable|at capacity|busy){_STOP}",
        rf"(?:service|server) (?:temporarily )?unavailable{_STOP}",
        rf"(?:internal server error|bad gateway|connection error|request timed out){_STOP}",
        out_of_reach=True,
    ),
)
"""How an answer that is none begins: further on, a good one may well talk of limits."""
_LEAD = re.compile(r"[\W_]*(?:(?:api )?error\s*:[\W_]*)?", re.IGNORECASE)
_CODED = re.compile(r"[\W_]*(?:api error\b\s*:?\s*(?:[^{\n]{0,60}?\()?|error(?: code)?\s*:\s*)([45]\d\d)\b", re.IGNORECASE)


def by_status(who: str, status: int, body: str, headers: Mapping[str, str] | None = None) -> ProviderError:
    """What an answer with an error status means. `headers` are looked up in lower case; `body` is quoted in part."""
    searched = body[:_LONGEST_SEARCH]
    sign = next(
        one
        for one in SIGNS
        if (one.statuses is None or status in one.statuses) and (one.words is None or one.words.search(searched))
    )
    return ProviderError(
        sign.kind,
        f"{who} answered {status}: {_quoted(body)}",
        retry_after(headers or {}, searched),
        out_of_reach=sign.out_of_reach,
        doubtful=sign.doubtful,
    )


def in_body(who: str, body: str, headers: Mapping[str, str] | None = None) -> ProviderError | None:
    """A body with an `error` in it, whatever its status was; by the code it names, else by its words. None when there is none."""
    error = _decoded(body).error
    if error is None or error == "":
        return None
    code = error.code if isinstance(error, _Inner) else None
    status = int(code) if isinstance(code, int) or (isinstance(code, str) and code.isdecimal()) else 0
    if not 400 <= status < 600:
        status = next((status for words, status in _NAMED if words.search(body[:_LONGEST_SEARCH])), 502)
    return by_status(who, status, body, headers)


def in_prose(who: str, text: str) -> ProviderError | None:
    """An answer with status 200 that says in words why it is none; None when it does not."""
    text = text.strip().replace("\u2019", "'")
    if len(text) > _LONGEST_PROSE:
        return None
    if text.startswith("{"):
        return in_body(who, text)
    if coded := _CODED.match(text):
        return by_status(who, int(coded[1]), text)
    lead = _LEAD.match(text)
    begins = lead.end() if lead else 0
    sign = next((one for one in _PROSE if one.words is not None and one.words.match(text, begins)), None)
    return sign and ProviderError(sign.kind, f"{who} said: {_quoted(text)}", retry_after({}, text), out_of_reach=sign.out_of_reach)


def unreachable(who: str, why: str) -> ProviderError:
    """No connection, or none that could be used."""
    return ProviderError(FailureKind.TRANSIENT, f"{who} cannot be reached: {why}.", out_of_reach=True)


def cut_off(who: str, why: str) -> ProviderError:
    """The answer broke off, took too long, or was no answer at all: the request may be the cause, and may have been paid."""
    return ProviderError(FailureKind.TRANSIENT, f"{who} gave no whole answer: {why}.", perhaps_paid=True)


def nothing_said(who: str, completion: Completion) -> ProviderError:
    """An answer without a word."""
    if not completion.truncated:
        return ProviderError(FailureKind.UNUSABLE_ANSWER, f"{who} answered with nothing.", completion=completion)
    return ProviderError(
        FailureKind.UNUSABLE_ANSWER,
        f"{who} used up the {completion.output_tokens:,} tokens of its answer before it said anything: "
        "let CMSERVER_ANSWER_MAX_TOKENS be more, or choose a model that thinks less.",
        completion=completion,
    )


def retry_after(headers: Mapping[str, str], body: str = "") -> float | None:
    """Seconds, from `retry-after-ms`, or `retry-after` in seconds or as a date, else from what the body says; None without any."""
    text = headers.get("retry-after-ms", "").strip()
    if re.fullmatch(r"\d{1,9}(?:\.\d+)?", text):
        return float(text) / 1000
    text = headers.get("retry-after", "").strip()
    if re.fullmatch(r"\d{1,7}(?:\.\d+)?", text):
        return float(text)
    try:
        at = parsedate_to_datetime(text)
    except (ValueError, TypeError, OverflowError):  # the last for a year that is none
        return _retry_after_in(body)
    return _seconds_until(at.replace(tzinfo=at.tzinfo or UTC).timestamp())


_RETRY_DELAY = re.compile(r'"retryDelay":\s*"(\d{1,7}(?:\.\d+)?)s"')
_TRY_AGAIN = re.compile(
    r"(?:try again|retry) in (?:(\d{1,4})h)?(?:(\d{1,5})m(?!s))?(?:(\d{1,6}(?:\.\d+)?)(ms|s)\b)?", re.IGNORECASE
)
_RESETS_AT = re.compile(r'limit reached\|(\d{10})\b|"X-RateLimit-Reset":\s*"?(\d{10})(?:\d{3})?\b', re.IGNORECASE)


def _retry_after_in(body: str) -> float | None:
    """Gemini's RetryInfo, OpenAI's "Please try again in 6m0s", OpenRouter's reset, the `claude` program's second of the reset."""
    if found := _RETRY_DELAY.search(body):
        return float(found[1])
    if (found := _TRY_AGAIN.search(body)) and any(found.groups()):
        hours, minutes, rest, unit = found.groups()
        return int(hours or 0) * 3600 + int(minutes or 0) * 60 + float(rest or 0) / (1000 if unit == "ms" else 1)
    if found := _RESETS_AT.search(body):
        return _seconds_until(float(found[1] or found[2]))
    return None


def _seconds_until(epoch: float) -> float:
    return max(0.0, epoch - _now().timestamp())


def _now() -> datetime:
    return datetime.now(UTC)


def _quoted(body: str) -> str:
    """Its message if it has one, in one line, without what looks like a key."""
    message = _message(body) or _title(body) or (_NO_MESSAGE if body.lstrip()[:1] in {"{", "["} else body[: _LONGEST_QUOTE * 10])
    line = " ".join(message.split()) or "nothing"
    line = re.sub(r"\b(?:sk|gsk|hf|key|AIza|AQ\.|cms|cmem|cm)[-_A-Za-z0-9*]{12,}", "***", line)
    return line if len(line) <= _LONGEST_QUOTE else f"{line[: _LONGEST_QUOTE - 1]}…"


_NO_MESSAGE = "JSON without a message"
"""Not quoted: a gateway's may repeat the request."""


def _title(body: str) -> str | None:
    """Of a proxy's error page, which is HTML."""
    found = re.search(r"<(title|h1)\b[^>]*>(.{1,200}?)</\1>", body[:_LONGEST_SEARCH], re.IGNORECASE | re.DOTALL)
    return f"a page with the title {found[2].strip()!r}" if found else None


def _message(body: str) -> str | None:
    """The `message` of the usual shapes: {"error": {"message"}}, {"error": "..."}, {"message"}, {"detail"} (Voyage); and what
    OpenRouter passes on. A `detail` that is a list may repeat the request.
    """
    found = _decoded(body)
    inner = found.error
    if not isinstance(inner, _Inner):
        return inner or next((said for said in (found.message, found.detail) if isinstance(said, str)), None)
    raw = inner.metadata.raw if inner.metadata else None
    return f"{inner.message}: {raw}" if isinstance(raw, str) and raw else inner.message


def _decoded(body: str) -> _Body:
    text = body.strip()
    try:
        if text.startswith("["):  # Gemini's streams, and some gateways before it
            return next(iter(msgspec.json.decode(text, type=list[_Body])), _Body())
        return msgspec.json.decode(text, type=_Body)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return _Body()


class _Metadata(msgspec.Struct):
    raw: object = None


class _Inner(msgspec.Struct):
    message: str | None = None
    code: int | str | None = None
    metadata: _Metadata | None = None


class _Body(msgspec.Struct):
    error: _Inner | str | None = None
    message: object = None
    detail: object = None
