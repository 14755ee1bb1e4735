"""`cmserver merge` says whose words the result has."""

from __future__ import annotations

import msgspec
import pytest

from cmserver.base.settings import Settings
from cmserver.models.providers.model import Completion, Prompt
from tests.cli.conftest import Cms
from tests.conftest import Cast
from tests.make import Make

ORDERS = "github.com/acme/orders"


class RepeatsTheNotes:
    """A model that says what the notes say, up to three sentences."""

    name = "repeats"
    model = "repeats-1"

    async def complete(self, prompt: Prompt) -> Completion:
        facts = [sentence for text in prompt.stored for sentence in text.split("\n\n")]
        return Completion(text=msgspec.json.encode({"title": "", "narrative": "", "facts": facts[:3]}).decode(), model=self.model)


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return msgspec.structs.replace(settings, provider=f"{__name__}:RepeatsTheNotes")


async def test_a_merge_says_who_worded_it_and_why_a_model_did_not(cms: Cms, cast: Cast, make: Make):
    for title in ("The pool has 20 connections", "The pool is shared", "The pool never shrinks", "The pool is closed at 6"):
        await make.observation(project=cast.alice.project, title=title)
    by_rules = await cms("merge", "1", "2", key=cast.alice.key)
    await cms("projects", "consolidation", ORDERS, "--with-model", key=cast.alice.key)
    by_model = await cms("merge", "3", "4", key=cast.alice.key)
    refused = await cms("merge", "1", "3", key=cast.alice.key)

    assert (by_rules.code, "Worded" in by_rules.out) == (0, False)
    assert (by_model.code, "Worded by the model" in by_model.out) == (0, True)
    assert (refused.code, "Worded by rules: in the model's words a fact is missing" in refused.out) == (0, True)
