"""Providers by name: ours, the operator's own, and the sentence for a name that is neither."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from cmserver.base.errors import Invalid
from cmserver.providers.registry import load


def test_offline_is_available():
    assert load("offline", model=None, base_url=None).name == "offline"


def test_a_wrong_name_is_answered_with_the_nearest_right_one():
    with pytest.raises(Invalid) as refused:
        load("ofline", model=None, base_url=None)

    assert str(refused.value) == (
        "There is no provider 'ofline'. Did you mean 'offline'? Available: offline, or one of your own as package.module:factory."
    )


def test_the_operators_own_provider_is_loaded_from_its_factory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "house_provider.py").write_text("from cmserver.providers.offline import Offline as make\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])

    assert load("house_provider:make", model=None, base_url=None).name == "offline"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no_such_house:make", "cannot be loaded: No module named 'no_such_house'."),
        ("string:nothing", "cannot be loaded: module 'string' has no attribute 'nothing'."),
        ("string:digits", "digits() must return an object with `name` and `complete`."),
        (":make", "cannot be loaded"),
    ],
)
def test_what_is_no_provider_is_refused_with_a_sentence(name: str, words: str):
    with pytest.raises(Invalid, match=r"^The provider ") as refused:
        load(name, model=None, base_url=None)

    assert words in str(refused.value)
