"""The rules in the clothes of a model, for tests of what is around one."""

from __future__ import annotations

import msgspec

from cmserver.models.providers.model import Answer, Completion, Prompt
from cmserver.rules.batch import observe
from cmserver.rules.model import SessionRecord
from cmserver.rules.summaries import summarise


def answer_by_rules(prompt: Prompt) -> Answer:
    session = SessionRecord(
        requests=prompt.requests, recorded=prompt.recorded, open_ends=prompt.open_ends, last_message=prompt.last_message
    )
    return summarise(session) if prompt.kind == "summary" else observe(prompt.events, session, prompt.preferences.verbosity)


class RulesAsModel:
    """Answers a prompt as the rules would word its events."""

    name = "offline"
    model = "rules"

    async def complete(self, prompt: Prompt) -> Completion:
        return Completion(text=msgspec.json.encode(answer_by_rules(prompt)).decode(), model=self.model)
