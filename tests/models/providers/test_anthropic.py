"""Anthropic's provider through its real client library, against a server that plays the API's answers and faults."""

from __future__ import annotations

import gzip
import json
import socket
import traceback
from typing import cast

import msgspec
import pytest

from cmserver.base.errors import Invalid
from cmserver.models.providers.failures import find_error_in_prose
from cmserver.models.providers.model import MAX_ANSWER_BYTES, FailureKind, Prompt, Provider, ProviderError, ProviderSettings
from cmserver.models.providers.prompts.render import render
from cmserver.models.providers.prompts.schema import SCHEMAS
from cmserver.models.providers.registry import load
from tests.models.providers.fake import anthropic as said
from tests.models.providers.fake.answers import ANSWER, SUMMARY
from tests.models.providers.fake.server import FakeProvider, Reply, json_reply
from tests.reading.events import read_call
from tests.timeouts import scaled

KEY = "sk-ant-api03-" + "q" * 40
GATEWAYS_KEY = "looks/like*nothing"
SECRET = "the-payload-nobody-may-quote"
PROMPT = Prompt(
    kind="observations",
    project="orders",
    events=[read_call("Bash", {"command": SECRET}, at=n) for n in range(1, 5)],
)


def provider(fake: FakeProvider, **options: object) -> Provider:
    usual: dict[str, object] = {"name": "anthropic", "api_key": KEY, "base_url": fake.url, "timeout_seconds": 30.0}
    return load(msgspec.convert({**usual, **options}, ProviderSettings))


def ok(*content: dict[str, object]) -> Reply:
    return json_reply(said.message(*content))


async def failure(api: Provider, prompt: Prompt = PROMPT) -> ProviderError:
    with pytest.raises(ProviderError) as failed:
        await api.complete(prompt)
    return failed.value


# What is sent


async def test_a_request_has_the_model_a_cached_system_the_schema_and_low_effort(fake: FakeProvider):
    fake.replies = [ok(said.text(ANSWER))]

    await provider(fake, answer_max_tokens=2048).complete(PROMPT)

    [request] = fake.asked
    rendered = render(PROMPT, "json")
    assert (request.method, request.path) == ("POST", "/v1/messages")
    assert request.json == {
        "model": "claude-haiku-5-5",
        "max_tokens": 2048,
        "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": SCHEMAS["observations"]}},
        "system": [{"type": "text", "text": rendered.system, "cache_control": {"type": "ephemeral"}}],
        "messages": [{"role": "user", "content": rendered.user}],
    }


async def test_a_summary_is_held_to_its_own_schema(fake: FakeProvider):
    fake.replies = [ok(said.text("{}"))]

    await provider(fake).complete(SUMMARY)

    config = cast("dict[str, dict[str, object]]", fake.asked[0].json["output_config"])
    assert config["format"]["schema"] == SCHEMAS["summary"]


async def test_the_operator_chooses_the_model(fake: FakeProvider):
    fake.replies = [ok(said.text(ANSWER))]
    api = provider(fake, model="claude-sonnet-5-5")

    completion = await api.complete(PROMPT)

    assert fake.asked[0].json["model"] == api.model == completion.model == "claude-sonnet-5-5"


async def test_what_is_cached_is_the_same_bytes_from_call_to_call(fake: FakeProvider):
    fake.replies = [ok(said.text(ANSWER)), ok(said.text(ANSWER))]
    api = provider(fake)

    await api.complete(PROMPT)
    await api.complete(msgspec.structs.replace(PROMPT, project="billing", requests=["Something else"]))

    first, second = (request.json for request in fake.asked)
    assert first["messages"] != second["messages"]
    assert json.dumps([first["output_config"], first["system"]]) == json.dumps([second["output_config"], second["system"]])


async def test_key_and_address_are_the_settings_and_never_the_environments(fake: FakeProvider, monkeypatch: pytest.MonkeyPatch):
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.setenv(name, "somebody-elses")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:1")
    fake.replies = [ok(said.text(ANSWER))]

    await provider(fake).complete(PROMPT)

    [request] = fake.asked
    assert KEY in (request.headers.get("authorization", "") + request.headers.get("x-api-key", ""))
    assert "somebody-elses" not in str(request.headers)


