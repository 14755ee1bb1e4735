"""Gemini's generateContent through real HTTP, against a server that plays its answers and faults."""

from __future__ import annotations

import json
import socket

import msgspec
import pytest

from cmserver.base.errors import Invalid
from cmserver.models.providers.model import Completion, FailureKind, Prompt, Provider, ProviderError, ProviderSettings
from cmserver.models.providers.prompts.render import render
from cmserver.models.providers.prompts.schema import SCHEMAS
from cmserver.models.providers.registry import load
from tests.models.providers.fake import gemini as said
from tests.models.providers.fake.answers import ANSWER, PROMPT, SUMMARY, XML
from tests.models.providers.fake.server import FakeProvider, Reply, json_reply
from tests.timeouts import scaled

KEY = "AIzaSy" + "q" * 33
NO_LEVEL = "Thinking level is not supported for this model."


def provider(fake: FakeProvider, **options: object) -> Provider:
    usual: dict[str, object] = {"name": "gemini", "api_key": KEY, "base_url": f"{fake.url}/v1beta/", "timeout_seconds": 30.0}
    return load(msgspec.convert({**usual, **options}, ProviderSettings))


def ok(*parts: dict[str, object]) -> Reply:
    return json_reply(said.content(*(parts or (said.part(ANSWER),))))


def invalid(words: str) -> Reply:
    return json_reply(said.error(400, "INVALID_ARGUMENT", words), status=400)


async def failure(api: Provider, prompt: Prompt = PROMPT) -> ProviderError:
    with pytest.raises(ProviderError) as failed:
        await api.complete(prompt)
    assert KEY not in str(failed.value)
    return failed.value


def paid(error: ProviderError) -> Completion:
    assert error.completion is not None
    return error.completion


def config(fake: FakeProvider) -> list[dict[str, object]]:
    return [msgspec.convert(request.json["generationConfig"], dict[str, object]) for request in fake.asked]


async def test_a_request_has_the_words_the_schema_and_little_thinking_and_the_key_in_a_header(fake: FakeProvider):
    fake.replies = [ok()]

    completion = await provider(fake, answer_max_tokens=2048).complete(PROMPT)

    [request] = fake.asked
    rendered = render(PROMPT, "json")
    assert (request.method, request.path) == ("POST", "/v1beta/models/gemini-3.5-flash-lite:generateContent")
    assert request.headers["x-goog-api-key"] == KEY
    assert request.json == {
        "systemInstruction": {"parts": [{"text": rendered.system}]},
        "contents": [{"role": "user", "parts": [{"text": rendered.user}]}],
        "generationConfig": {
            "maxOutputTokens": 2048,
            "thinkingConfig": {"thinkingLevel": "low"},
            "responseMimeType": "application/json",
            "responseJsonSchema": SCHEMAS["observations"],
        },
    }
    assert (completion.text, completion.model) == (ANSWER, "gemini-3.5-flash-lite")


async def test_a_summary_is_held_to_its_own_schema(fake: FakeProvider):
    fake.replies = [ok()]

    await provider(fake).complete(SUMMARY)

    assert config(fake)[0]["responseJsonSchema"] == SCHEMAS["summary"]


@pytest.mark.parametrize(
    ("model", "path"),
    [("gemini-3.8-flash", "gemini-3.8-flash"), ("models/gemini-3.8-flash", "gemini-3.8-flash"), ("a/../b?c", "a%2F..%2Fb%3Fc")],
)
async def test_the_model_is_part_of_the_path(fake: FakeProvider, model: str, path: str):
    fake.replies = [ok()]

    await provider(fake, model=model).complete(PROMPT)

    assert fake.asked[0].path == f"/v1beta/models/{path}:generateContent"


@pytest.mark.parametrize("key", [None, "", " \n"])
def test_without_a_key_its_setting_is_named(key: str | None):
    with pytest.raises(Invalid, match="set GEMINI_API_KEY, or GEMINI_API_KEY_FILE"):
        load(ProviderSettings(name="gemini", api_key=key))


async def test_tokens_do_not_overlap_and_thoughts_are_output(fake: FakeProvider):
    used = said.usage(prompt=1000, candidates=70, thoughts=30, cached=600)
    fake.replies = [json_reply(said.content(said.part(ANSWER), used=used))]

    completion = await provider(fake).complete(PROMPT)

    assert (completion.input_tokens, completion.cache_read_tokens, completion.output_tokens) == (400, 600, 100)


