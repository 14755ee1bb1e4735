"""A provider that costs no time: one observation of every third event, the others skipped, as a good model would do it."""

from __future__ import annotations

import msgspec

from cmserver.models.providers.model import Answer, Completion, DraftObservation, DraftSummary, Prompt, Skip

EVENTS_PER_OBSERVATION = 3


class Instant:
    """For CMSERVER_PROVIDER=tests.bench.instant:make."""

    name = "instant"
    model = "instant-1"

    def __init__(self) -> None:
        self._seen = 0

    async def complete(self, prompt: Prompt) -> Completion:
        """Count through the events of all calls, so that batches of one are observed as seldom as others."""
        answer = Answer(summary=DraftSummary(completed="Everything.") if prompt.kind == "summary" else None)
        for tag in prompt.tags:
            self._seen += 1
            if self._seen % EVENTS_PER_OBSERVATION:
                answer.skipped.append(Skip(event=tag, reason="a look-up, nothing was changed"))
            else:
                answer.observations.append(self.draw(tag, self._seen))
        return Completion(text=msgspec.json.encode(answer).decode(), model="instant-1", input_tokens=100, output_tokens=20)

    def draw(self, tag: str, number: int) -> DraftObservation:
        """What is observed of the event of that tag, the so many-th of all."""
        return DraftObservation(
            type="change",
            title=f"Retry of failed orders, step {number}",
            narrative="The client waits between its attempts now, up to a bound, and gives up after the fifth with the last error.",
            facts=["The pause doubles with each attempt.", "A 4xx answer is not tried again."],
            concepts=["how-it-works"],
            files_modified=["src/orders/client.py"],
            events=[tag],
        )


def make() -> Instant:
    return Instant()
