"""What a failed call means, by what each provider is known to answer. One row is one answer."""

# ruff: noqa: E501
# A table is read by its columns.

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from cmserver.models.providers import failures
from cmserver.models.providers.failures import (
    classify_status,
    empty_answer_error,
    find_error_in_body,
    find_error_in_prose,
    incomplete_answer_error,
    parse_retry_after,
    unreachable_error,
)
from cmserver.models.providers.model import Completion, FailureKind
from tests.growth import grows_too_fast
from tests.models.providers.fake import anthropic, gemini, openai
from tests.table import try_rows

TRANSIENT = FailureKind.TRANSIENT
RATE = FailureKind.RATE_LIMITED
QUOTA = FailureKind.QUOTA_EXHAUSTED
AUTH = FailureKind.AUTH_INVALID
SETUP = FailureKind.SETUP_REQUIRED
TOO_LONG = FailureKind.CONTEXT_TOO_LONG
REFUSED = FailureKind.REFUSED

NOW = datetime(2026, 11, 22, 12, 0, 0, tzinfo=UTC)
EPOCH = int(NOW.timestamp())


@pytest.fixture(autouse=True)
def _now(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(failures, "_now", lambda: NOW)


def a(kind: str, words: str, code: str | None = None) -> dict[str, object]:
    return anthropic.error(kind, words, code=code)


def o(words: str, kind: str = "invalid_request_error", code: str | None = None) -> dict[str, object]:
    return openai.error(words, kind=kind, code=code)


def g(code: int, status: str, words: str, **info: str) -> dict[str, object]:
    details: list[dict[str, object]] = [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", **info}] if info else []
    return gemini.error(code, status, words, *details)


def r(code: int, words: str, **metadata: object) -> dict[str, object]:
    return openai.routed_error(code, words, **metadata)


NGINX = "<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body><center><h1>502 Bad Gateway</h1></center></body></html>"
Body = dict[str, object] | list[dict[str, object]] | str
Headers = dict[str, str]
Row = tuple[str, int, Body, Headers, FailureKind, float | None, bool]

# who, status, body, headers -> kind, seconds to wait, out of reach
TABLE: list[Row] = [
    # Anthropic
    ("anthropic", 400, a("invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum"), {}, TOO_LONG, None, False),
    ("anthropic", 400, a("invalid_request_error", "Your credit balance is too low to access the Anthropic API."), {}, QUOTA, None, False),
    ("anthropic", 400, a("invalid_request_error", "You have reached your specified API usage limits. You will regain access on 2026-12-01 at 00:00 UTC."), {}, QUOTA, None, False),
    ("anthropic", 400, a("invalid_request_error", "You have reached your specified workspace API usage limits."), {}, QUOTA, None, False),
    ("anthropic", 400, a("invalid_request_error", "This organization has been disabled."), {}, AUTH, None, False),
    ("anthropic", 400, a("invalid_request_error", "max_tokens: 500000 > 64000, which is the maximum allowed"), {}, SETUP, None, False),
    ("anthropic", 400, a("invalid_request_error", "Slow.", "request_body_timeout"), {}, TRANSIENT, None, False),
    ("anthropic", 401, a("authentication_error", "invalid x-api-key"), {}, AUTH, None, False),
    ("anthropic", 402, a("billing_error", "There is an issue with your billing."), {}, QUOTA, None, False),
    ("anthropic", 403, a("permission_error", "Your API key does not have permission to use the specified resource."), {}, AUTH, None, False),
    ("anthropic", 404, a("not_found_error", "model: claude-haiku-9"), {}, SETUP, None, False),
    ("anthropic", 409, a("conflict_error", "Another request is at it."), {}, TRANSIENT, None, False),
    ("anthropic", 413, a("request_too_large", "Request exceeds the maximum size"), {}, TOO_LONG, None, False),
    ("anthropic", 429, a("rate_limit_error", "This request would exceed your organization's rate limit of 50,000 input tokens per minute."), {"retry-after": "17"}, RATE, 17, True),
    ("anthropic", 429, a("rate_limit_error", "Number of request tokens has exceeded your per-minute rate limit"), {}, RATE, None, True),
    ("anthropic", 429, a("rate_limit_error", "You have reached your monthly limit.", "enforced_spend_limit_reached"), {}, QUOTA, None, False),
    ("anthropic", 500, a("api_error", "Internal server error"), {}, TRANSIENT, None, False),
    ("anthropic", 504, a("timeout_error", "Request timed out"), {}, TRANSIENT, None, False),
    ("anthropic", 529, a("overloaded_error", "Overloaded"), {}, TRANSIENT, None, True),
    # OpenAI, and Azure's
    ("openai", 400, o("This model's maximum context length is 128000 tokens. However, your messages resulted in 140000 tokens.", code="context_length_exceeded"), {}, TOO_LONG, None, False),
    ("openai", 400, o("Invalid 'messages[1].content': string too long. Expected a string with maximum length 10485760.", code="string_above_max_length"), {}, TOO_LONG, None, False),
    ("openai", 400, o("Unsupported parameter: 'max_tokens' is not supported with this model."), {}, SETUP, None, False),
    ("openai", 400, o("Invalid prompt: your prompt was flagged as potentially violating our usage policy.", code="invalid_prompt"), {}, REFUSED, None, False),
    ("azure", 400, o("The response was filtered due to the prompt triggering Azure OpenAI's content management policy.", code="content_filter"), {}, REFUSED, None, False),
    ("openai", 401, o("Incorrect API key provided: sk-proj-abc.", code="invalid_api_key"), {}, AUTH, None, False),
    ("openai", 403, o("Country, region, or territory not supported", code="unsupported_country_region_territory"), {}, SETUP, None, False),
    ("openai", 404, o("The model `gpt-9` does not exist or you do not have access to it.", code="model_not_found"), {}, SETUP, None, False),
    ("openai", 429, o("You exceeded your current quota, please check your plan and billing details.", "insufficient_quota", "insufficient_quota"), {}, QUOTA, None, False),
    ("openai", 429, o("No credits left.", "insufficient_quota", "credit_balance_exhausted"), {}, QUOTA, None, False),
    ("openai", 429, o("The limit is reached.", "billing", "project_spend_limit_exceeded"), {}, QUOTA, None, False),
    ("openai", 429, o("The limit is reached.", "billing", "organization_usage_limit_exceeded"), {}, QUOTA, None, False),
    ("openai", 429, o("Your account is not active, please check your billing details.", "billing_not_active", "billing_not_active"), {}, QUOTA, None, False),
    ("openai", 429, o("Rate limit reached for gpt-6-luna in organization org-x on tokens per min (TPM): Limit 200000, Used 198000. Please try again in 1.5s.", "tokens", "rate_limit_exceeded"), {}, RATE, 1.5, True),
    ("openai", 429, o("Rate limit reached for gpt-6-luna on requests per day (RPD): Limit 200, Used 200. Please try again in 7m12s.", "requests", "rate_limit_exceeded"), {}, RATE, 432, True),
    ("openai", 429, o("Rate limit reached. Please try again in 859ms.", "requests", "rate_limit_exceeded"), {}, RATE, 0.859, True),
    ("openai", 429, o("Rate limit reached. Please try again in 20s.", "requests", "rate_limit_exceeded"), {"retry-after-ms": "20500", "retry-after": "21"}, RATE, 20.5, True),
    ("openai", 429, o("Request too large for gpt-6-luna on tokens per min (TPM): Limit 30000, Requested 62000.", "tokens", "rate_limit_exceeded"), {}, TOO_LONG, None, False),
    ("openai", 500, o("The server had an error while processing your request.", "server_error"), {}, TRANSIENT, None, False),
    ("openai", 503, o("That model is currently overloaded with other requests.", "service_unavailable_error", "server_is_overloaded"), {}, TRANSIENT, None, True),
    ("xai", 500, o("The service is currently over capacity.", "server_error"), {}, TRANSIENT, None, True),
    # Gemini
    ("gemini", 400, g(400, "INVALID_ARGUMENT", "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."), {}, TOO_LONG, None, False),
    ("gemini", 400, g(400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key.", reason="API_KEY_INVALID"), {}, AUTH, None, False),
    ("gemini", 400, g(400, "INVALID_ARGUMENT", "API key expired. Please renew the API key."), {}, AUTH, None, False),
    ("gemini", 400, g(400, "FAILED_PRECONDITION", "User location is not supported for the API use."), {}, SETUP, None, False),
    ("gemini", 402, g(402, "RESOURCE_EXHAUSTED", "Your prepay credit balance is depleted."), {}, QUOTA, None, False),
    ("gemini", 403, g(403, "PERMISSION_DENIED", "Your API key was reported as leaked. Please use another API key."), {}, AUTH, None, False),
    ("gemini", 403, g(403, "PERMISSION_DENIED", "Generative Language API has not been used in project 123 before or it is disabled.", reason="SERVICE_DISABLED"), {}, SETUP, None, False),
    ("gemini", 404, g(404, "NOT_FOUND", "models/gemini-1.0-pro is not found for API version v1beta"), {}, SETUP, None, False),
    ("gemini", 429, gemini.quota("GenerateRequestsPerMinutePerProjectPerModel-FreeTier", retry_delay="34s"), {}, RATE, 34, True),
    ("gemini", 429, gemini.quota("GenerateContentInputTokensPerModelPerMinute-FreeTier", retry_delay="34.074824224s"), {}, RATE, 34.074824224, True),
    ("gemini", 429, gemini.quota("GenerateRequestsPerDayPerProjectPerModel-FreeTier", retry_delay="34s"), {}, QUOTA, 34, False),
    ("gemini", 429, gemini.quota("GenerateRequestsPerMinutePerProjectPerModel", "GenerateRequestsPerDayPerProjectPerModel"), {}, QUOTA, None, False),
    ("gemini", 429, g(429, "RESOURCE_EXHAUSTED", "You exceeded your current quota. * Quota exceeded for metric: generate_content_free_tier_requests, limit: 0"), {}, QUOTA, None, False),
    ("gemini", 429, g(429, "RESOURCE_EXHAUSTED", "You exceeded your current quota, please check your plan and billing details."), {}, QUOTA, None, False),
    ("gemini", 429, g(429, "RESOURCE_EXHAUSTED", "Your project has exceeded its monthly spending cap."), {}, QUOTA, None, False),
    ("gemini", 429, g(429, "RESOURCE_EXHAUSTED", "Resource has been exhausted (e.g. check quota)."), {}, RATE, None, True),
    ("gemini", 499, g(499, "CANCELLED", "The operation was cancelled."), {}, TRANSIENT, None, False),
    ("gemini", 500, g(500, "INTERNAL", "An internal error has occurred."), {}, TRANSIENT, None, False),
    ("gemini", 503, g(503, "UNAVAILABLE", "The model is overloaded. Please try again later."), {}, TRANSIENT, None, True),
    ("gemini", 504, g(504, "DEADLINE_EXCEEDED", "Deadline expired before operation could complete."), {}, TRANSIENT, None, False),
    # OpenRouter
    ("openrouter", 400, r(400, "google/gemini-9 is not a valid model ID"), {}, SETUP, None, False),
    ("openrouter", 400, r(400, "This endpoint's maximum context length is 32768 tokens. However, you requested about 41000 tokens"), {}, TOO_LONG, None, False),
    ("openrouter", 401, r(401, "No auth credentials found"), {}, AUTH, None, False),
    ("openrouter", 402, r(402, "This request requires more credits, or fewer max_tokens. You requested up to 8192 tokens, but can only afford 512."), {}, QUOTA, None, False),
    ("openrouter", 402, r(402, "Too much is in flight.", limit_source="openrouter_in_flight_budget"), {"retry-after": "3"}, RATE, 3, True),
    ("openrouter", 403, r(403, "Your input was flagged", reasons=["violence"], provider_name="OpenAI"), {}, REFUSED, None, False),
    ("openrouter", 403, r(403, "Key limit exceeded (daily limit). Manage it using https://openrouter.ai/settings/keys"), {}, QUOTA, None, False),
    ("openrouter", 404, r(404, "No endpoints found matching your data policy"), {}, SETUP, None, False),
    ("openrouter", 408, r(408, "Your request timed out"), {}, TRANSIENT, None, False),
    ("openrouter", 429, r(429, "Provider returned error", raw="qwen/qwen3:free is temporarily rate-limited upstream."), {}, RATE, None, True),
    ("openrouter", 429, r(429, "Rate limit exceeded: free-models-per-day.", headers={"X-RateLimit-Limit": "50", "X-RateLimit-Reset": f"{EPOCH + 3600}000"}), {}, QUOTA, 3600, False),
    ("openrouter", 429, r(429, "Rate limit exceeded: free-models-per-min.", headers={"X-RateLimit-Reset": f"{EPOCH + 20}000"}), {}, RATE, 20, True),
    ("openrouter", 502, r(502, "Provider returned error"), {}, TRANSIENT, None, False),
    ("openrouter", 503, r(503, "No available model provider meets your routing requirements"), {"retry-after": "5"}, TRANSIENT, 5, True),
    # Ollama, vLLM, llama.cpp, LM Studio
    ("ollama", 404, o('model "qwen9" not found, try pulling it first', "api_error"), {}, SETUP, None, False),
    ("ollama", 400, {"error": "prompt too long; exceeded max context length by 812 tokens"}, {}, TOO_LONG, None, False),
    ("ollama", 500, o("model requires more system memory (8.4 GiB) than is available (5.2 GiB)", "api_error"), {}, SETUP, None, False),
    ("ollama", 500, o("llama runner process has terminated: exit status 2", "api_error"), {}, TRANSIENT, None, False),
    ("ollama", 503, o("server busy, please try again. maximum pending requests exceeded", "api_error"), {}, TRANSIENT, None, True),
    ("vllm", 400, {"object": "error", "message": "This model's maximum context length is 4096 tokens. However, you requested 12000 tokens", "type": "BadRequestError", "code": 400}, {}, TOO_LONG, None, False),
    ("llama.cpp", 400, {"error": {"code": 400, "message": "the request exceeds the available context size, try increasing it", "type": "exceed_context_size_error"}}, {}, TOO_LONG, None, False),
    ("lm-studio", 400, {"error": "Trying to keep the first 5001 tokens when context the overflows. However, the model is loaded with context length of only 4096 tokens"}, {}, TOO_LONG, None, False),
    ("deepseek", 402, o("Insufficient Balance", "unknown_error", "invalid_request_error"), {}, QUOTA, None, False),
    # What stands between
    ("proxy", 301, "", {"location": "https://elsewhere.example/"}, SETUP, None, False),
    ("proxy", 404, "<html><title>404 Not Found</title></html>", {}, SETUP, None, False),
    ("proxy", 413, "<html><title>413 Request Entity Too Large</title></html>", {}, TOO_LONG, None, False),
    ("proxy", 502, NGINX, {}, TRANSIENT, None, False),
    ("proxy", 503, NGINX, {"retry-after": "Sun, 22 Nov 2026 12:02:00 GMT"}, TRANSIENT, 120, True),
    ("proxy", 524, "error code: 524", {}, TRANSIENT, None, False),
    ("proxy", 429, "", {"retry-after": "soon"}, RATE, None, True),
    ("proxy", 204, "", {}, TRANSIENT, None, False),
]  # fmt: skip


@try_rows(
    ("name", "status", "body", "headers", "kind", "seconds", "out_of_reach"),
    TABLE,
    ids=[f"{place}-{row[0]}-{row[1]}" for place, row in enumerate(TABLE)],
)
def test_an_answer_with_an_error_status_means(
    name: str, status: int, body: Body, headers: Headers, kind: FailureKind, seconds: float | None, out_of_reach: bool
):
    error = classify_status(name, status, body if isinstance(body, str) else json.dumps(body), headers)

    assert (error.kind, error.retry_after_seconds, error.out_of_reach) == (kind, seconds, out_of_reach)
    assert str(error).startswith(f"{name} answered {status}: ")


CLAUDE = "claude-cli"
PROSE: list[tuple[str, FailureKind, float | None]] = [
    ("You've hit your limit · resets 3pm", QUOTA, None),
    ("You’ve hit your limit · resets May 5 at 9pm (America/New_York)", QUOTA, None),  # noqa: RUF001
    ("You've hit your session limit · resets 6:50am (America/New_York)", QUOTA, None),
    ("You've hit your limit for Claude messages. Limits will reset at 9:30 AM.", QUOTA, None),
    ("You've hit your org's monthly spend limit", QUOTA, None),
    ("You've reached your weekly limit ∙ resets Oct 6, 9am", QUOTA, None),
    ("You have reached your specified API usage limits. You will regain access on 2026-12-01 at 00:00 UTC.", QUOTA, None),
    (f"Claude AI usage limit reached|{EPOCH + 1800}", QUOTA, 1800),
    ("Claude usage limit reached. Your limit will reset at 5pm (Europe/Warsaw).", QUOTA, None),
    ("5-hour limit reached ∙ resets 3pm", QUOTA, None),
    ("Opus weekly limit reached ∙ resets Oct 6", QUOTA, None),
    ("Spending cap reached resets 5pm", QUOTA, None),
    ("You're out of extra usage · resets 4pm (Europe/Paris)", QUOTA, None),
    ("Credit balance is too low", QUOTA, None),
    ("Invalid API key · Please run /login", AUTH, None),
    ("Not logged in · Please run /login", AUTH, None),
    ("OAuth token has expired · Please run /login", AUTH, None),
    ("Your organization has been disabled", AUTH, None),
    ('Failed to authenticate. API Error: 401 {"type":"error"}', AUTH, None),
    ('API Error: 401 {"type":"error","error":{"type":"authentication_error","message":"OAuth token has expired."}}', AUTH, None),
    ("API Error: Request rejected (429) · this may be a temporary capacity issue.", RATE, None),
    ('API Error: 529 {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}', TRANSIENT, None),
    ("API Error (500 Internal server error)", TRANSIENT, None),
    ("API Error: Rate limit reached", RATE, None),
    ("API Error: Connection error.", TRANSIENT, None),
    ("Rate limit exceeded. Please try again in 20s.", RATE, 20),
    ("Too many requests, please slow down.", RATE, None),
    ("**Error:** Rate limit reached for requests", RATE, None),
    ("Prompt is too long", TOO_LONG, None),
    ("The model is currently overloaded. Please try again later.", TRANSIENT, None),
    ("Service temporarily unavailable.", TRANSIENT, None),
    ('{"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}', TRANSIENT, None),
    ('{"error": {"code": "insufficient_quota", "message": "You exceeded your current quota."}}', QUOTA, None),
]


@try_rows(("text", "kind", "seconds"), PROSE, ids=[str(place) for place in range(len(PROSE))])
def test_an_answer_may_say_in_words_that_there_is_none(text: str, kind: FailureKind, seconds: float | None):
    error = find_error_in_prose(CLAUDE, text)

    assert error is not None
    assert (error.kind, error.retry_after_seconds) == (kind, seconds)


NO_FAILURES = [
    "",
    "Nothing worth recording.",
    "The client now waits when the rate limit is exceeded; nothing else changed.",
    "Rate limit reached handling was added to the HTTP client, with tests.",
    "Error handling for 404 and 500 was added to the router.",
    "Error 429 is retried with backoff from now on.",
    "I looked at how the usage limit is computed: the session limit resets at midnight.",
    "The user asked why 'You've hit your limit' is shown. It comes from the quota middleware.",
    "`Too many requests` is the text of the 429 page.",
    "This session moved the API key check: an invalid API key is now answered with 401.",
    "You've hit your stride with this refactoring; nothing to record.",
    "The service is unavailable in staging because the port was wrong; fixed.",
    '<observation events="e1"><title>Rate limit exceeded is retried</title></observation>',
    '<skip event="e1" reason="Credit balance is too low was only printed"/>',
    '{"observations": [{"title": "Handle rate_limit_error and overloaded_error"}], "skipped": []}',
    '{"observations": [], "error": null}',
    '{"summary": {"learned": "insufficient_quota means no credit"}}',
    "Rate limit exceeded. " + "The story of the day follows. " * 60,
]


@try_rows("text", NO_FAILURES, ids=[str(place) for place in range(len(NO_FAILURES))])
def test_an_answer_that_only_talks_about_limits_is_no_failure(text: str):
    assert find_error_in_prose(CLAUDE, text) is None


IN_BODY: list[tuple[Body, FailureKind | None]] = [
    (r(429, "Provider returned error"), RATE),
    (r(402, "Insufficient credits"), QUOTA),
    (r(502, "Provider returned error"), TRANSIENT),
    ({"error": {"code": "429", "message": "slow down"}}, RATE),
    ({"error": {"code": "rate_limit_exceeded", "message": "slow down"}}, RATE),
    ({"error": {"code": "insufficient_quota", "message": "no money"}}, QUOTA),
    ({"error": {"code": "invalid_api_key", "message": "who are you"}}, AUTH),
    ({"error": {"code": 1302, "message": "something"}}, TRANSIENT),
    ({"error": {}}, TRANSIENT),
    ({"error": "Unexpected endpoint or method. (POST /chat/completions)"}, SETUP),
    ([r(429, "x")], RATE),
    ({"choices": []}, None),
    ({"choices": [], "error": None}, None),
    ({"choices": [], "error": ""}, None),
    ("no JSON", None),
    ("[" * 100_000, None),
]


@try_rows(("body", "kind"), IN_BODY, ids=[str(place) for place in range(len(IN_BODY))])
def test_an_error_may_come_with_status_200(body: Body, kind: FailureKind | None):
    error = find_error_in_body("openrouter", body if isinstance(body, str) else json.dumps(body), {})

    assert (error.kind if error else None) == kind


@try_rows(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "0"}, 0),
        ({"retry-after": " 12 "}, 12),
        ({"retry-after": "2.5"}, 2.5),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "99999999999"}, None),
        ({"retry-after": "Fri, 31 Dec 99999999999 23:59:59 GMT"}, None),
        ({"retry-after": "Sun, 22 Nov 2026 11:00:00 GMT"}, 0),
        ({"retry-after": "Sun, 22 Nov 2026 12:00:30 GMT"}, 30),
        ({"retry-after-ms": "1500"}, 1.5),
        ({"retry-after-ms": "x", "retry-after": "3"}, 3),
    ],
    ids=str,
)
def test_how_long_to_wait_is_read_from_the_headers(headers: Headers, seconds: float | None):
    assert parse_retry_after(headers) == seconds


