"""Embedders by name, as the settings choose them; and what is installed for the local one."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import msgspec
import pytest

from cmserver.base.errors import Invalid
from cmserver.base.settings import Settings
from cmserver.models.providers.embedding import local, minilm, registry
from cmserver.models.providers.embedding.model import EmbedderSettings
from cmserver.models.providers.embedding.registry import embedder_key, embedder_settings, make
from tests.table import try_rows

ROOT = Path(__file__).parents[4]


def settings(**others: object) -> Settings:
    return msgspec.structs.replace(Settings(data_dir=Path("/nowhere")), **others)


def chosen_of(**others: object) -> EmbedderSettings:
    chosen = embedder_settings(settings(**others))
    assert chosen is not None
    return chosen


@pytest.mark.parametrize(("installed", "provider"), [(True, "local"), (False, None)])
def test_auto_is_local_where_that_is_installed(monkeypatch: pytest.MonkeyPatch, installed: bool, provider: str | None):
    monkeypatch.setattr(registry, "is_installed", lambda: installed)

    chosen = embedder_settings(settings())

    assert (chosen and chosen.provider) == provider


def test_none_is_none():
    assert embedder_settings(settings(embedder="none")) is None


def test_local_is_chosen_where_it_was_named_though_it_is_not_installed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(registry, "is_installed", lambda: False)

    assert chosen_of(embedder="local").provider == "local"


def test_what_the_settings_say_is_handed_down():
    chosen = chosen_of(
        embedder="openai",
        embedder_model="m",
        embedder_base_url="http://127.0.0.1:1/v1",
        openai_api_key="k1",
        embedder_key="k3",
        provider_timeout_seconds=7.0,
    )

    assert chosen == EmbedderSettings(
        provider="openai", model="m", base_url="http://127.0.0.1:1/v1", api_key="k3", timeout_seconds=7.0
    )


def test_no_dimensions_leave_it_to_the_model():
    assert chosen_of(embedder="ollama").dimensions is None


def test_each_has_its_own_key():
    both = settings(embedder="voyage", openai_api_key="k1", embedder_key="k2")

    assert [embedder_key(both, name, None) for name in ("local", "ollama", "openai", "voyage")] == [None, None, "k1", "k2"]


def test_the_key_of_voyage_counts_for_its_vectors_whatever_is_chosen(monkeypatch: pytest.MonkeyPatch):
    """They are searched until the other embedder has embedded everything."""
    monkeypatch.setenv("VOYAGE_API_KEY", "pa-1")

    assert embedder_key(settings(embedder="openai", embedder_key="k2"), "voyage", None) == "pa-1"
    assert embedder_key(settings(embedder="voyage", embedder_key="k2"), "voyage", None) == "k2"
    assert embedder_key(settings(embedder="openai"), "voyage", "http://127.0.0.1:1/v1") is None
    monkeypatch.setenv("VOYAGE_API_KEY", "")
    assert embedder_key(settings(embedder="openai", embedder_key="k2"), "voyage", None) is None


def test_the_key_of_an_account_goes_to_no_other_address():
    both = settings(openai_api_key="k1", embedder_key="k3", embedder_base_url="http://me:secret@127.0.0.1:2")

    assert [embedder_key(both, name, "http://127.0.0.1:1/v1") for name in ("openai", "voyage")] == ["k3", "k3"]


def test_the_key_of_an_address_goes_to_no_other_host():
    """The model of the host that was left is in use until the other one has embedded everything."""
    moved = settings(embedder_key="k3", embedder_base_url="https://new.example/v1")

    assert embedder_key(moved, "openai", "https://old.example/v1") is None
    assert embedder_key(settings(embedder_key="k3"), "openai", "https://old.example/v1") is None


@try_rows("name", sorted(registry.DEFAULT_MODELS))
def test_the_usual_model_is_the_one_that_is_asked(name: str):
    if name == "local" and not local.is_installed():
        pytest.skip("there is no wheel of wordllama for this machine")
    if name == "minilm" and not minilm.is_installed():
        pytest.skip("the extra minilm is not installed")

    made = make(EmbedderSettings(provider=name, api_key="nobodys-key-0123456789"))

    assert (made.provider, made.model) == (name, registry.DEFAULT_MODELS[name])
    assert chosen_of(embedder=name).model == made.model


def test_a_server_of_ones_own_has_no_usual_model():
    assert chosen_of(embedder="openai", embedder_base_url="http://127.0.0.1:1").model is None
    assert chosen_of(embedder="ollama", embedder_base_url="http://127.0.0.1:1").model == "nomic-embed-text"


def test_a_name_that_nobody_has_is_refused():
    with pytest.raises(Invalid, match=r"There is no embedder 'word2vec'. Available: local, minilm, ollama, openai, voyage."):
        make(EmbedderSettings(provider="word2vec"))


def _marker(requirement: str) -> str:
    return requirement.partition(";")[2].strip().replace("'", '"')


@pytest.mark.parametrize("lock", ["requirements.lock", "requirements-dev.lock"])
def test_a_lock_file_installs_the_local_model_only_where_there_is_a_wheel(lock: str):
    extra: list[str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["local"]
    (wanted,) = [requirement for requirement in extra if requirement.startswith("wordllama")]

    (locked,) = re.findall(r"^wordllama==(.+?) \\$", (ROOT / lock).read_text(), re.MULTILINE)

    assert _marker(wanted)
    assert _marker(locked) == _marker(wanted)