def test_without_an_address_it_is_anthropics_whatever_the_environment_says(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:1")

    api = load(ProviderSettings(name="anthropic", api_key=KEY))

    assert str(vars(api)["_client"].base_url).rstrip("/") == "https://api.anthropic.com"


# What it takes to make one


@pytest.mark.parametrize(
    ("options", "words"),
    [
        pytest.param({"api_key": None}, "set ANTHROPIC_API_KEY, or ANTHROPIC_API_KEY_FILE", id="no key"),
        pytest.param({"api_key": " \n"}, "set ANTHROPIC_API_KEY, or ANTHROPIC_API_KEY_FILE", id="blank key"),
        pytest.param({"api_key": "export KEY=hush"}, "ANTHROPIC_API_KEY has characters that no key has", id="a whole line"),
        pytest.param({"api_key": "“hush”"}, "ANTHROPIC_API_KEY has characters that no key has", id="curly quotes"),
        pytest.param({"base_url": "http://[::1"}, "CMSERVER_BASE_URL holds an address that cannot be used", id="no address"),
    ],
)
def test_what_is_missing_or_wrong_is_said_at_the_start(options: dict[str, object], words: str):
    with pytest.raises(Invalid) as refused:
        load(msgspec.convert({"name": "anthropic", "api_key": KEY, **options}, ProviderSettings))

    assert words in str(refused.value)
    assert "hush" not in str(refused.value)


async def test_a_key_from_a_file_may_end_in_a_newline(fake: FakeProvider):
    fake.replies = [ok(said.text(ANSWER))]

    await provider(fake, api_key=f"{KEY}\n").complete(PROMPT)

    assert len(fake.asked) == 1


# What comes back


async def test_text_is_handed_on_as_it_came_with_what_it_cost(fake: FakeProvider):
    used = said.usage(input_tokens=100, output_tokens=20, cache_read=3000, cache_write=400)
    fake.replies = [json_reply(said.message(said.text(ANSWER), used=used))]

    completion = await provider(fake).complete(PROMPT)

    assert completion.text == ANSWER
    assert not completion.truncated
    assert completion.cost_usd is None
    assert (completion.input_tokens, completion.cache_read_tokens, completion.cache_write_tokens) == (100, 3000, 400)
    assert completion.output_tokens == 20


async def test_usage_without_a_word_about_the_cache_counts_as_none(fake: FakeProvider):
    body = said.message(said.text(ANSWER), used={"input_tokens": 7, "output_tokens": 2, "cache_read_input_tokens": None})
    fake.replies = [json_reply(body)]

    completion = await provider(fake).complete(PROMPT)

    assert (completion.input_tokens, completion.cache_read_tokens, completion.cache_write_tokens) == (7, 0, 0)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param([said.thinking("{}"), said.text(ANSWER)], id="thinking first"),
        pytest.param([said.redacted(), said.text(ANSWER)], id="redacted thinking first"),
        pytest.param([said.text(ANSWER[:10]), said.thinking("{}"), said.text(ANSWER[10:])], id="text in two blocks"),
        pytest.param([{"type": "of_next_year", "text": "noise"}, said.text(ANSWER)], id="a block of an unknown type"),
    ],
)
async def test_only_text_blocks_are_the_answer(fake: FakeProvider, content: list[dict[str, object]]):
    fake.replies = [ok(*content)]

    assert (await provider(fake).complete(PROMPT)).text == ANSWER


async def test_an_answer_cut_at_the_most_tokens_is_handed_on_as_truncated(fake: FakeProvider):
    fake.replies = [json_reply(said.max_tokens(said.thinking(), said.text(ANSWER[:30])))]

    completion = await provider(fake).complete(PROMPT)

    assert completion.truncated
    assert completion.text == ANSWER[:30]
    assert completion.output_tokens == 8192


@pytest.mark.parametrize(
    ("body", "kept"),
    [
        pytest.param(said.refusal(said.text("I can't help with that.")), "I can't help with that.", id="with words"),
        pytest.param(said.refusal(explanation="It is about malware."), "It is about malware.", id="explained"),
        pytest.param(said.refusal(category=None), "", id="without a word"),
    ],
)
async def test_a_refusal_is_kept_with_what_it_cost(fake: FakeProvider, body: dict[str, object], kept: str):
    fake.replies = [json_reply(body)]

    error = await failure(provider(fake))

    assert error.kind is FailureKind.REFUSED
    assert error.completion is not None
    assert (error.completion.text, error.completion.input_tokens, error.completion.output_tokens) == (kept, 12, 5)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        pytest.param(said.message(), "answered with nothing", id="nothing"),
        pytest.param(said.message(said.thinking()), "answered with nothing", id="thinking only"),
        pytest.param(said.message(said.text(" \n")), "answered with nothing", id="white space"),
        pytest.param(
            said.max_tokens(said.thinking()),
            "CMSERVER_MODEL_CONTEXT_TOKENS",
            id="thinking to the end",
        ),
    ],
)
async def test_an_answer_without_text_cannot_be_used_but_was_paid(fake: FakeProvider, body: dict[str, object], words: str):
    fake.replies = [json_reply(body)]

    error = await failure(provider(fake))

    assert error.kind is FailureKind.UNUSABLE_ANSWER
    assert words in str(error)
    assert error.completion is not None
    assert error.completion.input_tokens == 12


