"""Classifies failed calls: one table for all providers' status codes, bodies and exceptions.

Generation also uses it for errors that come as prose with status 200. `name` is the provider's name in messages. Sources:
platform.claude.com/docs/en/api/errors, developers.openai.com/api/docs/guides/error-codes,
ai.google.dev/gemini-api/docs/troubleshooting, openrouter.ai/docs/api/reference/errors-and-debugging.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from ipaddress import ip_address

import msgspec

from cmserver.models.providers.model import Completion, FailureKind, ProviderError

_MAX_QUOTE_CHARS = 300
_MAX_PROSE_CHARS = 1_500
"""Longer text is an answer, not an error."""
_MAX_SEARCH_CHARS = 20_000
"""How much of an error's body is searched."""


class Sign(msgspec.Struct, frozen=True):
    """A row of the table; the first that matches decides. `words` is a pattern for the body, ignoring case."""

    kind: FailureKind
    statuses: Sequence[int] | None = None
    words: str | None = None
    out_of_reach: bool = False
    doubtful: bool = False
    """A gateway may answer the same because of one request's content."""


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
"""Gemini's daily quota, and a model outside the plan. The message is the same as for a limit per minute."""
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
    Sign(FailureKind.CONTEXT_TOO_LONG, (413,)),
    Sign(FailureKind.CONTEXT_TOO_LONG, (400, 422, 500), _TOO_LONG),
    # OpenAI: the request has more tokens than a minute allows; waiting does not help.
    Sign(FailureKind.CONTEXT_TOO_LONG, (429,), r"request too large for"),
    Sign(FailureKind.REFUSED, (400, 403, 422), _REFUSED),
    # OpenRouter: requests in flight would exceed the credits; they end soon.
    Sign(FailureKind.RATE_LIMITED, (402,), r"in_flight_budget", out_of_reach=True),
    Sign(FailureKind.QUOTA_EXHAUSTED, (402,)),
    Sign(FailureKind.QUOTA_EXHAUSTED, (429,), _DAILY),
    Sign(FailureKind.RATE_LIMITED, (429,), _MINUTELY, out_of_reach=True),
    Sign(FailureKind.QUOTA_EXHAUSTED, (400, 403, 429), _QUOTA),
    Sign(FailureKind.SETUP_REQUIRED, (400, 403, 500), _NOT_HERE),
    Sign(FailureKind.AUTH_INVALID, (400, 403), _AUTH),
    Sign(FailureKind.AUTH_INVALID, (401,)),
    Sign(FailureKind.AUTH_INVALID, (403,), doubtful=True),
    Sign(FailureKind.RATE_LIMITED, (429,), out_of_reach=True),
    Sign(FailureKind.TRANSIENT, (503, 529), out_of_reach=True),
    Sign(FailureKind.TRANSIENT, (500,), _OVERLOADED, out_of_reach=True),
    Sign(FailureKind.TRANSIENT, (408, 409, 425, 499)),
    Sign(FailureKind.TRANSIENT, (400,), r"request_body_timeout"),
    Sign(FailureKind.SETUP_REQUIRED, (404,)),
    Sign(FailureKind.SETUP_REQUIRED, range(300, 400)),
    Sign(FailureKind.SETUP_REQUIRED, range(400, 500), doubtful=True),
    Sign(FailureKind.TRANSIENT),
)
"""By status and body; the last matches all. Any other 4xx, and a redirection, which is not followed, is a matter of setup."""


class FailureHelp(msgspec.Struct, frozen=True, kw_only=True):
    """For operators: what a kind of failure means, what cmserver does, and what to do about it."""

    predicate: str
    """Follows the provider's name: `<name> refused the key`."""
    consequence: str
    remedy: str
    """`{key}` stands for where the provider's key is set."""


