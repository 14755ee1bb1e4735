"""Providers by name: ours, the operator's own, and the sentence for a name that is neither."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pytest

from cmserver.base.errors import Invalid
from cmserver.base.settings import Settings
from cmserver.models.providers import registry
from cmserver.models.providers.model import ProviderSettings, Rules
from cmserver.models.providers.registry import chain, chain_models, load
from tests.table import try_rows


def test_the_rules_have_their_place_in_a_chain(tmp_path: Path):
    assert chain(Settings(data_dir=tmp_path)) == [Rules(name="offline", model="rules")]


def test_a_wrong_name_is_answered_with_the_nearest_right_one():
    with pytest.raises(Invalid) as refused:
        load(ProviderSettings(name="ofline"))

    assert str(refused.value) == (
        "There is no provider 'ofline'. Did you mean 'offline'? Available: anthropic, claude-cli, gemini, offline, ollama, openai, "
        "openrouter, or one of your own as package.module:factory."
    )


def test_the_operators_own_provider_is_loaded_from_its_factory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "house_provider.py").write_text("from tests.rules.as_model import RulesAsModel as make\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])

    assert load(ProviderSettings(name="house_provider:make")).name == "offline"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no_such_house:make", "cannot be loaded: No module named 'no_such_house'."),
        ("string:nothing", "cannot be loaded: module 'string' has no attribute 'nothing'."),
        ("string:digits", "digits() must return an object with `name`, `model` and `complete`."),
        (":make", "cannot be loaded"),
    ],
)
def test_what_is_no_provider_is_refused_with_a_sentence(name: str, words: str):
    with pytest.raises(Invalid, match=r"^The provider ") as refused:
        load(ProviderSettings(name=name))

    assert words in str(refused.value)


def settings(provider: str, **others: str) -> Settings:
    return Settings(data_dir=Path("/nowhere"), provider=provider, **others)  # pyright: ignore[reportArgumentType] - all are texts


def test_a_chain_is_described_without_keys_and_without_its_files():
    models = chain_models(settings("anthropic, openrouter,house:make,offline", model=",some/model"))

    assert [(provider.name, provider.model) for provider in models] == [
        ("anthropic", "claude-haiku-5-5"),
        ("openrouter", "some/model"),
        ("house:make", None),
        ("offline", "rules"),
    ]


@try_rows("name", sorted({*registry.DEFAULT_MODELS} - {"offline"}))
def test_the_usual_model_is_the_one_that_is_asked(name: str):
    assert load(ProviderSettings(name=name, api_key="nobodys-key-0123456789")).model == registry.DEFAULT_MODELS[name]


@try_rows(
    ("options", "words"),
    [
        ({"provider": " , "}, "CMSERVER_PROVIDER names no provider."),
        ({"provider": "offline,offline"}, "CMSERVER_PROVIDER names offline twice."),
        ({"provider": "offline,ofline"}, "There is no provider 'ofline'. Did you mean 'offline'?"),
        ({"provider": "offline", "model": "a,b"}, "CMSERVER_MODEL has 2 entries, more than the 1 in CMSERVER_PROVIDER"),
        ({"provider": "offline", "base_url": "http://a,http://b"}, "CMSERVER_BASE_URL has 2 entries, more than the 1 in"),
    ],
    ids=["none", "twice", "unknown", "models", "addresses"],
)
def test_a_chain_that_is_said_wrongly_is_refused_even_where_nobody_is_asked(options: dict[str, str], words: str):
    for act in (chain, chain_models):
        with pytest.raises(Invalid) as refused:
            act(settings(**options))

        assert words in str(refused.value)


def test_a_missing_key_is_for_those_who_ask():
    wanted = settings("anthropic,offline")

    assert [provider.name for provider in chain_models(wanted)] == ["anthropic", "offline"]
    with pytest.raises(Invalid, match="ANTHROPIC_API_KEY"):
        chain(wanted)


def test_each_provider_of_a_chain_has_its_own_model_and_address():
    first, second = registry.provider_settings(
        settings("anthropic,openai", model="m1,m2", base_url=",http://127.0.0.1:1", anthropic_api_key="k1", openai_api_key="k2")
    )

    assert (first.name, first.model, first.base_url, first.api_key) == ("anthropic", "m1", None, "k1")
    assert (second.name, second.model, second.base_url, second.api_key) == ("openai", "m2", "http://127.0.0.1:1", "k2")
    assert "k1" not in repr(first)


def test_several_providers_stand_in_for_each_other_in_their_order_each_with_its_model_and_address(tmp_path: Path):
    settings = Settings(
        data_dir=tmp_path,
        provider="anthropic, ollama,offline",
        model="claude-sonnet-5-5,llama3.1",
        base_url=",http://127.0.0.1:9/v1",
        anthropic_api_key="sk-ant-of-a-test",
    )

    assert [(provider.name, provider.model) for provider in chain(settings)] == [
        ("anthropic", "claude-sonnet-5-5"),
        ("ollama", "llama3.1"),
        ("offline", "rules"),
    ]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"provider": "offline,offline"}, "CMSERVER_PROVIDER names offline twice."),
        ({"provider": " , "}, "CMSERVER_PROVIDER names no provider."),
        ({"model": "a,b"}, "CMSERVER_MODEL has 2 entries, more than the 1 in CMSERVER_PROVIDER"),
        ({"base_url": "http://a,http://b"}, "CMSERVER_BASE_URL has 2 entries, more than the 1 in CMSERVER_PROVIDER"),
        ({"provider": "offline,anthropic"}, "ANTHROPIC_API_KEY"),
        ({"provider": "gemini"}, "GEMINI_API_KEY"),
        ({"provider": "openrouter", "model": "x/y"}, "OPENROUTER_API_KEY"),
    ],
)
def test_a_chain_that_cannot_be_is_refused_with_the_setting_s_name(tmp_path: Path, options: dict[str, str], words: str):
    with pytest.raises(Invalid) as refused:
        chain(msgspec.structs.replace(Settings(data_dir=tmp_path), **options))

    assert words in str(refused.value)