@pytest.mark.parametrize("used", [{}, [], {"promptTokenCount": "many"}, {"promptTokenCount": None}], ids=str)
async def test_odd_figures_do_not_cost_the_answer(fake: FakeProvider, used: object):
    fake.replies = [json_reply(said.content(said.part(ANSWER), used=used))]

    completion = await provider(fake).complete(PROMPT)

    assert (completion.text, completion.input_tokens) == (ANSWER, 0)


async def test_thoughts_are_no_part_of_the_answer_and_its_parts_are_joined(fake: FakeProvider):
    fake.replies = [ok(said.thought("<observation> or not?"), said.part(ANSWER[:20]), said.part(ANSWER[20:]))]

    completion = await provider(fake).complete(PROMPT)

    assert completion.text == ANSWER


async def test_an_answer_that_is_cut_is_kept_and_marked(fake: FakeProvider):
    fake.replies = [json_reply(said.content(said.part(ANSWER[:30]), finish_reason="MAX_TOKENS"))]

    completion = await provider(fake).complete(PROMPT)

    assert (completion.text, completion.truncated) == (ANSWER[:30], True)


@pytest.mark.parametrize("reason", ["SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "LANGUAGE", "MODEL_ARMOR"])
async def test_a_candidate_that_is_filtered_is_a_refusal(fake: FakeProvider, reason: str):
    fake.replies = [json_reply(said.content(said.part("I was about to"), finish_reason=reason))]

    error = await failure(provider(fake))

    assert (error.kind, str(error)) == (FailureKind.REFUSED, f"Gemini refused to answer ({reason}).")
    assert (paid(error).text, paid(error).input_tokens) == ("I was about to", 120)


@pytest.mark.parametrize("reason", ["SAFETY", "OTHER", "PROHIBITED_CONTENT", "BLOCKLIST"])
async def test_a_prompt_that_is_blocked_is_a_refusal(fake: FakeProvider, reason: str):
    fake.replies = [json_reply(said.blocked(reason))]

    error = await failure(provider(fake))

    assert (error.kind, paid(error).input_tokens) == (FailureKind.REFUSED, 120)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (said.content(), "answered with nothing"),
        (said.content(finish_reason="MALFORMED_RESPONSE"), "answered with nothing"),
        (said.content(said.part(" \n")), "answered with nothing"),
        (said.content(said.thought(), finish_reason="MAX_TOKENS"), "CMSERVER_MODEL_CONTEXT_TOKENS"),
    ],
    ids=["none", "find_rule_error", "blank", "all-thought"],
)
async def test_an_answer_without_a_word_cannot_be_used_but_is_paid(fake: FakeProvider, body: dict[str, object], words: str):
    fake.replies = [json_reply(body)]

    error = await failure(provider(fake))

    assert error.kind is FailureKind.UNUSABLE_ANSWER
    assert words in str(error)
    assert paid(error).output_tokens == 30


async def test_prose_about_a_limit_with_status_200_is_an_answer(fake: FakeProvider):
    fake.replies = [ok(said.part("Rate limit exceeded. Please try again later."))]

    assert (await provider(fake).complete(PROMPT)).text == "Rate limit exceeded. Please try again later."


PER_MINUTE = "GenerateRequestsPerMinutePerProjectPerModel-FreeTier"