FAILURE_HELP: dict[FailureKind, FailureHelp] = {
    FailureKind.TRANSIENT: FailureHelp(
        predicate="gave no answer this time",
        consequence="The jobs are retried, each time after a longer pause.",
        remedy="wait; if it persists, check the provider's status page, the address (CMSERVER_BASE_URL, or the page Model) and "
        "the network",
    ),
    FailureKind.RATE_LIMITED: FailureHelp(
        predicate="is limiting the request rate",
        consequence="The jobs are retried when the provider says (`Retry-After`), or after a pause that grows.",
        remedy="wait; if it happens often, run fewer workers or ask the provider for a higher limit",
    ),
    FailureKind.QUOTA_EXHAUSTED: FailureHelp(
        predicate="has no credit or quota left",
        consequence="The provider is paused for all workers; the next one of CMSERVER_PROVIDER is used, or the jobs wait.",
        remedy="add credit or raise the limit at the provider, or wait until the limit is reset",
    ),
    FailureKind.AUTH_INVALID: FailureHelp(
        predicate="refused the key",
        consequence="The provider is paused in the same way.",
        remedy="check {key}",
    ),
    FailureKind.SETUP_REQUIRED: FailureHelp(
        predicate="does not accept such a request",
        consequence="The provider is paused in the same way.",
        remedy="check model and address (CMSERVER_MODEL, CMSERVER_BASE_URL, or the page Model), and whether that model is "
        "offered to you",
    ),
    FailureKind.CONTEXT_TOO_LONG: FailureHelp(
        predicate="rejected the request as too long",
        consequence="A batch is retried in two halves; a single event that is too long fails.",
        remedy="lower CMSERVER_MODEL_CONTEXT_TOKENS, or use a model with a larger context",
    ),
    FailureKind.REFUSED: FailureHelp(
        predicate="refused to answer",
        consequence="A batch is retried in two halves. A single job that is refused fails; what rules make of its event is "
        "kept, and the answer with its call (`cmserver jobs show JOB --answer`).",
        remedy="use another model or provider, then retry the job",
    ),
    FailureKind.UNUSABLE_ANSWER: FailureHelp(
        predicate="gave an answer that cannot be used",
        consequence="As with refused.",
        remedy="use a larger model, or raise CMSERVER_MODEL_CONTEXT_TOKENS if the answer was cut",
    ),
}


def find_help(reason: str, message: str = "") -> FailureHelp | None:
    """The help of a kind of failure by its name; None for any other text.

    By the failure's message it is another one where an address of this machine or this network cannot be reached.
    """
    entry = next((entry for kind, entry in FAILURE_HELP.items() if kind.value == reason), None)
    if entry is not None and reason == FailureKind.TRANSIENT.value and _is_of_own_address(message):
        return msgspec.structs.replace(entry, remedy=_OWN_REMEDY)
    return entry


_OWN_REMEDY = (
    "start the program that should listen there, or set the address to where it runs (CMSERVER_BASE_URL, or the page Model)"
)


def _is_of_own_address(message: str) -> bool:
    found = re.search(r" cannot be reached: .*?\bhttps?://(?:\[([^\]\s]+)\]|([^\s/:]+))", message)
    host = found and (found[1] or found[2])
    if not host or host == "localhost":
        return host is not None
    try:
        return ip_address(host).is_private
    except ValueError:
        return False


_NAMED: tuple[tuple[str, int], ...] = (
    (_TOO_LONG, 400),
    (_QUOTA, 402),
    (_AUTH, 401),
    (_REFUSED, 403),
    (_NO_MODEL, 404),
    (r"rate[_ ]limit|too[_ ]many[_ ]requests|RESOURCE_EXHAUSTED", 429),
    (_OVERLOADED, 503),
)
"""The status for an error that comes with status 200 and no code."""

_LIMIT = r"(?:limit|quota|cap)s?"
_STOP = r"(?=\s*(?:[.,;:!|(\u00b7\u2022\u2219\u2014\u2013-]|$|\n|for |resets?\b|please |try ))"
"""What may follow when the error is the whole message."""
_BUSY = r"(?:overloaded|unavailable|at capacity|busy)"