async def test_a_full_context_window_is_a_prompt_that_is_too_long(fake: FakeProvider):
    fake.replies = [json_reply(said.message(said.text("{"), stop_reason="model_context_window_exceeded"))]

    error = await failure(provider(fake))

    assert error.kind is FailureKind.CONTEXT_TOO_LONG
    assert error.completion is not None
    assert error.completion.text == "{"


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        pytest.param("You've reached your usage limit. It resets at 5pm.", FailureKind.QUOTA_EXHAUSTED, id="usage limit"),
        pytest.param("Your credit balance is too low to continue.", FailureKind.QUOTA_EXHAUSTED, id="no credit"),
        pytest.param("Rate limit exceeded, please slow down.", FailureKind.RATE_LIMITED, id="rate limit"),
    ],
)
async def test_prose_about_limits_comes_back_as_text_and_is_told_by_its_words(fake: FakeProvider, words: str, kind: FailureKind):
    fake.replies = [ok(said.text(words))]

    completion = await provider(fake).complete(PROMPT)

    error = find_error_in_prose("anthropic", completion.text)
    assert completion.text == words
    assert error is not None
    assert error.kind is kind


# What is not supported


@pytest.mark.parametrize("status", [400, 422])
async def test_a_model_without_structured_output_is_asked_for_xml_at_once_and_from_then_on(fake: FakeProvider, status: int):
    fake.replies = [said.refused(said.NO_FORMAT, status=status)]
    fake.otherwise = said.play
    item = provider(fake)

    completion = await item.complete(PROMPT)
    await item.complete(PROMPT)

    refused, *later = (item.json for item in fake.asked)
    assert cast("dict[str, object]", refused["output_config"]).keys() == {"effort", "format"}
    assert [item["output_config"] for item in later] == [{"effort": "low"}] * 2
    assert cast("list[dict[str, object]]", later[0]["system"])[0]["text"] == render(PROMPT, "xml").system
    assert '<observation events="e1">' in completion.text


async def test_a_model_without_effort_keeps_its_schema(fake: FakeProvider):
    fake.replies = [said.refused(said.NO_EFFORT)]
    fake.otherwise = said.play
    api = provider(fake)

    await api.complete(PROMPT)
    await api.complete(PROMPT)

    configs = [cast("dict[str, object]", request.json["output_config"]).keys() for request in fake.asked]
    assert configs == [{"effort", "format"}, {"format"}, {"format"}]


async def test_an_endpoint_that_knows_neither_is_asked_without_both(fake: FakeProvider):
    fake.replies = [said.refused(said.NO_OUTPUT_CONFIG)]
    fake.otherwise = said.play

    completion = await provider(fake).complete(PROMPT)

    assert ["output_config" in request.json for request in fake.asked] == [True, False]
    assert '<skip event="e2"' in completion.text


async def test_one_after_the_other_is_left_out(fake: FakeProvider):
    fake.replies = [said.refused(said.NO_EFFORT), said.refused(said.NO_FORMAT)]
    fake.otherwise = said.play

    await provider(fake).complete(PROMPT)

    assert [set(cast("dict[str, object]", request.json.get("output_config", {}))) for request in fake.asked] == [
        {"effort", "format"},
        {"format"},
        set(),
    ]


async def test_who_goes_on_complaining_is_not_asked_for_ever(fake: FakeProvider):
    fake.replies = [said.refused(said.NO_OUTPUT_CONFIG) for _ in range(9)]

    error = await failure(provider(fake))

    assert error.kind is FailureKind.SETUP_REQUIRED
    assert len(fake.asked) == 2


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        pytest.param("messages: at least one message is required", FailureKind.SETUP_REQUIRED, id="about something else"),
        pytest.param("prompt is too long: the schema takes 300 tokens", FailureKind.CONTEXT_TOO_LONG, id="in passing"),
    ],
)
async def test_another_complaint_changes_nothing(fake: FakeProvider, words: str, kind: FailureKind):
    fake.replies = [said.refused(words), ok(said.text(ANSWER))]
    api = provider(fake)

    error = await failure(api)
    await api.complete(PROMPT)

    assert error.kind is kind
    assert fake.asked[0].json == fake.asked[1].json


