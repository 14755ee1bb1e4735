"""Who decides how much is recorded, and in which language: the project, else its team, else the settings."""

from __future__ import annotations

from typing import get_args

import pytest

from cmserver.access.model import GenerationPolicy
from cmserver.base.settings import fields
from cmserver.generation.prompt import resolve_preferences
from cmserver.models.providers.model import Verbosity

SILENT = GenerationPolicy()


@pytest.mark.parametrize(
    ("own", "team", "expected"),
    [
        (SILENT, SILENT, "minimal"),
        (SILENT, GenerationPolicy(verbosity="verbose"), "verbose"),
        (GenerationPolicy(verbosity="normal"), GenerationPolicy(verbosity="verbose"), "normal"),
    ],
)
def test_the_settings_decide_where_neither_project_nor_team_does(
    own: GenerationPolicy, team: GenerationPolicy, expected: Verbosity
):
    assert resolve_preferences(own, team, language="German", verbosity="minimal").verbosity == expected


def test_the_setting_takes_what_a_policy_takes():
    (setting,) = [field for field in fields() if field.name == "verbosity"]

    assert setting.choices == get_args(Verbosity)