_PROSE: dict[FailureKind, tuple[str, ...]] = {
    FailureKind.RATE_LIMITED: (
        rf"(?:[\w'-]+ ){{0,3}}rate limit (?:has been )?(?:reached|exceeded|hit){_STOP}",
        rf"too many requests{_STOP}",
        r"rate_limit_error",
    ),
    FailureKind.QUOTA_EXHAUSTED: (
        rf"you(?:'ve| have)? (?:just )?(?:hit|reached|used up|exceeded) (?:your|the) (?:[\w$'.-]+ ){{0,5}}?{_LIMIT}{_STOP}",
        rf"(?:[\w'-]+ ){{0,5}}?{_LIMIT} (?:has been |was )?(?:reached|exceeded|used up){_STOP}",
        r"you(?:'re| are| have run|'ve run) out of (?:extra )?(?:usage|credits)",
        r"(?:your )?credit balance (?:is )?too low",
        r"insufficient (?:credits|balance|quota)",
    ),
    FailureKind.AUTH_INVALID: (
        r"(?:invalid|incorrect) (?:x-)?api key",
        r"invalid bearer token",
        r"(?:your )?oauth token (?:has |was )?(?:been )?(?:expired|revoked)",
        r"(?:you are |you're )?not logged in",
        r"please run /login",
        r"failed to authenticate",
        r"(?:your|this) organization has been disabled",
        r"authentication_error",
    ),
    FailureKind.CONTEXT_TOO_LONG: (rf"prompt is too long{_STOP}",),
    FailureKind.TRANSIENT: (
        rf"overloaded(?:_error)?{_STOP}",
        rf"(?:the |this )?(?:[\w-]+ )?(?:model|server|service|engine) is (?:currently |temporarily )?{_BUSY}{_STOP}",
        rf"(?:service|server) (?:temporarily )?unavailable{_STOP}",
        rf"(?:internal server error|bad gateway|connection error|request timed out){_STOP}",
    ),
}
"""How an error in prose begins; only the beginning counts, as an answer may mention limits."""
_LEAD = re.compile(r"[\W_]*(?:(?:api )?error\s*:[\W_]*)?", re.IGNORECASE)
_CODED = re.compile(r"[\W_]*(?:api error\b\s*:?\s*(?:[^{\n]{0,60}?\()?|error(?: code)?\s*:\s*)([45]\d\d)\b", re.IGNORECASE)


def classify_status(name: str, status: int, body: str, headers: Mapping[str, str] | None = None) -> ProviderError:
    """The error for an answer with an error status. `headers` need lower-case names; `body` is quoted in part."""
    searched = body[:_MAX_SEARCH_CHARS]
    sign = next(
        sign
        for sign in SIGNS
        if (sign.statuses is None or status in sign.statuses)
        and (sign.words is None or re.search(sign.words, searched, re.IGNORECASE))
    )
    return ProviderError(
        sign.kind,
        f"{name} answered {status}: {_quote(body)}",
        parse_retry_after(headers or {}, searched),
        out_of_reach=sign.out_of_reach,
        doubtful=sign.doubtful,
    )


def find_error_in_body(name: str, body: str, headers: Mapping[str, str] | None = None) -> ProviderError | None:
    """The error that a body of any status holds in `error`, by its code, else by its words; None without one."""
    error = _decode_body(body).error
    if error is None or error == "":
        return None
    code = error.code if isinstance(error, _Inner) else None
    status = int(code) if isinstance(code, int) or (isinstance(code, str) and code.isdecimal()) else 0
    if not 400 <= status < 600:
        searched = body[:_MAX_SEARCH_CHARS]
        status = next((status for words, status in _NAMED if re.search(words, searched, re.IGNORECASE)), 502)
    return classify_status(name, status, body, headers)


def find_error_in_prose(name: str, text: str) -> ProviderError | None:
    """The error that a text with status 200 reports in words; None for an answer."""
    text = text.strip().replace("\u2019", "'")
    if len(text) > _MAX_PROSE_CHARS:
        return None
    if text.startswith("{"):
        return find_error_in_body(name, text)
    if coded := _CODED.match(text):
        return classify_status(name, int(coded[1]), text)
    lead = _LEAD.match(text)
    begins = lead.end() if lead else 0
    kind = next((kind for kind, words in _PROSE.items() if re.compile("|".join(words), re.IGNORECASE).match(text, begins)), None)
    out_of_reach = kind in {FailureKind.RATE_LIMITED, FailureKind.TRANSIENT}
    return kind and ProviderError(kind, f"{name} said: {_quote(text)}", parse_retry_after({}, text), out_of_reach=out_of_reach)


DISTRUSTED = (
    "its certificate is not trusted here. Set SSL_CERT_FILE, in the server's environment, to the certificate of the authority "
    "that signed it"
)
"""Why a provider is out of reach whose certificate nobody vouches for."""


def unreachable_error(name: str, why: str) -> ProviderError:
    """The error for a connection that failed."""
    return ProviderError(FailureKind.TRANSIENT, f"{name} cannot be reached: {why}.", out_of_reach=True)


def incomplete_answer_error(name: str, why: str) -> ProviderError:
    """The error for an answer that broke off, timed out or cannot be read; the request may be the cause, and may be billed."""
    return ProviderError(FailureKind.TRANSIENT, f"{name} gave no whole answer: {why}.", perhaps_paid=True)