def test_the_header_is_believed_before_the_body():
    assert parse_retry_after({"retry-after": "5"}, "Please try again in 20s.") == 5


@pytest.mark.parametrize(
    "key", ["sk-proj-abcdefghijklmnop", "AIzaSyA1234567890abcdef", "sk-or-v1-0123456789abcdef", "gsk_0123456789abcdef"]
)
def test_a_key_that_is_repeated_is_not_quoted(key: str):
    error = classify_status("openai", 401, json.dumps(o(f"Incorrect API key provided: {key}. Find yours at ...")))

    assert str(error) == "openai answered 401: Incorrect API key provided: ***. Find yours at ..."


def test_what_a_page_says_is_quoted_by_its_title_and_what_is_long_in_part():
    assert str(classify_status("proxy", 502, NGINX)) == "proxy answered 502: a page with the title '502 Bad Gateway'"
    assert str(classify_status("proxy", 500, "")) == "proxy answered 500: nothing"
    assert len(str(classify_status("proxy", 500, "x y " * 10_000))) < 350


def test_what_openrouter_passes_on_is_quoted():
    error = classify_status("OpenRouter", 429, json.dumps(r(429, "Provider returned error", raw="qwen is busy")))

    assert str(error) == "OpenRouter answered 429: Provider returned error: qwen is busy"


def test_no_connection_is_out_of_reach_and_a_broken_answer_is_not():
    assert unreachable_error("x", "no connection").out_of_reach
    assert not incomplete_answer_error("x", "it broke off").out_of_reach


def test_an_answer_without_a_word_says_what_to_do_when_it_was_cut():
    whole = empty_answer_error("Gemini", Completion(text="", model="m"))
    cut = empty_answer_error("Gemini", Completion(text="", model="m", output_tokens=8192, truncated=True))

    assert whole.kind is cut.kind is FailureKind.UNUSABLE_ANSWER
    assert "CMSERVER_MODEL_CONTEXT_TOKENS" in str(cut)
    assert cut.completion is not None


@pytest.mark.speed
@pytest.mark.parametrize("unit", ["You've hit your a ", "a ", "limit ", "try again in ", "{", "resets at "])
def test_work_grows_no_faster_than_a_hostile_body(unit: str):
    assert not grows_too_fast(lambda text: find_error_in_prose("x", text), unit)
    assert not grows_too_fast(lambda text: classify_status("x", 429, text), unit)
