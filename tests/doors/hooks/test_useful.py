"""What the offline provider makes of what Codex and Gemini send: as much as of the same work in Claude Code."""

from __future__ import annotations

import pytest

from cmserver.doors.hooks import codex, gemini
from cmserver.doors.hooks.model import Adapter, HookEvent
from cmserver.models.providers.model import Answer
from cmserver.reading.model import EventReading
from cmserver.reading.read import read_event
from cmserver.rules.batch import observe
from cmserver.rules.model import SessionRecord
from tests.doors.hooks.expect import DELIVERY, ROOT, sample

ADAPTERS = {"codex": codex.ADAPTER, "gemini": gemini.ADAPTER}


def _event(adapter: Adapter, place: int, name: str) -> EventReading:
    (event,) = adapter.parse(sample(adapter.platform, name), DELIVERY).events
    return _shown(event, place)


def _shown(event: HookEvent, place: int) -> EventReading:
    return read_event(event.event_type, event.payload, ROOT, occurred_at_epoch=1_000 * place)


async def _told(agent: str, *names: str) -> Answer:
    events = [_event(ADAPTERS[agent], place, name) for place, name in enumerate(names, 1)]
    return observe(events, SessionRecord())


@pytest.mark.parametrize(
    ("agent", "names"),
    [
        ("codex", ["PostToolUse-Bash-failed", "PostToolUse-apply_patch", "PostToolUse-Bash"]),
        (
            "gemini",
            [
                "AfterTool-run_shell_command-failed",
                "AfterTool-read_file",
                "AfterTool-replace",
                "AfterTool-write_file",
                "AfterTool-run_shell_command",
            ],
        ),
    ],
    ids=["codex", "gemini"],
)
async def test_a_failed_test_an_edit_and_a_commit_are_seen_for_what_they_are(agent: str, names: list[str]):
    context = await _told(agent, *names)

    failure, fix = context.observations
    assert (failure.type, failure.title) == ("discovery", "test_the_limit_itself_is_allowed fails: AssertionError: assert False")
    assert (fix.type, fix.title) == ("change", "Allow an order of exactly the limit")
    assert fix.files_modified == ["src/orders/limits.py", "tests/test_limits.py"]
    assert fix.facts is not None
    assert fix.facts[0] == "Commit 4be12c7"
    assert any("`return amount < customer.limit` → `return amount <= customer.limit`" in fact for fact in fix.facts)


@pytest.mark.parametrize(
    ("agent", "name"), [("codex", "PostToolUse-Bash-subagent"), ("gemini", "AfterTool-read_file-failed")], ids=["codex", "gemini"]
)
async def test_a_look_is_nothing_to_keep(agent: str, name: str):
    context = await _told(agent, name)

    assert context.observations == []