@pytest.mark.parametrize(
    ("reply", "kind", "seconds"),
    [
        (json_reply(said.quota(PER_MINUTE, retry_delay="34s"), status=429, retry_after="40"), FailureKind.RATE_LIMITED, 40),
        (invalid(f"API key not valid: {KEY}. Please pass a valid API key."), FailureKind.AUTH_INVALID, None),
        (json_reply(said.error(404, "NOT_FOUND", "models/x is not found"), status=404), FailureKind.SETUP_REQUIRED, None),
        (json_reply(said.error(503, "UNAVAILABLE", "Overloaded"), status=503, retry_after="2"), FailureKind.TRANSIENT, 2),
        (Reply(status=502, body=b"<html><title>502</title></html>"), FailureKind.TRANSIENT, None),
        (Reply(body=b"<html>Sign in</html>"), FailureKind.SETUP_REQUIRED, None),
        (Reply(body=b'{"candidates": [{'), FailureKind.TRANSIENT, None),
        (json_reply({"usageMetadata": {}}), FailureKind.TRANSIENT, None),
        (json_reply({"candidates": "none"}), FailureKind.TRANSIENT, None),
        (Reply(body=ok().body, stop_after=40), FailureKind.TRANSIENT, None),
        (json_reply(said.error(503, "UNAVAILABLE", "Overloaded")), FailureKind.TRANSIENT, None),
    ],
    ids=[
        "429-with-both", "key", "404", "503", "html", "200-html", "find_rule_error", "no-candidates", "odd", "cut",
        "200-with-503",
    ],
)  # fmt: skip
async def test_a_fault_means(fake: FakeProvider, reply: Reply, kind: FailureKind, seconds: float | None):
    fake.replies = [reply]

    error = await failure(provider(fake))

    assert (error.kind, error.retry_after_seconds, len(fake.asked)) == (kind, seconds, 1)


async def test_an_answer_that_stalls_is_given_up(fake: FakeProvider):
    fake.replies = [Reply(body=ok().body, stall_after=40)]

    error = await failure(provider(fake, timeout_seconds=scaled(0.2)))

    assert (error.kind, error.out_of_reach) == (FailureKind.TRANSIENT, False)


async def test_nobody_who_listens_is_out_of_reach():
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))

        error = await failure(
            load(ProviderSettings(name="gemini", api_key=KEY, base_url=f"http://127.0.0.1:{closed.getsockname()[1]}"))
        )

    assert (error.kind, error.out_of_reach) == (FailureKind.TRANSIENT, True)


@pytest.mark.parametrize(
    "words",
    [
        "Invalid JSON payload received. Unknown name \"responseJsonSchema\" at 'generation_config': Cannot find field.",
        "JSON mode is not enabled for models/gemma-3-27b-it",
        "The specified schema produces a constraint that has too many states for serving.",
    ],
)
async def test_a_model_that_takes_no_schema_is_asked_for_xml_at_once_and_from_then_on(fake: FakeProvider, words: str):
    fake.replies = [invalid(words), ok(said.part(XML)), ok(said.part(XML))]
    api = provider(fake)

    first = await api.complete(PROMPT)
    await api.complete(PROMPT)

    assert first.text == XML
    assert ["responseJsonSchema" in sent for sent in config(fake)] == [True, False, False]
    assert fake.asked[1].json["systemInstruction"] == {"parts": [{"text": render(PROMPT, "xml").system}]}


async def test_a_model_without_levels_of_thinking_is_left_alone(fake: FakeProvider):
    fake.replies = [invalid(NO_LEVEL), ok(), ok()]
    api = provider(fake)

    await api.complete(PROMPT)
    await api.complete(PROMPT)

    assert ["thinkingConfig" in sent for sent in config(fake)] == [True, False, False]
    assert all("responseJsonSchema" in sent for sent in config(fake))


async def test_a_request_that_stays_wrong_is_for_the_operator(fake: FakeProvider):
    fake.replies = [invalid(NO_LEVEL), invalid("schema"), invalid("schema and thinking are still wrong")]

    error = await failure(provider(fake))

    assert (error.kind, len(fake.asked)) == (FailureKind.SETUP_REQUIRED, 3)


async def test_the_player_answers_observations_and_summaries_in_either_form(fake: FakeProvider):
    fake.otherwise = said.play
    item = provider(fake)

    observations, summary = await item.complete(PROMPT), await item.complete(SUMMARY)
    fake.replies = [invalid("schema")]
    in_xml = await item.complete(PROMPT)

    parsed = msgspec.convert(json.loads(observations.text), dict[str, list[dict[str, object]]])
    assert [item["events"] for item in parsed["observations"]] == [["e1"], ["e4"]]
    assert [item["event"] for item in parsed["skipped"]] == ["e2", "e3"]
    assert set(json.loads(summary.text)) == {"summary"}
    assert in_xml.text.count("<observation ") == in_xml.text.count("<skip ") == 2
    assert observations.input_tokens == (len(fake.asked[0].body.decode()) + 3) // 4