# What fails


def _error(status: int, kind: str, words: str, *, code: str | None = None, **headers: str) -> Reply:
    return json_reply(said.error(kind, words, code=code), status=status, **headers)


_RATE = "This request would exceed your organization's rate limit of 50,000 input tokens per minute."
_CREDIT = "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing."


@pytest.mark.parametrize(
    ("reply", "kind", "retry_after", "out_of_reach"),
    [
        pytest.param(_error(429, "rate_limit_error", _RATE, retry_after="17"), "rate_limited", 17.0, True, id="429 seconds"),
        pytest.param(_error(529, "overloaded_error", "Overloaded"), "transient", None, True, id="529"),
        pytest.param(_error(400, "invalid_request_error", _CREDIT), "quota_exhausted", None, False, id="400 no credit"),
        pytest.param(Reply(status=502, body=b"<html>Bad Gateway</html>"), "transient", None, False, id="502 in HTML"),
        pytest.param(Reply(status=529), "transient", None, True, id="529 without a body"),
    ],
)
async def test_each_refusal_is_told_what_the_queue_should_do(
    fake: FakeProvider, reply: Reply, kind: str, retry_after: float | None, out_of_reach: bool
):
    fake.replies = [reply]

    error = await failure(provider(fake))

    assert (error.kind.value, error.retry_after_seconds, error.out_of_reach) == (kind, retry_after, out_of_reach)
    assert f"Anthropic answered {reply.status}: " in str(error)
    assert len(fake.asked) == 1, "the queue retries, not the client"


async def test_events_do_not_follow_a_redirection_to_somewhere_else(fake: FakeProvider):
    fake.replies = [Reply(status=307, headers={"location": f"{fake.url}/elsewhere"})]

    error = await failure(provider(fake))

    assert error.kind is FailureKind.SETUP_REQUIRED
    assert "Anthropic answered 307: " in str(error)
    assert len(fake.asked) == 1


_BODY = json.dumps(said.message(said.text(ANSWER))).encode()
_JSON = {"content-type": "application/json"}
_ZIPPED = {**_JSON, "content-encoding": "gzip"}


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(Reply(headers=_ZIPPED, body=gzip.compress(_BODY)), id="packed"),
        pytest.param(Reply(headers={"content-type": "application/json; charset=idna"}, body=_BODY), id="a charset that is none"),
    ],
)
async def test_an_answer_is_read_however_it_is_sent(fake: FakeProvider, reply: Reply):
    fake.replies = [reply]

    assert (await provider(fake).complete(PROMPT)).text == ANSWER


async def test_an_error_is_read_whatever_charset_it_names(fake: FakeProvider):
    refused = json_reply(said.message(), status=529)
    fake.replies = [msgspec.structs.replace(refused, headers={"content-type": "text/plain; charset=idna"})]

    assert (await failure(provider(fake))).out_of_reach


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(Reply(headers=_JSON, body=_BODY, stop_after=60), id="cut in the body"),
        pytest.param(Reply(headers=_JSON, body=_BODY, stop_after=0), id="cut before the body"),
        pytest.param(Reply(headers=_JSON, body=_BODY[:60]), id="half of the JSON"),
        pytest.param(Reply(headers=_JSON, body=b"{content: []}"), id="no JSON"),
        pytest.param(Reply(headers=_JSON), id="nothing"),
        pytest.param(Reply(headers=_JSON, body=b'{"content": "\xff"}'), id="no UTF-8"),
        pytest.param(Reply(headers=_JSON, body=b'{"id":' + b"[" * 100_000), id="too deep"),
        pytest.param(Reply(headers={**_JSON, "content-encoding": "gzip"}, body=_BODY), id="not the gzip it says"),
        pytest.param(Reply(headers=_JSON, body=b" " * (MAX_ANSWER_BYTES + 1)), id="too long"),
        pytest.param(Reply(status=500, body=b" " * (MAX_ANSWER_BYTES + 1)), id="an error that is too long"),
        pytest.param(Reply(headers=_ZIPPED, body=gzip.compress(b" " * 100_000_000)), id="too long when it is unpacked"),
        pytest.param(Reply(headers={"content-type": "text/html"}, body=b"<html>Log in to the Wi-Fi</html>"), id="a page"),
        pytest.param(json_reply(None), id="null"),
        pytest.param(json_reply([]), id="a list"),
        pytest.param(json_reply({"type": "message"}), id="without content"),
        pytest.param(json_reply({**said.message(), "content": "words"}), id="content that is no list"),
        pytest.param(json_reply(said.message({"type": "text", "text": 5})), id="text that is none"),
    ],
)
async def test_what_is_no_whole_message_is_asked_for_again_later(fake: FakeProvider, reply: Reply):
    fake.replies = [reply]

    error = await failure(provider(fake))

    assert error.kind is FailureKind.TRANSIENT
    assert not error.out_of_reach, "it has looked at the request, and may be paid"
    assert "Anthropic gave no whole answer: " in str(error)


