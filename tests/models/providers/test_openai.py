"""Chat Completions through real HTTP, against a server that plays the answers and faults of OpenAI, OpenRouter and others."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
from decimal import Decimal

import msgspec
import pytest

from cmserver.base.errors import Invalid
from cmserver.models.providers.model import (
    MAX_ANSWER_BYTES,
    Completion,
    FailureKind,
    Prompt,
    Provider,
    ProviderError,
    ProviderSettings,
)
from cmserver.models.providers.prompts.render import render
from cmserver.models.providers.prompts.schema import SCHEMAS
from cmserver.models.providers.registry import load
from cmserver.models.providers.table import PROVIDERS
from tests.models.providers.fake import openai as said
from tests.models.providers.fake.answers import ANSWER, PROMPT, SUMMARY, XML
from tests.models.providers.fake.server import FakeProvider, Reply, json_reply
from tests.table import try_rows
from tests.timeouts import scaled

KEY = "sk-proj-" + "q" * 40
NO_SCHEMA = "This response_format type is unavailable now"
NO_MAX_TOKENS = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."


def provider(fake: FakeProvider, **options: object) -> Provider:
    usual: dict[str, object] = {
        "name": "openai",
        "model": "m",
        "api_key": KEY,
        "base_url": f"{fake.url}/v1",
        "timeout_seconds": 30.0,
    }
    return load(msgspec.convert({**usual, **options}, ProviderSettings))


def ok(content: object = ANSWER, **further: object) -> Reply:
    return json_reply(said.completion({**said.message(content), **further}))


async def failure(api: Provider, prompt: Prompt = PROMPT) -> ProviderError:
    with pytest.raises(ProviderError) as failed:
        await api.complete(prompt)
    assert KEY not in str(failed.value)
    return failed.value


def paid(error: ProviderError) -> Completion:
    assert error.completion is not None
    return error.completion


# What is sent


async def test_a_request_has_the_model_the_words_the_schema_and_the_most_tokens(fake: FakeProvider):
    fake.replies = [ok()]

    completion = await provider(fake, answer_max_tokens=2048).complete(PROMPT)

    [request] = fake.asked
    rendered = render(PROMPT, "json")
    assert (request.method, request.path, request.headers["authorization"]) == ("POST", "/v1/chat/completions", f"Bearer {KEY}")
    assert request.json == {
        "model": "m",
        "messages": [{"role": "system", "content": rendered.system}, {"role": "user", "content": rendered.user}],
        "max_tokens": 2048,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "observations", "strict": True, "schema": SCHEMAS["observations"]},
        },
    }
    assert completion.text == ANSWER


async def test_openai_itself_is_asked_its_usual_model_with_little_effort(fake: FakeProvider, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(PROVIDERS, "openai", msgspec.structs.replace(PROVIDERS["openai"], base_url=fake.url))
    fake.replies = [ok()]

    await provider(fake, base_url=None, model=None, answer_max_tokens=2048).complete(PROMPT)

    sent = fake.asked[0].json
    assert (sent["model"], sent["reasoning_effort"], sent["max_completion_tokens"]) == ("gpt-6-luna", "low", 2048)
    assert "max_tokens" not in sent


async def test_a_summary_is_held_to_its_own_schema(fake: FakeProvider):
    fake.replies = [ok('{"summary": {}}')]

    await provider(fake).complete(SUMMARY)

    form = msgspec.convert(fake.asked[0].json["response_format"], dict[str, object])
    assert form["json_schema"] == {"name": "summary", "strict": True, "schema": SCHEMAS["summary"]}


@pytest.mark.parametrize("path", ["/v1", "/v1/", "/gateway/v1//"])
async def test_a_slash_at_the_end_of_the_address_does_no_harm(fake: FakeProvider, path: str):
    fake.replies = [ok()]

    await provider(fake, base_url=fake.url + path).complete(PROMPT)

    assert fake.asked[0].path == f"{path.rstrip('/')}/chat/completions"


async def test_ollama_needs_no_key_and_is_told_not_to_think(fake: FakeProvider):
    fake.replies = [ok()]

    await provider(fake, name="ollama", api_key=None, model="qwen3:8b").complete(PROMPT)

    [request] = fake.asked
    assert "authorization" not in request.headers
    assert (request.json["model"], request.json["reasoning_effort"]) == ("qwen3:8b", "none")


async def test_a_server_of_ones_own_needs_no_key(fake: FakeProvider):
    fake.replies = [ok()]

    await provider(fake, api_key=None).complete(PROMPT)

    assert "authorization" not in fake.asked[0].headers


# What is needed


@try_rows(
    ("options", "words"),
    [
        (ProviderSettings(name="openai"), "set OPENAI_API_KEY"),
        (ProviderSettings(name="openai", api_key="  "), "set OPENAI_API_KEY"),
        (ProviderSettings(name="openai", api_key="sk-1\nsk-2"), "OPENAI_API_KEY has characters that no key has"),
        (
            ProviderSettings(name="openai", base_url="http://127.0.0.1:8000/v1"),
            "set CMSERVER_MODEL (the name under which the server lists it)",
        ),
        (ProviderSettings(name="openrouter", model="m"), "set OPENROUTER_API_KEY"),
        (ProviderSettings(name="openrouter", api_key="k"), "set CMSERVER_MODEL (openai/gpt-6-luna for example"),
        (ProviderSettings(name="ollama"), "set CMSERVER_MODEL (one that `ollama list` shows"),
        (
            ProviderSettings(name="ollama", model="m", base_url="http://[::1"),
            "CMSERVER_BASE_URL holds an address that cannot be used",
        ),
    ],
    ids=str,
)
def test_what_is_missing_is_said_by_the_name_of_its_setting(options: ProviderSettings, words: str):
    with pytest.raises(Invalid) as refused:
        load(options)

    assert words in str(refused.value)
    assert "sk-1" not in str(refused.value)


def test_openai_has_a_usual_model_and_a_key_may_end_with_a_line():
    api = load(ProviderSettings(name="openai", api_key=f"{KEY}\n"))

    assert (api.name, api.model) == ("openai", "gpt-6-luna")


# What comes back


async def test_tokens_do_not_overlap(fake: FakeProvider):
    fake.replies = [
        json_reply(said.completion(said.message(ANSWER), used=said.usage(prompt=1000, completion=70, cached=600, written=300)))
    ]

    completion = await provider(fake).complete(PROMPT)

    assert (completion.input_tokens, completion.cache_read_tokens, completion.cache_write_tokens) == (100, 600, 300)
    assert (completion.output_tokens, completion.cost_usd, completion.model, completion.truncated) == (70, None, "m", False)


@pytest.mark.parametrize(
    ("further", "cost"),
    [
        ({"cost": 0.00014}, Decimal("0.00014")),
        ({"cost": 0}, Decimal(0)),
        ({"cost": 0.00001, "is_byok": True, "cost_details": {"upstream_inference_cost": 0.0002}}, Decimal("0.00021")),
        ({"cost": 0.0002, "is_byok": False, "cost_details": {"upstream_inference_cost": 0.0002}}, Decimal("0.0002")),
    ],
    ids=["paid", "free", "with-a-key-of-ones-own", "not-twice"],
)
async def test_openrouter_says_what_it_cost(fake: FakeProvider, further: dict[str, object], cost: Decimal):
    fake.replies = [json_reply(said.completion(said.message(ANSWER), used={**said.usage(), **further}))]

    completion = await provider(fake, name="openrouter").complete(PROMPT)

    assert completion.cost_usd == cost


@pytest.mark.parametrize("used", [None, {}, [], "free", {"prompt_tokens": 1.5}, {"prompt_tokens": None}], ids=str)
async def test_odd_figures_do_not_cost_the_answer(fake: FakeProvider, used: object):
    body = said.completion(said.message(ANSWER))
    body["usage"] = used
    fake.replies = [json_reply(body)]

    completion = await provider(fake).complete(PROMPT)

    assert (completion.text, completion.input_tokens) == (ANSWER, 0)


@pytest.mark.parametrize(
    "message",
    [
        said.message(ANSWER, reasoning="First I look at e1."),
        said.message(ANSWER, reasoning_content="First I look at e1.", tool_calls=None),
        said.message([{"type": "thinking", "thinking": [{"text": "hm"}]}, {"type": "text", "text": ANSWER}]),
        said.message(f"<think>\nI could write <observation>, hm.\n</think>\n\n{ANSWER}"),
        said.message(f"<thinking>hm</thinking>{ANSWER}"),
        said.message(f"First I look at e1.\n</think>\n{ANSWER}"),
    ],
    ids=["reasoning", "reasoning-content", "parts", "think", "thinking", "end-only"],
)
async def test_thoughts_are_no_part_of_the_answer(fake: FakeProvider, message: dict[str, object]):
    fake.replies = [json_reply(said.completion(message))]

    completion = await provider(fake).complete(PROMPT)

    assert completion.text == ANSWER


@pytest.mark.parametrize(
    "answer", ['{"observations": [{"title": "strip </think>"}]}', "<observation><title></think></title></observation>"]
)
async def test_an_answer_may_speak_of_thoughts(fake: FakeProvider, answer: str):
    fake.replies = [ok(answer)]

    completion = await provider(fake).complete(PROMPT)

    assert completion.text == answer


async def test_an_answer_that_is_cut_is_kept_and_marked(fake: FakeProvider):
    fake.replies = [json_reply(said.completion(said.message(ANSWER[:30]), finish_reason="length"))]

    completion = await provider(fake).complete(PROMPT)

    assert (completion.text, completion.truncated, len(fake.asked)) == (ANSWER[:30], True, 1)


async def test_prose_that_is_cut_is_not_asked_for_again(fake: FakeProvider):
    fake.replies = [json_reply(said.completion(said.message("Here is what I saw:"), finish_reason="length"))]

    completion = await provider(fake).complete(PROMPT)

    assert (completion.truncated, len(fake.asked)) == (True, 1)


async def test_a_refusal_is_kept_with_what_it_cost(fake: FakeProvider):
    fake.replies = [json_reply(said.completion(said.message(None, refusal="I cannot help with that.")))]

    error = await failure(provider(fake))

    assert error.kind is FailureKind.REFUSED
    assert (paid(error).text, paid(error).input_tokens, paid(error).output_tokens) == ("I cannot help with that.", 120, 30)


async def test_a_filter_that_ends_the_answer_is_a_refusal(fake: FakeProvider):
    fake.replies = [json_reply(said.completion(said.message("I was about to"), finish_reason="content_filter"))]

    error = await failure(provider(fake))

    assert (error.kind, paid(error).text) == (FailureKind.REFUSED, "I was about to")


@pytest.mark.parametrize(
    ("content", "reason", "words"),
    [
        (None, "stop", "answered with nothing"),
        ("  \n", "stop", "answered with nothing"),
        ("<think>on and on", "length", "CMSERVER_MODEL_CONTEXT_TOKENS"),
        (None, "tool_calls", "answered with nothing"),
    ],
    ids=["none", "blank", "all-thought", "a-tool"],
)
async def test_an_answer_without_a_word_cannot_be_used_but_is_paid(
    fake: FakeProvider, content: str | None, reason: str, words: str
):
    fake.replies = [json_reply(said.completion(said.message(content), finish_reason=reason))]

    error = await failure(provider(fake))

    assert error.kind is FailureKind.UNUSABLE_ANSWER
    assert words in str(error)
    assert paid(error).output_tokens == 30


async def test_prose_about_a_limit_with_status_200_is_an_answer(fake: FakeProvider):
    fake.replies = [ok("Rate limit exceeded. Please try again in 20s.")] * 2

    assert (await provider(fake).complete(PROMPT)).text == "Rate limit exceeded. Please try again in 20s."


async def test_an_answer_that_talks_about_limits_is_an_answer(fake: FakeProvider):
    answer = '{"observations": [{"title": "Rate limit exceeded is retried"}], "skipped": []}'
    fake.replies = [ok(answer)]

    completion = await provider(fake).complete(PROMPT)

    assert completion.text == answer


# Faults


@pytest.mark.parametrize(
    ("reply", "kind", "seconds"),
    [
        (json_reply(said.error("Rate limit reached"), status=429, retry_after="7"), FailureKind.RATE_LIMITED, 7),
        (json_reply(said.routed_error(403, "Your input was flagged"), status=403), FailureKind.REFUSED, None),
        (said.refused("The model `m` does not exist", status=404, code="model_not_found"), FailureKind.SETUP_REQUIRED, None),
        (json_reply(said.error("slow down"), status=503, retry_after="2"), FailureKind.TRANSIENT, 2),
        (Reply(status=502, body=b"<html><title>502</title></html>"), FailureKind.TRANSIENT, None),
        (Reply(status=302, headers={"location": "http://127.0.0.1:9/"}), FailureKind.SETUP_REQUIRED, None),
        (Reply(body=b"<!doctype html><title>Open WebUI</title>"), FailureKind.SETUP_REQUIRED, None),
        (Reply(body=b'{"choices": [{"message'), FailureKind.TRANSIENT, None),
        (Reply(body=b"[" * 100_000), FailureKind.TRANSIENT, None),
        (json_reply({"choices": []}), FailureKind.TRANSIENT, None),
        (json_reply({"choices": [{"message": {"content": 7}}]}), FailureKind.TRANSIENT, None),
        (Reply(body=ok().body, stop_after=40), FailureKind.TRANSIENT, None),
        (Reply(body=b"", headers={"content-length": "10"}, stop_after=0), FailureKind.TRANSIENT, None),
        (json_reply(said.routed_error(429, "Provider returned error")), FailureKind.RATE_LIMITED, None),
        (json_reply(said.routed_error(502, "Provider returned error")), FailureKind.TRANSIENT, None),
        (json_reply({"error": "Unexpected endpoint or method. (POST /chat/completions)"}), FailureKind.SETUP_REQUIRED, None),
    ],
    ids=[
        "429-with-time", "403-flagged", "404", "503", "html", "302", "200-html", "find_rule_error", "nested", "no-choices",
        "odd", "cut", "cut-at-once", "200-with-429", "200-with-502", "200-with-a-sentence",
    ],
)  # fmt: skip
async def test_a_fault_means(fake: FakeProvider, reply: Reply, kind: FailureKind, seconds: float | None):
    fake.replies = [reply]

    error = await failure(provider(fake))

    assert (error.kind, error.retry_after_seconds, len(fake.asked)) == (kind, seconds, 1)


async def test_an_error_in_the_middle_of_the_answer_is_judged_by_its_code_and_keeps_what_was_paid(fake: FakeProvider):
    broken = said.completion(said.message("{"), finish_reason="error", error={"code": 429, "message": "Provider ran dry"})
    fake.replies = [json_reply(broken), json_reply(said.completion(said.message("{"), finish_reason="error"))]
    api = provider(fake, name="openrouter")

    first, second = await failure(api), await failure(api)

    assert (first.kind, paid(first).output_tokens) == (FailureKind.RATE_LIMITED, 30)
    assert (second.kind, paid(second).output_tokens) == (FailureKind.TRANSIENT, 30)


async def test_a_choice_may_say_that_it_has_no_error(fake: FakeProvider):
    fake.replies = [json_reply(said.completion(said.message(ANSWER), error=None))]

    completion = await provider(fake).complete(PROMPT)

    assert completion.text == ANSWER


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(Reply(body=b" " * (MAX_ANSWER_BYTES + 1)), id="an answer"),
        pytest.param(Reply(status=500, body=b" " * (MAX_ANSWER_BYTES + 1)), id="an error"),
        pytest.param(Reply(headers={"content-encoding": "gzip"}, body=gzip.compress(b" " * 100_000_000)), id="packed"),
    ],
)
async def test_what_is_too_long_is_not_read_to_its_end(fake: FakeProvider, reply: Reply):
    fake.replies = [reply]

    error = await failure(provider(fake))

    assert (error.kind, error.out_of_reach) == (FailureKind.TRANSIENT, False)
    assert str(error).endswith("gave no whole answer: it has more than 8 MB.")


async def test_a_charset_that_is_none_is_of_no_consequence(fake: FakeProvider):
    fake.replies = [msgspec.structs.replace(ok(), headers={"content-type": "application/json; charset=idna"})]

    assert (await provider(fake).complete(PROMPT)).text == ANSWER


async def test_an_answer_that_stalls_is_given_up(fake: FakeProvider):
    fake.replies = [Reply(body=ok().body, stall_after=40)]

    seconds = scaled(0.2)

    error = await failure(provider(fake, timeout_seconds=seconds))

    assert (error.kind, error.out_of_reach) == (FailureKind.TRANSIENT, False)
    assert str(error).endswith(f"gave no whole answer: no more of it came within {seconds:g} seconds.")


async def test_nobody_who_listens_is_said_with_what_to_do():
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/v1"

        error = await failure(load(ProviderSettings(name="ollama", model="m", base_url=url)))

    assert (error.kind, error.out_of_reach) == (FailureKind.TRANSIENT, True)
    assert str(error) == f"Ollama cannot be reached: nothing listens at {url}. Start it, or set CMSERVER_BASE_URL to where it runs."


async def test_a_password_in_the_address_is_not_shown():
    error = await failure(load(ProviderSettings(name="openai", model="m", base_url="http://me:hunter22@127.0.0.1:9/v1")))

    assert "hunter22" not in str(error)


async def test_a_key_of_any_form_is_not_repeated(fake: FakeProvider):
    fake.replies = [said.refused("The token open-sesame is not known here", status=401)]

    error = await failure(provider(fake, api_key="open-sesame"))

    assert str(error) == "The server at CMSERVER_BASE_URL answered 401: The token *** is not known here"


async def test_a_redirection_is_not_followed(fake: FakeProvider):
    fake.replies = [Reply(status=307, headers={"location": f"{fake.url}/elsewhere"})]

    await failure(provider(fake))

    assert [request.path for request in fake.asked] == ["/v1/chat/completions"]


async def test_the_proxy_of_the_environment_is_not_asked_for_this_machine(fake: FakeProvider, monkeypatch: pytest.MonkeyPatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    fake.replies = [ok()]

    completion = await provider(fake).complete(PROMPT)

    assert completion.text == ANSWER


# What a server does not understand


@pytest.mark.parametrize(
    "reply",
    [
        said.refused(NO_SCHEMA),
        said.refused("'response_format.type' : value is not one of the allowed values ['text','json_object']"),
        said.refused("Failed to deserialize the JSON body: unknown variant `json_schema`", status=422),
        json_reply(said.routed_error(404, "No endpoints found that can handle the requested parameters."), status=404),
        json_reply({"error": {"code": 500, "message": "failed to parse grammar"}}, status=500),
        json_reply(said.routed_error(400, "Structured outputs are not supported")),
    ],
    ids=["deepseek", "groq", "422", "openrouter", "llama.cpp", "200"],
)
async def test_a_server_that_takes_no_schema_is_asked_for_xml_at_once_and_from_then_on(fake: FakeProvider, reply: Reply):
    fake.replies = [reply, ok(XML), ok(XML)]
    api = provider(fake)

    first = await api.complete(PROMPT)
    await api.complete(SUMMARY)

    assert first.text == XML
    assert ["response_format" in request.json for request in fake.asked] == [True, False, False]
    rendered = render(PROMPT, "xml")
    assert fake.asked[1].json["messages"] == [
        {"role": "system", "content": rendered.system},
        {"role": "user", "content": rendered.user},
    ]


async def test_a_server_that_ignores_the_schema_is_asked_again_and_both_are_paid(fake: FakeProvider):
    with_cost = said.usage(prompt=100, completion=10, cost=0.001)
    fake.replies = [
        json_reply(said.completion(said.message("Here is what I saw: e1 was routine."), used=with_cost)),
        json_reply(said.completion(said.message(XML), used=with_cost)),
        ok(XML),
    ]
    api = provider(fake)

    first = await api.complete(PROMPT)
    await api.complete(PROMPT)

    assert (first.text, first.input_tokens, first.output_tokens, first.cost_usd) == (XML, 200, 20, Decimal("0.002"))
    assert ["response_format" in request.json for request in fake.asked] == [True, False, False]


async def test_what_was_paid_for_an_ignored_schema_is_kept_when_the_second_answer_fails(fake: FakeProvider):
    fake.replies = [ok("Here is what I saw."), said.refused("Overloaded", status=503)]

    error = await failure(provider(fake))

    assert (error.kind, paid(error).input_tokens) == (FailureKind.TRANSIENT, 120)


@pytest.mark.parametrize("answer", [XML, f"```json\n{ANSWER}\n```"])
async def test_an_answer_that_can_be_read_is_not_asked_for_twice(fake: FakeProvider, answer: str):
    fake.replies = [ok(answer)]

    completion = await provider(fake).complete(PROMPT)

    assert (completion.text, len(fake.asked)) == (answer, 1)


async def test_one_odd_answer_of_a_model_that_takes_the_schema_changes_nothing(fake: FakeProvider):
    fake.replies = [ok(), ok("Nothing to say."), ok()]
    api = provider(fake)

    answers = [(await api.complete(PROMPT)).text for _ in range(3)]

    assert answers == [ANSWER, "Nothing to say.", ANSWER]
    assert all("response_format" in request.json for request in fake.asked)


async def test_the_other_name_of_the_most_tokens_is_tried_once_and_remembered(fake: FakeProvider):
    fake.replies = [said.refused(NO_MAX_TOKENS, param="max_tokens"), ok(), ok()]
    api = provider(fake, answer_max_tokens=777)

    await api.complete(PROMPT)
    await api.complete(PROMPT)

    assert [request.json.get("max_tokens") for request in fake.asked] == [777, None, None]
    assert [request.json.get("max_completion_tokens") for request in fake.asked] == [None, 777, 777]


async def test_a_number_of_tokens_that_no_name_makes_right_is_for_the_operator(fake: FakeProvider):
    too_many = said.refused("max_tokens is too large: this model supports at most 4096; the same goes for max_completion_tokens")
    fake.replies = [too_many, too_many]

    error = await failure(provider(fake))

    assert (error.kind, len(fake.asked)) == (FailureKind.SETUP_REQUIRED, 2)


async def test_a_model_that_does_not_think_is_not_told_how_much(fake: FakeProvider):
    fake.replies = [said.refused('"llama3.2" does not support thinking'), ok(), ok()]
    api = provider(fake, name="ollama")

    await api.complete(PROMPT)
    await api.complete(PROMPT)

    assert ["reasoning_effort" in request.json for request in fake.asked] == [True, False, False]


async def test_calls_at_the_same_time_learn_together(fake: FakeProvider):
    arrived: list[None] = []
    all_here = asyncio.Event()

    async def picky(request: said.Asked) -> Reply:
        arrived.append(None)
        if len(arrived) == 4:
            all_here.set()
        await all_here.wait()
        return said.refused(NO_MAX_TOKENS) if "max_tokens" in request.json else ok()

    fake.otherwise = picky
    api = provider(fake)

    answers = await asyncio.gather(*(api.complete(PROMPT) for _ in range(4)))

    assert [answer.text for answer in answers] == [ANSWER] * 4


# The player


async def test_the_player_answers_observations_and_summaries_in_either_form(fake: FakeProvider):
    fake.otherwise = said.play
    fake.replies = []
    item = provider(fake)

    observations, summary = await item.complete(PROMPT), await item.complete(SUMMARY)
    fake.replies = [said.refused(NO_SCHEMA)]
    in_xml = await provider(fake).complete(PROMPT)

    parsed = msgspec.convert(json.loads(observations.text), dict[str, list[dict[str, object]]])
    assert [item["events"] for item in parsed["observations"]] == [["e1"], ["e4"]]
    assert [item["event"] for item in parsed["skipped"]] == ["e2", "e3"]
    assert set(json.loads(summary.text)) == {"summary"}
    assert in_xml.text.count("<observation ") == in_xml.text.count("<skip ") == 2
    assert observations.input_tokens == (len(fake.asked[0].body.decode()) + 3) // 4
