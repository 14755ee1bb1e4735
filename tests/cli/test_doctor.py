"""`cmserver doctor provider`: one real call, over the network of this machine, and a sentence about it."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cmserver.base.errors import CmserverError
from cmserver.cli import doctor
from cmserver.cli.exit_codes import exit_code
from cmserver.cli.main import cli
from cmserver.models.providers.embedding.local import is_installed
from cmserver.models.providers.failures import FAILURE_HELP
from cmserver.models.providers.model import FailureKind, ProviderError, ProviderSettings
from tests.cli.conftest import Said
from tests.models.providers.fake import anthropic as said
from tests.models.providers.fake.server import FakeProvider, Reply, fake_provider, json_reply
from tests.table import try_rows

KEY = "an-own-key-of-nobody-0123456789"


@pytest.fixture
async def fake() -> AsyncGenerator[FakeProvider]:
    async with fake_provider() as fake:
        yield fake


async def ask(tmp_path: Path, *words: str, **environ: str) -> Said:
    others = dict.fromkeys(("CMSERVER_CONFIG", "GEMINI_API_KEY", "OPENAI_API_KEY", "OPENROUTER_API_KEY"), None)
    given: Mapping[str, str | None] = {**others, "CMSERVER_DATA_DIR": str(tmp_path), "ANTHROPIC_API_KEY": KEY, **environ}

    def run() -> Said:
        result = CliRunner().invoke(cli, ["doctor", "provider", *words], env=given)
        if isinstance(result.exception, CmserverError):
            return Said(exit_code(result.exception), result.stdout, f"{result.stderr}cmserver: {result.exception}\n")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Said(result.exit_code, result.stdout, result.stderr)

    return await asyncio.to_thread(run)


async def ask_anthropic(tmp_path: Path, fake: FakeProvider, *words: str, **environ: str) -> Said:
    return await ask(tmp_path, *words, **{"CMSERVER_PROVIDER": "anthropic", "CMSERVER_BASE_URL": fake.url, **environ})


def observed(answer: str, **used: int) -> Reply:
    return json_reply(said.message(said.text(answer), used=said.usage(**used)))


ONE = json.dumps({"observations": [{"events": ["e1", "e2"], "type": "bugfix", "title": "Orders are charged once"}], "skipped": []})


async def test_offline_answers_and_costs_nothing(tmp_path: Path):
    told = await ask(tmp_path)

    assert told.code == 0
    assert re.fullmatch(r"offline \(rules\) answered in \d+\.\d s; the answer was read: \d+ observations?\.\n", told.out), told.out


async def test_a_call_is_told_with_what_it_took(tmp_path: Path, fake: FakeProvider):
    fake.replies = [observed(ONE, input_tokens=900, cache_write=112, output_tokens=96)]

    told = await ask_anthropic(tmp_path, fake)

    assert (told.code, len(fake.asked)) == (0, 1)
    assert re.fullmatch(
        r"anthropic \(claude-haiku-5-5\) answered in \d+\.\d s: 1,012 tokens in, 96 out, about \$0\.\d{4}; "
        r"the answer was read: 1 observation\.\n",
        told.out,
    ), told.out
    assert b"Idempotency-Key" in fake.asked[0].body


async def test_an_answer_that_cannot_be_read_is_no_success(tmp_path: Path, fake: FakeProvider):
    fake.replies = [observed("Certainly! What would you like to know about it?")]

    told = await ask_anthropic(tmp_path, fake)

    assert told.code == 1
    assert "; but it gave an answer that cannot be used (" in told.out


async def test_an_answer_that_says_in_prose_why_it_is_none_is_taken_for_what_it_says(tmp_path: Path, fake: FakeProvider):
    fake.replies = [observed("You've reached your usage limit. It resets at 3pm.")]

    told = await ask_anthropic(tmp_path, fake)

    assert told.code == 1
    assert "; but it has no credit or quota left (anthropic said: You've reached" in told.out


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (401, said.error("authentication_error", f"invalid x-api-key {KEY}"), "refused the key (Anthropic answered 401: "),
        (
            402,
            said.error("billing_error", "Pay."),
            "has no credit or quota left (Anthropic answered 402: ",
        ),
        (404, said.error("not_found_error", "model: claude-nothing"), "does not accept such a request (Anthropic answered 404: "),
        (429, said.error("rate_limit_error", "Slower."), "is limiting the request rate (Anthropic answered 429: "),
        (529, said.error("overloaded_error", "Overloaded"), "gave no answer this time (Anthropic answered 529: "),
    ],
    ids=lambda value: str(value) if isinstance(value, int) else "",
)
async def test_a_refusal_is_told_with_what_helps_and_without_the_key(
    tmp_path: Path, fake: FakeProvider, status: int, body: dict[str, object], words: str
):
    fake.replies = [json_reply(body, status=status)]

    told = await ask_anthropic(tmp_path, fake)

    assert told.code == 1
    assert told.out.startswith(f"anthropic (claude-haiku-5-5) {words}"), told.out
    assert "). What helps: " in told.out
    assert KEY not in told.out + told.err
    if status == 401:
        assert told.out.endswith(
            "check its key: ANTHROPIC_API_KEY, the field Key of the page Model, or --key-file of `cmserver model set`.\n"
        )


async def test_a_whole_chain_is_asked_and_the_worst_decides(tmp_path: Path, fake: FakeProvider):
    fake.replies = [json_reply(said.error("overloaded_error", "Overloaded"), status=529)]

    told = await ask_anthropic(tmp_path, fake, CMSERVER_PROVIDER="anthropic,offline")

    assert told.code == 1
    assert [line.split()[0] for line in told.out.splitlines()] == ["anthropic", "offline"]


async def test_what_is_missing_is_told_and_the_others_are_asked(tmp_path: Path):
    told = await ask(tmp_path, CMSERVER_PROVIDER="anthropic,offline", ANTHROPIC_API_KEY="")

    first, second = told.out.splitlines()
    assert told.code == 2
    assert first.startswith("anthropic cannot be called: ")
    assert second.startswith("offline (rules) answered")


async def test_one_of_the_chain_is_asked_with_its_own_settings(tmp_path: Path, fake: FakeProvider):
    fake.replies = [observed(ONE)]
    chain = {"CMSERVER_PROVIDER": "offline,anthropic", "CMSERVER_MODEL": ",claude-own-1", "CMSERVER_BASE_URL": f",{fake.url}"}

    told = await ask_anthropic(tmp_path, fake, "anthropic", **chain)

    assert told.code == 0, told.out
    assert told.out.startswith("anthropic (claude-own-1) answered in ")
    assert fake.asked[0].json["model"] == "claude-own-1"


async def test_one_that_is_not_chosen_can_be_tried(tmp_path: Path):
    told = await ask(tmp_path, "offline", CMSERVER_PROVIDER="anthropic", CMSERVER_MODEL="claude-own-1", ANTHROPIC_API_KEY="")

    assert told.code == 0, told.out
    assert told.out.startswith("offline (rules) answered")


@pytest.mark.parametrize(
    ("words", "environ", "sentence"),
    [
        (["ofline"], {}, "There is no provider 'ofline'. Did you mean 'offline'?"),
        ([], {"CMSERVER_PROVIDER": "offline,offline"}, "CMSERVER_PROVIDER names offline twice."),
        ([], {"CMSERVER_MODEL": "a,b"}, "CMSERVER_MODEL has 2 entries, more than the 1 in CMSERVER_PROVIDER"),
    ],
    ids=["name", "twice", "models"],
)
async def test_a_wrong_setting_is_a_sentence(tmp_path: Path, words: list[str], environ: dict[str, str], sentence: str):
    told = await ask(tmp_path, *words, **environ)

    assert (told.code, told.out) == (2, "")
    assert sentence in told.err


class Late:
    """A provider that never answers."""

    name = "late"
    model = "none"

    async def complete(self, _prompt: Any) -> Any:
        await asyncio.Event().wait()


async def test_a_provider_that_never_answers_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def load(_given: ProviderSettings) -> Late:
        return Late()

    monkeypatch.setattr(doctor.registry, "load", load)

    told = await ask(tmp_path, CMSERVER_PROVIDER="ollama", CMSERVER_PROVIDER_TIMEOUT_SECONDS="0.1")

    assert told.code == 1
    assert "CMSERVER_PROVIDER_TIMEOUT_SECONDS" in told.out


@try_rows("kind", FailureKind)
def test_every_kind_of_failure_has_a_sentence_that_ends(kind: FailureKind):
    told = doctor.explain_failure("ollama", ProviderError(kind, "It said so."))

    assert kind in FAILURE_HELP
    assert "(It said so). What helps: " in told
    assert "{" not in told


def ask_embedder(tmp_path: Path, **environ: str | None) -> Said:
    unset = dict.fromkeys(
        ("CMSERVER_CONFIG", "CMSERVER_EMBEDDER", "CMSERVER_EMBEDDER_KEY", "VOYAGE_API_KEY", "OPENAI_API_KEY"), None
    )
    result = CliRunner().invoke(cli, ["doctor", "embedder"], env={**unset, "CMSERVER_DATA_DIR": str(tmp_path), **environ})
    code = exit_code(result.exception) if isinstance(result.exception, CmserverError) else result.exit_code
    return Said(code, result.stdout, str(result.exception or ""))


def test_without_an_embedder_there_is_nothing_to_try(tmp_path: Path):
    told = ask_embedder(tmp_path, CMSERVER_EMBEDDER="none")

    assert told.code == 0
    assert "CMSERVER_EMBEDDER is none" in told.out


def test_an_embedder_without_its_key_is_a_setting_that_is_missing(tmp_path: Path):
    told = ask_embedder(tmp_path, CMSERVER_EMBEDDER="voyage")

    assert told.code == 2
    assert "CMSERVER_EMBEDDER_KEY" in told.err


def test_an_embedder_that_is_not_there_is_said_to_be_so(tmp_path: Path):
    told = ask_embedder(tmp_path, CMSERVER_EMBEDDER="ollama", CMSERVER_EMBEDDER_BASE_URL="http://127.0.0.1:9")

    assert told.code == 1
    assert told.out.startswith("ollama (nomic-embed-text) gave no answer this time")


@try_rows("kind", FailureKind, ids=lambda kind: kind.value)
def test_what_helps_an_embedder_is_in_its_own_settings(kind: FailureKind):
    told = doctor.describe_embedder_failure("ollama", ProviderError(kind, "It said so."))

    named = re.findall(r"CMSERVER_\w+", told)
    assert all(name.startswith("CMSERVER_EMBEDDER_") for name in named), told
    assert "(It said so). What helps: " in told


@pytest.mark.skipif(not is_installed(), reason="the embedder local is not installed")
def test_the_local_embedder_makes_vectors(tmp_path: Path):
    told = ask_embedder(tmp_path, CMSERVER_EMBEDDER="local")

    assert (told.code, "vectors of 256 dimensions" in told.out) == (0, True), told