@pytest.mark.parametrize(
    ("kind", "words", "expected"),
    [
        pytest.param("overloaded_error", "Overloaded", FailureKind.TRANSIENT, id="overloaded"),
        pytest.param("billing_error", "No.", FailureKind.QUOTA_EXHAUSTED, id="billing"),
        pytest.param("authentication_error", "No.", FailureKind.AUTH_INVALID, id="authentication"),
    ],
)
async def test_an_error_that_a_gateway_sends_with_status_200_is_told_by_its_words(
    fake: FakeProvider, kind: str, words: str, expected: FailureKind
):
    fake.replies = [json_reply(said.error(kind, words))]

    assert (await failure(provider(fake))).kind is expected


@pytest.mark.parametrize("status", [200, 500])
async def test_a_server_that_falls_silent_in_its_answer_is_not_waited_for_for_ever(fake: FakeProvider, status: int):
    fake.replies = [Reply(status=status, headers=_JSON, body=_BODY, stall_after=60)]

    error = await failure(provider(fake, timeout_seconds=scaled(0.2)))

    assert (error.kind, error.out_of_reach) == (FailureKind.TRANSIENT, False)
    assert "longer than CMSERVER_PROVIDER_TIMEOUT_SECONDS" in str(error)


async def test_a_server_that_is_not_there_is_out_of_reach():
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{nobody.getsockname()[1]}"

        error = await failure(load(ProviderSettings(name="anthropic", api_key=KEY, base_url=address)))

    assert (error.kind, error.out_of_reach) == (FailureKind.TRANSIENT, True)
    assert "Anthropic cannot be reached: " in str(error)


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(_error(401, "authentication_error", f"invalid x-api-key: {GATEWAYS_KEY}"), id="the key"),
        pytest.param(json_reply({"error": f"{GATEWAYS_KEY} is no key"}), id="the key with status 200"),
        pytest.param(json_reply({"detail": [{"msg": "wrong", "input": {"command": SECRET}}]}, status=422), id="the payload"),
        pytest.param(json_reply([SECRET], status=400), id="the payload in a list"),
        pytest.param(json_reply({"detail": {"error": "quota", "messages": [SECRET]}}, status=500), id="the payload in a 500"),
        pytest.param(json_reply({"content": SECRET}), id="the payload with status 200"),
        pytest.param(json_reply({"error": {"detail": {"input": SECRET}}}), id="the payload in an error with status 200"),
    ],
)
async def test_no_message_and_no_traceback_has_the_key_or_the_payload(fake: FakeProvider, reply: Reply):
    fake.replies = [reply]

    error = await failure(provider(fake, api_key=GATEWAYS_KEY))

    shown = "".join(traceback.format_exception(error))
    assert GATEWAYS_KEY not in shown
    assert SECRET not in shown


# The fake itself, which other tests rely on


async def test_the_fake_answers_every_third_event_in_the_form_that_is_asked_for(fake: FakeProvider):
    fake.otherwise = said.play

    completion = await provider(fake).complete(PROMPT)

    answer = json.loads(completion.text)
    assert [item["events"] for item in answer["observations"]] == [["e1"], ["e4"]]
    assert [item["event"] for item in answer["skipped"]] == ["e2", "e3"]
    assert completion.input_tokens == len(fake.asked[0].body.decode()) // 4


async def test_the_fake_sums_up_when_a_summary_is_asked_for(fake: FakeProvider):
    fake.otherwise = said.play

    in_json = await provider(fake).complete(SUMMARY)
    fake.replies = [said.refused(said.NO_FORMAT)]
    in_xml = await provider(fake).complete(SUMMARY)

    assert json.loads(in_json.text)["summary"]["request"] == "What the user asked for"
    assert in_xml.text.startswith("<summary><request>What the user asked for</request>")
