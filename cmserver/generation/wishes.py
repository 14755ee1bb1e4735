"""How the people of a project want its observations worded. Pure."""

from __future__ import annotations

from cmserver.access.model import LAWS, GenerationPolicy
from cmserver.providers.model import Wishes


def wishes(own: GenerationPolicy, team: GenerationPolicy, language: str) -> Wishes:
    """What the project does not say, its team says; what neither says, the settings. The skip rules add up; laws need no words."""
    return Wishes(
        verbosity=own.verbosity or team.verbosity or "normal",
        language=own.language or team.language or language,
        skip_rules=[rule for rule in dict.fromkeys([*team.skip_rules, *own.skip_rules]) if not rule.startswith(LAWS)],
    )