def empty_answer_error(name: str, completion: Completion) -> ProviderError:
    """The error for an answer without text."""
    if not completion.truncated:
        return ProviderError(FailureKind.UNUSABLE_ANSWER, f"{name} answered with nothing.", completion=completion)
    return ProviderError(
        FailureKind.UNUSABLE_ANSWER,
        f"{name} used up the {completion.output_tokens:,} tokens of its answer before any text: "
        "raise CMSERVER_MODEL_CONTEXT_TOKENS, or choose a model that thinks less.",
        completion=completion,
    )


def parse_retry_after(headers: Mapping[str, str], body: str = "") -> float | None:
    """Seconds to wait, by `retry-after-ms`, `retry-after` (seconds or a date), or the body; None if none says."""
    text = headers.get("retry-after-ms", "").strip()
    if re.fullmatch(r"\d{1,9}(?:\.\d+)?", text):
        return float(text) / 1000
    text = headers.get("retry-after", "").strip()
    if re.fullmatch(r"\d{1,7}(?:\.\d+)?", text):
        return float(text)
    try:
        at = parsedate_to_datetime(text)
    except (ValueError, TypeError, OverflowError):  # OverflowError: an impossible year
        return _parse_retry_delay(body)
    return _seconds_until(at.replace(tzinfo=at.tzinfo or UTC).timestamp())


_RETRY_DELAY = re.compile(r'"retryDelay":\s*"(\d{1,7}(?:\.\d+)?)s"')
_TRY_AGAIN = re.compile(
    r"(?:try again|retry) in (?:(\d{1,4})h)?(?:(\d{1,5})m(?!s))?(?:(\d{1,6}(?:\.\d+)?)(ms|s)\b)?", re.IGNORECASE
)
_RESETS_AT = re.compile(r'limit reached\|(\d{10})\b|"X-RateLimit-Reset":\s*"?(\d{10})(?:\d{3})?\b', re.IGNORECASE)


def _parse_retry_delay(body: str) -> float | None:
    """Gemini's RetryInfo, OpenAI's "Please try again in 6m0s", OpenRouter's reset, the `claude` program's second of the reset."""
    if match := _RETRY_DELAY.search(body):
        return float(match[1])
    if (match := _TRY_AGAIN.search(body)) and any(match.groups()):
        hours, minutes, rest, unit = match.groups()
        return int(hours or 0) * 3600 + int(minutes or 0) * 60 + float(rest or 0) / (1000 if unit == "ms" else 1)
    if match := _RESETS_AT.search(body):
        return _seconds_until(float(match[1] or match[2]))
    return None


def _seconds_until(epoch: float) -> float:
    return max(0.0, epoch - _now().timestamp())


def _now() -> datetime:
    return datetime.now(UTC)


def _quote(body: str) -> str:
    """The body's message, or its beginning, in one line and without anything that looks like a key."""
    message = _message(body) or _title(body) or (_NO_MESSAGE if body.lstrip()[:1] in {"{", "["} else body[: _MAX_QUOTE_CHARS * 10])
    line = " ".join(message.split()) or "nothing"
    line = re.sub(r"\b(?:sk|gsk|hf|key|AIza|AQ\.|cms|cmem|cm)[-_A-Za-z0-9*]{12,}", "***", line)
    return line if len(line) <= _MAX_QUOTE_CHARS else f"{line[: _MAX_QUOTE_CHARS - 1]}…"


_NO_MESSAGE = "JSON without a message"
"""Instead of the JSON, which may repeat the request."""


def _title(body: str) -> str | None:
    """The title of a proxy's HTML error page."""
    match = re.search(r"<(title|h1)\b[^>]*>(.{1,200}?)</\1>", body[:_MAX_SEARCH_CHARS], re.IGNORECASE | re.DOTALL)
    return f"a page with the title {match[2].strip()!r}" if match else None


def _message(body: str) -> str | None:
    """The message in {"error": {"message"}}, {"error": "..."}, {"message"}, {"detail"} (Voyage), or passed on by OpenRouter.

    A `detail` that is a list is ignored: it may repeat the request.
    """
    decoded = _decode_body(body)
    inner = decoded.error
    if not isinstance(inner, _Inner):
        return inner or next((text for text in (decoded.message, decoded.detail) if isinstance(text, str)), None)
    raw = inner.metadata.raw if inner.metadata else None
    return f"{inner.message}: {raw}" if isinstance(raw, str) and raw else inner.message


def _decode_body(body: str) -> _Body:
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


def mask_key(text: str, key: str | None) -> str:
    """The text without the key, should a provider repeat it."""
    return text.replace(key, "***") if key else text
