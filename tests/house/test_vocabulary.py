"""Words that several rooms write down, because none may import them from the other, are the same everywhere."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, cast, get_args

from cmserver.answers.vocabulary import TAG_ROLES, canonical_name
from cmserver.events.model import IS_WORK
from cmserver.models.providers.model import Prompt, PromptKind
from cmserver.models.providers.prompts.fence import ANSWERS, FENCES
from cmserver.models.providers.prompts.instructions import instructions
from cmserver.models.providers.prompts.schema import SCHEMAS
from cmserver.observations.model import TYPE_FAMILIES, TYPES
from cmserver.reading.model import PROMPT_TYPES, REPLY_TYPE

SCHEMA = Path(__file__).parents[2] / "sql" / "migrations" / "0001_schema.sql"


def test_the_types_of_observations_are_the_same_for_the_database_and_for_models():
    fields = cast("Any", SCHEMAS["observations"])["properties"]["observations"]["items"]["properties"]
    check = re.search(r"CREATE TABLE observations \(.*?CHECK \(type IN \([^)]*", SCHEMA.read_text(), re.DOTALL)
    assert check is not None

    assert set(fields["type"]["enum"]) == TYPES
    assert set(re.findall(r"'(\w+)'", check[0].rpartition("type IN")[2])) == TYPES
    assert frozenset().union(*TYPE_FAMILIES) == TYPES
    preferences = Prompt(kind="observations", project="").preferences
    for form in ("json", "xml"):
        text = instructions("observations", form, preferences)
        assert [name for name in TYPES if name not in text] == []


def test_each_kind_of_prompt_has_a_schema():
    assert set(SCHEMAS) == set(get_args(PromptKind))


def test_what_answers_are_read_by_is_escaped_in_prompts():
    spoken = {name.replace("_", "") for name, role in TAG_ROLES.items() if role != "think"}

    assert spoken - {*ANSWERS, *FENCES} == set()
    assert [name for name in ANSWERS if canonical_name(name) is None] == []


def test_the_sql_for_more_than_words_names_what_the_code_does():
    assert set(re.findall(r"'(\w+)'", IS_WORK)) == {*PROMPT_TYPES, REPLY_TYPE}
